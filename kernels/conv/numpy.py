"""Convolution as im2col and NumPy's BLAS."""

from collections.abc import Callable, Iterator

import numpy as np

from kernels.problems import Conv
from kernels.problems.arrays import empty
from kernels.registry import kernel

# Columns are made and used a piece at a time: few enough to stay in a last cache, enough to keep all threads of a product busy.
_PIECE_BYTES = 1 << 22


@kernel
def im2col(problem: Conv, a, b):
    """Each position's window copied into a row (a column, for NCHW), then one BLAS product; by pieces that a cache holds."""
    if problem.math not in ("float32", "float64"):
        raise ValueError(f"NumPy's BLAS multiplies float32 and float64, not {problem.math}")
    out = empty(problem.out_shape, a.dtype, 5)
    if _pointwise(problem):
        return _product(problem, a, b, out)
    return {"fprop": _fprop, "dgrad": _dgrad, "wgrad": _wgrad}[problem.direction](problem, a, b, out)


def _pointwise(problem: Conv) -> bool:
    """Whether the images are their own columns: a 1 x 1 filter at every pixel."""
    return (
        problem.layout == "NHWC"
        and problem.w_shape == (1, 1, problem.c_in, problem.c_out)
        and (problem.stride == 1 and problem.pads == ((0, 0), (0, 0)))
    )


def _product(problem: Conv, a, b, out) -> Callable:
    a, b, c = (array.reshape(-1, array.shape[-1]) for array in (a, b, out))
    if problem.direction == "dgrad":
        b = b.T
    elif problem.direction == "wgrad":
        a = a.T

    def run():
        np.matmul(a, b, out=c)
        return out

    return run


