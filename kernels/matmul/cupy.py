"""Matmul through cuBLAS, as CuPy calls it and preallocated."""

from kernels.cuda.cublas import product
from kernels.problems import Matmul
from kernels.reference import operands
from kernels.registry import kernel


@kernel(allocates=True, batched=True)
def operator(problem: Matmul, a, b):
    """`a @ b` as people write it: CuPy checks types, takes a fresh result from its pool and calls cuBLAS."""
    if problem.math not in ("float32", "float64", "float16") or problem.out != problem.dtype:
        raise ValueError(f"CuPy's operator has no {problem.math} product; the variant cublas has")
    a, b = operands(problem, (a, b))
    return lambda: a @ b


@kernel(batched=True)
def cublas(problem: Matmul, a, b):
    """cublasGemmEx into a result that is already there, in the arithmetic asked for; sums are float32 or wider. Many products:
    cublasGemmStridedBatchedEx."""
    return product(problem, a, b)
