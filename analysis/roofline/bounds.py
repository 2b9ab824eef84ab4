"""The share of its roof (the limit that a roofline sets) that each measurement reaches: of arithmetic, memory, link or launch."""

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
    """The least time that the measured limits of a device allow a problem."""

    #: Seconds a call.
    seconds: Estimate
    #: The roof that sets them.
    roof: Roof
    #: Which other roof is missing, or "".
    note: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """How near a measurement comes to the limit of the hardware, its roof."""

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
    """A footnote that explains the mark behind some of these shares; "" if none is marked."""
    is_any_marked = any(judged.is_marked for judged in rows)
    return f"{CACHED_MARK} {CACHED_WORDS}." if is_any_marked else ""


def measured_roof(roofs: Roofs, device: str, kind: str, name: str = "", threads: int | None = None) -> Roof | None:
    """The highest measured limit of a kind (compute, memory, cache, link, launch) and name on a device; None without one.

    With `threads` it is the limit for that number of CPU threads. If that number was not measured, it is the lowest of the limits
    that it cannot exceed: of more threads, or of fewer threads scaled up in proportion. So no share of a limit is flattered.
    """
    candidates = [
        roof
        for roof in roofs
        if roof.kind == kind and roof.device == device and roof.measured and name in ("", roof.name)
    ]
    if threads is None:
        return max(candidates, key=_rate, default=None)
    same_threads = [roof for roof in candidates if roof.threads == threads]
    if same_threads:
        return max(same_threads, key=_rate)
    more_threads = [roof for roof in candidates if roof.threads is None or roof.threads > threads]
    scaled_up = [_scaled(roof, threads) for roof in candidates if roof.threads and roof.threads < threads]
    return min([*more_threads, *scaled_up], key=_rate, default=None)


def _rate(roof: Roof) -> float:
    """The value of a limit, without its interval."""
    return roof.rate.value


def _scaled(roof: Roof, threads: int) -> Roof:
    """The limit for so many threads, if it grew in proportion to them from the number that it was measured with."""
    measured_threads = roof.threads or threads
    note = f"that of {count(measured_threads, 'thread')}, scaled"
    return msgspec.structs.replace(roof, rate=roof.rate * (threads / measured_threads), threads=threads, note=note)


def level_roof(roofs: Roofs, device: str, footprint_bytes: int, threads: int | None = None) -> Roof | None:
    """The measured bandwidth limit for arrays of so many bytes together that are in the caches if they fit: that of the smallest
    cache that holds them, else of the memory. None if the level that holds them was not measured.

    Where two levels may hold a part each, it is the faster one: a limit must not lie below what is possible.
    """
    cache_names = dict.fromkeys(
        roof.name for roof in roofs if roof.kind == "cache" and roof.device == device and roof.measured
    )
    caches = [measured_roof(roofs, device, "cache", name=name, threads=threads) for name in cache_names]
    large_enough = [roof for roof in caches if roof and roof.floor_bytes < footprint_bytes <= roof.holds_bytes]
    if large_enough:
        return min(large_enough, key=lambda roof: roof.holds_bytes)
    memory = measured_roof(roofs, device, "memory", threads=threads)
    return memory if memory and footprint_bytes > memory.floor_bytes else None


