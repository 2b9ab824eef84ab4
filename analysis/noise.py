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

from analysis.stats import Estimate, Z, exact, middle, quotient, t_quantile, visit_medians
from workloads import REPORTS
from workloads.records import Loaded, Machine, Measurement, Samples

FILE = "noise.json"
CPU, GPU, CALLS, MODELS = "CPU", "GPU device clock", "GPU calls", "whole models"
QUANTILE = 0.95
# Where nothing is stored anywhere: as much as ten runs of an hour differed on two shared cores (15 to 21 % by the decade), and
# device times from start to start of an H200 (at most 8 %); a training, which no short sweep holds, by 5 to 30 %.
DEFAULT = {CPU: 0.20, GPU: 0.08, CALLS: 0.20, MODELS: 0.20}
_WAITS = 1 / 2  # of the span: closer pairs of sweeps show drift over minutes, not between runs
_FEWEST = 10  # pairs that a quantile takes
DISTURBED = {"other-load", "other-tenant", "quota"}
OWN, GUESS = "measured on this machine", "a guess, as nothing is stored"


class Share(msgspec.Struct, frozen=True):
    """The QUANTILE of the relative differences of `pairs` of equal rows, for calls of about 10^decade seconds on one clock."""

    side: str
    decade: int
    share: float
    pairs: int
    #: The same quantile of the differences of a visit of the one run and a visit of the other, relative.
    visit_share: float
    #: Seconds from the first to the last visit of these rows, their median; 0 where no row says.
    span_s: float


class Noise(msgspec.Struct, frozen=True):
    """A machine's stored noise: its shares, when each sweep that they come from began, and the seconds from the first to the last
    of them."""

    machine: Machine
    taken_at: str
    span_s: float
    sweeps: tuple[str, ...]
    shares: tuple[Share, ...]


class Between(msgspec.Struct, frozen=True):
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
    """Name of the noise (CPU, GPU, CALLS or MODELS) that applies to a row's samples on a clock."""
    if m.problem.op in ("training", "inference"):
        return MODELS
    return CPU if not m.on_gpu else GPU if clock == "device" else CALLS


def shares(sweeps: list[tuple[float, Loaded]]) -> tuple[Share, ...]:
    """The shares of equal sweeps, each given with its start in Unix seconds. Rows disturbed by other load count only where
    fewer than _FEWEST undisturbed ones are left."""
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
        of_runs = [pair.difference for pair in counted]
        of_visits = np.concatenate([pair.visit_differences for pair in counted])
        spans = [pair.span_s for pair in counted]
        share = Share(
            side=side_,
            decade=decade,
            share=_quantile(of_runs),
            pairs=len(counted),
            visit_share=_quantile(of_visits),
            span_s=float(np.median(spans)),
        )
        stored_shares.append(share)
    return tuple(stored_shares)


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
    """Yields ((side, decade), pair) for each clock that a row has in both of two sweeps."""
    disturbed = bool(DISTURBED & {*old.flags, *new.flags})
    for before in old.samples:
        after = new.on(before.clock)
        if after is None:
            continue
        key = side(old, before.clock), math.floor(math.log10(middle(before)))
        visits = np.subtract.outer(np.log(visit_medians(before)), np.log(visit_medians(after)))
        pair = _Pair(
            disturbed=disturbed,
            difference=abs(math.log(middle(after) / middle(before))),
            visit_differences=np.abs(visits).ravel(),
            span_s=min(old.span_s or 0.0, new.span_s or 0.0),
        )
        yield key, pair


def _quantile(differences: Sequence[float] | np.ndarray) -> float:
    """The QUANTILE of differences of logarithms, as a relative difference."""
    return math.expm1(float(np.quantile(differences, QUANTILE)))


@functools.cache
def stored(root: pathlib.Path) -> dict[str, Noise]:
    """Machine key -> the noise stored for it under a folder of reports. Files under local/ replace the others."""
    found = {}
    for file in (*sorted(root.glob(f"*/{FILE}")), *sorted(root.glob(f"local/*/{FILE}"))):
        with contextlib.suppress(msgspec.DecodeError, OSError):  # another version's, or broken: as if there were none
            noise = msgspec.json.decode(file.read_bytes(), type=Noise)
            found[noise.machine.key] = noise
    return found


def between_runs(machine: Machine | None, side: str, seconds: float) -> Between:
    """The noise between runs for calls of so many seconds. A machine without stored noise takes that of the most similar stored
    machine; DEFAULT if nothing is stored or the machine is unknown."""
    known = [n for n in stored(REPORTS).values() if any(s.side == side for s in n.shares)]
    if not known or machine is None:
        return Between(DEFAULT[side], GUESS, visit_share=DEFAULT[side])
    nearest = max(known, key=lambda n: _likeness(n.machine, machine, side))
    decade = math.floor(math.log10(seconds))
    share = min((s for s in nearest.shares if s.side == side), key=lambda s: abs(s.decade - decade))
    source = (
        OWN if nearest.machine.key == machine.key else f"as on {nearest.machine.key}, the stored machine most like it"
    )
    return Between(
        share.share,
        source,
        visit_share=share.visit_share,
        runs=len(nearest.sweeps),
        span_s=share.span_s,
    )


def _likeness(a: Machine, b: Machine, side: str) -> tuple:
    gpus = side != CPU and {g.name for g in a.gpus} == {g.name for g in b.gpus}
    return a.key == b.key, gpus, (a.vendor, a.simd) == (b.vendor, b.simd), -abs(math.log(a.cores / b.cores))


def of_one_run(machine: Machine | None, m: Measurement, samples: Samples, seconds: Estimate) -> Estimate:
    """A row's seconds with the noise between runs in the interval; within its run alone where the machine is unknown."""
    if machine is None:
        return seconds
    between = between_runs(machine, side(m, samples.clock), seconds.value)
    return quotient(seconds, exact(1.0), half_width(between, visit_medians(samples), m.span_s or 0.0))


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
    of_all_visits = _variance(between.visit_share)
    of_runs = max(0.0, of_all_visits - float(np.var(np.log(visits))))
    if between.source == OWN:
        measured = _variance(between.share)
        shorter = span_s < between.span_s
        most = max(measured, of_all_visits) if shorter else measured
        least = measured if shorter or not span_s else measured * between.span_s / span_s
        of_runs = min(max(of_runs, least), most)
    t = t_quantile(between.runs - 1) if between.runs > 1 else Z
    return t * math.sqrt(of_runs)


def _variance(share: float) -> float:
    """The variance of a logarithm, of which two differ by at most that share in 95 of 100 cases."""
    return (math.log1p(share) / (math.sqrt(2) * Z)) ** 2
