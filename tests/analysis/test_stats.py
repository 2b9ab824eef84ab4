"""Intervals keep their promise and verdicts claim nothing that is not there."""

import collections
import math

import msgspec
import numpy as np
import pytest
import scipy.stats

from analysis import stats
from analysis.stats import NOTHING, Estimate
from workloads.records import Samples


def drawn(rng, center: float, blocks: int, each: int, spread: float, block_spread: float) -> Samples:
    """Log-normal samples around `center`; those of a block share a random factor."""
    seconds = center * np.exp(rng.normal(0, block_spread, (blocks, 1)) + rng.normal(0, spread, (blocks, each)))
    return Samples("host-latency", tuple(seconds.ravel()), 1, (each,) * blocks, "steady")


@pytest.mark.parametrize(
    ("visits", "least", "most"), [(3, 0.90, 0.985), (5, 0.90, 0.97), (6, 0.93, 0.99), (10, 0.90, 0.985)]
)
@pytest.mark.parametrize("apart", [0.0, 0.02])
def test_a_medians_interval_covers_95_of_100_truths(visits, least, most, apart):
    """The range of k medians misses the true one where all lie on one side, in 2 of 2^k cases; of three it is widened."""
    rng = np.random.default_rng(visits)
    held = 0
    for _ in range(400):
        e = stats.median_of(drawn(rng, 1.0, visits, 6, 0.01, apart))
        held += e.low <= 1.0 <= e.high
    assert least <= held / 400 <= most


def test_few_visits_span_their_medians_more_are_resampled():
    seconds, block = [5.0, 1.0, 1.2, 3.0, 2.0, 2.0], [0, 1, 1, 2, 3, 4]
    assert stats.median(seconds, block) == Estimate(2.0, 1.1, 5.0)
    seven = stats.median([*seconds, 2.0, 2.0], [*block, 5, 6])
    assert seven.value == 2.0 and (seven.low, seven.high) != (1.1, 5.0)
    e = stats.median([1.0, 2.0, 3.0, 4.0, 5.0], [0] * 5)
    assert e.value == 3.0 and e.low < 3.0 < e.high
    assert stats.median([2.0]) == Estimate(2.0, 2.0, 2.0)  # which knows nothing more


def test_correlated_blocks_have_a_wider_interval():
    samples = drawn(np.random.default_rng(7), 1.0, 8, 20, 0.002, 0.03)
    together, loose = stats.median(samples.seconds, samples.block), stats.median(samples.seconds)
    assert together.value == loose.value and together.noise > 2 * loose.noise


def test_equal_samples_have_no_width():
    assert stats.median([2.0] * 9, [0, 0, 0, 1, 1, 1, 2, 2, 2]) == Estimate(2.0, 2.0, 2.0)
    samples = drawn(np.random.default_rng(3), 1e-3, 5, 7, 0.01, 0.0)
    assert stats.median(samples.seconds, samples.block) == stats.median_of(samples)


def test_resampled_medians_are_those_of_numpy():
    rng = np.random.default_rng(11)
    groups = [rng.normal(1, 0.1, size) for size in (3, 1, 4, 2)]
    draws = stats._block_draws(4)
    for fast, drawn_times in zip(stats._resampled_medians(groups), draws.counts.T[draws.column_of_draw], strict=True):
        drawn_values = [g for g, k in zip(groups, drawn_times, strict=True) for _ in range(k)]
        assert fast == np.median(np.concatenate(drawn_values))


def test_arithmetic_of_intervals():
    a, b = Estimate(10.0, 9.0, 12.0), Estimate(4.0, 3.0, 6.0)
    assert a + b == Estimate(14.0, 12.0, 18.0) and a + 1.0 == Estimate(11.0, 10.0, 13.0)
    assert stats.total([a, None, b, b]) == Estimate(18.0, 15.0, 24.0) and a - b == Estimate(6.0, 3.0, 9.0)
    assert 20 - a == Estimate(10.0, 8.0, 11.0) and a * b == Estimate(40.0, 27.0, 72.0)
    assert a * (b - 5.0) == Estimate(-10.0, -24.0, 12.0) and b * -1.0 == Estimate(-4.0, -6.0, -3.0) and b.noise == 0.375


