"""A copy that is used more than once: the crossover when the operands stay on the GPU for k calls.

k calls on copied operands cost one call with its copies and k - 1 without; a call costs a k-th of that. Both were measured: the
only assumption is that the calls share the cost of the copies.
"""

from msgspec.structs import replace

from analysis.crossover import crossover
from analysis.crossover.crossover import COPIES, LATENCY, Answer, Point
from analysis.stats import Estimate

USES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)


def shared(resident: Estimate, copied: Estimate, uses: int) -> Estimate:
    """Seconds of a call when `uses` calls share one copy."""
    return (resident * (uses - 1) + copied) / uses


def amortized(resident: Answer, copied: Answer, uses: int) -> Answer:
    """The crossover when each copy is used that often, at the sizes measured both resident and with copies.

    Raises: ValueError where no size has both.
    """
    calls = {p.n: p for p in resident.points}
    points = [
        Point(p.n, p.cpu, replace(p.gpu, seconds=shared(calls[p.n].gpu.seconds, p.gpu.seconds, uses)))
        for p in copied.points
        if p.n in calls
    ]
    if not points:
        raise ValueError(f"no size was measured both with the data there and {copied.form.mode}")
    form = replace(copied.form, reuse=uses)
    return crossover.classify(copied.precision, form, points, family=copied.family)


def pairs(answers: "tuple[Answer, ...]", precision: str) -> list[tuple[Answer, Answer]]:
    """(resident, copied) answers of a precision, a pair for each way of copying that has a size in common with the other."""
    own = [a for a in answers if a.precision == precision and a.points]
    resident = next((a for a in own if a.form == LATENCY), None)
    sizes = {p.n for p in resident.points} if resident else set()
    return [(resident, a) for a in own if resident and a.form in COPIES and any(p.n in sizes for p in a.points)]
