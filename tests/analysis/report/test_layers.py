"""Which rows of layers a page shows, and their names."""

import pytest

from analysis.report import layers
from kernels.problems import Conv, Matmul


@pytest.mark.parametrize(
    ("problem", "label", "shape"),
    [
        (Matmul(8, 16, 32), "Nx16x32", "Nx16x32"),
        (Matmul(16, 32, 8, layout="tn"), "16x32xN tn", "16x32xN tn"),
        (Conv(4, 9, 7, 3, 5, 3, 2, pad="same"), "9x7x3:5x3x2 fprop", "9x7x3:5x3x2"),
        (
            Conv(4, 9, 7, 3, 5, 3, 2, stride=2, pad="same", direction="wgrad"),
            "9x7x3:5x3x2 (stride 2) wgrad",
            "9x7x3:5x3x2 (stride 2)",
        ),
    ],
)
def test_a_layers_name_omits_the_batch(problem, label, shape):
    one = layers.Layers(op=problem.op)
    named = layers.Layers(op=problem.op, names={problem: "conv2"})
    assert (one.label(problem), one.shape(problem)) == (label, shape)
    direction = {"nn": "fprop", "tn": "wgrad"}.get(getattr(problem, "layout", ""), problem.direction)
    assert named.label(problem) == f"conv2 {direction}"
