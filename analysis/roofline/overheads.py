"""The constants of a machine's frameworks, from launch rows: what a call, a kernel, a step, an epoch and a start cost."""

import math
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis import numbers, units
from analysis.stats import Estimate, group_by, median_of, plus_minus
from analysis.table import Table, parsed
from workloads.records import Measurement, Measurements

_SIGMAS = 1.96


class Constant(msgspec.Struct, frozen=True):
    """Seconds of a call, launch, step, epoch or start with nearly no work in it.

    name: an identifier of RULES. clock: whose seconds; on the CPU always host-latency. threads: of a CPU row that names
    them. jit: on, off, auto (as Keras chooses), empty where nothing is compiled or both are.
    source: the rows, in words. words: what it is.
    """

    name: str
    device: str
    clock: str
    seconds: Estimate
    threads: int | None = None
    jit: str = ""
    source: str = ""
    words: str = ""


class Rule(msgspec.Struct, frozen=True):
    """How a constant comes from rows: `kernel` and `call`; `how` is `one` (a single call), `each` (a further one, by the
    slope over the counts) or `base` (what a call costs beyond its repeats, the line's value at count 0).

    words: what it is. jit: the kernel's jit_compile.
    """

    name: str
    kernel: str
    call: str
    how: str
    words: str
    jit: str = ""


# Those of Keras once for every jit_compile.
_PLAIN = """
numpy-call | numpy/ufunc | elementwise | each | a NumPy call on 256 values, into an array that is there
numpy-call-fresh | numpy/operator | elementwise | each | `x + 1` on 256 values, a fresh array each time
numpy-matmul | numpy/ufunc | matmul | one | a NumPy product of 16 x 16
numba-call | numba/njit | empty | each | a call of compiled Numba code that does nothing
prange-fork-join | numba/prange | empty | each | an almost empty Numba prange, the call included
kernel | cupy/rawkernel | empty | one | an empty GPU kernel
kernel-launch | cupy/rawkernel | empty | each | an empty GPU kernel in a row of many
graph-node-empty | cupy/graph | empty | each | an empty kernel as a node of a CUDA graph
graph-launch | cupy/graph | empty | base | the launch of a CUDA graph, its nodes not counted
cupy-call | cupy/ufunc | elementwise | one | a CuPy element-wise call on 256 values
cupy-launch | cupy/ufunc | elementwise | each | a CuPy element-wise call in a row of many
graph-node | cupy/graph | elementwise | each | a small CuPy kernel as a node of a CUDA graph
cublas-call | cupy/cublas | matmul | one | a 16 x 16 product by cuBLAS through CuPy
cupy-set | cupy/set | copy | one | 4 bytes to the device by ndarray.set
tf-op-eager | tensorflow/eager | elementwise | each | a TensorFlow operation outside a function
tf-matmul-eager | tensorflow/eager | matmul | one | a 16 x 16 TensorFlow product outside a function
tf-convert | tensorflow/eager | copy | one | 4 bytes from NumPy to a TensorFlow tensor
tf-function-call | tensorflow/function | elementwise | base | a tf.function call, its operations apart | off
tf-op-in-function | tensorflow/function | elementwise | each | an operation inside a tf.function | off
tf-jit-call | tensorflow/jit | elementwise | one | a tf.function call with one operation | on
tf-op-in-jit | tensorflow/jit | elementwise | each | a further operation inside a tf.function | on
"""
_KERAS = """
keras-step | step | each | a Keras step of a model with almost no work
keras-epoch | epoch | each | an epoch of Keras's fit, its one step not counted
keras-fit | epoch | base | a call of Keras's fit, its epochs not counted
keras-predict-batch | predict | each | a batch of Keras's predict
keras-predict | predict | base | a call of Keras's predict, its batches not counted
keras-train-on-batch | train_on_batch | one | a train_on_batch of a model with almost no work
"""
RULES = (
    *(Rule(*row) for row in parsed(_PLAIN)),
    *(
        Rule(name, f"tensorflow/{variant}", call, how, words, jit)
        for variant, jit in (("fit", "auto"), ("fit_jit", "on"), ("fit_op_by_op", "off"))
        for name, call, how, words in parsed(_KERAS)
    ),
)
_PROPER = {
    "numba": "Numba",
    "cupy": "CuPy",
    "tensorflow": "TensorFlow",
    "keras": "Keras (compile and the first step of a fit)",
}
_ONCE_WORDS = {"import": "importing", "device_start": "starting the device with", "compile": "a first compilation with"}


