"""The work of TensorFlow's operations from their types and shapes, worked out by hand."""

import pytest

from kernels.networks.operations import Amount
from kernels.problems import Conv, Matmul
from workloads.frameworks.tracing.graph_node import GraphArray, GraphNode
from workloads.frameworks.tracing.node_work import NodeWork, work


def array(*shape, dtype="float32"):
    return GraphArray(shape=shape, dtype=dtype)


HANDLE = array(dtype="resource")


def node(type_name, inputs, outputs, **attributes):
    return GraphNode(path="x", type=type_name, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes)


def test_a_matrix_product_in_each_layout():
    done = work(node("MatMul", [array(8, 5), array(5, 3)], [array(8, 3)], transpose_a=0, transpose_b=0))
    assert (done.kind, done.flops, done.bytes_read, done.bytes_written) == ("matmul", 240, 4 * 55, 4 * 24)
    assert done.product.problem(1, "float32") == Matmul(8, 3, 5)
    done = work(node("MatMul", [array(8, 3), array(5, 3)], [array(8, 5)], transpose_a=0, transpose_b=1))
    assert done.product.problem(1, "float32") == Matmul(8, 5, 3, layout="nt")
    done = work(node("MatMul", [array(8, 5), array(8, 3)], [array(5, 3)], transpose_a=1, transpose_b=0))
    assert done.product.problem(1, "float32") == Matmul(5, 3, 8, layout="tn")


def test_batched_products_and_shared_matrices_by_hand():
    heads = node("BatchMatMulV2", [array(2, 4, 6, 8), array(2, 4, 5, 8)], [array(2, 4, 6, 5)], adj_x=0, adj_y=1)
    assert work(heads).product.problem(1, "float32") == Matmul(6, 5, 8, layout="nt", batch=8)
    assert work(heads).flops == 2 * 8 * 6 * 5 * 8
    rows = node("BatchMatMulV2", [array(2, 6, 9), array(9, 5)], [array(2, 6, 5)], adj_x=0, adj_y=0)
    assert work(rows).product.problem(1, "float32") == Matmul(12, 5, 9)
    einsum = node("Einsum", [array(2, 6, 9), array(9, 4, 8)], [array(2, 6, 4, 8)], equation="abc,cde->abde")
    assert work(einsum).product.problem(1, "float32") == Matmul(12, 32, 9)
    assert work(node("Einsum", [array(2, 6)], [array(6, 2)], equation="ab->ba")).kind == "movement"


def convolution(type_name, inputs, outputs, layout="NHWC", dilation=1):
    stride = (1, 2, 2, 1) if layout == "NHWC" else (1, 1, 2, 2)
    dilations = (1, dilation, dilation, 1)
    attributes = {"data_format": layout, "strides": stride, "dilations": dilations, "padding": "VALID"}
    return work(node(type_name, inputs, outputs, **attributes))


def test_a_strided_grouped_convolution_in_every_direction():
    images, filters, result = array(4, 16, 16, 8), array(3, 3, 4, 12), array(4, 7, 7, 12)
    sides = array(4, dtype="int32")
    every = {
        "fprop": convolution("Conv2D", [images, filters], [result]),
        "dgrad": convolution("Conv2DBackpropInput", [sides, filters, result], [images]),
        "wgrad": convolution("Conv2DBackpropFilter", [images, sides, result], [filters]),
    }
    for direction, done in every.items():
        problem = Conv(4, 16, 16, 8, 12, 3, 3, stride=2, groups=2, direction=direction)
        assert done.product.problem(1, "float32") == problem
        assert done.flops == problem.flops == 2 * 4 * 49 * 9 * 4 * 12
    first = convolution("Conv2D", [array(4, 8, 16, 16), filters], [array(4, 12, 7, 7)], layout="NCHW")
    assert first.product.problem(1, "float32") == Conv(4, 16, 16, 8, 12, 3, 3, stride=2, groups=2, layout="NCHW")


