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
    """The FLOPs, bytes and kind of one run of a TensorFlow operation, by its type and the shapes of its arrays."""
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
    return _whole_arrays(node, "other", run_flops=0)


def is_optimizer(type_name: str) -> bool:
    """Whether an operation type is an optimizer's whole update of a variable, as Keras 2 made them: `ResourceApplyAdam`,
    `ResourceSparseApplyMomentum`."""
    variable, apply, _ = type_name.partition("Apply")
    return apply != "" and variable in ("Resource", "ResourceSparse")


def _nbytes(arrays: tuple[GraphArray, ...]) -> int:
    return sum(array.nbytes for array in arrays)


def _largest_elements(node: GraphNode) -> int:
    """Elements of the largest array among an operation's inputs and outputs."""
    return max((array.elements for array in (*node.inputs, *node.outputs)), default=0)


def _whole_arrays(node: GraphNode, kind: Kind, run_flops: int) -> NodeWork:
    """The work of an operation that reads all of its inputs and writes all of its outputs. run_flops: FLOPs of one run."""
    return NodeWork(kind=kind, flops=run_flops, bytes_read=_nbytes(node.inputs), bytes_written=_nbytes(node.outputs))


def _matrix_product(node: GraphNode) -> NodeWork:
    """The work of a MatMul or BatchMatMul: `count` products of an m x k matrix and a k x n matrix.

    The last two sides of each array are the matrix, those before are the batch.
    """
    transposed_a = bool(node.attributes.get("transpose_a") or node.attributes.get("adj_x"))
    transposed_b = bool(node.attributes.get("transpose_b") or node.attributes.get("adj_y"))
    a, b = (array.shape for array in node.inputs)
    result = node.outputs[0].shape
    rows, columns = result[-2:]
    depth = a[-2] if transposed_a else a[-1]
    count = math.prod(result[:-2])
    # n: as stored, t: transposed. Two transposed operands count as "nn": A'B' is (BA)', a product of both as stored.
    layout: Layout = "nn"
    if transposed_a and not transposed_b:
        layout = "tn"
    if transposed_b and not transposed_a:
        layout = "nt"
    one_matrix_b = math.prod(b[:-2]) == 1
    if one_matrix_b and not transposed_a:  # all matrices A times one B are one product of a taller A
        rows, count = rows * count, 1
    product = MatrixProduct(m=Amount(rows), n=Amount(columns), k=Amount(depth), count=Amount(count), layout=layout)
    return _product_work(node, "matmul", product)


def _product_work(node: GraphNode, kind: Kind, product: MatrixProduct | Convolution) -> NodeWork:
    """The work of an operation that computes this product and reads and writes whole arrays."""
    # The sizes of this product do not grow with the batch, so that its FLOPs are the same at batch 0 and any other.
    whole = _whole_arrays(node, kind, product.flops(0))
    return msgspec.structs.replace(whole, product=product)


def _einsum(node: GraphNode) -> NodeWork:
    """The work of an Einsum as matrix products; of a single array it is a transpose or a sum and counts as a movement."""
    if len(node.inputs) != 2:
        return _whole_arrays(node, "movement", run_flops=0)
    equation = str(node.attributes["equation"])
    m, n, k, count = flops.einsum_product(equation, node.inputs[0].shape, node.inputs[1].shape)
    product = MatrixProduct(m=Amount(m), n=Amount(n), k=Amount(k), count=Amount(count))
    return _product_work(node, "matmul", product)


def _convolution(node: GraphNode) -> NodeWork:
    """The work of a convolution or of one of its gradients, by images, filters and result of the forward convolution.

    fprop, dgrad and wgrad are the forward pass, the gradient of the images and the gradient of the filters. Their inputs are in
    the order of TensorFlow's nn_ops.
    """
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
    """The numbers of an attribute like `strides` for the dimensions that are sides of an image; 1 for each where it lacks.

    The attribute has a number for each dimension of the array, batch and channels included. sides: indices of an image's sides.
    """
    numbers = node.attributes.get(name)
    if not isinstance(numbers, tuple) or not numbers:
        return tuple(1 for _ in sides)
    return tuple(numbers[i] for i in sides)


def _fourier_transform(node: GraphNode) -> NodeWork:
    """The work of a Fourier transform over the last one, two or three sides of an array.

    The points are those of the array that is real, where one is: the other has only half of them.
    """
    real = node.type in operation_types.REAL_TRANSFORMS
    array = node.outputs[0] if node.type in ("IRFFT", "IRFFT2D", "IRFFT3D") else node.inputs[0]
    dimensions = 1
    if "2D" in node.type:
        dimensions = 2
    elif "3D" in node.type:
        dimensions = 3
    points = math.prod(array.shape[-dimensions:])
    transforms = array.elements // points if points else 0
    return _whole_arrays(node, "fft", flops.fourier_transform(transforms, points, real))


