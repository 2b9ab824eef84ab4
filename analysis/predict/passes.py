"""Seconds of element-wise passes inside a step, and the overhead of one more operation, from a profile's rows of passes."""

from collections.abc import Iterable

from analysis.predict.curves import Curve, MeasuredShape, curve, measured_pass
from analysis.predict.profile import (
    GRAPH,
    LIBRARIES,
    OP_BY_OP,
    VARIANTS,
    WORDS,
    Profile,
    Read,
    cached_in_profile,
    clock,
    row_sources,
    rows_command,
)
from analysis.predict.row_seconds import whole_seconds
from analysis.predict.step_kernels.operation_counts import counts, unfused_traffic
from analysis.stats import Estimate, median
from kernels.problems import Stream

_CALL = VARIANTS[OP_BY_OP]
_UPDATES = ("sgd", "adam")
#: Passes whose rows price any other.
_PLAIN_PASSES = ("add", "scale", "triad", "copy")
#: Operation without rows -> the one whose rows stand for it, as Keras differentiates both together.
_PRICED_AS = {"batchnorm_grad": "batchnorm"}
#: Formulas that say nothing of the overhead of one more operation: a dropout draws random numbers, which is work.
_NO_FORMULAS = (*Stream.IMAGE_OPERATIONS, "dropout")
#: Different counts of operations from which a line is laid through formulas.
_FEWEST_COUNTS = 3


@cached_in_profile
def pass_seconds(profile: Profile, problem: Stream, device: str, execution: str) -> Read | None:
    """Seconds of a pass over arrays (element-wise, such as relu or an optimizer's update) inside a step that runs compiled or op
    by op; None without rows. They are interpolated by bytes between rows of its operation, else of a similar one, else of a plain
    pass.

    Op by op, a formula such as Adam's reads and writes arrays once for each of its operations (`unfused_traffic` times the bytes
    of one fused pass), so rows of another operation are scaled by the ratio of both.
    """
    similar = [_PRICED_AS[problem.operation]] if problem.operation in _PRICED_AS else []
    for source in row_sources(device, execution, problem.op):
        for operation in (problem.operation, *similar, *_PLAIN_PASSES):
            through_rows = _curve(profile, source, device, operation)
            if through_rows is None:
                continue
            seconds = through_rows.seconds_of_bytes(problem.bytes_moved)
            if execution == OP_BY_OP:
                # where no row is of this formula as TensorFlow runs it, it makes more passes than that kernel
                traffic_of_rows = 1.0 if source == LIBRARIES else unfused_traffic(operation)
                seconds = seconds * (unfused_traffic(problem.operation) / traffic_of_rows)
            instead = ""
            if device == "cpu" and source == LIBRARIES:
                instead = f"passes priced as libraries make them; TensorFlow's: {rows_command(problem, device)}"
            return Read(seconds=seconds, source=WORDS[source], instead=instead)
    return None


@cached_in_profile
def _curve(profile: Profile, source: str, device: str, operation: str) -> Curve | None:
    """Seconds of an operation's passes by the bytes that they move, without the overhead of a call; None without rows of that
    source."""
    return curve(_shapes(profile, source, device, operation), has_constant=source == LIBRARIES)


def _shapes(profile: Profile, source: str, device: str, operation: str) -> list[MeasuredShape]:
    """The measured passes of an operation, by bytes, without the overhead of a call around them.

    TensorFlow's rows on a CPU: those inside a graph count as they are, larger single calls less a call's overhead. An optimizer's
    update counts as if it ran alone: a step ends with one, though the updates of several variables share the cores.
    """
    calls = fastest_by_bytes(profile, source, device, operation)
    if source == _CALL and device == "cpu" and operation not in _UPDATES:
        in_graph = fastest_by_bytes(profile, GRAPH, device, operation)
        if len(in_graph) > 1:
            return shapes_in_graph(in_graph, calls)
    if source == LIBRARIES or len(calls) < 2:
        return _as_measured(calls)
    return _beyond_smallest(calls)


def _as_measured(seconds_by_bytes: dict[int, float]) -> list[MeasuredShape]:
    """Passes from bytes moved -> seconds, as they are."""
    return [measured_pass(nbytes, seconds) for nbytes, seconds in seconds_by_bytes.items()]


def _beyond_smallest(calls: dict[int, float]) -> list[MeasuredShape]:
    """Passes from single calls, bytes moved -> seconds. The time of the smallest call is taken for overhead and subtracted; the
    rest of each is scaled up to all its bytes. Calls no longer than the smallest are left out."""
    smallest = min(calls)
    shapes = []
    for nbytes, seconds in calls.items():
        work_s = seconds - calls[smallest]
        if work_s > 0:
            shapes.append(measured_pass(nbytes, work_s * nbytes / (nbytes - smallest)))
    return shapes


def shapes_in_graph(in_graph: dict[int, float], calls: dict[int, float]) -> list[MeasuredShape]:
    """Passes inside a graph as they are; then those of larger single calls, less a call's overhead, which is read at the largest
    size that was timed inside a graph.

    in_graph, calls: bytes moved -> seconds.
    """
    shapes = _as_measured(in_graph)
    largest = max(in_graph)
    larger_calls = {nbytes: seconds for nbytes, seconds in calls.items() if nbytes > largest}
    through_calls = curve(_as_measured(calls)) if larger_calls else None
    if through_calls is None:
        return shapes
    overhead = max(0.0, through_calls.seconds_of_bytes(largest).value - in_graph[largest])
    for nbytes, seconds in larger_calls.items():
        if seconds > overhead:
            shapes.append(measured_pass(nbytes, seconds - overhead))
    return shapes


def fastest_by_bytes(profile: Profile, source: str, device: str, operation: str) -> dict[int, float]:
    """Bytes moved -> seconds of an operation's fastest row of a source, with warm caches."""
    fastest: dict[int, float] = {}
    for row in profile.rows.get(("stream", device), ()):
        if row.problem.operation != operation or row.settings.cache != "warm":
            continue
        seconds = whole_seconds(row, source)
        if seconds is not None:
            nbytes = row.problem.bytes_moved
            fastest[nbytes] = min(fastest.get(nbytes, seconds), seconds)
    return fastest


@cached_in_profile
def operation_overhead(profile: Profile, device: str) -> Estimate | None:
    """Seconds of overhead of one more operation in a TensorFlow graph that is not compiled; None if unknown.

    It is the median slope over all pairs of measured formulas (Theil and Sen's estimator): the same small arrays pass through
    formulas of different numbers of operations. With formulas of fewer than _FEWEST_COUNTS different numbers, it is the constant
    tf-op-in-function, from a chain of additions.
    """
    formulas = []
    for operation in Stream.WEIGHTS:
        calls = fastest_by_bytes(profile, _CALL, device, operation)
        if calls and operation not in _NO_FORMULAS:
            formulas.append((counts(operation).formula, calls[min(calls)]))
    if len({count for count, _ in formulas}) < _FEWEST_COUNTS:
        return profile.constant("tf-op-in-function", device, clock=clock(device))
    return median(list(_slopes(formulas))).at_least(0.0)


def _slopes(formulas: list[tuple[int, float]]) -> Iterable[float]:
    """Seconds of one more operation, by each pair of formulas with different numbers of operations. formulas: (operations,
    seconds)."""
    for few, short_s in formulas:
        for many, long_s in formulas:
            if many > few:
                yield (long_s - short_s) / (many - few)
