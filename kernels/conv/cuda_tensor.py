"""Convolution in CUDA C on tensor cores by mma.sync: implicit GEMM that every GPU since Ampere runs."""

from collections.abc import Callable

import cupy

from kernels.conv import _implicit_gemm as gemm
from kernels.conv._implicit_gemm import Product
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import Tensors
from kernels.cuda.tiles import Plan
from kernels.problems import Conv
from kernels.problems.arrays import HALVES
from kernels.registry import kernel


def _call(on: Product, plan: Plan[Tensors]) -> Callable:
    return gemm.call_of("conv/cuda_tensor", on, plan, on.macros)


@kernel
def tensor_core(problem: Conv, a, b):
    gemm.refuse(problem, HALVES, "tensor_core")
    loader.require(80)
    if gemm.is_product(problem):
        return gemm.product(problem, "tensor_core", a, b)
    out = cupy.empty(problem.out_shape, a.dtype)
    forms = gemm.fitting(conv_tiles.TENSORS, problem.direction == "wgrad")
    return gemm.tuned("conv/cuda_tensor", *gemm.products(problem, a, b, out), forms, _call, out)
