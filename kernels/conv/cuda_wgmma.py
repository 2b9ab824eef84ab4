"""Convolution in CUDA C for Hopper: the copy engine (TMA) makes the columns of im2col, wgmma multiplies them."""

import ctypes
from collections.abc import Callable

import cupy
import numpy as np

from kernels.conv import _implicit_gemm
from kernels.conv._implicit_gemm import Product
from kernels.cuda import conv_tiles, loader
from kernels.cuda.conv_tiles import ConvGroups, Gather
from kernels.cuda.rows import aligned
from kernels.cuda.tiles import LINE, TilePlan
from kernels.problems import Conv
from kernels.problems.arrays import HALVES
from kernels.registry import TimedCall, kernel

#: Channels of a stage.
_DEEP = ConvGroups.deep

# Limits of images of four dimensions, from cuTensorMapEncodeIm2col and the PTX ISA.

#: Pixels that a corner of the walk may lie beside the image's.
_CORNERS = range(-128, 128)
#: Largest offset of a tap from the first one.
_MOST_TAP = 255
#: Most pixels from step to step.
_MOST_STEP = 8

# OUT of conv/cuda_wgmma.cu: how results leave.

#: By TMA.
_BY_TMA = 0
#: As sums, which `reduce` adds.
_AS_SUMS = 1
#: Eight at once to each pixel.
_IN_EIGHTS = 2
#: Two at once to each pixel, where pixels do not begin on 16 bytes.
_IN_PAIRS = 3


def box(gather: Gather) -> tuple[tuple[int, int], tuple[int, int]]:
    """The corners of the walk of TMA's im2col mode over the source images: ((first column, first row), (last column, last
    row)) of the pixels that the first tap meets. The last two are counted from the image's own last column and row.

    Raises: ValueError where the copy engine cannot count so far.
    """
    first = (-gather.left, -gather.top)
    last_column = (gather.q - 1) * gather.step - gather.left - (gather.w - 1)
    last_row = (gather.p - 1) * gather.step - gather.top - (gather.h - 1)
    within = all(corner in _CORNERS for corner in (*first, last_column, last_row))
    if not within or max(gather.r, gather.s) - 1 > _MOST_TAP or gather.step > _MOST_STEP:
        raise ValueError(f"the copy engine goes 128 pixels past an edge, 256 taps and steps of {_MOST_STEP} at most")
    return first, (last_column, last_row)


def im2col_map(address: int, gather: Gather, pixels: int) -> np.ndarray:
    """A TMA descriptor (CUtensorMap, passed to a kernel by value) by which the copy engine walks through images as im2col
    does. One copy takes 64 channels of `pixels` pixels, with zeros outside the images; in shared memory they lie in lines of
    128 bytes, swizzled.

    address: of the first item of images n x h x w x c of 16-bit items, sizes from `gather`.
    Raises: ValueError for what the engine or the driver cannot do.
    """
    if address % 16 or gather.c % 8:
        raise ValueError(f"TMA needs pixels on 16 bytes: no map of {gather.c} channels at {address:#x}")
    first, last = box(gather)
    dimensions = 4
    sizes = (gather.c, gather.w, gather.h, gather.n)
    pixel_bytes = 2 * gather.c
    row_bytes = pixel_bytes * gather.w
    image_bytes = row_bytes * gather.h
    whole_map = loader.map_room()
    error = loader._driver().cuTensorMapEncodeIm2col(
        ctypes.c_void_p(whole_map.ctypes.data),
        loader.UINT16,
        dimensions,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * dimensions)(*sizes),
        (ctypes.c_uint64 * (dimensions - 1))(pixel_bytes, row_bytes, image_bytes),
        (ctypes.c_int * 2)(*first),
        (ctypes.c_int * 2)(*last),
        _DEEP,
        pixels,
        (ctypes.c_uint32 * dimensions)(1, gather.step, gather.step, 1),
        *loader.swizzle(LINE),
    )
    if error:
        raise ValueError(f"cuTensorMapEncodeIm2col: error {error} for {sizes}, {first} to {last} by {gather.step}")
    return whole_map.view(f"V{loader.MAP_BYTES}")


