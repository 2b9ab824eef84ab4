"""Matmul in plain Numba loops: one idea a rung."""

from collections.abc import Callable

import numba
import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel, timed_call

_MOST_NAIVE = 2 * 2048**3


@numba.njit(cache=True, fastmath={"contract"})
def _naive(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """C = A B, each element of C summed up before the next. Compiled by Numba, for one thread."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = c.dtype.type(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


@numba.njit(cache=True, fastmath={"contract"})
def _reordered(a: np.ndarray, b: np.ndarray, c: np.ndarray):
    for i in range(a.shape[0]):
        c[i, :] = 0
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


@numba.njit(cache=True, fastmath={"contract"}, parallel=True)
def _parallel(a: np.ndarray, b: np.ndarray, c: np.ndarray):
    for i in numba.prange(a.shape[0]):
        c[i, :] = 0
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


def _bound(loops: Callable, problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    if problem.math not in ("float32", "float64") or problem.out != problem.dtype or problem.layout != "nn":
        raise ValueError(f"the Numba loops multiply float32 and float64 stored nn, not {problem.math} {problem.layout}")
    c = empty((problem.m, problem.n), a.dtype, place=5)

    return timed_call(loops, a, b, c, result=c)


@kernel(parallel=False, rung=True)
def naive(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Loops in i-j-k order on one thread: B is read down its columns, a cache line for each element.

    a: m x k, b: k x n.
    """
    if problem.flops > _MOST_NAIVE:
        raise ValueError(f"naive would take minutes a call beyond {_MOST_NAIVE / 1e9:.0f} GFLOP")
    return _bound(_naive, problem, a, b)


@kernel(parallel=False, rung=True)
def reordered(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Loops in i-k-j order: B and C are read along their rows, so the compiler can use whole vectors."""
    return _bound(_reordered, problem, a, b)


@kernel
def parallel(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """The i-k-j loops with the rows of A shared out over the threads: what a few lines of Numba give."""
    return _bound(_parallel, problem, a, b)
