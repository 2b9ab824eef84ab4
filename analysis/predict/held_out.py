"""Prediction errors: each measured training predicted from the profile with its model left out, beside simpler predictions.
Sentences and tables are in analysis.text.prediction_errors.
"""

import statistics
from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec.structs import replace

from analysis.predict import calibration
from analysis.predict.calibration import Seen
from analysis.predict.combine import ISSUING, OVERHEAD, WORK, total_of
from analysis.predict.components import FIT, execution_of
from analysis.predict.prediction import Prediction, distinct, predict
from analysis.predict.profile import Lacking, Profile
from analysis.predict.step_work import RULES_CHANGED
from analysis.stats import Estimate, group_by, least_squares
from kernels import networks
from kernels.networks import Network
from kernels.problems import Conv, Matmul
from workloads.records import FIRST_MEASURED

CONSTANT, LINE, BYTES = BASELINES = ("constant", "a + b FLOPs + c launches", "a + b FLOPs + c launches + d batch bytes")


class Case(msgspec.Struct, frozen=True):
    """One training predicted without rows of its model. bound: OVERHEAD or WORK, whichever is most of the step. baselines: name
    -> seconds by a simpler prediction."""

    seen: "Seen"
    predicted: Prediction
    bound: str
    baselines: dict[str, float]

    @property
    def device(self) -> str:
        return self.seen.row.device

    @property
    def seconds(self) -> Estimate:
        """The predicted step."""
        return self.predicted.step_s

    @property
    def error(self) -> float:
        """Relative error of the step."""
        return off(self.seconds.value, self.seen.step.value)

    @property
    def held(self) -> bool:
        """Whether the measured step lies in the predicted interval."""
        return self.seconds.low <= self.seen.step.value <= self.seconds.high


class Summary(msgspec.Struct, frozen=True):
    """The errors of a device's cases of one bound, each in full however noisy its measured step. covered: the share of measured
    steps inside the predicted interval. baselines: name -> the median error of a simpler prediction."""

    device: str
    bound: str
    cases: int
    models: int
    median: float
    mean: float
    covered: float
    baselines: dict[str, float]


def off(predicted: float, measured: float) -> float:
    """The relative error |predicted / measured - 1|."""
    return abs(predicted / measured - 1)


def leave_one_out(of: "Profile") -> list[Case]:
    """A case for every training of the profile with a known step, predicted with all trainings of its model left out."""
    seen = calibration.steps_seen(of)
    told = [s for s in seen if s.told]
    found = []
    for s in seen:
        made = predict(s.row.problem, s.row.settings, of)
        floor = total_of(made.parts, ISSUING).value
        model = s.row.problem.model
        others = [o for o in told if o.way == s.way and o.row.problem.model != model]  # run alike
        bound = OVERHEAD if floor > s.step.value / 2 else WORK
        found.append(Case(s, made, bound, baselines(s, others)))
    return found


def strictly(cases: Iterable[Case], of: "Profile") -> list[Case]:
    """The cases predicted again with nothing known of their model: without rows of products and convolutions of its layers'
    shapes at any batch, and without trainings of its twins (the same layers and optimizer under another name). Cases that
    cannot be predicted so are left out."""
    found = []
    names = {s.row.problem.model for s in calibration.steps_seen(of)}
    for model, group in group_by(cases, lambda c: c.seen.row.problem.model).items():
        own = _shapes(model)
        rows = (m for m in of.measurements if not (isinstance(m.problem, Matmul | Conv) and _among(m.problem, own)))
        reduced = Profile(rows, of.machine)
        alike = {name for name in names if _structure(name) == _structure(model)}
        for c in group:
            row = c.seen.row
            fitted = calibration.calibration(of, row.settings, leaving_out=alike)
            try:
                made = predict(row.problem, row.settings, reduced, fitted=fitted)
            except Lacking:
                continue
            found.append(replace(c, predicted=made))
    return found


def _products(model: str, batch: int) -> list[Matmul | Conv]:
    works = networks.step(networks.find(model), batch)
    return [w.problem for w in works if isinstance(w.problem, Matmul | Conv)]


