"""Convolutions cut into blocks: the layout of pixels, windows and filters, and the copies of image blocks."""

from typing import NamedTuple

import numba
import numpy as np

from kernels.problems import Conv
from kernels.problems.conv import phase
from kernels.simd.packing import copy_group, copy_some

_SOURCE_BYTES = 256 << 10  # most bytes of a block's source
_PAGE = 4096  # lines so many bytes apart share one set of the first-level cache


class Window(NamedTuple):
    """A convolution on three flat arrays. Column o of output pixel (n, p, q) is the sum over taps (i, j) and channels c of
    source[n, p stride + i - top, q stride + j - left, c] filters[i, j, c, o]; pixels outside an image are 0.

    `*_at` is the offset of an array's first element; `source_image`, `out_row` and the like are its strides; all in elements.
    """

    images: int
    height: int
    width: int
    source_at: int
    source_image: int
    source_row: int
    source_pixel: int
    channels: int
    taps_down: int
    taps_across: int
    stride: int
    top: int
    left: int
    rows: int
    across: int
    out_at: int
    out_image: int
    out_row: int
    out_pixel: int
    columns: int
    filter_at: int
    filter_row: int
    filter_tap: int
    filter_channel: int
    filter_column: int

    @property
    def pixels(self) -> int:
        """Pixels of the output in all images."""
        return self.images * self.rows * self.across

    @property
    def inside(self) -> bool:
        """Whether no window reaches out of its image."""
        low, high = (self.rows - 1) * self.stride + self.taps_down, (self.across - 1) * self.stride + self.taps_across
        return self.top <= 0 and self.left <= 0 and low - self.top <= self.height and high - self.left <= self.width


class Blocks(NamedTuple):
    """How a window is cut: into `chunk` channels at a time, and blocks of `images` images or of `rows` output rows of one image.

    copied: a block's source is copied first (`size` elements with padding). merged: the source of a row of taps is contiguous.
    """

    chunk: int
    images: int
    rows: int
    copied: int
    merged: int
    size: int


def windows(problem: Conv) -> list[Window]:
    """The windows of a problem. fprop and wgrad have one per group. dgrad has one per group and per position of a pixel within
    a stride, with reversed filters: each has only the taps that reach its position."""
    p, found = problem, []
    of, filters = p.c_in // p.groups, p.c_out // p.groups
    x = (p.h * p.w * p.c_in, p.w * p.c_in, p.c_in)
    y = (p.p * p.q * p.c_out, p.q * p.c_out, p.c_out)
    tap, row, stride = of * p.c_out, p.s * of * p.c_out, p.stride
    (top, _), (left, _) = p.pads
    for group in range(p.groups):
        first, last = group * of, group * filters
        if p.direction != "dgrad":
            source, taps = (p.n, p.h, p.w, first, *x, of), (p.r, p.s, stride, top, left)
            found.append(Window(*source, *taps, p.p, p.q, last, *y, filters, last, row, tap, p.c_out, 1))
            continue
        source = (p.n, p.p, p.q, last, *y, filters)
        for a in range(min(stride, p.h)):
            for b in range(min(stride, p.w)):
                down, across = phase(p.h, p.r, stride, top, a), phase(p.w, p.s, stride, left, b)
                taps = (down.taps, across.taps, 1, down.zeros, across.zeros)
                to = (first + a * x[1] + b * x[2], x[0], x[1] * stride, x[2] * stride, of)
                turned = (last + down.last * row + across.last * tap, -row * stride, -tap * stride, 1, p.c_out)
                found.append(Window(*source, *taps, down.size, across.size, *to, *turned))
    return found


def unstrided(w: Window) -> Window:
    """An equivalent window of stride 1, if the filter is 1x1 and never leaves its image; else the window unchanged."""
    if (w.taps_down, w.taps_across) != (1, 1) or not w.inside:
        return w
    at = w.source_at - w.top * w.source_row - w.left * w.source_pixel
    return w._replace(
        source_at=at,
        source_row=w.source_row * w.stride,
        source_pixel=w.source_pixel * w.stride,
        stride=1,
        top=0,
        left=0,
        height=w.rows,
        width=w.across,
    )