def attainable(roofs: Roofs, problem: Problem, settings: Settings, clock: str = "") -> Bound | None:
    """The least seconds that the measured limits allow a call, and the limit that sets them; None if the one that matters was not
    measured.

    A call takes at least its FLOPs over the arithmetic's rate, and its bytes over the bandwidth: of the memory if caches are
    cold, else of the smallest level that holds its arrays. If operands are copied in each call, it also takes at least their
    bytes over the link's bandwidth. A call that was timed on a GPU takes at least the shortest launch on that `clock`;
    with "" launches do not count.
    """
    device, threads = settings.device, settings.threads
    if problem.op == "transfer":
        return _copying(roofs, problem, device)
    flops, moved_bytes = problem.flops, problem.bytes_moved
    compute = None
    if flops and problem.math:
        compute = measured_roof(roofs, device, "compute", name=problem.math, threads=threads)
    main_memory = measured_roof(roofs, device, "memory", threads=threads) if moved_bytes else None
    memory = main_memory
    if moved_bytes and settings.cache != "cold":
        memory = level_roof(roofs, device, problem.footprint_bytes, threads)
    only_moves = problem.op == "stream" or (problem.op == "layer" and not flops)
    if (memory if only_moves else compute) is None:
        return None
    bounds = []
    if compute:
        bounds.append(Bound(seconds=flops / compute.rate, roof=compute))
    if memory:
        bounds.append(Bound(seconds=moved_bytes / memory.rate, roof=memory))
    if settings.mode != "resident":
        bounds += _operand_copies(roofs, problem, device)
    if is_gpu(device) and clock and problem.op != "layer":  # a layer's calls stand in one graph: none is waited for
        launch = measured_roof(roofs, device, "launch", name=QUEUED if clock == "device" else WAITED)
        if launch:
            bounds.append(Bound(seconds=1 / launch.rate, roof=launch))
    note = NO_CACHE_ROOF if main_memory and not memory else ""
    return msgspec.structs.replace(_longest(bounds), note=note)


def _longest(bounds: list[Bound]) -> Bound:
    """The bound with the most seconds, which decides."""
    return max(bounds, key=lambda bound: bound.seconds.value)


def _copying(roofs: Roofs, problem: Problem, device: str) -> Bound | None:
    """The least seconds of a copy: by the link's bandwidth between host and device, of the slower direction if it copies both
    ways at once; by the memory's bandwidth on the device.

    None if a kernel runs beside the copy, and for managed memory, whose pages may be on the device already.
    """
    if problem.compute or problem.host_memory == "managed":
        return None
    if problem.direction == "d2d":
        memory = level_roof(roofs, device, problem.footprint_bytes)
        return Bound(seconds=problem.bytes_moved / memory.rate, roof=memory) if memory else None
    directions = ("h2d", "d2h") if problem.direction == "both" else (problem.direction,)
    links = [measured_roof(roofs, device, "link", name=direction) for direction in directions]
    bounds = [Bound(seconds=problem.nbytes / link.rate, roof=link) for link in links if link]
    return _longest(bounds) if bounds else None


def _operand_copies(roofs: Roofs, problem: Problem, device: str) -> list[Bound]:
    """The least seconds of copying a call's operands to the GPU and then its result back, as a list of one bound under the name
    of the direction that takes longer; [] if the link was not measured in both directions."""
    h2d = measured_roof(roofs, device, "link", name="h2d")
    d2h = measured_roof(roofs, device, "link", name="d2h")
    if not (h2d and d2h and problem.result_bytes):
        return []
    copies_in = problem.operand_bytes / h2d.rate
    copy_out = problem.result_bytes / d2h.rate
    longer = h2d if copies_in.value >= copy_out.value else d2h
    return [Bound(seconds=copies_in + copy_out, roof=longer)]


def judge(measurement: Measurement, roofs: Roofs, seconds: "Estimate | None" = None) -> Judged:
    """The share of its limit that a measurement reaches. Its `flag` is ABOVE ("above-roof") if it is faster than the limit, which
    is an error of units, precision or counting.

    A call that is shorter than the shortest empty kernel is no such error, as there may be a shorter way into the driver; its
    `doubt` is NO_KERNEL. `seconds`: of a call, if they are known already.
    """
    problem = measurement.problem
    seconds = seconds or seconds_of(measurement)
    if seconds is None or problem.op == "training":
        return Judged()
    samples = clock_of(measurement)
    bound = attainable(roofs, problem, measurement.settings, samples.clock if samples else "")
    if bound is None:
        memory_is_known = problem.op == "stream" and measured_roof(roofs, measurement.device, "memory") is not None
        return Judged(note=NO_CACHE_ROOF if memory_is_known else "no roof measured")
    fraction = bound.seconds / seconds
    bound_without_launch = bound
    doubt = ""
    if bound.roof.kind == "launch":
        bound_without_launch = attainable(roofs, problem, measurement.settings) or bound
        doubt = NO_KERNEL if fraction.low > TOLERANCE else ""
    is_too_fast = (bound_without_launch.seconds / seconds).low > TOLERANCE
    if bound.roof.note == BEST_MATMUL and problem.op != "matmul":  # another operation may well be faster than a product
        is_too_fast = False
    is_error = is_too_fast or _beyond_sheet(measurement, seconds.high, roofs)
    return Judged(fraction=fraction, roof=bound.roof, flag=ABOVE if is_error else "", note=bound.note, doubt=doubt)


