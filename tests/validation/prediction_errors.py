"""How far predictions of training steps are off: each measured training predicted with its model left out of the calibration,
next to simpler predictions; and saved predictions next to the steps that were measured later.

Sentences and tables are in tests/validation/error_tables.py.
"""

import pathlib
import statistics
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis.predict import calibration, prediction
from analysis.predict.calibration import TimedTraining
from analysis.predict.components import FIT, execution_of
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Lacking, Profile
from analysis.predict.saved_predictions import CheckedPrediction, checked, load, relative_error, training_of
from analysis.predict.step_parts import ISSUING, OVERHEAD, WORK, total_of
from analysis.stats import Estimate, group_by, least_squares
from kernels import networks
from kernels.networks import Network
from kernels.problems import Conv, Matmul
from workloads.records import Measurement

#: When measured trainings last decided a rule or what is fitted: trainings that were first measured later test the rules.
#: Laws of the input pipeline are fitted to rows of their own.
RULES_CHANGED = "2026-11-29T00:30:00Z"
#: Note of a training that was measured again: the `at` of its first row, where no file has that row any more.
FIRST_MEASURED = "first_measured"
#: Simpler predictions: the median of the other trainings' steps, and two straight lines.
CONSTANT = "constant"
LINE = "a + b FLOPs + c launches"
BYTES = "a + b FLOPs + c launches + d batch bytes"
BASELINES = (CONSTANT, LINE, BYTES)
#: A summary of the steps of both bounds.
ALL = "all"
_FEWEST_FOR_A_LINE = 3

#: (model, batch, device, execution).
TrainingKey = tuple[str, int, str, str]
#: 1, FLOPs, launches and bytes of a step: the terms of the straight lines.
Features = tuple[float, float, float, float]


class GradedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A measured step, predicted with its model left out of the calibration."""

    measured: TimedTraining
    predicted: Prediction
    #: OVERHEAD or WORK, whichever is most of the measured step.
    bound: str
    #: A name of BASELINES -> seconds of the step by it; without those for which the other trainings are too few.
    baselines: dict[str, float]

    @property
    def model(self) -> str:
        return self.measured.model

    @property
    def device(self) -> str:
        return self.measured.row.device

    @property
    def seconds(self) -> Estimate:
        """The predicted step."""
        return self.predicted.step_s

    @property
    def error(self) -> float:
        """Relative error of the step."""
        return relative_error(self.seconds.value, self.measured.step.value)

    @property
    def is_covered(self) -> bool:
        """Whether the measured step lies in the predicted interval."""
        return is_covered(self.predicted, self.measured)


def is_covered(predicted: Prediction, measured: TimedTraining) -> bool:
    """Whether a measured step lies in the predicted interval."""
    return predicted.step_s.low <= measured.step.value <= predicted.step_s.high


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of a device's steps. Every step counts in full, however noisy it was measured."""

    device: str
    #: OVERHEAD, WORK or ALL.
    bound: str
    steps: int
    models: int
    #: Median error.
    median: float
    #: Mean error.
    mean: float
    #: Share of the measured steps that lie in the predicted interval.
    covered: float
    #: A name of BASELINES -> its median error.
    baselines: dict[str, float]


def leave_one_out(profile: Profile) -> list[GradedStep]:
    """Every training of the profile with a known step, predicted with all trainings of its model left out."""
    trainings = calibration.timed_trainings(profile)
    fittable = [training for training in trainings if training.is_fittable]
    steps = []
    for training in trainings:
        predicted = prediction.predict(training.row.problem, training.row.settings, profile)
        overhead_s = total_of(predicted.parts, ISSUING).value
        step = GradedStep(
            measured=training,
            predicted=predicted,
            bound=OVERHEAD if overhead_s > training.step.value / 2 else WORK,
            baselines=baselines(training, others_alike(training, fittable)),
        )
        steps.append(step)
    return steps


def summaries(steps: Iterable[GradedStep]) -> list[Summary]:
    """A summary for each device and bound, and one for each device altogether."""
    every = []
    for device, of_device in group_by(steps, lambda step: step.device).items():
        for bound in (OVERHEAD, WORK, ALL):
            chosen = [step for step in of_device if bound in (ALL, step.bound)]
            if chosen:
                every.append(_summary(device, bound, chosen))
    return every


def _summary(device: str, bound: str, steps: list[GradedStep]) -> Summary:
    errors = [step.error for step in steps]
    baseline_errors: dict[str, list[float]] = {}
    for step in steps:
        for name, seconds in step.baselines.items():
            error = relative_error(seconds, step.measured.step.value)
            baseline_errors.setdefault(name, []).append(error)
    return Summary(
        device=device,
        bound=bound,
        steps=len(steps),
        models=len({step.model for step in steps}),
        median=statistics.median(errors),
        mean=statistics.fmean(errors),
        covered=statistics.fmean(step.is_covered for step in steps),
        baselines={name: statistics.median(errors) for name, errors in baseline_errors.items()},
    )


# ---------------------------------------------------------------- nothing known of the model


