"""Noise between two runs of one machine, for each clock and decade of call length, from A/A differences of ten sweeps.

`python -m workloads.doctor --noise` stores it; the interval of a single run does not contain the drift from run to run.
"""

import contextlib
import functools
import itertools
import math
import pathlib

import msgspec
import numpy as np

from analysis.stats import Estimate, exact, middle, quotient
from workloads import ROOT
from workloads.records import Loaded, Machine, Measurement, Samples
from workloads.records.visits import SHORT_S

REPORTS = ROOT / "reports"
FILE = "noise.json"
CPU, GPU, CALLS, MODELS = "CPU", "GPU device clock", "GPU calls", "whole models"
QUANTILE = 0.95
# Where nothing is stored anywhere: as much as ten runs of an hour differed on two shared cores (15 to 21 % by the decade), and
# device times from start to start of an H200 (at most 8 %); a training, which no short sweep holds, by 5 to 30 %.
DEFAULT = {CPU: 0.20, GPU: 0.08, CALLS: 0.20, MODELS: 0.20}
_WAITS = 1 / 2  # of the span: closer pairs of sweeps show drift over minutes, not between runs
_FEWEST = 10  # pairs that a quantile takes
DISTURBED = {"other-load", "other-tenant", "quota"}
OWN = "measured on this machine"


class Share(msgspec.Struct, frozen=True):
    """The QUANTILE of the relative differences of `pairs` of equal rows, for calls of about 10^decade seconds on one clock."""

    side: str
    decade: int
    share: float
    pairs: int


class Noise(msgspec.Struct, frozen=True):
    """A machine's stored noise: its shares, the sweeps they come from, and the seconds from the first to the last sweep."""

    machine: Machine
    taken_at: str
    span_s: float
    sweeps: tuple[str, ...]
    shares: tuple[Share, ...]


class Between(msgspec.Struct, frozen=True):
    """The relative difference that 95 of 100 pairs of equal runs stay within, and the source of this number."""

    share: float
    source: str


def side(m: Measurement, clock: str) -> str:
    """Name of the noise (CPU, GPU, CALLS or MODELS) that applies to a row's samples on a clock."""
    if m.problem.op in ("training", "inference"):
        return MODELS
    return CPU if not m.on_gpu else GPU if clock == "device" else CALLS


def shares(sweeps: list[tuple[float, Loaded]]) -> tuple[Share, ...]:
    """The shares of equal sweeps, each given with its start in Unix seconds. Rows disturbed by other load count only where
    fewer than _FEWEST undisturbed ones are left."""
    span = max(at for at, _ in sweeps) - min(at for at, _ in sweeps)
    found: dict[tuple[str, int], list[tuple[bool, float]]] = {}
    for (a, old), (b, new) in itertools.combinations(sweeps, 2):
        rows = {m.key: m for m in new.measurements if m.ok and abs(b - a) >= _WAITS * span}
        for m in (m for m in old.measurements if m.ok and m.key in rows):
            other = rows[m.key]
            quiet = not DISTURBED & {*m.flags, *other.flags}
            for x, y in ((s, other.on(s.clock)) for s in m.samples):
                if y:
                    at = side(m, x.clock), math.floor(math.log10(middle(x)))
                    found.setdefault(at, []).append((quiet, abs(math.log(middle(y) / middle(x)))))
    made = []
    for at, pairs in sorted(found.items()):
        apart = [of for quiet, of in pairs if quiet]
        apart = apart if len(apart) >= _FEWEST else [of for _, of in pairs]
        if len(apart) >= _FEWEST:
            made.append(Share(*at, math.expm1(float(np.quantile(apart, QUANTILE))), len(apart)))
    return tuple(made)


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
    """The relative difference of two runs for calls of so many seconds. A machine without stored noise takes that of the most
    similar stored machine; DEFAULT if nothing is stored or the machine is unknown."""
    known = [n for n in stored(REPORTS).values() if any(s.side == side for s in n.shares)]
    if not known or machine is None:
        return Between(DEFAULT[side], "a guess, as nothing is stored")
    nearest = max(known, key=lambda n: _likeness(n.machine, machine, side))
    decade = math.floor(math.log10(seconds))
    of = min((s for s in nearest.shares if s.side == side), key=lambda s: abs(s.decade - decade))
    return Between(
        of.share,
        OWN if nearest.machine.key == machine.key else f"as on {nearest.machine.key}, the stored machine most like it",
    )


def _likeness(a: Machine, b: Machine, side: str) -> tuple:
    gpus = side != CPU and {g.name for g in a.gpus} == {g.name for g in b.gpus}
    return a.key == b.key, gpus, (a.vendor, a.simd) == (b.vendor, b.simd), -abs(math.log(a.cores / b.cores))


def of_one_run(machine: Machine | None, m: Measurement, samples: Samples, seconds: Estimate) -> Estimate:
    """A row's seconds with the noise between runs in the interval, if its visits span less than SHORT_S. One run has 1 /
    sqrt(2) of the difference of two."""
    if machine is None or (m.span_s or 0.0) >= SHORT_S:
        return seconds
    share = between_runs(machine, side(m, samples.clock), seconds.value).share
    return quotient(seconds, exact(1.0), math.log1p(share) / math.sqrt(2))
