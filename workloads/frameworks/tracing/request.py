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
    """A model whose training step is to be traced."""

    #: A network of kernels.networks, `file.py:function`, `package.module:function` or a .keras file.
    model: str
    #: Samples of the step.
    batch: int
    #: The user's function that returns the samples, as `file.py:function`; "" to make them up.
    data: str = ""
    #: The length of each side that the model leaves open; 0 if there are none.
    length: int = 0


class CachedNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A model with its traced step in a file of the cache."""

    network: Network
    #: File -> SHA-256, of the user's files that it depends on.
    files: dict[str, str]


def traced_network(request: TraceRequest, time_limit_s: float = 60) -> Network:
    """A model with the operations of its training step.

    It is taken from the cache in the user's home where no file that it depends on has changed; else a child process traces it.
    Raises: Usage for a model that is not known, does not build or does not trace; Missing without TensorFlow, and when the child
    takes longer than time_limit_s.
    """
    grid.known_model(request.model)
    grid.require_keras()
    file = _cache_file(request)
    cached = _cached_network(file)
    if cached is not None:
        return cached
    measurement = _trace_in_child(request, time_limit_s)
    if not measurement.ok:
        raise _error_of_failure(measurement, request, time_limit_s)
    network = msgspec.json.decode(measurement.notes[NETWORK], type=Network)
    files = msgspec.json.decode(measurement.notes[FILES], type=dict[str, str])
    _store(file, CachedNetwork(network=network, files=files))
    return network


def _trace_in_child(request: TraceRequest, time_limit_s: float) -> Measurement:
    """The answer of a new worker process that traces the model: its notes have the Network as JSON, or its reason says what
    failed.

    The process ends before this returns.
    """
    problem = Training(request.model, request.batch, samples=request.batch)
    row = Row("training/keras/trace", problem, Settings(switches={"data": "synthetic"}))
    step_inputs = {"data": request.data, "length": str(request.length)}
    order = worker.Order("trace", row, Limits(), step_inputs=step_inputs)
    with contextlib.closing(worker.Worker(worker.environment(row, {}))) as tracer:
        return tracer.ask(order, time_limit_s)


def _error_of_failure(measurement: Measurement, request: TraceRequest, time_limit_s: float) -> options.Stop:
    """The error that tells the user why a request was not traced, and what to type or change.

    measurement: the child's answer, which is not ok. Its `cause` says which of the errors it is.
    """
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
    if measurement.cause == "process-ended":
        message = f"building {request.model}: {measurement.reason}"
        return options.Usage(message, wrong=request.model, right=request.model, first=mending)
    return options.Usage(measurement.reason, first=measurement.notes.get(CHANGE) or mending)


def _cache_file(request: TraceRequest) -> Path:
    """The cache's file for a request. Its name is a hash of the request, the current folder, the sources that trace, and the
    versions of TensorFlow and Keras: where one of these differs, so does the file."""
    versions = [importlib.metadata.version(name) for name in ("tensorflow", "keras")]
    parts = [os.getcwd(), user_files.hash_of_sources(), *versions, msgspec.json.encode(request).decode()]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "crossover" / "traces" / f"{name}.json"


def _cached_network(file: Path) -> Network | None:
    """The model in a file of the cache; None where there is no such file, or where a file that the model depends on has
    changed."""
    try:
        cached = msgspec.json.decode(file.read_bytes(), type=CachedNetwork)
    except (OSError, msgspec.MsgspecError):
        return None
    unchanged = all(user_files.sha256(Path(path)) == digest for path, digest in cached.files.items())
    return cached.network if unchanged else None


def _store(file: Path, cached: CachedNetwork) -> None:
    """Writes a file of the cache. Where its folder cannot be written to, nothing is stored and nothing raised."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is complete, so that no other process reads a part of it.
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(msgspec.json.encode(cached))
        unfinished.replace(file)
