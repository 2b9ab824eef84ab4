"""Convolution in CUDA C for Hopper: the copy engine (TMA) makes the columns of im2col, wgmma multiplies them."""

import ctypes
import functools
from collections.abc import Callable

import cupy
import numpy as np

from kernels.conv.cuda import adding, cleared, fastest, filters_of, one_after_another, refuse
from kernels.conv.cuda_tensor import eights, widened
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import Gather, Groups
from kernels.problems import Conv
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import kernel

_DEEP, _THREADS = 64, 256  # of the sum, a place in the ring; of a block of reduce
# CUtensorMapDataType, -Swizzle and -L2promotion, from the CUDA toolkit's cuda.h
_UINT16, _SWIZZLE_128B, _L2_256B = 1, 3, 3
_MAP_BYTES = _ALIGNMENT = 128  # the driver asks for 64 at least
# Of images of four dimensions, from cuTensorMapEncodeIm2col and the PTX ISA.
_CORNERS, _MOST_TAP, _MOST_STEP = range(-128, 128), 255, 8


def box(of: Gather) -> tuple[tuple[int, int], tuple[int, int]]:
    """((first column, row), (last column, row) counted from the image's last) of the pixels that the first tap meets: as many as
    the product has, whatever the padding was called.

    Raises: ValueError where the copy engine cannot count so far.
    """
    low = -of.left, -of.top
    high = (of.q - 1) * of.step - of.left - (of.w - 1), (of.p - 1) * of.step - of.top - (of.h - 1)
    within = all(corner in _CORNERS for corner in (*low, *high))
    if not within or max(of.r, of.s) - 1 > _MOST_TAP or of.step > _MOST_STEP:
        raise ValueError(f"the copy engine goes 128 pixels past an edge, 256 taps and steps of {_MOST_STEP} at most")
    return low, high


def im2col_map(address: int, of: Gather, pixels: int) -> np.ndarray:
    """What tells the copy engine (TMA) of images to walk through: a CUtensorMap to pass to a kernel by value. A copy takes 64
    channels of so many pixels, zeros where there are none; in shared memory they lie in lines of 128 bytes, swizzled.

    Raises: ValueError for what the engine or the driver cannot do.
    """
    if address % 16 or of.c % 8:
        raise ValueError(f"TMA needs pixels on 16 bytes: no map of {of.c} channels at {address:#x}")
    low, high = box(of)
    room = np.zeros(_MAP_BYTES + _ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _ALIGNMENT
    made = room[begin : begin + _MAP_BYTES]
    sizes, pitches = (of.c, of.w, of.h, of.n), (2 * of.c, 2 * of.c * of.w, 2 * of.c * of.w * of.h)
    failed = loader._driver().cuTensorMapEncodeIm2col(
        ctypes.c_void_p(made.ctypes.data),
        _UINT16,
        4,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 4)(*sizes),
        (ctypes.c_uint64 * 3)(*pitches),
        (ctypes.c_int * 2)(*low),
        (ctypes.c_int * 2)(*high),
        _DEEP,
        pixels,
        (ctypes.c_uint32 * 4)(1, of.step, of.step, 1),
        0,
        _SWIZZLE_128B,
        _L2_256B,
        0,
    )
    if failed:
        raise ValueError(f"cuTensorMapEncodeIm2col: error {failed} for {sizes}, {low} to {high} by {of.step}")
    return made.view(f"V{_MAP_BYTES}")


