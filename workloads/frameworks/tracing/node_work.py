"""The work of a TensorFlow operation: its kind, FLOPs and bytes, from its type and the shapes of its arrays."""

# A TensorFlow operation that nothing here names is of the kind `other`: its arrays' bytes are all that is known of it.

import math
from collections.abc import Callable

import msgspec

from kernels.networks import flops
from kernels.networks.operations import Amount, Convolution, Kind, Layout, MatrixProduct
from kernels.problems import Stream
from workloads.frameworks.tracing import operation_types
from workloads.frameworks.tracing.graph_node import GraphArray, GraphNode


class NodeWork(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of an operation does."""

    kind: Kind
    flops: int = 0
    #: Bytes that it must at least read and write.
    bytes_read: int = 0
    bytes_written: int = 0
    #: Sides of a matrix product or convolution.
    product: MatrixProduct | Convolution | None = None


def work(node: GraphNode) -> NodeWork:
    """The work of one run of an operation."""
    arrays = (*node.inputs, *node.outputs)
    if node.type in operation_types.HOST or any(array.dtype == "string" for array in arrays):
        return NodeWork(kind="host", bytes_read=_nbytes(node.inputs), bytes_written=_nbytes(node.outputs))
    if node.type in operation_types.VIEWS:
        return NodeWork(kind="view")
    for types, work_of in _BY_TYPE:
        if node.type in types:
            return work_of(node)
    if is_optimizer(node.type):
        return _optimizer_update(node)
    return _whole_arrays(node, "other", 0)


def is_optimizer(type_name: str) -> bool:
    """Whether an operation is an optimizer's whole update of a variable, as Keras 2 made them."""
    return type_name.partition("Apply")[0] in ("Resource", "ResourceSparse") and "Apply" in type_name


def _nbytes(arrays: tuple[GraphArray, ...]) -> int:
    return sum(array.nbytes for array in arrays)


def _largest(node: GraphNode) -> int:
    """Elements of the largest array."""
    return max((array.elements for array in (*node.inputs, *node.outputs)), default=0)


def _whole_arrays(node: GraphNode, kind: Kind, flops_of_one: int) -> NodeWork:
    """Work that reads all of its inputs and writes all of its outputs."""
    return NodeWork(kind=kind, flops=flops_of_one, bytes_read=_nbytes(node.inputs), bytes_written=_nbytes(node.outputs))


def _matrix_product(node: GraphNode) -> NodeWork:
    transposed_a = bool(node.attributes.get("transpose_a") or node.attributes.get("adj_x"))
    transposed_b = bool(node.attributes.get("transpose_b") or node.attributes.get("adj_y"))
    a, b = node.inputs[0].shape, node.inputs[1].shape
    rows, columns = node.outputs[0].shape[-2:]
    depth = a[-2] if transposed_a else a[-1]
    count = math.prod(node.outputs[0].shape[:-2])
    layout: Layout = "nn"  # of two transposed operands too: the product of both, in the other order
    if transposed_a and not transposed_b:
        layout = "tn"
    if transposed_b and not transposed_a:
        layout = "nt"
    one_matrix_b = math.prod(b[:-2]) == 1
    if one_matrix_b and not transposed_a:  # the rows of all of A's matrices meet one B
        rows, count = rows * count, 1
    product = MatrixProduct(m=Amount(rows), n=Amount(columns), k=Amount(depth), count=Amount(count), layout=layout)
    return _product_work(node, "matmul", product)


def _product_work(node: GraphNode, kind: Kind, product: MatrixProduct | Convolution) -> NodeWork:
    whole = _whole_arrays(node, kind, product.flops(0))
    return msgspec.structs.replace(whole, product=product)


def _einsum(node: GraphNode) -> NodeWork:
    if len(node.inputs) != 2:  # of one array: a transpose or a sum
        return _whole_arrays(node, "movement", 0)
    equation = str(node.attributes["equation"])
    m, n, k, count = flops.einsum_product(equation, node.inputs[0].shape, node.inputs[1].shape)
    product = MatrixProduct(m=Amount(m), n=Amount(n), k=Amount(k), count=Amount(count))
    return _product_work(node, "matmul", product)


def _convolution(node: GraphNode) -> NodeWork:
    """Source of the places of inputs: the operations' definitions in TensorFlow's nn_ops."""
    direction = operation_types.CONVOLUTIONS[node.type]
    if direction == "fprop":
        images = node.inputs[0].shape
        filters = node.inputs[1].shape
        result = node.outputs[0].shape
    elif direction == "dgrad":  # the image's sizes, the filters, the output's gradient
        images = node.outputs[0].shape
        filters = node.inputs[1].shape
        result = node.inputs[2].shape
    else:  # the images, the filters' sizes, the output's gradient
        images = node.inputs[0].shape
        filters = node.outputs[0].shape
        result = node.inputs[2].shape
    layout = str(node.attributes["data_format"])
    channels_at = layout.index("C")
    window = filters[:-2]
    sides = [i for i in range(len(layout)) if i not in (0, channels_at)]
    channels = images[channels_at]
    group_channels, group_filters = filters[-2:]
    if "Depthwise" in node.type:
        group_channels, group_filters = 1, channels * group_filters
    product = Convolution(
        direction=direction,
        images=Amount(images[0]),
        image=tuple(Amount(images[i]) for i in sides),
        positions=tuple(Amount(result[i]) for i in sides),
        channels=channels,
        filters=group_filters,
        window=window,
        strides=_along(node, "strides", sides),
        dilations=_along(node, "dilations", sides),
        groups=channels // group_channels,
        padding=str(node.attributes["padding"]).lower(),
        layout=layout,
    )
    return _product_work(node, "conv", product)


def _along(node: GraphNode, name: str, sides: list[int]) -> tuple[int, ...]:
    """An attribute that has a number for each dimension, along an image's sides."""
    numbers = node.attributes.get(name)
    if not isinstance(numbers, tuple) or not numbers:
        return tuple(1 for _ in sides)
    return tuple(numbers[i] for i in sides)


def _fourier_transform(node: GraphNode) -> NodeWork:
    real = node.type in operation_types.REAL_TRANSFORMS
    array = node.outputs[0] if node.type in ("IRFFT", "IRFFT2D", "IRFFT3D") else node.inputs[0]
    dimensions = 2 if "2D" in node.type else 3 if "3D" in node.type else 1
    points = math.prod(array.shape[-dimensions:])
    transforms = array.elements // points if points else 0
    return _whole_arrays(node, "fft", flops.fourier_transform(transforms, points, real))


def _pool(node: GraphNode) -> NodeWork:
    window = node.attributes.get("ksize")
    taps = window if isinstance(window, tuple) else ()
    return _whole_arrays(node, "pooling", flops.pooling(node.outputs[0].elements, taps))


def _pool_gradient(node: GraphNode) -> NodeWork:
    """One addition for each gradient of an output: the last input."""
    return _whole_arrays(node, "pooling", flops.reduction(node.inputs[-1].elements))


def _normalization(node: GraphNode) -> NodeWork:
    weight = Stream.WEIGHTS[operation_types.NORMALIZATIONS[node.type]].flops
    return _whole_arrays(node, "normalization", flops.element_wise(_largest(node), weight))


def _reduction(node: GraphNode) -> NodeWork:
    return _whole_arrays(node, "reduction", flops.reduction(node.inputs[0].elements))


def _gather(node: GraphNode) -> NodeWork:
    """It reads the rows that it takes and their numbers, not the whole table."""
    rows = _nbytes(node.outputs)
    return NodeWork(kind="gather", bytes_read=rows + node.inputs[1].nbytes, bytes_written=rows)


def _scatter(node: GraphNode) -> NodeWork:
    """The updates are the input with most elements beside a table that is scattered into; its rows are read and written."""
    updates = max(node.inputs[1:], key=lambda array: array.nbytes)
    if node.type in ("ScatterNd", "SegmentSum", "UnsortedSegmentSum", "SegmentMean", "UnsortedSegmentMax"):
        whole = _whole_arrays(node, "scatter", 0)
        updates = max(node.inputs, key=lambda array: array.nbytes)
        return msgspec.structs.replace(whole, flops=flops.scatter(updates.elements))
    written = _nbytes(node.outputs) or updates.nbytes
    read = _nbytes(node.inputs) + (0 if node.outputs else updates.nbytes)
    return NodeWork(kind="scatter", flops=flops.scatter(updates.elements), bytes_read=read, bytes_written=written)


def _movement(node: GraphNode) -> NodeWork:
    written = _nbytes(node.outputs)
    if node.type == "TensorListSetItem":
        written = node.inputs[2].nbytes
    elif node.type == "TensorListFromTensor":
        written = node.inputs[0].nbytes
    if node.type in operation_types.TAKE_A_PART:
        return NodeWork(kind="movement", bytes_read=written, bytes_written=written)
    return NodeWork(kind="movement", bytes_read=_nbytes(node.inputs), bytes_written=written)


def _element_wise(node: GraphNode) -> NodeWork:
    if node.type in (
        "AssignAddVariableOp",
        "AssignSubVariableOp",
    ):  # the variable, behind a handle, is as large as the value
        value = node.inputs[1]
        return NodeWork(
            kind="element-wise",
            flops=flops.element_wise(value.elements),
            bytes_read=2 * value.nbytes,
            bytes_written=value.nbytes,
        )
    return _whole_arrays(node, "element-wise", flops.element_wise(_largest(node)))


def _optimizer_update(node: GraphNode) -> NodeWork:
    """Variable and moments, behind handles, are as large as the gradient, the largest input."""
    gradient = max(node.inputs, key=lambda array: array.nbytes)
    handles = sum(array.dtype == "resource" for array in node.inputs)
    known = "adam" if "Adam" in node.type else "sgd"
    weight = Stream.WEIGHTS[known].flops
    return NodeWork(
        kind="element-wise",
        flops=flops.element_wise(gradient.elements, weight),
        bytes_read=(handles + 1) * gradient.nbytes,
        bytes_written=handles * gradient.nbytes,
    )


_BY_TYPE: tuple[tuple[frozenset[str], Callable[[GraphNode], NodeWork]], ...] = (
    (operation_types.PRODUCTS, _matrix_product),
    (frozenset({"Einsum", "XlaEinsum"}), _einsum),
    (frozenset(operation_types.CONVOLUTIONS), _convolution),
    (operation_types.TRANSFORMS | operation_types.REAL_TRANSFORMS, _fourier_transform),
    (operation_types.POOLS, _pool),
    (operation_types.POOL_GRADIENTS, _pool_gradient),
    (frozenset(operation_types.NORMALIZATIONS), _normalization),
    (operation_types.REDUCTIONS, _reduction),
    (operation_types.GATHERS, _gather),
    (operation_types.SCATTERS, _scatter),
    (operation_types.MOVEMENTS, _movement),
    (operation_types.ELEMENT_WISE, _element_wise),
)
