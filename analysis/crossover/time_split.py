"""The parts of a GPU call's time at the sizes that decide a crossover; they add up, with the remainder."""

import msgspec

from analysis.crossover.crossover import Answer, Point, Side
from analysis.crossover.families import SQUARES, Family, Rows
from analysis.stats import middle, quickest

ARITHMETIC, OVERHEAD, COPIES, REMAINDER = "arithmetic on the device", "launch and Python", "copies", "not explained"


class Why(msgspec.Struct, frozen=True):
    """Both sides at size n of the family, and the GPU's seconds in parts, name -> seconds, that add up to its total.

    ARITHMETIC: the device clock of the resident kernel. OVERHEAD: resident host latency less that. COPIES: the copying call
    less the resident one. REMAINDER: the rest (signed); the time of a part that was not measured (None) is in it.
    """

    n: int
    cpu: Side
    gpu: Side
    parts: dict[str, float | None]
    family: Family = SQUARES

    @property
    def known(self) -> dict[str, float]:
        """The measured parts and the remainder, without parts that are None."""
        return {name: seconds for name, seconds in self.parts.items() if seconds is not None}


def deciding_points(answer: Answer) -> tuple[Point, ...]:
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
    points, sizes = answer.points if everywhere else deciding_points(answer), rows.get(answer.precision, {})
    return tuple(_split(p, answer, [m for m in sizes.get(p.n, ()) if m.on_gpu]) for p in points)


def _split(point: Point, answer: Answer, gpu_rows) -> Why:
    resident_rows = [m for m in gpu_rows if m.mode == "resident"]
    same = [m for m in resident_rows if (m.kernel, m.device) == (point.gpu.kernel, point.gpu.device)]
    # A kernel that allocates its result has no device clock; the best preallocated one does the same arithmetic.
    arithmetic = _least(same, "device") or _least(resident_rows, "device")
    form, total = answer.form, point.gpu.seconds.value
    resident = total if form.mode == "resident" else _least(same, "host-latency")
    copies = None if form.mode == "resident" or resident is None else max(0.0, total - resident)
    overhead = None if arithmetic is None or resident is None else max(0.0, resident - arithmetic)
    parts = {ARITHMETIC: arithmetic, OVERHEAD: overhead, COPIES: copies}
    rest = total - sum(s for s in parts.values() if s is not None)
    parts[REMAINDER] = rest if abs(rest) > 1e-9 * total else 0.0  # what rounding leaves is none
    return Why(point.n, point.cpu, point.gpu, parts, answer.family)


def _least(rows, clock: str) -> float | None:
    found = quickest(rows, clock)
    return middle(found[1]) if found else None
