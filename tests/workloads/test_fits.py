"""Fits that vary one thing each, and when to stop: on a trainer whose fits take no time and say what they were asked."""

import numpy as np
import pytest

from kernels.problems import Training
from workloads.frameworks import keras_fit
from workloads.frameworks.trainers import Fitted, Trainer
from workloads.harness.timing import Limits
from workloads.records import EPOCHS_OF


class Clock:
    """A trainer that takes 1 s a fit, 0.5 s an epoch and 0.01 s a step on a clock of its own, 3 s more at a new batch size."""

    def __init__(self, monkeypatch, batch, seen=()):
        self.now, self.batch, self.calls, self.seen = 0.0, batch, [], set(seen)
        monkeypatch.setattr(keras_fit.time, "perf_counter", lambda: self.now)
        self.trainer = Trainer(self.fit, lambda: self.calls.append("restore"), {}, {})

    def fit(self, samples, epochs, stamped=False):
        steps = -(-samples // self.batch)
        sizes = {min(self.batch, samples), samples % self.batch or min(self.batch, samples)}
        self.now += 1 + epochs * (0.5 + 0.01 * steps) + 3 * len(sizes - self.seen)
        self.seen |= sizes
        self.calls.append((samples, epochs))
        return Fitted((1.0,) * epochs, (0.5,) * epochs, (0.5 + 0.01 * steps,) * epochs)


def test_a_compilation_for_each_batch_shape(monkeypatch):
    phases = {}
    keras_fit.compiled(Clock(monkeypatch, 32).trainer, Training("m", 32, 100), phases)
    assert phases == pytest.approx({"compile": 3.0, "compile_last": 3.0})
    phases = {}
    keras_fit.compiled(Clock(monkeypatch, 32).trainer, Training("m", 32, 96), phases)
    assert phases == pytest.approx({"compile": 3.0})
    phases = {}
    keras_fit.compiled(Clock(monkeypatch, 2).trainer, Training("m", 2, 5), phases)
    assert phases == pytest.approx({"compile": 6.0})  # no third batch size could tell the two apart


def test_the_first_fit_of_each_form_is_not_counted(monkeypatch):
    """A pipeline is made when a fit of its length is first asked for: 2 s here."""
    clock, made = Clock(monkeypatch, 32, {32}), set()

    def fit(samples, epochs, stamped=False):
        clock.now += 2.0 * ((samples, epochs) not in made)
        made.add((samples, epochs))
        return clock.fit(samples, epochs)

    found = keras_fit.apart(Trainer(fit, lambda: None, {}, {}), Training("m", 32, 6400), 6400, Limits(max_time=3.0))
    expected = {"fit_s 1x1": {1.51}, "fit_s 1x100": {2.5}, "fit_s 3x1": {2.53}}
    assert {name: {round(s, 6) for s in taken} for name, taken in found.items()} == expected


def test_fits_are_of_whole_executions_and_vary_one_thing_each(monkeypatch):
    clock = Clock(monkeypatch, 4)
    keras_fit.compiled(clock.trainer, Training("m", 4, 100), {}, unit=8)
    held = keras_fit.samples_held(Training("m", 4, 100), 1, 8)
    found = keras_fit.apart(clock.trainer, Training("m", 4, 100), held, Limits(max_time=3.0), 8)
    keras_fit.learned(clock.trainer, Training("m", 4, 100), 8)
    assert set(found) == {"fit_s 1x8", "fit_s 1x104", "fit_s 3x8"}
    assert {call[0] // 4 % 8 for call in clock.calls if call != "restore"} == {0}
    assert clock.calls[-1] == (16 * 4, 3)
    clock.calls.clear()
    keras_fit.compiled(clock.trainer, Training("m", 4, 98), {}, unit=8)
    assert {-(-samples // 4) for samples, _ in clock.calls} == {8}
    clock = Clock(monkeypatch, 32, {32})
    found = keras_fit.apart(clock.trainer, Training("m", 32, 6400), 6400, Limits(max_time=3.0))
    assert set(found) == {"fit_s 1x1", "fit_s 1x100", "fit_s 3x1"}  # a third of 3 s at 10 ms a step: 100 steps
    assert set(found["fit_s 1x1"][-3:]) == {1.51}
    assert set(found["fit_s 1x100"]) == {2.5} and set(found["fit_s 3x1"]) == {2.53}
    assert {len(v) for v in found.values()} == {3}  # three rounds of 6.54 s are more than twice max_time
    assert {samples % 32 for samples, _ in clock.calls} == {0}
    slow = keras_fit.apart(Clock(monkeypatch, 32).trainer, Training("m", 32, 32), 64, Limits())
    assert set(slow) == {"fit_s 1x1", "fit_s 1x2", "fit_s 3x1"}


def test_long_fits_count_by_their_epochs(monkeypatch):
    clock, problem = Clock(monkeypatch, 32, {32}), Training("m", 32, 64, 4)
    first = Fitted((1.0,) * 4, (), (9.0, 0.4, 0.6, 0.5))
    taken = keras_fit.repeated(clock.trainer, problem, first, 10.5, Limits(max_time=2.0), lambda: None)
    assert taken.seconds == (0.2, 0.3, 0.25) and taken.calls == 2 and taken.stop_reason == EPOCHS_OF + "one fit"
    assert clock.calls == []
    two = keras_fit.repeated(
        clock.trainer, Training("m", 32, 64, 2), Fitted((1.0,) * 2, (), (9.0, 0.4)), 10.4, Limits(), lambda: None
    )
    assert (two.seconds, two.stop_reason, clock.calls) == ((0.2, 0.26, 0.26), "epochs of two fits", [(64, 2)])
    taken = keras_fit.repeated(clock.trainer, problem, first, 1.5, Limits(max_time=2.0), lambda: None)
    assert set(taken.seconds) == {round((1 + 4 * 0.52) / 8, 6)} and taken.calls == 8
    assert taken.stop_reason == "max-time" and len(taken.seconds) == 3


@pytest.mark.parametrize(
    ("seconds", "spent", "reason"),
    [
        ([1, 1], 9, ""),
        ([1, 1, 1], 1, ""),
        ([1, 1, 1], 3, "max-time"),
        ([1, 1, 1, 1], 1, "steady"),
        ([1, 2, 3, 4], 1, ""),
        ([1, 2] * 10, 1, "max-blocks"),
        ([1], 11, ""),
        ([1, 1], 11, "max-time"),
    ],
)
def test_when_to_stop(seconds, spent, reason):
    assert keras_fit._enough([float(s) for s in seconds], spent, Limits(max_time=2)) == reason


def test_the_loss_run_begins_anew_and_samples_are_held_within_a_bound(monkeypatch):
    for samples, asked in ((9600, 640), (100, 96), (64, 64), (20, 20)):
        clock = Clock(monkeypatch, 32)
        assert len(keras_fit.learned(clock.trainer, Training("m", 32, samples)).losses) == 3
        assert clock.calls == ["restore", (asked, 3)]
    assert keras_fit.samples_held(Training("m", 32, 100), 12288) == 200 * 32
    # 96 MiB a batch: two, and the bound is 256
    assert keras_fit.samples_held(Training("m", 8192, 8192), 12288) == 2 * 8192
    assert keras_fit.samples_held(Training("m", 32, 50_000), 12288) == 50_000
    x, y = keras_fit.resized(np.arange(3), np.arange(3), 7)
    assert x.tolist() == y.tolist() == [0, 1, 2, 0, 1, 2, 0]
