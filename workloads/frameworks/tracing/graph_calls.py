"""A TensorFlow graph at one place that calls it: its path, how often it runs, and which of its values are known beforehand."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.python.framework.func_graph import FuncGraph

#: Types of operations that call one graph function, enter a loop, and choose one of several functions.
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
LOOPS = frozenset({"While", "StatelessWhile"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
#: Types of operations whose output is their first input, unchanged.
_PASS_THROUGH = frozenset({"Identity", "StopGradient", "PreventGradient", "EnsureShape"})
#: Elements of the largest array that is looked at for a loop's bound: the lengths of a batch's samples.
MOST_BOUNDS = 4096
#: Operation type -> the NumPy function of the same numbers. Loops' bounds are computed with these.
_NUMPY_FUNCTIONS: dict[str, Callable] = {
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
#: The same of operations that reduce an array to one number.
_NUMPY_REDUCTIONS: dict[str, Callable] = {"Max": np.max, "Min": np.min, "Prod": np.prod, "Sum": np.sum}
#: The scope of what a GradientTape adds to a graph.
GRADIENT_SCOPE = "gradient_tape"
UNKNOWN_END = "a loop ends by the data: its full length is counted"
UNKNOWN_LENGTH = "a loop ends by the data and has no known length: one turn is counted"


class GraphCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a TensorFlow graph: the traced step itself, or a function or loop body at one of the places that call it."""

    #: A FuncGraph. Its inputs are operations of the type Placeholder, which stand for what the caller gives.
    graph: Any
    #: The path of the operation that calls it, with a `/` behind; "" of the outermost.
    path: str = ""
    #: How often a training step runs it.
    runs: int = 1
    #: What is not sure of that; "" if nothing.
    doubt: str = ""
    #: Values of its inputs that are known before anything runs, by the name of the placeholder: 10, or an array of NumPy.
    input_values: dict[str, Any] = {}

    def inner(self, operation: "tf.Operation", graph: "FuncGraph", first_input: int = 0) -> "GraphCall":
        """The call of `graph` by an operation of this graph.

        first_input: the index of the operation's input that is the function's first; before it an `If` has its condition.
        """
        input_values = {}
        for placeholder, tensor in zip(graph.inputs, operation.inputs[first_input:], strict=True):
            value = static_value(tensor, self)
            if value is not None:
                input_values[placeholder.op.name] = value
        path = f"{self.path}{scope_of_call(operation)}/"
        return GraphCall(graph=graph, path=path, runs=self.runs, doubt=self.doubt, input_values=input_values)


def scope_of_call(call: "tf.Operation") -> str:
    """The name scope of an operation that calls a graph function.

    TensorFlow names the gradient of a function without a scope. It counts as in `gradient_tape/` and the scope of the function
    whose results it takes.
    """
    if "/" in call.name:
        return call.name
    for tensor in call.inputs:
        if tensor.op.type in CALLS and "/" in tensor.op.name:
            return f"{GRADIENT_SCOPE}/{tensor.op.name}"
    return call.name


def function_graph(operation: "tf.Operation", attribute: str) -> "FuncGraph":
    """The graph of a function that an operation calls. attribute: the operation's attribute with the function's name, which is
    `f` of a call, `body` and `cond` of a loop, `then_branch` and `else_branch` of an `If`."""
    return named_graph(operation, operation.get_attr(attribute).name)


def named_graph(operation: "tf.Operation", name: str) -> "FuncGraph":
    """The graph of the function of this name, looked for in the operation's graph and in those around it.

    Raises: KeyError where none of them has it.
    """
    graph = operation.graph
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    raise KeyError(f"the graph has no function {name}")


def without_identities(tensor: "tf.Tensor") -> "tf.Tensor":
    """The tensor that this one has its value from, through operations like Identity that pass their input on unchanged."""
    while tensor.op.type in _PASS_THROUGH:
        tensor = tensor.op.inputs[0]
    return tensor