def chunked(filters: cupy.ndarray, _: int | None = None) -> cupy.ndarray:
    """Filters r x s x c_in x c_out as c_out x (taps x channels), each tap's channels padded with zeros to a multiple of 64.
    Made once, when they are bound, as a library would."""
    taps = filters.shape[:2]
    channels, k = filters.shape[2:]
    chunks = -(-channels // _DEEP)
    wide = cupy.zeros((k, *taps, chunks * _DEEP), filters.dtype)
    wide[..., :channels] = filters.transpose(3, 0, 1, 2)
    return wide.reshape(k, -1)


def _results_leave(product: Product, parts: int) -> int:
    """How results leave, the macro OUT of conv/cuda_wgmma.cu. Split sums and wgrad's rows, which have channels of padding, go
    through `reduce`; results that do not follow each other in memory cannot leave by TMA.

    parts: of k, in split-k; 1: not split.
    """
    if parts > 1 or product.wgrad:
        return _AS_SUMS
    if product.gather.to_step == 1:
        return _BY_TMA
    return _IN_PAIRS if product.gather.k % 8 else _IN_EIGHTS


def _call(product: Product, plan: TilePlan[ConvGroups]) -> Callable[[], None]:
    """The call of conv/cuda_wgmma.cu for a product by that plan, followed by what adds split sums or copies the result, if
    need be."""
    groups = plan.tiles
    gather = product.gather
    a = product.a
    b = product.b
    rows, columns, _ = product.sides(_DEEP)
    leave = _results_leave(product, plan.parts)
    compiled = loader.compile_kernel(
        "conv/cuda_wgmma", "convolve", _arch="sm_90a", **product.macros, OUT=leave, **groups.macros()
    )
    tile_m, tile_n = groups.tile
    b_shape = (b.size // b.shape[-1], b.shape[-1])
    b_box = (_DEEP if product.wgrad else tile_n, _DEEP)
    b_map = loader.tensor_map(b.data.ptr, b_shape, b.shape[-1], b_box)
    a_map = im2col_map(a.data.ptr, gather, _DEEP if product.wgrad else tile_m)
    # These stand for a map and for sums through which no result leaves.
    c_map = b_map
    sums = b
    after = None
    if leave == _AS_SUMS:
        sums = cupy.empty((plan.parts, rows, columns), np.float32)
        after = _implicit_gemm.adding_parts(product, sums)
    elif leave == _BY_TMA:
        c = aligned(product.out.reshape(rows, columns), is_result=True)
        c_map = loader.tensor_map(c.array.data.ptr, (rows, columns), c.pitch, (64, 64))
        after = c.copy
    blocks = min(groups.count(rows, columns) * plan.parts, groups.blocks * loader.attribute("MultiProcessorCount"))
    arguments = (
        a_map,
        b_map,
        c_map,
        sums,
        product.out,
        gather.passed,
        np.int32(plan.parts),
        np.int32(groups.group()),
    )
    call = _implicit_gemm.launch_of(
        compiled,
        product,
        plan,
        grid=(blocks,),
        shared_bytes=groups.shared_bytes,
        arguments=arguments,
        after=after,
    )
    call.keep = (product, after)  # the maps have raw addresses alone: this keeps their arrays alive
    return call


@kernel
def wgmma(problem: Conv, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """TMA in im2col mode walks the pixels and fills a ring of tiles, warpgroups multiply them by wgmma while it
    runs ahead; a step takes whole lines of channels, zeros where an image has fewer; blocks stay on their
    multiprocessors.

    a, b: the operands, shaped as problem.operand_shapes says, float16 or bfloat16 (as 16-bit words) on the GPU.
    """
    _implicit_gemm.refuse(problem, HALVES, "wgmma")
    loader.require_capability(90, only=True)
    product = _implicit_gemm.matrix_product(problem, "wgmma", a, b)
    if product:
        return product
    out = cupy.empty(problem.out_shape, a.dtype)
    gemms = _implicit_gemm.implicit_products(problem, a, b, out=out, filters=chunked)
    return _implicit_gemm.tuned("conv/cuda_wgmma", gemms, conv_tiles.GROUPS, _call, out=out, channel_multiple=_DEEP)
