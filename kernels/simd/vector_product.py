"""Products with one row or one column: memory limits them, so each value of the matrix is read once, in storage order."""

from collections.abc import Callable

import numba
import numpy as np

from kernels.problems.arrays import empty
from kernels.simd.calls import direct

#: A thread's share is a multiple of this: a cache line of results in float32.
_SHARE = 16


@numba.njit(cache=True, fastmath={"contract"})
def _add_rows(x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
    """y[j] = sum over k of x[k] w[k, j], with eight rows of w in one pass over y. Compiled by Numba."""
    y[:] = 0
    whole = x.size // 8 * 8
    for k in range(0, whole, 8):
        x0 = x[k]
        x1 = x[k + 1]
        x2 = x[k + 2]
        x3 = x[k + 3]
        x4 = x[k + 4]
        x5 = x[k + 5]
        x6 = x[k + 6]
        x7 = x[k + 7]
        for j in range(y.size):
            low = x0 * w[k, j] + x1 * w[k + 1, j] + x2 * w[k + 2, j] + x3 * w[k + 3, j]
            y[j] += low + (x4 * w[k + 4, j] + x5 * w[k + 5, j] + x6 * w[k + 6, j] + x7 * w[k + 7, j])
    for k in range(whole, x.size):
        for j in range(y.size):
            y[j] += x[k] * w[k, j]


@numba.njit(cache=True, fastmath={"contract", "reassoc"})
def _dot_rows(x: np.ndarray, w: np.ndarray, y: np.ndarray, first: int, stop: int) -> None:
    """y[i] = sum over k of w[i, k] x[k] for first <= i < stop, four rows of w at a time: they share the loads of x. The last
    four rows may overlap the four before, which then are computed again. Compiled by Numba."""
    step = min(4, stop - first)
    for start in range(first, stop, 4):
        i = min(start, stop - step)
        if step < 4:
            for row in range(first, stop):
                y[row] = 0
                for k in range(x.size):
                    y[row] += w[row, k] * x[k]
            break
        s0 = s1 = s2 = s3 = x.dtype.type(0)
        for k in range(x.size):
            s0 += w[i, k] * x[k]
            s1 += w[i + 1, k] * x[k]
            s2 += w[i + 2, k] * x[k]
            s3 += w[i + 3, k] * x[k]
        y[i] = s0
        y[i + 1] = s1
        y[i + 2] = s2
        y[i + 3] = s3


@numba.njit(cache=True)
def _alone(x, w, y, dots):
    if dots:
        _dot_rows(x, w, y, 0, y.size)
    else:
        _add_rows(x, w, y)


@numba.njit(cache=True, parallel=True)
def _together(x: np.ndarray, w: np.ndarray, y: np.ndarray, dots: bool, parts: np.ndarray) -> None:
    """The product of a vector x and a matrix w on all threads, compiled by Numba; each thread reads whole rows of w, in
    order.

    dots: y = w x, so a thread computes results of its own. Else y = x w: a thread sums over its rows into its row of `parts`
    (threads x results), and the parts are added in the end.
    """
    size = y.size if dots else x.size
    threads = len(parts)
    share = -(-size // (_SHARE * threads)) * _SHARE
    for thread in numba.prange(threads):
        first = min(thread * share, size)
        stop = min((thread + 1) * share, size)
        if dots:
            _dot_rows(x, w, y, first, stop)
        else:
            _add_rows(x[first:stop], w[first:stop], parts[thread])
    if not dots:
        for j in numba.prange(y.size):
            y[j] = parts[:, j].sum()


def vector_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, threads: int) -> Callable[[], None] | None:
    """A call that computes C = A B, if C has one row or one column and A and B are contiguous, with k > 1; else None.

    a: m x k, b: k x n, c: m x n.
    """
    for vector, matrix in ((a[:1], b), (b[:, :1].T, a.T)):
        is_whole_product = c.size == matrix.shape[1] and len(matrix) > 1
        is_contiguous = matrix.flags.c_contiguous or matrix.flags.f_contiguous
        if not (is_whole_product and is_contiguous and vector.flags.c_contiguous):
            continue
        dots = not matrix.flags.c_contiguous
        arguments = (vector.reshape(-1), matrix.T if dots else matrix, c.reshape(-1), dots)
        if threads == 1:
            return direct(_alone, *arguments)
        return direct(_together, *arguments, empty((threads, c.size), c.dtype))
    return None