def _sizes(p: Matmul | Conv) -> tuple:
    """The sizes of a problem, without its arithmetic and layout."""
    if isinstance(p, Matmul):
        return p.m, p.n, p.k
    return p.n, p.p, p.q, p.c_in, p.c_out, p.r, p.s, p.stride, p.groups, p.direction


def _shapes(model: str) -> set[tuple]:
    """The sizes of a model's products and convolutions in training; None stands for the batch and matches any."""
    pairs = zip(_products(model, 7), _products(model, 11), strict=True)
    return {tuple(a if a == b else None for a, b in zip(_sizes(p), _sizes(q), strict=True)) for p, q in pairs}


def _among(problem: Matmul | Conv, shapes: set[tuple]) -> bool:
    sizes = _sizes(problem)
    fixed = (zip(sizes, shape, strict=True) for shape in shapes if len(shape) == len(sizes))
    return any(all(want in (None, size) for size, want in pairs) for pairs in fixed)


def _structure(model: str) -> tuple:
    """The optimizer and the products' sizes of a model; equal for two models that are one under two names."""
    return networks.find(model).optimizer, tuple(map(_sizes, _products(model, 1)))


def first_measured(of: "Profile") -> dict[tuple, str]:
    """(model, batch, device, execution) -> when a training with Keras's fit was measured first."""
    found: dict[tuple, str] = {}
    for m in (*of.replaced, *of.trainings):
        if m.kernel == FIT and m.ok:
            key = m.problem.model, m.problem.batch, m.device, execution_of(m.settings)
            at = m.notes.get(FIRST_MEASURED, m.at)
            found[key] = min(found.get(key, at), at)
    return found


def unseen(cases: Iterable[Case], of: "Profile") -> list[Case]:
    """The cases whose training was first measured after RULES_CHANGED, when trainings last shaped a rule."""
    at = first_measured(of)
    return [c for c in cases if at[c.seen.training] > RULES_CHANGED]


def training_of(p: Prediction) -> tuple:
    """(model, batch, device, execution) of a prediction."""
    return p.training.model, p.training.batch, p.settings.device, p.execution


def baselines(seen: "Seen", others: "list[Seen]") -> dict[str, float]:
    """Name -> predicted seconds of a step by simpler models, fitted on the other models' trainings."""
    every = [(_features(s), s.step.value) for s in others]
    predicted = {}
    if every:
        predicted[CONSTANT] = statistics.median(seconds for _, seconds in every)
    if len(every) >= 3:
        predicted[LINE] = line(_features(seen), every, 3)
        predicted[BYTES] = line(_features(seen), every, 4)
    return predicted


Features = tuple[float, float, float, float]


def line(features: Features, trainings: list[tuple[Features, float]], terms: int = 4) -> float:
    """Seconds by a + b FLOPs + c launches (+ d bytes of a batch), none negative, by the least squares of the relative errors.

    trainings: features and seconds of each.
    """
    columns = np.array([every[:terms] for every, _ in trainings])
    coefficients = least_squares(columns, np.array([seconds for _, seconds in trainings]))
    return float(coefficients @ np.array(features[:terms]))


def _features(seen: "Seen") -> Features:
    problem = seen.row.problem
    return features_of_step(networks.find(problem.model), min(problem.batch, problem.samples), seen.made.kernels)


def features_of_step(network: Network, batch: int, launches: int) -> Features:
    """1, and what the straight lines have terms for: FLOPs, launches and bytes of a step."""
    flops, nbytes = batch * networks.training_flops(network), batch * networks.sample_bytes(network)
    return 1.0, float(flops), float(launches), float(nbytes)


def summaries(cases: Iterable[Case]) -> list[Summary]:
    """A Summary for each device and bound, then for each device altogether."""
    cases, found = list(cases), []
    for device in dict.fromkeys(c.device for c in cases):
        for bound in (OVERHEAD, WORK, "all"):
            if group := [c for c in cases if c.device == device and bound in ("all", c.bound)]:
                found.append(_summary(group, bound))
    return found


