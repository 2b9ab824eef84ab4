"""The sizes at which the winner changes: sign changes of log(t_cpu / t_gpu) between measured sizes, with their intervals."""

import itertools
import math
from collections.abc import Iterable

from analysis.crossover.answer import Answer, Crossing, CrossoverPoint
from analysis.crossover.families import SQUARES, Family
from analysis.crossover.forms import Form
from analysis.stats import covering


def classify(
    precision: str,
    form: Form,
    points: Iterable[CrossoverPoint],
    gaps: Iterable[str] = (),
    family: Family = SQUARES,
) -> Answer:
    """The answer for the times of both devices at growing sizes, of which there is at least one.

    `gaps`: why other sizes have no times, in words.
    """
    points = tuple(points)
    crossings = _crossings(points)
    return Answer(
        precision=precision,
        form=form,
        kind=_kind(points, crossings),
        low_n=points[0].n,
        high_n=points[-1].n,
        points=points,
        crossings=crossings,
        bands=_cant_tell_bands(points),
        gaps=tuple(gaps),
        family=family,
    )


def _kind(points: tuple[CrossoverPoint, ...], crossings: tuple[Crossing, ...]) -> str:
    """The kind of an answer, one of those that `Answer.kind` lists."""
    if len(crossings) == 1 and crossings[0].to == "gpu":
        return "gpu-from"
    if crossings:
        return "several"
    smallest, largest = points[0].sign, points[-1].sign
    if smallest == 0 or largest == 0:
        return "cant-tell"
    return "gpu-at-smallest" if smallest > 0 else "cpu-throughout"


def _cant_tell_bands(points: tuple[CrossoverPoint, ...]) -> tuple[tuple[int, int], ...]:
    """(first, last) size of each run of neighboring points at which the intervals of both times leave the winner open."""
    bands = []
    for sign, run in itertools.groupby(points, key=lambda point: point.sign):
        if sign == 0:
            sizes = [point.n for point in run]
            bands.append((sizes[0], sizes[-1]))
    return tuple(bands)


def _crossings(points: tuple[CrossoverPoint, ...]) -> tuple[Crossing, ...]:
    """Every change of the winner, smallest size first."""
    with_winner = [i for i, point in enumerate(points) if point.sign != 0]
    changes = []
    for below, above in itertools.pairwise(with_winner):
        if points[below].sign != points[above].sign:
            changes.append((below, above))
    crossings = []
    for number, (below, above) in enumerate(changes):
        start = changes[number - 1][1] if number > 0 else 0
        stop = changes[number + 1][0] if number + 1 < len(changes) else len(points) - 1
        log_n = _log_crossing(points[start : stop + 1], new_sign=points[above].sign)
        crossings.append(_crossing(points, below=below, above=above, log_n=log_n))
    return tuple(crossings)


def _crossing(points: tuple[CrossoverPoint, ...], *, below: int, above: int, log_n: float) -> Crossing:
    """A change of the winner with the interval of its size.

        CPU wins   CPU wins   can't tell   can't tell   GPU wins
                   below |------- interval of `at` -----| above

    The interval covers the can't-tell sizes. It begins where the ratio t_cpu / t_gpu may first be 1, by one end of the ratio's
    interval, and ends where it must have passed 1, by the other end; or at the end of the measured range.

    Args:
        below, above: indices of the last point with the old winner and of the first with the new one.
        log_n: logarithm of the size at which the medians cross.
    """
    new_sign = points[above].sign
    bracket = points[_past_bands(points, below, step=-1) : _past_bands(points, above, step=1) + 1]
    log_sizes = [math.log(point.n) for point in bracket]
    # Logarithms of both ends of the ratio, signed so that they rise through 0 where the winner changes.
    leading_end = []
    trailing_end = []
    for point in bracket:
        log_low = math.log(point.ratio.low) if point.ratio.low > 0 else -math.inf
        edges = (new_sign * log_low, new_sign * math.log(point.ratio.high))
        leading_end.append(max(edges))
        trailing_end.append(min(edges))
    log_first = _zeros(log_sizes, leading_end)[0] if bracket[0].sign else log_sizes[0]
    log_last = _zeros(log_sizes, trailing_end)[-1] if bracket[-1].sign else log_sizes[-1]
    return Crossing(
        at=covering(math.exp(log_n), math.exp(log_first), math.exp(log_last)),
        below=bracket[0].n,
        above=bracket[-1].n,
        to="gpu" if new_sign > 0 else "cpu",
        widest_gap=max(larger.n / smaller.n for smaller, larger in itertools.pairwise(bracket)),
    )


def _log_crossing(points: tuple[CrossoverPoint, ...], new_sign: int) -> float:
    """log n at which the winner by the medians changes; `new_sign`: 1 if the GPU wins from there, -1 if the CPU does. Intervals
    do not count.

        r(n) = new_sign log(t_cpu / t_gpu)      below 0 before the change, above 0 after it
        change point: the i with r_i < 0 <= r_(i+1) and the least sum r_0 + ... + r_i, should noise make several
        log n = linear between n_i and n_(i+1), where r passes 0

    Source: the change point of a cumulative sum, E. S. Page, Continuous Inspection Schemes (1954).
    """
    log_n = [math.log(point.n) for point in points]
    r = [new_sign * math.log(point.ratio.value) for point in points]
    change_points = []
    for i, sum_before in enumerate(itertools.accumulate(r)):
        following = min(i + 1, len(points) - 1)
        if r[i] < 0 <= r[following]:
            change_points.append((sum_before, i))
    _, i = min(change_points)
    return log_n[i] + (log_n[i + 1] - log_n[i]) * r[i] / (r[i] - r[i + 1])


def _past_bands(points: tuple[CrossoverPoint, ...], start: int, step: int) -> int:
    """The index of the point with a winner that one reaches from point `start`, walking down (step -1) or up (step 1) over
    neighboring points without a winner, and on over further such runs as long as the same device wins behind them. The end of
    the range stops the walk too."""
    index = start
    while 0 <= index + step < len(points) and points[index + step].sign == 0:
        beyond = index + step
        while 0 <= beyond + step < len(points) and points[beyond].sign == 0:
            beyond += step
        if points[beyond].sign == -points[index].sign:
            break
        index = beyond
    return index


def _zeros(x: list[float], y: list[float]) -> list[float]:
    """Every x at which the straight lines through neighboring points (x, y) rise through 0."""
    zeros = []
    for (x0, y0), (x1, y1) in itertools.pairwise(zip(x, y, strict=True)):
        if y0 < 0 <= y1:
            zeros.append(_zero(x0, y0, x1, y1=y1))
    return zeros


def _zero(x0: float, y0: float, x1: float, y1: float) -> float:
    """The x at which the line from (x0, y0) to (x1, y1) passes 0. An infinite y moves it to the other point."""
    if y0 == -math.inf:
        return x1
    if y1 == math.inf:
        return x0
    return x0 + (x1 - x0) * -y0 / (y1 - y0)
