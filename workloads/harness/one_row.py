"""Inside a worker: one row from inputs to Measurement. Memory first, then the check, then the clocks."""

import dataclasses
import functools
import gc
import math
import re
import time
import traceback
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kernels import reference, registry
from kernels.problems import Problem
from workloads.harness import bound_rows, copy_modes, memory_needs, startup, telemetry, timing, warming
from workloads.harness.bound_rows import Arrays
from workloads.harness.dispatch import HANDLERS, Broken, CannotDo, handler, one_line
from workloads.harness.flags import raised
from workloads.harness.memory_needs import DoesNotFit, require_room
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.machine.clock import moment
from workloads.records import Measurement, Row, Samples
from workloads.records.rows import VISITS_AT, Cause
from workloads.records.settings import is_sustained
from workloads.records.visits import together

#: Texts of errors after which a process's CUDA context, or its group of devices, is of no use.
_STICKY = (
    "cudaErrorIllegalAddress",
    "cudaErrorLaunchFailure",
    "cudaErrorAssert",
    "cudaErrorECCUncorrectable",
    "cudaErrorMisalignedAddress",
    "cudaErrorIllegalInstruction",
    "cudaErrorLaunchTimeout",
    "Collective ops is aborted",
)
#: How TensorFlow begins an error of a graph.
_GRAPH_ERROR = re.compile("Graph execution error")


def obey(order) -> Measurement:
    """Carries out one Order; the Measurement says when."""

    def work() -> Measurement:
        memory_needs.require_address_space()
        if order.verb == "visit":
            return visit(order.row, order.limits, order.seed, number=order.visit, handicap=order.handicap)
        if order.verb == "trace":
            return handler("trace")(order.row, order.step_inputs)
        if order.verb == "measure":
            return measure(order.row, order.limits, order.seed)
        return _by_framework(order.verb, order.row, order.limits, order.seed)

    answer = guarded(order.row, work)
    no_memory = order.verb == "visit" and answer.cause == "out-of-memory"
    if no_memory and bound_rows.clear():  # other rows may have had what it lacked
        answer = guarded(order.row, work)
    return replace(answer, at=facts.now())


def guarded(row: Row, work) -> Measurement:
    """`work()`'s Measurement, or the one that says why there is none."""
    status = "failed"
    cause: Cause = ""
    flags: tuple[str, ...] = ()
    try:
        return work()
    except registry.NotInstalled as error:
        install = {"install": error.command}
        return row.result("skipped", str(error), cause="not-installed", notes=install)
    except CannotDo as error:
        status = "skipped"
        reason = str(error)
        cause = error.cause
    except MemoryError:
        status = "skipped"
        reason = "out of host memory"
        cause = "out-of-memory"
    except Exception as error:  # a kernel may raise anything; the sweep goes on with the next row
        line = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {innermost(str(error))} ({line.name}, line {line.lineno})"
        not_locked = memory_needs.not_locked(row.problem, str(error))
        if any(name in type(error).__name__ for name in ("OutOfMemory", "ResourceExhausted")):
            memory = "GPU" if row.on_gpu else "host"
            status = "skipped"
            reason = f"out of {memory} memory: {error}"[:300]
            cause = "out-of-memory"
        elif not_locked:
            status = "skipped"
            reason = not_locked
        elif any(name in str(error) for name in _STICKY):
            flags = ("context-lost",)
    gc.collect()
    return row.result(status, reason, flags=flags, cause=cause)


def innermost(error: str) -> str:
    """The reason of an error, in one line of at most 240 characters. Of a TensorFlow graph's error, the message below the
    places in the code where it was built."""
    if _GRAPH_ERROR.match(error):
        error = error.strip().rpartition("\n\n")[2]
    return one_line(error)


