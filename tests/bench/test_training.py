"""The bench of what a training costs, on pairs whose steps are known by hand."""

import msgspec
import pytest
from fake_measurements import CPU_MACHINE

from analysis.predict.budget import Budget
from analysis.predict.profile import Profile
from analysis.stats import exact
from kernels.problems import InputPipeline, Training
from tests.bench import training as bench
from workloads.records import Fits, Measurement, Samples, Settings


def pair(step: float, plain: float, whole: float = 30.0, start: float = 10.0) -> bench.Pair:
    """A row of 100 steps of `step` and an epoch of 40 ms, `start` seconds of import, 2 of compilation and 0.5 of setup; beside a
    script whose steps take `plain`, and 40 ms an epoch too."""
    later = (100 * step + 0.04) / 100
    m = Measurement(
        "training/keras/fit",
        Training("cifar10-cnn", 32, 3200),
        Settings("cpu", switches={"data": "synthetic"}),
        "ok",
        samples=(Samples("host-latency", (later,) * 5, 100, (5,), "epochs of 1 fit"),),
        fits=(
            Fits(steps=100, setup_s=(0.5,)),
            Fits(steps=8, setup_s=(0.5,), later_epoch_s=(8 * step + 0.04,) * 5),
        ),
        phases_s={"import": start, "device_start": 0.0, "build": 0.0, "compile": 2.0, "first_call": 3.0},
        at="2026-11-22T23:00:00Z",
    )
    taken = bench.Plain(whole, (100 * plain + 0.04,) * 5, (25 * plain + 0.04,) * 5, 25)
    return bench.Pair(taken, m, 20.0, False, CPU_MACHINE, "0123456789abcdef")


def test_a_steps_ratio_has_no_epoch_constant():
    one = bench.steps([pair(0.020, 0.019)])
    assert one.figure.value == pytest.approx(20 / 19) and one.reached
    assert "384 KiB" in one.what and "20.0 ms / 19.0 ms" in one.what
    short = bench.steps([pair(0.020, 0.018), pair(0.020, 0.016), pair(0.020, 0.020)])
    assert (short.figure.value, short.figure.high) == pytest.approx((20 / 18, 1.25)) and not short.reached


def test_a_whole_training_has_the_scripts_epochs():
    """10 + 2 + 0.5 + 6 (2 + 0.04) = 24.74 seconds."""
    found = bench.whole([pair(0.020, 0.019, whole=24.74)])
    assert found.figure.value == pytest.approx(1.0) and found.reached and "24.7 s / 24.7 s" in found.what
    assert not bench.whole([pair(0.020, 0.019, whole=26.5)]).reached


def test_a_budgets_share_is_its_pairs_median(monkeypatch):
    """Of steps of 20, 25 and 16 ms parts of 20 explain all, 4/5 and 5/4: the median leaves nothing."""

    def explained(m, of):
        step = bench.costs.measured(m).step
        return Budget(training=m, step=step, parts=(), remainder=step - 0.02)

    monkeypatch.setattr(bench.budget, "budget", explained)
    found = bench.unexplained([pair(step, 0.02) for step in (0.020, 0.025, 0.016)], Profile([]))
    assert (found.figure.value, found.figure.low, found.figure.high) == pytest.approx((0, -25, 20)) and found.reached
    assert not bench.unexplained([pair(0.016, 0.02)], Profile([])).reached


def test_pairs_round_trip_and_the_script_is_independent(tmp_path):
    file = tmp_path / "pairs.ndjson"
    file.write_bytes(msgspec.json.encode(pair(0.02, 0.02)) + b"\n")
    assert bench.read(file) == [pair(0.02, 0.02)]
    lines = (line.split() for line in bench.SCRIPT.read_text().splitlines())
    imported = {words[1] for words in lines if words and words[0] in ("import", "from")}
    assert imported == {"json", "sys", "time", "keras", "numpy"}


def test_a_law_is_tested_on_unfitted_sizes(monkeypatch):
    errors = {"gpu:0": [(e, 0.8) for e in (*(0.09,) * 8, 0.2, 0.05)]}
    monkeypatch.setattr(bench, "batches", lambda rows: errors)
    # a call and bytes over a bandwidth
    sets = [fed(batch, 3072, 0.01 + batch / 1000) for batch in (128, 32, 64, 256, 512)]
    monkeypatch.setattr(bench.pipeline_costs, "timed_rows", lambda rows: [(m, exact(1.0)) for m in sets])
    figures, lacking = bench.laws(Profile([]), ["gpu:0"])
    assert [(f.figure.value, f.reached) for f in figures] == [(90.0, True), (100.0, True)] and not lacking
    assert "(10; of an exact law 80.0 %, by" in figures[0].what and "(1; of an exact law 100 %, by" in figures[1].what
    assert bench.error(1.1, bench.Estimate(1.0, 0.9, 1.1)) == pytest.approx(
        (0.1, 0.95)
    )  # NEAR is the row's own interval
    sets[0] = fed(128, 3072, 0.12)  # held out, by the law 0.138
    errors["gpu:0"].append(None)
    figures, lacking = bench.laws(Profile([]), ["cpu", "gpu:0"])
    assert [f.reached for f in figures] == [True, False]
    told = [(line[2:5], line.split(": ")[2][:7]) for line in lacking]
    assert told == [("cpu", "no rows"), ("gpu", "1 of 11"), ("cpu", "no rows")]


def fed(batch: int, width: int, setup: float) -> Measurement:
    """A row of the feeding study of 64 steps whose data set is set up in so many seconds."""
    samples = Samples("host-latency", (1.0,) * 5, 64, (5,), "epochs of 1 fit")
    fits = Fits(steps=64, setup_s=(setup,)), Fits(steps=8, later_epoch_s=(8.0,) * 5)
    kernel, problem = "feeding/keras/numpy", InputPipeline(batch, width, 64)
    return Measurement(kernel, problem, Settings("gpu:0"), "ok", samples=(samples,), fits=fits)


def test_a_training_compares_with_the_scripts_parts():
    one = pair(0.020, 0.019)
    script = msgspec.structs.replace(one.plain, parts={"import": 9.5, "build": 0.25, "fit": 15.0})
    words = bench.beside(msgspec.structs.replace(one, plain=script))
    assert words.endswith(": start and build 10.0 / 9.8 s, fit 14.7 / 15.0 s.")  # 2 + 0.5 + 6 x 2.04