def constants(measurements: Measurements) -> tuple[Constant, ...]:
    """Every constant that the launch rows among the measurements give, in RULES' order, then imports and first times.

    A slope takes rows at two counts or more. `keras-epoch` is an epoch of one step less `keras-step`, where both are there.
    """
    rows = [m for m in measurements if m.problem.op == "launch" and m.ok and m.samples]
    found = [c for rule in RULES for c in _from(rule, [m for m in rows if m.kernel == f"launch/{rule.kernel}"])]
    return (*_without_steps(found), *(_once(m) for m in rows if m.problem.once))


def _from(rule: Rule, rows: Measurements) -> list[Constant]:
    """A rule's constants: for every device, thread count and clock."""
    rows = [m for m in rows if m.problem.call == rule.call]
    made = []
    for (device, threads), own in group_by(rows, lambda m: (m.device, m.threads)).items():
        here = sorted(own, key=lambda m: m.problem.count)
        for clock in dict.fromkeys(s.clock for m in here for s in m.samples):
            points = [(m.problem.count, median_of(m.on(clock))) for m in here if m.on(clock)]
            if rule.how == "one":  # the row with the fewest calls, by their number
                points = points[:1]
                seconds = points[0][1] / points[0][0]
            elif len(points) > 1:
                seconds = line(points)[rule.how == "each"]
            else:
                continue
            source = f"launch/{rule.kernel} {rule.call} x{','.join(str(n) for n, _ in points)}, {clock}"
            made.append(Constant(rule.name, device, clock, seconds, threads, rule.jit, source, rule.words))
    return made


def line(points: list[tuple[int, Estimate]]) -> tuple[Estimate, Estimate]:
    """(value at 0, slope) of the straight line through seconds at two counts or more, weighted by their intervals.

    The intervals of both are widened by what the points lie off the line beyond their own.
    Source: weighted least squares; P. Bevington, Data Reduction and Error Analysis, chapter 6.
    """
    n, value = np.array([(count, e.value) for count, e in points]).T
    sigmas = np.array([max((e.high - e.low) / 2 / _SIGMAS, 1e-6 * abs(e.value), 1e-15) for _, e in points])
    (slope, base), covariance = np.polyfit(n, value, 1, w=1 / sigmas, cov="unscaled")
    off = (((value - base - slope * n) / sigmas) ** 2).sum()
    wider = _SIGMAS * (math.sqrt(max(1.0, off / (len(points) - 2))) if len(points) > 2 else 1.0)
    slope_half, base_half = (wider * np.sqrt(np.diag(covariance))).tolist()
    return plus_minus(float(base), base_half), plus_minus(float(slope), slope_half)


def _without_steps(found: list[Constant]) -> list[Constant]:
    """The constants, with the one step subtracted from each keras-epoch; one without a matching keras-step is dropped."""
    made = []
    for c in found:
        if c.name == "keras-epoch":
            step = next((s for s in found if s.name == "keras-step" and _place(s) == _place(c)), None)
            if step is None:
                continue
            value = c.seconds.value - step.seconds.value
            half = math.hypot(c.seconds.high - c.seconds.low, step.seconds.high - step.seconds.low) / 2
            c = msgspec.structs.replace(c, seconds=plus_minus(value, half), source=f"{c.source}, less keras-step")
        made.append(c)
    return made


def _place(c: Constant) -> tuple:
    return c.device, c.threads, c.clock, c.jit


def _once(m: Measurement) -> Constant:
    """import-numba, device-start-cupy, compile-tensorflow ...: medians over the fresh processes."""
    name, samples = f"{m.problem.call.replace('_', '-')}-{m.backend}", m.samples[0]
    words = f"{_ONCE_WORDS[m.problem.call]} {_PROPER.get(m.backend, m.backend)}, once in a process"
    source = f"{m.kernel} {m.problem.call}, {units.count(len(samples.seconds), 'fresh process', 'fresh processes')}"
    jit = m.settings.switches.get("jit_compile", "")
    return Constant(name, m.device, samples.clock, median_of(samples), m.threads, jit, source, words)


def find(
    constants: Iterable[Constant], name: str, device: str, *, clock: str = "host-latency", jit: str | None = None
) -> Constant | None:
    """The constant of that name on a device and clock, or None; `jit` where several differ by it."""
    return next(
        (c for c in constants if (c.name, c.device, c.clock) == (name, device, clock) and jit in (None, c.jit)), None
    )


def table(constants: Iterable[Constant]) -> Table:
    """The constants, one a device, clock and thread count, in words."""
    rows = [
        (c.words, c.device, c.clock, c.threads or "-", c.jit or "-", numbers.timed(c.seconds.at_least(0.0)), c.source)
        for c in constants
    ]
    heads = "what | device | clock | threads | jit_compile | a time | from"
    return Table(heads, rows, 5, "threads | jit_compile", "from | clock | jit_compile", last=True)
