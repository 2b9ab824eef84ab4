"""Measures one row inside a worker process: makes room in memory, checks the answer of the kernel, then times it."""

import dataclasses
import functools
import gc
import math
import re
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kernels import reference, registry
from kernels.problems import Problem
from kernels.registry import Kernel
from workloads.harness import bound_rows, copy_modes, memory_needs, startup, telemetry, timing, warming
from workloads.harness.bound_rows import Arrays
from workloads.harness.copy_modes import Prepared
from workloads.harness.dispatch import HANDLERS, Broken, CannotDo, handler, one_line
from workloads.harness.flags import raised
from workloads.harness.memory_needs import DoesNotFit, require_room
from workloads.harness.orders import Order
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.machine.clock import moment
from workloads.records import Measurement, Row, Samples
from workloads.records.rows import VISITS_AT, Cause
from workloads.records.settings import is_sustained
from workloads.records.visits import together

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

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
_LARGE_INPUTS_BYTES = 1 << 30


def obey(order: Order) -> Measurement:
    """Carries out an order to this worker process and returns the result, with the time of day. Errors become a Measurement
    too."""

    def work() -> Measurement:
        return _carry_out(order)

    answer = guarded(order.row, work)
    lacks_memory = order.verb == "visit" and answer.cause == "out-of-memory"
    if (
        lacks_memory and bound_rows.clear()
    ):  # rows that are kept between visits may have taken the memory: once more without them
        answer = guarded(order.row, work)
    return replace(answer, at=facts.now())


def _carry_out(order: Order) -> Measurement:
    """The result of an order, by its verb: `visit` a row (one block of samples), `measure` a row in one go, `trace` the step
    of its training; any other verb names a framework's function. Raises whatever goes wrong."""
    memory_needs.require_address_space()
    if order.verb == "visit":
        return visit(order.row, order.limits, order.seed, number=order.visit, handicap=order.handicap)
    if order.verb == "trace":
        return handler("trace")(order.row, order.step_inputs)
    if order.verb == "measure":
        return measure(order.row, order.limits, order.seed)
    return _by_framework(order.verb, order.row, order.limits, order.seed)


def guarded(row: Row, work: Callable[[], Measurement]) -> Measurement:
    """What `work()` returns; if it raises, a Measurement of the row that is skipped or failed, with the reason in words.

    Skipped is what this machine cannot do: an unknown library, an unfit problem, too little memory. Any other error failed.
    """
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
        origin = traceback.extract_tb(error.__traceback__)[-1]  # the function that raised it
        reason = f"{type(error).__name__}: {innermost(str(error))} ({origin.name}, line {origin.lineno})"
        not_locked = memory_needs.not_locked(row.problem, str(error))
        if any(name in type(error).__name__ for name in ("OutOfMemory", "ResourceExhausted")):  # of CuPy, of TensorFlow
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
    """The message of an error as one line of at most 240 characters. TensorFlow begins the message of an error in a graph with a
    list of places in the code; of such a message only the paragraph below that list is taken."""
    if _GRAPH_ERROR.match(error):
        error = error.strip().rpartition("\n\n")[2]
    return one_line(error)


