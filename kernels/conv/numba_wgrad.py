"""The filters' gradient on vectors: sums over pixels of products, a tile of the filters in registers."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from kernels.conv._pixel_blocks import Blocks, Window, copy_block, cut, table, threads_pieces, unstrided
from kernels.conv._pixel_tiles import VECTORS, adjacent_tile, heights
from kernels.problems.arrays import empty
from kernels.simd import emit
from kernels.simd.calls import direct
from kernels.simd.packing import origin, pack_panel

#: Most channels at a time: with their taps and all columns they are the sums that all blocks of pixels add to.
_CHANNELS = 256
#: Fewest channels at a time.
_LEAST_CHANNELS = 16
#: Bytes of these sums.
_SUM_BYTES = 1 << 20
#: Pixels of a block: their panel of dy fits the first-level cache.
_PIXELS = 224


@numba.njit(cache=True)
def _tables(w: Window, b: Blocks, deep: int, runs_at: np.ndarray, out_at: np.ndarray) -> None:
    """Fills the tables of offsets for `deep` channels: runs_at, where each row of a block's output pixels begins in the
    block's copied source; out_at, where each tap and channel of a filter's row goes. Compiled by Numba."""
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
    w: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    dy: np.ndarray,
    out: np.ndarray,
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
) -> None:
    """Adds the products of a block of pixels to the filters' gradient, or begins it with them. Compiled by Numba.

    lanes: a tuple as long as a vector. high: rows of a tile. w, b: the Window and its Blocks. x, dy: flat arrays.
    out[out_from:]: the gradient. scratch, right: from scratch_at and right_at on room for the block's source and for a panel
    of dy. tables: (runs_at, out_at) of _tables. image, first: the block's first image and output row. channel, deep: its
    channels' first and number. added: whether the gradient holds sums already.
    """
    runs_at, out_at = tables
    images = min(b.images, w.images - image)
    lines = min(b.rows, w.rows - first)
    width = len(lanes) * VECTORS
    # Copy: the images under the block's windows, with their padding.
    copy_block(lanes, scratch, scratch_at, x, w, images, first, lines, image, channel, deep)
    row = ((w.across - 1) * w.stride + w.taps_across) * deep
    height = w.taps_across * deep
    for column in range(0, w.columns, width):
        wide = min(width, w.columns - column)
        # Pack: the gradients of the block's pixels.
        for i in range(images * lines):
            start = w.out_at + (image + i // lines) * w.out_image + (first + i % lines) * w.out_row + column
            at = right_at + i * w.across * width
            pack_panel(lanes, lanes, right, at, width, dy, start, 1, w.out_pixel, wide, w.across)
        # Multiply: each row of taps.
        for down in range(w.taps_down):
            at = scratch_at + down * row
            to = out_from + w.filter_at + down * w.filter_row + channel * w.filter_channel + column
            for i in range(0, height, high):
                valid = min(high, height - i)
                old = wide if added else 0
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
def _gradient(
    threads: int,
    lanes: tuple,
    highs: tuple,
    w: Window,
    b: Blocks,
    x: np.ndarray,
    dy: np.ndarray,
    out: np.ndarray,
    sums: np.ndarray,
    scratch: np.ndarray,
    right: np.ndarray,
    runs_at: np.ndarray,
    out_at: np.ndarray,
    counters: np.ndarray,
    begun: np.ndarray,
) -> None:
    """All blocks, a chunk of channels after the other; with several threads each adds to a gradient of its own in `sums`, and
    those are added to `out` in the end. Compiled by Numba.

    lanes: a tuple as long as a vector. highs: rows of a tile, for whole chunks and for the last. w, b: the Window and its
    Blocks. x, dy, out: flat arrays. scratch, right: room for each thread's source and panel of dy. runs_at, out_at: room for
    _tables. counters: the next block. begun: chunk x thread, whether the thread has added to its gradient.
    """
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
            i = line // (w.taps_across * w.channels)
            j = line // w.channels % w.taps_across
            c = line % w.channels
            at = w.filter_at + i * w.filter_row + j * w.filter_tap + c * w.filter_channel
            out[at : at + w.columns] = 0
            for t in range(threads):
                if begun[c // b.chunk, t]:
                    for o in range(w.columns):
                        out[at + o] += sums[t * out.size + at + o]


def gradient(w: Window, x: np.ndarray, dy: np.ndarray, out: np.ndarray, *, vector_bytes: int = 0) -> Callable[[], Any]:
    """The call that computes the gradient of a window's filters on Numba's threads, in vectors of `vector_bytes` (0: the widest).

    x, dy, out: flat arrays of one type, in which the window's source, output and filters lie.
    """
    threads = numba.get_num_threads()
    item_bytes = x.itemsize
    vector_bytes = vector_bytes or emit.fastest_size(w.columns * item_bytes)
    lanes = vector_bytes // item_bytes
    # Cut.
    w = unstrided(w)
    chunk = _chunk(w, item_bytes)
    b = cut(
        w,
        chunk,
        item_bytes=item_bytes,
        tile=1,
        most_pixels=_PIXELS,
        least_blocks=threads_pieces(threads),
        always_copied=True,
    )
    last_chunk = w.channels % chunk or chunk
    highs = (_height(vector_bytes, w.taps_across * chunk), _height(vector_bytes, w.taps_across * last_chunk))
    # Make room.
    scratch = empty((threads * b.size,), x.dtype, place=2)
    right = empty((threads * b.images * b.rows * w.across * VECTORS * lanes,), x.dtype, place=6)
    right[:] = 0
    sums = empty((threads * out.size,), x.dtype, place=4) if threads > 1 else out
    arguments = (
        threads,
        (0,) * lanes,
        highs,
        w,
        b,
        origin(x),
        origin(dy),
        out,
        sums,
        scratch,
        right,
        table(b.images * b.rows),
        table(w.taps_across * chunk),
        table(1),
        np.zeros((-(-w.channels // chunk), threads), np.int64),
    )
    call = direct(_gradient, *arguments)

    def run(keep=(x, dy)):  # the call has raw addresses alone: this keeps the operands alive
        return call()

    return run


def _chunk(w: Window, item_bytes: int) -> int:
    """Channels that are summed at a time: as many as keep their sums in the second-level cache, in chunks of one size."""
    taps = w.taps_down * w.taps_across
    most = max(_LEAST_CHANNELS, min(_CHANNELS, _SUM_BYTES // (item_bytes * taps * w.columns)))
    chunks = -(-w.channels // most)
    return -(-w.channels // chunks)


def _height(vector_bytes: int, rows: int) -> int:
    """The lowest of the tiles that covers `rows` rows in as few tiles as the highest does."""
    tiles = heights(vector_bytes)
    fewest = -(-rows // max(tiles))
    return min(tile for tile in tiles if -(-rows // tile) == fewest)
