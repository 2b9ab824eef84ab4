"""The articles as data, and their results beside ours: each difference from numbers that the rows have, or not measured."""

import pytest
from test_jobs import trained

from analysis.text import published
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


def test_a_gain_is_decomposed_into_devices_and_what_does_not_shrink_with_the_batch():
    """Ours: CPU 11 s an epoch (20 times faster than 220), GPU 2.4 s (10 times faster than 24): 9.17 x 10 / 20 = 4.58."""
    found = [b for b in published.comparisons(s0(11.0, 2.4)) if b.here]
    assert [b.case.name for b in found] == ["S0"]
    assert found[0].here.value == pytest.approx(11 / 2.4) and found[0].faster == "gpu"
    said = published.sentence(found[0])
    assert "published about 9x; here the GPU is faster, the same winner, but 1.96 times less: 4.58x (fit)" in said
    assert "our CPU takes 220 µs a sample against its 4.40 ms (20.0 times faster)" in said
    assert "our GPU 48.0 µs a sample against its 480 µs (10.0 times faster): its 9.17 x 10.0 / 20.0 is our 4.58" in said
    assert "no row of another batch tells what of the GPU's step is dispatch" in said
    assert "against the CPU's other forms the gain would read 9.17 with the GPU visible (ours: GPU hidden)" in said
    more = [
        trained("cifar10-cnn", 1, 256, (0.0, 0.0, 3e-3)),
        trained("cifar10-cnn", 1, 256, (0.0, 0.0, 1.2e-3), device="gpu:0"),
    ]
    # knows it worse
    more += [trained("cifar10-cnn", 1, 128, (0.0, 0.0, 9e-3), device=d, noise=0.1) for d in ("cpu", "gpu:0")]
    (found,) = [b for b in published.comparisons([*s0(15.63, 3.126), *more]) if b.here]
    assert (
        "the GPU's step takes 2.00 ms at batch 32 and still 1.20 ms (60.0 %) at batch 1, "
        "where the CPU's falls from 10.0 ms to 3.00 ms"
    ) in found.why
    more[0] = trained("cifar10-cnn", 1, 256, (0.0, 0.0, 12e-3))
    (found,) = [b for b in published.comparisons([*s0(15.63, 3.126), *more]) if b.here]
    assert any(why.endswith("where the CPU's goes from 10.0 ms to 12.0 ms") for why in found.why)


def test_other_settings_are_not_the_articles_and_unknown_times_are_said_to_be():
    assert not [b for b in published.comparisons(s0(11.0, 2.4, data="real")) if b.here]
    assert not [b for b in published.comparisons(s0(11.0, 2.4, jit_compile="off")) if b.here]
    mlp = [
        trained("cifar10-mlp", 32, 50_000, (0.0, 0.0, s), device=d, dtype="float64")
        for d, s in (("cpu", 7e-3), ("gpu:0", 1e-3))
    ]
    (b,) = [b for b in published.comparisons(mlp) if b.here]
    assert b.here.value == pytest.approx(7.0)
    assert b.why[0].startswith(
        "the article does not give which CPU and GPU it was, and the seconds of either, so which device"
    )
    assert "as published: 7.00x" in published.sentence(b) and "would take" not in published.sentence(b)
    mlp[0] = trained("cifar10-mlp", 32, 50_000, (0.0, 0.0, 2e-3), dtype="float64")
    (b,) = [b for b in published.comparisons(mlp) if b.here]  # 1563 steps of 1 ms; seven times that beside 1563 of 2 ms
    assert b.why[1] == "beside our GPU's 1.56 s an epoch, 7.00x would take a CPU of 10.9 s; ours takes 3.13 s"
    assert "here the GPU is faster, the same winner, but 3.50 times less: 2.00x (fit)" in published.sentence(b)
    mlp[0] = trained("cifar10-mlp", 32, 50_000, (0.0, 0.0, 14e-3), dtype="float64")
    assert "the same winner, and 2.00 times more: 14.0x" in published.lines(mlp)[0]
    without = [b for b in published.comparisons([]) if b.here is None]
    assert len(without) == sum(len(case.claims) for case in published_cases.CASES)
    assert published.lines([]) == []


def peaks(cpu_us: dict[int, float], **given) -> list:
    made = []
    for n, us in cpu_us.items():
        for device, time in (("cpu", us), ("gpu:0", 90.0)):
            kernel = "training/jax/loop"
            made.append(
                trained("peaks", n, n, (0.0, 0.0, time * 1e-6), device=device, kernel=kernel, epochs=2000, **given)
            )
    return made


def test_s4_is_judged_by_its_bare_loops_and_its_cause_by_the_rows_that_were_fed():
    rows = peaks({100: 60.0, 1000: 90.0, 40_000: 1440.0}, residence="resident") + peaks({100: 60.0}, residence="fed")
    rows = [m for m in rows if m.settings.switches["residence"] == "resident" or m.settings.device == "cpu"]
    kernel = "training/jax/loop"
    rows.append(trained("peaks", 100, 100, (0.0, 0.0, 4e-4), device="gpu:0", kernel=kernel, residence="fed"))
    for device, us in (("cpu", 1500.0), ("gpu:0", 900.0)):  # ten times 100 are nearer to 1000 than a fortieth of 40,000
        how = {"device": device, "kernel": "training/jax/loop", "epochs": 2000, "residence": "fed"}
        rows.append(trained("peaks", 40_000, 40_000, (0.0, 0.0, us * 1e-6), **how))
    found = {b.claim.samples: b for b in published.comparisons(rows) if b.here}
    expected = {100: ("cpu", "cpu"), 1000: ("neither", "neither"), 40_000: ("gpu", "gpu")}
    assert {n: (b.faster, b.claim.faster) for n, b in found.items()} == expected
    assert found[40_000].here.value == pytest.approx(16.0)
    assert "transfers are not in its step of 90.0 µs; fed each step it takes 400 µs" in published.sentence(found[100])
    assert "fed each step it takes 400 µs (at 100 samples, the nearest measured)" in found[1000].why[-1]
    (alone,) = [b for b in published.comparisons(peaks({1000: 90.0}, residence="resident")) if b.here]
    assert "what transfers add at 1,000 samples is not measured: no row that is fed each step" in alone.why
    # of the smallest batch, that its step is as long at the largest
    assert (
        "the GPU's step takes 90.0 µs at batch 40,000 and still 90.0 µs (100 %) at batch 100, where the CPU's falls from "
        "1.44 ms to 60.0 µs"
    ) in found[100].why
    assert "unlike the article" in published.sentence(
        next(b for b in published.comparisons(peaks({100: 900.0}, residence="resident")) if b.here)
    )
