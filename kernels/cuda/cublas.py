"""cuBLAS as CuPy has it, called into a result that is already there."""

import cupy
import numpy as np
from cupy.cuda import cublas as library

from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, DTYPES

_NO_TRANSPOSE, _TRANSPOSE, _DEFAULT_ALGORITHM = 0, 1, -1


def product(problem: Matmul, a, b):
    """The call of cublasGemmEx, or of its batched form; sums are float32 or wider. Raises: ValueError for another output type."""
    m, n, k, many = problem.m, problem.n, problem.k, problem.count > 1
    if problem.out != problem.dtype:
        raise ValueError("this variant gives C in the operands' dtype")
    c = cupy.empty(problem.out_shape, a.dtype)
    scalar = np.float64 if problem.dtype == "float64" else np.float32
    one, zero = np.ones(1, scalar), np.zeros(1, scalar)
    # cuBLAS counts columns first: row-major C = A B is its C^T = B^T A^T, so B comes first and nothing is copied.
    b_operation, b_rows = (_TRANSPOSE, k) if problem.layout == "nt" else (_NO_TRANSPOSE, n)
    a_operation, a_rows = (_TRANSPOSE, m) if problem.layout == "tn" else (_NO_TRANSPOSE, k)
    handle = cupy.cuda.get_cublas_handle()
    data, compute = DTYPES[problem.dtype].cuda, ARITHMETIC[problem.math].cublas

    def matrix(x, columns: int, items: int) -> tuple[int, ...]:
        """A matrix as the call wants it; of several also how many items there are from one to the next."""
        return (x.data.ptr, data, columns, *([items] if many else []))

    arguments = (
        *(handle, b_operation, a_operation, n, m, k, one.ctypes.data),
        *matrix(b, b_rows, k * n),
        *matrix(a, a_rows, m * k),
        zero.ctypes.data,
        *matrix(c, n, m * n),
        *([problem.count] if many else []),
        compute,
        _DEFAULT_ALGORITHM,
    )
    call = library.gemmStridedBatchedEx if many else library.gemmEx

    def run(keep=(one, zero, a, b)):  # the call holds raw addresses, so their owners are held here
        call(*arguments)
        return c

    return run
