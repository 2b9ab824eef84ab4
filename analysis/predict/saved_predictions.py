"""Saved predictions next to the steps that were measured."""

from collections.abc import Iterable

import msgspec

from analysis.predict import calibration
from analysis.predict.calibration import TimedTraining
from analysis.predict.prediction import Prediction, distinct
from analysis.predict.profile import Profile


class CheckedPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction and the measured step of its training."""

    prediction: Prediction
    #: The training; None where it was not measured.
    measured: TimedTraining | None

    @property
    def error(self) -> float | None:
        """The relative error of the predicted step; None where it was not measured."""
        if self.measured is None:
            return None
        return relative_error(self.prediction.step_s.value, self.measured.step.value)


def relative_error(predicted: float, measured: float) -> float:
    """|predicted / measured - 1|."""
    return abs(predicted / measured - 1)


def training_of(prediction: Prediction) -> tuple[str, int, str, str]:
    """(model, batch, device, execution) of a prediction."""
    training = prediction.training
    return (training.model, training.batch, prediction.settings.device, prediction.execution)


def checked(predictions: Iterable[Prediction], profile: Profile) -> list[CheckedPrediction]:
    """Each prediction once, with the measured step of its training. Of several with different options: the one with the fewest
    that are not the default."""
    rows: dict[tuple, TimedTraining] = {}
    for training in calibration.timed_trainings(profile):
        current = rows.get(training.key)
        if current is None or len(training.components.options) <= len(current.components.options):
            rows[training.key] = training
    pairs = []
    for prediction in distinct(predictions):
        pairs.append(CheckedPrediction(prediction=prediction, measured=rows.get(training_of(prediction))))
    return pairs
