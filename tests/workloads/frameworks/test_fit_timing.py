"""Long and short fits by their later epochs, and when to stop: on a trainer with a clock of its own."""

import numpy as np
import pytest

from analysis.training import costs
from kernels.problems import Training
from workloads.frameworks import fit_timing
from workloads.frameworks.trainers import Fitted, Trainer
from workloads.harness.timing import Limits
from workloads.records import Fits, Row, Settings
from workloads.shared_flags import FAST

LIMITS = Limits()


class Clock(Trainer):
    """A trainer on a clock of its own: 1 s a fit and 2 ms for each of its samples, half of it in the first epoch; 0.5 s an epoch
    and 10 ms a step; 3 s more at a new batch size, in the first epoch."""

    def __init__(self, monkeypatch, batch, seen=(), epoch_s=0.5, step_s=0.01):
        self.now, self.batch, self.calls, self.seen = 0.0, batch, [], set(seen)
        self.epoch_s, self.step_s = epoch_s, step_s
        monkeypatch.setattr(fit_timing.time, "perf_counter", lambda: self.now)
        self.values, self.notes = {}, {}

    def restore(self):
        self.calls.append("restore")

    def fit(self, samples, epochs, stamped=False):
        sizes = {min(self.batch, samples), samples % self.batch or min(self.batch, samples)}
        epoch, setup = self.epoch_s + self.step_s * -(-samples // self.batch), 1 + 0.002 * samples
        first = epoch + setup / 2 + 3 * len(sizes - self.seen)
        self.now += setup / 2 + first + (epochs - 1) * epoch
        self.seen |= sizes
        self.calls.append((samples, epochs))
        seconds = (first, *(epoch,) * (epochs - 1))
        return Fitted(losses=(1.0,) * epochs, accuracies=(0.5,) * epochs, epochs_s=seconds)


def plan(clock, problem, held, limits=LIMITS, unit=1):
    look = fit_timing.compiled(clock, problem, {}, unit)
    return fit_timing.plan(clock, problem, held, limits, look=look, unit=unit)[0]


def timed(clock, problem, held, limits=LIMITS):
    """(samples, fits, their plan) of a row."""
    planned = plan(clock, problem, held, limits)
    clock.calls.clear()
    timed_row = fit_timing.long_fits(clock, problem, planned, limits, before_pair=lambda: None)
    assert len(timed_row.first.losses) == planned.epochs
    return timed_row.samples, timed_row.fits, planned


def test_each_batch_shape_compiles_outside_the_epochs(monkeypatch):
    """100 steps: an epoch of 0.5 + 1 s. Of 8 steps 0.58 s. A fit of 3,200 samples is set up in 1 + 6.4 s, of 256 in 1.512 s."""
    phases = {}
    fit_timing.compiled(Clock(monkeypatch, 32), Training("m", 32, 100), phases)
    assert phases == pytest.approx({"compile": 3.002, "compile_last": 2.998})  # the other last batch has a sample less
    phases = {}
    # whole batches are compiled already: the first fit compiles one shape in 3 s, and another last batch takes as long
    fit_timing.compiled(Clock(monkeypatch, 32, seen=(32,)), Training("m", 32, 100), phases)
    assert phases == pytest.approx({"compile": 1.5, "compile_last": 1.5})
    phases = {}
    fit_timing.compiled(Clock(monkeypatch, 32), Training("m", 32, 96), phases)
    assert phases == pytest.approx({"compile": 3.0})
    phases = {}
    fit_timing.compiled(Clock(monkeypatch, 2), Training("m", 2, 5), phases)
    assert phases == pytest.approx({"compile": 6.0})  # no third batch size could tell the two apart
    clock = Clock(monkeypatch, 32)
    samples, fits, planned = timed(clock, Training("m", 32, 3200), 3200)
    assert planned == fit_timing.FitPlan(epochs=6, steps=8, further_epochs=3)
    assert (samples.seconds, samples.calls, samples.block) == ((0.015,) * 5, 100, (0,) * 5)
    assert samples.stop_reason == "epochs of 1 fit"  # five of 21.4 s are more than 12 s
    own, other = fits
    assert (own.steps, own.setup_s, own.later_epoch_s) == (100, pytest.approx((7.4,)), ())
    assert (other.steps, other.setup_s, other.later_epoch_s) == (8, pytest.approx((1.512,)), pytest.approx((0.58,) * 5))
    assert clock.calls == [(256, 6), (3200, 6)]
    row = Row("training/keras/fit", Training("m", 32, 3200), Settings())
    cost = costs.measured(row.result("ok", samples=(samples,), fits=fits))
    parts = [getattr(cost, part).value for part in ("step", "epoch", "dataset_setup", "setup_step")]
    assert parts == pytest.approx([0.01, 0.5, 7.4, 32 * 0.002])


def test_fits_are_repeated_in_turns(monkeypatch):
    """1 ms a step and 40 ms an epoch: 104 ms of 64 steps, 48 ms of 8. The first pair is set up in 1.512 + 5.096 s and has six
    epochs of each, 7.52 s; four more with half the epochs are guessed to take twice that: 22.56 s in all."""
    for max_time, count in ((3.77, 5), (3.75, 1)):
        clock = Clock(monkeypatch, 32, {32}, 0.04, 0.001)
        samples, fits, planned = timed(clock, Training("m", 32, 2048), 2048, Limits(max_time=max_time))
        assert planned == fit_timing.FitPlan(epochs=6, steps=8, further_epochs=3)
        assert clock.calls == [(256, 6), (2048, 6), *[(256, 3), (2048, 3)] * (count - 1)]
        blocks = (0,) * 5 + tuple(i for i in range(1, count) for _ in range(2))
        assert samples.block == blocks and samples.seconds == (0.104 / 64,) * len(blocks)
        assert samples.stop_reason == ("epochs of 5 fits" if count == 5 else "epochs of 1 fit")
        assert len(fits[0].setup_s) == count and len(fits[1].later_epoch_s) == len(blocks)
    clock, problem = Clock(monkeypatch, 32, {32}, 0.04, 0.001), Training("m", 32, 2048)
    planned = fit_timing.FitPlan(epochs=5, steps=8, further_epochs=5)
    row = fit_timing.long_fits(
        clock, problem, planned, Limits(max_time=60), before_pair=lambda: None, further_other_epochs=5
    )
    assert (len(row.samples.seconds), len(row.fits[1].later_epoch_s)) == (20, 21)  # five epochs of a row of a pipeline


@pytest.mark.parametrize(
    ("batch", "samples", "held", "epochs", "steps"),
    [
        (32, 50_000, 50_000, 10, 97),  # a sixteenth of 1562 whole steps; its own epochs
        (32, 2048, 2048, 6, 8),
        (32, 256, 6400, 6, 20),  # 8 steps are few: 20 of 10 ms take a tenth of max_time
        (32, 512, 6400, 6, 4),  # no twice as many: a quarter
        (32, 256, 400, 6, 2),
        (100, 100, 20_000, 6, 20),
        (32, 70, 6400, 6, 20),  # 3 steps, the last one smaller
    ],
)
def test_how_many_epochs_and_steps(monkeypatch, batch, samples, held, epochs, steps):
    problem = Training("m", batch, samples, 10 if samples == 50_000 else 1)
    planned = plan(Clock(monkeypatch, batch, epoch_s=0.04), problem, held)
    assert (planned.epochs, planned.steps) == (epochs, steps)
    long = plan(Clock(monkeypatch, batch, step_s=1.0), problem, held)
    assert long.epochs == (10 if samples == 50_000 else 4 if problem.steps > 2 else 6)  # an epoch of 3 s is long
    assert long.steps != problem.steps and (long.steps < problem.steps or long.steps * batch <= held)


def test_two_short_fits_set_the_plan(monkeypatch):
    """Steps of 2.4 s. The second fit is of all 8, once; of a single one it is of two, as one fit tells no step from an epoch."""
    for samples, steps, epochs in ((256, 8, 4), (32, 2, 6)):
        clock, problem = Clock(monkeypatch, 32, (), 0.04, 2.4), Training("m", 32, samples)
        assert plan(clock, problem, 256) == fit_timing.FitPlan(epochs=epochs, steps=2, further_epochs=3)
        assert clock.calls == [(32, 1), (32, 3), "restore", (32 * steps, 3)]
    # --fast: five epochs of 57 steps take 0.6 s; twice its 8 of 30 ms would take 2.4 s
    for step_s, steps in ((0.0021, 57), (0.03, 2)):
        assert plan(Clock(monkeypatch, 256, (), 0.065, step_s), Training("m", 256, 2048), 51_200, FAST).steps == steps


def test_slow_steps_are_timed_in_short_epochs(monkeypatch):
    """Steps of 2 s: epochs of three take 0.04 + 6 s and of one 0.04 + 2 s. Steps of 0.5 s: six epochs of four."""
    problem = Training("m", 32, 2064)
    clock = Clock(monkeypatch, 32, (), 0.04, 2.0)
    samples, fits, planned = timed(clock, problem, 2064, FAST)
    assert clock.calls == [(32, 4), (96, 4)] and planned.slow_steps == 3
    assert (samples.seconds, samples.calls) == (pytest.approx([6.04 / 3] * 3, rel=1e-5), 3)
    assert samples.stop_reason == "3 of 65 steps, 1 fit"
    assert fits[0] == Fits(steps=3, setup_s=(pytest.approx(1.192),))
    assert fits[1] == Fits(steps=1, later_epoch_s=(pytest.approx(2.04),) * 3)
    row = Row("training/keras/fit", problem, Settings())
    cost = costs.measured(row.result("ok", samples=(samples,), fits=fits))
    assert (cost.step.value, cost.epoch.value, cost.setup_step.value) == pytest.approx((2.0, 0.04, 0.0), abs=1e-4)
    # the look's epoch makes them 0.52 s
    faster = plan(Clock(monkeypatch, 32, (), 0.04, 0.5), problem, 2064, FAST)
    assert (faster.epochs, faster.other_epochs, faster.slow_steps) == (6, 6, 4)
    usual = ((problem, LIMITS), (Training("m", 32, 64), FAST), (Training("m", 32, 2064, 2), FAST))
    assert [plan(Clock(monkeypatch, 32, (), 0.04, 2.0), p, 2064, limits).slow_steps for p, limits in usual] == [0, 0, 0]
    assert fit_timing.slow_plan(Training("m", 32, 2048), 2.0, FAST, unit=16).slow_steps == 48
    assert fit_timing.slow_plan(problem, 0.1, FAST) is None


def test_a_long_first_fit_takes_one_warm_epoch(monkeypatch):
    """Of whole batches and one of 16 samples; 3 s for each of the two shapes and steps of 5 s: 17 s."""
    problem, look = Training("m", 32, 2064), [(48, 1), (48, 2)]
    clock = Clock(monkeypatch, 32, (), 0.04, 5.0)
    look_epoch = fit_timing.compiled(clock, problem, phases := {})
    assert (look_epoch.steps, look_epoch.seconds) == (2, pytest.approx(10.04))
    assert clock.calls == look and phases == pytest.approx({"compile": 6.0})
    clock = Clock(monkeypatch, 32, (), 0.04, 5.0)
    clock.values["jit_compile"] = 1.0
    fit_timing.compiled(clock, problem, {})
    assert clock.calls == [*look, (47, 1)]
    clock = Clock(
        monkeypatch, 32, (), 0.4, 0.2
    )  # a first fit of 10 s, for its compilation: epochs of 0.8 s are no long ones
    monkeypatch.setattr(fit_timing, "LONG_FIT_S", 5.0)
    fit_timing.compiled(clock, problem, {})
    assert clock.calls == [*look, (48, 3), (47, 1)]


def test_fits_have_whole_executions(monkeypatch):
    clock, problem = Clock(monkeypatch, 4), Training("m", 4, 100)
    held = fit_timing.samples_needed(problem, 1, 8)
    assert plan(clock, problem, held, Limits(max_time=3.0), 8).steps == 64  # twice 25, in eights
    assert {call[0] // 4 % 8 for call in clock.calls if call != "restore"} == {0}
    assert clock.calls[-1] == (16 * 4, 3)
    clock.calls.clear()
    fit_timing.compiled(clock, Training("m", 4, 98), {}, unit=8)
    assert {-(-samples // 4) for samples, _ in clock.calls} == {8}
    for samples, asked in ((9600, 640), (100, 96), (64, 64), (20, 20)):
        clock = Clock(monkeypatch, 32)
        one_step = fit_timing.WarmEpoch(steps=1, seconds=0.5)
        found = fit_timing.plan(clock, Training("m", 32, samples), samples, LIMITS, look=one_step)[1]
        assert len(found.losses) == 3 and clock.calls == ["restore", (asked, 3)]
    assert fit_timing.samples_needed(Training("m", 32, 100), 12288) == 200 * 32
    # 96 MiB a batch: 5 of them are 480 of 512 MiB; 400 MiB a batch: one step, and two to tell it by
    assert [fit_timing.samples_needed(Training("m", 8192, 8192), n) for n in (12288, 51200)] == [5 * 8192, 2 * 8192]
    assert fit_timing.samples_needed(Training("m", 32, 50_000), 12288) == 50_000
    assert (
        fit_timing.samples_needed(Training("m", 2048, 40_960), 12288) == 40_960
    )  # 21 batches would not be twice its 20
    # 64 steps are 4 calls of 16: 12 calls, which are no 200 steps; 520 steps of 16 are enough as they are
    assert [fit_timing.samples_needed(Training("m", 32, n * 32), 1, 16) for n in (64, 520)] == [192 * 32, 520 * 32]
    x, y = fit_timing.resized(np.arange(3), np.arange(3), 7)
    assert x.tolist() == y.tolist() == [0, 1, 2, 0, 1, 2, 0]
