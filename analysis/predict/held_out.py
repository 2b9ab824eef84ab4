"""How far predictions are off: each measured training predicted from the profile with its model left out, beside what simpler
predictions of the same kind come to. In words and tables: analysis.text.prediction_errors.
"""

import math
import statistics
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis.predict import calibration
from analysis.predict.calibration import Seen
from analysis.predict.combine import HOST
from analysis.predict.prediction import Prediction, predict
from analysis.predict.profile import Profile, once
from analysis.predict.step_work import RULES, kernels_of, step_works
from analysis.roofline import roofs
from analysis.stats import Estimate
from analysis.training import costs
from kernels import networks
from workloads.records import settings as switches

OVERHEAD, WORK = "overhead-bound", "work-bound"
CONSTANT, LINE, SPEC, MEASURED = "constant", "a + b FLOPs + c launches", "data-sheet roofline", "measured roofline"
BASELINES = (CONSTANT, LINE, SPEC, MEASURED)
_NORMAL_95 = 1.96  # standard deviations to either end of an interval of 95 %
TARGETS = {"median": 0.10, "mean": 0.15}


class Case(msgspec.Struct, frozen=True):
    """One training predicted without its model: seconds: of the step as it was measured, with what of the fit is in that;
    `bound` says what most of the measured step is without that, baselines: the seconds that each simpler prediction gives
    (those that it can give)."""

    seen: "Seen"
    predicted: Prediction
    seconds: Estimate
    bound: str
    baselines: dict[str, float]

    @property
    def device(self) -> str:
        return self.seen.row.device

    @property
    def error(self) -> float:
        """Relative error of the step."""
        return off(self.seconds.value, self.seen.step.value)

    @property
    def beyond(self) -> float:
        """Relative error beyond the interval of what was measured: 0 inside."""
        return beyond(self.seconds.value, self.seen.step)

    @property
    def held(self) -> bool:
        """Whether the measured step lies in the predicted interval."""
        return self.seconds.low <= self.seen.step.value <= self.seconds.high


class Summary(msgspec.Struct, frozen=True):
    """The errors of a device's cases of one bound: median and mean of those whose step is known to NOISY or better.
    `floor`: the five-process noise floor (None where none was measured); counted: median and mean with errors below twice the
    floor as zero. wide: how many more cases there are whose step is known less well; `every`: median and mean of all, of
    these only what lies beyond the measured interval. covered: of all. baselines: each one's median error."""

    device: str
    bound: str
    cases: int
    models: int
    median: float
    mean: float
    floor: float | None
    counted: tuple[float, float]
    wide: int
    every: tuple[float, float]
    covered: float
    baselines: dict[str, float]


def off(predicted: float, measured: float) -> float:
    """The relative error |predicted / measured - 1|."""
    return abs(predicted / measured - 1)


def beyond(predicted: float, measured: Estimate) -> float:
    """How far a prediction lies outside of what was measured, over the nearer end of that; 0 inside."""
    return max(0.0, 1 - predicted / measured.low, predicted / measured.high - 1)


def leave_one_out(of: "Profile", rules: frozenset[str] = RULES) -> list[Case]:
    """Every training of the profile that tells its step, predicted with all trainings of its model left out."""
    seen = calibration.steps_seen(of, rules)
    told = [s for s in seen if s.told]
    found = []
    for s in seen:
        made = predict(s.row.problem, s.row.settings, of, rules=rules)
        fitted = calibration.calibration(of, s.row.settings, leaving_out=s.row.problem.model, rules=rules)
        feed = s.feed(fitted)
        seconds = made.step_s + feed
        floor = sum(made.parts[name].value for name in HOST if name in made.parts and name != "transfer bytes")
        bound = OVERHEAD if floor > (s.step.value - feed.value) / 2 else WORK
        found.append(Case(s, made, seconds, bound, baselines(s, [o for o in told if _comparable(o, s)], of)))
    return found


def _comparable(other: "Seen", of: "Seen") -> bool:
    """Whether a training may stand for another one of a model not its own: same device, same execution."""
    same = (other.row.device, other.made.execution) == (of.row.device, of.made.execution)
    return same and other.row.problem.model != of.row.problem.model


def baselines(seen: "Seen", others: "list[Seen]", of: "Profile") -> dict[str, float]:
    """What simpler predictions give for a step; the first two are fitted on the other models' trainings."""
    found = {}
    if others:
        found[CONSTANT] = statistics.median(s.step.value for s in others)
    if len(others) >= 3:
        found[LINE] = _line(seen, others)
    for name, wanted in ((SPEC, False), (MEASURED, True)):
        if (seconds := rooflined(seen, of, wanted)) is not None:
            found[name] = seconds
    return found


