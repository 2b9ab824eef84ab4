"""Convolution on vectors spelled out: a tile of output pixels in registers, fed from the images where they lie."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from kernels.conv._pixel_blocks import (
    Blocks,
    Window,
    copy_block,
    cut,
    pixels_as_images,
    table,
    threads_pieces,
    unstrided,
    windows,
)
from kernels.conv._pixel_tiles import PAST_CACHES, VECTORS, scattered_tile, tile_rows
from kernels.conv.numba_wgrad import gradient
from kernels.problems import Conv
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel, timed_call
from kernels.simd import emit
from kernels.simd.caches import second_level_bytes
from kernels.simd.calls import direct
from kernels.simd.packing import origin, pack_panel
from kernels.simd.product import product

#: Steps of a panel, at least: fewer passes over the output.
_DEPTH = 576
#: Bytes of a tile's source, which all panels meet: the first-level cache.
_NEAR_BYTES = 28 << 10
#: An output of at least so many bytes is written past the caches: it would not stay there.
_PAST_BYTES = 16 << 20
#: Pixels of a block.
_PIXELS = 1568
#: Steps of a product that are few: as short as what surrounds a tile's steps.
_FEW_STEPS = 32
#: Channels of one side of single pixels' filters that are few.
_FEW_CHANNELS = 64
#: Filters in a tile of their gradient, about.
_TILE = 512


@numba.njit(cache=True)
def _tables(w: Window, b: Blocks, deep: int, rows_at: np.ndarray, runs_at: np.ndarray, out_at: np.ndarray) -> None:
    """Fills the tables of offsets for `deep` channels: where each pixel of a block begins in its source (rows_at) and in the
    output (out_at), and where the runs of memory under a window begin (runs_at). A row of all images comes before the next
    row: tiles at an image's edge then lie beside it whole. Compiled by Numba."""
    width = (w.across - 1) * w.stride + w.taps_across
    image = w.source_image
    row = w.source_row
    pixel = w.source_pixel
    if b.copied:
        pixel = deep
        row = width * deep
        image = ((b.rows - 1) * w.stride + w.taps_down) * row
    i = 0
    for images in (b.images, w.images % b.images):  # of all blocks, and of the last
        for p in range(b.rows):
            for n in range(images):
                for q in range(w.across):
                    rows_at[i] = n * image + p * w.stride * row + q * w.stride * pixel
                    out_at[i] = n * w.out_image + p * w.out_row + q * w.out_pixel
                    i += 1
    i = 0
    for down in range(w.taps_down):
        for across in range(1 if b.merged else w.taps_across):
            runs_at[i] = down * row + across * pixel
            i += 1


@numba.njit(cache=True)
def _pack(
    lanes: tuple, w: Window, filters: np.ndarray, right: np.ndarray, at: int, first: int, channel: int, deep: int
) -> None:
    """Packs a panel of filters into right[at:]: their columns from `first` on side by side, step by step in the order of the
    window's runs; `deep` channels from `channel` on. Compiled by Numba."""
    width = len(lanes) * VECTORS
    for i in range(w.taps_down):
        for j in range(w.taps_across):
            tap = w.filter_at + i * w.filter_row + j * w.filter_tap
            start = tap + channel * w.filter_channel + first * w.filter_column
            wide = min(width, w.columns - first)
            pack_panel(lanes, lanes, right, at, width, filters, start, w.filter_column, w.filter_channel, wide, deep)
            at += deep * width


