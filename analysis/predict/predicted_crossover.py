"""The crossover foretold: who wins along batch, width, depth or samples by predicted seconds; beside what was measured, with
what following the prediction would have lost.
"""

import itertools
import math
from collections.abc import Iterable

import msgspec

from analysis.crossover import crossover
from analysis.crossover.crossover import Answer, Family, Form, Point, Side
from analysis.predict.components import FIT
from analysis.predict.prediction import Prediction, predict
from analysis.predict.profile import Profile
from analysis.stats import Estimate
from analysis.training import break_even
from analysis.training.break_even import BY_EPOCH, BY_JOB, BY_STEP, VARIES, Pair
from analysis.units import percent
from kernels import networks
from workloads.records import Settings

WITHIN, SHARE = 0.15, 0.80  # a foretold crossing this near counts as hit; so many are to be
LOST, OF = 0.05, 0.95  # following the prediction may lose this much, in so many cases


class Comparison(msgspec.Struct, frozen=True):
    """A crossover measured and foretold at the same sizes. regrets: at each size, by how much the side that was foretold to win
    took longer than the other one, 0 where it won."""

    varies: str
    by: str
    measured: Answer
    foretold: Answer
    regrets: tuple[float, ...]

    @property
    def error(self) -> float | None:
        """How far the foretold crossing lies from the measured one; infinite where only one of both is there, None where neither
        is. Where the measured one is clear, the foretold is where the predicted seconds cross, clear or not."""
        seen, told = (
            a.crossings[0].at.value if len(a.crossings) == 1 else None for a in (self.measured, self.foretold)
        )
        if seen is None:
            return None if told is None else math.inf
        if told is None:
            told = values_cross(self.foretold)
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


def seconds_by(made: Prediction, by: str, steps: int, epochs: int) -> Estimate:
    """Predicted seconds of a step, of an epoch of so many steps, or of a job of so many epochs of them."""
    if by == BY_STEP:
        return made.step_s
    epoch = made.epoch_s + made.step_s * steps
    return epoch if by == BY_EPOCH else made.start_s + made.compile_s + made.fit_s + epoch * epochs


def _point(size: int, sides: "list[tuple[Settings, Estimate]]", dtype: str) -> Point:
    cpu, gpu = (Side(FIT, s.device, s.threads, dtype, e) for s, e in sides)
    return Point(size, cpu, gpu)


def comparisons(of: "Profile", varies: Iterable[str] = VARIES) -> list[Comparison]:
    """Every crossover that the profile's trainings have measured, and the same one foretold: each training with all those of its
    model left out."""
    found = []
    for name in varies:
        groups: dict = {}
        for pair in break_even.pairs(of.trainings):
            ours = pair.setup.kernel == FIT and networks.known(pair.setup.model)
            if ours and (at := break_even.size_of(pair.setup, name)):
                held = groups.setdefault(at[1], {})
                held[at[0]] = max(held.get(at[0], pair), pair, key=lambda p: p.setup.samples)
        for sizes in (s for s in groups.values() if len(s) > 1):
            for by in (BY_STEP, BY_JOB):
                found.append(_beside(of, name, by, dict(sorted(sizes.items()))))
    return found


def _beside(of: "Profile", varies: str, by: str, sizes: "dict[int, Pair]") -> Comparison:
    measured, foretold, regrets = [], [], []
    for size, pair in sizes.items():
        samples, epochs = break_even.planned(pair.setup, varies)
        steps = break_even.planned_steps(pair.setup, samples)
        sides = (min(pair.cpus, key=lambda c: break_even.seconds_by(c, by, steps, epochs).value), pair.gpu)
        took = [break_even.seconds_by(side, by, steps, epochs) for side in sides]
        every = [
            [seconds_by(predict(d.row.problem, d.row.settings, of), by, steps, epochs) for d in group]
            for group in (pair.cpus, (pair.gpu,))
        ]
        said = [min(group, key=lambda e: e.value) for group in every]
        rows = [side.row.settings for side in sides]
        measured.append(_point(size, list(zip(rows, took, strict=True)), pair.setup.dtype))
        foretold.append(_point(size, list(zip(rows, said, strict=True)), pair.setup.dtype))
        chosen = 1 if said[1].value < said[0].value else 0
        regrets.append(max(0.0, took[chosen].value / took[1 - chosen].value - 1))
    setup = next(iter(sizes.values())).setup
    family = Family("training", varies, (varies,), (("model", setup.model), ("batch", setup.batch)))
    ours, theirs = (crossover.classify(setup.dtype, Form(by), points, family=family) for points in (measured, foretold))
    return Comparison(varies, by, ours, theirs, tuple(regrets))


def lines(found: list[Comparison]) -> list[str]:
    """Crossovers measured and foretold as Markdown, then how many were hit, and the regret of following the prediction."""
    if not found:
        return ["No crossover of trainings was measured in this profile."]
    head = ["model", "along", "by", "measured", "foretold", "off by", "most lost by following it"]
    said = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    for b in found:
        model = dict(b.measured.family.fixed)["model"]
        off = "-" if b.error is None else "one has none" if math.isinf(b.error) else percent(b.error)
        cross = values_cross(b.foretold) if b.error is not None and len(b.foretold.crossings) != 1 else None
        told = words(b.foretold) + (f" (values cross at {cross:.3g})" if cross else "")
        cells = [str(model), b.varies, b.by, words(b.measured), told, off, percent(max(b.regrets))]
        said.append("| " + " | ".join(cells) + " |")
    errors = [b.error for b in found if b.error is not None]
    regrets = [r for b in found for r in b.regrets]
    if errors:
        near = sum(e <= WITHIN for e in errors)
        said += [
            "",
            f"{near} of {len(errors)} crossings foretold within {percent(WITHIN)} (to reach: {percent(SHARE)} of them).",
        ]
    little = sum(r <= LOST for r in regrets)
    return [
        *said,
        "",
        f"Following the prediction loses at most {percent(LOST)} in {little} of {len(regrets)} cases "
        f"(to reach: {percent(OF)} of them).",
    ]


def words(answer: Answer) -> str:
    """`GPU from 12`, `GPU throughout 1 to 2048`, `CPU throughout ...`, `cannot tell`."""
    span = f"{answer.low_n} to {answer.high_n}"
    if answer.crossings:
        return ", ".join(f"{c.to.upper()} from {c.at.value:.3g}" for c in answer.crossings)
    throughout = {"gpu-at-smallest": f"GPU throughout {span}", "cpu-throughout": f"CPU throughout {span}"}
    return throughout.get(answer.kind, "cannot tell")