def _summary(group: list[Case], bound: str) -> Summary:
    errors = [c.error for c in group]
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
        statistics.fmean(c.held for c in group),
        {n: statistics.median(e) for n, e in named.items() if e},
    )


# ---------------------------------------------------------------- saved predictions


class Saved(msgspec.Struct, frozen=True):
    """Saved predictions beside measurements: how many had been measured before they were saved, and device -> (prediction,
    measured step) of those measured since."""

    before: int
    since: "dict[str, list[tuple[Prediction, Seen]]]"


def with_measured(predictions: Iterable[Prediction], of: "Profile") -> "list[tuple[Prediction, Seen | None]]":
    """Each prediction once, with the measured step of its training, that with the fewest non-default options; None without
    one."""
    seen = sorted(calibration.steps_seen(of), key=lambda s: len(s.made.given), reverse=True)
    rows = {s.training: s for s in seen}
    return [(p, rows.get(training_of(p))) for p in distinct(predictions)]


def saved_set(predictions: list[Prediction], of: "Profile") -> Saved:
    """Saved predictions beside the steps that were measured since."""
    at = first_measured(of)
    found = [(p, seen) for p, seen in with_measured(predictions, of) if seen]
    since = [pair for pair in found if not pair[0].saved_at or at[training_of(pair[0])] >= pair[0].saved_at]
    return Saved(len(found) - len(since), group_by(since, lambda pair: pair[0].settings.device))


class SavedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions of a device that were saved before their steps were measured, beside a straight line fitted on the other
    models' trainings, those measured later too. Errors are relative."""

    device: str
    #: Predicted steps that were measured since.
    steps: int
    #: Median error of the predictions.
    median: float
    #: Mean error of the predictions.
    mean: float
    #: Share of the measured steps that lie in the predicted interval.
    covered: float
    #: What the line has terms for: LINE or BYTES, whichever has the smaller median error. "" where too few trainings fit one.
    line: str = ""
    #: Median error of the line.
    line_median: float = 0.0
    #: Mean error of the line.
    line_mean: float = 0.0
    #: Steps of which the prediction is nearer than the line.
    nearer: int = 0


def saved_summaries(sets: Iterable[list[Prediction]], profile: "Profile") -> list[SavedSummary]:
    """A summary for each device, of all sets of saved predictions together."""
    pairs: dict[str, list[tuple[Prediction, Seen]]] = {}
    for predictions in sets:
        for device, since in saved_set(predictions, profile).since.items():
            pairs.setdefault(device, []).extend(since)
    steps = [s for s in calibration.steps_seen(profile) if s.told]
    return [_saved_summary(device, pairs[device], steps) for device in sorted(pairs)]


def _saved_summary(device: str, pairs: "list[tuple[Prediction, Seen]]", steps: "list[Seen]") -> SavedSummary:
    errors = [saved_error(p, step) for p, step in pairs]
    inside = 0
    line_errors: dict[str, list[float]] = {LINE: [], BYTES: []}
    for p, step in pairs:
        interval = p.step_s
        inside += interval.low <= step.step.value <= interval.high
        model = step.row.problem.model
        lines = baselines(step, [s for s in steps if s.way == step.way and s.row.problem.model != model])
        for name, values in line_errors.items():
            if name in lines:
                values.append(off(lines[name], step.step.value))
    summary = SavedSummary(
        device=device,
        steps=len(pairs),
        median=statistics.median(errors),
        mean=statistics.fmean(errors),
        covered=inside / len(pairs),
    )
    fitted = {name: values for name, values in line_errors.items() if len(values) == len(pairs)}
    if not fitted:
        return summary
    line = min(fitted, key=lambda name: statistics.median(fitted[name]))
    return replace(
        summary,
        line=line,
        line_median=statistics.median(fitted[line]),
        line_mean=statistics.fmean(fitted[line]),
        nearer=sum(error < other for error, other in zip(errors, fitted[line], strict=True)),
    )


def saved_error(p: Prediction, seen: "Seen") -> float:
    """The relative error of a saved prediction."""
    return off(p.step_s.value, seen.step.value)
