"""Convolution in CUDA C, float32: plain loops, and implicit GEMM, which reads the images as a matrix that nobody writes."""

from collections.abc import Callable

import cupy
import numpy as np

from kernels.conv import _implicit_gemm as gemm
from kernels.conv._implicit_gemm import THREADS, Product
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import Warps
from kernels.problems import Conv
from kernels.registry import into, kernel

# Products of a call, and of one output (one thread's loop), from which a call would take most of a second.
_MOST_DIRECT, _MOST_OF_ONE = 1 << 37, 1 << 20


@kernel(rung=True)
def direct(problem: Conv, a, b):
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


def _in_fours(channels: int, images) -> bool:
    """Whether implicit_gemm copies them 16 bytes at a time: every piece lies in one pixel and begins on 16 bytes."""
    return channels % 4 == 0 and images.data.ptr % 16 == 0


def _call(on: Product, tile: Warps, split: int) -> Callable:
    """The call of implicit_gemm with those tiles, its sum split over so many blocks."""
    m, n, _ = on.sides()
    vectors = {"VECTOR_A": int(_in_fours(on.of.c, on.a)), "VECTOR_B": int(_in_fours(n, on.b))}
    compiled = loader.load("conv/cuda", "implicit_gemm", **tile.macros(), WGRAD=on.wgrad, **vectors)
    sums, add = gemm.workspace(m, n, split), None
    arguments = (on.a, on.b, on.out if sums is None else sums, on.of.passed, np.int32(tile.group()), np.float32(1))
    if sums is not None:  # wgrad's rows follow each other as fprop's do
        added = (sums, on.out, on.of.passed, np.int32(m), np.int32(split))
        add = gemm.adder(loader.load("conv/cuda", "reduce"), m, n, split, added)
    grid, shared = (tile.count(m, n), split), tile.shared_bytes(on.wgrad)
    return gemm.called(compiled, grid, tile, shared, arguments, add, gemm.name(tile, split))


def _candidates(on: Product) -> dict[str, Callable[[], Callable]]:
    tiles = gemm.fitting(conv_tiles.WARPS, on.wgrad)
    if on.wgrad and not _in_fours(
        on.of.c, on.a
    ):  # a thread fetches single rows of the tile, at least one of every line
        tiles = [t for t in tiles if t.tile_m <= t.threads]
    return gemm.candidates(on, on.sides(), tiles, 32, _call)


@kernel
def implicit_gemm(problem: Conv, a, b):
    gemm.refuse(problem, ("float32",), "implicit_gemm")
    out = cupy.empty(problem.out_shape, np.float32)
    return gemm.tuned("conv/cuda", *gemm.products(problem, a, b, out), _candidates, out)
