"""A step traced at two batches as operations whose sizes, FLOPs and bytes are straight lines of the batch."""

from typing import Any

import msgspec

from kernels.networks.operations import Amount, Array, Convolution, MatrixProduct, Operation, sizes
from workloads.frameworks.tracing.graph_node import GraphArray, GraphNode
from workloads.frameworks.tracing.layer_scopes import LayerScopes
from workloads.frameworks.tracing.node_work import NodeWork, work


class NotStraight(ValueError):
    """Two numbers between which no line with a whole slope lies, or operations that are not the same at both batches."""


def operations(
    first: list[GraphNode], second: list[GraphNode], batches: tuple[int, int], scopes: LayerScopes
) -> list[Operation]:
    """The operations of a step from its traces at two batches; `first` is that of the user's batch.

    An operation that is not in both traces, or whose sizes or work are no straight lines, has the numbers of the first.
    """
    lined_up = []
    for node, partner in zip(first, _partners(first, second), strict=True):
        try:
            if partner is None:
                raise NotStraight
            lined_up.append(_operation(node, partner, batches, scopes))
        except NotStraight:
            lined_up.append(_at_one_batch(node, batches[0], scopes))
    return lined_up


def _partners(first: list[GraphNode], second: list[GraphNode]) -> list[GraphNode | None]:
    """The same operations in the second trace: by their order where both have the same, else by their paths.

    A layer that is made anew in each trace has a new name in each.
    """
    if [node.type for node in first] == [node.type for node in second]:
        return list(second)
    by_path = {(node.path, node.type): node for node in second}
    return [by_path.get((node.path, node.type)) for node in first]


def operations_of_one_batch(nodes: list[GraphNode], batch: int, scopes: LayerScopes) -> list[Operation]:
    """The operations of a step that traces at one batch only."""
    return [_at_one_batch(node, batch, scopes) for node in nodes]


def _at_one_batch(node: GraphNode, batch: int, scopes: LayerScopes) -> Operation:
    operation = _operation(node, node, (batch, batch), scopes)
    return msgspec.structs.replace(operation, scales=False)


def _operation(first: GraphNode, second: GraphNode, batches: tuple[int, int], scopes: LayerScopes) -> Operation:
    """Raises: NotStraight where a number of it is no straight line."""
    done, done_second = work(first), work(second)
    inputs = _arrays(first.inputs, second.inputs, batches)
    outputs = _arrays(first.outputs, second.outputs, batches)
    layer = scopes.layer(first.path)
    operation = Operation(
        type=first.type,
        kind=done.kind,
        layer=layer,
        phase=scopes.phase(first.path),
        inputs=inputs,
        outputs=outputs,
        flops=_line(done.flops, done_second.flops, batches),
        bytes_read=_line(done.bytes_read, done_second.bytes_read, batches),
        bytes_written=_line(done.bytes_written, done_second.bytes_written, batches),
        runs=_line(first.runs, second.runs, batches),
        product=_product(done.product, done_second.product, batches),
        doubt=first.doubt,
        in_cudnn=scopes.in_cudnn(layer),
    )
    _require_straight(operation, first, batches)
    return operation


def _line(first: int, second: int, batches: tuple[int, int]) -> Amount:
    """The line through a number at two batches."""
    if first == second:
        return Amount(first)
    slope, rest = divmod(second - first, batches[1] - batches[0])
    if rest:
        raise NotStraight
    return Amount(first - slope * batches[0], slope)


def _arrays(
    first: tuple[GraphArray, ...], second: tuple[GraphArray, ...], batches: tuple[int, int]
) -> tuple[Array, ...]:
    if [len(array.shape) for array in first] != [len(array.shape) for array in second]:
        raise NotStraight
    arrays = []
    for one, other in zip(first, second, strict=True):
        pairs = zip(one.shape, other.shape, strict=True)
        shape = tuple(_line(side, side_second, batches) for side, side_second in pairs)
        arrays.append(Array(shape=shape, dtype=one.dtype))
    return tuple(arrays)


def _product(
    first: MatrixProduct | Convolution | None, second: MatrixProduct | Convolution | None, batches: tuple[int, int]
) -> MatrixProduct | Convolution | None:
    """The sides of a product as lines. What is no line must be the same at both batches."""
    if first is None or second is None:
        return None
    fields = {}
    for name in first.__struct_fields__:
        fields[name] = _field(getattr(first, name), getattr(second, name), batches)
    return type(first)(**fields)


def _field(first: Any, second: Any, batches: tuple[int, int]) -> Any:
    if isinstance(first, Amount):
        return _line(first.fixed, second.fixed, batches)
    if isinstance(first, tuple) and first and isinstance(first[0], Amount):
        return tuple(_line(one.fixed, other.fixed, batches) for one, other in zip(first, second, strict=True))
    if first != second:
        raise NotStraight
    return first


def _require_straight(operation: Operation, node: GraphNode, batches: tuple[int, int]) -> None:
    """Two points lie on a line always: a third batch, with the sizes that the lines give it, must lie on it too.

    Raises: NotStraight for work that grows otherwise, as a product of a batch by itself does.
    """
    third = 2 * batches[1] - batches[0]
    if third == batches[0]:
        return
    done = work(
        msgspec.structs.replace(node, inputs=_at(operation.inputs, third), outputs=_at(operation.outputs, third))
    )
    expected = NodeWork(
        kind=done.kind,
        flops=operation.flops.at(third),
        bytes_read=operation.bytes_read.at(third),
        bytes_written=operation.bytes_written.at(third),
        product=done.product,
    )
    if done != expected:
        raise NotStraight


def _at(arrays: tuple[Array, ...], batch: int) -> tuple[GraphArray, ...]:
    return tuple(GraphArray(shape=sizes(array.shape, batch), dtype=array.dtype) for array in arrays)
