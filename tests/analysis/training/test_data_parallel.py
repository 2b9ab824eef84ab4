"""Trainings on two GPUs, of a stored run."""

import msgspec
import pytest
import stored_runs
from fake_data_parallel import JAX, USUAL, cells, fed, fit, part, two
from fake_measurements import row

from analysis.analysis import Analysis
from analysis.stats import Estimate
from analysis.text import several_gpus as words
from analysis.training import data_parallel
from kernels.problems import AllReduce
from workloads.records import Fits


@pytest.mark.parametrize(
    ("batch", "step", "all_reduce", "bus_bytes_per_s", "loss_difference"),
    [
        (32, (1.874e-3, 1.738e-3, 2.128e-3), (4.488e-5, 4.256e-5, 6.119e-5), 1.4863e11, 8.0908e-5),
        (2048, (3.989e-3, 3.456e-3, 4.155e-3), (5.134e-5, 4.528e-5, 7.021e-5), 1.2993e11, 2.7123e-5),
    ],
)
def test_stored_data_parallel_steps_are_known(batch, step, all_reduce, bus_bytes_per_s, loss_difference):
    cases = data_parallel.cases(stored_runs.analysis("two-gpus").rows)
    (case,) = [case for case in cases if (case.several.problem.batch, case.count) == (batch, 2)]
    assert case.several.problem.model == "cifar10-cnn"
    assert stored_runs.numbers(data_parallel.step(case.several)) == stored_runs.near(*step)
    assert stored_runs.numbers(data_parallel.all_reduce(case)) == stored_runs.near(*all_reduce)
    assert data_parallel.bus_bytes_per_s(case) == pytest.approx(bus_bytes_per_s, rel=5e-4)
    assert data_parallel.loss_difference(case) == pytest.approx(loss_difference, rel=5e-4)


def only(*rows):
    (case,) = data_parallel.cases(rows)
    return case


def test_gains_are_one_gpus_step_over_all():
    case = only(*USUAL)
    assert (case.count, case.gain.value, case.scaled.value) == (2, pytest.approx(2.0), pytest.approx(2.2))
    below = fit(2e-3)
    (own,) = below.samples
    more = Fits(steps=2 * own.calls, later_epoch_s=(own.calls * 1e-3,))  # more steps took less
    below = msgspec.structs.replace(below, fits=(more,))
    assert data_parallel.step(below).value == pytest.approx(2e-3)
    case = only(*USUAL)
    assert case.predicted_step.value == pytest.approx(2.1e-3)  # 1.8 + 0.3
    assert case.predicted_gain.value == pytest.approx(4 / 2.1) and case.off == pytest.approx(4 / 2.1 / 2 - 1)
    without = only(*USUAL[:3], USUAL[4])  # no row under the strategy on one GPU: the plain one stands for it
    assert without.predicted_step.value == pytest.approx(2.5e-3)
    assert only(two(summed=0), *USUAL[1:]).predicted_step is None
    assert only(*USUAL[:4]).predicted_step is None  # what feeding two GPUs takes is not known
    based = only(USUAL[0], USUAL[1], USUAL[3])  # no plain row of a part: the one under the strategy stands for it
    assert based.scaled.value == pytest.approx(2 * 1.8 / 2)
    other = fed(9e-3, model="mlp-784-1x1-10")  # fed with smaller samples: of another case
    assert only(*USUAL[:4], other, fed(3e-3)).predicted_step.value == pytest.approx(3e-3)
    waiting = (two(), fit(1.9e-3), fit(1.8e-3, 32), fit(1.8e-3, 32, strategy="DataParallel"))
    assert only(*waiting).waits
    assert only(*waiting).predicted_step is None and only(*waiting, fed(0.7e-3)).predicted_step is None
    feeding = (fed(0.5e-3, 1), fed(0.7e-3))
    # what the host does, for two
    assert only(*waiting, *feeding).predicted_step.value == pytest.approx(1.8e-3 * 0.7 / 0.5)
    quicker = (feeding[0], fed(0.4e-3))
    assert only(*waiting, *quicker).predicted_step.value == pytest.approx(1.8e-3)
    assert not only(*USUAL).waits
    off = {**JAX, "jit_compile": "off"}
    others = [fit(4e-3, given=off), fit(4e-3, given={**JAX, "dropout": "on"}), fit(4e-3, 64, device="gpu:1")]
    case = only(two(), *others, fit(4e-3, model="lenet"), fit(4e-3, status="skipped"))
    assert (case.one, case.part, case.gain, case.off) == (None, None, None, None)


