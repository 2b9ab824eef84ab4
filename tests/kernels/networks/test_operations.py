"""Operations of a traced step: their numbers at a batch, and the problems that price them."""

import msgspec
import pytest

from kernels.networks.operations import Amount, Array, Convolution, MatrixProduct, Operation, TracedStep, sizes
from kernels.problems import Conv, Matmul


def convolution(**changes):
    fields = {
        "direction": "wgrad",
        "images": Amount(0, 1),
        "image": (Amount(16), Amount(16)),
        "positions": (Amount(7), Amount(7)),
        "channels": 8,
        "filters": 12,
        "window": (3, 3),
        "strides": (2, 2),
        "dilations": (1, 1),
        "groups": 2,
    }
    return Convolution(**{**fields, **changes})


def operation(**changes):
    fields = {
        "type": "MatMul",
        "kind": "matmul",
        "layer": "dense",
        "phase": "forward",
        "inputs": (),
        "outputs": (Array(shape=(Amount(0, 1), Amount(5)), dtype="float32"),),
        "flops": Amount(0, 2 * 5 * 7),
        "bytes_read": Amount(4 * 7 * 5, 4 * 7),
        "bytes_written": Amount(0, 4 * 5),
    }
    return Operation(**{**fields, **changes})


def test_an_amount_is_a_line_of_the_batch():
    assert Amount(3, 2).at(10) == 23
    assert sizes((Amount(0, 4), Amount(5)), 3) == (12, 5)


def test_a_product_is_the_problem_of_its_batch():
    product = MatrixProduct(m=Amount(0, 6), n=Amount(5), k=Amount(7), layout="nt")
    assert product.problem(2, "float32", "tf32") == Matmul(12, 5, 7, "float32", "tf32", layout="nt")
    assert product.flops(2) == 2 * 12 * 5 * 7
    heads = MatrixProduct(m=Amount(6), n=Amount(5), k=Amount(8), count=Amount(0, 4))
    assert heads.problem(2, "float32") == Matmul(6, 5, 8, batch=8)
    assert heads.problem(0, "float32") is None
    assert heads.problem(2, "int32") is None


def test_a_convolution_is_the_problem_of_its_batch():
    problem = Conv(4, 16, 16, 8, 12, 3, 3, stride=2, groups=2, direction="wgrad")
    assert (problem.p, problem.q) == (7, 7)
    assert convolution().problem(4, "float32") == problem
    # 4 images, 7 x 7 positions, 3 x 3 windows over 4 channels of a group, 12 filters
    assert convolution().flops(4) == problem.flops == 2 * 4 * 49 * 9 * 4 * 12


@pytest.mark.parametrize(
    "changes",
    [
        {"dilations": (2, 2)},
        {"strides": (1, 2)},
        {"padding": "explicit"},
        {"image": (Amount(8),) * 3, "positions": (Amount(6),) * 3, "window": (3, 3, 3)},
    ],
)
def test_what_no_problem_measures_has_none(changes):
    assert convolution(**changes).problem(4, "float32") is None
    assert convolution(**changes).flops(4) > 0


def test_a_step_counts_every_run():
    lstm = operation(runs=Amount(7))
    assert lstm.step_flops(2) == 7 * 2 * 70
    assert lstm.step_bytes(2) == 7 * (140 + 56 + 40)
    assert lstm.problem(2) is None
    step = TracedStep(model="m", batch=2, operations=(lstm, operation()))
    assert step.step_flops(2) == 8 * 140


def test_a_step_is_read_as_it_was_written():
    product = MatrixProduct(m=Amount(0, 1), n=Amount(5), k=Amount(7))
    step = TracedStep(
        model="m", batch=2, operations=(operation(product=product), operation(product=convolution(), kind="conv"))
    )
    assert msgspec.json.decode(msgspec.json.encode(step), type=TracedStep) == step
    assert step.operations[0].problem(3) == Matmul(3, 5, 7)


def test_products_count_by_the_sample():
    """At batch 2: 140 FLOPs forward, 280 backward in two runs, and 140 of what is no product."""
    product = MatrixProduct(m=Amount(0, 1), n=Amount(5), k=Amount(7))
    forward, backward = operation(product=product), operation(product=product, phase="backward", runs=Amount(2))
    step = TracedStep(model="m", batch=2, operations=(forward, backward, operation()))
    assert (step.product_flops(), step.product_flops(forward=True)) == (210, 70)


def test_the_fixed_share_goes_by_moved_bytes():
    """At a batch of 10 an operation that grows with it moves 140 + 280 + 200 bytes, one that does not 3 times 100 + 60."""
    even = operation()
    fixed = operation(scales=False, runs=Amount(3), bytes_read=Amount(100), bytes_written=Amount(60))
    for operations, share in (((even, fixed), 480 / 1100), ((even,), 0), ((fixed,), 1), ((), 0)):
        assert TracedStep(model="m", batch=10, operations=operations).fixed_share == pytest.approx(share)
