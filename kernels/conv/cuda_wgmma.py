"""Convolution in CUDA C for Hopper: the copy engine (TMA) makes the columns of im2col, wgmma multiplies them."""

import ctypes
from collections.abc import Callable

import cupy
import numpy as np

from kernels.conv import _implicit_gemm as gemm
from kernels.conv._implicit_gemm import Product
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import Gather, Groups
from kernels.cuda.rows import placed
from kernels.cuda.tiles import Plan
from kernels.problems import Conv
from kernels.problems.arrays import HALVES
from kernels.registry import kernel

_DEEP = Groups.deep
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
    """A CUtensorMap, passed to a kernel by value, by which the copy engine (TMA) walks through images. A copy takes 64
    channels of so many pixels, zeros where there are none; in shared memory they lie in lines of 128 bytes, swizzled.

    Raises: ValueError for what the engine or the driver cannot do.
    """
    if address % 16 or of.c % 8:
        raise ValueError(f"TMA needs pixels on 16 bytes: no map of {of.c} channels at {address:#x}")
    low, high = box(of)
    made, sizes = loader.map_room(), (of.c, of.w, of.h, of.n)
    pitches = (2 * of.c, 2 * of.c * of.w, 2 * of.c * of.w * of.h)
    failed = loader._driver().cuTensorMapEncodeIm2col(
        *(ctypes.c_void_p(made.ctypes.data), loader.UINT16, 4, ctypes.c_void_p(address), (ctypes.c_uint64 * 4)(*sizes)),
        *((ctypes.c_uint64 * 3)(*pitches), (ctypes.c_int * 2)(*low), (ctypes.c_int * 2)(*high), _DEEP, pixels),
        *((ctypes.c_uint32 * 4)(1, of.step, of.step, 1), *loader.SWIZZLED),
    )
    if failed:
        raise ValueError(f"cuTensorMapEncodeIm2col: error {failed} for {sizes}, {low} to {high} by {of.step}")
    return made.view(f"V{loader.MAP_BYTES}")


def chunked(filters, _=None):
    """Filters r x s x c_in x c_out as c_out x (taps x channels), each tap's channels padded with zeros to a multiple of 64.
    Made once, when they are bound, as a library would."""
    r, s, channels, k = filters.shape
    chunks = -(-channels // _DEEP)
    wide = cupy.zeros((k, r, s, chunks * _DEEP), filters.dtype)
    wide[..., :channels] = filters.transpose(3, 0, 1, 2)
    return wide.reshape(k, -1)


def _call(on: Product, plan: Plan[Groups]) -> Callable:
    """The call of conv/cuda_wgmma.cu with those tiles, its sum split over so many blocks. Split sums and wgrad's rows, which have
    channels of padding, go through `reduce`; results that do not follow each other in memory cannot leave by TMA."""
    (tile, split), (of, a, b, out) = (plan.of, plan.parts), on[1:5]
    leaves = 1 if split > 1 or on.wgrad else 2 + (of.k % 8 > 0) if of.to_step > 1 else 0
    (rows, columns, _), (tile_m, tile_n), b_columns = on.sides(_DEEP), tile.tile, b.shape[-1]

    compiled = loader.load("conv/cuda_wgmma", "convolve", _arch="sm_90a", **on.macros, OUT=leaves, **tile.macros())
    b_box = (_DEEP if on.wgrad else tile_n, _DEEP)
    b_map = loader.tensor_map(b.data.ptr, (b.size // b_columns, b_columns), b_columns, b_box)
    a_map = im2col_map(a.data.ptr, of, _DEEP if on.wgrad else tile_m)
    c_map, sums, after = b_map, b, None  # nothing leaves through them where it goes another way
    if leaves == 1:
        sums = cupy.empty((split, rows, columns), np.float32)
        after = gemm.added(on, sums)
    elif not leaves:
        to = placed(out.reshape(rows, columns), out=True)
        c_map, after = loader.tensor_map(to.array.data.ptr, (rows, columns), to.pitch, (64, 64)), to.copy
    grid = (min(tile.count(rows, columns) * split, tile.blocks * loader.attribute("MultiProcessorCount")),)
    arguments = (a_map, b_map, c_map, sums, out, of.passed, np.int32(split), np.int32(tile.group()))
    call = gemm.called(compiled, on, plan, grid, tile.shared_bytes, arguments, after)
    call.keep = on, after  # the maps hold raw addresses, so their owners are held here
    return call


@kernel
def wgmma(problem: Conv, a, b):
    """TMA in im2col mode walks the pixels and fills a ring of tiles, warpgroups multiply them by wgmma while it
    runs ahead; a step takes whole lines of channels, zeros where an image has fewer; blocks stay on their
    multiprocessors."""
    gemm.refuse(problem, HALVES, "wgmma")
    loader.require(90, only=True)
    if product := gemm.product(problem, "wgmma", a, b):
        return product
    out = cupy.empty(problem.out_shape, a.dtype)
    found = gemm.products(problem, a, b, out, filters=chunked)
    return gemm.tuned("conv/cuda_wgmma", *found, conv_tiles.GROUPS, _call, out, _DEEP)
