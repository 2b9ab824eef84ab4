"""The right convolution, and a check that covers every output of a large one without computing it all.

Everything here sees images as (n, h, w, channels) and filters as (r, s, c_in, c_out) of one group, whatever the layout.
"""

from typing import NamedTuple

import numpy as np

from kernels.problems import Conv
from kernels.problems.arrays import numpy_dtype
from kernels.reference.exact import WRONG, OutputCheck, equal

#: Up to this many products the whole answer is worked out in integers, without any BLAS.
_FULL_PRODUCTS = 1 << 22
_ROUNDS = 2  # of Freivalds' test
_LARGEST_WEIGHT = 64  # of its random whole numbers
#: Channels and images of the part that is worked out again in full, with its edges, corners and all between.
_CHANNELS = 4
_IMAGES = 3
_CHUNK_BYTES = 1 << 26  # of a temporary array
TRANSFORM_ERROR = 2e-3  # see transform_bound


class Tap(NamedTuple):
    """One position of the filter."""

    #: Its number, along the rows.
    number: int
    row: int
    column: int
    #: The outputs of y that use it.
    y: tuple[slice, slice, slice]
    #: The inputs of x that it meets for them.
    x: tuple[slice, slice, slice]


def taps(problem: Conv) -> list[Tap]:
    """The positions of the filter that meet the image anywhere, each with the outputs that use it and the inputs that it then
    meets."""
    (top, _), (left, _) = problem.pads
    images = slice(None)
    meeting = []
    for row in range(problem.r):
        y_rows, x_rows = _meets(problem.h, problem.p, row - top, problem.stride)
        for column in range(problem.s):
            y_columns, x_columns = _meets(problem.w, problem.q, column - left, problem.stride)
            if y_rows and x_rows and y_columns and x_columns:
                tap = Tap(
                    number=row * problem.s + column,
                    row=row,
                    column=column,
                    y=(images, y_rows, y_columns),
                    x=(images, x_rows, x_columns),
                )
                meeting.append(tap)
    return meeting


