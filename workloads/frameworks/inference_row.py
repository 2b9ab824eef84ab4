"""Inside a worker: the answers of a Keras model to batches of samples. The worker's environment chose its device."""

import concurrent.futures
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import networks
from workloads.frameworks import data, models, tensors, user_model
from workloads.harness import energy, telemetry, timing
from workloads.harness.dispatch import Broken
from workloads.harness.memory_needs import require_memory
from workloads.harness.timing import Limits
from workloads.machine import gpu
from workloads.records import Measurement, Row, Samples, settings

# The largest error allowed of an answer by arithmetic, as a share of the range of the reference's answers: room for some
# hundred roundings in a row.
BOUNDS = {"float32": 1e-2, "tf32": 0.1, "mixed_bfloat16": 0.5, "mixed_float16": 0.1}
_SUM_BOUNDS = {"float32": 1e-4, "tf32": 1e-4, "mixed_bfloat16": 2e-2, "mixed_float16": 5e-3}
_OBEYED = {"data", "jit_compile", "gpu", "precision", "tf32", "in_flight", "beside", "at_once"}
COMPARED = 4  # samples whose answers are compared with the reference: requests are made of these
_SERVED_S = 0.1  # seconds of a block of requests
PREDICT, CALL, SERVE = (f"inference/keras/{name}" for name in ("predict", "call", "serve"))