def _prepared(kernel: Kernel, row: Row, inputs: Arrays) -> Prepared:
    """The kernel with these inputs (on the host), ready to be called in the row's copy mode and cache state.

    Raises: CannotDo for what the kernel cannot do.
    """
    try:
        return copy_modes.prepare(kernel, row.problem, row.settings, inputs)
    except ValueError as error:
        raise CannotDo(str(error)) from error


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Measures a row in one go. What a framework times, or what happens once in a process, is measured as it is; any other row
    gets all its visits (blocks of samples, `limits.rounds` of them) one after the other."""
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
    """What this process knows of a row that it has visited."""

    #: The check of its answer.
    check: reference.OutputCheck
    #: Seconds of its first call, compilation included.
    first_call_s: float
    #: Name of a clock, such as host-latency -> seconds of a warm call on it.
    call_s: dict[str, float] = dataclasses.field(default_factory=dict)
    #: Watches clocks, power and other programs during its visits; None before the first.
    watch: telemetry.Watch | None = None


@dataclasses.dataclass(frozen=True)
class BoundRow:
    """A row ready to be timed again."""

    #: Its kernel with its data.
    prepared: Prepared
    #: The data on the host.
    inputs: Arrays
    #: Name of a clock, such as host-latency -> function that makes so many calls and returns their seconds on that clock.
    takes: dict[str, timing.Take]


#: Key of a row -> what this process knows of it.
_known: dict[str, Known] = {}


def visit(row: Row, limits: Limits, seed: int, number: int = 1, *, handicap: float = 0.0) -> Measurement:
    """Visits a row: takes one block of samples on each of its clocks, for about `limits.visit_s` seconds each.

    At the first visit, and at the first in this process, the answer of the kernel is checked on whole numbers before. A row with
    a wrong answer is not timed. The row stays bound to its data for later visits.

    number: of the visit, from 1. handicap: a planted slowdown, as timing.visit describes it.
    """
    first = number == 1 or row.key not in _known
    if first:
        _make_room(row)
    kernel = registry.find(row.kernel)
    _use_threads(row)
    if first:
        _known[row.key] = checked(kernel, row, seed)
    known = _known[row.key]
    fields: dict[str, Any] = {"visit": number}  # of the Measurement
    if first:
        error = known.check.max_error
        is_finite = error is not None and math.isfinite(error)
        fields |= {"check": known.check.how, "max_error": error if is_finite else None}
        fields |= {"phases_s": {"first_call": known.first_call_s}}
    if not known.check.passed:
        return row.result("wrong", "the answer is not the reference's", **fields)
    bound = bound_rows.find(row.key)
    if bound is None:
        _make_room(row)
        bound = _bind(kernel, row, bound_rows.inputs(row.problem, seed), known.call_s.get("device", 0.0))
        bound_rows.keep(row, bound)
    elif bound.prepared.stream:
        bound.prepared.stream.use()  # a library may have chosen another since
    if known.watch is None:
        is_copy = row.problem.op == "transfer"
        known.watch = telemetry.watch(row.device, link=is_copy, framework=row.backend in registry.FRAMEWORKS)
    known.watch.begin()
    samples = _samples(row, bound, known, limits, handicap=handicap)
    readings = known.watch.readings()
    flags = readings.flags
    for take in bound.takes.values():
        flags += getattr(take, "flags", ())
    if first and samples:
        flags += raised(kernel, row, bound.prepared, bound.inputs, call_s=min(samples[0].seconds))
        warming.wait_for_quiet(None)  # the checks for flags computed a product, whose threads may still spin
    notes = kernel.notes | bound.prepared.notes
    if row.on_gpu:
        notes |= {"gpu_state": _gpu_state(row, flags)}
    fields |= {"values": readings.values, "flags": flags, "notes": notes}
    fields |= {"series": {VISITS_AT: (round(moment(), 2),)}}
    return row.result("ok", samples=samples, **fields)


def _gpu_state(row: Row, flags: tuple[str, ...]) -> str:
    """How a GPU was clocked when a row was timed, as a note of the row: `cold-clocked` (it had not left its idle clock),
    `held` (under sustained load) or `burst`."""
    if "cold-clocked" in flags:
        return "cold-clocked"
    return "held" if is_sustained(row) else "burst"


def _by_framework(name: str, row: Row, limits: Limits, seed: int) -> Measurement:
    """What the function that dispatch.HANDLERS has under this name measures of the row; errors that are the row's fault become
    its result, or CannotDo."""
    try:
        return handler(name)(row, limits, seed)
    except Broken as error:
        return row.result("failed", str(error), cause=error.cause)
    except ValueError as error:  # a model or an option that it does not know
        raise CannotDo(str(error)) from error


def checked(kernel: Kernel, row: Row, seed: int) -> Known:
    """Calls the kernel once with inputs of whole numbers; compares the result with the reference, and times that first call,
    compilation included."""
    whole = whole_numbers(row.problem, seed)
    begin = time.perf_counter()
    prepared = _prepared(kernel, row, whole)
    value = prepared.call()
    first_call_s = time.perf_counter() - begin
    check = reference.check(row.problem, whole, prepared.result(value), prepared.bound)
    return Known(check=check, first_call_s=first_call_s)


def _make_room(row: Row) -> None:
    """Evicts rows that are kept bound to their data until this row fits into memory beside the others.

    Raises: DoesNotFit if it would not even with all others evicted.
    """
    bound_rows.make_room(row)
    try:
        require_room(row)
    except DoesNotFit:
        if not bound_rows.clear():
            raise
        require_room(row)


def _bind(kernel: Kernel, row: Row, inputs: Arrays, device_s: float = 0.0) -> BoundRow:
    """The row with its data, and with every clock that makes sense for it.

    device_s: seconds of a call on the device, where it was timed before; else 0.
    """
    prepared = _prepared(kernel, row, inputs)
    takes = {"host-latency": _latency_take(prepared)}
    if prepared.synchronize:
        takes |= _device_takes(kernel, row, prepared, device_s)
    return BoundRow(prepared=prepared, inputs=inputs, takes=takes)


def _samples(row: Row, bound: BoundRow, known: Known, limits: Limits, *, handicap: float = 0.0) -> tuple[Samples, ...]:
    """Takes the samples of one visit, a block on each clock, after other threads have come to rest and cores and GPU are warm.

    known: gets the seconds of a call on each clock, by which the samples are sized. handicap: as in timing.visit.
    """
    assert known.watch is not None
    warming.wait_for_quiet(warming.Threads(backend=row.backend, number=row.threads))
    warming.ramp_up(bound.prepared, row.threads or facts.usable_cores(), limits)
    for clock, take in bound.takes.items():
        if clock not in known.call_s:
            known.call_s[clock] = timing.call_seconds(take, limits)
    warming.warm_up(bound.prepared, row, known.call_s["host-latency"], limits)
    every: list[Samples] = []
    for clock, take in bound.takes.items():
        known.watch.before_block()
        samples = timing.visit(take, limits, clock, known.call_s[clock], handicap=handicap)
        shortest = min(samples.seconds)
        if not hasattr(take, "resets") and 2 * shortest < known.call_s[clock]:
            known.call_s[clock] = max(shortest, 1e-9)  # something slowed it down when it was sized
        every.append(_per_pass(samples, bound.prepared.passes))
    return tuple(every)


def _latency_take(prepared: Prepared) -> timing.Take:
    """The function that times calls each of which is waited for, on the host's clock."""
    if prepared.before:
        return timing.latency_after(prepared.run, prepared.before, prepared.synchronize)
    if prepared.synchronize:
        return timing.latency(prepared.run, prepared.synchronize)
    return timing.host(prepared.run)


