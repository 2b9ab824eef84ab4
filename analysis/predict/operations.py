"""Seconds of element-wise passes and of the operations of a graph, from a profile's stream rows."""

import itertools
import math
from collections.abc import Iterable

from analysis.predict import fusion, in_graph, profile_rows
from analysis.predict.curves import Curve, Point, curve
from analysis.predict.profile_rows import LIBRARIES, OP_BY_OP, Rows
from analysis.roofline import memory_levels
from analysis.stats import Estimate, middle
from kernels.problems import Stream

_BEYOND = 4  # times the last cache: arrays together from which on it holds nothing of them
_CALL = profile_rows.VARIANTS[OP_BY_OP]
_UPDATES = ("sgd", "adam")
# whose rows stand for what Keras differentiates together with its forward pass
_ALIKE = {"batchnorm_grad": "batchnorm"}


def passing(of: Rows, problem: Stream, device: str, execution: str) -> tuple[Estimate, str, str] | None:
    """(seconds of an element-wise pass by its operation's curve over bytes, else by that of one alike, else of any pass; whose
    rows they are; what stands for what, in words); None without rows."""
    for source in itertools.chain.from_iterable(profile_rows.of(device, execution, problem.op)):
        for operation in (problem.operation, _ALIKE.get(problem.operation, "add"), "add", "scale", "triad", "copy"):
            if made := _curve(of, source, device, operation):
                # where no row is of this formula as TensorFlow runs it, it makes more passes than that kernel
                had = 1.0 if source == LIBRARIES else fusion.passes(operation)
                times = fusion.passes(problem.operation) / had if execution == OP_BY_OP else 1.0
                seconds = made.seconds((math.log(problem.bytes_moved),), 0.0, problem.bytes_moved)
                own = device != "cpu" or source != LIBRARIES
                command = profile_rows.command(problem, device)
                instead = "" if own else f"passes priced as libraries make them; TensorFlow's: {command}"
                return seconds * times, profile_rows.WORDS[source], instead
    return None


def together(of: Rows, problem: Stream, device: str) -> float | None:
    """Seconds of a variable's update where those of several variables run at once and share the cores; None without such
    rows."""
    held = _curve(of, profile_rows.GRAPH, device, problem.operation) if problem.operation in _UPDATES else None
    return held.seconds((math.log(problem.bytes_moved),), 0.0, problem.bytes_moved).value if held else None


def bandwidth(of: Rows, device: str, nbytes: float) -> float | None:
    """Bytes a second of passes over arrays of so many bytes together, where these are larger than the last cache; None where
    they are not, or no pass was measured on such arrays. Of those a few times as large as the cache, if there are some: of
    smaller ones it still holds a part.

    Source: J. McCalpin, STREAM, run rules: each array at least four times the last cache.
    """
    caches = memory_levels.levels(of.machine, device) if of.machine else ()
    if not caches or nbytes <= caches[-1][1]:
        return None
    rates: dict[bool, list[float]] = {}
    for m in of.rows.get(("stream", device), ()):
        if m.problem.nbytes > caches[-1][1] and (samples := m.on("device") or m.on("host-latency")):
            far = m.problem.nbytes >= _BEYOND * caches[-1][1]
            rates.setdefault(far, []).append(m.problem.bytes_moved / middle(samples))
    return max(rates.get(True) or rates.get(False) or [], default=None)


def _curve(of: Rows, source: str, device: str, operation: str) -> Curve | None:
    key = ("passes", source, device, operation)
    if key not in of.kept:
        of.kept[key] = curve(_points(of, source, device, operation), source == LIBRARIES)
    return of.kept[key]


def _points(of: Rows, source: str, device: str, operation: str) -> Iterable[Point]:
    """The passes of an operation. Of a framework's rows the smallest one's call and dispatch are taken off, for these are
    counted as operations: what is left grows with the bytes alone. Where some were measured inside a graph, these count, less
    their dispatch, and of calls the larger ones, less what a call took more than the largest of these. An update is as long as
    one by itself, though those of several variables share the cores: a step ends with one."""
    if operation == "maxpool_grad" and source in (_CALL, profile_rows.GRAPH) and (behind := list(_behind(of, device))):
        yield from behind
        return
    taken = _taken(of, source, device, operation)
    inside_one = source == profile_rows.GRAPH or (source == _CALL and device == "cpu" and operation not in _UPDATES)
    held = _taken(of, profile_rows.GRAPH, device, operation) if inside_one else {}
    if len(held) > 1:
        yield from _in_a_graph(of, device, operation, held, taken if source == _CALL else {})
        return
    if source == LIBRARIES or len(taken) < 2:
        yield from (Point((math.log(n),), s, 0.0, n) for n, s in taken.items())
        return
    (least, base), *more = sorted(taken.items())
    for nbytes, seconds in more:
        if seconds > base * (1 + in_graph.TOLD):
            yield Point((math.log(nbytes),), (seconds - base) * nbytes / (nbytes - least), 0.0, nbytes)


def _behind(of: Rows, device: str) -> Iterable[Point]:
    """The gradients of pools that stand behind these, less the pools. A row of a gradient by itself is no measure of one in a
    step: it searches the images for the maxima that oneDNN's pool has kept there.

    Source: TensorFlow's mkl_layout_pass.cc, MaxPoolGradRewrite.
    """
    rows = [m for m in of.rows.get(("stream", device), ()) if m.kernel == profile_rows.POOLED and m.on("host-latency")]
    pools = _curve(of, profile_rows.GRAPH, device, "maxpool") if rows else None
    if pools is None:
        return
    each = in_graph.operating(of, device)
    dispatch = in_graph.dispatched(of, device, "maxpool_grad") + (each.value if each else 0.0)
    share = sum(Stream.WEIGHTS["maxpool"][:2]) / sum(Stream.WEIGHTS["maxpool_grad"][:2])
    for m in rows:
        nbytes, whole = m.problem.bytes_moved, middle(m.on("host-latency"))
        pool = pools.seconds((math.log(share * nbytes),), 0.0, share * nbytes).value
        if whole > (pool + dispatch) * (1 + in_graph.TOLD):
            yield Point((math.log(nbytes),), whole - pool - dispatch, 0.0, nbytes)


def _taken(of: Rows, source: str, device: str, operation: str) -> dict[int, float]:
    """Bytes moved -> the least seconds of warm rows."""
    taken: dict[int, float] = {}
    for m in of.rows.get(("stream", device), ()):
        this = m.problem.operation == operation and m.settings.cache == "warm"
        if this and (seconds := in_graph.whole_seconds(m, source)) is not None:
            nbytes = m.problem.bytes_moved
            taken[nbytes] = min(taken.get(nbytes, seconds), seconds)
    return taken


def _in_a_graph(
    of: Rows, device: str, operation: str, held: dict[int, float], calls: dict[int, float]
) -> Iterable[Point]:
    dispatch = in_graph.dispatched(of, device, operation)
    for nbytes, seconds in held.items():
        if seconds > dispatch * (1 + in_graph.TOLD):
            yield Point((math.log(nbytes),), seconds - dispatch, 0.0, nbytes)
    most, larger = max(held), {n: s for n, s in calls.items() if n > max(held)}
    if not larger:
        return
    called = curve(Point((math.log(n),), s, 0.0, n) for n, s in calls.items())
    if called is None:
        return
    woken = max(0.0, called.seconds((math.log(most),), 0.0, most).value - held[most]) + dispatch
    for nbytes, seconds in larger.items():
        if seconds > woken * (1 + in_graph.TOLD):
            yield Point((math.log(nbytes),), seconds - woken, 0.0, nbytes)
