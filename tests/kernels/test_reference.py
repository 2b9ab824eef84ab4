"""The check of answers: references by hand, faults that it finds."""

import itertools

import ml_dtypes
import msgspec
import numpy as np
import pytest
from awkward_shapes import problems

from kernels import reference
from kernels.conv import numpy as conv_numpy
from kernels.problems import Conv, Matmul, Peak, Stream
from kernels.problems.arrays import numpy_dtype
from kernels.reference import conv as reference_conv


def product(p, inputs):
    a, b = reference.operands(p, inputs)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return (np.maximum(exact + inputs[2], 0) if p.epilogue else exact).astype(numpy_dtype(p.out))


@pytest.mark.parametrize(
    "p",
    [
        Matmul(17, 33, 65),
        Matmul(300, 290, 310),
        Matmul(17, 33, 65, "float64", layout="nt"),
        Matmul(17, 33, 65, "bfloat16"),
        Matmul(300, 290, 310, "bfloat16"),
        Matmul(300, 290, 310, "float16", layout="tn"),
        Matmul(17, 33, 65, layout="tn", batch=3),
        *(Matmul(*[side] * 3, dtype, epilogue="bias-relu") for side in (65, 310) for dtype in ("float32", "bfloat16")),
    ],
)
def test_right_answers_pass_and_wrong_ones_fail(p):
    """A NaN, one off in the middle and in the last tile, transposed, of another dtype, all zeros."""
    inputs = p.inputs(1, True)
    right, middle = product(p, inputs), (*[1] * (p.count > 1), p.m // 2, p.n // 2)
    found = reference.check(p, inputs, right)
    assert (found.how, found.passed) == ("exact", True)
    last = (-1,) * right.ndim
    wrong = [np.ascontiguousarray(right.T), right.astype("float32" if p.out == "float64" else "float64")]
    wrong.append(np.zeros_like(right))
    if p.epilogue:  # without the bias, and without what follows it
        wrong += [product(p, (*inputs[:2], 0)), product(Matmul(p.m, p.n, p.k, p.dtype), inputs)]
    for place, value in ((middle, np.nan), (middle, 2 * right[middle] + 1), (last, right[last] + 8)):
        wrong.append(right.copy())
        wrong[-1][place] = value
    assert not [c for c in wrong if reference.check(p, inputs, c).passed]


def test_answers_worked_out_by_hand():
    p = Matmul(1, 1, 2)
    inputs = (np.array([[1, 2]], np.float32), np.array([[-1], [2]], np.float32))
    assert reference.check(p, inputs, np.array([[3]], np.float32)).passed
    assert reference.check(p, inputs, np.array([[4]], np.float32)) == reference.OutputCheck("exact", False, 1.0)
    a, b = np.array([1.0, -2]), np.array([2.0, 1])
    answers = {
        op: reference.stream_answer(Stream(op, 48), (a, b)[: Stream.WEIGHTS[op][0]]).tolist()
        for op in ("copy", "scale", "add", "triad", "read")
    }
    assert answers == {"copy": [1, -2], "scale": [3, -6], "add": [3, -1], "triad": [7, 1], "read": [-1]}
    p = Peak("float32", 2 * 4 * 100)
    inputs = p.inputs(1, True)
    assert reference.check(p, inputs, np.full(4, 100, np.float32)).passed
    assert not reference.check(p, inputs, np.full(4, 99, np.float32)).passed  # a trip too few: a flattered peak
    assert not reference.check(p, inputs, np.full(4, 106, np.float32)).passed
    assert not reference.check(p, inputs, np.array([100, 100, 100, np.nan], np.float32)).passed
    infinite = reference.check(p, inputs, np.full(4, np.inf, np.float32))
    assert infinite == reference.OutputCheck("exact", False, float("inf"))
    assert reference.check(p, inputs, np.full(4, 104, np.float32)) == reference.OutputCheck(
        "exact", True, pytest.approx(0.04)
    )


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("operation", "inputs", "answer"),
    [
        ("relu", [floats(-1, 2, 0)], [0, 2, 0]),
        ("relu_grad", [floats(-1, 2, 0, 3), floats(5, 6, 7, 8)], [0, 6, 0, 8]),
        ("sgd", [floats(1, 2), floats(4, -8)], [0, 4]),  # at a rate of a quarter
        ("adam", [floats(1), floats(2), floats(3), floats(5)], [1 - 0.25 * 2.9 / (4.999**0.5 + 1e-7)]),
    ],
)
def test_updates_and_activations_by_hand(operation, inputs, answer):
    """Adam: the mean 3 moves a tenth towards 2, the square 5 a thousandth towards 4."""
    given = reference.stream_answer(Stream(operation, 2**10, "float32"), tuple(inputs))
    assert given.tolist() == pytest.approx(answer)


IMAGES = Stream("maxpool", 2**15, "float32")  # of 8 x 8 pixels in 32 channels


def image(**channels: np.ndarray) -> np.ndarray:
    """An image that is 7 but for these channels, c0 to c31, each 8 x 8."""
    made = np.full(Stream.IMAGE, 7.0, np.float32)
    for name, pixels in channels.items():
        made[:, :, int(name[1:])] = pixels
    return made.ravel()


