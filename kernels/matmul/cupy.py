"""Matmul through cuBLAS, as CuPy calls it and preallocated."""

import cupy

from kernels.cuda.cublas import product
from kernels.problems import Matmul
from kernels.reference import operands
from kernels.registry import TimedCall, kernel

# c + bias, or 0 where that is less; of bfloat16's bits, rounded to even.
_ADDED = "const T x = c + bias; out = x < T(0) ? T(0) : x"
_ADDED_BITS = """const float x = __uint_as_float((unsigned)c << 16) + __uint_as_float((unsigned)bias << 16);
    const unsigned y = x < 0 ? 0 : __float_as_uint(x); out = y + 0x7fff + (y >> 16 & 1) >> 16"""


@kernel(allocates=True, batched=True, fused=True)
def operator(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray, *bias: cupy.ndarray) -> TimedCall:
    """`a @ b` as people write it: CuPy checks types, takes a fresh result from its pool and calls cuBLAS.

    a: m x k, b: k x n (as problem.layout stores them), bias: n numbers or none; all on the GPU.
    """
    if problem.math not in ("float32", "float64", "float16") or problem.out != problem.dtype:
        raise ValueError(f"CuPy's operator has no {problem.math} product; the variant cublas has")
    a, b = operands(problem, (a, b))
    return (lambda: cupy.maximum(a @ b + bias[0], 0)) if bias else lambda: a @ b


@kernel(batched=True, fused=True)
def cublas(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray, *bias: cupy.ndarray) -> TimedCall:
    """cublasGemmEx into a result that is already there, in the arithmetic asked for; sums are float32 or wider. Many
    products:
    cublasGemmStridedBatchedEx. Bias and ReLU: a second kernel.

    a: m x k, b: k x n (as problem.layout stores them), bias: n numbers or none; all on the GPU.
    """
    run = product(problem, a, b)
    if not bias:
        return run
    added = cupy.ElementwiseKernel("T c, T bias", "T out", _ADDED_BITS if problem.dtype == "bfloat16" else _ADDED)
    return lambda: added(c := run(), bias[0], c)