def _meets(size: int, outputs: int, offset: int, stride: int) -> tuple[slice | None, slice | None]:
    """(the outputs o whose input o * stride + offset lies in [0, size), those inputs) along one side of an image, or two
    None.

    size, outputs: lengths of the image's and the output's side.
    """
    first = max(0, -(offset // stride))
    last = min(outputs - 1, (size - 1 - offset) // stride)
    if last < first:
        return None, None
    return slice(first, last + 1), slice(first * stride + offset, last * stride + offset + 1, stride)


def conv(problem: Conv, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The convolution of one group in the problem's direction, by one product of matrices for each tap; nothing is padded.

    a, b: x and w, dy and w, or x and dy; images (n, h, w, channels), filters (r, s, c_in, c_out), NumPy's or CuPy's. The
    result has a's type.
    """
    n = a.shape[0]
    c_in = b.shape[2] if problem.direction == "dgrad" else a.shape[-1]
    c_out = b.shape[-1]
    if problem.direction == "fprop":
        y = np.zeros((n, problem.p, problem.q, c_out), a.dtype, like=a)
        for tap in taps(problem):
            y[tap.y] += a[tap.x] @ b[tap.row, tap.column]
        return y
    if problem.direction == "dgrad":
        dx = np.zeros((n, problem.h, problem.w, c_in), a.dtype, like=a)
        for tap in taps(problem):
            dx[tap.x] += a[tap.y] @ b[tap.row, tap.column].T
        return dx
    dw = np.zeros((problem.r, problem.s, c_in, c_out), a.dtype, like=a)
    for tap in taps(problem):
        dw[tap.row, tap.column] = a[tap.x].reshape(-1, c_in).T @ b[tap.y].reshape(-1, c_out)
    return dw


def check(problem: Conv, inputs: tuple[np.ndarray, ...], output: np.ndarray, bound: float = 0.0) -> OutputCheck:
    """Whether a kernel's output is the convolution. The whole answer in integers while small; above that a part of it worked
    out again and, for every output, its product with random whole numbers (Freivalds' test, which reduces the channels to
    one). Outputs rounded to 16 bits are compared with the whole float32 answer, itself tested so, rounded once.

    inputs: the two operands, whole numbers, in the problem's layout.
    bound: how far from whole numbers the output may lie, for algorithms whose transforms round (Winograd, FFT).
    """
    out = numpy_dtype(problem.dtype)
    if output.shape != problem.out_shape or output.dtype != out:
        return WRONG
    if bound and out.itemsize >= 4:
        return _within(problem, inputs, output, bound)
    small = problem.flops // 2 <= _FULL_PRODUCTS
    if small or out.itemsize < 4:
        answer = np.zeros(problem.out_shape, np.float64)
        for a, b, whole in _groups(problem, *inputs, answer):
            kind = np.int64 if small else np.float32  # float32 sums of these whole numbers are exact below 2^24
            whole[...] = conv(problem, a.astype(kind), b.astype(kind))
            if not small and not _projects(problem, a, b, whole):
                raise ArithmeticError(
                    "the reference convolution failed its own test: this machine's BLAS gives wrong answers"
                )
        return _near(answer, output, bound) if bound else equal(answer.astype(np.float32).astype(out), output)
    if not np.isfinite(output).all():
        return WRONG
    every = _groups(problem, *inputs, output)
    if not all(_projects(problem, *group) for group in every):
        return WRONG
    return max((_part(problem, *group) for group in (every[0], every[-1])), key=lambda c: not c.passed)


def transform_bound(problem: Conv) -> float:
    """How far from whole numbers the outputs of a Winograd or FFT form may lie. Such a form multiplies sums of inputs by
    fractions, which costs TRANSFORM_ERROR of the largest sum that could come up: K products of at most 4, as inputs are -2 to
    2."""
    return TRANSFORM_ERROR * 4 * problem.gemm[2]


def _within(problem: Conv, inputs: tuple[np.ndarray, ...], output: np.ndarray, bound: float) -> OutputCheck:
    """Whether every output lies within the bound of a whole number, and those numbers are right."""
    if not np.isfinite(output).all():
        return OutputCheck("bound", False, float("inf"))
    whole = np.rint(output)
    error = float(np.max(np.abs(output - whole)))
    exact = check(problem, inputs, whole)
    if not error:
        return exact
    return OutputCheck("bound", exact.passed and error <= min(bound, 0.25), error if exact.passed else exact.max_error)


def _near(answer: np.ndarray, output: np.ndarray, bound: float) -> OutputCheck:
    """Whether every output of 16 bits lies within the bound of the answer, and half a unit in its last place."""
    output = output.astype(np.float64)
    if not np.isfinite(output).all():
        return OutputCheck("bound", False, float("inf"))
    error = np.abs(output - answer)
    return OutputCheck("bound", bool((error <= bound + 2.0**-8 * np.abs(answer)).all()), float(error.max()))


def channels_last(problem: Conv, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, ...]:
    """(a, b, out): operands and output as views in the order of NHWC, filters as (r, s, c_in, c_out), all groups together."""
    if problem.layout == "NHWC":
        return a, b, out
    images = (0, 2, 3, 1)
    filters = (2, 3, 1, 0)
    if problem.direction == "wgrad":
        return a.transpose(images), b.transpose(images), out.transpose(filters)
    return a.transpose(images), b.transpose(filters), out.transpose(images)


def _groups(problem: Conv, *arrays: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """(a, b, output) of each group as views. A group has a share of the last axis: channels of images or filters of weights."""
    shares = [np.split(array, problem.groups, axis=-1) for array in channels_last(problem, *arrays)]
    return list(zip(*shares, strict=True))


def _projects(problem: Conv, a: np.ndarray, b: np.ndarray, output: np.ndarray) -> bool:
    """Whether output v is the convolution with the operand b v, for random whole-number vectors v over the output's last axis
    (Freivalds' test). Arrays of one group, channels last.

    One output wrong is always found, since v has no zero; several that cancel in one place escape a round with a chance of
    about 1 in 128. All sums stay below 2^53 and so are exact in float64.
    """
    rng = np.random.default_rng(20)
    for _ in range(_ROUNDS):
        v = rng.integers(1, _LARGEST_WEIGHT + 1, output.shape[-1]) * rng.choice((-1.0, 1.0), output.shape[-1])
        if problem.direction == "wgrad":
            summed = sum(_filter_row(problem, a[i:j], b[i:j], v) for i, j in _chunks(problem, a))
            right = np.array_equal(summed, output.astype(np.float64) @ v)
        else:
            right = all(
                np.array_equal(_row(problem, a[i:j], b, v), output[i:j].astype(np.float64) @ v)
                for i, j in _chunks(problem, output)
            )
        if not right:
            return False
    return True


def _chunks(problem: Conv, images: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of images whose temporary in _row or _filter_row, a plane of float64 for each tap, takes at most _CHUNK_BYTES."""
    largest = max(problem.h * problem.w, problem.p * problem.q) * max(images.shape[-1], problem.r * problem.s) * 8
    count = max(1, _CHUNK_BYTES // largest)
    return [(i, min(i + count, problem.n)) for i in range(0, problem.n, count)]


def _row(problem: Conv, a: np.ndarray, b: np.ndarray, v: np.ndarray) -> np.ndarray:
    """fprop or dgrad of some images `a` with the one filter b v: (n, p, q) or (n, h, w), in float64. v: a number for each
    channel of the result."""
    fprop = problem.direction == "fprop"
    filters = b.astype(np.float64)
    folded = filters @ v if fprop else v @ filters  # a dgrad's output has the filter's input channels
    planes = a.astype(np.float64) @ folded.reshape(problem.r * problem.s, -1).T
    size = (problem.p, problem.q) if fprop else (problem.h, problem.w)
    sums = np.zeros((a.shape[0], *size))
    for tap in taps(problem):
        if fprop:
            sums[tap.y] += planes[tap.x][..., tap.number]
        else:
            sums[tap.x] += planes[tap.y][..., tap.number]
    return sums


def _filter_row(problem: Conv, x: np.ndarray, dy: np.ndarray, v: np.ndarray) -> np.ndarray:
    """wgrad of some images x with the one channel dy v: (r, s, c_in), in float64. v: a number for each channel of dy."""
    folded = dy.astype(np.float64) @ v
    planes = np.zeros((*x.shape[:3], problem.r * problem.s))
    for tap in taps(problem):
        planes[tap.x][..., tap.number] = folded[tap.y]
    gradient = planes.reshape(-1, planes.shape[-1]).T @ x.astype(np.float64).reshape(-1, x.shape[-1])
    return gradient.reshape(problem.r, problem.s, -1)


def _part(problem: Conv, a: np.ndarray, b: np.ndarray, output: np.ndarray) -> OutputCheck:
    """A check of a part of one group's output: the first, the last and a random image of some channels (for wgrad all taps of
    some channels), worked out again in whole numbers."""
    rng = np.random.default_rng(21)
    last = _some(output.shape[-1], _CHANNELS, rng)
    if problem.direction == "wgrad":
        rows = _some(output.shape[-2], _CHANNELS, rng)
        answer = conv(problem, a[..., rows].astype(np.float64), b[..., last].astype(np.float64))
        return equal(answer.astype(output.dtype), output[..., rows, :][..., last])
    images = _some(problem.n, _IMAGES, rng)
    b = b[..., last] if problem.direction == "fprop" else b[:, :, last]
    answer = conv(problem, a[images].astype(np.float64), b.astype(np.float64))
    return equal(answer.astype(output.dtype), output[images][..., last])


def _some(size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """The first and the last of `size`, and random ones between."""
    return np.unique(np.r_[0, size - 1, rng.integers(0, size, max(0, count - 2))])
