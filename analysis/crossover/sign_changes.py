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
    """The answer for points at growing sizes; at least one."""
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
    """The kind of the answer."""
    if len(crossings) == 1 and crossings[0].to == "gpu":
        return "gpu-from"
    if crossings:
        return "several"
    smallest, largest = points[0].sign, points[-1].sign
    if smallest == 0 or largest == 0:
        return "cant-tell"
    return "gpu-at-smallest" if smallest > 0 else "cpu-throughout"


def _cant_tell_bands(points: tuple[CrossoverPoint, ...]) -> tuple[tuple[int, int], ...]:
    """(first, last) size of each run of points without a winner."""
    bands = []
    for sign, run in itertools.groupby(points, key=lambda point: point.sign):
        if sign == 0:
            sizes = [point.n for point in run]
            bands.append((sizes[0], sizes[-1]))
    return tuple(bands)


def _crossings(points: tuple[CrossoverPoint, ...]) -> tuple[Crossing, ...]:
    """The changes of the winner, smallest size first."""
    with_winner = [i for i, point in enumerate(points) if point.sign != 0]
    changes = []
    for below, above in itertools.pairwise(with_winner):
        if points[below].sign != points[above].sign:
            changes.append((below, above))
    crossings = []
    for number, change in enumerate(changes):
        start = changes[number - 1][1] if number > 0 else 0
        stop = changes[number + 1][0] if number + 1 < len(changes) else len(points) - 1
        crossings.append(_crossing(points, change, between=points[start : stop + 1]))
    return tuple(crossings)


def _crossing(
    points: tuple[CrossoverPoint, ...], change: tuple[int, int], between: tuple[CrossoverPoint, ...]
) -> Crossing:
    """A change of the winner.

        CPU wins   CPU wins   can't tell   can't tell   GPU wins
                   below |------- interval of `at` -----| above

    The interval covers the can't-tell sizes: it reaches from where the first edge of the ratio's interval passes 1 to where
    the second does, or to the end of the measured range.

    change: indices of the two points with a winner around it. between: the points between the changes before and after it.
    """
    below, above = change
    to_gpu = points[above].sign
    log_at = _log_crossing(between, to_gpu)
    first = _past_bands(points, below, -1)
    last = _past_bands(points, above, 1)
    bracket = points[first : last + 1]
    log_n = [math.log(point.n) for point in bracket]
    earliest_edge = []
    latest_edge = []
    for point in bracket:
        log_low = math.log(point.ratio.low) if point.ratio.low > 0 else -math.inf
        edges = (to_gpu * log_low, to_gpu * math.log(point.ratio.high))
        earliest_edge.append(max(edges))
        latest_edge.append(min(edges))
    log_first = _zeros(log_n, earliest_edge)[0] if bracket[0].sign else log_n[0]
    log_last = _zeros(log_n, latest_edge)[-1] if bracket[-1].sign else log_n[-1]
    return Crossing(
        at=covering(math.exp(log_at), math.exp(log_first), math.exp(log_last)),
        below=bracket[0].n,
        above=bracket[-1].n,
        to="gpu" if to_gpu > 0 else "cpu",
        widest_gap=max(larger.n / smaller.n for smaller, larger in itertools.pairwise(bracket)),
    )


def _log_crossing(points: tuple[CrossoverPoint, ...], to_gpu: int) -> float:
    """log n at which the medians' winner changes once, to the side of sign `to_gpu`. Intervals do not count.

        r(n) = to_gpu log(t_cpu / t_gpu)        below 0 before the change, above 0 after it
        change point: the i with r_i < 0 <= r_(i+1) and the least sum r_0 + ... + r_i, should noise make several
        log n = linear between n_i and n_(i+1), where r passes 0

    Source: the change point of a cumulative sum, E. S. Page, Continuous Inspection Schemes (1954).
    """
    log_n = [math.log(point.n) for point in points]
    r = [to_gpu * math.log(point.ratio.value) for point in points]
    change_points = []
    for i, sum_before in enumerate(itertools.accumulate(r)):
        following = min(i + 1, len(points) - 1)
        if r[i] < 0 <= r[following]:
            change_points.append((sum_before, i))
    _, i = min(change_points)
    return log_n[i] + (log_n[i + 1] - log_n[i]) * r[i] / (r[i] - r[i + 1])


def _past_bands(points: tuple[CrossoverPoint, ...], start: int, step: int) -> int:
    """Walks from index `start` over can't-tell bands as long as the same side wins behind them: the index of the first point
    with a winner after the last band, or of the range's end."""
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
    """Every x at which the line through the points rises through 0."""
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
