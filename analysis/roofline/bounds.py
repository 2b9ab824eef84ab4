"""The share of its roof that each row reaches: of arithmetic, a level of memory, the link, or the launch."""

from collections.abc import Iterable

import msgspec

from analysis.roofline.roofs import (
    BEST_MATMUL,
    QUEUED,
    TOLERANCE,
    WAITED,
    Roof,
    Roofs,
    flops_of,
    is_beyond_hardware,
)
from analysis.stats import Estimate, clock_of, exact, is_gpu, quick_seconds, seconds_of
from analysis.units import count, percent
from kernels.problems import Problem
from workloads.records import Machine, Measurement, Settings

ABOVE = "above-roof"
# A virtual CPU may pass a roof that was measured in a leaner minute by this factor at most: a whole core in place of the half
# that another program left, at twice the clock.
MOST_LENT = 4.0
MOST_CLOCK = 2.0  # a device's highest clock, as a multiple of the clock at which its roof may have been measured
# Tensor cores and AMX do at most so many times the FLOPs of the vector units: of an H200 989 and 67 TFLOP/s, of AMX 1,024 and 64
# a cycle.
MOST_TENSOR = 16.0
NO_KERNEL = "no-kernel"
NO_KERNEL_WORDS = """shorter than the shortest empty kernel: the call does no kernel's work, such as a memset where a convolution
touches nothing but padding; its share says nothing of how good a kernel is"""
NO_CACHE_ROOF = "no cache roof measured"
CACHED_MARK = "*"
CACHED_WORDS = "its working set fits a cache, whose roof was not measured: only the compute roof counts"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The least time that the roofs allow a problem."""

    #: Seconds a call.
    seconds: Estimate
    #: The roof that sets them.
    roof: Roof
    #: Which other roof is missing, or "".
    note: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A row against its roof."""

    #: The share of the roof that the row reaches; None without a roof.
    fraction: Estimate | None = None
    #: The roof that bounds the row.
    roof: Roof | None = None
    #: ABOVE, where the share is impossible, or "".
    flag: str = ""
    #: Which roof is missing, or "".
    note: str = ""
    #: NO_KERNEL, where the call is shorter than an empty kernel: no error, but no measure of a kernel either; or "".
    doubt: str = ""

    @property
    def is_marked(self) -> bool:
        """Whether its share has a mark, as no memory roof was known to hold."""
        return self.fraction is not None and self.note == NO_CACHE_ROOF

    @property
    def share(self) -> str:
        """`82.1 %`, marked where no memory roof was known to hold; `-` without a roof."""
        if self.fraction is None:
            return "-"
        share = percent(self.fraction.value)
        return f"{share} {CACHED_MARK}" if self.is_marked else share


def mark_note(rows: Iterable[Judged]) -> str:
    """The meaning of the mark behind some of these shares; "" where none is marked."""
    is_marked = any(judged.is_marked for judged in rows)
    return f"{CACHED_MARK} {CACHED_WORDS}." if is_marked else ""


def pick(roofs: Roofs, device: str, kind: str, name: str = "", threads: int | None = None) -> Roof | None:
    """The measured roof for that many threads, the best roof of the device without `threads`.

    A count that was not measured gets the lowest of what it cannot exceed: a roof of more threads, or one of fewer
    threads scaled up in proportion. So a fraction is never flattered.
    """
    candidates = [r for r in roofs if r.kind == kind and r.device == device and r.measured and name in ("", r.name)]
    if threads is None:
        return max(candidates, key=_rate, default=None)
    same_threads = [r for r in candidates if r.threads == threads]
    if same_threads:
        return max(same_threads, key=_rate)
    more_threads = [r for r in candidates if r.threads is None or r.threads > threads]
    scaled_up = [_scaled(r, r.threads, threads) for r in candidates if r.threads and r.threads < threads]
    return min([*more_threads, *scaled_up], key=_rate, default=None)


def _rate(roof: Roof) -> float:
    return roof.rate.value


def _scaled(roof: Roof, measured_threads: int, threads: int) -> Roof:
    """The roof of so many threads as if the rate grew in proportion to them."""
    note = f"that of {count(measured_threads, 'thread')}, scaled"
    return msgspec.structs.replace(roof, rate=roof.rate * (threads / measured_threads), threads=threads, note=note)