def static_value(tensor: "tf.Tensor", call: GraphCall) -> Any:
    """The value of a graph's tensor where it is known before anything runs, as a number or an array of NumPy; else None.

    call: the call of the graph that the tensor is in, with the values of its inputs. Only whole numbers and conditions of at most
    MOST_BOUNDS elements are worked out, since only these bound loops.
    """
    from tensorflow import get_static_value

    tensor = without_identities(tensor)
    if not _may_bound(tensor):
        return None
    value = get_static_value(tensor)
    if value is not None:
        return value
    operation = tensor.op
    if operation.type == "Placeholder":
        return call.input_values.get(operation.name)
    if operation.type in LOOPS:
        return _value_after_loop(operation, tensor.value_index, call)
    if operation.type in CALLS:
        graph = function_graph(operation, "f")
        return static_value(graph.outputs[tensor.value_index], call.inner(operation, graph))
    return _computed_value(operation, call)


def _may_bound(tensor: "tf.Tensor") -> bool:
    """Whether a tensor may be a loop's bound or be computed into one: a few whole numbers or conditions, no features."""
    if not (tensor.dtype.is_integer or tensor.dtype.is_bool):
        return False
    elements = tensor.shape.num_elements()
    return elements is not None and elements <= MOST_BOUNDS


def _computed_value(operation: "tf.Operation", call: GraphCall) -> Any:
    """The result of an arithmetic operation or reduction whose inputs are all known before anything runs; else None."""
    if operation.type in _NUMPY_FUNCTIONS:
        values = []
        for tensor in operation.inputs:
            value = static_value(tensor, call)
            if value is None:
                return None
            values.append(value)
        return _NUMPY_FUNCTIONS[operation.type](*values)
    if operation.type in _NUMPY_REDUCTIONS:
        # The second input, the axes, is left out: a bound is reduced over all of them.
        value = static_value(operation.inputs[0], call)
        return None if value is None else _NUMPY_REDUCTIONS[operation.type](value)
    return None


class TripCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a loop's body runs."""

    count: int
    #: What is not sure of that; "" if nothing.
    doubt: str = ""


def trip_count(loop: "tf.Operation", call: GraphCall) -> TripCount:
    """How often the body of a While operation runs each time that the graph around it does.

    It is the smallest bound of a counter in the loop's condition. Where none is known, it is the length of the longest list of
    tensors that the loop reads or writes, as loops over the time steps of samples have; else 1.

    call: of the graph around the loop.
    """
    condition = function_graph(loop, "cond")
    limits = _trip_limits(condition.outputs[0], loop, condition, call)
    sure = all(limit is not None for limit in limits)
    counts = [limit for limit in limits if limit is not None]
    if counts:
        return TripCount(count=min(counts), doubt="" if sure else UNKNOWN_END)
    lengths = [_list_length(tensor, call) for tensor in loop.inputs]
    longest = max((length for length in lengths if length is not None), default=0)
    if longest:
        return TripCount(count=longest, doubt=UNKNOWN_END)
    return TripCount(count=1, doubt=UNKNOWN_LENGTH)


def _trip_limits(
    tensor: "tf.Tensor", loop: "tf.Operation", condition: "FuncGraph", call: GraphCall
) -> list[int | None]:
    """For each part of a loop's condition, after how many runs of the body it ends the loop; None where the data decide.

    tensor: the condition, or a part of it that `and` joins to others. condition: the graph that computes it. call: of the graph
    around the loop. A part that is always true ends no loop and is left out.
    """
    tensor = without_identities(tensor)
    operation = tensor.op
    if operation.type == "LogicalAnd":
        first, second = operation.inputs
        return _trip_limits(first, loop, condition, call) + _trip_limits(second, loop, condition, call)
    if static_value(tensor, call) is True:
        return []
    if operation.type in ("Less", "LessEqual", "Greater", "GreaterEqual"):
        return [_end_of_counter(operation, loop, condition, call)]
    return [None]


