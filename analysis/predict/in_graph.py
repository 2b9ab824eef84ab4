"""What an operation takes inside a framework's graph: rows of many in one graph say it as it is; rows of a call of its own are
more, by the call and by threads that sleep between calls and must be woken, and those of both kinds say by how much.
"""

import collections
import itertools
import math
import statistics
from typing import TYPE_CHECKING

from analysis.predict import fusion, profile_rows
from analysis.predict.profile_rows import HELD, LIBRARIES, OP_BY_OP, Rows
from analysis.stats import Estimate, middle
from kernels import registry
from kernels.problems import Stream

if TYPE_CHECKING:
    from workloads.records import Measurement

TOLD = 0.15  # a row counts from so much above the call around it: below, it is noise
_FEWEST_COUNTS = 3  # of operations in a formula, for a line through them
_READS = {"sgd": 0, "adam": 4}  # of variables, of those that update some: they put no result away
_NEAREST = 3  # pairs of rows, as long as the one in question, whose middle counts


def variant(m: "Measurement") -> str:
    return m.variant


def stands(m: "Measurement") -> bool:
    """Whether a row says as it is what an operation takes in a graph that is not compiled, whose weights change."""
    return m.label == f"tensorflow/{profile_rows.GRAPH}"


def whole_seconds(m: "Measurement", source: str) -> float | None:
    """Seconds of a row on the clock that counts for its source; None where it is of another one. Passes written here count
    as a library's: they are bound by memory, as any are."""
    backend, named = m.backend, m.variant
    if source == LIBRARIES:
        usual = backend in registry.LIBRARIES or (m.problem.op == "stream" and backend in registry.OWN)
        samples = m.on("device") or (m.on("host-latency") if m.settings.device == "cpu" else None)
        return middle(samples) if usual and samples else None
    if (backend, named) != ("tensorflow", source) or (source == HELD and m.problem.op != "conv"):
        return None
    samples = m.on(profile_rows.clock(m.settings.device))
    return middle(samples) if samples else None


def own_seconds(of: Rows, m: "Measurement", source: str) -> float | None:
    """Seconds of a product by itself: without the call around it where a framework made it; None where the row is of
    another source, or what is left of it cannot be told from its call."""
    if source == profile_rows.VARIANTS[OP_BY_OP] and stands(m):
        whole, dispatch = whole_seconds(m, profile_rows.GRAPH), dispatched(of, m.settings.device)
        return whole - dispatch if whole is not None and whole > dispatch * (1 + TOLD) else None
    whole = whole_seconds(m, source)
    if whole is None or source in (LIBRARIES, HELD):
        return whole
    call = around(of, source, m.settings.device, m.problem.op, whole)
    return whole - call if call is not None and whole > call * (1 + TOLD) else None


def around(of: Rows, source: str, device: str, op: str, whole: float) -> float | None:
    """Seconds that a call of `whole` seconds takes beyond what the same operation takes inside a graph: as of the calls nearest
    in length of which both were measured, for the more threads one wakes, the longer it waits; else the least call."""
    pairs = _pairs(of, device, op) if source == profile_rows.VARIANTS[OP_BY_OP] else []
    if not pairs:
        return call_around(of, source, device, op)
    nearest = sorted(pairs, key=lambda pair: abs(math.log(pair[0] / whole)))[:_NEAREST]
    return statistics.median(call - held for call, held in nearest)


def call_around(of: Rows, source: str, device: str, op: str) -> float | None:
    """Seconds of the least call around a framework's rows of an operation: of the launch rows, or of the shortest that was
    measured."""
    key = ("call", source, device, op)
    if key not in of.kept:
        execution = next(e for e, v in profile_rows.VARIANTS.items() if v == source)
        constant = of.constant(profile_rows.CALLS[execution], device, clock=profile_rows.clock(device))
        rows = (whole_seconds(m, source) for m in of.rows.get((op, device), ()))
        shortest = min((s for s in rows if s is not None), default=None)
        of.kept[key] = min((s for s in (constant and constant.value, shortest) if s), default=None)
    return of.kept[key]


