"""Convolutions, forward and backward, a module a backend. Imports problems, reference and registry, and what operations share."""

# The order of the ladder, the simplest first. Other kernels with an idea follow.
LADDER = (
    "numba/direct",
    "numba/blocked",
    "cuda/direct",
    "cuda/implicit_gemm",
    "cuda/tensor_core",
    "cuda/wgmma",
)