def _end_of_counter(
    comparison: "tf.Operation", loop: "tf.Operation", condition: "FuncGraph", call: GraphCall
) -> int | None:
    """After how many runs of a loop's body a comparison `counter < bound` is false for the first time.

    None where it compares no counter, that is a loop variable to which the body adds a constant, or where the bound is not known.
    condition: the graph that the comparison is in. call: of the graph around the loop.
    """
    variables = {placeholder.op.name: index for index, placeholder in enumerate(condition.inputs)}
    left, right = (without_identities(tensor) for tensor in comparison.inputs)
    for counter, bound in ((left, right), (right, left)):
        variable = variables.get(counter.op.name)
        if variable is None:
            continue
        step = _counter_step(loop, variable)
        start = static_value(loop.inputs[variable], call)
        limit = _bound_value(bound, variables, loop, call)
        if step and start is not None and limit is not None:
            distance = (float(limit) - float(start)) / step
            includes_bound = comparison.type in ("LessEqual", "GreaterEqual")
            return max(0, math.floor(distance) + 1 if includes_bound else math.ceil(distance))
    return None


def _counter_step(loop: "tf.Operation", variable: int) -> float:
    """The constant that a loop's body adds to one of the loop's variables; 0 where it changes it in any other way.

    variable: its index among the loop's inputs, which is the same among the inputs and outputs of the body.
    """
    body = function_graph(loop, "body")
    after = without_identities(body.outputs[variable])
    if after.op.type not in ("Add", "AddV2", "Sub"):
        return 0.0
    counter = body.inputs[variable].op.name
    first, second = (without_identities(tensor) for tensor in after.op.inputs)
    if first.op.name != counter:
        first, second = second, first
    if first.op.name != counter:
        return 0.0
    value = static_value(second, GraphCall(graph=body))
    if value is None or np.size(value) != 1:
        return 0.0
    added = float(np.reshape(value, ())[()])
    return -added if after.op.type == "Sub" else added


def _bound_value(bound: "tf.Tensor", variables: dict[str, int], loop: "tf.Operation", call: GraphCall) -> Any:
    """The number that a loop's counter is compared with; None where it is not known or the loop changes it.

    bound: a tensor of the condition's graph. variables: placeholder of that graph -> index of the loop's variable that it stands
    for. call: of the graph around the loop.
    """
    variable = variables.get(bound.op.name)
    if variable is None:
        input_values = {}
        for name, index in variables.items():
            value = static_value(loop.inputs[index], call) if is_invariant(loop, index) else None
            if value is not None:
                input_values[name] = value
        value = static_value(bound, GraphCall(graph=bound.graph, input_values=input_values))
    elif is_invariant(loop, variable):
        value = static_value(loop.inputs[variable], call)
    else:
        return None
    return value if value is not None and np.size(value) == 1 else None


def is_invariant(loop: "tf.Operation", variable: int) -> bool:
    """Whether a loop's body passes a loop variable on unchanged. variable: its index among the loop's inputs."""
    body = function_graph(loop, "body")
    return without_identities(body.outputs[variable]).op.name == body.inputs[variable].op.name


def _value_after_loop(loop: "tf.Operation", variable: int, call: GraphCall) -> Any:
    """The value of a loop variable when the loop has ended, where it is a counter or is never changed; else None.

    variable: its index among the loop's inputs. call: of the graph around the loop.
    """
    start = static_value(loop.inputs[variable], call)
    if start is None or is_invariant(loop, variable):
        return start
    step = _counter_step(loop, variable)
    if not step or np.size(start) != 1:
        return None
    return start + int(step) * trip_count(loop, call).count


def _list_length(tensor: "tf.Tensor", call: GraphCall) -> int | None:
    """The length of a TensorList that is an input of a loop; None of any other tensor and of a list of unknown length."""
    tensor = without_identities(tensor)
    if tensor.op.type == "TensorListFromTensor":
        length = tensor.op.inputs[0].shape[0]
        return None if length is None else int(length)
    if tensor.op.type == "TensorListReserve":
        length = static_value(tensor.op.inputs[1], call)
        return None if length is None else int(length)
    return None
