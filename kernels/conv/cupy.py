"""Convolution as im2col and cuBLAS, all on CuPy's arrays."""

from collections.abc import Callable

import cupy
import numpy as np

from kernels.cuda import cublas
from kernels.problems import Conv, Matmul
from kernels.problems.arrays import ITEM_BYTES
from kernels.registry import TimedCall, kernel


@kernel
def im2col(problem: Conv, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Every window of the batch copied into one large matrix, r * s times the images' bytes, then one cuBLAS product.

    a, b: the operands, shaped as problem.operand_shapes says, on the GPU.
    """
    _refuse(problem)
    layout = {"fprop": "nn", "dgrad": "nt", "wgrad": "tn"}[problem.direction]
    product = Matmul(*problem.gemm, dtype=problem.dtype, math=problem.math, layout=layout)
    if problem.direction == "dgrad":
        return _scattered(problem, cublas.product(product, _rows(a), _rows(b)))
    columns, fill = _columns(problem, a)
    multiply = cublas.product(product, columns, _rows(b))

    def run():
        fill()
        return multiply().reshape(problem.out_shape)

    return run


def _rows(array: cupy.ndarray) -> cupy.ndarray:
    """An array as a matrix with its last axis for columns."""
    return array.reshape(-1, array.shape[-1])


def _refuse(problem: Conv) -> None:
    """Raises ValueError for problems that this kernel does not compute."""
    if problem.layout != "NHWC" or problem.groups > 1:
        raise ValueError(f"im2col on the GPU is for NHWC in one group, not for {problem.layout} in {problem.groups}")
    if problem.direction == "dgrad" and problem.dtype in ("float16", "bfloat16"):
        raise ValueError(f"sums over windows of {problem.dtype} columns would be rounded at every tap")
    if problem.dtype not in ("float64", "float32", "float16", "bfloat16"):
        raise ValueError(f"cublasGemmEx is called for 64, 32 and 16 bits here, not for {problem.dtype}")
    positions = problem.n * problem.p * problem.q
    taps = problem.r * problem.s * problem.c_in
    need = positions * taps * ITEM_BYTES[problem.dtype]
    free = cupy.cuda.Device().mem_info[0]
    if need > free // 2:
        have = f"at most half of the free {free / 2**30:.3g} are taken"
        raise ValueError(f"its columns need {need / 2**30:.3g} GiB of GPU memory; {have}")


def _padded(problem: Conv, dtype: np.dtype | str) -> tuple[cupy.ndarray, cupy.ndarray]:
    """(zeroed images with room for the padding, the view of them that holds the images)."""
    (top, bottom), (left, right) = problem.pads
    padded = cupy.zeros((problem.n, problem.h + top + bottom, problem.w + left + right, problem.c_in), dtype)
    return padded, padded[:, top : top + problem.h, left : left + problem.w]


def _columns(problem: Conv, x: cupy.ndarray) -> tuple[cupy.ndarray, Callable[[], None]]:
    """(the im2col matrix, one row a position of the filter, and the call that fills it from the images). For a 1 x 1 filter
    at every pixel the matrix is the images themselves."""
    taps = problem.r * problem.s * problem.c_in
    is_padded = problem.pads != ((0, 0), (0, 0))
    if not is_padded and (problem.r, problem.s, problem.stride) == (1, 1, 1):
        return x.reshape(-1, taps), lambda: None
    padded, inside = _padded(problem, x.dtype) if is_padded else (x, x)
    image = padded.strides[0]
    row = padded.strides[1]
    pixel = padded.strides[2]
    channel = padded.strides[3]
    shape = (problem.n, problem.p, problem.q, problem.r, problem.s, problem.c_in)
    strides = (image, problem.stride * row, problem.stride * pixel, row, pixel, channel)
    windows = cupy.lib.stride_tricks.as_strided(padded, shape, strides)
    columns = cupy.empty(shape, x.dtype)

    def fill():
        if is_padded:
            cupy.copyto(inside, x)
        cupy.copyto(columns, windows)

    return columns.reshape(-1, taps), fill


def _scattered(problem: Conv, product: Callable[[], cupy.ndarray]) -> TimedCall:
    """The timed call that computes dx (col2im): it adds the product's columns, tap by tap, to the pixels that the tap meets.

    product: gives the matrix of n p q rows and r s c_in columns.
    """
    padded, inside = _padded(problem, problem.dtype)
    dx = cupy.empty(problem.x_shape, problem.dtype)
    step = problem.stride
    pixels = {}  # those that a tap meets, by its row and column
    for i in range(problem.r):
        rows = slice(i, i + (problem.p - 1) * step + 1, step)
        for j in range(problem.s):
            pixels[i, j] = padded[:, rows, j : j + (problem.q - 1) * step + 1 : step]
    shape = (problem.n, problem.p, problem.q, problem.r, problem.s, problem.c_in)

    def run():
        """Multiplies, then adds each tap's columns to its pixels; the padding is cut off at the end."""
        columns = product().reshape(shape)
        padded.fill(0)
        for (i, j), target in pixels.items():
            cupy.add(target, columns[:, :, :, i, j], out=target)
        cupy.copyto(dx, inside)
        return dx

    return run
