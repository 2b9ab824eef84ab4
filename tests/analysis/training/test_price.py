"""Money and joules of a whole training, worked out by hand."""

import pytest
from fake_measurements import row

from analysis.stats import Estimate
from analysis.training import price
from kernels.problems import Training

LENET = Training("lenet", 32, 1000)
TWO_HOURS = Estimate(7200.0, 3600.0, 10_800.0)


def powered(model: str, batch: int, device: str, **values) -> list:
    return [row("training/keras/fit", Training(model, batch, 1000), 1e-3, device=device, values=values)]


@pytest.mark.parametrize(("device", "money"), [("cpu", 1.0), ("gpu:0", 6.0), ("gpu:1", 6.0)])
def test_an_hours_price_is_charged_for_each_hour(device, money):
    cost = price.cost(LENET, TWO_HOURS, device, {"cpu": 0.5, "gpu": 3.0}, [])
    assert (cost.device, cost.joules) == (device, None)
    assert (cost.money.value, cost.money.low, cost.money.high) == pytest.approx((money, money / 2, money * 1.5))


def test_without_its_own_price_a_device_has_none():
    assert price.cost(LENET, TWO_HOURS, "cpu", {"gpu": 3.0}, []).money is None
    assert price.cost(LENET, TWO_HOURS, "gpu:0", {"cpu": 3.0}, []).money is None
    assert price.cost(LENET, TWO_HOURS, "cpu", {"cpu": 0.0}, []).money.value == 0


def test_joules_are_watts_times_seconds():
    rows = powered("lenet", 32, "cpu", watts=150.0)
    joules = price.cost(LENET, TWO_HOURS, "cpu", {}, rows).joules
    assert (joules.value, joules.low, joules.high) == pytest.approx((1_080_000.0, 540_000.0, 1_620_000.0))


def test_power_comes_from_the_nearest_batch():
    """From 32, a batch of 64 is a factor of 2 away and one of 10 a factor of 3.2, though only 22 samples."""
    far, near = powered("lenet", 10, "gpu:0", watts=300.0), powered("lenet", 64, "gpu:0", watts=100.0)
    other_model = powered("peaks", 32, "gpu:0", watts=500.0)
    other_device = powered("lenet", 32, "cpu", watts=60.0)
    highest = powered("lenet", 32, "gpu:0", gpu_power_w=700.0)
    every = [*far, *near, *other_model, *other_device, *highest]
    assert price.power(LENET, "gpu:0", every) == 100.0
    assert price.power(LENET, "gpu:0", [*far, *other_model]) == 300.0
    assert price.power(LENET, "gpu:0", other_model) == 500.0
    assert price.power(LENET, "gpu:0", highest) == 700.0
    assert price.power(LENET, "cpu", every) == 60.0
    assert price.power(LENET, "gpu:0", other_device) is None
