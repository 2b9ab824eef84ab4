"""Convolution in CUDA C on tensor cores by mma.sync: implicit GEMM that every GPU since Ampere runs."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import cupy
import numpy as np

from kernels.conv.cuda import adding, cleared, fastest, filters_of, one_after_another, refuse, sides, workspace
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import Gather, Tensors
from kernels.problems import Conv
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import kernel

_THREADS = 256


def eights(channels: int) -> int:
    """Channels in whole pieces of 16 bytes."""
    return -(-channels // 8) * 8


class Widened(NamedTuple):
    """Images whose channels come in eights, and the call that copies them there each time (None: they do already)."""

    array: cupy.ndarray
    copy: Callable | None = None


def widened(images) -> Widened:
    """The images themselves, or a copy with channels of zeros beside theirs."""
    channels, wide = images.shape[-1], eights(images.shape[-1])
    if wide == channels and images.data.ptr % 16 == 0:
        return Widened(images)
    to = cupy.empty((*images.shape[:-1], wide), images.dtype)
    pieces = to.size // 8
    compiled, arguments = loader.load("conv/cuda_tensor", "widen"), (images, to, np.int32(pieces), np.int32(channels))
    return Widened(to, lambda: compiled((-(-pieces // _THREADS),), (_THREADS,), arguments))


def wide_filters(filters, c: int, k: int):
    """Filters r x s x c_in x c_out with zeros beside both kinds of channels: held so when they are bound, as a library would."""
    wide = cupy.zeros((*filters.shape[:2], c, k), filters.dtype)
    wide[:, :, : filters.shape[2], : filters.shape[3]] = filters
    return wide


class Operands(NamedTuple):
    """A product, what it reads, and the channels of a wgrad's that are no padding."""

    of: Gather
    a: Widened
    b: cupy.ndarray
    kept: int


def operands(problem: Conv, a, b, out) -> tuple[list[Operands], list[Callable]]:
    """The products that the problem comes to, and what goes before them."""
    x = widened(a)
    c, before = x.array.shape[-1], [x.copy] if x.copy else []
    if problem.direction == "wgrad":
        y = widened(b)
        return [Operands(conv_tiles.gather(problem, c), x, y.array, problem.c_in)], before + (
            [y.copy] if y.copy else []
        )
    if problem.direction == "fprop":
        return [
            Operands(conv_tiles.gather(problem, c), x, wide_filters(b, c, eights(problem.c_out)), problem.c_in)
        ], before
    phases, k = conv_tiles.phases(problem, c), eights(problem.c_in)
    found = [Operands(phase.of, x, wide_filters(filters_of(phase, b), c, k), problem.c_in) for phase in phases]
    return found, before + cleared(problem, phases, out)


def call(math: str, wgrad: bool, tile: Tensors, parts: int, on: Operands, out) -> Callable:
    """The call of conv/cuda_tensor.cu with those tiles, its sum in so many parts."""
    of, b = on.of, on.b
    m, n, _ = sides(of, wgrad)
    kind = {"WGRAD": int(wgrad), "TYPE": f'"{ARITHMETIC[math].ptx}"'}
    compiled = loader.load("conv/cuda_tensor", "implicit_gemm", **conv_tiles.macros(tile), **kind)
    shared = tile.shared_bytes(wgrad)
    compiled.max_dynamic_shared_size_bytes = shared
    grid = (-(-m // tile.tile_m) * -(-n // tile.tile_n), parts)
    sums = workspace(m, n, parts)
    rest = map(np.int32, (b.shape[-1], on.kept, max(1, conv_tiles.GROUP_ROWS // tile.tile_m)))
    arguments = (on.a.array, b, out, b if sums is None else sums, of.passed, *rest)
    add = None if sums is None else reducer(math, wgrad, of, m, parts, on.kept, sums, out)

    def run():
        compiled(grid, (tile.threads,), arguments, shared_mem=shared)
        if add:
            add()
        return out

    run.notes = {"tiles": f"{tile} parts={parts}"}
    return run


def reducer(math: str, wgrad: bool, of: Gather, rows: int, parts: int, kept: int, sums, out) -> Callable:
    """The call that adds `parts` partial sums of rows x of.k items and rounds them."""
    tile = conv_tiles.macros(conv_tiles.TENSORS[0])  # of which reduce knows nothing: any will do
    compiled = loader.load("conv/cuda_tensor", "reduce", **tile, WGRAD=int(wgrad), TYPE=f'"{ARITHMETIC[math].ptx}"')
    (grid, block), arguments = adding(rows, of.k, parts), (sums, out, of.passed, *map(np.int32, (rows, parts, kept)))
    return lambda: compiled(grid, block, arguments)


def candidates(math: str, wgrad: bool, on: Operands, out) -> dict[str, Callable[[], Callable]]:
    """The tiles and parts that are worth a try, by name."""
    attributes = cupy.cuda.Device().attributes
    m, n, k = sides(on.of, wgrad)
    limit, multiprocessors = attributes["MaxSharedMemoryPerBlockOptin"], attributes["MultiProcessorCount"]
    fitting = [t for t in conv_tiles.TENSORS if t.shared_bytes(wgrad) <= limit]
    found: dict[str, Callable[[], Callable]] = {}
    for tile in [t for t in fitting if t.tile_n <= 2 * max(16, n)] or fitting:  # little of it lies beyond the product
        tiles = -(-m // tile.tile_m) * -(-n // tile.tile_n)
        for parts in conv_tiles.splits(tiles, -(-k // tile.deep), tile.blocks * multiprocessors, m * n):
            found[f"{tile} parts={parts}"] = functools.partial(call, math, wgrad, tile, parts, on, out)
    return found


@kernel
def tensor_core(problem: Conv, a, b):
    refuse(problem, HALVES, "tensor_core")
    have = cupy.cuda.Device().compute_capability
    if int(have) < 80:
        raise ValueError(f"needs a GPU of compute capability 8.0 or newer, this one has {have}")
    out, wgrad = cupy.empty(problem.out_shape, a.dtype), problem.direction == "wgrad"
    found, before = operands(problem, a, b, out)
    calls = [fastest("conv/cuda_tensor", problem, on.of, candidates(problem.math, wgrad, on, out)) for on in found]
    return one_after_another([*before, *calls], out)
