"""Numbers with intervals: medians of samples taken in visits (blocks), and the verdict on two sets of them."""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

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
        """The sum. Low ends add, and high ends add, so the interval is right however the errors of both are correlated."""
        b = exact(other)
        return Estimate(self.value + b.value, self.low + b.low, self.high + b.high)

    def __sub__(self, other: "Estimate | float") -> "Estimate":
        """The difference. Its interval is right however the errors of both are correlated."""
        b = exact(other)
        return Estimate(self.value - b.value, self.low - b.high, self.high - b.low)

    def __rsub__(self, other: float) -> "Estimate":
        return exact(other) - self

    def __mul__(self, other: "Estimate | float") -> "Estimate":
        """The product; its interval covers the products of all ends."""
        b = exact(other)
        products = (self.low * b.low, self.low * b.high, self.high * b.low, self.high * b.high)
        return Estimate(self.value * b.value, min(products), max(products))

    def __truediv__(self, other: "Estimate | float") -> "Estimate":
        """The ratio of two times, or of an amount and a time. A dividend below 0 counts as 0, as there are no negative times; a
        divisor that may be 0 makes the high end infinite."""
        if not isinstance(other, Estimate):
            return self * (1 / other)
        return Estimate(_over(self.value, other.value), _over(self.low, other.high), _over(self.high, other.low))

    def __rtruediv__(self, other: float) -> "Estimate":
        """A number divided by this estimate: a rate from a time, or a time from a rate."""
        return exact(other) / self

    def at_least(self, other: "Estimate | float") -> "Estimate":
        """The maximum of both, taken for value, low end and high end by themselves: the time of work that waits for both."""
        b = exact(other)
        return Estimate(max(self.value, b.value), max(self.low, b.low), max(self.high, b.high))

    def at_most(self, other: "Estimate") -> "Estimate":
        """The minimum of both, taken for value, low end and high end by themselves."""
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
    """a / b for times: a negative `a` counts as 0, and dividing by 0 or less gives infinity."""
    return max(0.0, a) / b if b > 0 else math.inf


def plus_minus(value: float, half_width: float) -> Estimate:
    """An estimate whose interval reaches `half_width` to either side of the value."""
    return Estimate(value, value - half_width, value + half_width)


def covering(value: float, *others: float) -> Estimate:
    """An estimate of `value` whose interval is just wide enough to include the others too."""
    return Estimate(value, min(value, *others), max(value, *others))


def from_draws(value: float, drawn: Sequence[float] | np.ndarray) -> Estimate:
    """An estimate of `value` with a 95 % interval: the 2.5 % to 97.5 % quantiles of its values in random draws. Without draws
    the interval has no width."""
    if not len(drawn):
        return exact(value)
    return covering(value, *np.quantile(drawn, [0.025, 0.975]).tolist())


def within_factor(value: float, factor: float) -> Estimate:
    """An estimate from value / factor to value * factor."""
    return Estimate(value, value / factor, value * factor)


def independent_sum(parts: Iterable[Estimate]) -> Estimate:
    """The sum of times whose errors are independent: they add as squares. It is never below 0."""
    parts = list(parts)
    value = sum(e.value for e in parts)
    below = math.hypot(*(e.value - e.low for e in parts))
    above = math.hypot(*(e.high - e.value for e in parts))
    return Estimate(value, max(0.0, value - below), value + above)


def _by_block(seconds: Sequence[float], blocks: Sequence[int]) -> dict[int, list[float]]:
    """Block -> its samples in seconds; `blocks` has the block of each sample. Samples that are all of one block count as a block
    each."""
    groups: dict[int, list[float]] = {}
    for block, sample_s in zip(blocks, seconds, strict=True):
        groups.setdefault(block, []).append(sample_s)
    if len(groups) > 1:
        return groups
    return {index: [sample_s] for index, sample_s in enumerate(seconds)}


def visit_medians(samples: Samples) -> list[float]:
    """The median seconds of the samples of each visit (block), in the order of the visits."""
    groups: dict[int, list[float]] = {}
    for block, seconds in zip(samples.block, samples.seconds, strict=True):
        groups.setdefault(block, []).append(seconds)
    return [float(statistics.median(group)) for group in groups.values()]


class _BlockDraws(NamedTuple):
    """Random draws of whole blocks with replacement, for the block bootstrap."""

    #: How often each block occurs in each distinct draw: blocks x distinct draws.
    counts: np.ndarray
    #: The column of `counts` of each of the RESAMPLES draws, as many of them are alike.
    column_of_draw: np.ndarray


