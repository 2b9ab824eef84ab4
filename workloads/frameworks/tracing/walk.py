"""A traced graph as a list of operations: functions and loops entered, dead operations and folded constants left out."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from workloads.frameworks.tracing import graph_calls
from workloads.frameworks.tracing.graph_calls import BRANCHES, CALLS, LOOPS, GraphCall
from workloads.frameworks.tracing.graph_node import GraphArray, GraphNode
from workloads.frameworks.tracing.node_work import work

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.python.framework.func_graph import FuncGraph

#: They run once, when the graph is made, or stand for an input.
_NOT_RUN = frozenset({"Const", "NoOp", "Placeholder"})
#: A number about the shape of an array, which a graph of known shapes has as a constant.
_ABOUT_SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
#: The attributes that an operation's work depends on.
_ATTRIBUTES = {
    "adj_x",
    "adj_y",
    "data_format",
    "dilations",
    "equation",
    "ksize",
    "padding",
    "strides",
    "transpose_a",
    "transpose_b",
}
LARGER_BRANCH = "a branch depends on the data: the larger one is counted"
UNKNOWN_SIZE = "a size depends on the data: it is counted as 1"


def operations(graph: "FuncGraph", input_values: dict[str, Any] | None = None) -> list[GraphNode]:
    """The operations of a traced step that its outputs or its assignments to variables depend on, in the graph's order.

    An operation inside a function or loop stands in the list once, with how often it runs. input_values: values of the graph's
    inputs that are known, by the name of the placeholder; loops may end by them.
    """
    return _live_nodes(GraphCall(graph=graph, input_values=input_values or {}), set(range(len(graph.outputs))))


def _live_nodes(call: GraphCall, needed_outputs: set[int]) -> list[GraphNode]:
    """The operations of a called graph that run, those of functions and loops inside it included.

    needed_outputs: indices of the graph's outputs that its caller uses; what only other outputs depend on is left out.
    """
    outputs = [call.graph.outputs[index] for index in sorted(needed_outputs)]
    live = _live_names(outputs, controls=call.graph.control_outputs)
    used = _used_outputs(call.graph, live, outputs)
    constants: set[str] = set()
    nodes: list[GraphNode] = []
    for operation in call.graph.get_operations():
        if operation.name not in live or operation.type in _NOT_RUN:
            if operation.type == "Const":
                constants.add(operation.name)
            continue
        if _is_constant(operation, constants):
            constants.add(operation.name)
            continue
        nodes += _nodes_of_operation(operation, call, used.get(operation.name, set()))
    return nodes


def _live_names(outputs: "Iterable[tf.Tensor]", controls: "Iterable[tf.Operation]") -> set[str]:
    """The names of the operations of one graph that these outputs depend on, and of `controls` with what they depend on.

    controls: operations that run though no output depends on them, as assignments to variables.
    """
    stack = [tensor.op for tensor in outputs]
    stack.extend(controls)
    live: set[str] = set()
    while stack:
        operation = stack.pop()
        if operation.name in live:
            continue
        live.add(operation.name)
        stack.extend(tensor.op for tensor in operation.inputs)
        stack.extend(operation.control_inputs)
    return live


def _used_outputs(graph: "FuncGraph", live: set[str], outputs: "Iterable[tf.Tensor]") -> dict[str, set[int]]:
    """Name of an operation -> indices of its outputs that are used: by operations named in `live`, or among the graph's
    `outputs`."""
    used: dict[str, set[int]] = {}
    for tensor in outputs:
        used.setdefault(tensor.op.name, set()).add(tensor.value_index)
    for operation in graph.get_operations():
        if operation.name in live:
            for tensor in operation.inputs:
                used.setdefault(tensor.op.name, set()).add(tensor.value_index)
    return used


def _is_constant(operation: "tf.Operation", constants: set[str]) -> bool:
    """Whether TensorFlow's optimizer computes an operation once and stores its result. constants: names of the operations before
    it that are."""
    if operation.type in _ABOUT_SHAPES:
        return all(tensor.shape.is_fully_defined() for tensor in operation.inputs)
    if not operation.inputs or operation.op_def.is_stateful or operation.type in CALLS | LOOPS | BRANCHES:
        return False
    return all(tensor.op.name in constants for tensor in operation.inputs)


def _nodes_of_operation(operation: "tf.Operation", call: GraphCall, used: set[int]) -> list[GraphNode]:
    """The operation as one node; of a function call, loop or branch the nodes inside it.

    call: of the graph that the operation is in. used: indices of the operation's outputs that something uses.
    """
    if operation.type in CALLS:
        graph = graph_calls.function_graph(operation, "f")
        return _live_nodes(call.inner(operation, graph), used)
    if operation.type in LOOPS:
        return _nodes_of_loop(operation, call, used)
    if operation.type in BRANCHES:
        return _nodes_of_branch(operation, call, used)
    return [_node(operation, call)]


def _nodes_of_loop(loop: "tf.Operation", call: GraphCall, used: set[int]) -> list[GraphNode]:
    """The nodes of a loop's condition and body, with how often they run. The condition runs once more than the body.

    call: of the graph around the loop. used: indices of the loop's variables that something behind the loop uses.
    """
    trips = graph_calls.trip_count(loop, call)
    doubt = trips.doubt or call.doubt
    body = graph_calls.function_graph(loop, "body")
    condition = graph_calls.function_graph(loop, "cond")
    input_values = {}
    for index, placeholder in enumerate(body.inputs):
        if graph_calls.is_invariant(loop, index):
            value = graph_calls.static_value(loop.inputs[index], call)
            if value is not None:
                input_values[placeholder.op.name] = value
    path = f"{call.path}{loop.name}/"
    body_call = GraphCall(graph=body, path=path, runs=call.runs * trips.count, doubt=doubt, input_values=input_values)
    condition_call = GraphCall(graph=condition, path=f"{path}cond/", runs=call.runs * (trips.count + 1), doubt=doubt)
    return _live_nodes(condition_call, {0}) + _live_nodes(body_call, _live_variables(body, condition, used))


def _live_variables(body: "FuncGraph", condition: "FuncGraph", used: set[int]) -> set[int]:
    """The indices of a loop's variables that have to be computed: for what follows the loop, for its condition, or for another
    such variable in the next run of the body. used: indices of those that something behind the loop uses."""
    live = set(used) | _indices(condition.inputs, _live_names(condition.outputs, controls=()))
    while True:
        outputs = [body.outputs[index] for index in sorted(live)]
        needed = live | _indices(body.inputs, _live_names(outputs, controls=body.control_outputs))
        if needed == live:
            return live
        live = needed


def _indices(placeholders: "Iterable[tf.Tensor]", names: set[str]) -> set[int]:
    """The indices of the placeholders that have one of these names."""
    return {index for index, placeholder in enumerate(placeholders) if placeholder.op.name in names}


def _nodes_of_branch(operation: "tf.Operation", call: GraphCall, used: set[int]) -> list[GraphNode]:
    """The nodes of the branch that an If or Case takes. Where the data decide, those of the branch that moves most bytes, with
    that doubt noted.

    call: of the graph that the operation is in. used: indices of the operation's outputs that something uses.
    """
    if operation.type in ("If", "StatelessIf"):
        # In the order of the condition's value: False is 0.
        graphs = [graph_calls.function_graph(operation, name) for name in ("else_branch", "then_branch")]
    else:
        functions = operation.get_attr("branches")
        graphs = [graph_calls.named_graph(operation, function.name) for function in functions]
    chosen: Any = graph_calls.static_value(operation.inputs[0], call)
    if chosen is not None:
        graph = graphs[min(int(chosen), len(graphs) - 1)]  # a Case runs its last branch for any larger number
        return _live_nodes(call.inner(operation, graph, first_input=1), used)
    branches = [_live_nodes(call.inner(operation, graph, first_input=1), used) for graph in graphs]
    largest = max(branches, key=_bytes_moved)
    return [replace(node, doubt=node.doubt or LARGER_BRANCH) for node in largest]


def _bytes_moved(nodes: list[GraphNode]) -> int:
    """Bytes that all runs of these nodes read and write."""
    total = 0
    for node in nodes:
        one_run = work(node)
        total += node.runs * (one_run.bytes_read + one_run.bytes_written)
    return total


def _node(operation: "tf.Operation", call: GraphCall) -> GraphNode:
    """The record of an operation that is no call, loop or branch. call: of the graph that it is in."""
    doubt = call.doubt
    for tensor in operation.outputs:
        # A "resource" is a handle of a variable, a "variant" a list of tensors: neither has a size of its own.
        if not tensor.shape.is_fully_defined() and tensor.dtype.name not in ("resource", "variant"):
            doubt = doubt or UNKNOWN_SIZE
    return GraphNode(
        path=f"{call.path}{operation.name}",
        type=operation.type,
        inputs=tuple(_array(tensor) for tensor in operation.inputs),
        outputs=tuple(_array(tensor) for tensor in operation.outputs),
        attributes=_attributes(operation),
        runs=call.runs,
        doubt=doubt,
    )


def _array(tensor: "tf.Tensor") -> GraphArray:
    """The shape and type of a graph's tensor. A side that is not known counts as 1, a shape that is not known as a number's."""
    sides: tuple[int, ...] = ()
    if tensor.shape.rank is not None:
        sides = tuple(1 if side is None else int(side) for side in tensor.shape.as_list())
    return GraphArray(shape=sides, dtype=tensor.dtype.base_dtype.name)


def _attributes(operation: "tf.Operation") -> dict[str, str | int | tuple[int, ...]]:
    """The attributes that an operation's work depends on, by TensorFlow's names: strides, padding, an einsum's equation."""
    attributes: dict[str, str | int | tuple[int, ...]] = {}
    for attribute in operation.op_def.attr:
        if attribute.name not in _ATTRIBUTES:
            continue
        value = operation.get_attr(attribute.name)
        if isinstance(value, bytes):
            attributes[attribute.name] = value.decode()
        elif isinstance(value, list):
            attributes[attribute.name] = tuple(int(number) for number in value)
        elif not isinstance(value, str):
            attributes[attribute.name] = int(value)
    return attributes
