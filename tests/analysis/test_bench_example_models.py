"""Figures of the bench of examples' models, from rows worked out by hand."""

import numpy as np
import pytest

from tests.bench import example_models
from tests.bench.example_models import Predicted, Row


def row(value: float, steps: tuple[float, ...], device: str = "gpu") -> Row:
    predicted = Predicted(model="m", batch=32, device=device, value=value, low=0.8 * value, high=1.2 * value)
    return Row(predicted=predicted, measured_s=steps, at="2026-11-28T00:00:00Z")


def test_an_error_is_a_share_of_the_measured_middle_epoch():
    slow = row(3e-3, (4e-3, 9e-3, 5e-3))  # 3 of 5 ms
    assert slow.error == pytest.approx(0.4) and not slow.covered
    assert row(3e-3, (2.5e-3,)).covered and not row(3e-3, (2.3e-3,)).covered


def test_errors_and_coverage_leave_out_models_that_did_not_train():
    failed = Row(predicted=row(1e-3, ()).predicted, failure="no data", at="")
    rows = [row(1.1e-3, (1e-3,)), row(1.5e-3, (1e-3,)), row(2e-3, (2e-3,)), failed]
    median, mean, _, covered, width, *lines = example_models.figures(rows)
    assert (median.figure.value, mean.figure.value) == pytest.approx((10, 20))
    assert covered.figure.value == pytest.approx(200 / 3) and width.figure.value == pytest.approx(1.5)
    assert len(lines) == 3


def test_a_batch_is_cut_or_repeated_to_its_samples():
    whole = np.arange(6).reshape(3, 2)
    assert example_models._samples(whole, 2).tolist() == [[0, 1], [2, 3]]
    assert example_models._samples(whole, 4).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert example_models._samples(np.array(7), 4) == 7