def _beyond_sheet(measurement: Measurement, seconds: float, roofs: Roofs) -> bool:
    """Whether a call of so many seconds computes faster than the peak on the device's data sheet. Where the measured limit is
    just the fastest product, no other check can fail."""
    flops = measurement.problem.flops
    peak = (measurement.device, "compute", measurement.problem.math)
    for roof in roofs:
        is_peak = not roof.measured and (roof.device, roof.kind, roof.name) == peak
        if is_peak and flops / seconds > TOLERANCE * roof.rate.value:
            return True
    return False


def quick_judge(measurement: Measurement, roofs: Roofs) -> Judged:
    """`judge` by the median alone, as the intervals of many measurements take long to compute. One that seems too fast is judged
    again with its interval, as a flag needs the whole interval above the limit."""
    seconds = quick_seconds(measurement)
    judged = judge(measurement, roofs, exact(seconds) if seconds else None)
    return judge(measurement, roofs) if judged.flag else judged


def may_be_lent(measurement: Measurement, judged: Judged, machine: Machine | None) -> bool:
    """Whether a measurement above its limit may be right after all, as a virtual CPU gets more or less of its host's cores from
    minute to minute."""
    if judged.fraction is None or not _is_lent(measurement, machine):
        return False
    return judged.fraction.value <= MOST_LENT


def _is_lent(measurement: Measurement, machine: Machine | None) -> bool:
    """Whether a row was measured on a virtual CPU, which gets a varying share of its host."""
    return machine is not None and machine.virtual and not measurement.on_gpu


def is_above_roof(measurement: Measurement, roofs: Roofs, machine: Machine | None) -> bool:
    """Whether a measurement is faster than a measured limit of its device in such a way that it must be an error of units,
    precision or counting."""
    if is_impossible(measurement, roofs, machine):
        return True
    judged = quick_judge(measurement, roofs)
    return bool(judged.flag) and not may_be_lent(measurement, judged, machine)


def is_impossible(measurement: Measurement, roofs: Roofs, machine: Machine | None) -> bool:
    """Whether a measurement is so much faster than the hardware's limit that nothing may be concluded from it.

    A measured limit may itself be too low: measured at a lower clock, while other programs ran, or with fewer threads. So a
    measurement is impossible only if it is faster than these reasons explain.
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
    """A measurement with the number of threads set to all cores, if it is one on a CPU that left the number to the library. A
    limit that was measured with fewer threads is then scaled up."""
    if measurement.on_gpu or measurement.threads is not None or machine is None:
        return measurement
    settings = msgspec.structs.replace(measurement.settings, threads=machine.cores)
    return msgspec.structs.replace(measurement, settings=settings)


def _step_is_impossible(training: Measurement, roofs: Roofs, machine: Machine | None) -> bool:
    """Whether a training step computes more FLOPs a second than MOST_TENSOR times the highest measured compute limit of its
    device, more than any matrix unit could add."""
    seconds = quick_seconds(training)
    threads = _with_all_threads(training, machine).threads
    names = {roof.name for roof in roofs if roof.kind == "compute" and roof.device == training.device}
    ceilings = [measured_roof(roofs, training.device, "compute", name=name, threads=threads) for name in names]
    rates = [ceiling.rate.value for ceiling in ceilings if ceiling is not None]
    if seconds is None or not rates:
        return False
    return flops_of(training) / seconds > MOST_TENSOR * max(rates)


def ridge(compute: Roof, memory: Roof) -> float:
    """FLOPs per byte at the ridge of a roofline: with more, arithmetic is the limit; with fewer, memory bandwidth is."""
    return compute.rate.value / memory.rate.value
