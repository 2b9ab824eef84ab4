"""Fits the few numbers of a Calibration on a profile's trainings of other models than the one that is predicted."""

import collections
import math
from collections.abc import Set

import msgspec
import numpy as np

from analysis.predict.components import FIT, Components, components, execution_of
from analysis.predict.profile import COMPILED, OP_BY_OP, Profile, cached_in_profile
from analysis.predict.step_parts import OVERHEAD, WORK, bound_of
from analysis.predict.step_time import UNFITTED, Calibration, calibrated_parts, stacked, step_seconds, uncalibrated
from analysis.stats import Estimate, group_by, median
from analysis.training import costs
from kernels import networks
from workloads.records import Measurement, Settings, settings

#: Steps noisier than this are excluded from the fit.
NOISY = 0.25
#: The fields of a Calibration that are fitted.
FACTORS = ("dispatch", "launches", "work")
# Prior standard deviations of the logarithms of FACTORS. A CPU's operations were timed in TensorFlow; a GPU's launches are
# CuPy's kernels, which stand for those of TensorFlow's executables.
_DEVIATIONS_ON_CPU = (0.1, 0.25, 0.1)
_DEVIATIONS_ON_GPU = (0.1, 1.0, 0.1)
# Relative error assumed of one training: about what a prediction without any fit is wrong by.
_ERROR = 0.25
#: Share of new models whose step is to lie in its interval.
NOMINAL = 0.9
#: Models with steps of one bound whose residuals alone give the interval of such a step; of fewer those of all steps do.
FEWEST_ALIKE = 20
#: Models of which the largest residual is the one of NOMINAL: 9, as 9 / (9 + 1) is 0.9. Fewer give no interval by themselves.
FEWEST_MODELS = math.ceil(NOMINAL / (1 - NOMINAL) - 1e-9)