def chunked(filters):
    """Filters r x s x c_in x c_out as c_out x (taps x channels), the channels of each tap in whole 64s, zeros where there are
    none: held so when they are bound, as a library would."""
    r, s, channels, k = filters.shape
    chunks = -(-channels // _DEEP)
    wide = cupy.zeros((k, r, s, chunks * _DEEP), filters.dtype)
    wide[..., :channels] = filters.transpose(3, 0, 1, 2)
    return wide.reshape(k, -1)


def shape(of: Gather, wgrad: bool) -> tuple[int, int, int]:
    """Rows, columns and steps of the product: a tap's channels are in whole 64s."""
    chunks = -(-of.c // _DEEP)
    return (of.taps * chunks * _DEEP, of.k, -(-of.pixels // _DEEP)) if wgrad else (of.pixels, of.k, of.taps * chunks)


def reducer(math: str, of: Gather, wgrad: bool, parts: int, kept: int, sums, out) -> Callable:
    """The call that adds `parts` partial sums and rounds them."""
    rows, columns, _ = shape(of, wgrad)
    compiled = loader.load(
        "conv/cuda_wgmma",
        "reduce",
        _arch="sm_90a",
        TYPE=f'"{ARITHMETIC[math].ptx}"',
        WGRAD=int(wgrad),
        OUT=1,
        **conv_tiles.macros(conv_tiles.GROUPS[0]),
    )
    (grid, block), arguments = adding(rows, columns, parts), (sums, out, of.passed, np.int32(parts), np.int32(kept))
    return lambda: compiled(grid, block, arguments)


def call(math: str, of: Gather, wgrad: bool, tile: Groups, parts: int, kept: int, a, b, out) -> Callable:
    """The call of conv/cuda_wgmma.cu with those tiles, its sum in so many parts. Parts and wgrad's rows, which have channels of
    padding, go through `reduce`; results that do not follow each other in memory cannot leave by TMA."""
    leaves = 1 if parts > 1 or wgrad else 2 if of.to_step > 1 else 0
    (rows, columns, _), (tile_m, tile_n) = shape(of, wgrad), tile.tile
    compiled = loader.load(
        "conv/cuda_wgmma",
        "convolve",
        _arch="sm_90a",
        TYPE=f'"{ARITHMETIC[math].ptx}"',
        WGRAD=int(wgrad),
        OUT=leaves,
        **conv_tiles.macros(tile),
    )
    compiled.max_dynamic_shared_size_bytes = tile.shared_bytes
    narrow = out if leaves or of.k % 8 == 0 else cupy.empty((rows, eights(of.k)), out.dtype)
    sums = cupy.empty((parts, rows, columns), np.float32) if leaves == 1 else None
    width = narrow.shape[-1]
    b_rows, b_columns = b.size // b.shape[-1], b.shape[-1]
    b_map = loader.tensor_map(b.data.ptr, b_rows, b_columns, b_columns, (_DEEP if wgrad else tile_n, _DEEP))
    # nothing leaves through the last map where it is not by TMA, so it may be any
    c_map = b_map if leaves else loader.tensor_map(narrow.data.ptr, rows, width, width, (64, 64))
    a_map = im2col_map(a.data.ptr, of, _DEEP if wgrad else tile_m)
    units = -(-rows // tile_m) * -(-columns // tile_n) * parts
    grid = (min(units, tile.blocks * cupy.cuda.Device().attributes["MultiProcessorCount"]),)
    group = np.int32(max(1, conv_tiles.GROUP_ROWS // tile_m))
    arguments = (a_map, b_map, c_map, b if sums is None else sums, out, of.passed, np.int32(parts), group)
    more = reducer(math, of, wgrad, parts, kept, sums, out) if leaves == 1 else None
    if narrow is not out:
        crop, cropped = loader.load("conv/cuda_tensor", "crop"), (narrow, out, *map(np.int32, (out.size, of.k, width)))
        more = lambda: crop((-(-out.size // _THREADS),), (_THREADS,), cropped)  # noqa: E731

    def run(keep=(a, b, out)):  # the maps hold raw addresses, so their owners are held here
        compiled(grid, (tile.threads,), arguments, shared_mem=tile.shared_bytes)
        if more:
            more()
        return out

    run.notes = {"tiles": f"{tile} parts={parts}"}
    return run


def candidates(math: str, of: Gather, wgrad: bool, kept: int, a, b, out) -> dict[str, Callable[[], Callable]]:
    """The tiles and parts that are worth a try, by name."""
    rows, columns, steps = shape(of, wgrad)
    multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    found: dict[str, Callable[[], Callable]] = {}
    for tile in conv_tiles.GROUPS:
        if tile.columns > 2 * max(32, columns):
            continue  # most of it would lie beyond the product
        tiles = -(-rows // tile.tile[0]) * -(-columns // tile.columns)
        for parts in conv_tiles.splits(tiles, steps, tile.blocks * multiprocessors, rows * columns):
            found[f"{tile} parts={parts}"] = functools.partial(call, math, of, wgrad, tile, parts, kept, a, b, out)
    return found


@kernel
def wgmma(problem: Conv, a, b):
    refuse(problem, HALVES, "wgmma")
    have = cupy.cuda.Device().compute_capability
    if have != "90":
        raise ValueError(f"wgmma is of compute capability 9.0 alone, this GPU has {have}")
    out, x = cupy.empty(problem.out_shape, a.dtype), widened(a)
    c, before = x.array.shape[-1], [x.copy] if x.copy else []

    def bound(of: Gather, wgrad: bool, kept: int, b) -> Callable:
        return fastest("conv/cuda_wgmma", problem, of, candidates(problem.math, of, wgrad, kept, x.array, b, out))

    if problem.direction == "fprop":
        calls = [bound(conv_tiles.gather(problem, c), False, 0, chunked(b))]
    elif problem.direction == "wgrad":
        y = widened(b)
        before += [y.copy] if y.copy else []
        calls = [bound(conv_tiles.gather(problem, c), True, problem.c_in, y.array)]
    else:
        phases = conv_tiles.phases(problem, c)
        before += cleared(problem, phases, out)
        calls = [bound(phase.of, False, 0, chunked(filters_of(phase, b))) for phase in phases]
    return one_after_another([*before, *calls], out)
