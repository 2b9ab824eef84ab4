"""Seconds of a step's operations, from a profile's rows: products, convolutions and passes by curves, each as inside a graph.

Rows timed inside a graph give it directly; rows of single calls also contain the call and waking threads, which is subtracted.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable

import msgspec

from analysis.predict import profile
from analysis.predict.curves import UNLIKE, Curve, MeasuredShape, curve, measured_pass
from analysis.predict.profile import HELD, LIBRARIES, OP_BY_OP, Profile, Read, once, stands
from analysis.predict.step_kernels.operation_counts import counts, unfused_traffic
from analysis.roofline import memory_levels
from analysis.stats import Estimate, exact, median, middle, within_factor
from kernels import registry
from kernels.problems import Conv, Matmul, Problem, Stream
from workloads.records import Measurement

_DEPTHWISE = 2.5  # times a copy of its bytes: TensorFlow's on two Zen 4 cores, 3 x 3 at 10 shapes, all directions, are 1.5 to 3.7
_BEYOND = 4  # times the last cache's size: arrays of so many bytes together leave nothing in it
_CALL = profile.VARIANTS[OP_BY_OP]
_UPDATES = ("sgd", "adam")
# operation without rows -> the one whose rows stand for it, as Keras differentiates both together
_ALIKE = {"batchnorm_grad": "batchnorm"}


@once
def product(of: Profile, problem: Matmul | Conv, device: str, execution: str) -> Read | None:
    """Seconds of a product or convolution inside that execution on the device, without the call. The first source with such
    rows gives it; its interval is cut to those of the other sources and of similar problems. None without rows."""
    own: Read | None = None
    others = []
    for alike in _alike(problem):
        for source in profile.of(device, execution, alike.op):
            for math_ in profile.maths(problem, device):
                if made := _kind_curve(of, source, device, alike.op, profile.kind(alike), math_):
                    seconds = made.seconds(profile.at(alike), alike.flops, alike.bytes_moved)
                    if own:
                        others.append(seconds * within_factor(1.0, UNLIKE))
                    else:
                        other = math_[1] != problem.math
                        instead = f"{problem.math} priced as {math_[1]}, of which there are rows" if other else ""
                        own = Read(seconds, profile.WORDS[source], instead)
                    break
        if own is None:
            return _depthwise(of, problem, device, execution) if isinstance(problem, Conv) else None
    assert own is not None
    surer = [seconds for seconds in others if seconds.noise < own.seconds.noise]
    seconds = functools.reduce(Estimate.within, surer, own.seconds)
    if isinstance(problem, Matmul) and seconds.high > UNLIKE * seconds.value:  # no row is near
        seconds = seconds.at_most(exact(_tiled_seconds(of, problem, device)))
    return msgspec.structs.replace(own, seconds=seconds)


def _tiled_seconds(source: Profile, problem: Matmul, device: str) -> float:
    """Seconds of the quickest measured product that covers a problem, repeated until it does: no library takes longer. Infinite
    without rows."""
    quickest = math.inf
    for tile, seconds in _tiles(source, device, problem.dtype, problem.math):
        tiles = math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n) * math.ceil(problem.k / tile.k)
        quickest = min(quickest, seconds * tiles)
    return quickest


@once
def _tiles(source: Profile, device: str, dtype: str, math_: str) -> list[tuple[Matmul, float]]:
    """The libraries' products of a type and arithmetic on a device, with their seconds."""
    tiles = []
    for row in source.rows.get(("matmul", device), ()):
        if (row.problem.dtype, row.problem.math) != (dtype, math_) or row.settings.cache != "warm":
            continue
        seconds = whole_seconds(row, LIBRARIES)
        if seconds is not None and row.problem.count == 1:
            tiles.append((row.problem, seconds))
    return tiles


def _depthwise(of: Profile, problem: Conv, device: str, execution: str) -> Read | None:
    """Seconds of a depthwise convolution by its bytes, as memory bounds it; None of any other."""
    if not 1 < problem.groups == problem.c_in:
        return None
    read = pass_seconds(of, Stream("copy", problem.bytes_moved, problem.dtype), device, execution)
    instead = "depthwise ones priced by their bytes, as no row is of one"
    return read and Read(within_factor(_DEPTHWISE * read.seconds.value, 2), read.source, instead)