def strictly(steps: Iterable[GradedStep], profile: Profile) -> list[GradedStep]:
    """The steps predicted again with nothing known of their model: without rows of products and convolutions of its layers' sizes
    at any batch, and without trainings of its twins (the same layers and optimizer under another name). Steps that cannot be
    predicted so are left out."""
    names = {training.model for training in calibration.timed_trainings(profile)}
    predicted_again = []
    for model, of_model in group_by(steps, lambda step: step.model).items():
        reduced = Profile(_rows_without_layers_of(model, profile), profile.machine)
        twins = {name for name in names if _structure(name) == _structure(model)}
        for step in of_model:
            training = step.measured.row
            fitted = calibration.calibration(profile, training.settings, leaving_out=twins)
            try:
                predicted = prediction.predict(training.problem, training.settings, reduced, fitted=fitted)
            except Lacking:
                continue
            predicted_again.append(msgspec.structs.replace(step, predicted=predicted))
    return predicted_again


def _rows_without_layers_of(model: str, profile: Profile) -> list[Measurement]:
    """The rows of a profile that are no product or convolution of a model's layers."""
    shapes = layer_shapes(model)
    rows = []
    for row in profile.measurements:
        is_layer = isinstance(row.problem, Matmul | Conv) and has_a_shape_of(row.problem, shapes)
        if not is_layer:
            rows.append(row)
    return rows


def layer_products(model: str, batch: int) -> list[Matmul | Conv]:
    """The products and convolutions of a model's training step."""
    works = networks.step(networks.find(model), batch)
    return [work.problem for work in works if isinstance(work.problem, Matmul | Conv)]


def _sizes(problem: Matmul | Conv) -> tuple:
    """The sizes of a problem, without its arithmetic and layout."""
    if isinstance(problem, Matmul):
        return (problem.m, problem.n, problem.k)
    return (
        problem.n,
        problem.p,
        problem.q,
        problem.c_in,
        problem.c_out,
        problem.r,
        problem.s,
        problem.stride,
        problem.groups,
        problem.direction,
    )


def layer_shapes(model: str) -> set[tuple]:
    """The sizes of the products and convolutions in a model's training. None stands for the batch: the sizes that differ between
    two batches."""
    shapes = set()
    for one, other in zip(layer_products(model, 7), layer_products(model, 11), strict=True):
        pairs = zip(_sizes(one), _sizes(other), strict=True)
        shapes.add(tuple(size if size == other_size else None for size, other_size in pairs))
    return shapes


def has_a_shape_of(problem: Matmul | Conv, shapes: set[tuple]) -> bool:
    """Whether a problem has the sizes of one of these shapes, at any batch."""
    sizes = _sizes(problem)
    for shape in shapes:
        if len(shape) != len(sizes):
            continue
        if all(wanted in (None, size) for wanted, size in zip(shape, sizes, strict=True)):
            return True
    return False


def _structure(model: str) -> tuple:
    """The optimizer and the sizes of a model's products; equal for two models that are one under two names."""
    sizes = [_sizes(problem) for problem in layer_products(model, 1)]
    return (networks.find(model).optimizer, sizes)


# ---------------------------------------------------------------- when it was measured


def first_measured(profile: Profile) -> dict[TrainingKey, str]:
    """When each training with Keras's fit was measured first."""
    first: dict[TrainingKey, str] = {}
    for row in (*profile.replaced, *profile.trainings):
        if row.kernel != FIT or not row.ok:
            continue
        key = (row.problem.model, row.problem.batch, row.device, execution_of(row.settings))
        at = row.notes.get(FIRST_MEASURED, row.at)
        first[key] = min(first.get(key, at), at)
    return first


def measured_since_rules_changed(steps: Iterable[GradedStep], profile: Profile) -> list[GradedStep]:
    """The steps whose training was first measured after RULES_CHANGED."""
    at = first_measured(profile)
    return [step for step in steps if at[step.measured.key] > RULES_CHANGED]


def fitted_numbers(profile: Profile) -> int:
    """How many numbers the calibrations of a profile's devices and executions are fitted to altogether."""
    numbers = 0
    for training in group_by(calibration.timed_trainings(profile), lambda training: training.mode).values():
        fitted = calibration.calibration(profile, training[0].row.settings)
        if fitted.models:
            numbers += len(calibration.FACTORS)
    return numbers


# ---------------------------------------------------------------- simpler predictions


def others_alike(training: TimedTraining, trainings: Iterable[TimedTraining]) -> list[TimedTraining]:
    """The trainings of other models on the same device, run the same way."""
    model = training.model
    return [other for other in trainings if other.mode == training.mode and other.model != model]


def baselines(training: TimedTraining, others: list[TimedTraining]) -> dict[str, float]:
    """A name of BASELINES -> seconds of a step, fitted on other models' trainings."""
    if not others:
        return {}
    seconds = {CONSTANT: statistics.median(other.step.value for other in others)}
    if len(others) >= _FEWEST_FOR_A_LINE:
        points = [(_features(other), other.step.value) for other in others]
        seconds[LINE] = line(_features(training), points, terms=3)
        seconds[BYTES] = line(_features(training), points, terms=4)
    return seconds