def _prepared(kernel, row: Row, inputs: Arrays) -> copy_modes.Prepared:
    """The kernel bound to these inputs as the row says.

    Raises: CannotDo for what the kernel cannot do.
    """
    try:
        return copy_modes.prepare(kernel, row.problem, row.settings, inputs)
    except ValueError as error:
        raise CannotDo(str(error)) from error


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Measures a whole row: what a framework times in one go, or all visits of a kernel, one after the other."""
    if row.problem.op in HANDLERS:
        return _by_framework(row.problem.op, row, limits, seed)
    if row.problem.once:
        return startup.measure(row)
    visits: list[Measurement] = []
    while len(visits) < limits.rounds and (not visits or visits[-1].ok):
        visits.append(visit(row, limits, seed, len(visits) + 1))
    return together(visits)


@dataclasses.dataclass
class Known:
    """Facts that this process has learned of a row."""

    #: The check of its answer.
    check: reference.OutputCheck
    #: Seconds of its first call.
    first_call_s: float
    #: Clock -> seconds of a warm call.
    call_s: dict[str, float] = dataclasses.field(default_factory=dict)
    #: The telemetry of its visits.
    watch: Any = None


@dataclasses.dataclass(frozen=True)
class BoundRow:
    """A row ready to be timed again."""

    #: Its call.
    prepared: copy_modes.Prepared
    #: The data that the call is bound to.
    inputs: Arrays
    #: Its clocks by name.
    takes: dict[str, timing.Take]


_known: dict[str, Known] = {}


def visit(row: Row, limits: Limits, seed: int, number: int = 1, *, handicap: float = 0.0) -> Measurement:
    """The row's `number`-th visit, a block on every clock.

    In the first, and where this process has not timed the row yet, its answer is checked on whole numbers before, and the
    Measurement says how; a wrong one is never timed.
    """
    first = number == 1 or row.key not in _known
    if first:
        _room_for(row)
    kernel = registry.find(row.kernel)
    _use_threads(row)
    if first:
        _known[row.key] = Known(*checked(kernel, row, seed))
    known = _known[row.key]
    about: dict[str, Any] = {"visit": number}
    if first:
        error = known.check.max_error
        is_finite = error is not None and math.isfinite(error)
        about |= {"check": known.check.how, "max_error": error if is_finite else None}
        about |= {"phases_s": {"first_call": known.first_call_s}}
    if not known.check.passed:
        return row.result("wrong", "the answer is not the reference's", **about)
    bound = bound_rows.find(row.key)
    if bound is None:
        _room_for(row)
        bound = _ready(kernel, row, bound_rows.inputs(row.problem, seed), known.call_s.get("device", 0.0))
        bound_rows.keep(row, bound)
    elif bound.prepared.stream:
        bound.prepared.stream.use()  # a library may have chosen another since
    if known.watch is None:
        known.watch = telemetry.watch(row.device, row.problem.op == "transfer", row.backend in registry.FRAMEWORKS)
    known.watch.begin()
    samples = clocks(row, bound, known, limits, handicap=handicap)
    values, flags = known.watch.readings()
    for take in bound.takes.values():
        flags += getattr(take, "flags", ())
    if first and samples:
        flags += raised(kernel, row, bound.prepared, bound.inputs, call_s=min(samples[0].seconds))
        warming.quiet_for(())  # the check's product had threads of its own
    notes = kernel.notes | bound.prepared.notes
    if row.on_gpu:
        notes |= {"gpu_state": _gpu_state(row, flags)}
    about |= {"values": values, "flags": flags, "notes": notes, "series": {VISITS_AT: (round(moment(), 2),)}}
    return row.result("ok", samples=samples, **about)


def _gpu_state(row: Row, flags: tuple[str, ...]) -> str:
    """The state of a GPU in a visit, as its row stores it."""
    if "cold-clocked" in flags:
        return "cold-clocked"
    return "held" if is_sustained(row) else "burst"


def _by_framework(name: str, row: Row, limits: Limits, seed: int) -> Measurement:
    """The answer of the framework's function of this name in dispatch.HANDLERS."""
    try:
        return handler(name)(row, limits, seed)
    except Broken as error:
        return row.result("failed", str(error), cause=error.cause)
    except ValueError as error:  # a model or an option that it does not know
        raise CannotDo(str(error)) from error


def checked(kernel, row: Row, seed: int) -> tuple[reference.OutputCheck, float]:
    """The check of a fresh call on whole numbers and that call's seconds, compilation included."""
    whole = whole_numbers(row.problem, seed)
    begin = time.perf_counter()
    prepared = _prepared(kernel, row, whole)
    value = prepared.call()
    first_call = time.perf_counter() - begin
    return reference.check(row.problem, whole, prepared.result(value), prepared.bound), first_call


def _room_for(row: Row) -> None:
    """Evicts bound rows until this one fits into memory with those that stay.

    Raises: DoesNotFit when it would not even with none left.
    """
    bound_rows.make_room(row)
    try:
        require_room(row)
    except DoesNotFit:
        if not bound_rows.clear():
            raise
        require_room(row)


