"""Noise between two runs of one machine, for each clock and decade of call length, from A/A differences of ten sweeps.

`python -m workloads.doctor --noise` stores it; the visits of a single run do not show the drift from run to run.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from analysis.stats import Estimate, Z, exact, quick_median, quotient, t_quantile, visit_medians
from workloads import REPORTS
from workloads.records import Loaded, Machine, Measurement, Samples

FILE = "noise.json"
CPU = "CPU"
GPU = "GPU device clock"
CALLS = "GPU calls"
MODELS = "whole models"
QUANTILE = 0.95
# Where nothing is stored anywhere: as much as ten runs of an hour differed on two shared cores (15 to 21 % by the decade), and
# device times from start to start of an H200 (at most 8 %); a training, which no short sweep holds, by 5 to 30 %.
DEFAULT = {CPU: 0.20, GPU: 0.08, CALLS: 0.20, MODELS: 0.20}
_WAITS = 1 / 2  # of the span: closer pairs of sweeps show drift over minutes, not between runs
_FEWEST = 10  # pairs that a quantile takes
DISTURBED = {"other-load", "other-tenant", "quota"}
THIS_MACHINE = "measured on this machine"
GUESS = "a guess, as nothing is stored"


class NoiseShare(msgspec.Struct, frozen=True, kw_only=True):
    """The noise between equal rows of two runs, for one clock and length of call."""

    #: CPU, GPU, CALLS or MODELS.
    side: str
    #: Calls of about 10^decade seconds.
    decade: int
    #: The QUANTILE of the relative differences.
    share: float
    #: Pairs of rows that it is taken from.
    pairs: int
    #: The same quantile of the differences of a visit of the one run and a visit of the other, relative.
    visit_share: float
    #: Seconds from the first to the last visit of these rows, their median; 0 where no row says.
    span_s: float


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's stored noise."""

    #: The machine that it was measured on.
    machine: Machine
    #: When.
    taken_at: str
    #: Seconds from the first to the last of the sweeps.
    span_s: float
    #: When each sweep began.
    sweeps: tuple[str, ...]
    #: By clock and length of call.
    shares: tuple[NoiseShare, ...]


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """The noise between runs of a machine, for one clock and length of call."""

    #: The relative difference that 95 of 100 pairs of equal runs stay within.
    share: float
    #: Where this number is from, in words.
    source: str
    #: The relative difference that 95 of 100 pairs of visits, one of each run, stay within.
    visit_share: float = 0.0
    #: Runs that the numbers were taken from; 0: a guess.
    runs: int = 0
    #: Seconds that the visits of a row spanned in these runs.
    span_s: float = 0.0


def side(m: Measurement, clock: str) -> str:
    """Which noise (CPU, GPU, CALLS or MODELS) a row's samples on a clock have: the CPU's, the GPU's by its own clock, of calls of
    a GPU by the host's clock, or of whole trainings and inference."""
    if m.problem.op in ("training", "inference"):
        return MODELS
    if not m.on_gpu:
        return CPU
    return GPU if clock == "device" else CALLS


def shares(sweeps: list[tuple[float, Loaded]]) -> tuple[NoiseShare, ...]:
    """How much equal rows of two sweeps (runs of the same measurements) differ, for each side and length of call.

    sweeps: (start in Unix seconds, results). Only pairs of sweeps that start far from each other count. Rows disturbed by other
    load count only where fewer than _FEWEST undisturbed ones are left.
    """
    starts = [start for start, _ in sweeps]
    span = max(starts) - min(starts)
    pairs: dict[tuple[str, int], list[_Pair]] = {}
    for (start, old), (later, new) in itertools.combinations(sweeps, 2):
        if abs(later - start) < _WAITS * span:
            continue
        new_rows = {m.key: m for m in new.measurements if m.ok}
        for m in old.measurements:
            if m.ok and m.key in new_rows:
                for key, pair in _pairs(m, new_rows[m.key]):
                    pairs.setdefault(key, []).append(pair)
    stored_shares = []
    for (side_, decade), every in sorted(pairs.items()):
        quiet = [pair for pair in every if not pair.disturbed]
        counted = quiet if len(quiet) >= _FEWEST else every
        if len(counted) < _FEWEST:
            continue
        stored_shares.append(_noise_share(side_, decade, counted))
    return tuple(stored_shares)


