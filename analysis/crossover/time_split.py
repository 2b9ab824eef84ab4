"""The parts of a GPU call's time at the sizes that decide a crossover; they add up, with the remainder."""

import msgspec

from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import SQUARES, Family, Rows
from analysis.crossover.fastest_row import FastestRow
from analysis.stats import quick_median, quickest
from workloads.records import Measurement

#: Device clock of the resident kernel.
ARITHMETIC = "arithmetic on the device"
#: Host latency of the resident call, less the arithmetic.
OVERHEAD = "launch and Python"
#: The copying call less the resident one.
COPIES = "copies"
#: The rest, with a sign: the time of parts that were not measured is in it.
REMAINDER = "not explained"


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides at one size, and the GPU's seconds in parts."""

    #: The size of the family.
    n: int
    #: The fastest row on the CPU.
    cpu: FastestRow
    #: The fastest row on the GPU.
    gpu: FastestRow
    #: ARITHMETIC, OVERHEAD, COPIES and REMAINDER -> seconds; None: not measured. They add up to the GPU's seconds.
    parts: dict[str, float | None]
    #: The family of the size.
    family: Family = SQUARES

    @property
    def known(self) -> dict[str, float]:
        """The measured parts and the remainder, without parts that are None."""
        return {name: seconds for name, seconds in self.parts.items() if seconds is not None}


def deciding_points(answer: Answer) -> tuple[CrossoverPoint, ...]:
    """The points that explain an answer: both sides of the first crossing, else the end where the winner is least sure.

    That end is the smallest size when the GPU wins everywhere, the largest in all other cases.
    """
    if answer.crossings:
        wanted = {answer.crossings[0].below, answer.crossings[0].above}
        return tuple(p for p in answer.points if p.n in wanted)
    if not answer.points:
        return ()
    return (answer.points[0] if answer.kind == "gpu-at-smallest" else answer.points[-1],)


def why(rows: Rows, answer: Answer, everywhere: bool = False) -> tuple[Why, ...]:
    """The deciding points of an answer, or all of them `everywhere`, with the GPU's time in parts, smallest size first; empty
    without points. `rows`: those of its family, framework and caches (families.rows_of)."""
    points = answer.points if everywhere else deciding_points(answer)
    sizes = rows.get(answer.precision, {})
    splits = []
    for point in points:
        gpu_rows = [m for m in sizes.get(point.n, ()) if m.on_gpu]
        splits.append(_split(point, answer, gpu_rows))
    return tuple(splits)


def _split(point: CrossoverPoint, answer: Answer, gpu_rows: list[Measurement]) -> Why:
    """The GPU's seconds at a point, in parts.

    |-- OVERHEAD --|-- ARITHMETIC --|          resident call, host clock
                   |-- ARITHMETIC --|          device clock
    |-- OVERHEAD --|-- ARITHMETIC --|-- COPIES --|
    """
    resident_rows = [m for m in gpu_rows if m.mode == "resident"]
    same_kernel = [m for m in resident_rows if (m.kernel, m.device) == (point.gpu.kernel, point.gpu.device)]
    # A kernel that allocates its result has no device clock; the best preallocated one does the same arithmetic.
    arithmetic = _least_seconds(same_kernel, "device") or _least_seconds(resident_rows, "device")
    total = point.gpu.seconds.value
    copies = None
    resident: float | None = total
    if answer.form.mode != "resident":
        resident = _least_seconds(same_kernel, "host-latency")
        if resident is not None:
            copies = max(0.0, total - resident)
    overhead = None
    if arithmetic is not None and resident is not None:
        overhead = max(0.0, resident - arithmetic)
    parts = {ARITHMETIC: arithmetic, OVERHEAD: overhead, COPIES: copies}
    rest = total - sum(seconds for seconds in parts.values() if seconds is not None)
    is_rounding = abs(rest) <= 1e-9 * total
    parts[REMAINDER] = 0.0 if is_rounding else rest
    return Why(n=point.n, cpu=point.cpu, gpu=point.gpu, parts=parts, family=answer.family)


def _least_seconds(rows: list[Measurement], clock: str) -> float | None:
    """The least median on a clock; None if no row has a time on it."""
    row_and_samples = quickest(rows, clock)
    if row_and_samples is None:
        return None
    _, samples = row_and_samples
    return quick_median(samples)