def _pool(node: GraphNode) -> NodeWork:
    """The work of a pooling: every output is the sum or the largest of a window. `ksize`: the window's sides."""
    sides = node.attributes.get("ksize")
    window = sides if isinstance(sides, tuple) else ()
    return _whole_arrays(node, "pooling", flops.pooling(node.outputs[0].elements, window))


def _pool_gradient(node: GraphNode) -> NodeWork:
    """The work of a pooling's gradient: one addition for each element of the output's gradient, which is the last input."""
    return _whole_arrays(node, "pooling", flops.reduction(node.inputs[-1].elements))


def _normalization(node: GraphNode) -> NodeWork:
    """The work of a batch normalization or of its gradient, from the FLOPs an element of the stream kernel that does the same."""
    element_flops = Stream.WEIGHTS[operation_types.NORMALIZATIONS[node.type]].flops
    return _whole_arrays(node, "normalization", flops.element_wise(_largest_elements(node), element_flops))


def _reduction(node: GraphNode) -> NodeWork:
    return _whole_arrays(node, "reduction", flops.reduction(node.inputs[0].elements))


def _gather(node: GraphNode) -> NodeWork:
    """The work of taking rows of a table. It reads these rows and their numbers (the second input), not the whole table."""
    rows = _nbytes(node.outputs)
    return NodeWork(kind="gather", bytes_read=rows + node.inputs[1].nbytes, bytes_written=rows)


def _scatter(node: GraphNode) -> NodeWork:
    """The work of adding rows, the updates, into a table at given places. The updates are the largest input.

    ScatterNd and segment operations make a new table. The others take a table as their first input: either they return it as a
    whole, or it is a variable behind a handle, of which as many bytes are read and written as the updates have.
    """
    if node.type in ("ScatterNd", "SegmentSum", "UnsortedSegmentSum", "SegmentMean", "UnsortedSegmentMax"):
        updates = max(node.inputs, key=lambda array: array.nbytes)
        return _whole_arrays(node, "scatter", flops.scatter(updates.elements))
    updates = max(node.inputs[1:], key=lambda array: array.nbytes)
    read = _nbytes(node.inputs)
    written = _nbytes(node.outputs)
    if not node.outputs:
        read += updates.nbytes
    if not written:
        written = updates.nbytes
    return NodeWork(kind="scatter", flops=flops.scatter(updates.elements), bytes_read=read, bytes_written=written)


def _movement(node: GraphNode) -> NodeWork:
    """The work of an operation that copies, selects or repeats numbers.

    Two operations on lists of tensors have a list as their output, whose size is not known: they write one element (their third
    input) or the whole array (their first).
    """
    written = _nbytes(node.outputs)
    if node.type == "TensorListSetItem":
        written = node.inputs[2].nbytes
    elif node.type == "TensorListFromTensor":
        written = node.inputs[0].nbytes
    if node.type in operation_types.TAKE_A_PART:
        return NodeWork(kind="movement", bytes_read=written, bytes_written=written)
    return NodeWork(kind="movement", bytes_read=_nbytes(node.inputs), bytes_written=written)


def _element_wise(node: GraphNode) -> NodeWork:
    """The work of one pass over whole arrays, one FLOP an element.

    `variable += value` reads both and writes the variable, which is as large as the value: its handle, the first input, has no
    size.
    """
    if node.type in ("AssignAddVariableOp", "AssignSubVariableOp"):
        value = node.inputs[1]
        return NodeWork(
            kind="element-wise",
            flops=flops.element_wise(value.elements),
            bytes_read=2 * value.nbytes,
            bytes_written=value.nbytes,
        )
    return _whole_arrays(node, "element-wise", flops.element_wise(_largest_elements(node)))


def _optimizer_update(node: GraphNode) -> NodeWork:
    """The work of an optimizer's update of one variable.

    It reads the gradient, and reads and writes the variable and its moments. Variable and moments are inputs as handles without
    a size. Each is as large as the gradient, which is the largest input.
    """
    gradient = max(node.inputs, key=lambda array: array.nbytes)
    handles = sum(array.dtype == "resource" for array in node.inputs)
    element_flops = Stream.WEIGHTS["adam" if "Adam" in node.type else "sgd"].flops
    return NodeWork(
        kind="element-wise",
        flops=flops.element_wise(gradient.elements, element_flops),
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