def _line(seen: "Seen", others: "list[Seen]") -> float:
    """a + b FLOPs + c launches, none negative, by the least squares of the relative errors."""
    from scipy.optimize import nnls

    columns = np.array([_features(s) for s in others])
    measured = np.array([s.step.value for s in others])
    scale = np.maximum(columns.max(axis=0), 1e-30)
    found, _ = nnls(columns / scale / measured[:, None], np.ones(len(others)))
    return float(found / scale @ np.array(_features(seen)))


def _features(seen: "Seen") -> tuple[float, float, float]:
    network, problem = networks.find(seen.row.problem.model), seen.row.problem
    return 1.0, float(min(problem.batch, problem.samples) * networks.training_flops(network)), float(seen.made.kernels)


def rooflined(seen: "Seen", of: "Profile", measured: bool) -> float | None:
    """Seconds of all kernels each under its roof: the data sheet's or the measured one; None without them."""
    settings = seen.row.settings
    here = [r for r in _roofs(of) if r.device == settings.device and r.measured == measured]
    chosen = switches.of(seen.row)
    batch = min(seen.row.problem.batch, seen.row.problem.samples)
    works = step_works(networks.find(seen.row.problem.model), batch, chosen, settings.device, [])
    total = 0.0
    for k in kernels_of(works, seen.made.execution, settings.device):
        if k.problem is None:
            continue
        times = []
        if k.part != "element-wise" and (rate := _rate(here, "compute", k.problem.math)):
            times.append(k.problem.flops / rate)
        if rate := _rate(here, "memory", ""):
            times.append(k.problem.bytes_moved / rate)
        if not times:
            return None
        total += max(times)
    return total


@once
def _roofs(of: "Profile") -> tuple[roofs.Roof, ...]:
    return roofs.roofs(of.measurements, of.machine)


def _rate(here: "list[roofs.Roof]", kind: str, name: str) -> float | None:
    return max((r.rate.value for r in here if r.kind == kind and name in ("", r.name)), default=None)


def noise_floor(of: "Profile", device: str) -> float | None:
    """The five-process noise floor of a device: how far single processes lie apart beyond what each one's own noise makes, as a
    share of the step, the middle of its trainings; None where none were taken in several processes, or that is lost in noise."""
    found = [math.sqrt(max(0.0, each.between**2 - each.within**2)) for each in apart(of, device)]
    return statistics.median(found) or None if found else None


class Apart(msgspec.Struct, frozen=True):
    """How far the steps of several processes of a training lie apart, and what each one's own interval makes of that: standard
    deviations as shares of their middle."""

    between: float
    within: float


def apart(of: "Profile", device: str) -> list[Apart]:
    """Of each of a device's trainings that were taken in several processes. An interval of 95 % counts as of a normal number,
    which takes more for a process's own noise than the few repeats behind it make."""
    found = []
    for m in of.trainings:
        each = costs.processes(m) if m.device == device else []
        steps = [c.step for part in each if (c := costs.costs(part))]
        if len(steps) > 1 and (middle := statistics.median(e.value for e in steps)) > 0:
            own = statistics.fmean(((e.high - e.low) / 2 / _NORMAL_95) ** 2 for e in steps)
            found.append(Apart(statistics.stdev(e.value for e in steps) / middle, math.sqrt(own) / middle))
    return found


def summaries(cases: Iterable[Case], of: "Profile") -> list[Summary]:
    """A Summary for each device and bound, then for each device altogether; none of a group in which no step is told well."""
    cases, found = list(cases), []
    for device in dict.fromkeys(c.device for c in cases):
        for bound in (OVERHEAD, WORK, "all"):
            group = [c for c in cases if c.device == device and bound in ("all", c.bound)]
            if any(c.seen.told for c in group):
                found.append(_summary(group, bound, noise_floor(of, device)))
    return found


def _summary(every: list[Case], bound: str, floor: float | None) -> Summary:
    group = [c for c in every if c.seen.told]
    errors = [c.error for c in group]
    all_errors = [c.error if c.seen.told else c.beyond for c in every]
    counted = [0.0 if floor and e < 2 * floor else e for e in errors]
    named = {
        name: [off(c.baselines[name], c.seen.step.value) for c in group if name in c.baselines] for name in BASELINES
    }
    return Summary(
        group[0].device,
        bound,
        len(group),
        len({c.seen.row.problem.model for c in group}),
        statistics.median(errors),
        statistics.fmean(errors),
        floor,
        (statistics.median(counted), statistics.fmean(counted)),
        len(every) - len(group),
        (statistics.median(all_errors), statistics.fmean(all_errors)),
        statistics.fmean(c.held for c in every),
        {n: statistics.median(e) for n, e in named.items() if e},
    )
