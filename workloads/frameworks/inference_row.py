"""Inside a worker: the answers of a Keras model to batches of samples. The worker's environment chose its device."""

import concurrent.futures
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
from workloads.records.switches import Keras

# The largest error allowed of an answer by arithmetic, as a share of the range of the reference's answers: room for some
# hundred roundings in a row.
BOUNDS = {"float32": 1e-2, "tf32": 0.1, "mixed_bfloat16": 0.5, "mixed_float16": 0.1}
_SUM_BOUNDS = {"float32": 1e-4, "tf32": 1e-4, "mixed_bfloat16": 2e-2, "mixed_float16": 5e-3}
_OBEYED = {"data", "jit_compile", "gpu", "precision", "tf32", "in_flight", "beside", "at_once"}
COMPARED = 4  # samples whose answers are compared with the reference: requests are made of these
_SERVED_S = 0.1  # seconds of a block of requests
PREDICT = "inference/keras/predict"
CALL = "inference/keras/call"
SERVE = "inference/keras/serve"


class ReadyModel:
    """A model that answers on a device, with seeded weights.

    Its batch normalization is set to the samples' own means and variances: with the first weights' 0 and 1 a deep network would
    answer all samples alike, and nothing could be compared.
    """

    def __init__(self, name: str, device: str, threads: int | None, *, dtype: str, seed: int, options: Keras):
        """Raises: Broken."""
        import keras
        import tensorflow

        jit_compile = settings.JIT[options.jit_compile]
        network = networks.known(name)
        #: TensorFlow's name of the device, and the call that waits for its work (None where calls have waited).
        self.device, self.wait = tensors.start(device, threads)
        tensorflow.config.experimental.enable_tensor_float_32_execution(options.tf32 == "on")
        keras.utils.set_random_seed(seed)
        keras.config.set_dtype_policy(options.precision)
        #: What was decided for a user's model.
        self.notes: dict[str, str] = {}
        try:
            with tensors.on(self.device):
                if network:
                    model = models.build(network, jit_compile)
                else:
                    model, self.notes = user_model.load(name, jit_compile)
        finally:
            keras.config.set_dtype_policy("float32")
        self.model = model
        wrong = models.differences(model, network) if network else ""
        if wrong:
            raise Broken(wrong)
        tensors.require_device(model, device, "tensorflow")
        #: The samples that have reference answers.
        self.first = _samples(model, name, options.data, COMPARED, seed=seed, dtype=dtype)
        if network:  # a user's model may have learned its own means
            with tensors.on(self.device):
                _normalize(model, self.first)
        with tensors.on("/CPU:0"):
            answers = model(tensorflow.constant(self.first), training=False)
        #: Their answers, one operation at a time.
        self.reference = np.asarray(answers, np.float64)
        #: The model's graph.
        self.function = tensorflow.function(
            lambda batch: model(batch, training=False), jit_compile=model.jit_compile is True, autograph=False
        )
        activation = getattr(model.layers[-1], "activation", None)
        #: Whether its answers are probabilities.
        self.is_softmax = getattr(activation, "__name__", "") == "softmax"
        #: (by predict or not, batch) of each graph that this process has compiled.
        self.compiled: set[tuple[bool, int]] = set()


