"""The sampler on a fake clock: what it takes, when it stops, and that reading the clock is not in the numbers."""

import itertools

import numpy as np
import pytest

from workloads.harness import timing
from workloads.harness.timing import Limits


class FakeClock:
    """A clock that only moves when a call is made."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.calls = 0.0, 0
        self.seconds = itertools.repeat(seconds) if isinstance(seconds, float) else iter(seconds)
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def run(self):
        self.calls += 1
        self.now += next(self.seconds)

    def passes(self, seconds):
        self.now += seconds


def test_a_visits_block_may_end_early(monkeypatch):
    """Sized at 0.1 ms, now 20 ms a call: a sample of 75 calls takes 1.5 s, and one is enough."""
    assert timing.sample_sizes(20e-6, Limits()) == (375, 10) and timing.sample_sizes(0.01, Limits()) == (1, 8)
    assert timing.sample_sizes(0.06, Limits()) == (1, 1) and timing.sample_sizes(2.0, Limits()) == (1, 1)
    assert timing.sample_sizes(1e-6, Limits(visit_s=0.02)) == (2000, 10)
    clock = FakeClock(monkeypatch, 20e-6)
    taken = timing.visit(timing.host(clock.run), Limits(), "host-latency", 20e-6)
    assert (taken.clock, taken.calls, taken.block, clock.calls) == ("host-latency", 375, (0,) * 10, 3750)
    assert np.allclose(taken.seconds, 20e-6, rtol=1e-9) and clock.now == pytest.approx(0.075)
    taken = timing.visit(lambda calls: calls * 0.02, Limits(visit_s=0.075), "host-latency", 1e-4)
    assert (taken.seconds, taken.calls, taken.block) == ((0.02,), 75, (0,))


def test_a_whole_row_takes_at_least_three_samples(monkeypatch):
    """The first call takes long, as one that loads something: its time is neither believed nor kept."""
    clock, before = FakeClock(monkeypatch, [0.9] + [0.0125] * 100_000), []
    taken = timing.visits(timing.host(clock.run), Limits(), "host-latency", lambda: before.append(clock.calls))
    assert taken.block == tuple(i for i in range(5) for _ in range(6)) and taken.stop_reason == "5 visits"
    assert taken.seconds == (0.0125,) * 30 and before == [2, 8, 14, 20, 26]
    taken = timing.visits(timing.host(FakeClock(monkeypatch, 5.0).run), Limits(max_time=1.0), "host-latency")
    assert taken.seconds == (5.0, 5.0, 5.0) and taken.block == (0, 1, 2)
    assert taken.calls == 1 and taken.stop_reason == "3 visits"


def test_a_call_is_sized_by_its_fastest_batch(monkeypatch):
    clock = FakeClock(monkeypatch, [0.05, 0.01, 0.02])
    assert timing.call_seconds(timing.host(clock.run), Limits()) == pytest.approx(0.01) and clock.calls == 3
    clock = FakeClock(monkeypatch, 1e-4)
    assert timing.call_seconds(timing.host(clock.run), Limits()) == pytest.approx(1e-4, rel=1e-9)
    assert timing.call_seconds(lambda calls: 0.0, Limits(visit_s=0.0)) == 1e-9  # too short for the clock
    # 1, 2, 4 ... 64 calls and then as many as fill a sample, rounded up, until 75 ms are over
    assert clock.calls == 127 + 9 * 76


@pytest.mark.parametrize("wait", [1e-6, 0])
def test_untimed_preparation_counts_when_planning_calls(monkeypatch, wait):
    """A call of 10 µs after a flush of 0.1 s: a sample is one call, and a visit one sample."""
    clock = FakeClock(monkeypatch, 10e-6)
    take = timing.latency_after(clock.run, lambda: clock.passes(0.1), (lambda: clock.passes(wait)) if wait else None)
    assert timing.call_seconds(take, Limits()) == pytest.approx(0.1 + 10e-6 + 2 * wait)
    clock.now = 0.0
    taken = timing.visits(take, Limits(), "host-latency")
    assert (taken.calls, taken.block) == (1, (0, 1, 2, 3, 4)) and np.allclose(taken.seconds, 10e-6 + wait)
    assert clock.now == pytest.approx(0.7, abs=1e-3)


def test_a_handicap_makes_calls_that_are_not_counted(monkeypatch):
    clock = FakeClock(monkeypatch, 1e-4)
    plain, slow = (timing.visit(timing.host(clock.run), Limits(), "host-latency", 1e-4, h) for h in (0.0, 0.5))
    assert np.allclose(plain.seconds, 1e-4) and np.allclose(slow.seconds, 1.5e-4)
    assert (plain.calls, slow.calls) == (75, 76)
    # A sample of 7.5 ms has 2 calls of 5 ms and 19 of 400 µs: 2 % more is a whole call only of 50.
    for call_seconds, calls in ((5e-3, 2), (4e-4, 19)):
        take = timing.host(FakeClock(monkeypatch, call_seconds).run)
        plain, slow = (timing.visit(take, Limits(), "host-latency", call_seconds, h) for h in (0.0, 0.02))
        assert (plain.calls, slow.calls) == (calls, 50) and np.allclose(slow.seconds, 1.02 * call_seconds)