def _device_takes(kernel: Kernel, row: Row, prepared: Prepared, device_s: float = 0.0) -> dict[str, timing.Take]:
    """Name of a clock -> function that times calls on it, for the clocks beyond host-latency of a row whose work is on a device.

    device_s: seconds of a call on the device, where it was timed before; else 0.
    """
    run = prepared.run
    wait = prepared.synchronize
    stream = prepared.stream
    before = prepared.before
    is_queued = not kernel.waits  # else a call returns only when the device is done
    if before:  # something untimed between the calls: they cannot be queued one behind the other
        return {"device": timing.device_after(run, before, stream)} if stream and is_queued else {}
    if row.mode != "resident" or not is_queued or not wait:
        return {}
    takes = {"host-throughput": timing.throughput(run, wait)}
    if row.problem.op in ("transfer", "launch"):
        takes["host-issue"] = timing.issue(run, wait)
    if stream and not kernel.allocates:  # an allocation may wait for the stream, which must be free to be held
        launches = getattr(row.problem, "count", 1)
        takes["device"] = _on_device(run, wait, stream, launches=launches, device_s=device_s)
    return takes


def _on_device(
    run: Callable[[], Any], wait: Callable[[], object], stream: Any, *, launches: int, device_s: float
) -> timing.Take:
    """The function that times calls by events on the GPU. Calls are just queued if they are long; short ones are held back on the
    stream until all are queued, so that the GPU never waits for the host.

    wait: returns when the GPU is done. stream: CuPy's. launches: kernels in a call. device_s: seconds of a call, 0 if unknown.
    """
    take = timing.blocked(run, stream, launches)
    if not device_s:
        run()  # a library that is loaded at the first call cannot be loaded while the stream is held
        wait()
        device_s = take(1)
    if device_s < timing.BLOCKED_BELOW_S or hasattr(take, "flags"):
        return take
    return timing.device(run, stream)


def _per_pass(samples: Samples, passes: int) -> Samples:
    """Samples in seconds per problem, from samples of calls each of which does its problem `passes` times."""
    if passes == 1:
        return samples
    seconds = tuple(timing.rounded(s / passes) for s in samples.seconds)
    return replace(samples, seconds=seconds, calls=samples.calls * passes)


@functools.lru_cache(maxsize=4)
def _cached_whole_numbers(problem: Problem, seed: int) -> Arrays:
    return problem.inputs(seed, whole_numbers=True)


def whole_numbers(problem: Problem, seed: int) -> Arrays:
    """The problem's inputs of whole numbers, on which the answers of kernels are checked; arrays on the host.

    They stay in memory for the next kernel or copy mode of the same problem, unless they are large.
    """
    if problem.footprint_bytes > _LARGE_INPUTS_BYTES:
        _cached_whole_numbers.cache_clear()
        return problem.inputs(seed, whole_numbers=True)
    return _cached_whole_numbers(problem, seed)


@functools.cache
def _controller(backend: str) -> "ThreadpoolController":
    """The object that sets the threads of all loaded libraries. Each backend has a new one, as it may have loaded another library
    since."""
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()


def _use_threads(row: Row) -> None:
    """Makes BLAS libraries and Numba use the row's number of CPU threads; all threads where the row names none."""
    if row.on_gpu:
        return
    import numba

    threads = row.threads or numba.config.NUMBA_NUM_THREADS
    _controller(row.backend).limit(limits=threads)
    if row.backend == "numba":
        numba.set_num_threads(threads)
