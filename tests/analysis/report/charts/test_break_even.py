"""Break-evens and trainings in charts."""

from types import SimpleNamespace

import pytest
from fake_measurements import row

from analysis.report.charts import break_even
from analysis.stats import Estimate, exact
from analysis.training.break_even import Pair, Trained, setup_of
from analysis.training.costs import TrainingCost
from kernels.problems import Training


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (None, "never"),
        (Estimate(float("inf"), 3.0, float("inf")), "can't tell (3.00 at the earliest)"),
        (Estimate(float("inf"), 0.0, float("inf")), "can't tell"),
        (Estimate(5.0, 3.0, float("inf")), "5.00 (3.00 or more)"),
        (Estimate(5.0, 3.0, 9.0), "5.00 (3.00..9.00)"),
        (Estimate(0.0, 0.0, 1.0), "0: ahead from the first"),
    ],
)
def test_epochs_to_the_break_even_in_a_chart(epochs, words):
    assert break_even._words(epochs) == words


def test_a_training_is_won_by_fewer_seconds():
    """By the epoch the GPU is quicker, by the whole training it starts too late."""
    seconds = {
        "epoch": (exact(3.0), exact(1.0)),
        "job": (exact(5.0), exact(9.0)),
        "near": (Estimate(1.0, 0.5, 2.0), exact(1.0)),
    }
    pair = SimpleNamespace(seconds=lambda by, varies: seconds[by] if varies == "samples" else None)
    assert [break_even._wins(pair, by) for by in seconds] == ["yes", "no", "can't tell"]


def test_break_evens_show_the_likeliest_seconds():
    """The CPU begins after 2 s [1, 9] with epochs of 3 s [1, 8], the GPU after 6 s with epochs of 1 s: 4 / 2 epochs."""
    cpu = TrainingCost(
        dataset_setup=exact(0.0),
        epoch=Estimate(3.0, 1.0, 8.0),
        step=exact(0.0),
        start=Estimate(2.0, 1.0, 9.0),
        steps=10,
    )
    gpu = TrainingCost(dataset_setup=exact(0.0), epoch=exact(1.0), step=exact(0.0), start=exact(6.0), steps=10)
    setup = setup_of(row("training/keras/fit", Training("lenet", 32, 320), 1e-3))
    rows_of = [
        row("training/keras/fit", Training("lenet", 32, 320), 1e-3, device=device) for device in ("cpu", "gpu:0")
    ]
    pair = Pair(setup=setup, gpu=Trained(row=rows_of[1], cost=gpu), cpus=(Trained(row=rows_of[0], cost=cpu),))
    (made,) = break_even.break_even([pair])
    assert made.numbers.rows[0][1:5] == ["2.00 s", "6.00 s", "3.00 s", "1.00 s"]
    on_cpu, on_gpu = made.views[0].traces
    assert (on_cpu.x[0], on_cpu.y[0], on_gpu.y[0]) == (1.0, 5.0, 7.0)


def wide(words: str) -> dict:
    return {"lines": [(45.3, "")], "bands": [(17.0, 1000.0, words)]}


@pytest.mark.parametrize(
    ("paid", "marked"),
    [
        (Estimate(31.0, 30.5, 31.5), {"lines": [(31.0, "break-even after 31.0 (30.5..31.5)")], "bands": []}),
        (Estimate(45.3, 17.0, 3100.0), wide("break-even after 45.3 (17.0..3100)")),
        (Estimate(45.3, 17.0, float("inf")), wide("break-even after 45.3 (17.0 or more)")),
        (Estimate(5000.0, 2000.0, 9000.0), {"lines": [], "bands": []}),
        (Estimate(0.0, 0.0, 0.0), {}),
        (None, {}),
    ],
)
def test_an_uncertain_break_even_is_a_band(paid, marked):
    assert break_even._break_even_marks(paid) == marked
