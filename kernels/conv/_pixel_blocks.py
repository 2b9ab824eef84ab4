"""Convolutions cut into blocks: the layout of pixels, windows and filters, and the copies of image blocks."""

from typing import NamedTuple

import numba
import numpy as np

from kernels.problems import Conv
from kernels.problems.conv import phase
from kernels.simd.packing import copy_group, copy_some

#: Most bytes of a block's source.
_SOURCE_BYTES = 256 << 10
#: Lines so many bytes apart share one set of the first-level cache.
_PAGE = 4096
#: Most images of a block.
_MOST_IMAGES = 512


class Window(NamedTuple):
    """A convolution on three flat arrays. Column o of output pixel (n, p, q) is the sum over taps (i, j) and channels c of
    source[n, p stride + i - top, q stride + j - left, c] filters[i, j, c, o]; pixels outside an image are 0.

    All places and steps are in elements.
    """

    #: Images, and rows and columns of each.
    images: int
    height: int
    width: int
    #: The source's first element, and the steps from image to image, row to row and pixel to pixel.
    source_at: int
    source_image: int
    source_row: int
    source_pixel: int
    #: Channels that are summed over.
    channels: int
    #: Taps of a filter.
    taps_down: int
    taps_across: int
    #: Pixels from window to window, and zeros above and to the left of an image.
    stride: int
    top: int
    left: int
    #: Rows and columns of an output image.
    rows: int
    across: int
    #: The output's first element, and the steps from image to image, row to row and pixel to pixel.
    out_at: int
    out_image: int
    out_row: int
    out_pixel: int
    #: Channels of an output pixel, each with a filter of its own.
    columns: int
    #: The filters' first element, and the steps from row to row, tap to tap, channel to channel and column to column.
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
        lines = (self.rows - 1) * self.stride + self.taps_down
        line = (self.across - 1) * self.stride + self.taps_across
        begins_inside = self.top <= 0 and self.left <= 0
        return begins_inside and lines - self.top <= self.height and line - self.left <= self.width


class Blocks(NamedTuple):
    """How a window is cut: into blocks of `images` images or of `rows` output rows of one image."""

    #: Channels at a time.
    chunk: int
    images: int
    rows: int
    #: 1: a block's source is copied first, with its padding.
    copied: int
    #: 1: the source of a row of taps is contiguous.
    merged: int
    #: Elements of such a copy.
    size: int


def windows(problem: Conv) -> list[Window]:
    """The convolutions on flat arrays that a problem consists of. fprop and wgrad have one per group. dgrad has one per group
    and per position of a pixel within a stride, with reversed filters: each has only the taps that reach its position."""
    parts = []
    for group in range(problem.groups):
        if problem.direction == "dgrad":
            parts += _windows_of_dgrad(problem, group)
        else:
            parts.append(_forward_window(problem, group))
    return parts


def _forward_window(problem: Conv, group: int) -> Window:
    """The window of fprop for one group: it reads images stored NHWC and writes the output; wgrad uses the same places."""
    channels = problem.c_in // problem.groups
    columns = problem.c_out // problem.groups
    (top, _), (left, _) = problem.pads
    tap = channels * problem.c_out
    return Window(
        images=problem.n,
        height=problem.h,
        width=problem.w,
        source_at=group * channels,
        source_image=problem.h * problem.w * problem.c_in,
        source_row=problem.w * problem.c_in,
        source_pixel=problem.c_in,
        channels=channels,
        taps_down=problem.r,
        taps_across=problem.s,
        stride=problem.stride,
        top=top,
        left=left,
        rows=problem.p,
        across=problem.q,
        out_at=group * columns,
        out_image=problem.p * problem.q * problem.c_out,
        out_row=problem.q * problem.c_out,
        out_pixel=problem.c_out,
        columns=columns,
        filter_at=group * columns,
        filter_row=problem.s * tap,
        filter_tap=tap,
        filter_channel=problem.c_out,
        filter_column=1,
    )


def _windows_of_dgrad(problem: Conv, group: int) -> list[Window]:
    """The windows of dgrad for one group, which read dy and write dx: the forward window with images and output, and channels
    and columns, exchanged. One for each position of a pixel within a stride."""
    forward = _forward_window(problem, group)
    stride = problem.stride
    parts = []
    for row in range(min(stride, problem.h)):
        down = phase(problem.h, problem.r, stride, forward.top, first=row)
        for column in range(min(stride, problem.w)):
            across = phase(problem.w, problem.s, stride, forward.left, first=column)
            last_tap = down.last * forward.filter_row + across.last * forward.filter_tap
            window = Window(
                images=problem.n,
                height=problem.p,
                width=problem.q,
                source_at=forward.out_at,
                source_image=forward.out_image,
                source_row=forward.out_row,
                source_pixel=forward.out_pixel,
                channels=forward.columns,
                taps_down=down.taps,
                taps_across=across.taps,
                stride=1,
                top=down.zeros,
                left=across.zeros,
                rows=down.size,
                across=across.size,
                out_at=forward.source_at + row * forward.source_row + column * forward.source_pixel,
                out_image=forward.source_image,
                out_row=forward.source_row * stride,
                out_pixel=forward.source_pixel * stride,
                columns=forward.channels,
                filter_at=forward.filter_at + last_tap,
                filter_row=-forward.filter_row * stride,
                filter_tap=-forward.filter_tap * stride,
                filter_channel=1,
                filter_column=problem.c_out,
            )
            parts.append(window)
    return parts


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


