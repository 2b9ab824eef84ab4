"""FLOPs, bytes and inputs worked out by hand; the check of answers refuses every kind of wrong one."""

import ml_dtypes
import msgspec
import numpy as np
import pytest

from kernels import reference
from kernels.problems import Conv, Matmul, Peak, Problem, Stream, Training
from kernels.problems.arrays import ARITHMETIC, DTYPES, numpy_dtype, precision, random_array


def test_matmul_counts_layouts_and_many_products_in_a_call():
    p = Matmul(2, 3, 4)
    assert (p.flops, p.bytes_moved) == (48, 4 * (8 + 12 + 6))
    assert Matmul(2, 3, 4, "bfloat16", out="float32").bytes_moved == 2 * (8 + 12) + 4 * 6
    assert Matmul(1, 1, 1, "float64").bytes_moved == 24
    shapes = {layout: [x.shape for x in Matmul(2, 3, 4, layout=layout).inputs(1)] for layout in ("nn", "nt", "tn")}
    assert shapes == {"nn": [(2, 4), (4, 3)], "nt": [(2, 4), (3, 4)], "tn": [(4, 2), (4, 3)]}
    p = Matmul(2, 3, 4, layout="nt", batch=5)
    assert (p.flops, p.bytes_moved, p.result_bytes) == (5 * 48, 5 * 4 * (8 + 12 + 6), 5 * 4 * 6)
    assert [x.shape for x in p.inputs(1)] == [(5, 2, 4), (5, 3, 4)]
    assert Matmul(2, 2, 2).side == 2 and Matmul(2, 2, 2, batch=5).side == Matmul(2, 2, 3).side == 0
    one = b'{"type":"matmul","m":2,"n":3,"k":4,"dtype":"float32","math":"float32","out":"float32","layout":"nn"}'
    assert msgspec.json.encode(Matmul(2, 3, 4, batch=1)) == one and Matmul(2, 3, 4, batch=1) == Matmul(2, 3, 4)
    assert msgspec.json.encode(p).endswith(b'"layout":"nt","batch":5}')


@pytest.mark.parametrize(
    "fields", [{"m": 0}, {"n": -1}, {"k": 1.5}, {"dtype": "int8"}, {"math": "float64"}, {"layout": "tt"}, {"batch": 0}]
)
def test_matmul_refuses(fields):
    with pytest.raises(ValueError):
        Matmul(**{"m": 1, "n": 1, "k": 1, **fields})


@pytest.mark.parametrize(
    ("operation", "arrays", "flops"), [("copy", 2, 0), ("scale", 2, 1), ("add", 3, 1), ("triad", 3, 2), ("read", 1, 1)]
)
def test_stream_counts(operation, arrays, flops):
    p = Stream(operation, 2400, "float64")
    assert p.elements == 2400 // (8 * arrays) and p.flops == flops * p.elements and p.bytes_moved == 2400


def test_precisions_bytes_that_fill_no_element_and_tables_that_hold_each_other():
    assert precision("tf32") == ("float32", "tf32") and precision("bfloat16") == ("bfloat16", "bfloat16")
    with pytest.raises(ValueError, match="unknown dtype 'float9'"):
        precision("float9")
    assert Stream("triad", 2401).bytes_moved == 2400
    with pytest.raises(ValueError, match="smallest is 24"):
        Stream("triad", 23)
    with pytest.raises(ValueError, match="unknown dtype 'cold'"):
        Training("cifar10-cnn", 32, 9600, dtype="cold")
    assert Training("cifar10-cnn", 32, 50_000).steps == 1563 and Training("cifar10-cnn", 32, 9600).steps == 300
    assert sorted(m for dtype in DTYPES.values() for m in dtype.maths) == sorted(ARITHMETIC)
    assert all(numpy_dtype(name).itemsize == dtype.nbytes for name, dtype in DTYPES.items())
    every = {(name, m) for name, dtype in DTYPES.items() for m in dtype.maths}
    assert all(set(a.instead) <= every and a.on_cpu in ("", *ARITHMETIC) for a in ARITHMETIC.values())


def test_random_data_is_standard_normal_follows_the_seed_and_does_not_repeat():
    a, b = (random_array((100_000,), "float32", seed, False) for seed in (1, 1))
    assert np.array_equal(a, b) and not np.array_equal(a, random_array((100_000,), "float32", 2, False))
    assert abs(a.mean()) < 0.02 and abs(a.std() - 1) < 0.02 and (a != 0).all()
    values = random_array((4, 1 << 21), "float32", 1, False)
    assert not np.array_equal(values[0], values[2])
    values = random_array((1000,), "bfloat16", 1, True)
    assert values.dtype == ml_dtypes.bfloat16 and set(values.astype(float)) == {-2.0, -1.0, 1.0, 2.0}


def test_alignment_is_of_the_stored_rows_and_of_a_groups_channels():
    sizes = {8: 64, 4: 12, 1: 10}
    for expected, size in sizes.items():
        products = Matmul(7, 64, size), Matmul(7, size, 64, layout="nt"), Matmul(size, 64, 7, layout="tn")
        convolutions = Conv(1, 5, 5, size, 64, 3, 3), Conv(1, 5, 5, 64, size, 3, 3)
        assert {p.alignment for p in (*products, *convolutions)} == {expected}
    assert Conv(1, 5, 5, 16, 64, 3, 3, groups=4).alignment == 4  # 4 and 16 channels
    assert Conv(1, 5, 5, 3, 64, 3, 3).alignment == 1  # color images


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(1, 2, 3, "float32", "tf32"),
        Matmul(1, 2, 3, batch=4),
        Conv(1, 8, 8, 3, 4, 3, 3, 2, "same", math="tf32"),
        Conv(1, 8, 8, 3, 4, 3, 3, 2, 3),
        Stream("triad", 240),
        Peak("float64", 10),
        Training("x", 1, 2),
    ],
)
def test_a_line_of_json_knows_its_type(problem):
    assert msgspec.json.decode(msgspec.json.encode(problem), type=Problem) == problem


def product(p, inputs):
    a, b = reference.operands(p, inputs)
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(numpy_dtype(p.out))


SMALL, LARGE = Matmul(17, 33, 65), Matmul(300, 290, 310)


@pytest.mark.parametrize(
    "p",
    [
        SMALL,
        LARGE,
        Matmul(17, 33, 65, "float64", layout="nt"),
        Matmul(17, 33, 65, "bfloat16"),
        Matmul(300, 290, 310, "bfloat16"),
        Matmul(300, 290, 310, "float16", layout="tn"),
        Matmul(17, 33, 65, layout="tn", batch=3),
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
    for place, value in ((middle, np.nan), (middle, 2 * right[middle] + 1), (last, right[last] + 8)):
        wrong.append(right.copy())
        wrong[-1][place] = value
    assert not [c for c in wrong if reference.check(p, inputs, c).passed]


def test_answers_worked_out_by_hand():
    p = Matmul(1, 1, 2)
    inputs = (np.array([[1, 2]], np.float32), np.array([[-1], [2]], np.float32))
    assert reference.check(p, inputs, np.array([[3]], np.float32)).passed
    assert reference.check(p, inputs, np.array([[4]], np.float32)) == reference.Check("exact", False, 1.0)
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