@numba.njit(cache=True)
def _block(
    lanes,
    rows,
    w: np.ndarray,
    b: np.ndarray,
    source,
    right,
    depth,
    out: np.ndarray,
    scratch,
    scratch_at,
    tables,
    image,
    first,
    column,
    stop,
    channel,
    deep,
    past,
) -> None:
    """Computes a block of output pixels, the columns from `column` to `stop`, a tile of pixels at a time; a tile leaves out
    the rows of taps that meet nothing but padding. Compiled by Numba.

    lanes, rows: tuples as long as a vector and as a tile has rows. w, b: the Window and its Blocks. source, out: flat arrays.
    right: packed filters, `depth` steps a panel. scratch[scratch_at:]: room for the block's source. tables: (rows_at,
    runs_at, out_at) of _tables. image, first: the block's first image and output row. channel, deep: its channels' first and
    number. past: PAST_CACHES or 0.
    """
    rows_at = tables[0]
    runs_at = tables[1]
    out_at = tables[2]
    images = min(b.images, w.images - image)
    lines = min(b.rows, w.rows - first)
    pixels = images * lines * w.across
    width = len(lanes) * VECTORS
    around = images * w.across
    first_entry = 0 if images == b.images else b.images * b.rows * w.across  # of the tables: the last block has others
    # Of a row of taps.
    runs = 1 if b.merged else w.taps_across
    length = w.taps_across * deep if b.merged else deep
    # Copy: the block's source, where windows reach past an image's edge.
    if b.copied:
        copy_block(lanes, scratch, scratch_at, source, w, images, first, lines, image, channel, deep)
        block = scratch
        at = scratch_at
    else:
        row = first * w.stride - w.top
        line = w.source_at + image * w.source_image + row * w.source_row
        block = source
        at = line - w.left * w.source_pixel + channel
    to = w.out_at + image * w.out_image + first * w.out_row
    for i in range(0, pixels, len(rows)):
        high = min(len(rows), pixels - i)
        above = max(0, w.top - (first + (i + high - 1) // around) * w.stride)
        below = min(w.taps_down, w.height + w.top - (first + i // around) * w.stride)
        # Multiply: a tile of pixels with all panels of filters.
        for j in range(column, stop, width):
            after = first_entry + (i + len(rows) if j == column and i + len(rows) < pixels else i)
            wide = min(width, stop - j)
            old = wide if channel else past
            scattered_tile(
                lanes,
                rows,
                block,
                at,
                rows_at,
                first_entry + i,
                rows_at,
                after,
                runs_at,
                above * runs,
                (below - above) * runs,
                length,
                right,
                j * depth + above * runs * length * width,
                out,
                to + j,
                out_at,
                first_entry + i,
                high,
                wide,
                old,
            )


@numba.njit(cache=True, parallel=True)
def _convolve(
    threads,
    lanes,
    rows,
    w: np.ndarray,
    b: np.ndarray,
    span,
    source,
    filters: np.ndarray,
    right,
    depth,
    out: np.ndarray,
    scratch,
    rows_at,
    runs_at,
    out_at,
    counters,
    past,
    chunk_step,
    packs,
) -> None:
    """All blocks, a chunk of channels after the other: first its filters go into panels, `chunk_step` elements behind those
    of the chunk before, if it `packs` them; then whoever is free takes the next block of pixels by `span` columns. Compiled
    by Numba.

    lanes, rows: tuples as long as a vector and as a tile has rows. w, b: the Window and its Blocks. source, filters, out:
    flat arrays. right: room for packed filters, `depth` steps a panel. scratch: room for each thread's source. rows_at,
    runs_at, out_at: room for _tables. counters: the next block. past: PAST_CACHES or 0.
    """
    width = len(lanes) * VECTORS
    down = -(-w.rows // b.rows)
    spans = -(-w.columns // span)
    blocks = -(-w.images // b.images) * down
    for channel in range(0, w.channels, b.chunk):
        deep = min(b.chunk, w.channels - channel)
        counters[:] = 0
        _tables(w, b, deep, rows_at, runs_at, out_at)
        panels_at = channel // b.chunk * chunk_step
        for panel in numba.prange(-(-w.columns // width) if packs else 0):
            _pack(lanes, w, filters, right, panels_at + panel * width * depth, panel * width, channel, deep)
        for t in numba.prange(threads):
            while True:
                piece = emit.take_number(counters, 0)
                if piece >= blocks * spans:
                    break
                place = piece % blocks
                column = piece // blocks * span
                _block(
                    lanes,
                    rows,
                    w,
                    b,
                    source,
                    right[panels_at:],
                    depth,
                    out,
                    scratch,
                    t * b.size,
                    (rows_at, runs_at, out_at),
                    place // down * b.images,
                    place % down * b.rows,
                    column,
                    min(column + span, w.columns),
                    channel,
                    deep,
                    past,
                )


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _chunk(w: Window, item_bytes: int, tile: int) -> int:
    """Channels that are summed at a time: so many that a tile's source fits the first-level cache, and the filters' panels
    the second unless that makes them short.

    tile: pixels of a tile.
    """
    taps = w.taps_down * w.taps_across
    near = _NEAR_BYTES // (item_bytes * w.taps_down * ((tile - 1) * w.stride + w.taps_across))
    far = max(second_level_bytes() // 2 // (item_bytes * taps * w.columns), _DEPTH // taps)
    most = max(4, min(near, far))
    return min(w.channels, _up(-(-w.channels // -(-w.channels // most)), 4))


def _past_caches(w: Window, out: np.ndarray, *, lanes: int, chunk: int) -> bool:
    """Whether the output is written past the caches: it is large, each value is written once, and vectors are aligned.

    out: flat. lanes: values of a vector. chunk: channels that are summed at a time.
    """
    item_bytes = out.itemsize
    offsets = (w.out_at, w.out_image, w.out_row, w.out_pixel, out.ctypes.data // item_bytes)
    is_aligned = not any(offset % lanes for offset in offsets)
    return is_aligned and chunk == w.channels and w.pixels * w.columns * item_bytes >= _PAST_BYTES


def _span(w: Window, *, depth_bytes: int, width: int) -> int:
    """Columns whose panels, of `depth_bytes` a column, stay in the second-level cache; a multiple of `width`."""
    most = second_level_bytes() // 2 // depth_bytes // width * width
    return min(_up(w.columns, width), max(width, most))


def convolution(
    w: Window,
    source: np.ndarray,
    filters: np.ndarray,
    out: np.ndarray,
    *,
    vector_bytes: int = 0,
    constant_filters: bool = False,
) -> Callable[[], Any]:
    """The call that computes a window's output on Numba's threads, in vectors of `vector_bytes` (0: the fastest).

    source, filters, out: flat arrays of one type, in which the window says where to look. constant_filters: they are laid out
    here, not in every call.
    """
    threads = numba.get_num_threads()
    item_bytes = source.itemsize
    vector_bytes = vector_bytes or emit.fastest_size(w.columns * item_bytes)
    lanes = vector_bytes // item_bytes
    tile = tile_rows(vector_bytes)
    width = VECTORS * lanes
    # Cut.
    w = pixels_as_images(unstrided(w))
    chunk = _chunk(w, item_bytes, tile)
    b = cut(w, chunk, item_bytes=item_bytes, tile=tile, most_pixels=_PIXELS, least_blocks=threads_pieces(threads))
    depth = w.taps_down * w.taps_across * chunk
    # Make room.
    chunk_panels = _up(w.columns, width) * depth
    chunks = -(-w.channels // chunk)
    right = empty((chunk_panels * (chunks if constant_filters else 1),), source.dtype, place=6)
    right[:] = 0
    scratch = empty((threads * b.size,), source.dtype, place=2)
    pixels = b.images * b.rows * w.across
    arguments = (
        threads,
        (0,) * lanes,
        (0,) * tile,
        w,
        b,
        _span(w, depth_bytes=depth * item_bytes, width=width),
        origin(source),
        origin(filters),
        right,
        depth,
        out,
        scratch,
        table(2 * pixels + 16),
        table(w.taps_down * w.taps_across),
        table(2 * pixels),
        table(1),
        PAST_CACHES if _past_caches(w, out, lanes=lanes, chunk=chunk) else 0,
        chunk_panels if constant_filters else 0,
    )
    if constant_filters:
        packs = True
        _convolve(*arguments, packs)
    packs_in_every_call = not constant_filters
    call = direct(_convolve, *arguments, packs_in_every_call)

    def run(keep=(source, filters)):  # the call has raw addresses alone: this keeps the operands alive
        return call()

    return run


def _is_product(problem: Conv) -> bool:
    """Whether a matrix product, with a pixel for each row, computes the convolution faster than tiles of pixels do. Filters
    are then 1 x 1 at every pixel, and the sums short; of wgrad one side has few channels, and the result has tiles for all
    threads."""
    is_of_pixels = (problem.r, problem.s, problem.stride, problem.groups) == (1, 1, 1, 1)
    if not is_of_pixels or problem.pads != ((0, 0), (0, 0)):
        return False
    if problem.direction == "wgrad":
        has_few_channels = min(problem.c_in, problem.c_out) <= _FEW_CHANNELS
        other_threads = numba.get_num_threads() - 1
        return has_few_channels and problem.c_in * problem.c_out > _TILE * other_threads
    steps = problem.c_out if problem.direction == "dgrad" else problem.c_in
    return steps <= _FEW_STEPS


@kernel
def blocked(problem: Conv, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Tiles of some pixels by whole vectors of filters stay in registers while windows are read where the
    images lie, borders from a copy, and the filters from panels in the second-level cache.

    a, b: the operands, shaped as problem.operand_shapes says.
    """
    return bound(problem, a, b)


@kernel(variant="held")
def constant_filters(problem: Conv, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Filters are laid out once, when they are bound, as they can be where nothing is trained.

    a, b: the operands, shaped as problem.operand_shapes says.
    """
    return bound(problem, a, b, constant_filters=True)


def _rows(array: np.ndarray) -> np.ndarray:
    """An array as a contiguous matrix with its last axis for columns."""
    return np.ascontiguousarray(array).reshape(-1, array.shape[-1])


def bound(
    problem: Conv, a: np.ndarray, b: np.ndarray, *, vector_bytes: int = 0, constant_filters: bool = False
) -> TimedCall:
    """The timed call of `blocked` in vectors of `vector_bytes` (0: the fastest), or of `constant_filters`.

    a, b: the operands, shaped as problem.operand_shapes says.
    Raises: ValueError for another arithmetic or layout, and where the filters are what is computed.
    """
    if constant_filters and problem.direction == "wgrad":
        raise ValueError("wgrad makes filters, so none can be held")
    if problem.math != "float32" or problem.layout != "NHWC":
        raise ValueError(f"the Numba tiles convolve float32 in NHWC, not {problem.math} in {problem.layout}")
    out = empty(problem.out_shape, a.dtype, place=5)
    left = _rows(a)
    right = _rows(b)
    to = _rows(out)
    if _is_product(problem) and not constant_filters:
        if problem.direction == "wgrad":
            left = left.T
        if problem.direction == "dgrad":
            right = right.T
        return timed_call(product(left, right, to, vector_bytes), result=out)
    flat = (left.reshape(-1), right.reshape(-1), to.reshape(-1))
    parts = windows(problem)
    calls = []
    for window in parts:
        if not window.taps_down or not window.taps_across:  # no gradient reaches these pixels
            continue
        if problem.direction == "wgrad":
            calls.append(gradient(window, *flat, vector_bytes=vector_bytes))
        else:
            calls.append(convolution(window, *flat, vector_bytes=vector_bytes, constant_filters=constant_filters))

    def run():
        if len(calls) < len(parts):
            out[...] = 0
        for call in calls:
            call()
        return out

    return run