def test_ratios_count_negative_values_as_zero():
    b = Estimate(4.0, 2.0, 5.0)
    assert Estimate(10.0, 5.0, 12.0) / b == Estimate(2.5, 1.0, 6.0) and b / 2 == Estimate(2.0, 1.0, 2.5)
    assert 10.0 / b == Estimate(2.5, 2.0, 5.0) and Estimate(1.0, -1.0, 4.0) / b == Estimate(0.25, 0.0, 2.0)
    assert b / Estimate(2.0, -1.0, 4.0) == Estimate(2.0, 0.5, math.inf)
    assert b / Estimate(-1.0, -2.0, 4.0) == Estimate(math.inf, 0.5, math.inf)
    assert b / Estimate(-2.0, -3.0, -1.0) == stats.exact(math.inf)


def test_independent_sums_add_errors_as_squares():
    assert stats.exact(2.0) == Estimate(2.0, 2.0, 2.0) and stats.plus_minus(2.0, 3.0) == Estimate(2.0, -1.0, 5.0)
    assert stats.plus_minus(2.0, 3.0).at_least(0.0) == Estimate(2.0, 0.0, 5.0)
    assert Estimate(1.0, 0.0, 5.0).at_least(Estimate(2.0, 1.0, 3.0)) == Estimate(2.0, 1.0, 5.0)
    assert stats.within_factor(6.0, 2) == Estimate(6.0, 3.0, 12.0)
    assert stats.independent_sum([Estimate(10.0, 7.0, 16.0), Estimate(20.0, 16.0, 28.0)]) == Estimate(30.0, 25.0, 40.0)
    assert stats.independent_sum([Estimate(1.0, -3.0, 2.0)]) == Estimate(1.0, 0.0, 2.0)
    assert stats.independent_sum([]) == NOTHING


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("block_spread", "allowed"), [(0.01, 3), (0.06, 9)])
def test_verdicts_on_equal_sides_claim_nothing(paired, block_spread, allowed):
    rng, words = np.random.default_rng(5), collections.Counter()
    for _ in range(150):
        a, b = (drawn(rng, 1.0, 8, 5, 0.01, block_spread) for _ in range(2))
        words[stats.verdict(a, b, paired=paired).word] += 1
    assert words["slower"] + words["faster"] <= allowed


def test_seven_visits_at_two_levels_hold_their_mean():
    """Six of 1.03 and one of 0.97: the median resampled is 1.03. Their mean 1.02143 less t 2.4469 x 0.022678 / sqrt 7."""
    e = stats.median([1.03] * 6 + [0.97], range(7))
    assert e.value == e.high == 1.03 and e.low == pytest.approx(1.02143 - 0.02097, abs=1e-5)


@pytest.mark.parametrize("apart", [0.0, 0.05])  # two modes, as processes on a GPU have
@pytest.mark.parametrize("visits", [5, 7, 10])
def test_the_ratio_of_separate_runs_keeps_its_promise(visits, apart):
    rng, held = np.random.default_rng(7), 0
    for _ in range(200):
        sides = (drawn(rng, 1.0, visits, 1, 0.01, 0.0).seconds * (1 + apart * (rng.random(visits) < 0.4)) for _ in "ab")
        a, b = (Samples("device", tuple(s), 1, (1,) * visits, "") for s in sides)
        held += stats.verdict(a, b).ratio.low <= 1 <= stats.verdict(a, b).ratio.high
    assert 0.92 <= held / 200 <= 0.995


