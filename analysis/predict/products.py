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
    cached_in_profile,
    clock,
    coordinates,
    kind,
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


@cached_in_profile
def product(profile: Profile, problem: Matmul | Conv, device: str, execution: str) -> Read | None:
    """Seconds of a matrix product or convolution inside a step that runs compiled or op by op (`execution`), without the overhead
    of a call; None without rows.

    They are read from the preferred source of rows (`row_sources`). The interval is cut to a factor of UNLIKE around what the
    other sources and a similar product give.
    """
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
    """A matrix product that takes about as long: of a convolution the product of its patches and its filters, of a product with a
    transposed operand the one without; None for a product of operands that are both stored row by row."""
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
    """The seconds of a product or convolution by each source that has rows of its kind, the preferred source first."""
    readings = []
    for source in row_sources(device, execution, problem.op):
        reading = _reading(profile, problem, device, source)
        if reading is not None:
            readings.append(reading)
    return readings


def _reading(profile: Profile, problem: Matmul | Conv, device: str, source: str) -> Read | None:
    """The seconds of a product or convolution by the rows of one source: in its own arithmetic, else in the first that may stand
    for it; None if the source has rows of neither."""
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
    """Seconds of a depthwise convolution (one filter for each channel) by the time to copy its bytes, as memory limits it; None
    for any other convolution."""
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
    """An upper bound of a product's seconds: it is cut into tiles of the shape of a measured product, and the shape with the
    least total counts, as no library takes longer than that. Infinite without rows."""
    quickest = math.inf
    for tile, seconds in _tiles(profile, device, problem.dtype, problem.math):
        tiles = math.ceil(problem.m / tile.m) * math.ceil(problem.n / tile.n) * math.ceil(problem.k / tile.k)
        quickest = min(quickest, seconds * tiles)
    return quickest


@cached_in_profile
def _tiles(profile: Profile, device: str, dtype: str, arithmetic: str) -> list[tuple[Matmul, float]]:
    """(product, seconds) of each single product that libraries ran in a type and arithmetic on a device, with warm caches."""
    tiles = []
    for row in profile.rows.get(("matmul", device), ()):
        if (row.problem.dtype, row.problem.math) != (dtype, arithmetic) or row.settings.cache != "warm":
            continue
        seconds = whole_seconds(row, LIBRARIES)
        if seconds is not None and row.problem.count == 1:
            tiles.append((row.problem, seconds))
    return tiles


@cached_in_profile
def _curve(profile: Profile, rows: RowKind) -> Curve | None:
    """The curve through the profile's rows of a kind; None without any. If a problem was timed inside a graph, its rows of single
    calls are ignored."""
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
        if seconds is None:
            continue
        shape = MeasuredShape(
            coordinates=coordinates(row.problem),
            seconds=seconds,
            flops=row.problem.flops,
            nbytes=row.problem.bytes_moved,
        )
        shapes.append(shape)
    work_powers = _CONVOLUTION_POWERS if rows.op == "conv" else (1.0,)
    return curve(shapes, has_constant=rows.source == LIBRARIES, work_powers=work_powers)


def _seconds_without_call(profile: Profile, row: Measurement, source: str) -> float | None:
    """Seconds of a row's product or convolution without the overhead of the call around it, as inside a larger graph. None if the
    row is of another source, or if the overhead is unknown or no less than the whole call."""
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
    """Seconds by which a single call of TensorFlow takes longer than the same operation inside a graph; None if unknown. It is
    read from the operation of about the same length (`whole` seconds) that was timed both ways, as longer ones wake more threads;
    without such operations it is the time of a call with no work."""
    pairs = _calls_and_graphs(profile, row.device, row.problem.op) if source == _CALL else []
    if pairs:
        call, inside = min(pairs, key=lambda pair: abs(math.log(pair[0] / whole)))
        return call - inside
    constant = profile.constant(CALLS[source], row.device, clock=clock(row.device))
    return constant.value if constant else None


@cached_in_profile
def _calls_and_graphs(profile: Profile, device: str, op: str) -> list[tuple[float, float]]:
    """(seconds of a single call, seconds inside a graph) of each operation that was timed both ways and where most of the call is
    overhead. If no convolution was timed inside a graph, rows with constant filters (CONSTANT_FILTERS) take the place; these
    differ by their filters' time, so all calls get their median overhead."""
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
    """(seconds of a call, seconds inside a graph) of the problems that have both and whose call is more than half overhead.
    calls, inside: problem -> seconds."""
    pairs = []
    for problem, seconds in inside.items():
        if problem in calls and seconds < calls[problem] / 2:
            pairs.append((calls[problem], seconds))
    return pairs
