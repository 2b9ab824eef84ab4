"""Convolution as im2col and NumPy's BLAS."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernels.problems import Conv
from kernels.problems.arrays import empty
from kernels.reference.conv import channels_last
from kernels.registry import TimedCall, kernel, timed_call

# Columns are made and used a piece at a time: few enough to stay in a last cache, enough to keep all threads of a product busy.
_PIECE_BYTES = 1 << 22


@kernel
def im2col(problem: Conv, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Each position's window copied into a row, then one BLAS product; by pieces that a cache holds. NCHW is turned to NHWC
    on
    the way in and out.

    a, b: the operands, shaped as problem.operand_shapes says.
    """
    if problem.math not in ("float32", "float64"):
        raise ValueError(f"NumPy's BLAS multiplies float32 and float64, not {problem.math}")
    out = empty(problem.out_shape, a.dtype, place=5)
    by_direction = {"fprop": _fprop, "dgrad": _dgrad, "wgrad": _wgrad}
    call = _product if _pointwise(problem) else by_direction[problem.direction]
    return timed_call(call(problem, *channels_last(problem, a, b, out)), result=out)


def _pointwise(problem: Conv) -> bool:
    """Whether the filter is 1 x 1 at every pixel, so that the images are their own matrix of columns."""
    is_of_pixels = (problem.r, problem.s, problem.stride, problem.groups) == (1, 1, 1, 1)
    return problem.layout == "NHWC" and is_of_pixels and problem.pads == ((0, 0), (0, 0))


