"""A graph where it is called: its path, how often it runs, and which of its numbers are known before anything runs."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
LOOPS = frozenset({"While", "StatelessWhile"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
#: They hand on their input as it is.
_SAME = frozenset({"Identity", "StopGradient", "PreventGradient", "EnsureShape"})
#: Elements of the largest array that is looked at for a loop's bound: the lengths of a batch's samples.
MOST_BOUNDS = 4096
#: How numbers of loops' bounds are computed from others.
_COMPUTED: dict[str, Callable] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "Less": np.less,
    "Greater": np.greater,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not,
}
#: They reduce an array of which all numbers are one.
_REDUCED: dict[str, Callable] = {"Max": np.max, "Min": np.min, "Prod": np.prod, "Sum": np.sum}
#: The scope of what a GradientTape adds to a graph.
GRADIENT_SCOPE = "gradient_tape"
UNKNOWN_END = "a loop ends by the data: its full length is counted"
UNKNOWN_LENGTH = "a loop ends by the data and has no known length: one turn is counted"


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A graph at one of the places that it is called from."""

    #: A FuncGraph.
    graph: Any
    #: The path of the operation that calls it, with a `/` behind; "" of the outermost.
    path: str = ""
    #: How often a step runs it.
    runs: int = 1
    #: What is not sure of that; "" if nothing.
    doubt: str = ""
    #: Numbers of its inputs that are known before anything runs, by the name of the input's operation.
    numbers: dict[str, Any] = {}

    def inner(self, operation, graph, first_input: int = 0) -> "Frame":
        """The frame of a function that an operation calls; `first_input`: the place of the function's first input in its own."""
        numbers = {}
        for placeholder, tensor in zip(graph.inputs, operation.inputs[first_input:], strict=True):
            number = known(tensor, self)
            if number is not None:
                numbers[placeholder.op.name] = number
        path = f"{self.path}{scope_of_call(operation)}/"
        return Frame(graph=graph, path=path, runs=self.runs, doubt=self.doubt, numbers=numbers)


def scope_of_call(call) -> str:
    """The name scope of a function's call. The gradient of a function stands in no scope: it belongs to the scope of the function
    whose results it takes."""
    if "/" in call.name:
        return call.name
    for tensor in call.inputs:
        if tensor.op.type in CALLS and "/" in tensor.op.name:
            return f"{GRADIENT_SCOPE}/{tensor.op.name}"
    return call.name


def function_graph(operation, attribute: str):
    """The FuncGraph of the function that an attribute names: `f`, `body`, `cond`, `then_branch`."""
    return named_graph(operation, operation.get_attr(attribute).name)


def named_graph(operation, name: str):
    """The FuncGraph of a function, looked for in the operation's graph and in those around it."""
    graph = operation.graph
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    raise KeyError(f"the graph has no function {name}")


def source(tensor):
    """The tensor behind operations that hand it on as it is."""
    while tensor.op.type in _SAME:
        tensor = tensor.op.inputs[0]
    return tensor


def known(tensor, frame: Frame) -> Any:
    """The numbers of a tensor that are known before anything runs; None where they depend on the data."""
    from tensorflow import get_static_value

    tensor = source(tensor)
    if not _may_bound(tensor):
        return None
    number = get_static_value(tensor)
    if number is not None:
        return number
    operation = tensor.op
    if operation.type == "Placeholder":
        return frame.numbers.get(operation.name)
    if operation.type in LOOPS:
        return _after_loop(operation, tensor.value_index, frame)
    if operation.type in CALLS:
        graph = function_graph(operation, "f")
        return known(graph.outputs[tensor.value_index], frame.inner(operation, graph))
    return _computed(operation, frame)


def _may_bound(tensor) -> bool:
    """Whether a tensor may be a loop's bound or be computed into one: a few whole numbers or conditions, no features."""
    if not (tensor.dtype.is_integer or tensor.dtype.is_bool):
        return False
    elements = tensor.shape.num_elements()
    return elements is not None and elements <= MOST_BOUNDS


def _computed(operation, frame: Frame) -> Any:
    if operation.type in _COMPUTED:
        numbers = []
        for tensor in operation.inputs:
            number = known(tensor, frame)
            if number is None:
                return None
            numbers.append(number)
        return _COMPUTED[operation.type](*numbers)
    if operation.type in _REDUCED:
        number = known(operation.inputs[0], frame)
        return None if number is None else _REDUCED[operation.type](number)
    return None


class TripCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a loop's body runs."""

    count: int
    #: What is not sure of that; "" if nothing.
    doubt: str = ""