LOSSES = (2.0, 1.0, 0.5)


@pytest.mark.parametrize(
    ("losses", "apart", "flagged"),
    [(LOSSES, 0.0, False), ((2.0, 1.0, 0.5004), 0.0008, False), ((2.0, 1.02, 0.5), 0.02, True)],
)
def test_losses_of_several_compare_with_one(losses, apart, flagged):
    one, several = fit(4e-3, series={"step_loss": LOSSES}), two(series={"step_loss": losses})
    assert data_parallel.loss_difference(only(one, several)) == pytest.approx(apart, abs=1e-12)
    assert [one.check for one in Analysis.from_rows([one, several]).doubts] == ["other-losses"] * flagged
    said = " ".join(words.training_lines([one, several]))
    assert ("the losses are NOT those of one GPU. Within 3 steps they differ by 2.0 %." in said) is flagged


def test_rounding_losses_and_bus_bandwidth_follow_their_formulas():
    one, several = (fit(4e-3, series={"step_loss": (2.0,) * 6}), two(series={"step_loss": (2.0,) * 5 + (2.1,)}))
    assert data_parallel.loss_difference(only(one, several)) == 0
    assert data_parallel.loss_difference(only(one, several), None) == pytest.approx(0.05)
    assert Analysis.from_rows([one, several]).doubts == []
    assert cells([one, several])["losses differ by"] == "0 %" and cells([one, several])["at the end by"] == "5.00 %"
    assert data_parallel.bus_bytes_per_s(only(*USUAL)) == pytest.approx(6670376 / 0.3e-3)  # 2 (n - 1) / n is 1 for two
    four = fit(2e-3, 64, 4, "DataParallel", values={"all_reduce_bytes": 8e6}, series={"all_reduce_s": (1e-3,) * 3})
    assert data_parallel.bus_bytes_per_s(only(four)) == pytest.approx(12e9)
    stored = [
        row("collective/cupy/nccl", AllReduce(nbytes, "0,1"), seconds, device="gpu:0")
        for nbytes, seconds in ((4, 1e-5), (5000000, 1e-4), (10000000, 2e-4), (20000000, 5e-4))
    ]
    told = data_parallel.all_reduce(only(two(summed=0), *stored))
    assert told.value == pytest.approx(1e-4 * (1 + 1670376 / 5000000))
    assert data_parallel.all_reduce(only(two(summed=0), *stored[:2])) is None  # larger than any that was measured


def test_where_steps_tell_nothing_epochs_speak(monkeypatch):
    """Epochs of 3 ms a step on two GPUs, of 2 ms on one; a step of 1 ms on two that may be none at all."""
    rows, noisy = (two(3e-3), fit(2e-3)), Estimate(1e-3, -0.5e-3, 2.5e-3)
    known = {"2": noisy, "1": Estimate(2e-3, 1.9e-3, 2.1e-3)}
    monkeypatch.setattr(data_parallel, "step", lambda m: known[m.settings.switches.get("replicas", "1")])
    case = only(*rows)
    assert case.gain is None and case.off is None and case.by_epoch.value == pytest.approx(2 / 3)
    seen = cells(rows)
    assert "speedup" not in seen and "predicted" not in seen and seen["by short epochs"] == "0.67x [0.67, 0.67]"


@pytest.mark.slow
def test_two_devices_learn_what_one_learns(jax_worker):
    one, several = jax_worker(part(1, strategy="")), jax_worker(part(2))
    assert (one.status, several.status) == ("ok", "ok"), (one.reason, several.reason)
    case = only(msgspec.structs.replace(one), several)
    assert case.one.key == one.key
    assert len(several.series["step_loss"]) == 20  # more samples are held than the row's own
    assert 0 <= data_parallel.loss_difference(case) < 1e-5
    assert (several.values["replicas"], several.values["replica_batch"]) == (2.0, 4.0)
    assert several.values["all_reduce_bytes"] == 4 * (12 * 16 + 16 + 16 * 3 + 3)
    assert several.values["all_reduce_s"] >= 0 and len(several.series["all_reduce_s"]) >= 3
    assert several.notes["strategy"] == "keras.distribution.DataParallel"
    state, _ = data_parallel.memory(several)
    # half of the batch: float32 inputs, int32 classes
    assert data_parallel.memory(one)[0] - state == 4 * (8 - 4) * (12 + 1)
