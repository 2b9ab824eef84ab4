"""Inside a worker: one row from inputs to Measurement. Memory first, then the check, then the clocks."""

import dataclasses
import functools
import gc
import math
import resource
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from analysis import units
from kernels import reference, registry
from kernels.problems import Problem
from workloads.harness import copy_modes, kept, startup, telemetry, timing, warming
from workloads.harness.dispatch import HANDLERS, Broken, CannotDo, handler, one_line
from workloads.harness.flags import raised
from workloads.harness.kept import Arrays
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.machine.clock import moment
from workloads.records import Measurement, Row, Samples
from workloads.records.rows import VISITS_AT, Cause
from workloads.records.settings import is_sustained
from workloads.records.visits import together

# What a row needs besides the problem's own arrays: the random and the whole-number inputs, the answer, its check.
_HOST_COPIES = 3
# A copy also has its own array on the host, and its check the bytes once more from the device and as a whole.
_HOST_COPIES_OF = {"transfer": 6}
# What Numba with its compiler and threads maps after NumPy: with 254 MiB left they never returned, with 352 MiB they did.
_MAPPED_BYTES = 3 << 27
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
# How the driver says that it will not lock host memory; CuPy has errors of its own for the device's.
_NOT_LOCKED = ("cudaErrorMemoryAllocation", "cudaErrorOperatingSystem", "cudaErrorNotPermitted")


def obey(order) -> Measurement:
    """Carries out one Order; the Measurement says when."""
    asked = order.row, order.limits, order.seed

    def work() -> Measurement:
        require_address_space()
        if order.verb == "visit":
            return visit(*asked, order.visit, order.handicap)
        if order.verb == "trace":
            return handler("trace")(order.row, order.step_inputs)
        return measure(*asked) if order.verb == "measure" else _by_framework(order.verb, *asked)

    made = guarded(order.row, work)
    no_memory = order.verb == "visit" and made.cause == "out-of-memory"
    if no_memory and kept.clear():  # what other rows held may be what it lacked
        made = guarded(order.row, work)
    return replace(made, at=facts.now())


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
        status, reason = "skipped", str(error)
        cause = error.cause
    except MemoryError:
        status, reason = "skipped", "out of host memory"
        cause = "out-of-memory"
    except Exception as error:  # a kernel may raise anything; the sweep goes on with the next row
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {innermost(str(error))} ({where.name}, line {where.lineno})"
        if any(name in type(error).__name__ for name in ("OutOfMemory", "ResourceExhausted")):
            where_ = "GPU" if row.on_gpu else "host"
            status, reason = "skipped", f"out of {where_} memory: {error}"[:300]
            cause = "out-of-memory"
        elif refused := not_locked(row.problem, str(error)):
            status, reason = "skipped", refused
        elif any(name in str(error) for name in _STICKY):
            flags = ("context-lost",)
    gc.collect()
    return row.result(status, reason, flags=flags, cause=cause)


def innermost(error: str) -> str:
    """The reason of an error, in one line of at most 240 characters. Of a TensorFlow graph's error, the message below the
    places in the code where it was built."""
    if error.startswith("Graph execution error"):
        error = error.strip().rpartition("\n\n")[2]
    return one_line(error)


def not_locked(problem: Problem, error: str) -> str:
    """Why page-locked memory was refused, naming the limit that a user can raise; "" when that is not what happened."""
    locked = problem.locked_bytes
    if not locked or not any(name in error for name in _NOT_LOCKED):
        return ""
    allowed = "`ulimit -l` sets no limit"
    if (limit := lock_limit()) is not None:
        allowed = f"`ulimit -l` allows {units.size(limit)}: raise it with `ulimit -l unlimited`"
    what = f"{units.size(locked)} of {problem.host_memory} host memory"
    return f"the driver gave no {what} ({one_line(error, 80)}); {allowed}"