class _Columns:
    """The buffers of a problem: a padded copy of a few images, and the columns of a piece of one group. A piece is some
    images, or some rows of the output of one image. `last`: channels come last (NHWC), else before the pixels.
    """

    def __init__(self, problem: Conv, dtype: np.dtype):
        self.problem, self.last = problem, problem.layout == "NHWC"
        self.channels = problem.c_in // problem.groups
        self.taps = self.channels * problem.r * problem.s
        row = problem.q * self.taps * dtype.itemsize
        self.images = min(problem.n, max(1, _PIECE_BYTES // (row * problem.p)))
        self.rows = problem.p if self.images > 1 else min(problem.p, max(1, _PIECE_BYTES // row))
        (top, bottom), (left, right) = problem.pads
        self.bare = not (top or bottom or left or right)
        self.inside = (slice(top, top + problem.h), slice(left, left + problem.w))
        size = (problem.h + top + bottom, problem.w + left + right)
        shape = (self.images, *size, problem.c_in) if self.last else (self.images, problem.c_in, *size)
        self.padded = empty((0,) if self.bare else shape, dtype, 6)
        self.padded[...] = 0
        self.buffer = empty((self.images * self.rows * problem.q * self.taps,), dtype, 7)

    def chunks(self) -> Iterator[slice]:
        """Ranges of images."""
        for begin in range(0, self.problem.n, self.images):
            yield slice(begin, min(begin + self.images, self.problem.n))

    def pieces(self) -> Iterator[tuple[int, int, slice, slice]]:
        """(first row, row after the last, rows of the filters, channels of y) of each piece of a chunk, by groups."""
        filters = self.problem.c_out // self.problem.groups
        for group in range(self.problem.groups):
            for begin in range(0, self.problem.p, self.rows):
                yield (
                    begin,
                    min(begin + self.rows, self.problem.p),
                    slice(group * self.channels, (group + 1) * self.channels),
                    slice(group * filters, (group + 1) * filters),
                )

    def images_of(self, x: np.ndarray, chunk: slice) -> np.ndarray:
        """The chunk's images with their padding."""
        if self.bare:
            return x[chunk]
        padded = self.padded[: chunk.stop - chunk.start]
        self.within(padded)[...] = x[chunk]
        return padded

    def within(self, padded: np.ndarray) -> np.ndarray:
        """Padded images without their padding."""
        if self.bare:
            return padded
        return padded[:, *self.inside] if self.last else padded[:, :, *self.inside]

    def fill(self, images: np.ndarray, begin: int, end: int, channels: slice) -> np.ndarray:
        """The piece's columns: (positions, taps), or (images, taps, positions) for NCHW."""
        p, stride = self.problem, self.problem.stride
        count = images.shape[0]
        if self.last:
            source = images[:, begin * stride :, :, channels]
            n, h, w, c = source.strides
            shape, strides = (count, end - begin, p.q, p.r, p.s, self.channels), (n, stride * h, stride * w, h, w, c)
            two: tuple[int, ...] = (-1, self.taps)
        else:
            source = images[:, channels, begin * stride :]
            n, c, h, w = source.strides
            shape, strides = (count, self.channels, p.r, p.s, end - begin, p.q), (n, c, h, w, stride * h, stride * w)
            two = (count, self.taps, -1)
        columns = self.part(shape)
        np.copyto(columns, np.lib.stride_tricks.as_strided(source, shape, strides, writeable=False))
        return columns.reshape(two)

    def part(self, shape: tuple[int, ...]) -> np.ndarray:
        """The start of the columns' buffer in that shape."""
        return self.buffer[: int(np.prod(shape))].reshape(shape)


def _filters(problem: Conv, w: np.ndarray, of: slice) -> np.ndarray:
    """A group's filters as a matrix: (taps, c_out), or (c_out, taps) for NCHW."""
    if problem.layout == "NHWC":
        return w.reshape(-1, problem.c_out)[:, of]
    return w[of].reshape(of.stop - of.start, -1)


def _fprop(problem: Conv, x, w, y) -> Callable:
    columns = _Columns(problem, x.dtype)

    def run():
        for chunk in columns.chunks():
            images = columns.images_of(x, chunk)
            for begin, end, channels, of in columns.pieces():
                made, filters = columns.fill(images, begin, end, channels), _filters(problem, w, of)
                if columns.last:
                    part = y[chunk, begin:end, :, of]
                    if problem.groups == 1:  # then it lies in one piece, and BLAS writes there
                        np.matmul(made, filters, out=part.reshape(-1, problem.c_out))
                    else:
                        part[...] = (made @ filters).reshape(part.shape)
                else:
                    part = y[chunk, of, begin:end]
                    np.matmul(filters, made, out=part.reshape(*part.shape[:2], -1))
        return y

    return run


def _dgrad(problem: Conv, dy, w, dx) -> Callable:
    columns = _Columns(problem, dy.dtype)
    stride, r, s = problem.stride, problem.r, problem.s

    def add(images, begin, end, channels, count):
        """Adds the piece's columns to the windows that they belong to."""
        for i in range(r):
            rows = slice(begin * stride + i, (end - 1) * stride + i + 1, stride)
            for j in range(s):
                across = slice(j, (problem.q - 1) * stride + j + 1, stride)
                if columns.last:
                    made = columns.part((count, end - begin, problem.q, r, s, columns.channels))
                    images[:, rows, across, channels] += made[:, :, :, i, j]
                else:
                    made = columns.part((count, columns.channels, r, s, end - begin, problem.q))
                    images[:, channels, rows, across] += made[:, :, i, j]

    def run():
        for chunk in columns.chunks():
            count = chunk.stop - chunk.start
            images = dx[chunk] if columns.bare else columns.padded[:count]
            images[...] = 0
            for begin, end, channels, of in columns.pieces():
                filters = _filters(problem, w, of)
                if columns.last:
                    part = dy[chunk, begin:end, :, of].reshape(-1, of.stop - of.start)
                    np.matmul(part, filters.T, out=columns.part((part.shape[0], columns.taps)))
                else:
                    part = dy[chunk, of, begin:end].reshape(count, of.stop - of.start, -1)
                    np.matmul(filters.T, part, out=columns.part((count, columns.taps, part.shape[-1])))
                add(images, begin, end, channels, count)
            if not columns.bare:
                dx[chunk] = columns.within(images)
        return dx

    return run


def _wgrad(problem: Conv, x, dy, dw) -> Callable:
    columns = _Columns(problem, x.dtype)

    def run():
        dw[...] = 0
        for chunk in columns.chunks():
            images = columns.images_of(x, chunk)
            for begin, end, channels, of in columns.pieces():
                made, filters = columns.fill(images, begin, end, channels), _filters(problem, dw, of)
                if columns.last:
                    filters += made.T @ dy[chunk, begin:end, :, of].reshape(made.shape[0], -1)
                else:
                    part = dy[chunk, of, begin:end]
                    for columns_of_one, of_one in zip(made, part.reshape(*part.shape[:2], -1), strict=True):
                        filters += of_one @ columns_of_one.T
        return dw

    return run