def _ready(kernel, row: Row, inputs: Arrays, device_s: float = 0.0) -> BoundRow:
    """The row bound to its data, with every clock that makes sense for it; `device_s`: of a call, where it was timed before."""
    prepared = _prepared(kernel, row, inputs)
    takes = {"host-latency": _waited_for(prepared)}
    if prepared.synchronize:
        takes |= _device_takes(kernel, row, prepared, device_s)
    return BoundRow(prepared=prepared, inputs=inputs, takes=takes)


def clocks(row: Row, bound: BoundRow, known: Known, limits: Limits, *, handicap: float = 0.0) -> tuple[Samples, ...]:
    """The samples of one visit on every clock, taken after the process is quiet and warm."""
    warming.quiet_for((row.backend, row.threads))
    warming.ramp_up(bound.prepared, row.threads or facts.usable_cores(), limits)
    for clock, take in bound.takes.items():
        if clock not in known.call_s:
            known.call_s[clock] = timing.call_seconds(take, limits)
    warming.warm_up(bound.prepared, row, known.call_s["host-latency"], limits)
    taken = []
    for clock, take in bound.takes.items():
        known.watch.before_block()
        samples = timing.visit(take, limits, clock, known.call_s[clock], handicap=handicap)
        shortest = min(samples.seconds)
        if not hasattr(take, "resets") and 2 * shortest < known.call_s[clock]:
            known.call_s[clock] = max(shortest, 1e-9)  # something slowed it down when it was sized
        taken.append(_per_pass(samples, bound.prepared.passes))
    return tuple(taken)


def _waited_for(prepared: copy_modes.Prepared) -> timing.Take:
    """The clock of calls that are each waited for."""
    if prepared.before:
        return timing.latency_after(prepared.run, prepared.before, prepared.synchronize)
    if prepared.synchronize:
        return timing.latency(prepared.run, prepared.synchronize)
    return timing.host(prepared.run)


def _device_takes(kernel, row: Row, prepared: copy_modes.Prepared, device_s: float = 0.0) -> dict[str, timing.Take]:
    """Clock -> function that takes its samples, for the clocks beyond host-latency, of a call whose work is on a device."""
    run = prepared.run
    wait = prepared.synchronize
    stream = prepared.stream
    before = prepared.before
    if before:
        return {"device": timing.device_after(run, before, stream)} if stream and not kernel.waits else {}
    if row.mode != "resident" or kernel.waits or not wait:
        return {}
    takes = {"host-throughput": timing.throughput(run, wait)}
    if row.problem.op in ("transfer", "launch"):
        takes["host-issue"] = timing.issue(run, wait)
    if stream and not kernel.allocates:
        launches = getattr(row.problem, "count", 1)
        takes["device"] = _on_device(run, wait, stream, launches=launches, device_s=device_s)
    return takes


def _on_device(run: Callable, wait: Callable, stream, *, launches: int, device_s: float) -> timing.Take:
    """Device time by events: around queued calls when they are long, else around calls that wait behind a blocked stream."""
    take = timing.blocked(run, stream, launches)
    if not device_s:
        run()  # what it loads may not be loaded behind a blocked stream
        wait()
        device_s = take(1)
    if device_s < timing.BLOCKED_BELOW_S or hasattr(take, "flags"):
        return take
    return timing.device(run, stream)


def _per_pass(samples: Samples, passes: int) -> Samples:
    """Samples of one pass from samples of calls that make `passes` of them."""
    if passes == 1:
        return samples
    seconds = tuple(timing.rounded(s / passes) for s in samples.seconds)
    return replace(samples, seconds=seconds, calls=samples.calls * passes)


@functools.lru_cache(maxsize=4)
def _whole_numbers(problem: Problem, seed: int) -> Arrays:
    return problem.inputs(seed, True)


def whole_numbers(problem: Problem, seed: int) -> Arrays:
    """The inputs that answers are checked on, kept for the next kernel or mode of the same problem unless they are large."""
    if problem.footprint_bytes > 1 << 30:
        _whole_numbers.cache_clear()
        return problem.inputs(seed, True)
    return _whole_numbers(problem, seed)


@functools.cache
def _controller(backend: str):
    """The controller of the threads of all loaded libraries; new for each backend, as that may have loaded another one."""
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()


def _use_threads(row: Row) -> None:
    """Gives BLAS and Numba the row's number of threads (all of them when it names none)."""
    if row.on_gpu:
        return
    import numba

    threads = row.threads or numba.config.NUMBA_NUM_THREADS
    _controller(row.backend).limit(limits=threads)
    if row.backend == "numba":
        numba.set_num_threads(threads)