@dataclasses.dataclass(frozen=True)
class Ready:
    """A model that answers: its graph, the `first` samples, their `reference` answers (one operation at a time), its device.

    softmax: whether its answers are probabilities. compiled: (by predict or not, batch) of each graph that this process has
    compiled.
    """

    model: Any
    function: Callable
    first: np.ndarray
    reference: np.ndarray
    softmax: bool
    device: str
    wait: Callable | None
    about: dict[str, str]
    compiled: set = dataclasses.field(default_factory=set)


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Checks the answers, then times them: `host-latency`, and on a GPU, for samples that are there already, `host-throughput`
    (queued calls); for `serve` both clocks time a request, which waits its turn among those in flight.

    phases_s: import and device_start (in a process's first row), build (in a model's first), first_call (a batch's first).
    values: parameters, jit_compile, tf32, joules_per_sample and watts (where a counter is readable), peak_memory_bytes.
    Raises: ValueError for what cannot be run so; registry.NotInstalled; measure.DoesNotFit; Broken; data.Unavailable.
    """
    phases: dict[str, float] = {}
    values: dict[str, float] = {}
    notes: dict[str, str] = {}
    ready, x = prepare(row, seed, phases, values)
    if row.on_gpu:
        import tensorflow

        tensorflow.config.experimental.reset_memory_stats("GPU:0")
    notes |= tensors.about(row) | ready.about
    with tensors.on(ready.device):
        call = caller(row, ready, x)
        made = (row.kernel == PREDICT, row.problem.batch)  # predict has a graph of its own
        with tensors.timed({} if made in ready.compiled else phases, "first_call"):
            call()
            if ready.wait:
                ready.wait()
        ready.compiled.add(made)
        error, wrong = checked(row, ready, x)
        about: dict = {"check": "bound", "max_error": error if math.isfinite(error) else None}
        about |= {"phases_s": phases, "values": values, "notes": notes}  # which fill on the way
        if wrong:
            return row.result("wrong", wrong, **about)
        watch = telemetry.watch(row.device, framework=True)
        if row.kernel == SERVE:
            answered, latencies = serve(row, ready, x, limits, watch.before_block)
            samples: tuple[Samples, ...] = (latencies, answered)
        else:
            takes = {"host-latency": timing.host(call)}  # calls that give arrays have waited; so have the CPU's
            if ready.wait and row.mode == "resident":
                takes = {"host-latency": timing.latency(call, ready.wait)}
                takes |= {"host-throughput": timing.throughput(call, ready.wait)}
            samples = tuple(timing.visits(take, limits, clock, watch.before_block) for clock, take in takes.items())
        seen, flags = watch.readings()
        values |= seen | _joules(row, ready, call, x, notes)
        if row.on_gpu:  # other models of this process included
            values |= tensors.peak_memory()
    return row.result("ok", samples=samples, flags=flags, **about)


def prepare(row: Row, seed: int, phases: dict, values: dict) -> tuple[Ready, np.ndarray]:
    """(the model of a row, ready to answer; the row's batch of samples, at least COMPARED of them).

    Raises: ValueError for what cannot be run so; registry.NotInstalled; measure.DoesNotFit; Broken; data.Unavailable.
    """
    problem, wanted = row.problem, settings.checked_keras(row)
    if row.kernel not in (PREDICT, CALL, SERVE):
        raise ValueError(f"unknown way to answer {row.kernel!r}; known: {PREDICT}, {CALL}, {SERVE}")
    if aside := settings.changed(row.settings.switches).keys() - row.settings.variables.keys() - _OBEYED:
        raise ValueError(f"an inference has no {', '.join(sorted(aside))}")
    if (row.kernel != CALL and row.mode != "roundtrip") or row.mode not in ("resident", "roundtrip"):
        raise ValueError(f"{row.kernel} answers arrays with arrays (mode roundtrip), not {row.mode}")
    if row.experiment.in_flight > 1 and row.kernel != SERVE:
        raise ValueError(f"{row.kernel} answers one request at a time; {SERVE} has some in flight")
    if not settings.is_user_model(problem.model):
        networks.find(problem.model)  # before anything is imported
    require_memory(problem, "cpu")  # a GPU's memory is TensorFlow's already; it says itself what does not fit
    phases |= tensors.begin(row.device, row.threads)
    made = _ready.cache_info().misses
    begun = time.perf_counter()
    chosen = (wanted.data, wanted.jit_compile, wanted.precision, wanted.tf32)
    ready = _ready(problem.model, row.device, row.threads, problem.dtype, seed, chosen)
    if _ready.cache_info().misses > made:
        phases["build"] = time.perf_counter() - begun
    values |= {
        "parameters": float(ready.model.count_params()),
        "jit_compile": float(ready.model.jit_compile is True),
        "tf32": float(_arithmetic(row) == "tf32"),
    }
    x = _samples(ready.model, problem.model, wanted.data, max(problem.batch, COMPARED), seed, problem.dtype)
    x[:COMPARED] = ready.first  # made-up samples are others in a larger set
    return ready, x


@functools.lru_cache(maxsize=1)
def _ready(name: str, device: str, threads: int | None, dtype: str, seed: int, chosen: tuple[str, ...]) -> Ready:
    """The model with seeded weights, its batch normalization set to the samples' own means and variances: with the first
    weights' 0 and 1 a deep network would answer all samples alike, and nothing could be compared.

    Raises: Broken.
    """
    import keras
    import tensorflow

    network, (kind, jit, precision, tf32) = networks.known(name), chosen
    where, wait = tensors.start(device, threads)
    tensorflow.config.experimental.enable_tensor_float_32_execution(tf32 == "on")
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy(precision)
    try:
        with tensors.on(where):
            compiled = settings.JIT[jit]
            model, about = (models.build(network, compiled), {}) if network else user_model.load(name, compiled)
    finally:
        keras.config.set_dtype_policy("float32")
    if network and (wrong := models.differences(model, network)):
        raise Broken(wrong)
    tensors.require_device(model, device, "tensorflow")
    x = _samples(model, name, kind, COMPARED, seed, dtype)
    if network:  # a user's own model may have learned its own
        with tensors.on(where):
            _normalize(model, x)
    with tensors.on("/CPU:0"):
        reference = np.asarray(model(tensorflow.constant(x), training=False), np.float64)
    function = tensorflow.function(
        lambda batch: model(batch, training=False), jit_compile=model.jit_compile is True, autograph=False
    )
    softmax = getattr(getattr(model.layers[-1], "activation", None), "__name__", "") == "softmax"
    return Ready(model, function, x, reference, softmax, where, wait, about)


def _samples(model, name: str, kind: str, count: int, seed: int, dtype: str) -> np.ndarray:
    """So many samples for a model of the tables or a user's own.

    Raises: ValueError for real data of a user's own model, of which nothing is known; Broken; data.Unavailable.
    """
    if network := networks.known(name):
        return data.load(kind, network, count, seed, dtype)[0]
    if kind != "synthetic":
        raise ValueError(f"no real samples are known of {name}")
    return user_model.samples(model, count, seed, dtype)[0]


def _normalize(model, x: np.ndarray) -> None:
    """Sets the running means and variances of every batch normalization to those of the samples."""
    import keras

    layers = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    kept = [layer.momentum for layer in layers]
    if not layers:
        return
    for layer in layers:
        layer.momentum = 0.0
    model(x, training=True)
    for layer, momentum in zip(layers, kept, strict=True):
        layer.momentum = momentum


def caller(row: Row, ready: Ready, x: np.ndarray) -> Callable:
    """One call that answers the row's batch: `predict` and `roundtrip` take an array and give one, which is waited for."""
    import tensorflow

    batch, function = np.ascontiguousarray(x[: row.problem.batch]), ready.function
    if row.kernel == PREDICT:
        return lambda: ready.model.predict(batch, batch_size=len(batch), verbose=0)
    if row.mode == "roundtrip":
        return lambda: function(tensorflow.constant(batch)).numpy()
    (there,) = tensors.place((batch,), ready.device)
    return lambda: function(there)


def _arithmetic(row: Row) -> str:
    """The arithmetic that a row is allowed, a key of BOUNDS."""
    wanted = row.keras
    if wanted.precision != "float32":
        return wanted.precision
    return "tf32" if row.on_gpu and wanted.tf32 == "on" and not gpu.lacks(row.device, "tf32") else "float32"


def checked(row: Row, ready: Ready, x: np.ndarray) -> tuple[float, str]:
    """(the largest error of a call's answers as a share of the reference's range, the reason why they are wrong or "")."""
    kind = _arithmetic(row)
    if row.kernel == SERVE:
        size, in_flight = row.problem.batch, row.experiment.in_flight
        found, _ = answers(ready, requests(x, size, 4 * in_flight), in_flight)
        wanted = requests(ready.reference, size, 4 * in_flight)
    else:
        found, wanted = [tensors.on_host(caller(row, ready, x)())], [ready.reference]
    pairs = zip(found, wanted, strict=True)
    errors, wrongs = zip(*(compared(a, b, ready.reference, ready.softmax, kind) for a, b in pairs), strict=True)
    return max(errors), next(filter(None, wrongs), "")


def compared(
    answers: np.ndarray, wanted: np.ndarray, reference: np.ndarray, softmax: bool, kind: str
) -> tuple[float, str]:
    """(error, the reason why they are wrong or "") of answers. The first ones are those to the reference's samples.

    The error is the largest difference from `wanted`, as a share of how far the reference's answers to different samples lie
    apart. All answers must be finite, and a softmax's sum to 1.
    """
    answers = np.asarray(answers, np.float64)
    if not np.isfinite(answers).all():
        return math.inf, "an answer is not a finite number"
    if softmax and (off := float(np.abs(answers.sum(axis=-1) - 1).max())) > _SUM_BOUNDS[kind]:
        return math.inf, f"the probabilities of a sample sum to 1 +- {off:.3g}"
    apart = float(np.ptp(reference, axis=0).max())
    if apart <= 1e-6 * float(np.abs(reference).max()):
        return math.inf, "the reference answers all samples alike, so nothing can be compared"
    both = min(len(answers), len(wanted))
    error = float(np.abs(answers[:both] - wanted[:both]).max()) / apart
    wrong = f"the answers are {error:.3g} of their range off those of one operation at a time, more than {BOUNDS[kind]}"
    return error, wrong if error > BOUNDS[kind] else ""


def _joules(row: Row, ready: Ready, call: Callable, x: np.ndarray, notes: dict) -> dict[str, float]:
    """joules_per_sample and watts; `notes` gets what the counter covers, or why there are none."""
    read, said = energy.counter(row.device)
    notes["energy"] = said
    if read is None:
        return {}
    wait, samples = ready.wait or (lambda: None), row.problem.batch
    if row.kernel == SERVE:
        in_flight = row.experiment.in_flight
        sent = requests(x, samples, 4 * in_flight)
        call, samples = lambda: answers(ready, sent, in_flight), samples * len(sent)
    used = energy.used(read, call, wait, samples)
    if not used:
        notes["energy"] = f"{said}: the counter did not move"
    return used


def requests(x: np.ndarray, size: int, count: int) -> list[np.ndarray]:
    """The samples, or reference answers, of so many requests of `size`: the different ones that have a reference, in turn."""
    different = [np.ascontiguousarray(x[at : at + size]) for at in range(max(1, COMPARED - size + 1))]
    return list(itertools.islice(itertools.cycle(different), count))


def answers(ready, sent: list[np.ndarray], in_flight: int) -> tuple[list[np.ndarray], list[float]]:
    """(answers, seconds that each request waited) in the requests' order, `in_flight` threads sending one after another to a
    model that is ready (Ready)."""
    import tensorflow

    def answer(request: np.ndarray) -> tuple[np.ndarray, float]:
        begin = time.perf_counter()
        with tensors.on(ready.device):
            found = ready.function(tensorflow.constant(request)).numpy()
        return found, time.perf_counter() - begin

    found = list(_pool(in_flight).map(answer, sent))
    return [a for a, _ in found], [s for _, s in found]


_pool = functools.cache(concurrent.futures.ThreadPoolExecutor)  # number of threads -> those that send requests


def serve(row: Row, ready: Ready, x: np.ndarray, limits: Limits, before_block: Callable) -> tuple[Samples, Samples]:
    """(host-throughput: seconds by the number of requests; host-latency: what a request waits) of blocks of requests that
    threads send one after another, the row's `in_flight` at the same time: a batch each, array to array."""
    in_flight = row.experiment.in_flight

    def block(calls: int) -> tuple[float, float]:
        sent = requests(x, row.problem.batch, calls)
        begin = time.perf_counter()
        _, waited = answers(ready, sent, in_flight)
        return (time.perf_counter() - begin) / calls, sum(waited) / calls

    calls = 4 * in_flight
    rough, _ = block(calls)
    calls, taken = max(calls, math.ceil(_SERVED_S / rough)), list[tuple[float, float]]()
    for _ in timing.rounds(limits):
        before_block()
        taken.append(block(calls))

    def samples(clock: str, each: tuple[float, ...]) -> Samples:
        return Samples(clock, tuple(map(timing.rounded, each)), calls, (1,) * len(each), f"{len(each)} rounds")

    rates, waits = zip(*taken, strict=True)
    return samples("host-throughput", rates), samples("host-latency", waits)
