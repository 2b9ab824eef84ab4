"""The predicted crossover: who wins along batch, width, depth or samples by predicted seconds; beside what was measured, with
what following the prediction would have lost.
"""

import itertools
import math
from collections.abc import Iterable

import msgspec

from analysis.crossover.crossover import Answer
from analysis.predict.components import FIT
from analysis.predict.prediction import predict
from analysis.predict.profile import Profile
from analysis.table import Table
from analysis.training import break_even
from analysis.training.break_even import BY_JOB, BY_STEP, VARIES, Pair, Setup, Trained
from analysis.units import percent
from kernels import networks

WITHIN, SHARE = 0.15, 0.80  # a predicted crossing this near counts as hit; so many are to be
_HEADS = "model | along | by | measured | predicted | off by | most lost by following it"
LOST, OF = 0.05, 0.95  # following the prediction may lose this much, in so many cases


class Comparison(msgspec.Struct, frozen=True):
    """A crossover measured and predicted at the same sizes. regrets: at each size, by how much the side that was predicted to win
    took longer than the other one, 0 where it won."""

    varies: str
    by: str
    measured: Answer
    predicted: Answer
    regrets: tuple[float, ...]

    @property
    def error(self) -> float | None:
        """How far the predicted crossing lies from the measured one; infinite where only one of both is there, None where neither
        is. Where the measured one is clear, the predicted one is where the predicted seconds cross, clear or not."""
        seen, told = (
            a.crossings[0].at.value if len(a.crossings) == 1 else None for a in (self.measured, self.predicted)
        )
        if seen is None:
            return None if told is None else math.inf
        if told is None:
            told = values_cross(self.predicted)
        return math.inf if told is None else abs(told / seen - 1)


def values_cross(answer: Answer) -> float | None:
    """Where the values of both sides cross, whatever their intervals, between two sizes in proportion to the logarithms; None
    unless they cross once."""
    points = [(math.log(p.n), math.log(p.ratio.value)) for p in answer.points]
    pairs = [(a, b) for a, b in itertools.pairwise(points) if (a[1] < 0) != (b[1] < 0)]
    if len(pairs) != 1:
        return None
    ((n0, r0), (n1, r1)) = pairs[0]
    return math.exp(n0 + (n1 - n0) * r0 / (r0 - r1))


def comparisons(of: "Profile", varies: Iterable[str] = VARIES) -> list[Comparison]:
    """Every crossover that the profile's trainings have measured, and the same one predicted: each training with all those of its
    model left out."""
    found = []
    for fixed, name, sizes in break_even.sweeps(of.trainings, varies):
        if fixed.kernel == FIT and all(networks.known(pair.setup.model) for pair in sizes.values()):
            found += [_beside(of, fixed, name, sizes, by) for by in (BY_STEP, BY_JOB)]
    return found


def _beside(of: "Profile", fixed: Setup, varies: str, sizes: "dict[int, Pair]", by: str) -> Comparison:
    jobs = {size: break_even.job_of(pair, varies) for size, pair in sizes.items()}
    family = break_even.family_of(fixed, varies)
    sides = {size: (pair.cpu(by, *jobs[size]), pair.gpu) for size, pair in sizes.items()}
    predicted = {size: _predicted(of, pair) for size, pair in sizes.items()}
    told = {size: (pair.cpu(by, *jobs[size]), pair.gpu) for size, pair in predicted.items()}
    ours, theirs = (break_even.crossing(family, by, each, jobs.__getitem__) for each in (sides, told))
    regrets = []
    for took, said in zip(ours.points, theirs.points, strict=True):
        ratio = took.ratio.value
        regrets.append(max(0.0, (1 / ratio if said.ratio.value > 1 else ratio) - 1))
    return Comparison(varies, by, ours, theirs, tuple(regrets))


def _predicted(of: "Profile", pair: Pair) -> Pair:
    """The pair with what its sides cost as predicted."""
    gpu, *cpus = (
        Trained(one.row, predict(one.row.problem, one.row.settings, of).cost) for one in (pair.gpu, *pair.cpus)
    )
    return Pair(pair.setup, gpu, tuple(cpus))


def lines(found: list[Comparison]) -> list[str | Table]:
    """Crossovers measured and predicted in a table, then how many were hit, and the regret of following the prediction."""
    if not found:
        return ["No crossover of trainings was measured in this profile."]
    rows = []
    for b in found:
        off = "-" if b.error is None else "one has none" if math.isinf(b.error) else percent(b.error)
        cross = values_cross(b.predicted) if b.error is not None and len(b.predicted.crossings) != 1 else None
        told = words(b.predicted) + (f" (values cross at {cross:.3g})" if cross else "")
        model = str(dict(b.measured.family.fixed)["model"])
        rows.append((model, b.varies, b.by, words(b.measured), told, off, percent(max(b.regrets))))
    errors = [b.error for b in found if b.error is not None]
    regrets = [r for b in found for r in b.regrets]
    near, little = sum(e <= WITHIN for e in errors), sum(r <= LOST for r in regrets)
    hit = f"{near} of {len(errors)} crossings predicted within {percent(WITHIN)} (to reach: {percent(SHARE)} of them)."
    lost = (
        f"Following the prediction loses at most {percent(LOST)} in {little} of {len(regrets)} cases "
        f"(to reach: {percent(OF)} of them)."
    )
    return [Table(_HEADS, rows, 5), *["", hit] * bool(errors), "", lost]


def words(answer: Answer) -> str:
    """`GPU from 12`, `GPU throughout 1 to 2048`, `CPU throughout ...`, `cannot tell`."""
    span = f"{answer.low_n} to {answer.high_n}"
    if answer.crossings:
        return ", ".join(f"{c.to.upper()} from {c.at.value:.3g}" for c in answer.crossings)
    throughout = {"gpu-at-smallest": f"GPU throughout {span}", "cpu-throughout": f"CPU throughout {span}"}
    return throughout.get(answer.kind, "cannot tell")
