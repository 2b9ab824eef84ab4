"""Figures of the bench of examples' models, from rows worked out by hand."""

import sys
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from tests.bench import example_models
from tests.bench.example_models import Again, Predicted, Row


def row(value: float, steps: tuple[float, ...], device: str = "gpu") -> Row:
    predicted = Predicted(model="m", batch=32, device=device, value=value, low=0.8 * value, high=1.2 * value)
    return Row(predicted=predicted, measured_s=steps, at="2026-11-28T00:00:00Z")


def test_an_error_is_relative_to_the_median_epoch():
    slow = row(3e-3, (4e-3, 9e-3, 5e-3))  # 3 of 5 ms
    assert slow.error == pytest.approx(0.4) and not slow.covered
    assert row(3e-3, (2.5e-3,)).covered and not row(3e-3, (2.3e-3,)).covered


def test_errors_and_coverage_omit_untrained_models():
    failed = Row(predicted=row(1e-3, ()).predicted, failure="no data", at="")
    rows = [row(1.1e-3, (1e-3,)), row(1.5e-3, (1e-3,)), row(2e-3, (2e-3,)), failed]
    median, mean, _, covered, width, *lines = example_models.figures(rows)
    assert (median.figure.value, mean.figure.value) == pytest.approx((10, 20))
    assert covered.figure.value == pytest.approx(200 / 3) and width.figure.value == pytest.approx(1.5)
    assert len(lines) == 3


def test_models_behind_a_rule_count_separately():
    led = next(iter(example_models.LED_TO_RULES))
    saved = [named(row(1.1e-3, (1e-3,)), "new"), named(row(1.1e-3, (1e-3,)), led)]
    now = [named(row(1.2e-3, (1e-3,)), "new"), named(row(1e-3, (1e-3,)), led)]
    again = [Again(row=now[0], line_s=1.1e-3), Again(row=now[1], line_s=1.5e-3)]
    by_words = {figure.what: figure.figure.value for figure in example_models.figures(saved, again)}
    assert by_words["mean error, gpu, as saved (2 models)"] == pytest.approx(10)
    assert by_words["mean error, gpu, by today's rules (2 models)"] == pytest.approx(10)
    assert by_words["mean error, gpu, by today's rules, models that led to none (1 models)"] == pytest.approx(20)
    assert by_words["a + b FLOPs + c launches + d batch bytes, gpu: mean error"] == pytest.approx(30)
    assert by_words["today's rules nearer than the line, gpu (of 2)"] == 1
    assert by_words["new, batch 32, gpu; predicted 1.1 ms, now 1.2 ms"] == pytest.approx(1)


def test_models_predicted_since_the_last_rule_count_apart():
    old = row(1.1e-3, (1e-3,), "cpu")
    new = msgspec.structs.replace(
        row(1.5e-3, (1e-3,), "cpu"),
        predicted=msgspec.structs.replace(row(1.5e-3, ()).predicted, device="cpu", at="2999-01-01"),
    )
    by_words = {figure.what: figure.figure.value for figure in example_models.figures([old, new])}
    assert by_words["mean error, cpu, new models, as saved (1 models)"] == pytest.approx(50)
    assert by_words["mean error, cpu, as saved (1 models)"] == pytest.approx(10)


def test_an_unseen_gpu_is_not_measured(monkeypatch):
    """TensorFlow stays out of this process: other tests rely on it."""
    no_gpu = SimpleNamespace(config=SimpleNamespace(list_physical_devices=lambda kind: []))
    monkeypatch.setitem(sys.modules, "tensorflow", no_gpu)
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace())
    with pytest.raises(RuntimeError, match="sees no GPU"):
        example_models.later_epochs(row(1e-3, ()).predicted)


def named(one: Row, model: str) -> Row:
    return msgspec.structs.replace(one, predicted=msgspec.structs.replace(one.predicted, model=model))


def test_a_batch_is_cut_or_repeated():
    whole = np.arange(6).reshape(3, 2)
    assert example_models._samples(whole, 2).tolist() == [[0, 1], [2, 3]]
    assert example_models._samples(whole, 4).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert example_models._samples(np.array(7), 4) == 7
