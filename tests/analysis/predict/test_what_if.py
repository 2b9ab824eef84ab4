"""What changes save: worked out by hand from a predictor whose laws are known (fake_predictions)."""

import functools

import msgspec
import pytest
from fake_predictions import MS, predict, sources

from analysis.predict import what_if
from analysis.predict.profile import Lacking
from analysis.stats import Estimate
from kernels.problems import Training
from workloads.records import Settings

T = Training("cifar10-cnn", 32, 3200, 10)  # 100 steps an epoch
GPU, CPU = Settings("gpu:0", switches={"data": "synthetic"}), Settings("cpu", switches={"data": "synthetic"})


@functools.cache
def of():
    profile = sources().gpu
    return lambda training, settings, kernel=what_if.FIT: predict(training, settings, profile, kernel=kernel)


def found(settings=GPU):
    return {w.change.words: w for w in what_if.what_ifs(of()(T, settings), of())}


def by(found_, words):
    (one,) = [w for name, w in found_.items() if words in name]
    return one


def test_each_change_saves_what_the_laws_say():
    made = found()
    # 1000 steps of 2.164 ms. Batch 128: 250 steps of 2.356 ms; batch 512: 70 of 3.124 (7 an epoch, the last one smaller)
    assert by(made, "batch 128").job_saved.value == pytest.approx(2.164 - 250 * 2.356 * MS)
    assert by(made, "batch 512").job_saved.value == pytest.approx(2.164 - 70 * 3.124 * MS)
    assert by(made, "batch 128").step_saved.value == pytest.approx(2.164 * MS - 2.356 * MS / 4)
    assert by(made, "steps_per_execution=16").job_saved.value == pytest.approx(1.0)  # half of the 2 ms
    # a compilation less, 5 ms a step more
    assert by(made, "without XLA").job_saved.value == pytest.approx(3.0 - 1000 * 5 * MS)
    # a loop's call, no copies
    assert by(made, "data on the GPU").job_saved.value == pytest.approx(1000 * (1.7 + 0.132) * MS)
    assert by(made, "mixed_bfloat16").job_saved.value == pytest.approx(1000 * 0.016 * MS)
    assert by(made, "prefetch").job_saved.value == 0
    ranked = [w.job_saved.value for w in made.values()]
    assert ranked == sorted(ranked, reverse=True) and next(iter(made)) == "batch 512"
    made = found()
    expected = ["batch 512", "batch 128"]
    assert [name for name, w in made.items() if w.change.learns] == expected


def test_a_smaller_last_batch_is_dropped_for_xla():
    """3,210 samples are 100 batches of 32 and one of 10."""
    uneven = msgspec.structs.replace(T, samples=3210)
    (found_,) = [c for c in what_if.changes(uneven, GPU) if "whole batches" in c.words]
    assert found_.words == "whole batches: 3,200 samples"
    assert found_.training == T and not found_.learns and found_.note == "drop_remainder"
    made = {w.change.words: w for w in what_if.what_ifs(of()(uneven, GPU), of())}[found_.words]
    assert made.job_saved.value == pytest.approx(10 * 2.164 * MS)  # a step an epoch; this predictor compiles once
    assert made.step_saved.value == 0
    without = (Settings("gpu:0", switches={"jit_compile": "off"}), CPU)
    small = msgspec.structs.replace(T, samples=20)  # less than a batch: one shape
    other = [*(what_if.changes(uneven, s) for s in without), what_if.changes(T, GPU), what_if.changes(small, GPU)]
    assert not [c for changes in other for c in changes if "whole batches" in c.words]


def test_batches_never_pass_the_samples():
    for n, grown in ((300, []), (400, [400]), (1600, [400, 1600])):
        changes = what_if.changes(Training("peaks", 100, n), GPU)
        assert [c.training.batch for c in changes if c.learns] == grown
    words = list(found(CPU))
    assert "with XLA" in words
    assert not any("GPU" in w or "TF32" in w or "precision" in w for w in words)
    assert by(found(CPU), "XLA").job_saved.value == pytest.approx(-3.0)
    switches = {"tf32": "off", "residence": "resident", "steps_per_execution": "8", "jit_compile": "off"}
    chosen = Settings("gpu:0", switches=switches)
    words = [c.words for c in what_if.changes(msgspec.structs.replace(T, model="saved.keras"), chosen)]
    assert words == ["batch 128", "batch 512", "with XLA", "TF32 allowed"]


def test_an_unpredictable_change_says_why_and_comes_last():
    def lacking(training, settings, kernel=what_if.FIT):
        if settings.switches.get("precision"):
            raise Lacking("no bfloat16 rows", ["python -m workloads.matmul --dtypes bfloat16"])
        return of()(training, settings, kernel)

    made = what_if.what_ifs(of()(T, GPU), lacking)
    assert made[-1].job_saved is None and "python -m workloads.matmul --dtypes bfloat16" in made[-1].why
    assert made[-1].surely_s == 0 and all(w.job_saved for w in made[:-1])


def test_what_both_are_wrong_by_alike_cancels():
    a, b = Estimate(2.0, 1.0, 3.0), Estimate(1.5, 0.75, 2.25)
    assert what_if._difference(a, b, correlated=True) == Estimate(
        0.5, 0.25, 0.75
    )  # both off by half: so is what lies between
    vague = Estimate(0.5, 0.0, 1.0)  # off by all of it: half as the other is, and 0.25 more
    assert what_if._difference(a, vague, correlated=True) == Estimate(1.5, 0.5, 2.5)
    assert what_if._difference(a, b, correlated=False) == Estimate(0.5, -1.25, 2.25)
    assert (
        what_if._difference(a, a, correlated=True) == what_if._difference(a, a, correlated=False) == Estimate(0, 0, 0)
    )


def test_commands_measure_what_a_change_claims():
    made = found(Settings("gpu:0", switches={"data": "synthetic", "tf32": "off"}))
    words = what_if.command(by(made, "batch 128").change, epochs=1, samples=1024)
    flags = "--model cifar10-cnn --batch 128 --samples 1024 --epochs 1 --dtypes float32 --device gpu:0"
    assert " ".join(words) == f"workloads.training {flags} --variants fit --tf32 off --data synthetic"
    expected = ["--variants", "resident", "--residence", "resident"]
    assert what_if.command(by(made, "data on the GPU").change)[-8:-4] == expected
    without_xla = what_if.command(by(made, "without XLA").change)
    assert without_xla[-6:] == ["--jit", "off", "--tf32", "off", "--data", "synthetic"]
    from workloads import training

    for change in (
        *what_if.changes(T, GPU),
        *what_if.changes(T, Settings("gpu:0", switches={"tf32": "off"})),
        *what_if.changes(T, CPU),
    ):
        args = training.parser().parse_args(what_if.command(change)[1:])
        assert args.model == ["cifar10-cnn"] and (args.batch or args.samples)
