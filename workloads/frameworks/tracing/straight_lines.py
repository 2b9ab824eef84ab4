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
    """The operations of a training step from its traces at two batches, with sizes and work as straight lines of the batch.

    first, second: the operations of each trace. batches: the number of samples of each; the first is the user's. An operation
    that is not in both traces, or whose sizes or work are no straight lines, has the numbers of the first at any batch.
    scopes: says which layer an operation is from.
    """
    result = []
    for node, partner in zip(first, _partners(first, second), strict=True):
        try:
            if partner is None:
                raise NotStraight
            result.append(_operation(node, partner, batches, scopes))
        except NotStraight:
            result.append(_operation_of_one_batch(node, batches[0], scopes))
    return result


def _partners(first: list[GraphNode], second: list[GraphNode]) -> list[GraphNode | None]:
    """For each operation of the first trace the same one in the second; None where that has none.

    Where both have operations of the same types in the same order, they are matched by that order: a layer that is made anew in
    each trace has another name in each. Else they are matched by path and type.
    """
    if [node.type for node in first] == [node.type for node in second]:
        return list(second)
    by_path = {(node.path, node.type): node for node in second}
    return [by_path.get((node.path, node.type)) for node in first]


def operations_of_one_batch(nodes: list[GraphNode], batch: int, scopes: LayerScopes) -> list[Operation]:
    """The operations of a step that traces at one batch only; their numbers hold for that batch."""
    return [_operation_of_one_batch(node, batch, scopes) for node in nodes]


def _operation_of_one_batch(node: GraphNode, batch: int, scopes: LayerScopes) -> Operation:
    """An operation whose numbers are known for one batch only, marked so (`scales=False`)."""
    operation = _operation(node, node, (batch, batch), scopes)
    return msgspec.structs.replace(operation, scales=False)


def _operation(first: GraphNode, second: GraphNode, batches: tuple[int, int], scopes: LayerScopes) -> Operation:
    """One operation with its sizes and work as straight lines of the batch. first, second: it at each of the two batches.

    Raises: NotStraight where one of its numbers is no straight line.
    """
    first_work, second_work = work(first), work(second)
    inputs = _arrays(first.inputs, second.inputs, batches)
    outputs = _arrays(first.outputs, second.outputs, batches)
    layer = scopes.layer(first.path)
    operation = Operation(
        type=first.type,
        kind=first_work.kind,
        layer=layer,
        phase=scopes.phase(first.path),
        inputs=inputs,
        outputs=outputs,
        flops=_line(first_work.flops, second_work.flops, batches),
        bytes_read=_line(first_work.bytes_read, second_work.bytes_read, batches),
        bytes_written=_line(first_work.bytes_written, second_work.bytes_written, batches),
        runs=_line(first.runs, second.runs, batches),
        product=_product(first_work.product, second_work.product, batches),
        doubt=first.doubt,
        in_cudnn=scopes.in_cudnn(layer),
    )
    _require_straight(operation, first, batches)
    return operation


def _line(first: int, second: int, batches: tuple[int, int]) -> Amount:
    """The straight line through a number at two batches: a fixed part and a part for each sample.

    Raises: NotStraight where the part for each sample is no whole number.
    """
    if first == second:
        return Amount(fixed=first)
    per_sample, rest = divmod(second - first, batches[1] - batches[0])
    if rest:
        raise NotStraight
    return Amount(fixed=first - per_sample * batches[0], per_sample=per_sample)


def _arrays(
    first: tuple[GraphArray, ...], second: tuple[GraphArray, ...], batches: tuple[int, int]
) -> tuple[Array, ...]:
    """An operation's arrays with each side as a straight line of the batch. first, second: them at each of the two batches.

    Raises: NotStraight where they differ in number or dimensions, or a side is no straight line.
    """
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
    """A matrix product or convolution with its sizes as straight lines of the batch; None of an operation that is neither.

    Raises: NotStraight for a size that is no line, and for a field that is no size and differs between the batches.
    """
    if first is None or second is None:
        return None
    fields = {}
    for name in first.__struct_fields__:
        fields[name] = _field(getattr(first, name), getattr(second, name), batches)
    return type(first)(**fields)


def _field(first: Any, second: Any, batches: tuple[int, int]) -> Any:
    """One field of a product from its values at two batches: sizes as straight lines, anything else as it is at both.

    A size at one batch is an Amount that has a fixed part only.
    Raises: NotStraight.
    """
    if isinstance(first, Amount):
        return _line(first.fixed, second.fixed, batches)
    if isinstance(first, tuple) and first and isinstance(first[0], Amount):
        return tuple(_line(one.fixed, other.fixed, batches) for one, other in zip(first, second, strict=True))
    if first != second:
        raise NotStraight
    return first


def _require_straight(operation: Operation, node: GraphNode, batches: tuple[int, int]) -> None:
    """Raises NotStraight where an operation's work is no straight line of the batch: a product of a batch by itself grows faster.

    A line goes through any two points, so a third batch is tried: the work of its sizes must be what the lines say.
    """
    third = 2 * batches[1] - batches[0]
    if third == batches[0]:  # there is one batch only
        return
    inputs = _arrays_at(operation.inputs, third)
    outputs = _arrays_at(operation.outputs, third)
    third_work = work(msgspec.structs.replace(node, inputs=inputs, outputs=outputs))
    expected = NodeWork(
        kind=third_work.kind,
        flops=operation.flops.at(third),
        bytes_read=operation.bytes_read.at(third),
        bytes_written=operation.bytes_written.at(third),
        product=third_work.product,
    )
    if third_work != expected:
        raise NotStraight


def _arrays_at(arrays: tuple[Array, ...], batch: int) -> tuple[GraphArray, ...]:
    """The arrays with the sizes that they have at a batch."""
    return tuple(GraphArray(shape=sizes(array.shape, batch), dtype=array.dtype) for array in arrays)
