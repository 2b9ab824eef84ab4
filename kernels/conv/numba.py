"""Convolution in plain Numba loops: the definition, as it is read from a book."""

import numba
import numpy as np

from kernels.problems import Conv
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel, timed_call


@numba.njit(cache=True, fastmath={"contract"}, parallel=True)
def _fprop(x: np.ndarray, w: np.ndarray, y: np.ndarray, stride: int, top: int, left: int, groups: int) -> None:
    """Fills y (n x p x q x c_out) from images x (n x h x w x c_in) and filters w (r x s x c_in / groups x c_out). Compiled by
    Numba; threads share the images.

    top, left: rows of zeros above and columns to the left of an image.
    """
    channels = w.shape[2]
    filters = y.shape[3] // groups
    for n in numba.prange(y.shape[0]):
        for p in range(y.shape[1]):
            for q in range(y.shape[2]):
                for o in range(y.shape[3]):
                    first = o // filters * channels
                    total = y.dtype.type(0)
                    for i in range(w.shape[0]):
                        for j in range(w.shape[1]):
                            row = p * stride + i - top
                            column = q * stride + j - left
                            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                                for c in range(channels):
                                    total += x[n, row, column, first + c] * w[i, j, c, o]
                    y[n, p, q, o] = total


@numba.njit(cache=True, fastmath={"contract"}, parallel=True)
def _dgrad(dy: np.ndarray, w: np.ndarray, dx: np.ndarray, stride: int, top: int, left: int, groups: int) -> None:
    """Fills dx (n x h x w x c_in), the gradient of the images, from dy (n x p x q x c_out) and filters w (r x s x c_in /
    groups x c_out): each product is added to the pixel that it came from. Compiled by Numba; threads share the images.

    top, left: rows of zeros above and columns to the left of an image.
    """
    channels = w.shape[2]
    filters = dy.shape[3] // groups
    for n in numba.prange(dx.shape[0]):
        dx[n] = 0
        for p in range(dy.shape[1]):
            for q in range(dy.shape[2]):
                for o in range(dy.shape[3]):
                    first = o // filters * channels
                    for i in range(w.shape[0]):
                        for j in range(w.shape[1]):
                            row = p * stride + i - top
                            column = q * stride + j - left
                            if 0 <= row < dx.shape[1] and 0 <= column < dx.shape[2]:
                                for c in range(channels):
                                    dx[n, row, column, first + c] += dy[n, p, q, o] * w[i, j, c, o]


@numba.njit(cache=True, fastmath={"contract"}, parallel=True)
def _wgrad(x: np.ndarray, dy: np.ndarray, dw: np.ndarray, stride: int, top: int, left: int, groups: int) -> None:
    """Fills dw (r x s x c_in / groups x c_out), the gradient of the filters, from images x (n x h x w x c_in) and dy (n x p x
    q x c_out): a sum over all images and pixels. Compiled by Numba; threads share the filters.

    top, left: rows of zeros above and columns to the left of an image.
    """
    channels = dw.shape[2]
    filters = dy.shape[3] // groups
    for o in numba.prange(dy.shape[3]):
        first = o // filters * channels
        dw[:, :, :, o] = 0
        for n in range(dy.shape[0]):
            for p in range(dy.shape[1]):
                for q in range(dy.shape[2]):
                    for i in range(dw.shape[0]):
                        for j in range(dw.shape[1]):
                            row = p * stride + i - top
                            column = q * stride + j - left
                            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                                for c in range(channels):
                                    dw[i, j, c, o] += x[n, row, column, first + c] * dy[n, p, q, o]


@kernel(rung=True)
def direct(problem: Conv, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Seven loops in the order of the definition, the images (the filters, for wgrad) shared out over the
    threads: each product reads its two factors anew, the filter's a row apart.

    a, b: the operands, shaped as problem.operand_shapes says.
    """
    if problem.math not in ("float32", "float64") or problem.layout != "NHWC":
        raise ValueError(
            f"the Numba loops convolve float32 and float64 in NHWC, not {problem.math} in {problem.layout}"
        )
    loops = {"fprop": _fprop, "dgrad": _dgrad, "wgrad": _wgrad}[problem.direction]
    out = empty(problem.out_shape, a.dtype, place=5)
    (top, _), (left, _) = problem.pads
    return timed_call(loops, a, b, out, problem.stride, top, left, problem.groups, result=out)
