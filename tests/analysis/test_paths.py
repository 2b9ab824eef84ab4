"""The longest line of a step's kernels that wait for each other, by hand, and what other threads do meanwhile."""

import pytest

from analysis.predict import step_work
from analysis.predict.fusion import Kernel
from kernels.problems import Matmul, Stream

PRODUCT, UPDATE = Matmul(8, 8, 8), Stream("adam", 28 * 1000, "float32")


def timed(b_wgrad):
    """Two layers: forward 1 + 2 s, the loss 0.5 and its gradient 0.5, then back."""
    seconds = {
        ("a", "fprop"): 1.0,
        ("a", "wgrad"): 5.0,
        ("b", "fprop"): 2.0,
        ("b", "dgrad"): 3.0,
        ("b", "wgrad"): b_wgrad,
        ("mse", "loss"): 0.5,
        ("mse", "loss_grad"): 0.5,
        ("a", "adam kernel"): 1.0,
        ("b", "adam kernel"): 4.0,
        ("b", "bias_grad"): 1e-6,
        ("b", "adam bias"): 2.0,
    }
    made = []
    for (layer, what), s in seconds.items():
        update = what.startswith("adam")
        part = "optimizer" if update else "matmul"
        made.append(
            (Kernel(f"{layer} {what}", part, UPDATE if update else PRODUCT, 28 if update else 1, layer=layer), s)
        )
    return made


@pytest.mark.parametrize(
    ("b_wgrad", "each", "line"),
    [
        (20.0, 0.0, 4.0 + 20.0 + 4.0),
        (0.1, 0.0, 4.0 + 3.0 + 5.0 + 1.0),
        (5.0, 0.0, 4.0 + 5.0 + 4.0),
        (4.0, 0.01, 4.0 + 3.0 + 5.0 + 1.0),
    ],
)
def test_the_longest_line_ends_with_any_layers_weights(b_wgrad, each, line):
    """Forward, loss and its gradient are 4 s. Then the second layer's weights, or the first one's after the second's dgrad."""
    found = step_work.longest(timed(b_wgrad), each)
    assert sum(s for _, s in found) == pytest.approx(line)
    names = [k.name for k, _ in found]
    assert ("b dgrad" in names) == ("a wgrad" in names) != ("b wgrad" in names)
    assert "b adam bias" not in names


def test_an_operation_counts_its_dispatch_and_long_ones_alone_go_to_other_threads():
    made = timed(20.0)
    line = step_work.longest(made, 0.0)
    # beside it: the dgrad and the first layer's wgrad; Adam's 12 on whole arrays, twice; a sum of 1 us stays where it is
    assert step_work.concurrent_dispatches(made, line) == 2 + 2 * 12
    assert step_work.concurrent_dispatches(made, line, inline=False) == 3 + 2 * 28
    # each operation a second: the first layer's line has the dgrad more
    assert "a wgrad" in [k.name for k, _ in step_work.longest(timed(8.5), 10.0)]
    assert "b wgrad" in [k.name for k, _ in step_work.longest(timed(8.5), 0.0)]
