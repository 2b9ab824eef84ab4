"""The parts of a GPU call's time at the sizes that decide a crossover; they add up, with the remainder."""

import msgspec

from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import SQUARES, Family, RowsByPrecision
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
    """The fastest times of CPU and GPU at one size, and the parts of the GPU's time."""

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
    """The sizes that explain an answer: the measured ones just below and above its first crossing. Without a crossing it is the
    end of the range where the winner is least sure: the smallest size if the GPU wins everywhere, else the largest."""
    if answer.crossings:
        wanted = {answer.crossings[0].below, answer.crossings[0].above}
        return tuple(p for p in answer.points if p.n in wanted)
    if not answer.points:
        return ()
    return (answer.points[0] if answer.kind == "gpu-at-smallest" else answer.points[-1],)


def why(rows: RowsByPrecision, answer: Answer, everywhere: bool = False) -> tuple[Why, ...]:
    """The GPU's time split into parts at the sizes that explain an answer, or with `everywhere` at all its sizes, smallest first.

    `rows`: precision -> size -> the measurements that the answer was made from (families.rows_of).
    """
    points = answer.points if everywhere else deciding_points(answer)
    rows_by_size = rows.get(answer.precision, {})
    splits = []
    for point in points:
        gpu_rows = [m for m in rows_by_size.get(point.n, ()) if m.on_gpu]
        splits.append(_split(point, answer, gpu_rows))
    return tuple(splits)


def _split(point: CrossoverPoint, answer: Answer, gpu_rows: list[Measurement]) -> Why:
    """The GPU's seconds of a call at one size, in parts. `gpu_rows`: its measurements at that size, in every form of call.

    |-- OVERHEAD --|-- ARITHMETIC --|              a call on data on the GPU, by the host's clock
                   |-- ARITHMETIC --|              the same call by the GPU's clock
    |-- OVERHEAD --|-- ARITHMETIC --|-- COPIES --| a call that copies its operands and result, by the host's clock
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
    remainder = total - sum(seconds for seconds in parts.values() if seconds is not None)
    is_rounding_error = abs(remainder) <= 1e-9 * total
    parts[REMAINDER] = 0.0 if is_rounding_error else remainder
    return Why(n=point.n, cpu=point.cpu, gpu=point.gpu, parts=parts, family=answer.family)


def _least_seconds(rows: list[Measurement], clock: str) -> float | None:
    """Seconds of the least median on a clock (host-latency or device); None if no row has samples of it."""
    row_and_samples = quickest(rows, clock)
    if row_and_samples is None:
        return None
    _, samples = row_and_samples
    return quick_median(samples)
