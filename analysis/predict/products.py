"""Seconds of products and convolutions inside a step, from a profile's rows by curves through them.

Rows timed inside a graph give them directly; rows of single calls also contain the call and waking threads, which is subtracted.
"""

import math
import statistics

import msgspec

from analysis.predict.curves import UNLIKE, Curve, MeasuredShape, curve
from analysis.predict.passes import pass_seconds
from analysis.predict.profile import (
    CALLS,
    CONSTANT_FILTERS,
    GRAPH,
    LIBRARIES,
    OP_BY_OP,
    VARIANTS,
    WORDS,
    Profile,
    Read,
    arithmetics,
    clock,
    coordinates,
    kind,
    once,
    row_sources,
)
from analysis.predict.row_seconds import is_in_graph, whole_seconds
from analysis.stats import exact, quick_median, within_factor
from kernels.problems import Conv, Matmul, Stream
from workloads.records import Measurement

#: Seconds of a depthwise convolution over those of a copy of its bytes: TensorFlow's on two Zen 4 cores, 3 x 3 at 10 shapes, all
#: directions, are 1.5 to 3.7.
_DEPTHWISE = 2.5
_CALL = VARIANTS[OP_BY_OP]
#: The power of each coordinate that a convolution's work grows with: images, side, channels, filters, window, stride.
_CONVOLUTION_POWERS = (1.0, 2.0, 1.0, 1.0, 1.0, 0.0)


class RowKind(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of products that share a curve."""

    #: matmul or conv.
    op: str
    device: str
    #: What timed them: a variant of TensorFlow's, or LIBRARIES.
    source: str
    #: Layout of a product, direction of a convolution.
    kind: str
    #: (type, arithmetic).
    arithmetic: tuple[str, str]


@once
def product(profile: Profile, problem: Matmul | Conv, device: str, execution: str) -> Read | None:
    """Seconds of a product or convolution inside that execution on the device, without the call. The first source with such
    rows gives it; its interval is cut to those of the other sources and of a similar product. None without rows."""
    readings = _readings(profile, problem, device, execution)
    if not readings:
        return _depthwise(profile, problem, device, execution) if isinstance(problem, Conv) else None
    best, *others = readings
    similar = similar_product(problem)
    if similar is not None:
        others += _readings(profile, similar, device, execution)
    seconds = best.seconds
    for other in others:
        bounds = other.seconds * within_factor(1.0, UNLIKE)
        if bounds.noise < best.seconds.noise:
            seconds = seconds.within(bounds)
    no_row_is_near = seconds.high > UNLIKE * seconds.value
    if isinstance(problem, Matmul) and no_row_is_near:
        seconds = seconds.at_most(exact(_tiled_seconds(profile, problem, device)))
    return msgspec.structs.replace(best, seconds=seconds)


def similar_product(problem: Matmul | Conv) -> Matmul | None:
    """A product with as many FLOPs: of a convolution that of its patches and filters, of another layout the plain one; None of a
    plain product."""
    if isinstance(problem, Matmul):
        return msgspec.structs.replace(problem, layout="nn") if problem.layout != "nn" else None
    patches = problem.n * problem.p * problem.q
    return Matmul(
        m=patches * problem.groups,
        n=problem.c_out // problem.groups,
        k=problem.c_in // problem.groups * problem.r * problem.s,
        dtype=problem.dtype,
        math=problem.math,
    )


def _readings(profile: Profile, problem: Matmul | Conv, device: str, execution: str) -> list[Read]:
    """The seconds of a product by each source with rows of its kind, the preferred source first."""
    readings = []
    for source in row_sources(device, execution, problem.op):
        reading = _reading(profile, problem, device, source)
        if reading is not None:
            readings.append(reading)
    return readings


def _reading(profile: Profile, problem: Matmul | Conv, device: str, source: str) -> Read | None:
    """The seconds of a product by a source's rows: those of its arithmetic, else of the first that may replace it."""
    for arithmetic in arithmetics(problem, device):
        rows = RowKind(op=problem.op, device=device, source=source, kind=kind(problem), arithmetic=arithmetic)
        through_rows = _curve(profile, rows)
        if through_rows is None:
            continue
        instead = ""
        if arithmetic[1] != problem.math:
            instead = f"{problem.math} priced as {arithmetic[1]}, of which there are rows"
        seconds = through_rows.seconds(coordinates(problem), problem.flops, problem.bytes_moved)
        return Read(seconds=seconds, source=WORDS[source], instead=instead)
    return None


def _depthwise(profile: Profile, problem: Conv, device: str, execution: str) -> Read | None:
    """Seconds of a depthwise convolution by its bytes, as memory bounds it; None of any other."""
    if not 1 < problem.groups == problem.c_in:
        return None
    copied = pass_seconds(profile, Stream("copy", problem.bytes_moved, problem.dtype), device, execution)
    if copied is None:
        return None
    return Read(
        seconds=within_factor(_DEPTHWISE * copied.seconds.value, 2),
        source=copied.source,
        instead="depthwise ones priced by their bytes, as no row is of one",
    )


def _tiled_seconds(profile: Profile, problem: Matmul, device: str) -> float:
    """Seconds of the quickest measured product that covers a problem, repeated until it does: no library takes longer. Infinite
    without rows."""
    quickest = math.inf
    for tile, seconds in _tiles(profile, device, problem.dtype, problem.math):
        tiles = math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n) * math.ceil(problem.k / tile.k)
        quickest = min(quickest, seconds * tiles)
    return quickest