def test_pools_and_normalizations_by_hand():
    """Rows of 0 to 7, 8 to 15, ...: the largest of a window is below right. Columns of 0 and 2 have mean and variance 1."""
    counted, columns = np.arange(64.0).reshape(8, 8), np.tile([0.0, 2.0], (8, 4))
    pooled = reference.stream_answer(IMAGES, (image(c3=counted),)).reshape(4, 4, 32)
    assert pooled[:, :, 3].tolist() == counted[1::2, 1::2].tolist() and (pooled[:, :, 4] == 7).all()
    normal = Stream("batchnorm", 2**15, "float32")
    answer = reference.stream_answer(normal, (image(c5=columns),)).reshape(Stream.IMAGE)
    assert answer[0, :2, 5].tolist() == pytest.approx([-1 / 1.001**0.5, 1 / 1.001**0.5])
    assert abs(answer[:, :, 6]).max() == 0
    for off, passed in ((5e-5, True), (2e-4, False)):
        given = (answer.ravel() + off).astype(np.float32)
        assert reference.check(normal, (image(c5=columns),), given).passed is passed


def test_a_pools_gradient_lies_on_its_maxima():
    """A window of 1, 3, 3, 2 and a gradient of 4: any shares on the two threes."""
    window = np.zeros((8, 8))
    window[:2, :2] = [[1, 3], [3, 2]]
    x, dy = image(c0=window), np.zeros((4, 4, 32), np.float32)
    dy[0, 0, 0] = 4
    problem = Stream("maxpool_grad", 2**15, "float32")
    for (one, other, wrong), passed in (((4, 0, 0), True), ((1, 3, 0), True), ((1, 2, 1), False), ((2, 1, 0), False)):
        dx = np.zeros(Stream.IMAGE, np.float32)
        dx[0, 1, 0], dx[1, 0, 0], dx[1, 1, 0] = one, other, wrong
        assert reference.check(problem, (x, dy.ravel()), dx.ravel()).passed is passed
    assert not reference.check(problem, (x, dy.ravel()), np.zeros(3, np.float32)).passed


def test_a_quarter_is_dropped_the_rest_scaled():
    problem = Stream("dropout", 2**13, "float32")
    x = np.linspace(1, 2, 1000, dtype=np.float32)
    quarter, half = np.arange(1000) % 4 == 0, np.arange(1000) % 2 == 0
    right = np.where(quarter, 0, x / np.float32(0.75))
    wrong = [
        np.where(half, 0, x / np.float32(0.75)),
        np.where(quarter, 0, x),
        x / np.float32(0.75),
        right.astype("float64"),
    ]
    assert reference.check(problem, (x,), right.astype(np.float32)).passed
    assert not [one for one in wrong if reference.check(problem, (x,), one).passed]


