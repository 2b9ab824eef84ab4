"""Numbers with intervals: medians of samples taken in visits (blocks), and the verdict on two sets of them."""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from workloads.records import Measurement, Samples

RESAMPLES = 1000
# Where the ends of the 95 % interval lie among the sorted draws.
_TAILS = [math.floor(0.025 * (RESAMPLES - 1)), math.ceil(0.975 * (RESAMPLES - 1))]
_CACHED_ROWS = 1 << 16  # more than a machine's folder has: a report goes over all of its samples many times
LIKELY = 1.1  # speedup of predicted times, from which on one device is named though their intervals overlap
MOST_UNSURE = 4  # high over low of a predicted time, beyond which overlapping intervals name no device
MIN_EFFECT, MARGIN = 0.02, 0.05  # no smaller difference of two times is claimed; within the margin they are the same
# Visits whose medians' range is the interval: it holds the true one in 94 and 97 of 100 cases, of four in 87.
RANGE = (5, 6)
Z = 1.959964  # the normal's 97.5 % quantile
LAW_NOISE = 0.05  # what a law of a few coefficients misses by itself
# Student's t at 97.5 %, for 1, 2, ... degrees of freedom; beyond these the expansion in t_quantile is exact to 3e-3.
_T_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


class Estimate(msgspec.Struct, frozen=True):
    """A number with its interval: `value` between `low` and `high`."""

    value: float
    low: float
    high: float

    def __add__(self, other: "Estimate | float") -> "Estimate":
        """The ends add too, so the interval holds however the two depend on each other."""
        b = exact(other)
        return Estimate(self.value + b.value, self.low + b.low, self.high + b.high)

    def __sub__(self, other: "Estimate | float") -> "Estimate":
        """The interval reaches from low less high to high less low."""
        b = exact(other)
        return Estimate(self.value - b.value, self.low - b.high, self.high - b.low)

    def __rsub__(self, other: float) -> "Estimate":
        return exact(other) - self

    def __mul__(self, other: "Estimate | float") -> "Estimate":
        """The interval holds the products of all ends; a number scales."""
        b = exact(other)
        products = (self.low * b.low, self.low * b.high, self.high * b.low, self.high * b.high)
        return Estimate(self.value * b.value, min(products), max(products))

    def __truediv__(self, other: "Estimate | float") -> "Estimate":
        """A ratio of times, or a rate: an end below 0 counts as 0, and over a divisor that may be 0 the ratio may be infinite. A
        number scales."""
        if not isinstance(other, Estimate):
            return self * (1 / other)
        return Estimate(_over(self.value, other.value), _over(self.low, other.high), _over(self.high, other.low))

    def __rtruediv__(self, other: float) -> "Estimate":
        """A rate from a time, or a time from a rate."""
        return exact(other) / self

    def at_least(self, other: "Estimate | float") -> "Estimate":
        """The larger of both, end by end: the time of work that waits for both."""
        b = exact(other)
        return Estimate(max(self.value, b.value), max(self.low, b.low), max(self.high, b.high))

    def at_most(self, other: "Estimate") -> "Estimate":
        """The smaller of both, end by end."""
        return Estimate(min(self.value, other.value), min(self.low, other.low), min(self.high, other.high))

    def within(self, other: "Estimate") -> "Estimate":
        """The same value; its interval is cut to the other's, but always holds the value."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Estimate(self.value, min(low, self.value), max(high, self.value))

    @property
    def noise(self) -> float:
        """Half the interval's width over the value."""
        return (self.high - self.low) / (2 * self.value) if self.value else math.inf


def exact(value: Estimate | float) -> Estimate:
    """A number as an Estimate without error; an Estimate as it is."""
    return value if isinstance(value, Estimate) else Estimate(value, value, value)


NOTHING = exact(0.0)


def total(parts: Iterable[Estimate | None]) -> Estimate:
    """The sum of the parts that are not None."""
    return sum((e for e in parts if e), NOTHING)


def _over(a: float, b: float) -> float:
    return max(0.0, a) / b if b > 0 else math.inf


def plus_minus(value: float, half: float) -> Estimate:
    """A number with half the width of its interval."""
    return Estimate(value, value - half, value + half)


def covering(value: float, *others: float) -> Estimate:
    """An estimate whose interval is widened to include the others."""
    return Estimate(value, min(value, *others), max(value, *others))


def from_draws(value: float, drawn: Sequence[float] | np.ndarray) -> Estimate:
    """A number with the 95 % interval of its redrawn values; without redrawn values the interval has no width."""
    if not len(drawn):
        return exact(value)
    return covering(value, *np.quantile(drawn, [0.025, 0.975]).tolist())