@once
def _tiles(profile: Profile, device: str, dtype: str, arithmetic: str) -> list[tuple[Matmul, float]]:
    """The libraries' products of a type and arithmetic on a device, with their seconds."""
    tiles = []
    for row in profile.rows.get(("matmul", device), ()):
        if (row.problem.dtype, row.problem.math) != (dtype, arithmetic) or row.settings.cache != "warm":
            continue
        seconds = whole_seconds(row, LIBRARIES)
        if seconds is not None and row.problem.count == 1:
            tiles.append((row.problem, seconds))
    return tiles


@once
def _curve(profile: Profile, rows: RowKind) -> Curve | None:
    """The curve through rows of a kind; None without any. Of a problem timed inside a graph the single calls are ignored."""
    alike = []
    in_graph = set()
    for row in profile.rows.get((rows.op, rows.device), ()):
        arithmetic = (row.problem.dtype, row.problem.math)
        if arithmetic == rows.arithmetic and kind(row.problem) == rows.kind and row.settings.cache == "warm":
            alike.append(row)
            if is_in_graph(row):
                in_graph.add(row.problem)
    shapes = []
    for row in alike:
        if row.problem in in_graph and not is_in_graph(row):
            continue
        seconds = _seconds_without_call(profile, row, rows.source)
        if seconds is not None:
            shapes.append(
                MeasuredShape(
                    coordinates=coordinates(row.problem),
                    seconds=seconds,
                    flops=row.problem.flops,
                    nbytes=row.problem.bytes_moved,
                )
            )
    work_powers = _CONVOLUTION_POWERS if rows.op == "conv" else (1.0,)
    return curve(shapes, has_constant=rows.source == LIBRARIES, work_powers=work_powers)


def _seconds_without_call(profile: Profile, row: Measurement, source: str) -> float | None:
    """Seconds of a product without the call around it. None if the row is of another source, or if the call's overhead is
    unknown or no less than the whole."""
    if source == _CALL and is_in_graph(row):
        return whole_seconds(row, GRAPH)
    whole = whole_seconds(row, source)
    if whole is None or source in (LIBRARIES, CONSTANT_FILTERS):
        return whole
    overhead = _call_overhead(profile, row, source, whole)
    if overhead is None or overhead >= whole:
        return None
    return whole - overhead


def _call_overhead(profile: Profile, row: Measurement, source: str, whole: float) -> float | None:
    """Overhead in seconds of a single call of `whole` seconds over the same operation inside a graph. It is that of the call
    nearest in length that has both rows, as waking more threads takes longer; else that of a call with no work."""
    pairs = _calls_and_graphs(profile, row.device, row.problem.op) if source == _CALL else []
    if pairs:
        call, inside = min(pairs, key=lambda pair: abs(math.log(pair[0] / whole)))
        return call - inside
    constant = profile.constant(CALLS[source], row.device, clock=clock(row.device))
    return constant.value if constant else None


@once
def _calls_and_graphs(profile: Profile, device: str, op: str) -> list[tuple[float, float]]:
    """(seconds of a single call, seconds inside a graph) of the same operation, where most of the call is overhead. Without
    convolutions inside a graph, rows with constant filters stand for them, and all calls get the median overhead of these: no
    such row is longer than another by more than its own filters."""
    seconds: dict[str, dict] = {_CALL: {}, GRAPH: {}, CONSTANT_FILTERS: {}}
    for row in profile.rows.get((op, device), ()):
        samples = row.on("host-latency")
        if row.backend == "tensorflow" and row.variant in seconds and row.settings.cache == "warm" and samples:
            seconds[row.variant][row.problem] = quick_median(samples)
    in_graph = _mostly_overhead(seconds[_CALL], seconds[GRAPH])
    constant_filters = _mostly_overhead(seconds[_CALL], seconds[CONSTANT_FILTERS])
    if in_graph or not constant_filters:
        return in_graph
    overhead = statistics.median(call - inside for call, inside in constant_filters)
    return [(call, call - overhead) for call, _ in constant_filters]


def _mostly_overhead(calls: dict, inside: dict) -> list[tuple[float, float]]:
    """(seconds of a call, seconds inside a graph) of the problems that have both, where most of the call is overhead."""
    pairs = []
    for problem, seconds in inside.items():
        if problem in calls and seconds < calls[problem] / 2:
            pairs.append((calls[problem], seconds))
    return pairs
