"""cuBLAS as CuPy has it, called into a result that is already there."""

from collections.abc import Callable

import cupy
import numpy as np
from cupy.cuda import cublas as library

from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, DTYPES

#: cublasOperation_t, from cublas_api.h.
_NO_TRANSPOSE = 0
_TRANSPOSE = 1
#: cublasGemmAlgo_t: CUBLAS_GEMM_DEFAULT, from cublas_api.h.
_DEFAULT_ALGORITHM = -1


def product(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> Callable[[], cupy.ndarray]:
    """A call of cublasGemmEx, or of its batched form, that computes and returns C = A B; sums are float32 or wider.

    cuBLAS counts columns first: row-major C = A B is its C^T = B^T A^T, so B comes first and nothing is copied.
    a, b: A and B on the GPU as problem.layout stores them, a batch with a leading dimension.
    Raises: ValueError for another output type than the operands'.
    """
    if problem.out != problem.dtype:
        raise ValueError("this variant gives C in the operands' dtype")
    m = problem.m
    n = problem.n
    k = problem.k
    is_batch = problem.count > 1
    c = cupy.empty(problem.out_shape, a.dtype)
    scalar = np.float64 if problem.dtype == "float64" else np.float32
    one = np.ones(1, scalar)
    zero = np.zeros(1, scalar)
    a_transposed = problem.layout == "tn"
    b_transposed = problem.layout == "nt"
    a_pitch = m if a_transposed else k
    b_pitch = k if b_transposed else n
    data_type = DTYPES[problem.dtype].cuda

    def matrix(array: cupy.ndarray, pitch: int, items: int) -> tuple[int, ...]:
        """A matrix as the call's arguments: its address, type, items from row to row (`pitch`), and in a batch from matrix to
        matrix (`items`)."""
        described = (array.data.ptr, data_type, pitch)
        return (*described, items) if is_batch else described

    batch = (problem.count,) if is_batch else ()
    arguments = (
        cupy.cuda.get_cublas_handle(),
        _TRANSPOSE if b_transposed else _NO_TRANSPOSE,
        _TRANSPOSE if a_transposed else _NO_TRANSPOSE,
        n,
        m,
        k,
        one.ctypes.data,
        *matrix(b, b_pitch, k * n),
        *matrix(a, a_pitch, m * k),
        zero.ctypes.data,
        *matrix(c, n, m * n),
        *batch,
        ARITHMETIC[problem.math].cublas,
        _DEFAULT_ALGORITHM,
    )
    call = library.gemmStridedBatchedEx if is_batch else library.gemmEx

    def run(keep=(one, zero, a, b)):  # the call has raw addresses alone: this keeps their arrays alive
        call(*arguments)
        return c

    return run
