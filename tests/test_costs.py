"""What a training costs, taken apart, from series whose law is known."""

import msgspec
import pytest
from fake_measurements import row

from analysis.costs import costs, job_seconds
from kernels.problems import Training
from workloads.results import Settings

PROBLEM = Training("cifar10-cnn", 32, 320)


def law(epochs, steps):
    """0.05 s a fit, 0.02 s an epoch, 0.003 s a step."""
    return 0.05 + epochs * (0.02 + 0.003 * steps)


def training(series=None, phases=None, **fields):
    exact = {f"fit_s {e}x{s}": (law(e, s),) * 5 for e, s in ((1, 1), (1, 41), (3, 1))}
    base = row("training/keras/fit", PROBLEM, 0.004, phases_s=phases or {})
    return msgspec.structs.replace(base, series=exact if series is None else exact | series, **fields)


def test_each_cost_comes_from_fits_that_vary_it_alone():
    found = costs(training())
    assert (found.step.value, found.epoch.value, found.fit.value) == pytest.approx((0.003, 0.02, 0.05))
    assert found.fit_seconds(10, 100).value == pytest.approx(0.05 + 10 * (0.02 + 0.3))
    assert found.build is found.compile is found.start is None


def test_a_job_begins_cold_and_a_smaller_last_batch_is_compiled_too():
    phases = {"import": 3.0, "device_start": 1.0, "build": 0.5, "compile": 2.0}
    found = costs(training(phases=phases))
    assert found.start.value == 4.0
    assert job_seconds(found, 1, 10).value == pytest.approx(4 + 0.5 + 2 + law(1, 10))
    found = costs(training(phases={**phases, "compile_last": 1.5}))
    assert job_seconds(found, 1, 10).value == pytest.approx(4 + 0.5 + 2 + 1.5 + law(1, 10))


def test_the_start_of_fresh_processes_is_given_to_rows_that_have_none():
    fresh = training(series={"import_s": (3.0, 3.2, 3.1), "device_start_s": (1.0, 1.0, 1.1)})
    assert costs(training(), [fresh]).start.value == pytest.approx(4.2)
    elsewhere = training(series={"import_s": (30.0,), "device_start_s": (1.0,)}, settings=Settings("gpu:0"))
    assert costs(training(), [elsewhere]).start is None
    jax = training(series={"import_s": (2.0,), "device_start_s": (1.0,)}, settings=Settings(switches={"keras_backend": "jax"}))
    assert costs(training(), [jax]).start is None


def test_what_shifts_a_whole_round_cancels_in_a_step():
    slow = [0.0, 0.5, 0.1, 0.9, 0.2]
    series = {f"fit_s {e}x{s}": tuple(law(e, s) + x for x in slow) for e, s in ((1, 1), (1, 41), (3, 1))}
    found = costs(training(series=series))
    assert found.step.low == pytest.approx(0.003) and found.step.high == pytest.approx(0.003)
    assert found.fit.high - found.fit.low > 0.1
    noisy = costs(training(series={"fit_s 1x41": tuple(law(1, 41) + x for x in slow)}))
    assert noisy.step.high - noisy.step.low > 0.005


def test_what_no_fit_varied_is_not_known():
    single = {"fit_s 1x1": (1.0,) * 3, "fit_s 3x1": (2.0,) * 3}
    assert costs(msgspec.structs.replace(training(), series=single)) is None
    assert costs(msgspec.structs.replace(training(), series={})) is None
    assert costs(training(status="failed")) is None
