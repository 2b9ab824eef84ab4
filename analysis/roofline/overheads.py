"""The constants of a machine's frameworks, from launch rows: what a call, a kernel, a step, an epoch and a start cost."""

import math
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis import numbers, units
from analysis.stats import Estimate, group_by, median_of, plus_minus
from analysis.table import Table, parsed
from workloads.records import Measurement, Measurements

_SIGMAS = 1.96  # standard deviations in half of a 95 % interval


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a call, launch, step, epoch or start with nearly no work in it."""

    #: Such as keras-step or import-numba.
    name: str
    #: `cpu`, `gpu:0`.
    device: str
    #: The clock of its seconds; on the CPU always host-latency.
    clock: str
    #: Of one call.
    seconds: Estimate
    #: CPU threads, of a row that names them.
    threads: int | None = None
    #: on, off, auto (as Keras chooses); "" where nothing is compiled or both are.
    jit: str = ""
    #: The rows, in words.
    source: str = ""
    #: What the call is.
    words: str = ""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """How a constant is computed from launch rows, which time calls with nearly no work."""

    #: Of the constant.
    name: str
    #: The rows' kernel, without `launch/`.
    kernel: str
    #: The rows' call.
    call: str
    #: `one`: a single call; `each`: a further one, by the slope over the counts; `base`: what a call costs beyond its repeats,
    #: the line's value at count 0.
    how: str
    #: What the call is.
    words: str
    #: The kernel's jit_compile.
    jit: str = ""


# name | kernel | call | how | words | jit. Those of Keras once for every jit_compile, without kernel and jit.
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
_KERAS_VARIANTS = {"fit": "auto", "fit_jit": "on", "fit_op_by_op": "off"}


def _rules() -> list[Rule]:
    """The rules of both tables; those of Keras for every setting of jit_compile."""
    rules = []
    for name, kernel, call, how, words, *jit in parsed(_PLAIN):
        rules.append(Rule(name=name, kernel=kernel, call=call, how=how, words=words, jit="".join(jit)))
    for variant, jit_compile in _KERAS_VARIANTS.items():
        kernel = f"tensorflow/{variant}"
        for name, call, how, words in parsed(_KERAS):
            rules.append(Rule(name=name, kernel=kernel, call=call, how=how, words=words, jit=jit_compile))
    return rules


RULES = tuple(_rules())
_PROPER = {
    "numba": "Numba",
    "cupy": "CuPy",
    "tensorflow": "TensorFlow",
    "keras": "Keras (compile and the first step of a fit)",
}


class _Once(msgspec.Struct, frozen=True, kw_only=True):
    """Names of something that happens once in a process: importing a library, starting a device, the first compilation."""

    #: The first part of the constant's name, before the backend's.
    name: str
    #: What stands before the backend's name in a sentence.
    words: str


_ONCE = {
    "import": _Once(name="import", words="importing"),
    "device_start": _Once(name="device-start", words="starting the device with"),
    "compile": _Once(name="compile", words="a first compilation with"),
}


def constants(measurements: Measurements) -> tuple[Constant, ...]:
    """The seconds of calls, launches, Keras steps and epochs with nearly no work in them, from launch rows, in the order of
    RULES; then those of imports, device starts and first compilations.

    The time of a further call is the slope over rows with different numbers of calls, so it takes two rows or more. `keras-epoch`
    is an epoch of one step less `keras-step`; it is left out if no such step was measured.
    """
    rows = [m for m in measurements if m.problem.op == "launch" and m.ok and m.samples]
    rows_of_kernel = group_by(rows, lambda m: m.kernel)
    by_rules: list[Constant] = []
    for rule in RULES:
        by_rules += _rule_constants(rule, rows_of_kernel.get(f"launch/{rule.kernel}", []))
    once = [_once(m) for m in rows if m.problem.once]
    return (*_without_steps(by_rules), *once)


def _rule_constants(rule: Rule, rows: Measurements) -> list[Constant]:
    """The constants that a rule gives, one for each device, number of threads and clock. rows: launch rows of the rule's
    kernel."""
    rows = sorted((m for m in rows if m.problem.call == rule.call), key=lambda m: m.problem.count)
    constants = []
    for (device, threads), same_device in group_by(rows, lambda m: (m.device, m.threads)).items():
        clocks: dict[str, None] = {}  # a set in the order of the rows
        for m in same_device:
            clocks.update(dict.fromkeys(samples.clock for samples in m.samples))
        for clock in clocks:
            points = [(m.problem.count, median_of(m.on(clock))) for m in same_device if m.on(clock)]
            if rule.how == "one":  # the row with the fewest calls
                points = points[:1]
            elif len(points) < 2:
                continue
            counts = ",".join(str(count) for count, _ in points)
            constants.append(
                Constant(
                    name=rule.name,
                    device=device,
                    clock=clock,
                    seconds=_seconds(rule, points),
                    threads=threads,
                    jit=rule.jit,
                    source=f"launch/{rule.kernel} {rule.call} x{counts}, {clock}",
                    words=rule.words,
                )
            )
    return constants


def _seconds(rule: Rule, points: list[tuple[int, Estimate]]) -> Estimate:
    """The seconds that a rule reads from (number of calls, seconds of all): of a single call, of a further one (the slope), or
    what a series costs beyond its calls (the value at 0 calls)."""
    if rule.how == "one":
        calls, seconds = points[0]
        return seconds / calls
    at_no_calls, a_further_call = weighted_line(points)
    return a_further_call if rule.how == "each" else at_no_calls


def weighted_line(points: list[tuple[int, Estimate]]) -> tuple[Estimate, Estimate]:
    """(value at 0, slope) of the straight line through points (count, seconds), each weighted by its interval; at least two.

    The intervals of both are widened if the points lie farther off the line than their own intervals explain.
    Source: weighted least squares; P. Bevington, Data Reduction and Error Analysis, chapter 6.
    """
    n, value = np.array([(count, e.value) for count, e in points]).T
    sigmas = np.array([max((e.high - e.low) / 2 / _SIGMAS, 1e-6 * abs(e.value), 1e-15) for _, e in points])
    (slope, base), covariance = np.polyfit(n, value, 1, w=1 / sigmas, cov="unscaled")
    chi_squared = (((value - base - slope * n) / sigmas) ** 2).sum()
    degrees_of_freedom = len(points) - 2
    widening = math.sqrt(max(1.0, chi_squared / degrees_of_freedom)) if degrees_of_freedom else 1.0
    slope_half, base_half = (_SIGMAS * widening * np.sqrt(np.diag(covariance))).tolist()
    return plus_minus(float(base), base_half), plus_minus(float(slope), slope_half)


def _without_steps(constants: list[Constant]) -> list[Constant]:
    """The constants with a keras-step subtracted from each keras-epoch, which was measured with one step in it. An epoch without
    a step of the same device, threads, clock and jit_compile is left out."""
    steps = {_place(constant): constant for constant in reversed(constants) if constant.name == "keras-step"}
    result = []
    for constant in constants:
        if constant.name != "keras-epoch":
            result.append(constant)
            continue
        step = steps.get(_place(constant))
        if step:
            result.append(_less(constant, step))
    return result


def _less(epoch: Constant, step: Constant) -> Constant:
    """An epoch with its one step subtracted; their errors are independent and add as squares."""
    value = epoch.seconds.value - step.seconds.value
    half_width = math.hypot(epoch.seconds.high - epoch.seconds.low, step.seconds.high - step.seconds.low) / 2
    return msgspec.structs.replace(
        epoch, seconds=plus_minus(value, half_width), source=f"{epoch.source}, less keras-step"
    )


def _place(constant: Constant) -> tuple[str, int | None, str, str]:
    """Key of constants that were measured alike, so that one may be subtracted from another."""
    return constant.device, constant.threads, constant.clock, constant.jit


def _once(m: Measurement) -> Constant:
    """The constant of a launch row that was timed once in each of several fresh processes, named import-numba,
    device-start-cupy, compile-tensorflow ...; its seconds are the median over the processes."""
    samples = m.samples[0]
    once = _ONCE[m.problem.call]
    processes = units.count(len(samples.seconds), "fresh process", "fresh processes")
    return Constant(
        name=f"{once.name}-{m.backend}",
        device=m.device,
        clock=samples.clock,
        seconds=median_of(samples),
        threads=m.threads,
        jit=m.settings.switches.get("jit_compile", ""),
        source=f"{m.kernel} {m.problem.call}, {processes}",
        words=f"{once.words} {_PROPER.get(m.backend, m.backend)}, once in a process",
    )


def find(
    constants: Iterable[Constant], name: str, device: str, *, clock: str = "host-latency", jit: str | None = None
) -> Constant | None:
    """The first constant of a name on a device and clock, and if `jit` is not None of that setting of jit_compile (on, off,
    auto); None without one."""
    for constant in constants:
        if (constant.name, constant.device, constant.clock) == (name, device, clock) and jit in (None, constant.jit):
            return constant
    return None


def table(constants: Iterable[Constant]) -> Table:
    """A table of the constants in words, a line each."""
    rows = [
        (c.words, c.device, c.clock, c.threads or "-", c.jit or "-", numbers.timed(c.seconds.at_least(0.0)), c.source)
        for c in constants
    ]
    heads = "what | device | clock | threads | jit_compile | a time | from"
    return Table(heads, rows, left=5, optional="threads | jit_compile", least="from | clock | jit_compile", last=True)
