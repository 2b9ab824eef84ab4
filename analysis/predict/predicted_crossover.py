"""The predicted crossover along batch, width, depth or samples, beside the measured one, and the time lost by trusting it."""

import itertools
import math

import msgspec

from analysis.crossover.crossover import Answer
from analysis.predict.components import FIT
from analysis.predict.prediction import predict
from analysis.predict.profile import Profile, once
from analysis.training import break_even
from analysis.training.break_even import BY_JOB, BY_STEP, Pair, Setup, Trained
from kernels import networks

WITHIN = 0.15  # a predicted crossing this near counts as hit


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
        """Relative distance of the predicted crossing from the measured one; infinite if only one exists, None if neither does.
        Beside a clear measured crossing, the predicted one may be unclear: then it is where the predicted values are equal."""
        both = (a.crossings for a in (self.measured, self.predicted))
        seen, told = (found[0].at.value if len(found) == 1 else None for found in both)
        if seen is None:
            return None if told is None else math.inf
        if told is None:
            told = values_cross(self.predicted)
        return math.inf if told is None else abs(told / seen - 1)


def values_cross(answer: Answer) -> float | None:
    """The size at which the values of both sides are equal, intervals aside, linear in the logarithms; None unless they cross
    once."""
    points = [(math.log(p.n), math.log(p.ratio.value)) for p in answer.points]
    pairs = [(a, b) for a, b in itertools.pairwise(points) if (a[1] < 0) != (b[1] < 0)]
    if len(pairs) != 1:
        return None
    ((n0, r0), (n1, r1)) = pairs[0]
    return math.exp(n0 + (n1 - n0) * r0 / (r0 - r1))


@once
def comparisons(of: "Profile") -> list[Comparison]:
    """Every crossover that the profile's trainings have measured, and the same one predicted: each training with all those of its
    model left out."""
    found = []
    for fixed, name, sizes in break_even.sweeps(break_even.pairs(of.trainings)):
        if fixed.kernel == FIT and all(networks.known(pair.setup.model) for pair in sizes.values()):
            found += [_beside(of, fixed, name, sizes, by) for by in (BY_STEP, BY_JOB)]
    return found


def _beside(of: "Profile", fixed: Setup, varies: str, sizes: "dict[int, Pair]", by: str) -> Comparison:
    jobs = {size: break_even.job_of(pair, varies) for size, pair in sizes.items()}
    family = break_even.family_of(fixed, varies)
    predicted = {size: _predicted(of, pair) for size, pair in sizes.items()}
    both = ({n: (pair.cpu(by, *jobs[n]), pair.gpu) for n, pair in each.items()} for each in (sizes, predicted))
    ours, theirs = (break_even.crossing(family, by, sides, jobs.__getitem__) for sides in both)
    regrets = []
    for took, said in zip(ours.points, theirs.points, strict=True):
        ratio = took.ratio.value
        regrets.append(max(0.0, (1 / ratio if said.ratio.value > 1 else ratio) - 1))
    return Comparison(varies, by, ours, theirs, tuple(regrets))


def _predicted(of: "Profile", pair: Pair) -> Pair:
    rows = (one.row for one in (pair.gpu, *pair.cpus))
    gpu, *cpus = (Trained(row, predict(row.problem, row.settings, of).cost) for row in rows)
    return Pair(pair.setup, gpu, tuple(cpus))
