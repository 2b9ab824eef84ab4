"""Saved predictions: their file, and the steps that were measured later."""

import os
import pathlib
from collections.abc import Iterable

import msgspec

from analysis.predict import calibration
from analysis.predict.calibration import TimedTraining
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.step_parts import HIDDEN
from analysis.stats import Estimate
from analysis.units import count
from workloads import options, terminal
from workloads.machine.facts import now
from workloads.records import regular_files, switches
from workloads.records.rows import is_moment

#: No time of a prediction is longer; seconds.
LONGEST_S = 1e9
#: A command that writes a file of predictions.
MAKES = "python -m analysis.predict --model cifar10-cnn --profile nvidia-h200 --save predicted.ndjson"


# ---------------------------------------------------------------- the file


def save(path: str, predictions: Iterable[Prediction]) -> None:
    """Appends predictions to a file, a JSON line each, with the time of saving. A last line that an earlier command left
    unfinished is removed first.

    Raises: options.Usage where it cannot be written.
    """
    try:
        if pathlib.Path(path).exists():
            _end_last_line(path)
        with open(path, "ab") as file:
            for prediction in predictions:
                saved = msgspec.structs.replace(prediction, saved_at=now())
                file.write(msgspec.json.encode(saved) + b"\n")
    except OSError as error:
        raise options.Usage(f"cannot write {path}: {error.strerror}", wrong="--save") from error


def _impossible(prediction: Prediction) -> str:
    """What is impossible in a prediction, in words: an option that no training has, a time out of range, or a moment of saving
    that is none. "" if nothing is."""
    wrong_switch = switches.fault(prediction.settings.switches)
    if wrong_switch:
        return wrong_switch
    if prediction.saved_at and not is_moment(prediction.saved_at):
        return f"saved_at is {prediction.saved_at!r}, no time such as 2026-11-21T17:46:40Z"
    named = [(name, getattr(prediction, name)) for name in prediction.__struct_fields__]
    times = [(name, value) for name, value in named if isinstance(value, Estimate)]
    for name, time in [*times, *prediction.parts.items()]:
        if not -LONGEST_S < time.low <= time.high < LONGEST_S:
            return f"{name} of {time.low:.3g} to {time.high:.3g} s"
        if time.value < 0 and name != HIDDEN:
            return f"{name} of {time.value:.3g} s"
    return ""


def _decoded(line: bytes) -> Prediction:
    """The prediction on a line of a file.

    Raises: msgspec.DecodeError, ValueError or RecursionError for a line that is none.
    """
    return msgspec.json.decode(regular_files.without_byte_order_mark(line), type=Prediction)


def _is_cut(line: bytes) -> bool:
    """Whether the last line of a file was not written to its end: it has no line feed and is no whole prediction."""
    if line.endswith(b"\n") or not line.strip():
        return False
    try:
        _decoded(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return True
    return False


def _end_last_line(path: str) -> None:
    """Makes a file of predictions ready for appending: removes a last line that was not written to its end, or adds the line feed
    that it lacks."""
    lines = regular_files.lines(path)
    if not lines or lines[-1].endswith(b"\n"):
        return
    if _is_cut(lines[-1]):
        os.truncate(path, sum(map(len, lines[:-1])))
        return
    with open(path, "ab") as file:
        file.write(b"\n")


def load(path: str) -> list[Prediction]:
    """The predictions of a file that `python -m analysis.predict --save` wrote.

    A last line that is cut off, as after a kill, is left out, which stderr says.

    Raises: options.Usage for a file that is not there, is empty or holds something else, with a command that makes one.
    """
    try:
        lines = regular_files.lines(path)
    except options.Usage as error:
        raise _no_predictions(path, str(error)) from error
    is_last_cut = len(lines) > 1 and _is_cut(lines[-1])
    if is_last_cut:
        lines = lines[:-1]
    predictions = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            predictions.append(_on_line(line, path, number))
    if not predictions:
        raise _no_predictions(path, "it is empty")
    if is_last_cut:
        read = count(len(predictions), "prediction")
        terminal.note(terminal.Line(f"the last line of {path} is cut off; {read} read", label="warning: "))
    return predictions


def _on_line(line: bytes, path: str, number: int) -> Prediction:
    """The prediction on a line of a file; `number` counts lines from 1.

    Raises: options.Usage with that number if it is none.
    """
    try:
        prediction = _decoded(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _no_predictions(path, f"line {number}: {error}") from error
    wrong = _impossible(prediction)
    if wrong:
        raise _no_predictions(path, f"line {number}: {wrong}")
    return prediction


def _no_predictions(path: str, why: str) -> options.Usage:
    """The error for a file without predictions: `why` it has none, and a command that makes one."""
    return options.Usage(f"{path or repr(path)} holds no predictions: {why}", MAKES)


def _distinct(predictions: Iterable[Prediction]) -> list[Prediction]:
    """The predictions without repetitions: of those that differ only in when they were saved, the earliest."""
    first_saved: dict[bytes, Prediction] = {}
    for prediction in predictions:
        key = msgspec.json.encode(msgspec.structs.replace(prediction, saved_at=""))
        before = first_saved.get(key)
        if before is None or prediction.saved_at < before.saved_at:
            first_saved[key] = prediction
    return list(first_saved.values())


# ---------------------------------------------------------------- what was measured later


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
    """(model, batch, device, execution) of a prediction: the key by which its measured training is found."""
    training = prediction.training
    return (training.model, training.batch, prediction.settings.device, prediction.execution)


def checked(predictions: Iterable[Prediction], profile: Profile) -> list[CheckedPrediction]:
    """Each distinct prediction with the measured step of its training. If the training was measured with several sets of options,
    the row with the fewest options away from their default counts."""
    rows: dict[tuple, TimedTraining] = {}
    for training in calibration.timed_trainings(profile):
        current = rows.get(training.key)
        if current is None or len(training.components.options) <= len(current.components.options):
            rows[training.key] = training
    pairs = []
    for prediction in _distinct(predictions):
        pairs.append(CheckedPrediction(prediction=prediction, measured=rows.get(training_of(prediction))))
    return pairs