def loops(p: Conv, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The definition in plain loops, written apart from everything else."""
    (top, _), (left, _) = p.pads
    of, last = p.c_out // p.groups, p.layout == "NHWC"

    def image(n, row, column, channel):
        return (n, row, column, channel) if last else (n, channel, row, column)

    out, a, b = np.zeros(p.out_shape, np.int64), a.astype(np.int64), b.astype(np.int64)
    every = (p.n, p.p, p.q, p.c_out, p.r, p.s, p.c_in // p.groups)
    for n, y, x, o, i, j, c in itertools.product(*map(range, every)):
        row, column = y * p.stride + i - top, x * p.stride + j - left
        if not (0 <= row < p.h and 0 <= column < p.w):
            continue
        at_x, at_y = image(n, row, column, o // of * every[-1] + c), image(n, y, x, o)
        at_w = (i, j, c, o) if last else (o, c, i, j)
        if p.direction == "fprop":
            out[at_y] += a[at_x] * b[at_w]
        elif p.direction == "dgrad":
            out[at_x] += a[at_y] * b[at_w]
        else:
            out[at_w] += a[at_x] * b[at_y]
    return out


def test_the_reference_and_im2col_equal_plain_loops(monkeypatch):
    """Both ways of the check accept the loops' answer and refuse it one off anywhere; im2col gives it in pieces of every
    size."""
    count = 0
    for count, p in enumerate(problems(), 1):
        inputs = p.inputs(count, True)
        right = loops(p, *inputs).astype(np.float32)
        wrong = right.copy()
        wrong.flat[count % wrong.size] += 1
        for products in (1 << 22, 0):
            monkeypatch.setattr(reference_conv, "_FULL_PRODUCTS", products)
            assert reference.check(p, inputs, right) == reference.OutputCheck("exact", True, 0.0), p
            assert not reference.check(p, inputs, wrong).passed, p
        monkeypatch.setattr(conv_numpy, "_PIECE_BYTES", (64, 300, 1 << 20)[count % 3])
        assert np.array_equal(conv_numpy.im2col(p, *inputs)(), right), p
    assert count > 400


LARGE = {d: Conv(5, 30, 30, 32, 40, 3, 3, 1, "same", direction=d) for d in Conv.DIRECTIONS}
GROUPED = {d: Conv(6, 30, 30, 64, 80, 3, 3, 2, 1, 2, "NCHW", d) for d in Conv.DIRECTIONS}
SMALL = {d: Conv(2, 5, 6, 4, 6, 3, 3, direction=d) for d in Conv.DIRECTIONS}


def answer(p: Conv, inputs) -> np.ndarray:
    whole = msgspec.structs.replace(p, dtype="float32", math="float32")
    return conv_numpy.im2col(whole, *(x.astype(np.float32) for x in inputs))()


@pytest.mark.parametrize("problems", [LARGE, GROUPED, SMALL], ids=["large", "grouped", "small"])
@pytest.mark.parametrize("direction", Conv.DIRECTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_kind_of_fault_is_found(problems, direction, dtype):
    p = msgspec.structs.replace(problems[direction], dtype=dtype, math=dtype)
    inputs = p.inputs(1, True)
    right = answer(p, inputs).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
    assert reference.check(p, inputs, right).passed and not reference.check(p, inputs, right.astype(np.float64)).passed
    assert not reference.check(p, inputs, right[..., :-1]).passed
    assert not reference.check(p, inputs, np.zeros_like(right)).passed
    # channels in a wrong order
    assert not reference.check(p, inputs, np.flip(right, -1 if p.layout == "NHWC" else 1)).passed
    for place in (0, right.size // 2 + 3, right.size - 1):
        for fault in (np.nan, np.inf, float(right.flat[place]) * 1.5 + 2):
            wrong = right.copy()
            wrong.flat[place] = fault
            assert not reference.check(p, inputs, wrong).passed, (place, fault)


@pytest.mark.parametrize("direction", Conv.DIRECTIONS)
def test_each_half_of_the_check_finds_faults(direction, monkeypatch):
    p = LARGE[direction]
    inputs = p.inputs(1, True)
    wrong = answer(p, inputs).copy()
    wrong.flat[0] += 1  # a corner: in the part that is worked out again
    with monkeypatch.context() as alone:
        alone.setattr(reference_conv, "_projects", lambda *args: True)
        assert not reference.check(p, inputs, wrong).passed
    monkeypatch.setattr(reference_conv, "_part", lambda *args: reference.OutputCheck("exact", True, 0.0))
    assert not reference.check(p, inputs, wrong).passed
    middle = answer(p, inputs).copy()
    middle[tuple(size // 2 for size in middle.shape)] -= 1
    assert not reference.check(p, inputs, middle).passed
    monkeypatch.setattr(reference_conv, "_CHUNK_BYTES", 1)  # an image at a time
    assert reference.check(p, inputs, answer(p, inputs)).passed and not reference.check(p, inputs, middle).passed


def test_shifted_windows_and_biases_are_found():
    p = LARGE["fprop"]
    inputs = p.inputs(1, True)
    right = answer(p, inputs)
    assert not reference.check(p, inputs, np.roll(right, 1, 2)).passed
    assert not reference.check(p, inputs, right + np.float32(1)).passed
    near = right + np.float32(1e-3)
    assert not reference_conv.check(p, inputs, near).passed
    found = reference_conv.check(p, inputs, near, bound=2e-3)
    assert (found.how, found.passed, found.max_error) == ("bound", True, pytest.approx(1e-3, rel=0.1))
    assert not reference_conv.check(p, inputs, near, bound=5e-4).passed
    near.flat[7] += 1  # near a whole number, but not the right one
    assert not reference_conv.check(p, inputs, near, bound=2e-3).passed
    near.flat[7] = np.nan
    assert not reference_conv.check(p, inputs, near, bound=2e-3).passed
    p = Conv(64, 112, 112, 64, 64, 3, 3, pad="same")  # 1.7 GiB of columns
    columns = conv_numpy._Columns(p, np.dtype(np.float32))
    assert columns.buffer.nbytes <= conv_numpy._PIECE_BYTES
    assert (columns.images, columns.rows) == (1, conv_numpy._PIECE_BYTES // (112 * 576 * 4))
    small = conv_numpy._Columns(Conv(64, 8, 8, 4, 4, 3, 3), np.dtype(np.float32))
    assert (small.images, small.rows) == (64, 6)


@pytest.mark.parametrize(("off", "passed"), [(0.7, True), (0.8, False), (-0.7, True), (-0.8, False)])
def test_outputs_of_16_bits_may_round_once_more(off, passed):
    """Of an answer of -64, 2^-8 of it are 0.25: with a bound of 0.5 at most 0.75 are allowed."""
    assert reference_conv._near(np.array([1.0, -64.0]), np.array([1.0, off - 64.0]), 0.5).passed is passed


def test_a_broken_blas_stops_the_reference(monkeypatch):
    p = msgspec.structs.replace(LARGE["fprop"], dtype="bfloat16", math="bfloat16")
    inputs, real = p.inputs(1, True), reference_conv.conv
    monkeypatch.setattr(reference_conv, "conv", lambda *args: real(*args) + 1)
    with pytest.raises(ArithmeticError, match="failed its own test"):
        reference.check(p, inputs, np.zeros(p.out_shape, ml_dtypes.bfloat16))