def scattered(w: Window) -> Window:
    """An equivalent window in which every pixel is an image, if the filter is 1x1 and all pixels are evenly spaced in memory;
    else the window unchanged. Blocks may then end at any pixel."""
    shape = (w.taps_down, w.taps_across, w.stride, w.top, w.left, w.height, w.width)
    apart = (w.source_row, w.source_image, w.out_row, w.out_image)
    row, image = w.across, w.rows * w.across
    even = (row * w.source_pixel, image * w.source_pixel, row * w.out_pixel, image * w.out_pixel)
    if shape != (1, 1, 1, 0, 0, w.rows, w.across) or apart != even:
        return w
    ones = dict.fromkeys(("height", "width", "rows", "across"), 1)
    return w._replace(images=w.pixels, source_image=w.source_pixel, out_image=w.out_pixel, **ones)


def blocks(w: Window, chunk: int, item: int, tile: int, most_pixels: int, least: int, always: bool = False) -> Blocks:
    """The blocks of a window. Of the sizes with at most _SOURCE_BYTES of source and `most_pixels` pixels it is the one with the
    least estimated waste: unfilled tiles of `tile` pixels, copied borders, uneven blocks, fewer blocks than `least`, few pixels.

    always: a block's source is copied even if it could be read in place.
    """
    pitch = w.source_pixel * w.stride * item
    copied = always or not w.inside or (pitch % _PAGE == 0 and w.pixels > 1)
    merged = w.taps_across == 1 or copied or w.source_pixel == w.channels == chunk
    line = ((w.across - 1) * w.stride + w.taps_across) * chunk

    def source(images: int, rows: int) -> int:
        return images * ((rows - 1) * w.stride + w.taps_down) * line

    def waste(images: int, rows: int) -> float:
        pixels = images * rows * w.across
        tiles = -(-pixels // tile) * tile / pixels
        halo = source(images, rows) / (images * rows * w.stride * line)
        uneven = -(-w.images // images) * images / w.images * (-(-w.rows // rows) * rows / w.rows)
        few = max(0.0, least / (-(-w.images // images) * -(-w.rows // rows)) - 1)
        return tiles + 0.02 * halo + 0.3 * uneven + 0.5 * few + 10 / pixels

    sizes = [(1, rows) for rows in range(1, w.rows + 1)] + [
        (images, w.rows) for images in range(2, min(w.images, 512) + 1)
    ]
    fit = [s for s in sizes if source(*s) * item <= _SOURCE_BYTES and s[0] * s[1] * w.across <= most_pixels] or sizes[
        :1
    ]
    images, rows = min(fit, key=lambda s: waste(*s))
    return Blocks(chunk, images, rows, int(copied), int(merged), source(images, rows) if copied else 0)


@numba.njit(cache=True)
def copy_run(lanes, target, at, source, start, count):
    """Copies `count` values."""
    whole = count // len(lanes) * len(lanes)
    for i in range(0, whole, len(lanes)):
        copy_group(lanes, target, at + i, source, start + i, 4 * len(lanes))
    if whole < count:
        copy_some(lanes, target, at + whole, source, start + whole, count - whole)


@numba.njit(cache=True)
def copy_block(lanes, target, at, source, w, images, first, rows, image, channel, deep):
    """Copies the source under `rows` output rows from `first` on, of `images` images from `image` on, with zeros for its padding;
    of each pixel `deep` channels from `channel` on."""
    lines, width = (rows - 1) * w.stride + w.taps_down, (w.across - 1) * w.stride + w.taps_across
    before = min(max(w.left, 0), width)
    after = max(before, min(width, w.width + w.left))
    for n in range(image, image + images):
        for i in range(lines):
            row = first * w.stride - w.top + i
            if row < 0 or row >= w.height:
                target[at : at + width * deep] = 0
            else:
                target[at : at + before * deep] = 0
                target[at + after * deep : at + width * deep] = 0
                start = (
                    w.source_at + n * w.source_image + row * w.source_row + (before - w.left) * w.source_pixel + channel
                )
                if deep == w.source_pixel:
                    copy_run(lanes, target, at + before * deep, source, start, (after - before) * deep)
                else:
                    for j in range(after - before):
                        copy_run(lanes, target, at + (before + j) * deep, source, start + j * w.source_pixel, deep)
            at += width * deep


def threads_pieces(threads: int) -> int:
    """Number of pieces of work that keeps all threads busy even if one of them is delayed."""
    return 4 * threads if threads > 1 else 1


def places(size: int) -> np.ndarray:
    """A table for `size` offsets in memory, all 0."""
    return np.zeros(size, np.int64)