def test_a_dilated_and_a_depthwise_convolution():
    dilated = convolution("Conv2D", [array(4, 16, 16, 8), array(3, 3, 8, 6)], [array(4, 6, 6, 6)], dilation=2)
    assert dilated.flops == 2 * 4 * 36 * 9 * 8 * 6
    assert dilated.product.problem(1, "float32") is None
    depthwise = convolution("DepthwiseConv2dNative", [array(4, 9, 9, 5), array(3, 3, 5, 2)], [array(4, 4, 4, 10)])
    assert depthwise.flops == 2 * 4 * 16 * 9 * 10
    assert (depthwise.product.groups, depthwise.product.filters) == (5, 10)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (
            node("RFFT", [array(2, 8)], [array(2, 5, dtype="complex64")]),
            NodeWork(kind="fft", flops=2 * 60, bytes_read=64, bytes_written=80),
        ),
        (
            node("IRFFT", [array(2, 5, dtype="complex64")], [array(2, 8)]),
            NodeWork(kind="fft", flops=2 * 60, bytes_read=80, bytes_written=64),
        ),
        (
            node("FFT2D", [array(3, 4, 8, dtype="complex64")], [array(3, 4, 8, dtype="complex64")]),
            NodeWork(kind="fft", flops=3 * 5 * 32 * 5, bytes_read=768, bytes_written=768),
        ),
        (
            node("Sum", [array(6, 4), array(1, dtype="int32")], [array(6)]),
            NodeWork(kind="reduction", flops=24, bytes_read=100, bytes_written=24),
        ),
        (
            node("MaxPool", [array(1, 4, 4, 3)], [array(1, 2, 2, 3)], ksize=(1, 2, 2, 1)),
            NodeWork(kind="pooling", flops=36, bytes_read=192, bytes_written=48),
        ),
        (
            node("FusedBatchNormV3", [array(10)], [array(10)]),
            NodeWork(kind="normalization", flops=80, bytes_read=40, bytes_written=40),
        ),
        # 3 rows of a table of 1000, by 64-bit numbers
        (
            node("ResourceGather", [HANDLE, array(3, dtype="int64")], [array(3, 4)]),
            NodeWork(kind="gather", bytes_read=48 + 24, bytes_written=48),
        ),
        (
            node("GatherV2", [array(1000, 4), array(3, dtype="int32"), array(dtype="int32")], [array(3, 4)]),
            NodeWork(kind="gather", bytes_read=48 + 12, bytes_written=48),
        ),
        # 3 rows are read, added to and written back
        (
            node("ResourceScatterAdd", [HANDLE, array(3, dtype="int32"), array(3, 4)], []),
            NodeWork(kind="scatter", flops=12, bytes_read=48 + 48 + 12, bytes_written=48),
        ),
        (
            node("UnsortedSegmentSum", [array(6, 4), array(6, dtype="int32"), array(dtype="int32")], [array(2, 4)]),
            NodeWork(kind="scatter", flops=24, bytes_read=96 + 24 + 4, bytes_written=32),
        ),
        (
            node("AddV2", [array(6, 4), array(4)], [array(6, 4)]),
            NodeWork(kind="element-wise", flops=24, bytes_read=112, bytes_written=96),
        ),
        (
            node("AssignSubVariableOp", [HANDLE, array(6, 4)], []),
            NodeWork(kind="element-wise", flops=24, bytes_read=192, bytes_written=96),
        ),
        # variable, two moments and the gradient are read, three of them written
        (
            node("ResourceApplyAdam", [HANDLE, HANDLE, HANDLE, array(), array(10)], []),
            NodeWork(kind="element-wise", flops=120, bytes_read=160, bytes_written=120),
        ),
        (
            node("StridedSlice", [array(100, 4), array(2, dtype="int32")], [array(5, 4)]),
            NodeWork(kind="movement", bytes_read=80, bytes_written=80),
        ),
        (
            node("Transpose", [array(6, 4), array(2, dtype="int32")], [array(4, 6)]),
            NodeWork(kind="movement", bytes_read=104, bytes_written=96),
        ),
        (node("Reshape", [array(6, 4)], [array(24)]), NodeWork(kind="view")),
        (
            node("LookupTableFindV2", [HANDLE, array(3, dtype="int64")], [array(3)]),
            NodeWork(kind="host", bytes_read=24, bytes_written=12),
        ),
        (
            node("Equal", [array(3, dtype="string"), array(dtype="string")], [array(3, dtype="bool")]),
            NodeWork(kind="host", bytes_written=3),
        ),
        (node("Cholesky", [array(5, 5)], [array(5, 5)]), NodeWork(kind="other", bytes_read=100, bytes_written=100)),
    ],
    ids=lambda value: getattr(value, "type", ""),
)
def test_other_work(operation, expected):
    assert work(operation) == expected


def test_every_number_is_that_of_the_shapes():
    done = work(node("MatMul", [array(8, 5), array(5, 3)], [array(8, 3)]))
    assert done.product.m == Amount(8)
    assert array(6, 4, dtype="bfloat16").nbytes == 48
    assert HANDLE.nbytes == 0
