"""Convolution in CUDA C: plain loops, and implicit GEMM, which reads the images as a matrix that nobody writes, in float32 and by
tensor cores of every GPU since Ampere."""

from collections.abc import Callable

import cupy
import numpy as np

from kernels.conv import _implicit_gemm as gemm
from kernels.conv._implicit_gemm import THREADS, Product
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import Tensors, Warps
from kernels.cuda.rows import Placed, in_place
from kernels.cuda.tiles import Plan
from kernels.problems import Conv
from kernels.problems.arrays import HALVES
from kernels.registry import into, kernel

# Products of a call, and of one output (one thread's loop), from which a call would take most of a second.
_MOST_DIRECT, _MOST_OF_ONE = 1 << 37, 1 << 20
# From so many FLOPs, and multiplications of each item, a copy of images whose channels are no fours saves more than it takes.
_COPY_FLOPS, _COPY_READS = 1e9, 256


@kernel(rung=True)
def direct(problem: Conv, a, b):
    """An output a thread, seven plain loops: every product reads its image and its filter anew, from the caches
    at best."""
    gemm.refuse(problem, ("float32",), "direct")
    depth = problem.gemm[2]
    if problem.flops // 2 > _MOST_DIRECT or depth > _MOST_OF_ONE:
        raise ValueError(f"{problem.flops // 2:.3g} products, {depth} an output: this kernel would take seconds a call")
    (top, _), (left, _) = problem.pads
    sizes = [getattr(problem, side) for side in ("n", "h", "w", "c_in", "p", "q", "c_out", "r", "s", "stride")]
    loops = np.array([*sizes, top, left, problem.groups, problem.layout == "NHWC"], np.int32)
    out = cupy.empty(problem.out_shape, np.float32)
    compiled, grid = loader.load("conv/cuda", "direct"), (-(-out.size // THREADS),)
    way = problem.DIRECTIONS.index(problem.direction)
    arguments = (a, b, out, loops.view(f"V{loops.nbytes}"), np.int32(way), np.int32(out.size))

    return into(out, compiled, grid, (THREADS,), arguments)


def _in_fours(channels: int, array) -> int:
    """1 where it is copied 16 bytes at a time: every piece lies in one pixel and begins on 16 bytes."""
    return int(channels % 4 == 0 and array.data.ptr % 16 == 0)


def _call(on: Product, plan: Plan[Warps]) -> Callable:
    b, out = _in_fours(on.b.shape[-1], on.b), _in_fours(on.of.k, on.out)
    vectors = {"VECTOR_A": _in_fours(on.of.c, on.a), "VECTOR_B": b, "VECTOR": out}
    return gemm.call_of("conv/cuda", on, plan, {"WGRAD": on.wgrad, **vectors}, np.float32(1))


@kernel
def implicit_gemm(problem: Conv, a, b):
    """The columns of im2col are never written: pixels are copied from the images straight into tiles in shared
    memory, several stages ahead, as warp_tiled does it; tiles and parts of the sum are the fastest of several
    on this GPU."""
    gemm.refuse(problem, ("float32",), "implicit_gemm")
    if product := gemm.product(problem, "warp_tiled", a, b):
        return product
    out = cupy.empty(problem.out_shape, np.float32)

    def widen(images) -> Placed:
        often = problem.flops >= max(_COPY_FLOPS, 2 * _COPY_READS * images.size)
        few = images is a and 5 * images.shape[-1] < 4 * gemm.whole(images.shape[-1], 4)
        return gemm.widened(images) if often and not few else in_place(images)

    wgrad, (found, before) = problem.direction == "wgrad", gemm.products(problem, a, b, out, widen)
    forms = gemm.fitting(conv_tiles.WARPS, wgrad)
    if wgrad and not _in_fours(found[0].of.c, found[0].a):  # a thread fetches single rows, at least one of every line
        forms = [of for of in forms if of.tile_m <= of.threads]
    return gemm.tuned("conv/cuda", found, before, forms, _call, out)


def _tensor_call(on: Product, plan: Plan[Tensors]) -> Callable:
    return gemm.call_of("conv/cuda_tensor", on, plan, on.macros)


@kernel
def tensor_core(problem: Conv, a, b):
    """mma.sync on pixels that cp.async gathers into tiles, ldmatrix brings them into registers; images whose
    channels are no eights are copied into eights first, each time."""
    gemm.refuse(problem, HALVES, "tensor_core")
    loader.require(80)
    if product := gemm.product(problem, "tensor_core", a, b):
        return product
    out, forms = cupy.empty(problem.out_shape, a.dtype), gemm.fitting(conv_tiles.TENSORS, problem.direction == "wgrad")
    return gemm.tuned("conv/cuda_tensor", *gemm.products(problem, a, b, out), forms, _tensor_call, out)
