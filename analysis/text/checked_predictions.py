"""Saved predictions next to the steps that were measured, in a table and sentences."""

import statistics
from collections.abc import Iterable

from analysis.predict.calibration import TimedTraining
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.saved_predictions import checked, training_of
from analysis.stats import Estimate
from analysis.table import Table
from analysis.text.sentences import NAMES, say
from analysis.units import change, count

CHECKED = "{device}: median error {median:share}, mean {mean:share} of {count}."
NONE_MEASURED = "None of them was measured here. Give the whole folder of their machine, such as reports/nvidia-h200."
HEADS = "model | batch | device | execution | predicted ms | measured ms | error"


def lines(predictions: Iterable[Prediction], profile: Profile) -> list[str | Table]:
    """A table of predictions next to the measured steps, then the errors of each device."""
    rows = []
    errors: dict[str, list[float]] = {}
    for one in checked(predictions, profile):
        cells = (milliseconds(one.prediction.step_s), "not measured", "")
        if one.measured is not None and one.error is not None:
            cells = step_cells(one.prediction.step_s, one.measured)
            errors.setdefault(one.prediction.settings.device, []).append(one.error)
        rows.append((*training_of(one.prediction), *cells))
    sentences = [error_sentence(CHECKED, device, errors[device]) for device in sorted(errors)]
    return [Table(HEADS, rows, least="execution"), "", *(sentences or [NONE_MEASURED])]


def error_sentence(template: str, device: str, errors: list[float], **words: object) -> str:
    """A template filled with the median and the mean of a device's relative errors. device: cpu or gpu:0. words: values for the
    template's other fields.
    """
    return say(
        template,
        device=NAMES[device],
        median=statistics.median(errors),
        mean=statistics.fmean(errors),
        count=count(len(errors), "step"),
        **words,
    )


def step_cells(predicted: Estimate, training: TimedTraining) -> tuple[str, str, str]:
    """Predicted and measured milliseconds of a step, and the signed error."""
    error = predicted.value / training.step.value - 1
    return (milliseconds(predicted), milliseconds(training.step), change(error, places=0))


def milliseconds(seconds: Estimate) -> str:
    """Seconds as milliseconds with their interval: `0.25 (0.2 to 0.3)`."""
    return f"{1e3 * seconds.value:.3g} ({1e3 * seconds.low:.3g} to {1e3 * seconds.high:.3g})"
