"""Fits the few numbers of a Calibration on a profile's trainings of other models than the one that is predicted."""

import collections
import math
from collections.abc import Set

import msgspec
import numpy as np

from analysis.predict.combine import (
    OVERHEAD,
    UNFITTED,
    WORK,
    Calibration,
    Lanes,
    bound_of,
    combined,
    lanes,
    step_seconds,
)
from analysis.predict.components import FIT, Components, components, execution_of
from analysis.predict.profile import COMPILED, OP_BY_OP, Profile, once
from analysis.stats import Estimate, best_by, group_by, median
from analysis.training import costs
from analysis.units import join
from kernels import networks
from workloads.records import Measurement, Settings
from workloads.records import settings as switches

NOISY = 0.25  # steps noisier than this are excluded from the fit
FACTORS = ("dispatch", "launches", "work")
# Prior standard deviations of the logarithms of FACTORS. A CPU's operations were timed in TensorFlow; a GPU's launches are
# CuPy's kernels, which stand for those of TensorFlow's executables.
_DEVIATIONS_ON_CPU = (0.1, 0.25, 0.1)
_DEVIATIONS_ON_GPU = (0.1, 1.0, 0.1)
# Relative error assumed of one training: about what a prediction without any fit is wrong by.
_ERROR = 0.25
#: Share of new models whose step is to lie in its interval.
NOMINAL = 0.9
#: Models with steps of one bound whose errors alone tell the interval of such a step; of fewer those of all steps do.
FEWEST_ALIKE = 20
#: Models of which the worst error is that of NOMINAL: 9, as 9 / (9 + 1) is 0.9. Fewer errors tell no interval by themselves.
FEWEST_ERRORS = math.ceil(NOMINAL / (1 - NOMINAL) - 1e-9)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """How far a training's step is off that is predicted by trainings of the other models."""

    model: str
    #: OVERHEAD or WORK: what most of the predicted step is.
    bound: str
    #: |log(measured / predicted)|.
    error: float


class Seen(msgspec.Struct, frozen=True):
    """A measured training: its row, seconds of a warm step, and its components."""

    row: "Measurement"
    step: Estimate
    made: Components

    @property
    def way(self) -> tuple[str, str]:
        """(device, execution): each such pair has a calibration of its own."""
        return self.row.device, self.made.execution

    @property
    def training(self) -> tuple[str, int, str, str]:
        """(model, batch, device, execution)."""
        return self.row.problem.model, self.row.problem.batch, *self.way

    @property
    def told(self) -> bool:
        """Whether the noise of the step is at most NOISY, so that numbers may be fitted on it."""
        return self.step.noise <= NOISY


@once
def steps_seen(of_: "Profile") -> tuple[Seen, ...]:
    """The trainings of a profile whose step is known, each with its components; cached. Rows with the same step (they differ in
    samples, epochs, or a type that fit casts) count once: the least noisy one."""
    seen = (s for m in of_.trainings if isinstance(s := _seen(m, of_), Seen))
    return tuple(best_by(seen, lambda s: (s.training, s.made.options), lambda s: s.step.noise).values())


def _seen(m: "Measurement", of_: "Profile") -> Seen | str:
    """The training with its step and components, or the reason why it is left out."""
    network, s = networks.known(m.problem.model), m.settings
    if m.kernel != FIT:
        return "not Keras's fit but a loop of its own"
    if network is None:
        return "a user's own model"
    if s.keras.keras_backend != "tensorflow" or s.variables:
        return "another backend, or TensorFlow with variables set"
    if not switches.ordinary(m) or s.process != "warm" or s.threads:
        return "not a warm training by itself with the usual threads"
    cost = costs.measured(m)
    if cost is None:
        return "no fits beside it that tell a step from an epoch"
    if cost.step.value <= 0 or cost.step.low <= 0:
        return "its noise is more than its step"
    made = components(m.problem, s, of_, network)
    if made.lacking:
        return f"no rows of {join(made.lacking)}"
    return Seen(m, cost.step, made)


def calibration(of_: "Profile", settings: "Settings", leaving_out: Set[str] = frozenset()) -> Calibration:
    """The numbers for a device and execution, from the profile's trainings of all models but those of `leaving_out`."""
    return _fit(of_, settings.device, execution_of(settings), frozenset(leaving_out))


@once
def _fit(of_: "Profile", device: str, execution: str, leaving_out: frozenset[str]) -> Calibration:
    seen = [s for s in steps_seen(of_) if s.row.problem.model not in leaving_out and s.way == (device, execution)]
    built = [s.row.phases_s["build"] for s in seen if "build" in s.row.phases_s]
    once = Calibration(compile_s=_compilations(seen), build_s=median(built).value if built else 0.0)
    others = [s for s in seen if s.told]
    models = tuple(dict.fromkeys(s.row.problem.model for s in others))
    spreads = _spreads(_errors(of_, device, execution, leaving_out))
    return msgspec.structs.replace(once, models=models, spreads=spreads, **_factors(others))