def test_errors_of_a_ratio_add_in_the_logarithm():
    """Down by 3 over up by 4 is down by 5; up by 5 over down by 12 is up by 13; 12 more makes 13 of the 5."""
    new = Estimate(2.0, 2 * math.exp(-3), 2 * math.exp(5))
    old = Estimate(4.0, 4 * math.exp(-12), 4 * math.exp(4))
    expected = (0.5, 0.5 * math.exp(-5), 0.5 * math.exp(13))
    assert msgspec.structs.astuple(stats.quotient(new, old)) == pytest.approx(expected)
    assert stats.quotient(new, old, log_error=12.0).low == pytest.approx(0.5 * math.exp(-13))


def test_very_many_samples_keep_their_median():
    """A draw of 40,000 samples is more than 16 bits count."""
    few, many = (stats._resampled_medians([[1.0] * k, [3.0] * k]) for k in (2, 20_000))
    assert set(few.tolist()) == {1.0, 2.0, 3.0}
    assert (many == few).all()


@pytest.mark.parametrize("free", [*range(1, 12), 20, 100])
def test_students_t_is_that_of_scipy(free):
    """Four digits from the table, beyond it an expansion, which is worst at its begin."""
    assert stats.t_quantile(free) == pytest.approx(scipy.stats.t.ppf(0.975, free), abs=1e-4 if free <= 10 else 3e-3)


def test_a_planted_5_percent_is_found():
    rng = np.random.default_rng(6)
    for _ in range(60):
        a, b = drawn(rng, 1.0, 10, 5, 0.01, 0.0), drawn(rng, 1.05, 10, 5, 0.01, 0.0)
        assert stats.verdict(a, b).word == "slower" and stats.verdict(b, a).word == "faster"


def test_a_ratio_lies_between_its_pairs():
    """Of 25 pairs the third from either end: 1/16, 1/8, 1/8. Of nine the ends would hold too little: errors as squares."""
    doubling = Samples("device", (1.0, 2.0, 4.0, 8.0, 16.0), 1, (1,) * 5, "")
    assert msgspec.structs.astuple(stats.verdict(doubling, doubling).ratio) == pytest.approx((1.0, 1 / 8, 8.0))
    # The first from either end.
    four = msgspec.structs.replace(doubling, seconds=doubling.seconds[:4], block_sizes=(1, 1, 1, 1))
    assert msgspec.structs.astuple(stats.verdict(four, four).ratio) == pytest.approx((1.0, 1 / 8, 8.0))
    few = msgspec.structs.replace(doubling, seconds=doubling.seconds[:3], block_sizes=(1, 1, 1))
    assert stats.verdict(few, few).ratio == stats.quotient(stats.median_of(few), stats.median_of(few))


def test_single_samples_and_unpaired_visits_claim_nothing():
    one, other = drawn(np.random.default_rng(1), 1.0, 1, 1, 0, 0), drawn(np.random.default_rng(1), 2.0, 1, 1, 0, 0)
    assert stats.verdict(one, other).word == "can't tell"
    five = Samples("device", (2.0,) * 5, 1, (1,) * 5, "")
    assert {stats.verdict(one, five).word, stats.verdict(five, one).word} == {"can't tell"}
    three, four = (Samples("device", (1.0, 2.0, 4.0, 9.0)[:k], 1, (1,) * k, "") for k in (3, 4))
    assert stats.verdict(three, four, paired=True).ratio == stats.exact(1.0)
    late = msgspec.structs.replace(
        three, seconds=(2.0, 4.0, 9.0), block_sizes=(0, 1, 1, 1)
    )  # of its rounds two are in both
    assert stats.verdict(three, late, paired=True).ratio == stats.exact(1.0)
    last = msgspec.structs.replace(three, seconds=(8.0, 9.0, 9.0), block_sizes=(0, 0, 1, 1, 1))
    assert stats.verdict(three, last, paired=True) == stats.Verdict(
        word="can't tell", ratio=stats.exact(2.0)
    )  # one pair