def level(roofs: Roofs, device: str, footprint: int, threads: int | None = None) -> Roof | None:
    """The smallest measured level that holds a warm working set of `footprint` bytes; None where none is known to.

    Where two levels may hold it in part, it is the faster one: a ceiling must not lie below what is possible.
    """
    cache_names = dict.fromkeys(r.name for r in roofs if r.kind == "cache" and r.device == device and r.measured)
    caches = [pick(roofs, device, "cache", name=name, threads=threads) for name in cache_names]
    large_enough = [r for r in caches if r and r.floor_bytes < footprint <= r.holds_bytes]
    if large_enough:
        return min(large_enough, key=lambda r: r.holds_bytes)
    memory = pick(roofs, device, "memory", threads=threads)
    return memory if memory and footprint > memory.floor_bytes else None


def attainable(roofs: Roofs, problem: Problem, settings: Settings, clock: str = "") -> Bound | None:
    """The least seconds that the measured roofs allow a problem; None when the roof that matters was not measured.

    The memory's roof counts for cold rows and for working sets that no cache holds; for others it is that of the smallest
    level that holds them, and where none is known the note says "no cache roof measured". In a copying mode the bytes
    that cross the link count too, and on a GPU, where the `clock` is told, the shortest call.
    """
    device, threads = settings.device, settings.threads
    if problem.op == "transfer":
        return _copying(roofs, problem, device)
    flops, moved = problem.flops, problem.bytes_moved
    compute = pick(roofs, device, "compute", name=problem.math, threads=threads) if flops and problem.math else None
    main_memory = pick(roofs, device, "memory", threads=threads) if moved else None
    memory = main_memory
    if moved and settings.cache != "cold":
        memory = level(roofs, device, problem.footprint_bytes, threads)
    only_moves = problem.op == "stream" or (problem.op == "layer" and not flops)
    if (memory if only_moves else compute) is None:
        return None
    bounds = []
    if compute:
        bounds.append(Bound(seconds=flops / compute.rate, roof=compute))
    if memory:
        bounds.append(Bound(seconds=moved / memory.rate, roof=memory))
    if settings.mode != "resident":
        bounds += _operand_copies(roofs, problem, device)
    if is_gpu(device) and clock and problem.op != "layer":  # a layer's calls stand in one graph: none is waited for
        launch = pick(roofs, device, "launch", name=QUEUED if clock == "device" else WAITED)
        if launch:
            bounds.append(Bound(seconds=1 / launch.rate, roof=launch))
    note = NO_CACHE_ROOF if main_memory and not memory else ""
    return msgspec.structs.replace(_longest(bounds), note=note)


def _longest(bounds: list[Bound]) -> Bound:
    return max(bounds, key=lambda bound: bound.seconds.value)


def _copying(roofs: Roofs, problem: Problem, device: str) -> Bound | None:
    """A copy under the link's roof, both ways at once under the slower one; on the device under the memory's.

    None where something else runs at the same time, and for managed memory, whose pages may be on the device already.
    """
    if problem.compute or problem.host_memory == "managed":
        return None
    if problem.direction == "d2d":
        memory = level(roofs, device, problem.footprint_bytes)
        return Bound(seconds=problem.bytes_moved / memory.rate, roof=memory) if memory else None
    directions = ("h2d", "d2h") if problem.direction == "both" else (problem.direction,)
    links = [pick(roofs, device, "link", name=direction) for direction in directions]
    bounds = [Bound(seconds=problem.nbytes / link.rate, roof=link) for link in links if link]
    return _longest(bounds) if bounds else None


def _operand_copies(roofs: Roofs, problem: Problem, device: str) -> list[Bound]:
    """What the copies of a call's operands in and of its result out allow, one after the other, under the roof of the
    direction that takes longer; nothing where a direction was not measured."""
    h2d = pick(roofs, device, "link", name="h2d")
    d2h = pick(roofs, device, "link", name="d2h")
    if not (h2d and d2h and problem.result_bytes):
        return []
    copies_in = problem.operand_bytes / h2d.rate
    copy_out = problem.result_bytes / d2h.rate
    longer = h2d if copies_in.value >= copy_out.value else d2h
    return [Bound(seconds=copies_in + copy_out, roof=longer)]


def judge(measurement: Measurement, roofs: Roofs, seconds: "Estimate | None" = None) -> Judged:
    """The share of its roof that a row reaches; `flag` is "above-roof" when it is impossible (units, precision, counting).
    `seconds`: the row's own if already known.

    A call shorter than the shortest empty one is no such error: another way into the driver may be shorter still.
    """
    problem = measurement.problem
    seconds = seconds or seconds_of(measurement)
    if seconds is None or problem.op == "training":
        return Judged()
    samples = clock_of(measurement)
    bound = attainable(roofs, problem, measurement.settings, samples.clock if samples else "")
    if bound is None:
        memory_is_known = problem.op == "stream" and pick(roofs, measurement.device, "memory") is not None
        return Judged(note=NO_CACHE_ROOF if memory_is_known else "no roof measured")
    fraction = bound.seconds / seconds
    sure_bound = bound
    doubt = ""
    if bound.roof.kind == "launch":
        sure_bound = attainable(roofs, problem, measurement.settings) or bound
        doubt = NO_KERNEL if fraction.low > TOLERANCE else ""
    is_too_fast = (sure_bound.seconds / seconds).low > TOLERANCE
    if bound.roof.note == BEST_MATMUL and problem.op != "matmul":  # another operation may well be faster than a product
        is_too_fast = False
    is_error = is_too_fast or _beyond_sheet(measurement, seconds.high, roofs)
    return Judged(fraction=fraction, roof=bound.roof, flag=ABOVE if is_error else "", note=bound.note, doubt=doubt)


