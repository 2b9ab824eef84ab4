"""Convolution on vectors spelled out: a tile of output pixels in registers, fed from the images where they lie."""

import numba
import numpy as np

from kernels.conv import _pixel_blocks as pixel_blocks
from kernels.conv import _pixel_tiles as pixel_tiles
from kernels.conv._pixel_blocks import Window
from kernels.conv._pixel_tiles import PAST_CACHES, VECTORS, tile_apart
from kernels.conv.numba_wgrad import gradient
from kernels.problems import Conv
from kernels.problems.arrays import empty
from kernels.registry import into, kernel
from kernels.simd import emit
from kernels.simd.caches import second_level_bytes
from kernels.simd.calls import direct
from kernels.simd.packing import origin, pack_panel
from kernels.simd.product import product

_DEPTH = 576  # steps of a panel, at least: fewer passes over the output
_NEAR_BYTES = 28 << 10  # of a tile's source, which all panels meet: the first-level cache
_PAST_BYTES = 16 << 20  # an output of at least so many is written past the caches: it would not stay there
_PIXELS = 1568  # of a block
_FEW_STEPS = 32  # of a product: as short as what surrounds a tile's steps
_FEW_CHANNELS = 64  # of one side of single pixels' filters
_TILE = 512  # filters in a tile of their gradient, about


@numba.njit(cache=True)
def _tables(w, b, deep, rows_at, runs_at, out_at):
    """Where each pixel of a block begins in its source and in the output, and the runs of a window in the source. A row of all
    images comes before the next row: tiles at an image's edge then lie beside it whole."""
    width = (w.across - 1) * w.stride + w.taps_across
    image, row, pixel = w.source_image, w.source_row, w.source_pixel
    if b.copied:
        image, row, pixel = ((b.rows - 1) * w.stride + w.taps_down) * width * deep, width * deep, deep
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
def _pack(lanes, w, filters, right, at, first, channel, deep):
    """A panel of filters: their columns from `first` on side by side, step by step in the order of the window's runs."""
    width = len(lanes) * VECTORS
    for i in range(w.taps_down):
        for j in range(w.taps_across):
            start = (
                w.filter_at + i * w.filter_row + j * w.filter_tap + channel * w.filter_channel + first * w.filter_column
            )
            pack_panel(
                lanes,
                lanes,
                right,
                at,
                width,
                filters,
                start,
                w.filter_column,
                w.filter_channel,
                min(width, w.columns - first),
                deep,
            )
            at += deep * width


