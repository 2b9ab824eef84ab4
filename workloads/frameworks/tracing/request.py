"""The parent's side: a model's traced step, from the cache or from a process that traces it."""

import contextlib
import hashlib
import importlib.metadata
import os
from pathlib import Path

import msgspec

from kernels.networks import Network
from kernels.problems import Training
from workloads import options
from workloads.frameworks import grid
from workloads.frameworks.tracing import user_files
from workloads.frameworks.tracing.answer import CHANGE, FILES, NETWORK
from workloads.harness import worker
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row, Settings


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be traced."""

    #: A network of the tables, `file.py:function`, `package.module:function` or a .keras file.
    model: str
    batch: int
    #: A function that gives the samples; "" to make them up.
    data: str = ""
    #: The length of open sizes; 0 if there are none.
    length: int = 0


class CachedNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A model with its traced step in a file of the cache."""

    network: Network
    #: File -> SHA-256, of the user's files that it depends on.
    files: dict[str, str]


def traced_network(request: TraceRequest, time_limit_s: float = 60) -> Network:
    """A model with the operations of its training step; from the cache where no file that it depends on has changed.

    Raises: Usage for a model that is not known, does not build or does not trace; Missing without TensorFlow, and when time is
    up.
    """
    grid.known_model(request.model)
    grid.require_keras()
    file = _file(request)
    cached = _cached(file)
    if cached is not None:
        return cached
    measurement = _ask(request, time_limit_s)
    if not measurement.ok:
        raise _refusal(measurement, request, time_limit_s)
    network = msgspec.json.decode(measurement.notes[NETWORK], type=Network)
    files = msgspec.json.decode(measurement.notes[FILES], type=dict[str, str])
    _store(file, CachedNetwork(network=network, files=files))
    return network


def _ask(request: TraceRequest, time_limit_s: float) -> Measurement:
    """The answer of a process that traces it."""
    problem = Training(request.model, request.batch, request.batch)
    row = Row("training/keras/trace", problem, Settings(switches={"data": "synthetic"}))
    step_inputs = {"data": request.data, "length": str(request.length)}
    order = worker.Order("trace", row, Limits(), step_inputs=step_inputs)
    with contextlib.closing(worker.Worker(worker.environment(row, {}))) as tracer:
        return tracer.ask(order, time_limit_s)


def _refusal(measurement: Measurement, request: TraceRequest, time_limit_s: float) -> options.Stop:
    if measurement.cause == "time-limit":
        doing = f"{request.data}(), building and tracing" if request.data else "building and tracing it"
        why = f"{request.model} cannot be traced: {doing} has {measurement.reason}"
        return options.Missing(why, wrong="--time-limit", right=f"--time-limit {5 * time_limit_s:g}")
    if measurement.cause == "open-size":
        return options.Usage(measurement.reason, right="--length 200")
    if measurement.cause == "open-input":
        is_saved = request.model.endswith(".keras")
        file = "data.py" if is_saved else request.model.partition(":")[0]
        first = f"write a function data that returns (x, y) into {file}"
        return options.Usage(measurement.reason, right=f"--data {file}:data", first=first)
    mending = f"mend {(request.data or request.model).partition(':')[0]}"
    return options.Usage(measurement.reason, first=measurement.notes.get(CHANGE) or mending)


def _file(request: TraceRequest) -> Path:
    """Where the cache has a request: one name for each model, sources of ours, TensorFlow and Keras."""
    versions = [importlib.metadata.version(name) for name in ("tensorflow", "keras")]
    parts = [os.getcwd(), user_files.hash_of_sources(), *versions, msgspec.json.encode(request).decode()]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "crossover" / "traces" / f"{name}.json"


def _cached(file: Path) -> Network | None:
    """The model in a file of the cache; None where there is none, or where a file that it depends on has changed."""
    try:
        cached = msgspec.json.decode(file.read_bytes(), type=CachedNetwork)
    except (OSError, msgspec.MsgspecError):
        return None
    unchanged = all(user_files.sha256(Path(path)) == digest for path, digest in cached.files.items())
    return cached.network if unchanged else None


def _store(file: Path, cached: CachedNetwork) -> None:
    """Writes a file of the cache; a folder that cannot be written to is no fault."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(msgspec.json.encode(cached))
        unfinished.replace(file)
