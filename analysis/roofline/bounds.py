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


class Bound(msgspec.Struct, frozen=True):
    """The least seconds that the roofs allow a problem, the roof that sets them, and a note if another roof is missing."""

    seconds: "Estimate"
    roof: Roof
    note: str = ""


class Judged(msgspec.Struct, frozen=True):
    """A row against its roof: the fraction reached, `flag` ("" or "above-roof") and a note if a roof is missing.

    doubt: "" or "no-kernel", where the call is shorter than an empty kernel: no error, but no measure of a kernel either.
    """

    fraction: "Estimate | None"
    roof: Roof | None
    flag: str = ""
    note: str = ""
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
    found = [r for r in roofs if r.kind == kind and r.device == device and r.measured and name in ("", r.name)]
    same = [r for r in found if r.threads == threads]
    if threads is None or same:
        return max(same if threads else found, key=lambda r: r.rate.value, default=None)
    more = [r for r in found if r.threads is None or r.threads > threads]
    return min(
        [*more, *(_scaled(r, threads) for r in found if r.threads and r.threads < threads)],
        key=lambda r: r.rate.value,
        default=None,
    )


def _scaled(roof: Roof, threads: int) -> Roof:
    own = roof.threads or threads
    note = f"that of {count(own, 'thread')}, scaled"
    return msgspec.structs.replace(roof, rate=roof.rate * (threads / own), threads=threads, note=note)


def level(roofs: Roofs, device: str, footprint: int, threads: int | None = None) -> Roof | None:
    """The smallest measured level that holds a warm working set of `footprint` bytes; None where none is known to.

    Where two levels may hold it in part, it is the faster one: a ceiling must not lie below what is possible.
    """
    roofs = [r for r in roofs if r.measured and r.device == device]
    names = dict.fromkeys(r.name for r in roofs if r.kind == "cache")
    caches = [r for name in names if (r := pick(roofs, device, "cache", name, threads))]
    holding = [r for r in caches if r.floor_bytes < footprint <= r.holds_bytes]
    if holding:
        return min(holding, key=lambda r: r.holds_bytes)
    memory = pick(roofs, device, "memory", "", threads)
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
    compute = pick(roofs, device, "compute", problem.math, threads) if flops and problem.math else None
    memory = known = pick(roofs, device, "memory", "", threads) if moved else None
    if moved and settings.cache != "cold":
        memory = level(roofs, device, problem.footprint_bytes, threads)
    only_moves = problem.op == "stream" or (problem.op == "layer" and not flops)
    if (memory if only_moves else compute) is None:
        return None
    note = NO_CACHE_ROOF if known and not memory else ""
    times = [(work / r.rate, r) for r, work in ((compute, flops), (memory, moved)) if r]
    if settings.mode != "resident":
        times += _link_times(roofs, problem, device)
    if is_gpu(device) and clock and problem.op != "layer":  # a layer's calls stand in one graph: none is waited for
        floor = pick(roofs, device, "launch", QUEUED if clock == "device" else WAITED)
        if floor:
            times.append((1 / floor.rate, floor))
    seconds, roof = max(times, key=lambda pair: pair[0].value)
    return Bound(seconds, roof, note)


def _copying(roofs, problem, device: str) -> Bound | None:
    """A copy under the link's roof, both ways at once under the slower one; on the device under the memory's.

    None where something else runs beside it, and for managed memory, whose pages may be there already.
    """
    if problem.compute or problem.host_memory == "managed":
        return None
    if problem.direction == "d2d":
        memory = level(roofs, device, problem.footprint_bytes)
        return Bound(problem.bytes_moved / memory.rate, memory) if memory else None
    ways = ("h2d", "d2h") if problem.direction == "both" else (problem.direction,)
    times = [(problem.nbytes / r.rate, r) for way in ways if (r := pick(roofs, device, "link", way))]
    return Bound(*max(times, key=lambda pair: pair[0].value)) if times else None


def _link_times(roofs, problem, device: str) -> "list[tuple[Estimate, Roof]]":
    """The seconds that a call's operands in and its result out need on the link; the roof is that of the direction which takes
    longer."""
    h2d, d2h = (pick(roofs, device, "link", way) for way in ("h2d", "d2h"))
    if not (h2d and d2h and problem.result_bytes):
        return []
    first, last = problem.operand_bytes / h2d.rate, problem.result_bytes / d2h.rate
    return [(first + last, h2d if first.value >= last.value else d2h)]


def judge(measurement: Measurement, roofs: Roofs, seconds: "Estimate | None" = None) -> Judged:
    """The share of its roof that a row reaches; `flag` is "above-roof" when it is impossible (units, precision, counting).
    `seconds`: the row's own if already known.

    A call shorter than the shortest empty one is no such error: another way into the driver may be shorter still.
    """
    settings, problem, seconds = measurement.settings, measurement.problem, seconds or seconds_of(measurement)
    if seconds is None or problem.op == "training":
        return Judged(None, None)
    bound = _bound(measurement, roofs)
    if bound is None:
        known = problem.op == "stream" and pick(roofs, settings.device, "memory") is not None
        return Judged(None, None, note=NO_CACHE_ROOF if known else "no roof measured")
    fraction = bound.seconds / seconds
    hard = fraction
    doubt = ""
    if bound.roof.kind == "launch":
        hard = (_bound(measurement, roofs, launches=False) or bound).seconds / seconds
        if fraction.low > TOLERANCE:
            doubt = NO_KERNEL
    soft = bound.roof.note == BEST_MATMUL and problem.op != "matmul"  # another operation may well be faster than that
    above = (hard.low > TOLERANCE and not soft) or _beyond_sheet(measurement, seconds.high, roofs)
    return Judged(fraction=fraction, roof=bound.roof, flag=ABOVE if above else "", note=bound.note, doubt=doubt)


def _bound(measurement: Measurement, roofs: Roofs, launches: bool = True) -> Bound | None:
    samples = clock_of(measurement)
    clock = samples.clock if samples and launches else ""
    return attainable(roofs, measurement.problem, measurement.settings, clock)


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
    bound = _bound(row, roofs, launches=False)
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
    ceilings = [pick(roofs, training.device, "compute", name, threads=threads) for name in names]
    rates = [ceiling.rate.value for ceiling in ceilings if ceiling is not None]
    if seconds is None or not rates:
        return False
    return flops_of(training) / seconds > MOST_TENSOR * max(rates)


def ridge(compute: Roof, memory: Roof) -> float:
    """FLOPs per byte above which the arithmetic, not the memory, is the limit."""
    return compute.rate.value / memory.rate.value