def _noise_share(side: str, decade: int, pairs: "list[_Pair]") -> NoiseShare:
    """The noise of one side (CPU, GPU, CALLS or MODELS) for calls of about 10^decade seconds, from rows that were measured in two
    sweeps."""
    differences = [pair.difference for pair in pairs]
    visit_differences = np.concatenate([pair.visit_differences for pair in pairs])
    spans = [pair.span_s for pair in pairs]
    return NoiseShare(
        side=side,
        decade=decade,
        share=_quantile(differences),
        pairs=len(pairs),
        visit_share=_quantile(visit_differences),
        span_s=float(np.median(spans)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pair:
    """A row in two sweeps, on one clock."""

    #: Whether other load disturbed it in either.
    disturbed: bool
    #: Absolute difference of the logarithms of both medians.
    difference: float
    #: Absolute differences of the logarithms of each visit's median in the one and each visit's in the other.
    visit_differences: np.ndarray
    #: Seconds that the row's visits spanned, of both sweeps the shorter.
    span_s: float


def _pairs(old: Measurement, new: Measurement) -> Iterator[tuple[tuple[str, int], _Pair]]:
    """Yields ((side, decade), pair) for each clock on which a row was timed in both of two sweeps. decade: the floor of log10 of
    the seconds of a call."""
    disturbed = bool(DISTURBED & {*old.flags, *new.flags})
    for before in old.samples:
        after = new.on(before.clock)
        if after is None:
            continue
        key = side(old, before.clock), math.floor(math.log10(quick_median(before)))
        visits = np.subtract.outer(np.log(visit_medians(before)), np.log(visit_medians(after)))
        pair = _Pair(
            disturbed=disturbed,
            difference=abs(math.log(quick_median(after) / quick_median(before))),
            visit_differences=np.abs(visits).ravel(),
            span_s=min(old.span_s or 0.0, new.span_s or 0.0),
        )
        yield key, pair


def _quantile(differences: Sequence[float] | np.ndarray) -> float:
    """The QUANTILE (95 %) of absolute differences of logarithms, as a relative difference: 0.05 for 5 %."""
    return math.expm1(float(np.quantile(differences, QUANTILE)))


@functools.cache
def stored(root: pathlib.Path) -> dict[str, Noise]:
    """Machine key -> the noise that is stored for it under a folder of reports. A file under local/, written on this machine,
    replaces one that came with the project."""
    noise_of_machine = {}
    for file in (*sorted(root.glob(f"*/{FILE}")), *sorted(root.glob(f"local/*/{FILE}"))):
        with contextlib.suppress(msgspec.DecodeError, OSError):  # another version's, or broken: as if there were none
            noise = msgspec.json.decode(file.read_bytes(), type=Noise)
            noise_of_machine[noise.machine.key] = noise
    return noise_of_machine


def between_runs(machine: Machine | None, side: str, seconds: float) -> Between:
    """The noise between two runs of a machine, for one side (CPU, GPU, CALLS or MODELS) and calls of so many seconds. A machine
    without stored noise takes that of the stored machine most like it; DEFAULT if nothing is stored or the machine is unknown."""
    known = [noise for noise in stored(REPORTS).values() if _shares_of(noise, side)]
    if not known or machine is None:
        return Between(share=DEFAULT[side], source=GUESS, visit_share=DEFAULT[side])
    nearest = max(known, key=lambda noise: _likeness(noise.machine, machine, side))
    decade = math.floor(math.log10(seconds))
    share = min(_shares_of(nearest, side), key=lambda share: abs(share.decade - decade))
    is_this_machine = nearest.machine.key == machine.key
    source = THIS_MACHINE if is_this_machine else f"as on {nearest.machine.key}, the stored machine most like it"
    return Between(
        share=share.share,
        source=source,
        visit_share=share.visit_share,
        runs=len(nearest.sweeps),
        span_s=share.span_s,
    )


def _shares_of(noise: Noise, side: str) -> list[NoiseShare]:
    """A machine's stored noise of one side, for all lengths of call."""
    return [share for share in noise.shares if share.side == side]


def _likeness(a: Machine, b: Machine, side: str) -> tuple:
    """Sort key: how alike two machines are. The same one, then the same GPUs (not for the CPU's noise), then a CPU of the same
    vendor and SIMD level, then a similar number of cores."""
    same_gpus = side != CPU and {gpu.name for gpu in a.gpus} == {gpu.name for gpu in b.gpus}
    same_cpu = (a.vendor, a.simd) == (b.vendor, b.simd)
    return a.key == b.key, same_gpus, same_cpu, -abs(math.log(a.cores / b.cores))


def with_noise_between_runs(machine: Machine | None, m: Measurement, samples: Samples, seconds: Estimate) -> Estimate:
    """A row's median seconds with the noise between runs of its machine added to the interval, which shows the noise within its
    run alone; unchanged if the machine is unknown. samples: those of the median."""
    if machine is None:
        return seconds
    between = between_runs(machine, side(m, samples.clock), seconds.value)
    log_error = half_width(between, visit_medians(samples), m.span_s or 0.0)
    return quotient(seconds, exact(1.0), log_error=log_error)


def half_width(between: Between, visits: Sequence[float], span_s: float) -> float:
    """Half the 95 % interval, in the logarithm, of how far a run lies from the level of all runs. `visits`: the medians of a
    row's visits, which span so many seconds.

        variance of runs = variance of visits of all runs - variance of visits within a run

    The longer the visits of a row span, the more of the noise they show themselves, and the less is added. Where the variance
    of runs was measured on this machine, over a span of its own, it is known better: it falls with the span, but no faster
    than one over it, as the mean of noise does whose correlation time is much shorter. Of few runs a variance is uncertain,
    so Student's t takes the place of the normal's quantile.

    Source: Krige's additivity relation, A. Journel, C. Huijbregts, Mining Geostatistics (1978), chapter II; the variance of a
    mean over a span, M. Priestley, Spectral Analysis and Time Series (1981), section 5.3.
    """
    all_visits = _variance(between.visit_share)
    runs = max(0.0, all_visits - float(np.var(np.log(visits))))
    if between.source == THIS_MACHINE:
        measured = _variance(between.share)
        is_shorter = span_s < between.span_s
        most = max(measured, all_visits) if is_shorter else measured
        least = measured if is_shorter or not span_s else measured * between.span_s / span_s
        runs = min(max(runs, least), most)
    t = t_quantile(between.runs - 1) if between.runs > 1 else Z
    return t * math.sqrt(runs)


def _variance(share: float) -> float:
    """The variance of the logarithm of a time, if two such times differ by at most `share` (0.05 for 5 %) in 95 of 100 cases.
    They are taken as normal and independent."""
    return (math.log1p(share) / (math.sqrt(2) * Z)) ** 2