def trip_count(loop, frame: Frame) -> TripCount:
    """How often the body of a While operation runs: from the bound of its counter, else from the length of the lists that it
    reads and writes."""
    condition = function_graph(loop, "cond")
    limits = _limits(condition.outputs[0], loop, condition, frame)
    sure = all(limit is not None for limit in limits)
    counts = [limit for limit in limits if limit is not None]
    if counts:
        return TripCount(count=min(counts), doubt="" if sure else UNKNOWN_END)
    lengths = [_list_length(tensor, frame) for tensor in loop.inputs]
    longest = max((length for length in lengths if length is not None), default=0)
    if longest:
        return TripCount(count=longest, doubt=UNKNOWN_END)
    return TripCount(count=1, doubt=UNKNOWN_LENGTH)


def _limits(tensor, loop, condition, frame: Frame) -> list[int | None]:
    """For each part of a loop's condition, after how many turns it ends the loop; None where the data decide."""
    tensor = source(tensor)
    operation = tensor.op
    if operation.type == "LogicalAnd":
        first, second = operation.inputs
        return _limits(first, loop, condition, frame) + _limits(second, loop, condition, frame)
    if known(tensor, frame) is True:
        return []
    if operation.type in ("Less", "LessEqual", "Greater", "GreaterEqual"):
        return [_end_of_counter(operation, loop, condition, frame)]
    return [None]


def _end_of_counter(comparison, loop, condition, frame: Frame) -> int | None:
    """After how many turns `counter < bound` ends a loop; None where it is no such comparison or the bound is not known."""
    places = {tensor.op.name: place for place, tensor in enumerate(condition.inputs)}
    left, right = (source(tensor) for tensor in comparison.inputs)
    for counter, bound in ((left, right), (right, left)):
        place = places.get(counter.op.name)
        if place is None:
            continue
        step = _step(loop, place, frame)
        start = known(loop.inputs[place], frame)
        limit = _invariant(bound, places, loop, frame)
        if step and start is not None and limit is not None:
            distance = (float(limit) - float(start)) / step
            included = "Equal" in comparison.type
            return max(0, math.floor(distance) + 1 if included else math.ceil(distance))
    return None


def _step(loop, place: int, frame: Frame) -> float:
    """What a loop's body adds to a counter; 0 where it does anything else with it."""
    body = function_graph(loop, "body")
    after = source(body.outputs[place])
    if after.op.type not in ("Add", "AddV2", "Sub"):
        return 0.0
    counter = body.inputs[place].op.name
    first, second = (source(tensor) for tensor in after.op.inputs)
    if first.op.name != counter:
        first, second = second, first
    if first.op.name != counter:
        return 0.0
    number = known(second, Frame(graph=body))
    if number is None or np.size(number) != 1:
        return 0.0
    added = float(np.reshape(number, ())[()])
    return -added if after.op.type == "Sub" else added


def _invariant(bound, places: dict[str, int], loop, frame: Frame) -> Any:
    """The number of a bound that no turn of the loop changes; None where it is not known or changes."""
    place = places.get(bound.op.name)
    if place is None:
        numbers = {name: known(loop.inputs[i], frame) for name, i in places.items() if is_invariant(loop, i)}
        sure = {name: number for name, number in numbers.items() if number is not None}
        number = known(bound, Frame(graph=bound.graph, numbers=sure))
    elif is_invariant(loop, place):
        number = known(loop.inputs[place], frame)
    else:
        return None
    return number if number is not None and np.size(number) == 1 else None


def is_invariant(loop, place: int) -> bool:
    """Whether a loop's body hands on a loop variable as it is."""
    body = function_graph(loop, "body")
    return source(body.outputs[place]).op.name == body.inputs[place].op.name


def _after_loop(loop, place: int, frame: Frame) -> Any:
    """The number of a loop variable behind the loop: of a counter, and of what no turn changes."""
    start = known(loop.inputs[place], frame)
    if start is None or is_invariant(loop, place):
        return start
    step = _step(loop, place, frame)
    if not step or np.size(start) != 1:
        return None
    return start + int(step) * trip_count(loop, frame).count


def _list_length(tensor, frame: Frame) -> int | None:
    """The length of a list of tensors that a loop reads or writes; None of anything else."""
    tensor = source(tensor)
    if tensor.op.type == "TensorListFromTensor":
        length = tensor.op.inputs[0].shape[0]
        return None if length is None else int(length)
    if tensor.op.type == "TensorListReserve":
        number = known(tensor.op.inputs[1], frame)
        return None if number is None else int(number)
    return None