def _beyond_sheet(measurement: Measurement, seconds: float, roofs: Roofs) -> bool:
    """Whether the row is faster than its data-sheet peak: the only check where the roof is itself the best product seen."""
    flops = measurement.problem.flops
    wanted = (measurement.device, "compute", measurement.problem.math)
    return any(
        flops / seconds > TOLERANCE * r.rate.value
        for r in roofs
        if not r.measured and (r.device, r.kind, r.name) == wanted
    )


def quick_judge(measurement: Measurement, roofs: Roofs) -> Judged:
    """`judge` by the row's median alone, as the intervals of many rows take long; a flag still needs the whole interval."""
    seconds = quick_seconds(measurement)
    judged = judge(measurement, roofs, exact(seconds) if seconds else None)
    return judge(measurement, roofs) if judged.flag else judged


def may_be_lent(measurement: Measurement, judged: Judged, machine: Machine | None) -> bool:
    """Whether a row above its roof may be right: a virtual CPU is lent more or less of its host from minute to minute."""
    if judged.fraction is None or not _is_lent(measurement, machine):
        return False
    return judged.fraction.value <= MOST_LENT


def _is_lent(measurement: Measurement, machine: Machine | None) -> bool:
    """Whether a row ran on a virtual CPU."""
    return machine is not None and machine.virtual and not measurement.on_gpu


def is_above_roof(measurement: Measurement, roofs: Roofs, machine: Machine | None) -> bool:
    """Whether a row is faster than a roof that was measured, in a way that is an error: units, precision or counting."""
    if is_impossible(measurement, roofs, machine):
        return True
    judged = quick_judge(measurement, roofs)
    return bool(judged.flag) and not may_be_lent(measurement, judged, machine)


def is_impossible(measurement: Measurement, roofs: Roofs, machine: Machine | None) -> bool:
    """Whether a row is so much faster than the hardware's roof that nothing may be concluded from it.

    A roof may itself be low: measured at a lower clock, in a minute that other programs shared, or with fewer threads.
    So a row counts as impossible only beyond what those explain.
    """
    if is_beyond_hardware(measurement, machine):
        return True
    if measurement.problem.op == "training":
        return _step_is_impossible(measurement, roofs, machine)
    row = _with_all_threads(measurement, machine)
    seconds = seconds_of(row) if quick_judge(row, roofs).flag else None
    if seconds is None:
        return False
    if _beyond_sheet(row, seconds.high, roofs):
        return True
    bound = attainable(roofs, row.problem, row.settings)
    if bound is None:
        return False
    most = MOST_LENT if _is_lent(row, machine) else MOST_CLOCK
    return bound.seconds.value > most * seconds.value


def _with_all_threads(measurement: Measurement, machine: Machine | None) -> Measurement:
    """A CPU's row of a library's default threads, as one of all cores: a roof of fewer threads is then scaled up."""
    if measurement.on_gpu or measurement.threads is not None or machine is None:
        return measurement
    settings = msgspec.structs.replace(measurement.settings, threads=machine.cores)
    return msgspec.structs.replace(measurement, settings=settings)


def _step_is_impossible(training: Measurement, roofs: Roofs, machine: Machine | None) -> bool:
    """Whether a step of a training has more FLOPs a second than MOST_TENSOR times its device's highest compute roof."""
    seconds = quick_seconds(training)
    threads = _with_all_threads(training, machine).threads
    names = {roof.name for roof in roofs if roof.kind == "compute" and roof.device == training.device}
    ceilings = [pick(roofs, training.device, "compute", name=name, threads=threads) for name in names]
    rates = [ceiling.rate.value for ceiling in ceilings if ceiling is not None]
    if seconds is None or not rates:
        return False
    return flops_of(training) / seconds > MOST_TENSOR * max(rates)


def ridge(compute: Roof, memory: Roof) -> float:
    """FLOPs per byte above which the arithmetic, not the memory, is the limit."""
    return compute.rate.value / memory.rate.value
