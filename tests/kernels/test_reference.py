"""The check accepts right answers and refuses every kind of wrong one."""

import numpy as np
import pytest

from kernels import reference
from kernels.problems import Matmul, Peak, Stream
from kernels.problems.arrays import numpy_dtype


def product(p, inputs):
    a, b = reference.operands(p, inputs)
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(numpy_dtype(p.out))


SMALL, LARGE = Matmul(17, 33, 65), Matmul(300, 290, 310)


@pytest.mark.parametrize(
    "p",
    [
        SMALL,
        LARGE,
        Matmul(1, 1, 1),
        Matmul(127, 1, 31),
        Matmul(17, 33, 65, "float64"),
        Matmul(17, 33, 65, "bfloat16"),
        Matmul(300, 290, 310, "float16"),
        Matmul(17, 33, 65, layout="nt"),
        Matmul(300, 290, 310, layout="tn"),
    ],
)
def test_right_answers_pass(p):
    inputs = p.inputs(1, True)
    assert reference.check(p, inputs, product(p, inputs)) == reference.Check(
        "exact", True, reference.check(p, inputs, product(p, inputs)).max_error
    )


@pytest.mark.parametrize("p", [SMALL, LARGE, Matmul(300, 290, 310, "bfloat16")])
@pytest.mark.parametrize("fault", ["nan", "one-off", "transposed", "dtype", "last-tile", "zeros"])
def test_wrong_answers_fail(p, fault):
    inputs = p.inputs(1, True)
    c = product(p, inputs)
    match fault:
        case "nan":
            c[p.m // 2, p.n // 2] = np.nan
        case "one-off":
            c[p.m // 2, p.n // 2] *= 2
            c[p.m // 2, p.n // 2] += 1
        case "transposed":
            c = np.ascontiguousarray(c.T)
        case "dtype":
            c = c.astype(np.float64)
        case "last-tile":
            c[-1, -1] += 8
        case "zeros":
            c[...] = 0
    assert not reference.check(p, inputs, c).passed


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