def lock_limit() -> int | None:
    """Bytes that this process may lock in memory (RLIMIT_MEMLOCK); None without a limit."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def require_address_space() -> None:
    """Raises DoesNotFit where `ulimit -v` leaves this process too little for what libraries map, as some wait for it forever."""
    left = address_space_left()
    if left < _MAPPED_BYTES:
        raise DoesNotFit(
            f"`ulimit -v` leaves {units.size(max(0, int(left)))} of address space, and libraries take up to "
            f"{units.size(_MAPPED_BYTES)}: raise it with `ulimit -v unlimited`"
        )


def address_space_left() -> float:
    """Bytes that this process may still map (RLIMIT_AS); infinite without a limit, and where the system does not tell."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    statm = Path("/proc/self/statm")
    if limit == resource.RLIM_INFINITY or not statm.exists():
        return math.inf
    pages = int(statm.read_text(encoding="utf-8").split()[0])
    return limit - pages * resource.getpagesize()


def _prepared(kernel, row: Row, inputs: Arrays) -> copy_modes.Prepared:
    try:
        return copy_modes.prepare(kernel, row.problem, row.settings, inputs)
    except ValueError as error:
        raise CannotDo(str(error)) from error


class DoesNotFit(CannotDo):
    """A problem larger than the memory that is free; said before anything is allocated."""

    cause = "does-not-fit"


def require_bytes(need: int, name: str, have: int, why: str = "") -> None:
    """Raises DoesNotFit when more memory of that name is needed than is free. why: what needs so much, in brackets."""
    if need > have:
        raise DoesNotFit(f"needs {units.size(need)} of {name} memory, {units.size(have)} are free{why}")


def require_memory(problem: Problem, device: str, free=facts.memory_available) -> None:
    """Raises DoesNotFit when the problem's arrays, and what the check needs beside them, exceed the free memory.

    Page-locked memory is taken from everybody until it is given back, so at most half of what is free is asked for.
    """
    locked, most = problem.locked_bytes, free("cpu") // 2
    if locked > most:
        raise DoesNotFit(
            f"needs {units.size(locked)} of {problem.host_memory} host memory; at most half of what is free, "
            f"{units.size(most)}, is ever locked"
        )
    copies = _HOST_COPIES_OF.get(problem.op, _HOST_COPIES)
    why = f" ({copies} times the {units.size(problem.footprint_bytes)} of its arrays, to check the result)"
    require_bytes(copies * problem.footprint_bytes, "host", free("cpu"), why)
    if device != "cpu":
        require_bytes(problem.footprint_bytes * 2, "GPU", free("gpu:0"))


def require_room(row: Row, *free: Callable[[str], float]) -> None:
    """Raises DoesNotFit when its device's free memory is too small for a row; a framework holds the GPU's itself."""
    require_memory(row.problem, "cpu" if row.backend in registry.FRAMEWORKS else row.device, *free)


def too_large(rows: Iterable[Row], require: Callable[[Row], None], name: Callable[[Row], str]) -> dict[str, str]:
    """Key -> why a row will be left out, of those that memory is too small for, as `require` raises it."""
    left_out = {}
    for row in rows:
        try:
            require(row)
        except DoesNotFit as error:
            left_out[row.key] = f"{name(row)}: {error}"
    return left_out


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Measures a whole row: what a framework times in one go, or all visits of a kernel, one after the other."""
    if row.problem.op in HANDLERS:
        return _by_framework(row.problem.op, row, limits, seed)
    if row.problem.once:
        return startup.measure(row)
    made: list[Measurement] = []
    while len(made) < limits.rounds and (not made or made[-1].ok):
        made.append(visit(row, limits, seed, len(made) + 1))
    return together(made)


@dataclasses.dataclass
class Known:
    """Facts that this process has learned of a row: the check of its answer, the seconds of its first call and of a warm one on
    each clock, and what its visits' telemetry saw."""

    check: reference.OutputCheck
    first_call_s: float
    call_s: dict[str, float] = dataclasses.field(default_factory=dict)
    watch: Any = None


@dataclasses.dataclass(frozen=True)
class Bound:
    """A row ready to be timed again: its call, the data it was bound to, and its clocks."""

    prepared: copy_modes.Prepared
    inputs: Arrays
    takes: dict[str, timing.Take]


_known: dict[str, Known] = {}


