"""Inside a worker: the answers of a Keras model to batches of samples. The worker's environment chose its device."""

import concurrent.futures
import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

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

if TYPE_CHECKING:
    import keras

# The largest error allowed of an answer by arithmetic, as a share of the range of the reference's answers: room for some
# hundred roundings in a row.
BOUNDS = {"float32": 1e-2, "tf32": 0.1, "mixed_bfloat16": 0.5, "mixed_float16": 0.1}
_SUM_BOUNDS = {"float32": 1e-4, "tf32": 1e-4, "mixed_bfloat16": 2e-2, "mixed_float16": 5e-3}
#: Options of a row that an inference has.
_OPTIONS = {"data", "jit_compile", "gpu", "precision", "tf32", "in_flight", "beside", "at_once"}
COMPARED = 4  # samples whose answers are compared with the reference: requests are made of these
_REQUESTS_A_THREAD = 4  # requests that each sending thread has at least, in a block of them
_SERVED_S = 0.1  # seconds of a block of requests
PREDICT = "inference/keras/predict"
CALL = "inference/keras/call"
SERVE = "inference/keras/serve"


class ReadyModel:
    """A model on a device, with random weights and with the answers that it should give to a few samples.

    Its batch normalization is set to the means and variances of these samples: with the 0 and 1 of a new model a deep network
    would give nearly the same answer to all samples, and nothing could be compared.
    """

    def __init__(self, name: str, device: str, threads: int | None, *, dtype: str, seed: int, options: Keras):
        """name: of a network or a user's model. device: `cpu`, or a GPU as `gpu:0`. threads: of a CPU; None for TensorFlow's
        choice. dtype: of the samples. seed: of weights and samples.

        Raises: Broken for a model that differs from its description, and where TensorFlow finds no GPU.
        """
        import keras
        import tensorflow

        jit_compile = settings.JIT[options.jit_compile]
        network = networks.known(name)  # None for a user's model
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


class CheckedAnswers(NamedTuple):
    """How far a model's answers are from those that it should give."""

    #: The largest difference, as a share of the range of the right answers; infinite where they cannot be compared.
    error: float
    #: Why they are wrong, as a sentence; "" where they are not.
    wrong: str


