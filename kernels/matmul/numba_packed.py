"""Matmul in plain Numba loops over panels: the order in memory is the order of use."""

import functools

import numba
import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import empty
from kernels.reference import operands
from kernels.registry import TimedCall, kernel, timed_call

#: Steps in k that go onto two rows of C in one pass over them.
_AT_ONCE = 4
#: Steps in k and columns of a panel of B: 32 KiB of float32, a first-level cache.
_DEPTH = 128
_COLUMNS = 64
#: Rows of a panel of A.
_ROWS = 64


@numba.njit(cache=True)
def _pack(target, source):
    """Copies a block into the corner of its panel `target` and fills the rest with 0. Compiled by Numba."""
    target[:] = 0
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@numba.njit(cache=True, fastmath={"contract"})
def _panel_product(left: np.ndarray, right: np.ndarray, depth: int, c: np.ndarray) -> None:
    """C += left right, of the rows and columns that C has and of `depth` steps rounded up to _AT_ONCE. Compiled by Numba.

    left, right: a panel of A, rows x steps, and of B, steps x columns. c: the piece of C that they belong to.
    """
    row = np.empty(_COLUMNS, right.dtype)
    next_row = np.empty(_COLUMNS, right.dtype)
    for i in range(0, c.shape[0], 2):
        row[:] = 0
        next_row[:] = 0
        for k in range(0, depth, _AT_ONCE):
            # Load: four steps of two rows of A stay in registers for all columns.
            a0 = left[i, k]
            a1 = left[i, k + 1]
            a2 = left[i, k + 2]
            a3 = left[i, k + 3]
            next_a0 = left[i + 1, k]
            next_a1 = left[i + 1, k + 1]
            next_a2 = left[i + 1, k + 2]
            next_a3 = left[i + 1, k + 3]
            # Multiply: four numbers of B meet both rows.
            for j in range(_COLUMNS):
                b0 = right[k, j]
                b1 = right[k + 1, j]
                b2 = right[k + 2, j]
                b3 = right[k + 3, j]
                row[j] += a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3
                next_row[j] += next_a0 * b0 + next_a1 * b1 + next_a2 * b2 + next_a3 * b3
        # Store: the rows and columns that C has.
        for j in range(c.shape[1]):
            c[i, j] += row[j]
        if i + 1 < c.shape[0]:
            for j in range(c.shape[1]):
                c[i + 1, j] += next_row[j]


def _product(a: np.ndarray, b: np.ndarray, c: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """C = A B. For each stretch of k all panels of B are packed first; then each thread packs its panels of A and multiplies.
    Compiled by Numba.

    left, right: room for all panels of A and of B: panel x rows x steps, and panel x steps x columns.
    """
    k = a.shape[1]
    for i in numba.prange(left.shape[0]):
        c[i * _ROWS : (i + 1) * _ROWS] = 0
    for k0 in range(0, k, _DEPTH):
        depth = min(_DEPTH, k - k0)
        for p in numba.prange(right.shape[0]):
            _pack(right[p], b[k0 : k0 + depth, p * _COLUMNS : (p + 1) * _COLUMNS])
        for i in numba.prange(left.shape[0]):
            _pack(left[i], a[i * _ROWS : (i + 1) * _ROWS, k0 : k0 + depth])
            for p in range(right.shape[0]):
                _panel_product(
                    left[i], right[p], depth, c[i * _ROWS : (i + 1) * _ROWS, p * _COLUMNS : (p + 1) * _COLUMNS]
                )


@functools.cache
def _compiled(dtype: str):
    """Compiled for arrays of any strides, so that one compilation serves all layouts."""
    stored, panels = f"{dtype}[:,:]", f"{dtype}[:,:,::1]"
    return numba.njit(f"({stored}, {stored}, {stored}, {panels}, {panels})", cache=True, parallel=True)(_product)


@kernel(rung=True)
def packed(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Panels: blocks of A and B are copied into the order in which they are used, B's fitting the first-level
    cache, and four steps in k go onto two rows of C in one pass over them.

    a: m x k, b: k x n, as problem.layout stores them.
    """
    if problem.math not in ("float32", "float64") or problem.out != problem.dtype:
        raise ValueError(f"the Numba panels multiply float32 and float64, not {problem.math} to {problem.out}")
    a, b = operands(problem, (a, b))
    c = empty((problem.m, problem.n), a.dtype, place=5)
    left = empty((-(-problem.m // _ROWS), _ROWS, _DEPTH), a.dtype, place=2)
    right = empty((-(-problem.n // _COLUMNS), _DEPTH, _COLUMNS), a.dtype, place=6)
    multiply = _compiled(problem.dtype)

    return timed_call(multiply, a, b, c, left, right, result=c)