@functools.lru_cache(maxsize=256)
def _block_draws(blocks: int) -> _BlockDraws:
    """RESAMPLES random draws of `blocks` blocks from as many; always the same ones."""
    picks = np.random.default_rng(1).integers(0, blocks, (RESAMPLES, blocks))
    cells = (picks + blocks * np.arange(RESAMPLES)[:, np.newaxis]).reshape(-1)
    counts = np.bincount(cells, minlength=RESAMPLES * blocks).astype(np.int16).reshape(RESAMPLES, blocks)
    distinct, column_of_draw = np.unique(counts, axis=0, return_inverse=True)
    return _BlockDraws(np.ascontiguousarray(distinct.T), column_of_draw.ravel())


def _resampled_medians(groups: list[list[float]]) -> np.ndarray:
    """The median in each of RESAMPLES random draws of whole blocks; `groups` has the samples of each block.

    All samples are sorted once. A draw gives each of them a weight, the number of times that its block was drawn; the draw's
    median is the sample at which the summed weights reach half of their total.

    No BLAS: the worker calls this between timed blocks, and BLAS threads spin on after a call.
    """
    values = np.fromiter(itertools.chain.from_iterable(groups), float)
    order = np.argsort(values, kind="stable")
    values = values[order]
    block_of_value = np.repeat(np.arange(len(groups)), [len(group) for group in groups])[order]
    draws = _block_draws(len(groups))
    fits_16_bits = len(groups) * max(map(len, groups)) < 1 << 15
    weights = draws.counts[block_of_value].astype(np.int16 if fits_16_bits else np.int64, copy=False)
    summed_weights = weights  # samples x draws; summed in place, as this runs between timed blocks
    for before, after in itertools.pairwise(summed_weights):
        after += before
    total_weight = summed_weights[-1]
    lower = values[_values_up_to(summed_weights, (total_weight - 1) // 2)]
    upper = values[_values_up_to(summed_weights, total_weight // 2)]
    return ((lower + upper) / 2)[draws.column_of_draw]


def _values_up_to(summed_weights: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """For each draw (column), how many samples have a summed weight of at most the draw's limit."""
    return np.add.reduce(summed_weights <= limit, axis=0, dtype=np.int32)


def t_quantile(degrees_of_freedom: int) -> float:
    """The 97.5 % quantile of Student's t; from a table, beyond it by the expansion in 1 / degrees_of_freedom."""
    if degrees_of_freedom <= len(_T_QUANTILES):
        return _T_QUANTILES[degrees_of_freedom - 1]
    first_order = (Z**3 + Z) / (4 * degrees_of_freedom)
    second_order = (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * degrees_of_freedom**2)
    return Z + first_order + second_order


def _widening_exponent(blocks: int) -> float:
    """The power to which the ratio of each end of a bootstrap interval to its value is raised, so that the interval covers 95 %
    although the blocks are few.

    Source: T. Hesterberg, What Teachers Should Know About the Bootstrap (2015), section 3.2: t over normal quantile
    times sqrt(n / (n - 1)).
    """
    return t_quantile(blocks - 1) / Z * math.sqrt(blocks / (blocks - 1))


def _resampled_interval(value: float, draws: np.ndarray, blocks: int) -> tuple[float, float]:
    """(low, high) of the 95 % interval of a positive number: the 2.5 % and 97.5 % quantiles of its resampled values `draws`,
    widened because the number of blocks that were resampled is small."""
    low, high = np.partition(draws, _TAILS)[_TAILS].tolist()
    if not (value > 0 and low > 0):
        return min(low, value), max(high, value)
    exponent = _widening_exponent(blocks)
    return value * min(low / value, 1.0) ** exponent, value * max(high / value, 1.0) ** exponent


def _interval(value: float, groups: list[list[float]], *, are_visits: bool) -> Estimate:
    """A median with its 95 % interval; `groups` has the samples of each visit, or single samples if not `are_visits`.

    Of a single group the interval has no width. Of RANGE visits it is the range of their medians, else it is resampled. Of more
    visits it also covers the mean of their medians, by Student's t: where a machine switches between two speeds the median is
    one of these, and the level of the run lies between them.
    """
    if len(groups) == 1:
        return exact(value)
    medians = [float(statistics.median(group)) for group in groups]
    if are_visits and len(groups) in RANGE:
        return covering(value, *medians)
    low, high = _resampled_interval(value, _resampled_medians(groups), len(groups))
    if are_visits and len(groups) > max(RANGE):
        mean = statistics.fmean(medians)
        half_width = t_quantile(len(groups) - 1) * statistics.stdev(medians) / math.sqrt(len(groups))
        low = min(low, max(mean - half_width, min(medians)))
        high = max(high, min(mean + half_width, max(medians)))
    return Estimate(value, low, high)


def median(seconds: Sequence[float], block: Sequence[int] | None = None) -> Estimate:
    """The median of samples with its 95 % interval.

    `block` has the visit in which each sample was taken; None if they are independent. Samples of a visit are correlated, so
    whole visits are resampled; of a single visit, its samples. A single sample gives an interval without width.

    Source: Kuensch (1989), block bootstrap; the range of few medians is the sign test's interval.
    """
    blocks = block if block is not None else range(len(seconds))
    groups = list(_by_block(seconds, blocks).values())
    value = float(statistics.median(seconds))
    return _interval(value, groups, are_visits=len(set(blocks)) > 1)


def least_squares(columns: np.ndarray, seconds: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray:
    """Nonnegative coefficients c, one for each column, for which columns @ c has the least squared relative errors against the
    measured `seconds`.

    Args:
        columns: measurements x terms of the linear model, such as 1, samples and bytes.
        noise: the relative error of each measured time; noisy ones weigh less.
    """
    from scipy.optimize import nnls

    weights = LAW_NOISE / np.hypot(noise, LAW_NOISE) * np.ones(len(seconds))
    relative = columns * (weights / seconds)[:, np.newaxis]
    scale = np.maximum(relative.max(axis=0), 1e-300)  # as bytes are many and their seconds few; a column may be all 0
    coefficients, _ = nnls(relative / scale, weights)
    return coefficients / scale


@functools.lru_cache(maxsize=_CACHED_ROWS)
def median_of(samples: Samples) -> Estimate:
    """The median seconds with its 95 % interval; cached."""
    return median(samples.seconds, samples.block)


@functools.lru_cache(maxsize=_CACHED_ROWS)
def quick_median(samples: Samples) -> float:
    """The median seconds without an interval, which takes long to compute; cached."""
    return statistics.median(samples.seconds)


def faster(cpu: Estimate, gpu: Estimate) -> str:
    """The device of the shorter time: "gpu", "cpu", or "neither" where the intervals overlap."""
    if gpu.high < cpu.low:
        return "gpu"
    return "cpu" if cpu.high < gpu.low else "neither"


def likely(cpu: Estimate, gpu: Estimate, *, predicted: bool = False) -> str:
    """The device of the shorter time: "gpu", "cpu" or "neither".

    Measured times whose intervals overlap give "neither". Of predicted times the shorter one is named all the same if they
    differ by a factor of LIKELY, unless the interval of one is wider than a factor of MOST_UNSURE.
    """
    surely = faster(cpu, gpu)
    if surely != "neither" or not predicted:
        return surely
    shorter, longer = sorted((cpu.value, gpu.value))
    is_unsure = any(seconds.high > MOST_UNSURE * seconds.low for seconds in (cpu, gpu))
    if longer < LIKELY * shorter or is_unsure:
        return "neither"
    return "gpu" if gpu.value < cpu.value else "cpu"


def group_by(items: Iterable, key: Callable) -> dict:
    """key(item) -> list of the items with that key. Groups come in the order of their first items."""
    groups: dict = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def best_by(items: Iterable, key: Callable, cost: Callable) -> dict:
    """key(item) -> the item with the least cost(item) among the items with that key."""
    return {value: min(group, key=cost) for value, group in group_by(items, key).items()}


def is_gpu(device: str) -> bool:
    """Whether `cpu`, `gpu:0`, `gpu:1` ... names a GPU."""
    return device != "cpu"


def clock_of(measurement: Measurement) -> Samples | None:
    """The samples by which a kernel is judged: those of the GPU's own clock if there are any, else those of the host, which
    calls the kernel and waits for its end."""
    on_device = measurement.on("device") if measurement.on_gpu else None
    return on_device or measurement.on("host-latency")


def samples_on(measurement: Measurement, clock: str) -> Samples:
    """The samples of a measurement on a clock (host-latency, host-throughput or device).

    Raises: ValueError if it has none.
    """
    samples = measurement.on(clock)
    if samples is None:
        raise ValueError(f"{measurement.key} was not timed on the clock {clock}")
    return samples


def judged_by(measurement: Measurement) -> Samples | None:
    """`clock_of`, but None unless the measurement succeeded and has samples."""
    samples = clock_of(measurement)
    return samples if samples and measurement.ok and samples.seconds else None


def seconds_of(measurement: Measurement) -> Estimate | None:
    """Median seconds of a call with the interval, by the samples of `judged_by`; None without any."""
    samples = judged_by(measurement)
    return median_of(samples) if samples else None


def quick_seconds(measurement: Measurement) -> float | None:
    """Median seconds of a call, by the samples of `judged_by`; None without any."""
    samples = judged_by(measurement)
    return quick_median(samples) if samples else None


def timed(measurements: Iterable[Measurement], clock: str) -> list[tuple[Measurement, Samples]]:
    """The successful measurements that have samples on a clock (host-latency, host-throughput or device), with these samples."""
    rows = []
    for m in measurements:
        samples = m.on(clock)
        if m.ok and samples and samples.seconds:
            rows.append((m, samples))
    return rows


def quickest(measurements: Iterable[Measurement], clock: str) -> tuple[Measurement, Samples] | None:
    """The measurement with the least median on a clock, and its samples; None if none has any."""
    return min(timed(measurements, clock), key=lambda pair: quick_median(pair[1]), default=None)


def call_s(measurement: Measurement) -> float:
    """`quick_seconds`, but infinite instead of None, so that it can be a key to sort by."""
    seconds = quick_seconds(measurement)
    return math.inf if seconds is None else seconds


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a time differs from an earlier one."""

    #: faster, slower, same or can't tell.
    word: str
    #: New over old: 1.05 takes 5 % longer.
    ratio: Estimate


def quotient(new: Estimate, old: Estimate, log_error: float = 0.0) -> Estimate:
    """The ratio new / old of two positive times with independent errors, which add as squares of logarithms. `log_error`: a
    further independent error, half a 95 % interval of the ratio's natural logarithm."""
    value = new.value / old.value
    low = math.hypot(math.log(new.value / new.low), math.log(old.high / old.value), log_error)
    high = math.hypot(math.log(new.high / new.value), math.log(old.value / old.low), log_error)
    return Estimate(value, value * math.exp(-low), value * math.exp(high))


def _independent_ratio(old: Samples, new: Samples) -> Estimate:
    """The ratio new / old of two times that were not taken side by side. Its interval is read from the sorted ratios of all
    pairs of a new and an old block's median; where there are too few blocks, the errors of both times add as squares.

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
    """Block -> the median seconds of its samples. Samples that are all of one block count as a block each."""
    blocks = _by_block(samples.seconds, samples.block)
    return {block: float(np.median(seconds)) for block, seconds in blocks.items()}


def _paired_ratio(old: Samples, new: Samples, common_blocks: list[int]) -> Estimate:
    """The ratio new / old of times whose blocks of one number were taken side by side: the median of the ratios of each block
    that both have."""
    old_medians = _block_medians(old)
    new_medians = _block_medians(new)
    ratios = [new_medians[block] / old_medians[block] for block in common_blocks]
    are_visits = len(set(old.block)) > 1 and len(set(new.block)) > 1
    return _interval(float(np.median(ratios)), [[ratio] for ratio in ratios], are_visits=are_visits)


def verdict(old: Samples, new: Samples, *, paired: bool = False, between: float = 0.0) -> Verdict:
    """Whether `new` is faster or slower than `old`.

    Args:
        paired: visit i of both was taken side by side, so drift cancels in each pair's ratio; visits without a partner are left
            out.
        between: the relative difference that equal runs show (0.05 for 5 %), which widens the ratio of visits that are not
            paired.

    It is `faster` or `slower` only when the ratio's whole interval lies beyond MIN_EFFECT, and `same` only when it lies within
    MARGIN.
    """
    old_blocks = _by_block(old.seconds, old.block)
    new_blocks = _by_block(new.seconds, new.block)
    common_blocks = [block for block in old_blocks if block in new_blocks]
    if paired and common_blocks:
        ratio = _paired_ratio(old, new, common_blocks)
        blocks = len(common_blocks)
    else:
        ratio = quotient(_independent_ratio(old, new), exact(1.0), log_error=math.log1p(between))
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