_ready_model = functools.lru_cache(maxsize=1)(ReadyModel)


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Checks the answers, then times them: `host-latency`, and on a GPU, for samples that are there already, `host-throughput`
    (queued calls); for `serve` both clocks time a request, which waits its turn among those in flight.

    phases_s: import and device_start (in a process's first row), build (in a model's first), first_call (a batch's first).
    values: parameters, jit_compile, tf32, joules_per_sample and watts (where a counter is readable), peak_memory_bytes.
    Raises: ValueError for what cannot be run so; registry.NotInstalled; measure.DoesNotFit; Broken; data.Unavailable.
    """
    phases: dict[str, float] = {}
    values: dict[str, float] = {}
    ready, x = prepare(row, seed, phases, values)
    if row.on_gpu:
        import tensorflow

        tensorflow.config.experimental.reset_memory_stats("GPU:0")
    notes = tensors.about(row) | ready.notes
    with tensors.on(ready.device):
        call = caller(row, ready, x)
        _first_call(row, ready, call, phases)
        error, wrong = checked(row, ready, x)
        max_error = error if math.isfinite(error) else None
        if not wrong:
            watch = telemetry.watch(row.device, framework=True)
            if row.kernel == SERVE:
                samples = serve(row, ready, x, limits, before_block=watch.before_block)
            else:
                samples = _timed(row, ready, call, limits, before_block=watch.before_block)
            readings, flags = watch.readings()
            values |= readings | _joules(row, ready, call, x, notes=notes)
            if row.on_gpu:  # other models of this process included
                values |= tensors.peak_memory()
    checks: dict[str, Any] = {"check": "bound", "max_error": max_error}
    if wrong:
        return row.result("wrong", wrong, **checks, phases_s=phases, values=values, notes=notes)
    return row.result("ok", samples=samples, flags=flags, **checks, phases_s=phases, values=values, notes=notes)


def _first_call(row: Row, ready: ReadyModel, call: Callable, phases: dict[str, float]) -> None:
    """Calls once and waits. Fills phases_s first_call where that compiles a graph."""
    graph = (row.kernel == PREDICT, row.problem.batch)  # predict has a graph of its own
    is_compiled = graph in ready.compiled
    with tensors.timed({} if is_compiled else phases, "first_call"):
        call()
        if ready.wait:
            ready.wait()
    ready.compiled.add(graph)


def _timed(
    row: Row, ready: ReadyModel, call: Callable, limits: Limits, *, before_block: Callable[[], None]
) -> tuple[Samples, ...]:
    """The samples of a call on each clock that it has."""
    clocks = {"host-latency": timing.host(call)}  # calls that give arrays have waited; so have the CPU's
    if ready.wait and row.mode == "resident":
        clocks["host-latency"] = timing.latency(call, ready.wait)
        clocks["host-throughput"] = timing.throughput(call, ready.wait)
    return tuple(timing.visits(take, limits, clock, before_block) for clock, take in clocks.items())


def prepare(row: Row, seed: int, phases: dict[str, float], values: dict[str, float]) -> tuple[ReadyModel, np.ndarray]:
    """(the model of a row, ready to answer; the row's batch of samples, at least COMPARED of them). Fills phases and values.

    Raises: ValueError for what cannot be run so; registry.NotInstalled; measure.DoesNotFit; Broken; data.Unavailable.
    """
    problem = row.problem
    chosen = settings.checked_keras(row)
    _require_possible(row)
    if not settings.is_user_model(problem.model):
        networks.find(problem.model)  # before anything is imported
    require_memory(problem, "cpu")  # a GPU's memory is TensorFlow's already; it says itself what does not fit
    phases |= tensors.begin(row.device, row.threads)
    models_before = _ready_model.cache_info().misses
    begin = time.perf_counter()
    ready = _ready_model(
        problem.model,
        row.device,
        row.threads,
        dtype=problem.dtype,
        seed=seed,
        options=chosen,
    )
    if _ready_model.cache_info().misses > models_before:
        phases["build"] = time.perf_counter() - begin
    values |= {
        "parameters": float(ready.model.count_params()),
        "jit_compile": float(ready.model.jit_compile is True),
        "tf32": float(_arithmetic(row) == "tf32"),
    }
    count = max(problem.batch, COMPARED)
    x = _samples(ready.model, problem.model, chosen.data, count, seed=seed, dtype=problem.dtype)
    x[:COMPARED] = ready.first  # made-up samples are others in a larger set
    return ready, x


def _require_possible(row: Row) -> None:
    """Raises ValueError for a row that no inference is."""
    if row.kernel not in (PREDICT, CALL, SERVE):
        raise ValueError(f"unknown way to answer {row.kernel!r}; known: {PREDICT}, {CALL}, {SERVE}")
    not_obeyed = settings.without_defaults(row.settings.switches).keys() - row.settings.variables.keys() - _OBEYED
    if not_obeyed:
        raise ValueError(f"an inference has no {', '.join(sorted(not_obeyed))}")
    if (row.kernel != CALL and row.mode != "roundtrip") or row.mode not in ("resident", "roundtrip"):
        raise ValueError(f"{row.kernel} answers arrays with arrays (mode roundtrip), not {row.mode}")
    if row.experiment.in_flight > 1 and row.kernel != SERVE:
        raise ValueError(f"{row.kernel} answers one request at a time; {SERVE} has some in flight")


def _samples(model, name: str, kind: str, count: int, *, seed: int, dtype: str) -> np.ndarray:
    """So many samples for a model of the tables or a user's.

    Raises: ValueError for real data of a user's model, of which nothing is known; Broken; data.Unavailable.
    """
    network = networks.known(name)
    if network:
        return data.load(kind, network, count, seed, dtype=dtype)[0]
    if kind != "synthetic":
        raise ValueError(f"no real samples are known of {name}")
    return user_model.samples(model, count, seed, dtype)[0]


def _normalize(model, x: np.ndarray) -> None:
    """Sets the running means and variances of every batch normalization to those of the samples."""
    import keras

    layers = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    model(x, training=True)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def caller(row: Row, ready: ReadyModel, x: np.ndarray) -> Callable:
    """One call that answers the row's batch: `predict` and `roundtrip` take an array and give one, which is waited for."""
    import tensorflow

    batch = np.ascontiguousarray(x[: row.problem.batch])
    function = ready.function
    if row.kernel == PREDICT:
        return lambda: ready.model.predict(batch, batch_size=len(batch), verbose=0)
    if row.mode == "roundtrip":
        return lambda: function(tensorflow.constant(batch)).numpy()
    (resident,) = tensors.place((batch,), ready.device)
    return lambda: function(resident)


# ---------------------------------------------------------------- checks


def _arithmetic(row: Row) -> str:
    """The arithmetic that a row is allowed, a key of BOUNDS."""
    chosen = row.keras
    if chosen.precision != "float32":
        return chosen.precision
    may_be_tf32 = row.on_gpu and chosen.tf32 == "on" and not gpu.lacks(row.device, "tf32")
    return "tf32" if may_be_tf32 else "float32"


def checked(row: Row, ready: ReadyModel, x: np.ndarray) -> tuple[float, str]:
    """(the largest error of a call's answers as a share of the reference's range, the reason why they are wrong or "")."""
    if row.kernel == SERVE:
        size = row.problem.batch
        in_flight = row.experiment.in_flight
        answered, _ = answers(ready, requests(x, size, 4 * in_flight), in_flight)
        expected = requests(ready.reference, size, 4 * in_flight)
    else:
        answered = [tensors.on_host(caller(row, ready, x)())]
        expected = [ready.reference]
    largest = 0.0
    first_wrong = ""
    for actual, wanted in zip(answered, expected, strict=True):
        error, wrong = compared(actual, wanted, ready.reference, softmax=ready.is_softmax, arithmetic=_arithmetic(row))
        largest = max(largest, error)
        first_wrong = first_wrong or wrong
    return largest, first_wrong


def compared(
    answers: np.ndarray, wanted: np.ndarray, reference: np.ndarray, *, softmax: bool, arithmetic: str
) -> tuple[float, str]:
    """(error, the reason why they are wrong or "") of answers. The first ones are those to the reference's samples.

    The error is the largest difference from `wanted`, as a share of the range of the reference's answers to different samples.
    All answers must be finite, and a softmax's sum to 1.
    """
    answers = np.asarray(answers, np.float64)
    if not np.isfinite(answers).all():
        return math.inf, "an answer is not a finite number"
    if softmax:
        off = float(np.abs(answers.sum(axis=-1) - 1).max())
        if off > _SUM_BOUNDS[arithmetic]:
            return math.inf, f"the probabilities of a sample sum to 1 +- {off:.3g}"
    spread = float(np.ptp(reference, axis=0).max())
    if spread <= 1e-6 * float(np.abs(reference).max()):
        return math.inf, "the reference answers all samples alike, so nothing can be compared"
    common = min(len(answers), len(wanted))
    error = float(np.abs(answers[:common] - wanted[:common]).max()) / spread
    bound = BOUNDS[arithmetic]
    if error <= bound:
        return error, ""
    return error, f"the answers are {error:.3g} of their range off those of one operation at a time, more than {bound}"


def _joules(row: Row, ready: ReadyModel, call: Callable, x: np.ndarray, *, notes: dict[str, str]) -> dict[str, float]:
    """joules_per_sample and watts; `notes` gets what the counter covers, or why there are none."""
    read, covers = energy.counter(row.device)
    notes["energy"] = covers
    if read is None:
        return {}
    samples = row.problem.batch
    if row.kernel == SERVE:
        in_flight = row.experiment.in_flight
        sent = requests(x, samples, 4 * in_flight)
        samples *= len(sent)

        def call():
            return answers(ready, sent, in_flight)

    used = energy.used(read, call, ready.wait or (lambda: None), samples)
    if not used:
        notes["energy"] = f"{covers}: the counter did not move"
    return used


# ---------------------------------------------------------------- requests


def requests(x: np.ndarray, size: int, count: int) -> list[np.ndarray]:
    """The samples, or reference answers, of so many requests of `size`: the different ones that have a reference, in turn."""
    different = []
    for begin in range(max(1, COMPARED - size + 1)):
        different.append(np.ascontiguousarray(x[begin : begin + size]))
    return list(itertools.islice(itertools.cycle(different), count))


def answers(ready: ReadyModel, sent: list[np.ndarray], in_flight: int) -> tuple[list[np.ndarray], list[float]]:
    """(answers, seconds that each request waited) in the requests' order, `in_flight` threads sending one after another."""
    import tensorflow

    def answer(request: np.ndarray) -> tuple[np.ndarray, float]:
        begin = time.perf_counter()
        with tensors.on(ready.device):
            result = ready.function(tensorflow.constant(request)).numpy()
        return result, time.perf_counter() - begin

    pairs = list(_pool(in_flight).map(answer, sent))
    return [result for result, _ in pairs], [waited_s for _, waited_s in pairs]


_pool = functools.cache(concurrent.futures.ThreadPoolExecutor)  # number of threads -> those that send requests


def serve(
    row: Row, ready: ReadyModel, x: np.ndarray, limits: Limits, *, before_block: Callable[[], None]
) -> tuple[Samples, ...]:
    """(host-latency: what a request waits; host-throughput: seconds by the number of requests) of blocks of requests that
    threads send one after another, the row's `in_flight` at the same time: a batch each, array to array."""
    in_flight = row.experiment.in_flight

    def block(calls: int) -> tuple[float, float]:
        """(seconds by the number of requests, mean wait of a request)."""
        sent = requests(x, row.problem.batch, calls)
        begin = time.perf_counter()
        _, waited_s = answers(ready, sent, in_flight)
        return (time.perf_counter() - begin) / calls, sum(waited_s) / calls

    calls = 4 * in_flight
    rough_s, _ = block(calls)
    calls = max(calls, math.ceil(_SERVED_S / rough_s))
    request_s: list[float] = []
    wait_s: list[float] = []
    for _ in timing.rounds(limits):
        before_block()
        by_count, wait = block(calls)
        request_s.append(timing.rounded(by_count))
        wait_s.append(timing.rounded(wait))
    return (_block_samples("host-latency", wait_s, calls), _block_samples("host-throughput", request_s, calls))


def _block_samples(clock: str, seconds: list[float], calls: int) -> Samples:
    """Samples of a block a round."""
    return Samples(
        clock=clock,
        seconds=tuple(seconds),
        calls=calls,
        block_sizes=(1,) * len(seconds),
        stop_reason=f"{len(seconds)} rounds",
    )