@numba.njit(cache=True)
def _block(
    lanes,
    rows,
    w,
    b,
    source,
    right,
    depth,
    out,
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
):
    """A block of output pixels, the columns from `column` to `stop`; a tile leaves out the rows of taps that meet its images'
    zeros alone."""
    rows_at, runs_at, out_at = tables
    images, lines = min(b.images, w.images - image), min(b.rows, w.rows - first)
    pixels, width = images * lines * w.across, len(lanes) * VECTORS
    around, table = images * w.across, 0 if images == b.images else b.images * b.rows * w.across
    runs, length = (1, w.taps_across * deep) if b.merged else (w.taps_across, deep)  # of a row of taps
    row, left = first * w.stride - w.top, w.left * w.source_pixel
    from_, at = source, w.source_at + image * w.source_image + row * w.source_row - left + channel
    if b.copied:
        pixel_blocks.copy_block(lanes, scratch, scratch_at, source, w, images, first, lines, image, channel, deep)
        from_, at = scratch, scratch_at
    to = w.out_at + image * w.out_image + first * w.out_row
    for i in range(0, pixels, len(rows)):
        high = min(len(rows), pixels - i)
        above = max(0, w.top - (first + (i + high - 1) // around) * w.stride)
        below = min(w.taps_down, w.height + w.top - (first + i // around) * w.stride)
        for j in range(column, stop, width):
            after = table + (i + len(rows) if j == column and i + len(rows) < pixels else i)
            wide = min(width, stop - j)
            old = wide if channel else past
            tile_apart(
                lanes,
                rows,
                from_,
                at,
                rows_at,
                table + i,
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
                table + i,
                high,
                wide,
                old,
            )


@numba.njit(cache=True, parallel=True)
def _convolve(
    threads,
    lanes,
    rows,
    w,
    b,
    span,
    source,
    filters,
    right,
    depth,
    out,
    scratch,
    rows_at,
    runs_at,
    out_at,
    counters,
    past,
    kept,
    fresh,
):
    """All blocks, a chunk of channels after the other: first its filters go into panels, `kept` elements behind those of the
    chunk before, unless they are there; then whoever is free takes the next block of pixels by `span` columns."""
    width = len(lanes) * VECTORS
    down, spans = -(-w.rows // b.rows), -(-w.columns // span)
    blocks = -(-w.images // b.images) * down
    for channel in range(0, w.channels, b.chunk):
        deep = min(b.chunk, w.channels - channel)
        counters[:] = 0
        _tables(w, b, deep, rows_at, runs_at, out_at)
        panels_at = channel // b.chunk * kept
        for panel in numba.prange(-(-w.columns // width) if fresh else 0):
            _pack(lanes, w, filters, right, panels_at + panel * width * depth, panel * width, channel, deep)
        for t in numba.prange(threads):
            while True:
                piece = emit.take_number(counters, 0)
                if piece >= blocks * spans:
                    break
                place, column = piece % blocks, piece // blocks * span
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


def _chunk(w: Window, item: int, tile: int) -> int:
    """Channels at a time: a tile's source fits the first-level cache, the filters' panels the second unless that makes them
    short."""
    taps = w.taps_down * w.taps_across
    near = _NEAR_BYTES // (item * w.taps_down * ((tile - 1) * w.stride + w.taps_across))
    far = max(second_level_bytes() // 2 // (item * taps * w.columns), _DEPTH // taps)
    most = max(4, min(near, far))
    return min(w.channels, _up(-(-w.channels // -(-w.channels // most)), 4))


def convolution(
    w: Window, source: np.ndarray, filters: np.ndarray, out: np.ndarray, vector: int = 0, keep_filters: bool = False
):
    """The call that computes a window's output on Numba's threads, in vectors of `vector` bytes (0: the fastest).

    source, filters, out: flat arrays of one type, in which the window says where to look. keep_filters: they are laid out here,
    not in every call.
    """
    threads, item = numba.get_num_threads(), source.itemsize
    vector = vector or emit.fastest_size(w.columns * item)
    lanes, tile = vector // item, pixel_tiles.tile_rows(vector)
    width = VECTORS * lanes
    w = pixel_blocks.scattered(pixel_blocks.unstrided(w))
    chunk = _chunk(w, item, tile)
    b = pixel_blocks.blocks(w, chunk, item, tile, _PIXELS, pixel_blocks.threads_pieces(threads))
    depth = w.taps_down * w.taps_across * chunk
    span = min(_up(w.columns, width), max(width, second_level_bytes() // 2 // (depth * item) // width * width))
    panels = _up(w.columns, width) * depth
    right = empty((panels * (-(-w.channels // chunk) if keep_filters else 1),), source.dtype, 6)
    right[:] = 0
    scratch = empty((threads * b.size,), source.dtype, 2)
    even = not any(size % lanes for size in (w.out_at, w.out_image, w.out_row, w.out_pixel, out.ctypes.data // item))
    past = PAST_CACHES if even and chunk == w.channels and w.pixels * w.columns * item >= _PAST_BYTES else 0
    pixels = b.images * b.rows * w.across
    tables = [pixel_blocks.places(size) for size in (2 * pixels + 16, w.taps_down * w.taps_across, 2 * pixels)]
    given = threads, (0,) * lanes, (0,) * tile, w, b, span, origin(source), origin(filters), right, depth, out, scratch
    arguments = (*given, *tables, pixel_blocks.places(1), past, panels if keep_filters else 0)
    if keep_filters:
        _convolve(*arguments, True)
    call = direct(_convolve, *arguments, not keep_filters)
    return lambda keep=(source, filters): call()


def _is_product(problem: Conv) -> bool:
    """Whether a matrix product computes the convolution faster. Pixels are then rows. Steps are few or, for wgrad, one side's
    channels; the result has tiles for all threads."""
    p = problem
    if (p.r, p.s, p.stride, p.groups) != (1, 1, 1, 1) or any(map(any, p.pads)):
        return False
    if p.direction == "wgrad":
        return min(p.c_in, p.c_out) <= _FEW_CHANNELS and p.c_in * p.c_out > _TILE * (numba.get_num_threads() - 1)
    return (p.c_out if p.direction == "dgrad" else p.c_in) <= _FEW_STEPS


@kernel
def blocked(problem: Conv, a, b):
    """Tiles of some pixels by whole vectors of filters stay in registers while windows are read where the
    images lie, borders from a copy, and the filters from panels in the second-level cache."""
    return bound(problem, a, b)


@kernel
def held(problem: Conv, a, b):
    """Filters are laid out once, when they are bound, as they can be where nothing is trained."""
    return bound(problem, a, b, keep_filters=True)


def bound(problem: Conv, a: np.ndarray, b: np.ndarray, vector: int = 0, keep_filters: bool = False):
    """The call of `blocked` in vectors of `vector` bytes (0: the fastest), or of `held`.

    Raises: ValueError for another arithmetic or layout, and where there are no filters to keep.
    """
    if keep_filters and problem.direction == "wgrad":
        raise ValueError("wgrad makes filters, so none can be held")
    if problem.math != "float32" or problem.layout != "NHWC":
        raise ValueError(f"the Numba tiles convolve float32 in NHWC, not {problem.math} in {problem.layout}")
    out = empty(problem.out_shape, a.dtype, 5)
    left, right, to = (np.ascontiguousarray(array).reshape(-1, array.shape[-1]) for array in (a, b, out))
    if _is_product(problem) and not keep_filters:
        left, right = (
            left.T if problem.direction == "wgrad" else left,
            right.T if problem.direction == "dgrad" else right,
        )
        return into(out, product(left, right, to, vector))
    flat = left.reshape(-1), right.reshape(-1), to.reshape(-1), vector
    parts = pixel_blocks.windows(problem)
    reached = [w for w in parts if w.taps_down and w.taps_across]
    if problem.direction == "wgrad":
        calls = [gradient(w, *flat) for w in reached]
    else:
        calls = [convolution(w, *flat, keep_filters) for w in reached]

    def run():
        if len(calls) < len(parts):
            out[...] = 0
        for call in calls:
            call()
        return out

    return run
