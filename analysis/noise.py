"""What two runs of a machine differ by: a number for each clock and decade of call length, from A/A differences of ten sweeps.

`python -m workloads.doctor --noise` stores it; what runs of different minutes differ by is in no run's own interval.
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
_WAITS = 1 / 2  # of the span: pairs of sweeps nearer than this tell what minutes do, not what runs do
_FEWEST = 10  # pairs that a quantile takes
DISTURBED = {"other-load", "other-tenant", "quota"}
OWN = "measured on this machine"


class Share(msgspec.Struct, frozen=True):
    """The QUANTILE of the relative differences of `pairs` of rows that are alike, of calls of 10^decade seconds on a clock."""

    side: str
    decade: int
    share: float
    pairs: int


class Noise(msgspec.Struct, frozen=True):
    """What a machine's file holds: its shares, and the sweeps that they came of, taken over so many seconds."""

    machine: Machine
    taken_at: str
    span_s: float
    sweeps: tuple[str, ...]
    shares: tuple[Share, ...]


class Between(msgspec.Struct, frozen=True):
    """The relative difference that two runs alike stay within in 95 of 100 cases, and where it is from."""

    share: float
    source: str


def side(m: Measurement, clock: str) -> str:
    """Whose noise a row's samples on a clock have."""
    if m.problem.op in ("training", "inference"):
        return MODELS
    return CPU if not m.on_gpu else GPU if clock == "device" else CALLS


def shares(sweeps: list[tuple[float, Loaded]]) -> tuple[Share, ...]:
    """The shares that sweeps alike, each with the Unix seconds when it began, come to; of rows that other load disturbed only
    where too few were left alone."""
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
    """Machine key -> what is stored of it under a folder of reports; what this checkout measured itself counts first."""
    found = {}
    for file in (*sorted(root.glob(f"*/{FILE}")), *sorted(root.glob(f"local/*/{FILE}"))):
        with contextlib.suppress(msgspec.DecodeError, OSError):  # another version's, or broken: as if there were none
            noise = msgspec.json.decode(file.read_bytes(), type=Noise)
            found[noise.machine.key] = noise
    return found


def between_runs(machine: Machine | None, side: str, seconds: float) -> Between:
    """What two runs differ by in calls of so many seconds on a machine; of one without a number the stored machine most like
    it says it, and without any DEFAULT."""
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
    """A row's seconds as further runs would give them: where its visits lie within SHORT_S, widened by what one run is off by,
    which is what two differ by over the root of 2."""
    if machine is None or (m.span_s or 0.0) >= SHORT_S:
        return seconds
    share = between_runs(machine, side(m, samples.clock), seconds.value).share
    return quotient(seconds, exact(1.0), math.log1p(share) / math.sqrt(2))
