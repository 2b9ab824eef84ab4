"""The articles as data, and their results beside ours: each difference from numbers that the rows have, or not measured."""

import pytest
from test_jobs import trained

from analysis.explain import published
from analysis.text import cases as words
from kernels import networks
from workloads.records import published_cases


def test_every_case_has_the_networks_settings():
    assert [case.name for case in published_cases.CASES] == ["S0", "S1a", "S1b", "S2", "S4"]
    for case in published_cases.CASES:
        of = networks.find(case.model)
        assert (of.seed, of.batch, of.samples, of.epochs) == (case.name, case.batch, case.samples, case.epochs)
        assert all(claim.faster in ("cpu", "gpu", "neither") and claim.words for claim in case.claims)
    s0 = published_cases.BY_NAME["S0"]
    # 2191 s over 246 s: "about 9x"
    assert s0.of("cpu").total_s / s0.of("gpu").total_s == pytest.approx(8.907, abs=1e-3)
    cpu = s0.of("cpu")
    assert cpu.sample_s.low * s0.samples <= cpu.epoch_s.value <= cpu.sample_s.high * s0.samples
    assert s0.of("gpu").sample_s.value * s0.samples == pytest.approx(s0.of("gpu").epoch_s.value, rel=0.02)
    assert published_cases.BY_NAME["S1a"].of("cpu") is None


def s0(cpu_epoch: float, gpu_epoch: float, **given) -> list:
    """S0 at its article's settings: 1563 steps an epoch; the form `visible` twice as slow as the CPU hidden."""
    own = {"dtype": "float64", "epochs": 10, **given}
    return [
        trained("cifar10-cnn", 32, 50_000, (0.0, 0.0, cpu_epoch / 1563), **own),
        trained("cifar10-cnn", 32, 50_000, (0.0, 0.0, 2 * cpu_epoch / 1563), gpu="visible", **own),
        trained("cifar10-cnn", 32, 50_000, (0.0, 0.0, gpu_epoch / 1563), device="gpu:0", **own),
    ]


def claims(rows) -> dict:
    return {(b.case.name, b.claim.samples): b for b in published.comparisons(rows) if b.here}


def test_a_claim_is_set_beside_the_best_form_of_the_cpu_at_the_articles_own_settings():
    """An epoch of 11 s on the CPU, hidden, and 2.4 s on the GPU: 4.58 times, where the article has 9."""
    ((key, b),) = claims(s0(11.0, 2.4)).items()
    assert key == ("S0", 50_000) and b.here.value == pytest.approx(11 / 2.4) and b.faster == b.claim.faster == "gpu"
    assert words.claims(s0(11.0, 2.4)) == [
        "CIFAR-10 CNN, 50,000 samples: published about 9x; here GPU 4.6x faster (fit)."
    ]
    for other in ({"data": "real"}, {"jit_compile": "off"}, {"dtype": "float32"}):
        assert not claims(s0(11.0, 2.4, **other))
    without = [b for b in published.comparisons([]) if b.here is None]
    assert len(without) == sum(len(case.claims) for case in published_cases.CASES)
    assert words.claims([]) == []


def peaks(cpu_us: dict[int, float], kernel: str = "training/jax/loop", **given) -> list:
    return [
        trained("peaks", n, n, (0.0, 0.0, time * 1e-6), device=device, kernel=kernel, epochs=2000, **given)
        for n, us in cpu_us.items()
        for device, time in (("cpu", us), ("gpu:0", 90.0))
    ]


def test_s4_is_judged_by_its_bare_loops_with_their_data_on_the_gpu():
    rows = peaks({100: 60.0, 1000: 90.0, 40_000: 1440.0}, residence="resident") + peaks({100: 60.0}, residence="fed")
    found = claims(rows)
    expected = {("S4", 100): ("cpu", "cpu"), ("S4", 1000): ("neither", "neither"), ("S4", 40_000): ("gpu", "gpu")}
    assert {key: (b.faster, b.claim.faster) for key, b in found.items()} == expected
    assert found["S4", 40_000].here.value == pytest.approx(16.0)
    both = published.comparisons([*peaks({100: 80.0}, "training/keras/fit"), *rows])
    assert [b.is_loop for b in words.picked(both) if b.here] == [True] * 3
