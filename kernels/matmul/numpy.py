"""Matmul through NumPy's BLAS."""

import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import empty, numpy_dtype
from kernels.reference import operands
from kernels.registry import kernel


@kernel(allocates=True, batched=True)
def operator(problem: Matmul, a, b):
    """`a @ b` as people write it: BLAS plus a fresh result each call, whose pages the system has to hand out."""
    a, b = _blas_operands(problem, a, b)
    return lambda: a @ b


@kernel(batched=True)
def blas(problem: Matmul, a, b):
    """BLAS into a result that is already there: packed panels, vector FMAs, blocks sized for the caches. Of many products one
    call of BLAS after the other."""
    a, b = _blas_operands(problem, a, b)
    c = empty(problem.out_shape, a.dtype, 5)

    def run():
        np.matmul(a, b, out=c)
        return c

    return run


def _blas_operands(problem: Matmul, a, b):
    if problem.math not in ("float32", "float64") or problem.out != problem.dtype:
        raise ValueError(f"NumPy's BLAS multiplies float32 and float64, not {problem.math}")
    assert a.dtype == numpy_dtype(problem.dtype)
    return operands(problem, (a, b))