def _product(problem: Conv, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Callable[[], Any]:
    """The call that computes a convolution with 1 x 1 filters at every pixel as one matrix product: a pixel is a row.

    a, b, out: operands and result, stored NHWC.
    """
    a, b, c = map(_rows, (a, b, out))
    if problem.direction == "dgrad":
        b = b.T
    elif problem.direction == "wgrad":
        a = a.T
    return lambda: np.matmul(a, b, out=c)


class _Columns:
    """The buffers of im2col for a problem: a padded copy of a few images, and the columns (a row for each position of the
    filter) of a piece of one group. A piece is some images, or some rows of the output of one image."""

    def __init__(self, problem: Conv, dtype: np.dtype) -> None:
        """Cuts the problem into pieces whose columns have about _PIECE_BYTES, and makes the buffers for arrays of that type."""
        self.problem = problem
        self.channels = problem.c_in // problem.groups
        self.taps = self.channels * problem.r * problem.s
        row = problem.q * self.taps * dtype.itemsize
        self.images = min(problem.n, max(1, _PIECE_BYTES // (row * problem.p)))
        self.rows = problem.p if self.images > 1 else min(problem.p, max(1, _PIECE_BYTES // row))
        (top, bottom), (left, right) = problem.pads
        self.bare = problem.layout == "NHWC" and not (top or bottom or left or right)
        self.inside = (slice(None), slice(top, top + problem.h), slice(left, left + problem.w))
        shape = (self.images, problem.h + top + bottom, problem.w + left + right, problem.c_in)
        self.padded = empty((0,) if self.bare else shape, dtype, place=6)
        self.padded[...] = 0
        self.buffer = empty((self.images * self.rows * problem.q * self.taps,), dtype, place=7)

    def chunks(self) -> Iterator[slice]:
        """Yields the ranges of images that are copied together."""
        for begin in range(0, self.problem.n, self.images):
            yield slice(begin, min(begin + self.images, self.problem.n))

    def pieces(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Yields (first output row, row after the last, channels of x, channels of y) of each piece of a chunk of images, by
        groups."""
        filters = self.problem.c_out // self.problem.groups
        for group in range(self.problem.groups):
            x_channels = slice(group * self.channels, (group + 1) * self.channels)
            y_channels = slice(group * filters, (group + 1) * filters)
            for begin in range(0, self.problem.p, self.rows):
                yield begin, min(begin + self.rows, self.problem.p), x_channels, y_channels

    def images_of(self, x: np.ndarray, chunk: slice) -> np.ndarray:
        """The chunk's images (n x h x w x c) with their padding, in the buffer if they have any."""
        if self.bare:
            return x[chunk]
        padded = self.padded[: chunk.stop - chunk.start]
        padded[self.inside] = x[chunk]
        return padded

    def fill(self, images: np.ndarray, begin: int, end: int, channels: slice) -> np.ndarray:
        """The piece's columns, positions x taps: every window of the images that the output rows `begin` to `end` see, copied
        into a row."""
        problem = self.problem
        source = images[:, begin * problem.stride :, :, channels]
        image = source.strides[0]
        row = source.strides[1]
        pixel = source.strides[2]
        channel = source.strides[3]
        shape = (len(images), end - begin, problem.q, problem.r, problem.s, self.channels)
        strides = (image, problem.stride * row, problem.stride * pixel, row, pixel, channel)
        columns = self.part(shape)
        np.copyto(columns, np.lib.stride_tricks.as_strided(source, shape, strides, writeable=False))
        return columns.reshape(-1, self.taps)

    def part(self, shape: tuple[int, ...]) -> np.ndarray:
        """The start of the columns' buffer in that shape."""
        return self.buffer[: int(np.prod(shape))].reshape(shape)


def _rows(array: np.ndarray) -> np.ndarray:
    """An array as a matrix with its last axis for columns."""
    return array.reshape(-1, array.shape[-1])


def _fprop(problem: Conv, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """The call that fills y, the columns of x times the filters, piece by piece. All arrays in the order of NHWC."""
    columns = _Columns(problem, x.dtype)

    def run() -> None:
        """Copies the windows of each piece into columns, and multiplies them by the group's filters."""
        for chunk in columns.chunks():
            images = columns.images_of(x, chunk)
            for begin, end, x_channels, y_channels in columns.pieces():
                windows = columns.fill(images, begin, end, x_channels)
                filters = _rows(w[..., y_channels])
                part = y[chunk, begin:end, :, y_channels]
                if part.flags.c_contiguous:  # BLAS writes there
                    np.matmul(windows, filters, out=_rows(part))
                else:
                    part[...] = (windows @ filters).reshape(part.shape)

    return run


def _dgrad(problem: Conv, dy: np.ndarray, w: np.ndarray, dx: np.ndarray) -> Callable[[], None]:
    """The call that fills dx: columns are dy times the filters transposed, and each tap's are added to the pixels that it
    meets. All arrays in the order of NHWC."""
    columns = _Columns(problem, dy.dtype)
    stride = problem.stride

    def run() -> None:
        """Multiplies piece by piece into columns and adds them to the padded images; the padding is then left out."""
        for chunk in columns.chunks():
            images = dx[chunk] if columns.bare else columns.padded[: chunk.stop - chunk.start]
            images[...] = 0
            for begin, end, x_channels, y_channels in columns.pieces():
                part = _rows(dy[chunk, begin:end, :, y_channels])
                windows = columns.part((len(images), end - begin, problem.q, problem.r, problem.s, columns.channels))
                np.matmul(part, _rows(w[..., y_channels]).T, out=windows.reshape(-1, columns.taps))
                for i, j in np.ndindex(problem.r, problem.s):  # a tap's columns belong to the pixels that it meets
                    down = slice(begin * stride + i, (end - 1) * stride + i + 1, stride)
                    across = slice(j, (problem.q - 1) * stride + j + 1, stride)
                    images[:, down, across, x_channels] += windows[:, :, :, i, j]
            if not columns.bare:
                dx[chunk] = images[columns.inside]

    return run


def _wgrad(problem: Conv, x: np.ndarray, dy: np.ndarray, dw: np.ndarray) -> Callable[[], None]:
    """The call that fills dw, the columns of x transposed times dy, summed over the pieces. All arrays in the order of NHWC."""
    columns = _Columns(problem, x.dtype)

    def run() -> None:
        """Copies the windows of each piece into columns, and adds their product with dy to the group's filters."""
        dw[...] = 0
        for chunk in columns.chunks():
            images = columns.images_of(x, chunk)
            for begin, end, x_channels, y_channels in columns.pieces():
                windows = columns.fill(images, begin, end, x_channels)
                filters = dw[..., y_channels]
                filters += (windows.T @ _rows(dy[chunk, begin:end, :, y_channels])).reshape(filters.shape)

    return run