def line(features: Features, points: list[tuple[Features, float]], terms: int = 4) -> float:
    """Seconds of a step by a straight line without negative coefficients, fitted by least squares of the relative errors.

    points: features and seconds of the trainings that it is fitted to. terms: how many features count, from the first on.
    """
    columns = np.array([point_features[:terms] for point_features, _ in points])
    coefficients = least_squares(columns, np.array([seconds for _, seconds in points]))
    return float(coefficients @ np.array(features[:terms]))


def _features(training: TimedTraining) -> Features:
    problem = training.row.problem
    batch = min(problem.batch, problem.samples)
    return features_of_step(networks.find(problem.model), batch, training.components.kernels)


def features_of_step(network: Network, batch: int, launches: int) -> Features:
    """1, FLOPs, launches and bytes of a step."""
    flops = batch * networks.training_flops(network)
    nbytes = batch * networks.sample_bytes(network)
    return (1.0, float(flops), float(launches), float(nbytes))


# ---------------------------------------------------------------- saved predictions


class SavedSet(msgspec.Struct, frozen=True, kw_only=True):
    """Saved predictions whose steps were measured."""

    #: How many had been measured before they were saved: they do not count.
    before: int
    #: Device -> the predictions that were measured since.
    since: dict[str, list[CheckedPrediction]]


class SavedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions of a device that were saved before their steps were measured, next to a straight line that was fitted on the
    other models' trainings, those measured later too. Errors are relative."""

    device: str
    #: Predicted steps that were measured since.
    steps: int
    #: Median error of the predictions.
    median: float
    #: Mean error of the predictions.
    mean: float
    #: Share of the measured steps that lie in the predicted interval.
    covered: float
    #: LINE or BYTES, whichever has the smaller median error. "" where too few trainings fit one.
    line: str = ""
    #: Median error of the line.
    line_median: float = 0.0
    #: Mean error of the line.
    line_mean: float = 0.0
    #: Steps of which the prediction is nearer than the line.
    nearer: int = 0


def saved_sets(folder: pathlib.Path) -> dict[str, list[Prediction]]:
    """Name -> the predictions of each `predictions-NAME.ndjson` in a folder, by name."""
    files = sorted(folder.glob("predictions-*.ndjson"), key=lambda file: file.stem)
    return {file.stem.removeprefix("predictions-"): load(str(file)) for file in files}


def saved_set(predictions: list[Prediction], profile: Profile) -> SavedSet:
    """The saved predictions whose steps were measured before and since."""
    at = first_measured(profile)
    before = 0
    since = []
    for one in checked(predictions, profile):
        if one.measured is None:
            continue
        saved_at = one.prediction.saved_at
        if saved_at and at[training_of(one.prediction)] < saved_at:
            before += 1
        else:
            since.append(one)
    return SavedSet(before=before, since=group_by(since, lambda one: one.prediction.settings.device))


def saved_summaries(sets: Iterable[list[Prediction]], profile: Profile) -> list[SavedSummary]:
    """A summary for each device, of all sets of saved predictions together."""
    by_device: dict[str, list[CheckedPrediction]] = {}
    for predictions in sets:
        for device, since in saved_set(predictions, profile).since.items():
            by_device.setdefault(device, []).extend(since)
    fittable = [training for training in calibration.timed_trainings(profile) if training.is_fittable]
    return [_saved_summary(device, by_device[device], fittable) for device in sorted(by_device)]


def _saved_summary(device: str, every: list[CheckedPrediction], fittable: list[TimedTraining]) -> SavedSummary:
    errors = [one.error for one in every]
    summary = SavedSummary(
        device=device,
        steps=len(every),
        median=statistics.median(errors),
        mean=statistics.fmean(errors),
        covered=statistics.fmean(is_covered(one.prediction, one.measured) for one in every),
    )
    line_errors = _line_errors([one.measured for one in every], fittable)
    if not line_errors:
        return summary
    line = min(line_errors, key=lambda name: statistics.median(line_errors[name]))
    return msgspec.structs.replace(
        summary,
        line=line,
        line_median=statistics.median(line_errors[line]),
        line_mean=statistics.fmean(line_errors[line]),
        nearer=sum(error < other for error, other in zip(errors, line_errors[line], strict=True)),
    )


def _line_errors(trainings: list[TimedTraining], fittable: list[TimedTraining]) -> dict[str, list[float]]:
    """LINE and BYTES -> the error of each training's step by that line; without a line that some training has not."""
    errors: dict[str, list[float]] = {LINE: [], BYTES: []}
    for training in trainings:
        seconds = baselines(training, others_alike(training, fittable))
        for name, line_errors in errors.items():
            if name in seconds:
                line_errors.append(relative_error(seconds[name], training.step.value))
    return {name: line_errors for name, line_errors in errors.items() if len(line_errors) == len(trainings)}