def _alike(problem: Matmul | Conv) -> list[Matmul | Conv]:
    """The problem, then products with as many FLOPs: for a convolution the product of its patches and filters, for other
    layouts the plain one."""
    if isinstance(problem, Matmul):
        return [problem, *[msgspec.structs.replace(problem, layout="nn")] * (problem.layout != "nn")]
    n, groups = problem.n * problem.p * problem.q, problem.groups
    k = problem.c_in // groups * problem.r * problem.s
    return [problem, Matmul(n * groups, problem.c_out // groups, k, problem.dtype, problem.math)]


@once
def _kind_curve(of: Profile, source: str, device: str, op: str, kind: str, math_: tuple[str, str]) -> Curve | None:
    alike = [
        m
        for m in of.rows.get((op, device), ())
        if (m.problem.dtype, m.problem.math) == math_ and profile.kind(m.problem) == kind and m.settings.cache == "warm"
    ]
    held = {m.problem for m in alike if stands(m)}  # their single calls are ignored
    rows = [(m.problem, row_seconds(of, m, source)) for m in alike if m.problem not in held or stands(m)]
    points = [
        MeasuredShape(coordinates=profile.at(p), seconds=seconds, flops=p.flops, nbytes=p.bytes_moved)
        for p, seconds in rows
        if seconds is not None
    ]
    works = (1.0, 2.0, 1.0, 1.0, 1.0, 0.0) if op == "conv" else (1.0,)  # of profile.at's features
    return curve(points, source == LIBRARIES, works)


@once
def pass_seconds(of: Profile, problem: Stream, device: str, execution: str) -> Read | None:
    """Seconds of an element-wise pass by the curve of its operation over bytes, else of a similar one, else of any pass; None
    without rows."""
    for source in profile.of(device, execution, problem.op):
        for operation in (problem.operation, _ALIKE.get(problem.operation, "add"), "add", "scale", "triad", "copy"):
            if made := _curve(of, source, device, operation):
                # where no row is of this formula as TensorFlow runs it, it makes more passes than that kernel
                had = 1.0 if source == LIBRARIES else unfused_traffic(operation)
                times = unfused_traffic(problem.operation) / had if execution == OP_BY_OP else 1.0
                seconds = made.seconds_of_bytes(problem.bytes_moved)
                own = device != "cpu" or source != LIBRARIES
                command = profile.command(problem, device)
                instead = "" if own else f"passes priced as libraries make them; TensorFlow's: {command}"
                return Read(seconds * times, profile.WORDS[source], instead)
    return None


def bandwidth(of: Profile, device: str, nbytes: float) -> float | None:
    """Bytes a second of passes over arrays of so many bytes together, if these are larger than the last cache; None if not, or
    if no such pass was measured. Rows a few times as large as the cache come first: smaller ones still have a part in it.

    Source: J. McCalpin, STREAM, run rules: each array at least four times the last cache.
    """
    caches = memory_levels.levels(of.machine, device)
    if not caches or nbytes <= (last := caches[-1][1]):
        return None
    far = best_rate(of, device, "stream", lambda p: p.nbytes >= _BEYOND * last)
    return far or best_rate(of, device, "stream", lambda p: p.nbytes > last)


def best_rate(of: Profile, device: str, op: str, is_counted: Callable[[Problem], bool]) -> float | None:
    """The highest rate of the counted problems: FLOPs a second of products, bytes a second of passes. It is
    taken on a GPU's own clock where there is one, else from waited calls; None without rows."""
    rows = [m for m in of.rows.get((op, device), ()) if is_counted(m.problem)]
    timed = ((m.problem, m.on("device") or m.on("host-latency")) for m in rows)
    return max((getattr(p, p.rated) / middle(samples) for p, samples in timed if samples), default=None)


@once
def _curve(of: Profile, source: str, device: str, operation: str) -> Curve | None:
    return curve(_points(of, source, device, operation), source == LIBRARIES)


def _points(of: Profile, source: str, device: str, operation: str) -> Iterable[MeasuredShape]:
    """The points of an operation's passes. From a framework's rows the time of the smallest is subtracted: call and dispatch
    are counted as operations, and the rest grows with the bytes. If some passes were measured inside a graph, these count as
    they are, and larger calls less the call's overhead. An update counts as if it ran alone: a step ends with one, though those
    of several variables share the cores."""
    taken = _taken(of, source, device, operation)
    inside_one = source == _CALL and device == "cpu" and operation not in _UPDATES
    held = _taken(of, profile.GRAPH, device, operation) if inside_one else {}
    if len(held) > 1:
        yield from _in_a_graph(held, taken)
        return
    if source == LIBRARIES or len(taken) < 2:
        yield from itertools.starmap(measured_pass, taken.items())
        return
    least, base = min(taken.items())
    for nbytes, seconds in taken.items():
        if seconds > base:
            yield measured_pass(nbytes, (seconds - base) * nbytes / (nbytes - least))


def _taken(of: Profile, source: str, device: str, operation: str) -> dict[int, float]:
    """Bytes moved -> seconds of the fastest warm row."""
    taken: dict[int, float] = {}
    for m in of.rows.get(("stream", device), ()):
        this = m.problem.operation == operation and m.settings.cache == "warm"
        if this and (seconds := whole_seconds(m, source)) is not None:
            nbytes = m.problem.bytes_moved
            taken[nbytes] = min(taken.get(nbytes, seconds), seconds)
    return taken


def _in_a_graph(held: dict[int, float], calls: dict[int, float]) -> Iterable[MeasuredShape]:
    """The points of passes inside a graph as they are, then those of larger single calls less the overhead of a call."""
    yield from itertools.starmap(measured_pass, held.items())
    most, larger = max(held), {n: s for n, s in calls.items() if n > max(held)}
    called = curve(itertools.starmap(measured_pass, calls.items())) if larger else None
    if called is None:
        return
    woken = max(0.0, called.seconds_of_bytes(most).value - held[most])
    for nbytes, seconds in larger.items():
        if seconds > woken:
            yield measured_pass(nbytes, seconds - woken)


def whole_seconds(m: "Measurement", source: str) -> float | None:
    """Seconds of a row on the clock of its source; None if the row is of another source. Passes of this project count as a
    library's, as all are bound by memory."""
    backend, named = m.backend, m.variant
    if source == LIBRARIES:
        usual = backend in registry.LIBRARIES or (m.problem.op == "stream" and backend in registry.WRITTEN_HERE)
        samples = m.on("device") or (m.on("host-latency") if not m.on_gpu else None)
        return middle(samples) if usual and samples else None
    if (backend, named) != ("tensorflow", source) or (source == HELD and m.problem.op != "conv"):
        return None
    samples = m.on(profile.clock(m.device))
    return middle(samples) if samples else None


def row_seconds(of: Profile, m: "Measurement", source: str) -> float | None:
    """Seconds of a product without the call around it. None if the row is of another source, or if the call's overhead is
    unknown or no less than the whole."""
    if source == _CALL and stands(m):
        return whole_seconds(m, profile.GRAPH)
    whole = whole_seconds(m, source)
    if whole is None or source in (LIBRARIES, HELD):
        return whole
    call = around(of, source, m.device, m.problem.op, whole)
    return whole - call if call is not None and whole > call else None


def around(of: Profile, source: str, device: str, op: str, whole: float) -> float | None:
    """Overhead in seconds of a single call of `whole` seconds over the same operation inside a graph. It is that of the call
    nearest in length that has both rows, as waking more threads takes longer; else that of a call with no work."""
    if pairs := _pairs(of, device, op) if source == _CALL else []:
        call, inside = min(pairs, key=lambda pair: abs(math.log(pair[0] / whole)))
        return call - inside
    constant = of.constant(profile.CALLS[source], device, clock=profile.clock(device))
    return constant.value if constant else None


@once
def _pairs(of: Profile, device: str, op: str) -> list[tuple[float, float]]:
    """(seconds of a single call, seconds inside a graph) of the same operation, where most of the call is overhead. Without
    convolutions inside a graph, rows with held filters stand for them, and all calls get the median overhead of these: no such
    row is longer than another by more than its own filters."""
    found: dict[str, dict] = {}
    for m in of.rows.get((op, device), ()):
        if m.backend == "tensorflow" and m.settings.cache == "warm" and (s := m.on("host-latency")):
            found.setdefault(m.variant, {})[m.problem] = middle(s)
    calls = found.get(_CALL, {})
    inside, held = (
        [(calls[p], s) for p, s in found.get(named, {}).items() if p in calls and s < calls[p] / 2]
        for named in (profile.GRAPH, HELD)
    )
    if inside or not held:
        return inside
    beyond = statistics.median(call - s for call, s in held)
    return [(call, call - beyond) for call, _ in held]


@once
def operating(of: Profile, device: str) -> Estimate | None:
    """Overhead in seconds of one more operation in a graph that is not compiled: the median slope over all pairs of formulas on
    small arrays (Theil and Sen's estimator). With fewer than three operation counts: the constant tf-op-in-function."""
    left_out = (*Stream.IMAGE_OPERATIONS, "dropout")  # drawing its chances is work, not dispatch
    points = [
        (counts(name).formula + 4 * (name == "adam"), min(taken.items())[1])  # which reads as many variables
        for name in {*Stream.WEIGHTS}.difference(left_out)
        if (taken := _taken(of, _CALL, device, name))
    ]
    if len({n for n, _ in points}) < 3:  # too few for a line
        return of.constant("tf-op-in-function", device, clock=profile.clock(device))
    return median([(t - s) / (n - m) for m, s in points for n, t in points if n > m]).at_least(0.0)
