"""The filters' gradient on vectors: sums over pixels of products, a tile of the filters in registers."""

import numba
import numpy as np

from kernels.conv import _pixel_blocks as pixel_blocks
from kernels.conv import _pixel_tiles as pixel_tiles
from kernels.conv._pixel_blocks import Window
from kernels.conv._pixel_tiles import VECTORS, adjacent_tile
from kernels.problems.arrays import empty
from kernels.simd import emit
from kernels.simd.calls import direct
from kernels.simd.packing import origin, pack_panel

_CHANNELS = 256  # at a time: with their taps and all columns they are the sums that all blocks of pixels add to
_SUM_BYTES = 1 << 20
_PIXELS = 224  # of a block: its pixels' panel of dy fits the first-level cache


@numba.njit(cache=True)
def _tables(w, b, deep, runs_at, out_at):
    """Where the rows of a block of output pixels meet the source, and where each tap and channel of a filter's row goes."""
    row = ((w.across - 1) * w.stride + w.taps_across) * deep
    image = ((b.rows - 1) * w.stride + w.taps_down) * row
    for n in range(b.images):
        for p in range(b.rows):
            runs_at[n * b.rows + p] = n * image + p * w.stride * row
    for j in range(w.taps_across):
        for c in range(deep):
            out_at[j * deep + c] = j * w.filter_tap + c * w.filter_channel


@numba.njit(cache=True)
def _block(
    lanes,
    high,
    w,
    b,
    x,
    dy,
    out,
    out_from,
    scratch,
    scratch_at,
    right,
    right_at,
    tables,
    image,
    first,
    channel,
    deep,
    added,
):
    """Adds the products of a block of pixels to the filters' gradient, or begins it with them."""
    runs_at, out_at = tables
    images, lines, width = min(b.images, w.images - image), min(b.rows, w.rows - first), len(lanes) * VECTORS
    pixel_blocks.copy_block(lanes, scratch, scratch_at, x, w, images, first, lines, image, channel, deep)
    row, height = ((w.across - 1) * w.stride + w.taps_across) * deep, w.taps_across * deep
    for column in range(0, w.columns, width):
        wide = min(width, w.columns - column)
        for i in range(images * lines):
            start = w.out_at + (image + i // lines) * w.out_image + (first + i % lines) * w.out_row + column
            pack_panel(
                lanes, lanes, right, right_at + i * w.across * width, width, dy, start, 1, w.out_pixel, wide, w.across
            )
        for down in range(w.taps_down):
            at = scratch_at + down * row
            to = out_from + w.filter_at + down * w.filter_row + channel * w.filter_channel + column
            for i in range(0, height, high):
                valid, old = min(high, height - i), wide if added else 0
                adjacent_tile(
                    lanes,
                    high,
                    scratch,
                    at + i,
                    runs_at,
                    0,
                    images * lines,
                    w.across,
                    w.stride * deep,
                    right,
                    right_at,
                    out,
                    to,
                    out_at,
                    i,
                    valid,
                    wide,
                    old,
                )


@numba.njit(cache=True, parallel=True)
def _gradient(threads, lanes, highs, w, b, x, dy, out, sums, scratch, right, runs_at, out_at, counters, begun):
    """All blocks, a chunk of channels after the other; with several threads each adds to a gradient of its own, and those are
    added in the end."""
    down = -(-w.rows // b.rows)
    blocks = -(-w.images // b.images) * down
    panel = b.images * b.rows * w.across * len(lanes) * VECTORS
    begun[:] = 0
    chunks = -(-w.channels // b.chunk)
    for chunk in range(chunks):
        channel = chunk * b.chunk
        deep = min(b.chunk, w.channels - channel)
        high = highs[0] if deep == b.chunk else highs[1]
        counters[:] = 0
        _tables(w, b, deep, runs_at, out_at)
        for t in numba.prange(threads):
            while True:
                piece = emit.take_number(counters, 0)
                if piece >= blocks:
                    break
                _block(
                    lanes,
                    high,
                    w,
                    b,
                    x,
                    dy,
                    sums,
                    t * out.size if threads > 1 else 0,
                    scratch,
                    t * b.size,
                    right,
                    t * panel,
                    (runs_at, out_at),
                    piece // down * b.images,
                    piece % down * b.rows,
                    channel,
                    deep,
                    begun[chunk, t],
                )
                begun[chunk, t] = 1
    if threads > 1:
        for line in numba.prange(w.taps_down * w.taps_across * w.channels):
            i, j, c = line // (w.taps_across * w.channels), line // w.channels % w.taps_across, line % w.channels
            at = w.filter_at + i * w.filter_row + j * w.filter_tap + c * w.filter_channel
            out[at : at + w.columns] = 0
            for t in range(threads):
                if begun[c // b.chunk, t]:
                    for o in range(w.columns):
                        out[at + o] += sums[t * out.size + at + o]


def gradient(w: Window, x: np.ndarray, dy: np.ndarray, out: np.ndarray, vector: int = 0):
    """The call that computes the gradient of a window's filters on Numba's threads, in vectors of `vector` bytes (0: the widest).

    x, dy, out: flat arrays of one type, in which the window's source, output and filters lie.
    """
    threads, item = numba.get_num_threads(), x.itemsize
    vector = vector or emit.fastest_size(w.columns * item)
    lanes = vector // item
    w = pixel_blocks.unstrided(w)
    taps = w.taps_down * w.taps_across
    most = max(16, min(_CHANNELS, _SUM_BYTES // (item * taps * w.columns)))
    chunk = -(-w.channels // -(-w.channels // most))
    b = pixel_blocks.blocks(w, chunk, item, 1, _PIXELS, pixel_blocks.threads_pieces(threads), always=True)
    tiles = pixel_tiles.heights(vector)
    highs = tuple(_height(tiles, w.taps_across * deep) for deep in (chunk, w.channels % chunk or chunk))
    scratch = empty((threads * b.size,), x.dtype, 2)
    right = empty((threads * b.images * b.rows * w.across * VECTORS * lanes,), x.dtype, 6)
    right[:] = 0
    sums = empty((threads * out.size,), x.dtype, 4) if threads > 1 else out
    runs_at, out_at = pixel_blocks.places(b.images * b.rows), pixel_blocks.places(w.taps_across * chunk)
    begun = np.zeros((-(-w.channels // chunk), threads), np.int64)
    given = threads, (0,) * lanes, highs, w, b, origin(x), origin(dy), out
    call = direct(_gradient, *given, sums, scratch, right, runs_at, out_at, pixel_blocks.places(1), begun)
    return lambda keep=(x, dy): call()


def _height(tiles: tuple[int, ...], rows: int) -> int:
    """The lowest of the tiles that covers `rows` rows in as few tiles as the highest does."""
    return min(tile for tile in tiles if -(-rows // tile) == -(-rows // max(tiles)))