class Residual(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a training's step when it is predicted with a calibration from the trainings of other models."""

    model: str
    #: OVERHEAD or WORK: what most of the predicted step is.
    bound: str
    #: |log(measured / predicted)|.
    error: float


class TimedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """A measured training whose step is known."""

    row: Measurement
    #: Seconds of a warm step.
    step: Estimate
    #: What the profile has of its step's parts.
    components: Components

    @property
    def model(self) -> str:
        return self.row.problem.model

    @property
    def mode(self) -> tuple[str, str]:
        """(device, execution). Trainings of one mode share a calibration."""
        return (self.row.device, self.components.execution)

    @property
    def key(self) -> tuple[str, int, str, str]:
        """(model, batch, device, execution)."""
        return (self.model, self.row.problem.batch, *self.mode)

    @property
    def is_fittable(self) -> bool:
        """Whether the step is known well enough to fit numbers to it."""
        return self.step.noise <= NOISY


@cached_in_profile
def timed_trainings(profile: Profile) -> tuple[TimedTraining, ...]:
    """The profile's trainings by Keras's fit whose step is known, with the predicted parts of the step. Rows with the same step,
    which differ in samples, epochs or a type that fit casts, count once: the least noisy one."""
    quietest: dict[tuple, TimedTraining] = {}
    for row in profile.trainings:
        training = _timed_training(row, profile)
        if training is None:
            continue
        step_key = (training.key, training.components.options)
        current = quietest.get(step_key)
        if current is None or training.step.noise < current.step.noise:
            quietest[step_key] = training
    return tuple(quietest.values())


def _timed_training(row: Measurement, profile: Profile) -> TimedTraining | None:
    """A measured training with its step and the predicted parts; None if a calibration cannot use it: the model is unknown, the
    step was not measured, or the profile has no rows for one of its parts."""
    network = networks.known(row.problem.model)
    if network is None or not _is_ordinary_fit(row):
        return None
    cost = costs.measured(row)
    if cost is None or cost.step.value <= 0 or cost.step.low <= 0:
        return None
    parts = components(row.problem, row.settings, profile, network)
    if parts.lacking:
        return None
    return TimedTraining(row=row, step=cost.step, components=parts)


def _is_ordinary_fit(row: Measurement) -> bool:
    """Whether a row is a training by Keras's fit on TensorFlow, in a warm process, alone on the machine, with the default threads
    and no environment variables."""
    chosen = row.settings
    if row.kernel != FIT or chosen.keras.keras_backend != "tensorflow" or chosen.variables:
        return False
    return settings.ordinary(row) and chosen.process == "warm" and not chosen.threads


def calibration(profile: Profile, chosen: Settings, leaving_out: Set[str] = frozenset()) -> Calibration:
    """The factors that make predicted steps agree best with the profile's measured trainings, for the device and execution
    (compiled or op by op) of the settings. Trainings of the models in `leaving_out` do not count."""
    return _fit(profile, chosen.device, execution_of(chosen), frozenset(leaving_out))


@cached_in_profile
def _fit(profile: Profile, device: str, execution: str, leaving_out: frozenset[str]) -> Calibration:
    """`calibration` with arguments that can be cached."""
    trainings = _others(profile, device, execution, leaving_out)
    fittable = [training for training in trainings if training.is_fittable]
    return msgspec.structs.replace(
        _with_factors(fittable),
        spreads=_spreads(_residuals_for(profile, device, execution, leaving_out)),
        compile_s=_compilation_s(trainings),
        build_s=_building_s(trainings),
        models=tuple(dict.fromkeys(training.model for training in fittable)),
    )


def _others(profile: Profile, device: str, execution: str, leaving_out: Set[str]) -> list[TimedTraining]:
    """The profile's trainings on that device with that execution, without the models in `leaving_out`."""
    others = []
    for training in timed_trainings(profile):
        if training.mode == (device, execution) and training.model not in leaving_out:
            others.append(training)
    return others


# ---------------------------------------------------------------- factors


def _with_factors(trainings: list[TimedTraining]) -> Calibration:
    """A calibration with FACTORS fitted to the trainings; without trainings, its factors are 1. Trainings of a single model are
    enough, as a prior holds the factors near 1."""
    if not trainings:
        return Calibration()
    return _calibration(_solved(trainings))


def _calibration(factors: np.ndarray) -> Calibration:
    """A calibration with these values of FACTORS, in their order."""
    dispatch, launches, work = factors.tolist()
    return Calibration(dispatch=dispatch, launches=launches, work=work)


def _solved(trainings: list[TimedTraining]) -> np.ndarray:
    """FACTORS by least squares of log(predicted / measured step) and of the factors' own logarithms (a prior that they are 1).
    All trainings are of one device and execution; each model weighs the same, however many trainings it has."""
    from scipy.optimize import least_squares

    steps = stacked(uncalibrated(training.components) for training in trainings)
    measured_s = np.array([training.step.value for training in trainings])
    trainings_by_model = collections.Counter(training.model for training in trainings)
    weights = np.array([trainings_by_model[training.model] ** -0.5 for training in trainings]) / _ERROR
    on_gpu = trainings[0].components.on_gpu
    deviations = np.array(_DEVIATIONS_ON_GPU if on_gpu else _DEVIATIONS_ON_CPU)

    def residuals(log_factors: np.ndarray) -> np.ndarray:
        """What is squared and summed: called by least_squares with each trial of the factors' logarithms."""
        predicted_s = step_seconds(steps, _calibration(np.exp(log_factors)))
        log_errors = np.log(predicted_s / measured_s)
        return np.concatenate([weights * log_errors, log_factors / deviations])

    solution = least_squares(residuals, np.zeros(len(FACTORS)), bounds=(-4.0, 4.0), loss="soft_l1")
    return np.exp(solution.x)


# ---------------------------------------------------------------- the interval


def _residuals_for(profile: Profile, device: str, execution: str, leaving_out: frozenset[str]) -> list[Residual]:
    """The errors from which the interval of a predicted step is taken: of the trainings on that device with that execution, and
    if these are of fewer than FEWEST_MODELS models, also of those with the other execution."""
    residuals = _residuals(profile, device, execution, leaving_out)
    if len({residual.model for residual in residuals}) >= FEWEST_MODELS:
        return residuals
    other = OP_BY_OP if execution == COMPILED else COMPILED
    return [*residuals, *_residuals(profile, device, other, leaving_out)]


@cached_in_profile
def _residuals(profile: Profile, device: str, execution: str, leaving_out: frozenset[str]) -> list[Residual]:
    """The errors of the trainings on a device with an execution, each predicted with factors that were fitted without its
    model."""
    trainings = [one for one in _others(profile, device, execution, leaving_out) if one.is_fittable]
    residuals = []
    for model, same_model in group_by(trainings, lambda training: training.model).items():
        fitted = _with_factors([training for training in trainings if training.model != model])
        for training in same_model:
            parts = calibrated_parts(training.components, fitted)
            predicted_s = sum(part.value for part in parts.values())
            error = abs(math.log(training.step.value / predicted_s))
            residuals.append(Residual(model=model, bound=bound_of(parts), error=error))
    return residuals


def _spreads(residuals: list[Residual]) -> dict[str, float]:
    """OVERHEAD or WORK -> the relative error within which the step of a new model lies with probability NOMINAL, if that is most
    of the step; {} without residuals.

    The errors of steps with the same bound count if they are of FEWEST_ALIKE models, else all errors. With fewer than
    FEWEST_MODELS models it is at least UNFITTED.
    """
    if not residuals:
        return {}
    enough_models = len({residual.model for residual in residuals}) >= FEWEST_MODELS
    least = 0.0 if enough_models else UNFITTED
    spreads = {}
    for bound in (OVERHEAD, WORK):
        alike = [residual for residual in residuals if residual.bound == bound]
        enough_alike = len({residual.model for residual in alike}) >= FEWEST_ALIKE
        log_error = _quantile(alike if enough_alike else residuals)
        spreads[bound] = max(least, math.expm1(log_error))
    return spreads


def _quantile(residuals: list[Residual]) -> float:
    """The error (a logarithm) within which a new model lies with probability NOMINAL. All trainings of one model weigh as one. As
    the new model is as likely as the others to be the worst, it is the error at rank NOMINAL (n + 1) among n models; the
    largest error if there are too few.

    Source: R. Barber, E. Candes, A. Ramdas, R. Tibshirani, Predictive inference with the jackknife+.
    """
    trainings_by_model = collections.Counter(residual.model for residual in residuals)
    wanted_rank = NOMINAL * (len(trainings_by_model) + 1)
    rank = 0.0
    for residual in sorted(residuals, key=lambda residual: residual.error):
        rank += 1 / trainings_by_model[residual.model]
        if rank >= wanted_rank:
            return residual.error
    return max(residual.error for residual in residuals)


# ---------------------------------------------------------------- what happens once


def _building_s(trainings: list[TimedTraining]) -> float:
    """Median seconds of building a model; 0 if no training measured it."""
    seconds = [training.row.phases_s["build"] for training in trainings if "build" in training.row.phases_s]
    return median(seconds).value if seconds else 0.0


def _compilation_s(trainings: list[TimedTraining]) -> float | None:
    """Seconds of a compilation over `Components.traced`, the measure of what is compiled: the median over models, each by the
    median of its trainings. None if no training measured a compilation."""
    by_model: dict[str, list[float]] = {}
    for training in trainings:
        compile_s = training.row.phases_s.get("compile", 0)
        if compile_s > 0 and training.components.traced:
            by_model.setdefault(training.model, []).append(compile_s / training.components.traced)
    if not by_model:
        return None
    return median([median(seconds).value for seconds in by_model.values()]).value
