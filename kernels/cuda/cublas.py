"""cuBLAS as CuPy has it, called into a result that is already there."""

import cupy
import numpy as np
from cupy.cuda import cublas as library

from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, DTYPES

_NO_TRANSPOSE, _TRANSPOSE, _DEFAULT_ALGORITHM = 0, 1, -1


def product(problem: Matmul, a, b):
    """The call of cublasGemmEx in the arithmetic asked for; sums are float32 or wider."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.out != problem.dtype:
        raise ValueError("this variant gives C in the operands' dtype")
    c = cupy.empty((m, n), a.dtype)
    scalar = np.float64 if problem.dtype == "float64" else np.float32
    one, zero = np.ones(1, scalar), np.zeros(1, scalar)
    # cuBLAS counts columns first: row-major C = A B is its C^T = B^T A^T, so B comes first and nothing is copied.
    b_operation, b_rows = (_TRANSPOSE, k) if problem.layout == "nt" else (_NO_TRANSPOSE, n)
    a_operation, a_rows = (_TRANSPOSE, m) if problem.layout == "tn" else (_NO_TRANSPOSE, k)
    handle = cupy.cuda.get_cublas_handle()
    data, compute = DTYPES[problem.dtype].cuda, ARITHMETIC[problem.math].cublas
    arguments = (
        handle,
        b_operation,
        a_operation,
        n,
        m,
        k,
        one.ctypes.data,
        b.data.ptr,
        data,
        b_rows,
        a.data.ptr,
        data,
        a_rows,
        zero.ctypes.data,
        c.data.ptr,
        data,
        n,
        compute,
        _DEFAULT_ALGORITHM,
    )

    def run(keep=(one, zero, a, b)):  # the call holds raw addresses, so their owners are held here
        library.gemmEx(*arguments)
        return c

    return run