def _factors(trainings: list[Seen]) -> dict[str, float]:
    """The fitted factors; none without trainings. Those of one model are enough: the fit is held to the microbenchmarks."""
    if not trainings:
        return {}
    return dict(zip(FACTORS, _solved(trainings).tolist(), strict=True))


def _errors(profile: "Profile", device: str, execution: str, leaving_out: frozenset[str]) -> list[LeftOut]:
    """The errors that tell the interval of an execution's steps: those of its trainings; of few models also those of the
    device's other execution."""
    errors = _left_out(profile, device, execution, leaving_out)
    if len({error.model for error in errors}) >= FEWEST_ERRORS:
        return errors
    other = OP_BY_OP if execution == COMPILED else COMPILED
    return [*errors, *_left_out(profile, device, other, leaving_out)]


@once
def _left_out(profile: "Profile", device: str, execution: str, leaving_out: frozenset[str]) -> list[LeftOut]:
    """The errors of an execution's trainings, each predicted with its model left out of the fit."""
    trainings = [
        training
        for training in steps_seen(profile)
        if training.told and training.way == (device, execution) and training.row.problem.model not in leaving_out
    ]
    errors = []
    for model, same_model in group_by(trainings, lambda training: training.row.problem.model).items():
        others = [training for training in trainings if training.row.problem.model != model]
        fitted = msgspec.structs.replace(Calibration(), **_factors(others))
        for training in same_model:
            parts = combined(training.made, fitted)
            predicted_s = sum(part.value for part in parts.values())
            error = abs(math.log(training.step.value / predicted_s))
            errors.append(LeftOut(model=model, bound=bound_of(parts), error=error))
    return errors


def _spreads(errors: list[LeftOut]) -> dict[str, float]:
    """OVERHEAD or WORK -> the relative error that NOMINAL of such steps of other models keep; empty without errors. Of fewer than
    FEWEST_ERRORS models it is at least UNFITTED."""
    if not errors:
        return {}
    least = UNFITTED if len({error.model for error in errors}) < FEWEST_ERRORS else 0.0
    spreads = {}
    for bound in (OVERHEAD, WORK):
        alike = [error for error in errors if error.bound == bound]
        enough = len({error.model for error in alike}) >= FEWEST_ALIKE
        error = math.expm1(_quantile(alike if enough else errors))
        spreads[bound] = max(least, error)
    return spreads


def _quantile(errors: list[LeftOut]) -> float:
    """The error that NOMINAL of the models keep, the trainings of each weighing as one: at the place of NOMINAL (n + 1) among n
    models, as the new one is as likely as they to be the worst; the largest where there are too few.

    Source: R. Barber, E. Candes, A. Ramdas, R. Tibshirani, Predictive inference with the jackknife+.
    """
    trainings = collections.Counter(error.model for error in errors)
    place = NOMINAL * (len(trainings) + 1)
    weight = 0.0
    for error in sorted(errors, key=lambda error: error.error):
        weight += 1 / trainings[error.model]
        if weight >= place:
            return error.error
    return max(error.error for error in errors)


def _solved(others: list[Seen]) -> np.ndarray:
    """FACTORS by least squares of log(predicted / measured step), with the same weight for each model."""
    from scipy.optimize import least_squares

    own = Lanes(*np.array([lanes(s.made) for s in others], float).T)
    measured = np.array([s.step.value for s in others])
    counts = collections.Counter(s.row.problem.model for s in others)
    weight = np.array([counts[s.row.problem.model] ** -0.5 for s in others]) / _ERROR

    deviations = np.array(_DEVIATIONS_ON_GPU if others[0].made.on_gpu else _DEVIATIONS_ON_CPU)

    def off(numbers: np.ndarray) -> np.ndarray:
        return np.log(step_seconds(own, *numbers) / measured)

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([weight * off(np.exp(x)), x / deviations])

    found = least_squares(residuals, np.zeros(len(FACTORS)), bounds=(-4.0, 4.0), loss="soft_l1")
    return np.exp(found.x)


def _compilations(others: list[Seen]) -> float | None:
    """Seconds of a compilation for each unit of Components.traced: the median over models."""
    compiled = (s for s in others if s.row.phases_s.get("compile", 0) > 0 and s.made.traced)
    models = group_by(compiled, lambda s: s.row.problem.model).values()
    each = [median([s.row.phases_s["compile"] / s.made.traced for s in group]).value for group in models]
    return median(each).value if each else None
