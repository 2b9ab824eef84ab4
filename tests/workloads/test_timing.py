"""The sampler on a fake clock: what it takes, when it stops, and that reading the clock is not in the numbers."""

import numpy as np
import pytest

from workloads.harness import timing
from workloads.harness.timing import Limits


class FakeClock:
    """A clock that only moves when a call is made."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.seconds, self.calls = 0.0, iter(seconds) if not isinstance(seconds, float) else None, 0
        self.fixed = seconds if isinstance(seconds, float) else None
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def run(self):
        self.calls += 1
        self.now += self.fixed if self.fixed is not None else next(self.seconds)


def test_a_sample_is_the_mean_of_enough_calls_to_fill_a_tenth_of_a_block():
    assert timing.plan(20e-6, Limits(min_time=0.05)) == (250, 10)
    assert timing.plan(0.01, Limits(min_time=0.05)) == (1, 5)
    assert timing.plan(2.0, Limits(min_time=0.05)) == (1, 1)
    assert timing.plan(1e-6, Limits(min_time=0.02)) == (2000, 10)


def test_steady_calls_stop_after_two_narrow_looks(monkeypatch):
    clock = FakeClock(monkeypatch, 20e-6)
    taken = timing.collect(timing.host(clock.run), Limits(), "host-latency")
    assert taken.stop_reason == "steady" and taken.clock == "host-latency"
    assert len(taken.seconds) == 70 and taken.block == tuple(i // 10 for i in range(70))  # looks after 5 and 7 blocks
    assert np.allclose(taken.seconds, 20e-6, rtol=1e-9)


def test_noisy_calls_go_on_until_time_is_up(monkeypatch):
    clock = FakeClock(monkeypatch, np.random.default_rng(1).lognormal(np.log(1e-3), 1.0, 1_000_000))
    taken = timing.collect(timing.host(clock.run), Limits(max_time=0.4, max_noise=0.001), "host-latency")
    assert taken.stop_reason == "max-time"
    assert sum(taken.seconds) * taken.calls > 0.4


def test_a_call_longer_than_the_time_limit_still_gives_three_samples(monkeypatch):
    clock = FakeClock(monkeypatch, 5.0)
    taken = timing.collect(timing.host(clock.run), Limits(max_time=1.0), "host-latency")
    assert taken.seconds == (5.0, 5.0, 5.0) and taken.calls == 1 and taken.stop_reason == "max-time"


def test_warm_up_calls_are_not_samples(monkeypatch):
    clock = FakeClock(monkeypatch, [9.0] + [1e-3] * 100_000)
    taken = timing.collect(timing.host(clock.run), Limits(), "host-latency")
    assert max(taken.seconds) == pytest.approx(1e-3)


def test_min_samples_holds_a_steady_row_back(monkeypatch):
    clock = FakeClock(monkeypatch, 0.02)  # two calls a block
    taken = timing.collect(timing.host(clock.run), Limits(min_samples=25, max_time=100), "host-latency")
    assert len(taken.seconds) >= 25


def test_latency_waits_for_every_call_and_throughput_once():
    log = []
    timing.latency(lambda: log.append("run"), lambda: log.append("wait"))(2)
    timing.throughput(lambda: log.append("run"), lambda: log.append("wait"))(2)
    assert log == ["run", "wait", "run", "wait", "run", "run", "wait"]


def test_something_is_called_before_each_block(monkeypatch):
    clock, before = FakeClock(monkeypatch, 1e-3), []
    taken = timing.collect(timing.host(clock.run), Limits(), "host-latency", lambda: before.append(clock.calls))
    assert len(before) == max(taken.block) + 1


def test_a_handicap_makes_calls_that_are_not_counted(monkeypatch):
    clock = FakeClock(monkeypatch, 1e-4)
    plain, slow = (timing.one_block(timing.host(clock.run), Limits(), "host-latency", 1e-4, h) for h in (0.0, 0.5))
    assert np.allclose(plain.seconds, 1e-4) and np.allclose(slow.seconds, 1.5e-4)
    assert plain.calls == slow.calls == 50
    # A sample of 5 ms has 1 call of 5 ms and 12 of 400 us: 2 % more is a whole call only of 50.
    for call_seconds, calls in ((5e-3, 1), (4e-4, 12)):
        clock = FakeClock(monkeypatch, call_seconds)
        plain, slow = (
            timing.one_block(timing.host(clock.run), Limits(), "host-latency", call_seconds, h) for h in (0.0, 0.02)
        )
        assert (plain.calls, slow.calls) == (calls, 50) and np.allclose(slow.seconds, 1.02 * call_seconds)
