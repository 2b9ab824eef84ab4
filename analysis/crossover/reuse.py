"""A copy that is used more than once: the crossover when the operands stay on the GPU for k calls.

k calls on copied operands cost one call with its copies and k - 1 without; a call costs a k-th of that. Both were measured: the
only assumption is that the calls share the cost of the copies.
"""

from msgspec.structs import replace

from analysis.crossover import sign_changes
from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.forms import COPIES, LATENCY
from analysis.stats import Estimate

USES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)


def shared(resident: Estimate, copied: Estimate, uses: int) -> Estimate:
    """Mean seconds of a call when the first of `uses` calls copies the operands to the GPU and the others find them there.

    resident: seconds of a call without copies. copied: seconds of a call that copies.
    """
    return (resident * (uses - 1) + copied) / uses


def amortized(resident: Answer, copied: Answer, uses: int) -> Answer:
    """From which size the GPU wins when `uses` calls share one copy of the operands, from an answer for operands that are on the
    GPU already (`resident`) and one for calls that copy them (`copied`).

    Raises: ValueError if no size was measured both ways.
    """
    resident_points = {point.n: point for point in resident.points}
    points = []
    for point in copied.points:
        if point.n in resident_points:
            seconds = shared(resident_points[point.n].gpu.seconds, point.gpu.seconds, uses)
            points.append(CrossoverPoint(n=point.n, cpu=point.cpu, gpu=replace(point.gpu, seconds=seconds)))
    if not points:
        raise ValueError(f"no size was measured both with the data there and {copied.form.mode}")
    form = replace(copied.form, reuse=uses)
    return sign_changes.classify(copied.precision, form, points, family=copied.family)


def pairs(answers: "tuple[Answer, ...]", precision: str) -> list[tuple[Answer, Answer]]:
    """(answer without copies, answer with copies) of a precision, a pair for each way of copying, if both have a size in common.
    `amortized` takes such pairs."""
    answers = tuple(answer for answer in answers if answer.precision == precision and answer.points)
    resident = next((answer for answer in answers if answer.form == LATENCY), None)
    if resident is None:
        return []
    resident_sizes = {point.n for point in resident.points}
    matched = []
    for answer in answers:
        copied_sizes = {point.n for point in answer.points}
        if answer.form in COPIES and resident_sizes & copied_sizes:
            matched.append((resident, answer))
    return matched
