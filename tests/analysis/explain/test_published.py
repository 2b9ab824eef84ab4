"""Published trainings beside measured ones, by hand."""

import pytest
from fake_measurements import launch_rows, transfer_rows
from fake_predictions import MS
from fake_trainings import both, trained

from analysis.explain import published
from kernels.problems import Training
from workloads.records import published_cases
from workloads.records.published_cases import EVERY, Reported

MLP = Training("mlp-784-100x2-10", 128, 60_000, 10)


def mlp(cpu: float, gpu: float, model: str = MLP.model, batch: int = 128, **switches) -> list:
    return both(model, batch, 4096, cpu, gpu, **switches)


def test_the_measured_winner_and_largest_part():
    rows = [*mlp(0.5 * MS, 1.2 * MS), *launch_rows(0.0), *transfer_rows(0.0)]
    found = published.measured(Reported(MLP, "cpu", "slower"), rows)
    assert (found.faster, found.largest, found.comes_back) == ("cpu", published.STARTING, True)
    # a Keras step of 0.9 ms; 128 x 784 x 4 bytes at 11 GB/s; the rest of 1.2 ms
    assert found.parts[published.STARTING] == pytest.approx(0.9 * MS, rel=0.02)
    assert found.parts[published.COPYING] == pytest.approx(128 * 784 * 4 / 1.1e10, rel=0.02)
    assert sum(found.parts.values()) == pytest.approx(1.2 * MS)
    found = published.measured(Reported(MLP, "cpu", ""), [*mlp(5 * MS, 1.2 * MS), *launch_rows(0.0)])
    assert (found.faster, found.comes_back) == ("gpu", False)


def test_the_nearest_batch_stands_for_a_case():
    rows = [*mlp(1 * MS, 2 * MS, batch=32), *mlp(3 * MS, 2 * MS, batch=256)]
    assert published.measured(Reported(MLP, "gpu", ""), rows).batch == 256
    for far in ({"batch": 2048}, {"model": "lenet"}, {"steps_per_execution": "4"}):
        assert published.measured(Reported(MLP, "gpu", ""), mlp(1 * MS, 2 * MS, **far)) is None


def first_article(cpu_epoch: float, gpu_epoch: float, **given) -> list:
    """S0 at its article's settings: 1563 steps an epoch; the form `visible` twice as slow as the CPU hidden."""
    forms = ((cpu_epoch, {}), (2 * cpu_epoch, {"gpu": "visible"}), (gpu_epoch, {"device": "gpu:0"}))
    own, given = ("cifar10-cnn", 32, 50_000), {"dtype": "float64", "epochs": 10, **given}
    return [trained(*own, (0.0, 0.0, s / 1563), **more, **given) for s, more in forms]


def claimed(rows) -> dict:
    return {(b.case.name, b.claim.samples): b for b in published.comparisons(rows) if b.here}


def test_a_claim_meets_the_best_cpu_form():
    """An epoch of 11 s on the CPU, hidden, and 2.4 s on the GPU: 4.58 times, where the article has 9."""
    ((key, b),) = claimed(first_article(11.0, 2.4)).items()
    assert key == ("S0", 50_000) and b.here.value == pytest.approx(11 / 2.4) and b.faster == b.claim.faster == "gpu"
    for other in ({"data": "real"}, {"jit_compile": "off"}, {"dtype": "float32"}):
        assert not claimed(first_article(11.0, 2.4, **other))
    without = [b for b in published.comparisons([]) if b.here is None]
    assert len(without) == sum(len(case.claims) for case in published_cases.CASES)
    assert published.picked([], published_cases.CASES[0]) == []


def peaks(cpu_us: dict[int, float], kernel: str = "training/jax/loop", **given) -> list:
    how = {"kernel": kernel, "epochs": 2000, **given}
    return [m for n, us in cpu_us.items() for m in both("peaks", n, n, us * 1e-6, 90.0 * 1e-6, **how)]


def test_s4_is_judged_by_its_bare_loops():
    rows = peaks({100: 60.0, 1000: 90.0, 40_000: 1440.0}, residence="resident") + peaks({100: 60.0}, residence="fed")
    found = claimed(rows)
    expected = {("S4", 100): ("cpu", "cpu"), ("S4", 1000): ("neither", "neither"), ("S4", 40_000): ("gpu", "gpu")}
    assert {key: (b.faster, b.claim.faster) for key, b in found.items()} == expected
    assert found["S4", 40_000].here.value == pytest.approx(16.0)
    every = [*peaks({100: 80.0}, "training/keras/fit"), *rows]
    picked = published.picked(every, EVERY["S4"])
    assert all(b.row.kernel.endswith("loop") for b in picked) and len(picked) == 3
