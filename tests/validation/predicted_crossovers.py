"""The predicted crossover along batch, width, depth or samples next to the measured one, and the time that trusting it costs."""

import itertools
import math

import msgspec
from msgspec.structs import replace

from analysis.crossover.answer import Answer
from analysis.predict.components import FIT
from analysis.predict.prediction import predict
from analysis.predict.profile import Profile
from analysis.training import break_even
from analysis.training.break_even import BY_STEP, BY_WHOLE_TRAINING, Pair, Sweep, Trained
from kernels import networks

#: A predicted crossover this near counts as right: a share of the measured one.
WITHIN = 0.15


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A crossover measured and predicted at the same sizes."""

    #: What grows: batch, width, depth, samples.
    varies: str
    #: BY_STEP or BY_WHOLE_TRAINING: the time that is compared.
    by: str
    measured: Answer
    predicted: Answer
    #: At each size, by what share the side that was predicted to win took longer than the other one; 0 where it won.
    regrets: tuple[float, ...]

    @property
    def error(self) -> float | None:
        """Relative distance of the predicted crossover from the measured one; infinite if only one exists, None if neither does.
        Where only the predicted one is unclear, it is where the predicted values are equal."""
        measured = only_crossing(self.measured)
        predicted = only_crossing(self.predicted)
        if measured is None:
            return None if predicted is None else math.inf
        if predicted is None:
            predicted = values_cross(self.predicted)
        return math.inf if predicted is None else abs(predicted / measured - 1)


def only_crossing(answer: Answer) -> float | None:
    """The size at which the winner changes; None unless it does so once."""
    if len(answer.crossings) != 1:
        return None
    return answer.crossings[0].at.value


def values_cross(answer: Answer) -> float | None:
    """The size at which the values of both sides are equal, intervals aside, linear in the logarithms; None unless they cross
    once."""
    points = [(math.log(point.n), math.log(point.ratio.value)) for point in answer.points]
    crossed = [(a, b) for a, b in itertools.pairwise(points) if (a[1] < 0) != (b[1] < 0)]
    if len(crossed) != 1:
        return None
    (size, ratio), (next_size, next_ratio) = crossed[0]
    return math.exp(size + (next_size - size) * ratio / (ratio - next_ratio))


def comparisons(profile: Profile) -> list[Comparison]:
    """Every crossover that the profile's trainings have measured, and the same one predicted: each training with all those of its
    model left out."""
    every = []
    for sweep in break_even.sweeps(break_even.pairs(profile.trainings)):
        are_known = all(networks.known(pair.setup.model) for pair in sweep.pairs.values())
        if sweep.fixed.kernel != FIT or not are_known:
            continue
        for by in (BY_STEP, BY_WHOLE_TRAINING):
            every.append(_comparison(profile, sweep, by))
    return every


def _comparison(profile: Profile, sweep: Sweep, by: str) -> Comparison:
    """A measured crossover and the same one predicted; by: BY_STEP or BY_WHOLE_TRAINING."""
    predicted_pairs = {size: _predicted(profile, pair) for size, pair in sweep.pairs.items()}
    measured = _answer(sweep, by)
    predicted = _answer(replace(sweep, pairs=predicted_pairs), by)
    regrets = []
    for point, predicted_point in zip(measured.points, predicted.points, strict=True):
        ratio = point.ratio.value
        if predicted_point.ratio.value > 1:
            ratio = 1 / ratio
        regrets.append(max(0.0, ratio - 1))
    return Comparison(varies=sweep.varies, by=by, measured=measured, predicted=predicted, regrets=tuple(regrets))


def _answer(sweep: Sweep, by: str) -> Answer:
    lengths = {size: break_even.planned_length(pair, sweep.varies) for size, pair in sweep.pairs.items()}
    sides = {size: pair.sides(by, sweep.varies) for size, pair in sweep.pairs.items()}
    return break_even.crossing(break_even.family_of(sweep.fixed, sweep.varies), by, sides, lengths)


def _predicted(profile: Profile, pair: Pair) -> Pair:
    """A pair with predicted costs instead of the measured ones."""
    gpu = _predicted_training(profile, pair.gpu)
    cpus = tuple(_predicted_training(profile, cpu) for cpu in pair.cpus)
    return Pair(setup=pair.setup, gpu=gpu, cpus=cpus)


def _predicted_training(profile: Profile, training: Trained) -> Trained:
    row = training.row
    return Trained(row=row, cost=predict(row.problem, row.settings, profile).cost)
