"""A traced graph as a list of operations: functions and loops entered, dead operations and folded constants left out."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from workloads.frameworks.tracing import frames
from workloads.frameworks.tracing.frames import BRANCHES, CALLS, LOOPS, Frame
from workloads.frameworks.tracing.graph_node import GraphArray, GraphNode
from workloads.frameworks.tracing.node_work import work

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


def operations(graph, numbers: dict[str, Any] | None = None) -> list[GraphNode]:
    """The operations of a traced step that something needs: its results, the variables that it sets. numbers: of inputs that are
    known, by the name of the input's operation."""
    return _nodes(Frame(graph=graph, numbers=numbers or {}), set(range(len(graph.outputs))))


def _nodes(frame: Frame, wanted: set[int]) -> list[GraphNode]:
    """The live operations of a frame, of whose outputs only those at the places `wanted` are needed."""
    outputs = [frame.graph.outputs[place] for place in sorted(wanted)]
    live = _live_names(outputs, frame.graph.control_outputs)
    used = _used_outputs(frame.graph, live, outputs)
    constants: set[str] = set()
    nodes: list[GraphNode] = []
    for operation in frame.graph.get_operations():
        if operation.name not in live or operation.type in _NOT_RUN:
            if operation.type == "Const":
                constants.add(operation.name)
            continue
        if _is_constant(operation, constants):
            constants.add(operation.name)
            continue
        nodes += _entered(operation, frame, used.get(operation.name, set()))
    return nodes


def _live_names(outputs: Iterable, controls: Iterable) -> set[str]:
    """The names of the operations that the outputs and control outputs depend on."""
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


def _used_outputs(graph, live: set[str], outputs: Iterable) -> dict[str, set[int]]:
    """Operation -> the places of its outputs that live operations or the graph's outputs take."""
    used: dict[str, set[int]] = {}
    for tensor in outputs:
        used.setdefault(tensor.op.name, set()).add(tensor.value_index)
    for operation in graph.get_operations():
        if operation.name in live:
            for tensor in operation.inputs:
                used.setdefault(tensor.op.name, set()).add(tensor.value_index)
    return used


def _is_constant(operation, constants: set[str]) -> bool:
    """Whether TensorFlow computes it once and keeps the number."""
    if operation.type in _ABOUT_SHAPES:
        return all(tensor.shape.is_fully_defined() for tensor in operation.inputs)
    if not operation.inputs or operation.op_def.is_stateful or operation.type in CALLS | LOOPS | BRANCHES:
        return False
    return all(tensor.op.name in constants for tensor in operation.inputs)


def _entered(operation, frame: Frame, used: set[int]) -> list[GraphNode]:
    """The operation, or those of the function or loop that it calls."""
    if operation.type in CALLS:
        graph = frames.function_graph(operation, "f")
        return _nodes(frame.inner(operation, graph), used)
    if operation.type in LOOPS:
        return _loop(operation, frame, used)
    if operation.type in BRANCHES:
        return _branch(operation, frame, used)
    return [_node(operation, frame)]


def _loop(loop, frame: Frame, used: set[int]) -> list[GraphNode]:
    """A loop's condition and body, as often as they run."""
    trips = frames.trip_count(loop, frame)
    doubt = trips.doubt or frame.doubt
    body = frames.function_graph(loop, "body")
    condition = frames.function_graph(loop, "cond")
    numbers = {}
    for place, placeholder in enumerate(body.inputs):
        if frames.is_invariant(loop, place):
            number = frames.known(loop.inputs[place], frame)
            if number is not None:
                numbers[placeholder.op.name] = number
    path = f"{frame.path}{loop.name}/"
    inside = Frame(graph=body, path=path, runs=frame.runs * trips.count, doubt=doubt, numbers=numbers)
    checked = Frame(graph=condition, path=f"{path}cond/", runs=frame.runs * (trips.count + 1), doubt=doubt)
    return _nodes(checked, {0}) + _nodes(inside, _live_variables(body, condition, used))


def _live_variables(body, condition, used: set[int]) -> set[int]:
    """The places of a loop's variables that something behind the loop, its condition or a live variable depends on."""
    live = set(used) | _places(condition.inputs, _live_names(condition.outputs, ()))
    while True:
        outputs = [body.outputs[place] for place in sorted(live)]
        needed = live | _places(body.inputs, _live_names(outputs, body.control_outputs))
        if needed == live:
            return live
        live = needed


def _places(placeholders: Iterable, names: set[str]) -> set[int]:
    return {place for place, tensor in enumerate(placeholders) if tensor.op.name in names}


def _branch(operation, frame: Frame, used: set[int]) -> list[GraphNode]:
    """The branch that is taken, where that is known; else the one that reads and writes most."""
    if operation.type in ("If", "StatelessIf"):
        graphs = [frames.function_graph(operation, name) for name in ("else_branch", "then_branch")]
    else:
        functions = operation.get_attr("branches")
        graphs = [frames.named_graph(operation, function.name) for function in functions]
    chosen: Any = frames.known(operation.inputs[0], frame)
    if chosen is not None:
        graph = graphs[min(int(chosen), len(graphs) - 1)]
        return _nodes(frame.inner(operation, graph, first_input=1), used)
    every = [_nodes(frame.inner(operation, graph, first_input=1), used) for graph in graphs]
    largest = max(every, key=_bytes_moved)
    return [replace(node, doubt=node.doubt or LARGER_BRANCH) for node in largest]


def _bytes_moved(nodes: list[GraphNode]) -> int:
    total = 0
    for node in nodes:
        done = work(node)
        total += node.runs * (done.bytes_read + done.bytes_written)
    return total


def _node(operation, frame: Frame) -> GraphNode:
    doubt = frame.doubt
    for tensor in operation.outputs:
        if not tensor.shape.is_fully_defined() and tensor.dtype.name not in ("resource", "variant"):
            doubt = doubt or UNKNOWN_SIZE
    return GraphNode(
        path=f"{frame.path}{operation.name}",
        type=operation.type,
        inputs=tuple(_array(tensor) for tensor in operation.inputs),
        outputs=tuple(_array(tensor) for tensor in operation.outputs),
        attributes=_attributes(operation),
        runs=frame.runs,
        doubt=doubt,
    )


def _array(tensor) -> GraphArray:
    sides: tuple[int, ...] = ()
    if tensor.shape.rank is not None:
        sides = tuple(1 if side is None else int(side) for side in tensor.shape.as_list())
    return GraphArray(shape=sides, dtype=tensor.dtype.base_dtype.name)


def _attributes(operation) -> dict[str, str | int | tuple[int, ...]]:
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
