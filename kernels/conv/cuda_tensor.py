"""Convolution in CUDA C on tensor cores by mma.sync: implicit GEMM that every GPU since Ampere runs."""

from collections.abc import Callable

import cupy
import numpy as np

from kernels.conv import _implicit_gemm as gemm
from kernels.conv._implicit_gemm import Product
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import Tensors
from kernels.problems import Conv
from kernels.problems.arrays import HALVES
from kernels.registry import kernel


def _wide_filters(filters):
    """Filters r x s x c_in x c_out with zeros beside both kinds of channels, so that they come in eights."""
    *taps, c, k = filters.shape
    wide = cupy.zeros((*taps, gemm.eights(c), gemm.eights(k)), filters.dtype)
    wide[:, :, :c, :k] = filters
    return wide


def added(on: Product, sums) -> Callable:
    """The call that adds the parts' sums, parts x rows x columns, and rounds them."""
    split, m, n = sums.shape  # it knows nothing of the tile: any will do
    reduce = loader.load("conv/cuda_tensor", "reduce", **conv_tiles.TENSORS[0].macros(), **on.macros)
    counts = map(np.int32, (m, split, on.problem.c_in))
    return gemm.adder(reduce, m, n, split, (sums, on.out, on.of.passed, *counts))


def _call(on: Product, tile: Tensors, split: int) -> Callable:
    """The call of conv/cuda_tensor.cu with those tiles, its sum split over so many blocks."""
    m, n, _ = on.sides()
    compiled = loader.load("conv/cuda_tensor", "implicit_gemm", **tile.macros(), **on.macros)
    sums = gemm.workspace(m, n, split)
    rest = map(np.int32, (on.b.shape[-1], on.problem.c_in, tile.group()))
    arguments = (on.a, on.b, on.out, on.b if sums is None else sums, on.of.passed, *rest)
    add = None if sums is None else added(on, sums)
    grid, shared = (tile.count(m, n), split), tile.shared_bytes(on.wgrad)
    return gemm.called(compiled, grid, tile, shared, arguments, add, gemm.name(tile, split))


def _candidates(on: Product) -> dict[str, Callable[[], Callable]]:
    return gemm.candidates(on, on.sides(), gemm.fitting(conv_tiles.TENSORS, on.wgrad), 32, _call)


@kernel
def tensor_core(problem: Conv, a, b):
    gemm.refuse(problem, HALVES, "tensor_core")
    loader.require(80)
    out = cupy.empty(problem.out_shape, a.dtype)
    found = gemm.products(problem, a, b, out, gemm.widened, _wide_filters)
    return gemm.tuned("conv/cuda_tensor", *found, _candidates, out)