def _pairs(of: Rows, device: str, op: str) -> list[tuple[float, float]]:
    """(seconds of a call of its own, seconds inside a graph) of the same operation, of those whose call is most of it. Where no
    convolutions were measured inside a graph, those with held filters stand for them, of which none is longer than
    another by more than its own filters: the middle of all."""
    key = ("pairs", device, op)
    if key not in of.kept:
        found: dict[str, dict] = {}
        for m in of.rows.get((op, device), ()):
            if m.backend == "tensorflow" and m.settings.cache == "warm" and (s := m.on("host-latency")):
                found.setdefault(variant(m), {})[m.problem] = middle(s)
        calls = found.get(profile_rows.VARIANTS[OP_BY_OP], {})
        pairs = [
            [(calls[p], s) for p, s in found.get(named, {}).items() if p in calls and s < calls[p] / 2]
            for named in (profile_rows.GRAPH, HELD)
        ]
        beyond = statistics.median(call - s for call, s in pairs[1]) if pairs[1] else 0.0
        of.kept[key] = pairs[0] or [(call, call - beyond) for call, _ in pairs[1]]
    return of.kept[key]


def operating(of: Rows, device: str) -> Estimate | None:
    """Seconds of a further operation in a graph that is not compiled: what passes of several operations take beyond those
    of one on arrays as small, inside a graph where such rows are; else what an operation on next to nothing takes."""
    key = ("operating", device)
    if key not in of.kept:
        slopes = (_operating(of, device, named) for named in (profile_rows.GRAPH, profile_rows.VARIANTS[OP_BY_OP]))
        found = next((slope for slope in slopes if slope), None)
        of.kept[key] = found or of.constant("tf-op-in-function", device, clock=profile_rows.clock(device))
    return of.kept[key]


def _operating(of: Rows, device: str, named: str) -> Estimate | None:
    small: dict[str, tuple[int, float]] = {}
    for m in of.rows.get(("stream", device), ()):
        if (seconds := whole_seconds(m, named)) is not None:
            at = (m.problem.nbytes, seconds)
            small[m.problem.operation] = min(small.get(m.problem.operation, at), at)
    left_out = (*Stream.OF_IMAGES, "dropout")  # drawing its chances is work, not dispatch
    points = [(_in_the_row(name, named), s) for name, (_, s) in small.items() if name not in left_out]
    if len({n for n, _ in points}) < _FEWEST_COUNTS:
        return None
    return _median_slope(points).at_least(0.0)


def _median_slope(points: list[tuple[int, float]]) -> Estimate:
    """The median of the slopes between all pairs of (x, y), with its 95 % interval.

    Source: P. K. Sen, Estimates of the Regression Coefficient Based on Kendall's Tau (1968), equation 2.6 with ties.
    """
    pairs = itertools.permutations(points, 2)
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0])

    def weight(count: int) -> int:
        return count * (count - 1) * (2 * count + 5)

    ties = sum(weight(n) for values in zip(*points, strict=True) for n in collections.Counter(values).values())
    wide = statistics.NormalDist().inv_cdf(0.975) * math.sqrt((weight(len(points)) - ties) / 18)
    high = min(round((len(slopes) + wide) / 2), len(slopes) - 1)
    low = max(round((len(slopes) - wide) / 2) - 1, 0)
    return Estimate(statistics.median(slopes), slopes[low], slopes[high])


def _in_the_row(operation: str, named: str) -> int:
    """Operations of the graph that a row's kernel comes to for each pass; inside a graph, its result is put into a variable."""
    count = fusion.FORMULAS.get(operation, 1) + _READS.get(operation, 0)
    return count + (named == profile_rows.GRAPH and operation not in _READS)


def dispatched(of: Rows, device: str, operation: str = "") -> float:
    """Seconds of a row of operations in one graph, for each of them, that are dispatch: they are counted as operations of the
    step."""
    each = operating(of, device)
    return _in_the_row(operation, profile_rows.GRAPH) * each.value if each else 0.0