_ready_model = functools.lru_cache(maxsize=1)(ReadyModel)


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Checks a model's answers to a batch of samples, then times them.

    The clock `host-latency` times single answers. On a GPU, for samples in its memory, `host-throughput` times answers that are
    queued one behind the other. For the kernel `serve`, which has several requests at the same time, `host-latency` is what one
    request waits and `host-throughput` the seconds of all by their number.
    phases_s: import and device_start (in a process's first row), build (in a model's first), first_call (a batch's first).
    values: parameters, jit_compile, tf32, joules_per_sample and watts (where a counter can be read), peak_memory_bytes.
    seed: of weights and samples.
    Raises: ValueError for options that do not go together; registry.NotInstalled; DoesNotFit; Broken; data.Unavailable.
    """
    phases: dict[str, float] = {}
    values: dict[str, float] = {}
    ready, x = prepare(row, seed, phases, values)
    if row.on_gpu:
        import tensorflow

        tensorflow.config.experimental.reset_memory_stats("GPU:0")
    notes = tensors.software_notes(row) | ready.notes
    with tensors.on(ready.device):
        call = caller(row, ready, x)
        _first_call(row, ready, call, phases)
        error, wrong = check_answers(row, ready, x)
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
    """Calls once and waits. Its seconds become the phase first_call where this process has compiled no graph for it before."""
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
    """Times a call that answers a batch: seconds a call on each clock. before_block: called before each block of timed calls."""
    clocks = {
        "host-latency": timing.host(call)
    }  # a call on the CPU, or with an array as its result, has waited when it returns
    if ready.wait and row.mode == "resident":
        clocks["host-latency"] = timing.latency(call, ready.wait)
        clocks["host-throughput"] = timing.throughput(call, ready.wait)
    return tuple(timing.visits(take, limits, clock, before_block) for clock, take in clocks.items())


def prepare(row: Row, seed: int, phases: dict[str, float], values: dict[str, float]) -> tuple[ReadyModel, np.ndarray]:
    """The model of a row, ready to answer, and samples for the row's batch, at least COMPARED of them.

    The first COMPARED samples have reference answers. The seconds of import and build are put into `phases`, numbers of the model
    into `values`. A model is kept for the next row that has the same.
    Raises: ValueError for options that do not go together; registry.NotInstalled; DoesNotFit; Broken; data.Unavailable.
    """
    problem = row.problem
    options = settings.checked_keras(row)
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
        options=options,
    )
    if _ready_model.cache_info().misses > models_before:
        phases["build"] = time.perf_counter() - begin
    values |= {
        "parameters": float(ready.model.count_params()),
        "jit_compile": float(ready.model.jit_compile is True),
        "tf32": float(_arithmetic(row) == "tf32"),
    }
    count = max(problem.batch, COMPARED)
    x = _samples(ready.model, problem.model, options.data, count, seed=seed, dtype=problem.dtype)
    x[:COMPARED] = ready.first  # a larger set of made-up samples begins with other ones
    return ready, x


def _require_possible(row: Row) -> None:
    """Raises ValueError for a row with options that its kind of inference does not have."""
    if row.kernel not in (PREDICT, CALL, SERVE):
        raise ValueError(f"unknown way to answer {row.kernel!r}; known: {PREDICT}, {CALL}, {SERVE}")
    unknown_options = settings.without_defaults(row.settings.switches).keys() - row.settings.variables.keys() - _OPTIONS
    if unknown_options:
        raise ValueError(f"an inference has no {', '.join(sorted(unknown_options))}")
    if (row.kernel != CALL and row.mode != "roundtrip") or row.mode not in ("resident", "roundtrip"):
        raise ValueError(f"{row.kernel} answers arrays with arrays (mode roundtrip), not {row.mode}")
    if row.experiment.in_flight > 1 and row.kernel != SERVE:
        raise ValueError(f"{row.kernel} answers one request at a time; {SERVE} has some in flight")


def _samples(model: "keras.Model", name: str, kind: str, count: int, *, seed: int, dtype: str) -> np.ndarray:
    """`count` samples that the model takes. name: of a network, or of a user's model. kind: `synthetic` or `real`.

    Raises: ValueError for real data of a user's model, of which nothing is known; Broken; data.Unavailable.
    """
    network = networks.known(name)  # None for a user's model
    if network:
        return data.load(kind, network, count, seed, dtype=dtype)[0]
    if kind != "synthetic":
        raise ValueError(f"no real samples are known of {name}")
    return user_model.samples(model, count, seed, dtype)[0]


def _normalize(model: "keras.Model", x: np.ndarray) -> None:
    """Sets the running means and variances of every batch normalization of a model to those of the samples x.

    A call in training mode mixes these with the old ones by the layer's momentum; with a momentum of 0 it replaces them.
    """
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
    """A function that answers the row's batch once. x: at least a batch of samples.

    With the kernel `predict` and in the mode `roundtrip` it takes an array of the host and gives one. Else the samples lie on the
    device, and it returns before the device is done.
    """
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
    """The least precise arithmetic that a row allows on its device, a key of BOUNDS: float32, tf32 or a mixed precision."""
    options = row.keras
    if options.precision != "float32":
        return options.precision
    may_be_tf32 = row.on_gpu and options.tf32 == "on" and not gpu.lacks(row.device, "tf32")
    return "tf32" if may_be_tf32 else "float32"


def check_answers(row: Row, ready: ReadyModel, x: np.ndarray) -> CheckedAnswers:
    """The largest error of the answers that the row's call gives, and why they are wrong where they are. x: the row's samples.

    They are compared with the model's answers to the same samples on the CPU, computed one operation at a time.
    """
    if row.kernel == SERVE:
        in_flight = row.experiment.in_flight
        count = _REQUESTS_A_THREAD * in_flight
        answered, _ = answers(ready, requests(x, row.problem.batch, count), in_flight)
        expected = requests(ready.reference, row.problem.batch, count)
    else:
        answered = [tensors.on_host(caller(row, ready, x)())]
        expected = [ready.reference]
    largest = 0.0
    first_wrong = ""
    for actual, wanted in zip(answered, expected, strict=True):
        checked = compare(actual, wanted, ready.reference, softmax=ready.is_softmax, arithmetic=_arithmetic(row))
        largest = max(largest, checked.error)
        first_wrong = first_wrong or checked.wrong
    return CheckedAnswers(largest, first_wrong)


def compare(
    answers: np.ndarray, wanted: np.ndarray, reference: np.ndarray, *, softmax: bool, arithmetic: str
) -> CheckedAnswers:
    """Compares answers, a row for each sample, with those that are wanted; answers behind these are only looked at by themselves.

    The error is the largest difference, as a share of the range of `reference`, the right answers to a few different samples. All
    answers must be finite, and sum to 1 where they are of a softmax. arithmetic: a key of BOUNDS, which has the largest error.
    """
    answers = np.asarray(answers, np.float64)
    if not np.isfinite(answers).all():
        return CheckedAnswers(math.inf, "an answer is not a finite number")
    if softmax:
        off = float(np.abs(answers.sum(axis=-1) - 1).max())
        if off > _SUM_BOUNDS[arithmetic]:
            return CheckedAnswers(math.inf, f"the probabilities of a sample sum to 1 +- {off:.3g}")
    spread = float(np.ptp(reference, axis=0).max())
    if spread <= 1e-6 * float(np.abs(reference).max()):
        return CheckedAnswers(math.inf, "the reference answers all samples alike, so nothing can be compared")
    common = min(len(answers), len(wanted))
    error = float(np.abs(answers[:common] - wanted[:common]).max()) / spread
    bound = BOUNDS[arithmetic]
    if error <= bound:
        return CheckedAnswers(error, "")
    wrong = f"the answers are {error:.3g} of their range off those of one operation at a time, more than {bound}"
    return CheckedAnswers(error, wrong)


def _joules(row: Row, ready: ReadyModel, call: Callable, x: np.ndarray, *, notes: dict[str, str]) -> dict[str, float]:
    """The values joules_per_sample and watts of a call that answers the row's batch; {} where no counter of energy can be read.

    The note `energy` gets what the counter covers, or why there is none.
    """
    try:
        counter = energy.counter(row.device)
    except energy.NoCounter as reason:
        notes["energy"] = str(reason)
        return {}
    notes["energy"] = counter.words
    samples = row.problem.batch
    if row.kernel == SERVE:
        in_flight = row.experiment.in_flight
        sent = requests(x, samples, _REQUESTS_A_THREAD * in_flight)
        samples *= len(sent)

        def call() -> object:
            return answers(ready, sent, in_flight)

    used = energy.used(counter.read, call, ready.wait or (lambda: None), samples)
    if not used:
        notes["energy"] = f"{counter.words}: the counter did not move"
    return used


# ---------------------------------------------------------------- requests


def requests(x: np.ndarray, size: int, count: int) -> list[np.ndarray]:
    """The samples of `count` requests, `size` samples each. x: samples, or the reference answers to them, which are cut alike.

    Requests are cut out of the first COMPARED samples, which have a reference answer, each beginning one sample later; then they
    repeat.
    """
    different = []
    for begin in range(max(1, COMPARED - size + 1)):
        different.append(np.ascontiguousarray(x[begin : begin + size]))
    return list(itertools.islice(itertools.cycle(different), count))


def answers(ready: ReadyModel, sent: list[np.ndarray], in_flight: int) -> tuple[list[np.ndarray], list[float]]:
    """The answers to requests, and the seconds that each of them waited, both in the order of the requests.

    As many threads as `in_flight` send them, each one request after another. sent: the samples of each request.
    """
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
    """Times requests of a batch each that threads send, as many at the same time as the row's `in_flight` says.

    They are timed in blocks. The clock `host-latency` has the mean seconds that a request of a block waited, `host-throughput`
    the seconds of a block by the number of its requests. before_block: called before each block.
    """
    in_flight = row.experiment.in_flight

    def block(count: int) -> tuple[float, float]:
        """(seconds by the number of requests, mean seconds that a request waited) of a block of `count` requests."""
        sent = requests(x, row.problem.batch, count)
        begin = time.perf_counter()
        _, waited_s = answers(ready, sent, in_flight)
        return (time.perf_counter() - begin) / count, sum(waited_s) / count

    count = _REQUESTS_A_THREAD * in_flight
    rough_s, _ = block(count)
    count = max(count, math.ceil(_SERVED_S / rough_s))
    request_s: list[float] = []
    wait_s: list[float] = []
    for _ in timing.rounds(limits):
        before_block()
        one_request_s, one_wait_s = block(count)
        request_s.append(timing.rounded(one_request_s))
        wait_s.append(timing.rounded(one_wait_s))
    return (_block_samples("host-latency", wait_s, count), _block_samples("host-throughput", request_s, count))


def _block_samples(clock: str, seconds: list[float], calls: int) -> Samples:
    """The samples of a clock from blocks of calls, one block a round. seconds: of a call, for each block. calls: in a block."""
    return Samples(
        clock=clock,
        seconds=tuple(seconds),
        calls=calls,
        block_sizes=(1,) * len(seconds),
        stop_reason=f"{len(seconds)} rounds",
    )