def within_factor(value: float, factor: float) -> Estimate:
    """A number that may be wrong by a factor either way."""
    return Estimate(value, value / factor, value * factor)


def independent_sum(parts: Iterable[Estimate]) -> Estimate:
    """The sum of times whose errors are independent: they add as squares. It is never below 0."""
    parts = list(parts)
    value = sum(e.value for e in parts)
    below = math.hypot(*(e.value - e.low for e in parts))
    above = math.hypot(*(e.high - e.value for e in parts))
    return Estimate(value, max(0.0, value - below), value + above)


def _blocks(seconds, block) -> dict[int, list[float]]:
    """The samples of each block; the samples one by one where there is a single block."""
    groups: dict[int, list[float]] = {}
    for b, s in zip(block, seconds, strict=True):
        groups.setdefault(b, []).append(s)
    return groups if len(groups) > 1 else {i: [s] for i, s in enumerate(seconds)}


def visit_medians(samples: Samples) -> list[float]:
    """The median seconds of each visit (block) of a Samples record."""
    groups: dict[int, list[float]] = {}
    for block, seconds in zip(samples.block, samples.seconds, strict=True):
        groups.setdefault(block, []).append(seconds)
    return [float(statistics.median(group)) for group in groups.values()]


@functools.lru_cache(maxsize=256)
def _draws(blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """(counts, index) of RESAMPLES draws of whole blocks with replacement. counts, distinct draws only: times each block is
    drawn, blocks x draws. index: the distinct draw of each of the RESAMPLES."""
    picks = np.random.default_rng(1).integers(0, blocks, (RESAMPLES, blocks))
    places = (picks + blocks * np.arange(RESAMPLES)[:, np.newaxis]).reshape(-1)
    counts = np.bincount(places, minlength=RESAMPLES * blocks)
    distinct, which = np.unique(counts.astype(np.int16).reshape(RESAMPLES, blocks), axis=0, return_inverse=True)
    return np.ascontiguousarray(distinct.T), which.ravel()


def _resampled_medians(groups: list[list[float]]) -> np.ndarray:
    """Medians over RESAMPLES draws of whole blocks: the samples are sorted once, a draw only weighs them; its median is where
    the weights up to there pass half.

    No BLAS: the worker calls this between timed blocks, and BLAS threads spin on after a call.
    """
    values = np.fromiter(itertools.chain.from_iterable(groups), float)
    order = np.argsort(values, kind="stable")
    values = values[order]
    block = np.repeat(np.arange(len(groups)), [len(group) for group in groups])[order]
    distinct, which = _draws(len(groups))
    small = len(groups) * max(map(len, groups)) < 1 << 15  # so no rank passes 16 bits
    rank = distinct[block].astype(np.int16 if small else np.int64, copy=False)  # samples x draws
    for before, after in itertools.pairwise(rank):
        after += before
    lower = values[_below(rank, (rank[-1] - 1) // 2)]
    upper = values[_below(rank, rank[-1] // 2)]
    return ((lower + upper) / 2)[which]


def _below(rank: np.ndarray, half: np.ndarray) -> np.ndarray:
    """How many samples of each draw have a rank up to the half."""
    return np.add.reduce(rank <= half, axis=0, dtype=np.int32)


def t_quantile(free: int) -> float:
    """Student's t at 97.5 % for that many degrees of freedom."""
    expanded = Z + (Z**3 + Z) / (4 * free) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * free**2)
    return _T_QUANTILES[free - 1] if free <= len(_T_QUANTILES) else expanded


def _few_blocks(blocks: int) -> float:
    """Exponent that widens a percentile interval over few blocks, in the logarithm, so that it covers 95 %.

    Source: T. Hesterberg, What Teachers Should Know About the Bootstrap (2015), section 3.2: t over normal quantile
    times sqrt(n / (n - 1)).
    """
    free = blocks - 1
    return t_quantile(free) / Z * math.sqrt(blocks / free)


def _resampled_interval(value: float, draws: np.ndarray, blocks: int) -> tuple[float, float]:
    """(low, high) of the 95 % interval of a positive number from its resampled values, widened where the blocks are few."""
    low, high = np.partition(draws, _TAILS)[_TAILS].tolist()
    if not (value > 0 and low > 0):
        return min(low, value), max(high, value)
    wider = _few_blocks(blocks)
    return value * min(low / value, 1.0) ** wider, value * max(high / value, 1.0) ** wider


def _interval(value: float, groups: list[list[float]], visits: bool) -> Estimate:
    """`value` with its interval: the range of medians of RANGE visits, else by resampling; a single group gives no width. Of
    more visits it also covers their mean, by Student's t: where a machine switches between two levels the median is one of
    these, and the run's level lies between them."""
    if len(groups) == 1:
        return exact(value)
    medians = [float(statistics.median(group)) for group in groups]
    if visits and len(groups) in RANGE:
        return covering(value, *medians)
    low, high = _resampled_interval(value, _resampled_medians(groups), len(groups))
    if visits and len(groups) > max(RANGE):
        mean = statistics.fmean(medians)
        half = t_quantile(len(groups) - 1) * statistics.stdev(medians) / math.sqrt(len(groups))
        low = min(low, max(mean - half, min(medians)))
        high = max(high, min(mean + half, max(medians)))
    return Estimate(value, low, high)


def median(seconds, block=None) -> Estimate:
    """The median of samples with its 95 % interval over visits (blocks; without any each sample is one): samples of a visit
    hang together. Of a single visit its samples are resampled; of a single sample nothing is known but its value.

    Source: Kuensch (1989), block bootstrap; the range of few medians is the sign test's interval.
    """
    blocks = block if block is not None else range(len(seconds))
    groups = list(_blocks(seconds, blocks).values())
    value = float(statistics.median(seconds))
    return _interval(value, groups, len(set(blocks)) > 1)


def least_squares(columns: np.ndarray, seconds: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray:
    """Nonnegative coefficients, one for each column, that minimize the relative errors of the seconds, each weighed by its
    noise and a law's own. Columns are scaled first, as bytes are many and their seconds few."""
    from scipy.optimize import nnls

    weights = LAW_NOISE / np.hypot(noise, LAW_NOISE) * np.ones(len(seconds))
    shares = columns * (weights / seconds)[:, np.newaxis]
    scale = np.maximum(shares.max(axis=0), 1e-300)  # of a column that holds nothing
    return nnls(shares / scale, weights)[0] / scale


@functools.lru_cache(maxsize=_CACHED_ROWS)
def median_of(samples) -> Estimate:
    """The median seconds of a Samples record with its interval, worked out once for each record."""
    return median(samples.seconds, samples.block)


@functools.lru_cache(maxsize=_CACHED_ROWS)
def middle(samples) -> float:
    """The median seconds of a Samples record without its interval: cheap, for picking the fastest of many rows."""
    return statistics.median(samples.seconds)


def faster(cpu: Estimate, gpu: Estimate) -> str:
    """gpu, cpu, or neither where the intervals overlap."""
    if gpu.high < cpu.low:
        return "gpu"
    return "cpu" if cpu.high < gpu.low else "neither"


def likely(cpu: Estimate, gpu: Estimate, *, predicted: bool = False) -> str:
    """gpu, cpu, or neither: the faster device, also where the intervals of predictions overlap but their values are LIKELY
    apart, unless one of them is MOST_UNSURE wide."""
    surely = faster(cpu, gpu)
    if surely != "neither" or not predicted:
        return surely
    quick, slow = sorted((cpu.value, gpu.value))
    if slow < LIKELY * quick or any(side.high > MOST_UNSURE * side.low for side in (cpu, gpu)):
        return "neither"
    return "gpu" if gpu.value < cpu.value else "cpu"


def group_by(items: Iterable, key: Callable) -> dict:
    """key(item) -> the items that have it, in the order of both."""
    groups: dict = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def best_by(items: Iterable, key: Callable, cost: Callable) -> dict:
    """key(item) -> the item of least cost among those with that key."""
    return {value: min(group, key=cost) for value, group in group_by(items, key).items()}


def is_gpu(device: str) -> bool:
    return device != "cpu"


def clock_of(measurement: Measurement) -> Samples | None:
    """The samples that a kernel is judged by: the device clock on a GPU where there is one, else host latency."""
    on_device = measurement.on("device") if measurement.on_gpu else None
    return on_device or measurement.on("host-latency")


def judged_by(measurement: Measurement) -> Samples | None:
    """The samples of that clock; None when the row has no such time or is not ok."""
    samples = clock_of(measurement)
    return samples if samples and measurement.ok and samples.seconds else None


def seconds_of(measurement: Measurement) -> Estimate | None:
    """Seconds per call by these samples; None without any."""
    samples = judged_by(measurement)
    return median_of(samples) if samples else None


def quick_seconds(measurement: Measurement) -> float | None:
    """The value of `seconds_of` without its interval."""
    samples = judged_by(measurement)
    return middle(samples) if samples else None


def timed(measurements: Iterable[Measurement], clock: str) -> list[tuple[Measurement, Samples]]:
    """The rows that have a time on that clock, each with its samples."""
    rows = []
    for m in measurements:
        samples = m.on(clock)
        if m.ok and samples and samples.seconds:
            rows.append((m, samples))
    return rows


def quickest(measurements: Iterable[Measurement], clock: str) -> tuple[Measurement, Samples] | None:
    """The row with the least median on that clock, and its samples; None if no row has a time."""
    return min(timed(measurements, clock), key=lambda pair: middle(pair[1]), default=None)


def call_s(measurement: Measurement) -> float:
    """`quick_seconds`, but infinite for a row without a time, so that it can be sorted by."""
    seconds = quick_seconds(measurement)
    return math.inf if seconds is None else seconds


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a time is another than before."""

    #: faster, slower, same or can't tell.
    word: str
    #: New over old: 1.05 takes 5 % longer.
    ratio: Estimate


def quotient(new: Estimate, old: Estimate, more: float = 0.0) -> Estimate:
    """The ratio of two independent times: their errors, and `more` in the logarithm, add as squares. Both are above 0."""
    value = new.value / old.value
    low = math.hypot(math.log(new.value / new.low), math.log(old.high / old.value), more)
    high = math.hypot(math.log(new.high / new.value), math.log(old.value / old.low), more)
    return Estimate(value, value * math.exp(-low), value * math.exp(high))


def _independent_ratio(old: Samples, new: Samples) -> Estimate:
    """The ratio of two independent times. Its interval is that of the ratios of all pairs of their blocks' medians; where the
    blocks are too few for that, the errors of both times add as squares.

    Source: Moses' interval, M. Hollander, D. Wolfe, E. Chicken, Nonparametric Statistical Methods (2014), section 4.3.
    """
    ratio = quotient(median(new.seconds, new.block), median(old.seconds, old.block))
    old_medians = list(_block_medians(old).values())
    new_medians = list(_block_medians(new).values())
    pairs = np.sort(np.divide.outer(new_medians, old_medians), axis=None)
    blocks = len(old_medians) + len(new_medians)
    rank_deviation = math.sqrt(len(pairs) * (blocks + 1) / 12)  # of Mann and Whitney's U
    left_out = int(len(pairs) / 2 - Z * rank_deviation)
    if left_out < 1:
        return ratio
    return covering(ratio.value, float(pairs[left_out - 1]), float(pairs[-left_out]))


def _block_medians(samples: Samples) -> dict[int, float]:
    """Block -> the median of its samples; the samples one by one where there is a single block."""
    blocks = _blocks(samples.seconds, samples.block)
    return {block: float(np.median(seconds)) for block, seconds in blocks.items()}


def _paired_ratio(old: Samples, new: Samples, both: list[int]) -> Estimate:
    """The ratio of times of visits that were taken side by side."""
    old_medians = _block_medians(old)
    new_medians = _block_medians(new)
    ratios = [new_medians[i] / old_medians[i] for i in both]
    are_visits = len(set(old.block)) > 1 and len(set(new.block)) > 1
    return _interval(float(np.median(ratios)), [[ratio] for ratio in ratios], are_visits)


def verdict(old, new, *, paired: bool = False, between: float = 0.0) -> Verdict:
    """Is `new` faster or slower than `old`? Both are Samples.

    Args:
        paired: visit i of both was taken side by side, so drift cancels in each pair's ratio; visits without a partner are left
            out.
        between: the share that two runs alike differ by, which widens the ratio of what was not paired.

    A claim is made only when the ratio's whole interval lies beyond MIN_EFFECT; `same` only when it lies within MARGIN.
    """
    old_blocks = _blocks(old.seconds, old.block)
    new_blocks = _blocks(new.seconds, new.block)
    both = [block for block in old_blocks if block in new_blocks]
    if paired and both:
        ratio = _paired_ratio(old, new, both)
        blocks = len(both)
    else:
        ratio = quotient(_independent_ratio(old, new), exact(1.0), math.log1p(between))
        blocks = min(len(old_blocks), len(new_blocks))
    if blocks < 2:
        return Verdict(word="can't tell", ratio=exact(ratio.value))
    if ratio.low > 1 + MIN_EFFECT:
        word = "slower"
    elif ratio.high < 1 - MIN_EFFECT:
        word = "faster"
    elif ratio.low >= 1 - MARGIN and ratio.high <= 1 + MARGIN:
        word = "same"
    else:
        word = "can't tell"
    return Verdict(word=word, ratio=ratio)
