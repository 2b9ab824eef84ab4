"""Matmul through NumPy's BLAS."""

import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import empty, numpy_dtype
from kernels.reference import operands
from kernels.registry import TimedCall, kernel


@kernel(allocates=True, batched=True, fused=True)
def operator(problem: Matmul, a: np.ndarray, b: np.ndarray, *bias: np.ndarray) -> TimedCall:
    """`a @ b` as people write it: BLAS plus a fresh result each call, whose pages the system has to hand out.

    a: m x k, b: k x n (as problem.layout stores them), bias: n numbers or none.
    """
    a, b = _blas_operands(problem, a, b)
    return (lambda: np.maximum(a @ b + bias[0], 0)) if bias else lambda: a @ b


@kernel(batched=True, fused=True)
def blas(problem: Matmul, a: np.ndarray, b: np.ndarray, *bias: np.ndarray) -> TimedCall:
    """BLAS into a result that is already there: packed panels, vector FMAs, blocks sized for the caches. Of many products one
    call of BLAS after the other.

    a: m x k, b: k x n (as problem.layout stores them), bias: n numbers or none.
    """
    a, b = _blas_operands(problem, a, b)
    c = empty(problem.out_shape, a.dtype, place=5)

    def run():
        np.matmul(a, b, out=c)
        return np.maximum(np.add(c, bias[0], out=c), 0, out=c) if bias else c

    return run


def _blas_operands(problem: Matmul, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if problem.math not in ("float32", "float64") or problem.out != problem.dtype:
        raise ValueError(f"NumPy's BLAS multiplies float32 and float64, not {problem.math}")
    assert a.dtype == numpy_dtype(problem.dtype)
    return operands(problem, (a, b))