def visit(row: Row, limits: Limits, seed: int, number: int = 1, handicap: float = 0.0) -> Measurement:
    """The row's `number`-th visit, a block on each clock.

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
        about |= {"check": known.check.how, "max_error": error if error is not None and math.isfinite(error) else None}
        about |= {"phases_s": {"first_call": known.first_call_s}}
    if not known.check.passed:
        return row.result("wrong", "the answer is not the reference's", **about)
    bound = kept.find(row.key)
    if bound is None:
        _room_for(row)
        bound = _ready(kernel, row, kept.inputs(row.problem, seed), known.call_s.get("device", 0.0))
        kept.keep(row, bound)
    elif bound.prepared.stream:
        bound.prepared.stream.use()  # a library may have chosen another since
    if known.watch is None:
        known.watch = telemetry.watch(row.device, row.problem.op == "transfer", row.backend in registry.FRAMEWORKS)
    known.watch.begin()
    samples = clocks(row, bound, known, limits, handicap)
    values, flags = known.watch.seen()
    flags += tuple(flag for take in bound.takes.values() for flag in getattr(take, "flags", ()))
    if first and samples:
        flags += raised(kernel, row, bound.prepared, bound.inputs, min(samples[0].seconds))
        warming.quiet_for(())  # the check's product had threads of its own
    notes = kernel.notes | bound.prepared.notes
    if row.on_gpu:
        notes |= {"gpu_state": "cold-clocked" if "cold-clocked" in flags else "held" if is_sustained(row) else "burst"}
    about |= {"values": values, "flags": flags, "notes": notes, "series": {VISITS_AT: (round(moment(), 2),)}}
    return row.result("ok", samples=samples, **about)


def _by_framework(what: str, row: Row, limits: Limits, seed: int) -> Measurement:
    try:
        return handler(what)(row, limits, seed)
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
    """Lets bound rows go until this one fits beside those that stay.

    Raises: DoesNotFit when it would not even with none left.
    """
    kept.make_room(row)
    try:
        require_room(row)
    except DoesNotFit:
        if not kept.clear():
            raise
        require_room(row)


def _ready(kernel, row: Row, timed: Arrays, device_s: float = 0.0) -> Bound:
    """The row bound to its data, with every clock that makes sense for it; `device_s`: of a call, where it was timed before."""
    prepared = _prepared(kernel, row, timed)
    takes = {"host-latency": _waited_for(prepared)}
    if prepared.synchronize:
        takes |= _device_takes(kernel, row, prepared, device_s)
    return Bound(prepared, timed, takes)


def clocks(row: Row, bound: Bound, known: Known, limits: Limits, handicap: float = 0.0) -> tuple[Samples, ...]:
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
        samples = timing.visit(take, limits, clock, known.call_s[clock], handicap)
        if not hasattr(take, "resets") and 2 * (least := min(samples.seconds)) < known.call_s[clock]:
            known.call_s[clock] = max(least, 1e-9)  # something held it back when it was sized
        taken.append(_per_pass(samples, bound.prepared.passes))
    return tuple(taken)


def _waited_for(prepared: copy_modes.Prepared) -> timing.Take:
    """The clock of calls that are each waited for."""
    if prepared.before:
        return timing.each(prepared.run, prepared.before, prepared.synchronize)
    return timing.latency(prepared.run, prepared.synchronize) if prepared.synchronize else timing.host(prepared.run)


def _device_takes(kernel, row: Row, prepared: copy_modes.Prepared, device_s: float = 0.0) -> dict[str, timing.Take]:
    """Clock -> function that takes its samples, for the clocks beyond host-latency, of a call whose work is on a device."""
    run, wait, stream, before = prepared.run, prepared.synchronize, prepared.stream, prepared.before
    if before:
        return {"device": timing.device_each(run, before, stream)} if stream and not kernel.waits else {}
    if row.mode != "resident" or kernel.waits or not wait:
        return {}
    takes = {"host-throughput": timing.throughput(run, wait)}
    if row.problem.op in ("transfer", "launch"):
        takes["host-issue"] = timing.issue(run, wait)
    if stream and not kernel.allocates:
        takes["device"] = _on_device(run, wait, stream, getattr(row.problem, "count", 1), device_s)
    return takes


def _on_device(run: Callable, wait: Callable, stream, launches: int, device_s: float) -> timing.Take:
    """Device time by events: around queued calls when they are long, else around calls that wait behind a held stream."""
    take = timing.held(run, stream, launches)
    if not device_s:
        run()  # what it loads may not be loaded behind a held stream
        wait()
        device_s = take(1)
    if device_s < timing.HELD_BELOW_S or hasattr(take, "flags"):
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