def pixels_as_images(w: Window) -> Window:
    """An equivalent window in which every pixel is an image, if the filter is 1x1 and all pixels are evenly spaced in memory;
    else the window unchanged. Blocks may then end at any pixel."""
    has_bare_pixels = (w.taps_down, w.taps_across, w.stride, w.top, w.left) == (1, 1, 1, 0, 0)
    is_whole = (w.rows, w.across) == (w.height, w.width)
    row = w.across
    image = w.rows * w.across
    source_is_even = (w.source_row, w.source_image) == (row * w.source_pixel, image * w.source_pixel)
    out_is_even = (w.out_row, w.out_image) == (row * w.out_pixel, image * w.out_pixel)
    if not (has_bare_pixels and is_whole and source_is_even and out_is_even):
        return w
    return w._replace(
        images=w.pixels,
        height=1,
        width=1,
        rows=1,
        across=1,
        source_image=w.source_pixel,
        out_image=w.out_pixel,
    )


def cut(
    w: Window,
    chunk: int,
    *,
    item_bytes: int,
    tile: int,
    most_pixels: int,
    least_blocks: int,
    always_copied: bool = False,
) -> Blocks:
    """The blocks of a window for `chunk` channels of `item_bytes` at a time.

    Of the sizes with at most _SOURCE_BYTES of source and `most_pixels` pixels it is the one with the least estimated waste:
    tiles of `tile` pixels that are not full, copied borders, uneven blocks, fewer blocks than `least_blocks`, few pixels.
    always_copied: a block's source is copied even if it could be read in place.
    """
    pitch = w.source_pixel * w.stride * item_bytes
    copied = always_copied or not w.inside or (pitch % _PAGE == 0 and w.pixels > 1)
    merged = w.taps_across == 1 or copied or w.source_pixel == w.channels == chunk
    line = ((w.across - 1) * w.stride + w.taps_across) * chunk

    def source(images: int, rows: int) -> int:
        """Elements of source under so many images, or output rows of one image, with the borders that windows reach into."""
        return images * ((rows - 1) * w.stride + w.taps_down) * line

    def waste(size: tuple[int, int]) -> float:
        """Weighted sum of what blocks of (images, rows) waste: pixels of tiles that are not full, copied borders, uneven
        blocks, blocks that some threads lack, and work around blocks of few pixels."""
        images, rows = size
        pixels = images * rows * w.across
        tiles = -(-pixels // tile) * tile / pixels
        halo = source(images, rows) / (images * rows * w.stride * line)
        uneven = -(-w.images // images) * images / w.images * (-(-w.rows // rows) * rows / w.rows)
        few = max(0.0, least_blocks / (-(-w.images // images) * -(-w.rows // rows)) - 1)
        return tiles + 0.02 * halo + 0.3 * uneven + 0.5 * few + 10 / pixels

    sizes = [(1, rows) for rows in range(1, w.rows + 1)]
    sizes += [(images, w.rows) for images in range(2, min(w.images, _MOST_IMAGES) + 1)]
    fitting = []
    for images, rows in sizes:
        if source(images, rows) * item_bytes <= _SOURCE_BYTES and images * rows * w.across <= most_pixels:
            fitting.append((images, rows))
    images, rows = min(fitting or sizes[:1], key=waste)
    return Blocks(
        chunk=chunk,
        images=images,
        rows=rows,
        copied=int(copied),
        merged=int(merged),
        size=source(images, rows) if copied else 0,
    )


@numba.njit(cache=True)
def copy_run(lanes: tuple, target: np.ndarray, at: int, source: np.ndarray, start: int, count: int) -> None:
    """Copies `count` values from source[start] on to target[at] on, by vectors as long as the tuple `lanes`. Compiled by
    Numba."""
    whole = count // len(lanes) * len(lanes)
    for i in range(0, whole, len(lanes)):
        copy_group(lanes, target, at + i, source, start + i, 4 * len(lanes))
    if whole < count:
        copy_some(lanes, target, at + whole, source, start + whole, count - whole)


@numba.njit(cache=True)
def copy_block(
    lanes: tuple,
    target: np.ndarray,
    at: int,
    source: np.ndarray,
    w: Window,
    images: int,
    first: int,
    rows: int,
    image: int,
    channel: int,
    deep: int,
) -> None:
    """Copies to target[at] on the source under `rows` output rows from `first` on, of `images` images from `image` on, with
    zeros for its padding; of each pixel `deep` channels from `channel` on. Compiled by Numba; target and source are flat."""
    lines = (rows - 1) * w.stride + w.taps_down
    width = (w.across - 1) * w.stride + w.taps_across
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
                line = w.source_at + n * w.source_image + row * w.source_row
                start = line + (before - w.left) * w.source_pixel + channel
                if deep == w.source_pixel:
                    copy_run(lanes, target, at + before * deep, source, start, (after - before) * deep)
                else:
                    for j in range(after - before):
                        copy_run(lanes, target, at + (before + j) * deep, source, start + j * w.source_pixel, deep)
            at += width * deep


def threads_pieces(threads: int) -> int:
    """Number of pieces of work that keeps all threads busy even if one of them is delayed."""
    return 4 * threads if threads > 1 else 1


def table(size: int) -> np.ndarray:
    """A table for `size` offsets in memory, all 0."""
    return np.zeros(size, np.int64)
