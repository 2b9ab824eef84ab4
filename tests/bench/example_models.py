"""make bench NAME=example_models: how far predicted steps of models that nobody measured before are off.

Without arguments: the table of the stored rows, as they were predicted and as they are now, by the operations of their stored
steps. With FOLDER: measures here first. FOLDER/predicted.ndjson has rows of Predicted, saved before; FOLDER/NAME.py has build(),
a compiled Keras model, and data(), what its fit takes. A model is trained on one batch again and again by plain Keras; its step
is the time of a later epoch over the epoch's steps.
"""

import argparse
import functools
import gzip
import importlib
import itertools
import os
import pathlib
import signal
import sys
import time
from collections.abc import Sequence

import msgspec
import numpy as np
from must_reach import REPORTS, Figure, at_least, at_most, exactly, printed, table

from analysis.predict import calibration, components, prediction, profile
from analysis.predict.profile import Profile
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from tests.validation import prediction_errors
from workloads.machine import facts
from workloads.records import Settings

EPOCH_S = 0.7
EPOCHS = 4  # the first is not counted
LIMIT_S = 40.0  # of a model, imports and compilation included
#: Device -> the largest median, mean and 90th percentile of errors.
TARGETS = {"gpu": (0.07, 0.12, 0.25), "cpu": (0.10, 0.15, 0.30)}
COVERAGE, WIDTH = 25 / 30, 1.6  # of the intervals, nominal 90 %; their high over low, in the median
MACHINE = "nvidia-h200"
ROWS = "bench-example_models.ndjson"
STEPS = "bench-example_models-steps.ndjson.gz"  # a Network with its traced step a line
SAMPLES = 10_000  # of a predicted training: an epoch is not what is compared
#: Models whose parts led to a rule, after they were measured: of these the predictions of today are no test.
LED_TO_RULES = {
    "supervised_contrastive_learning": "what XLA cannot compile, views that launch nothing",
    "semisupervised_simclr": "what XLA cannot compile, targets that are copied",
    "timeseries_weather_forecasting": "operations of cuDNN's loops, weights in its layout",
    "lstm_character_level_text_generation": "operations of cuDNN's loops, weights in its layout",
    "addition_rnn": "operations of cuDNN's loops, weights in its layout",
    "trainer_pattern": "updates that wait for their gradient",
    "multi_label_classification": "updates that wait for their gradient",
}


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """A step predicted before it was measured."""

    model: str
    batch: int
    #: cpu or gpu.
    device: str
    #: Seconds of a step, and the ends of their interval.
    value: float
    low: float
    high: float
    #: When it was predicted; "" before 2026-11-29.
    at: str = ""

    @property
    def by_todays_rules(self) -> bool:
        """Whether no rule has changed since."""
        return self.at > prediction_errors.RULES_CHANGED


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A step predicted and measured."""

    predicted: Predicted
    #: Seconds of a step in each later epoch; () of a model that did not train.
    measured_s: tuple[float, ...] = ()
    #: Why it did not train here.
    failure: str = ""
    at: str

    @property
    def step_s(self) -> float:
        return float(np.median(self.measured_s))

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of what was measured."""
        return abs(self.predicted.value / self.step_s - 1)

    @property
    def covered(self) -> bool:
        return self.predicted.low <= self.step_s <= self.predicted.high


def later_epochs(predicted: Predicted) -> tuple[float, ...]:
    """Seconds of a step in the later epochs of a training by plain Keras."""
    import keras
    import tensorflow as tf

    if predicted.device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise RuntimeError("TensorFlow sees no GPU")
    fit = keras.Model.fit
    module = importlib.import_module(predicted.model)
    model = module.build()
    batch = one_batch(module.data(), predicted.batch)
    keras.Model.fit = fit  # a builder that runs a script up to its fit has replaced it
    repeated = tf.data.Dataset.from_tensors(batch)
    epochs: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            epochs.append(time.perf_counter() - self.begin)

    for steps in (2, 5, 10):  # compiles, warms up, tells how long a step takes
        model.fit(repeated.repeat(steps), verbose=0, callbacks=[Clock()])
    steps = int(np.clip(EPOCH_S / (epochs[-1] / 10), 10, 1000))
    epochs.clear()
    model.fit(repeated.repeat(steps), epochs=EPOCHS, verbose=0, callbacks=[Clock()])
    return tuple(seconds / steps for seconds in epochs[1:])


def one_batch(data, batch: int) -> tuple:
    """The first batch of what fit takes, each array cut or repeated to so many samples."""
    import keras
    import tensorflow as tf

    if isinstance(data, keras.utils.PyDataset):
        first = data[0]
    elif isinstance(data, tuple):
        first = data
    else:
        first = next(iter(data))
    parts = first if isinstance(first, tuple) else (first,)
    # tf.data takes a list as one array, Keras as several
    several = tuple(tuple(part) if isinstance(part, list) else part for part in parts)
    return tf.nest.map_structure(lambda array: _samples(np.asarray(array), batch), several)


def _samples(array: np.ndarray, batch: int) -> np.ndarray:
    if array.ndim == 0:
        return array
    copies = -(-batch // len(array))
    return np.concatenate([array] * copies)[:batch]


def measured(predicted: Predicted) -> Row:
    """The row of a model that is trained in a process of its own, which ends at LIMIT_S."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(LIMIT_S))
        try:
            answer = msgspec.json.encode(later_epochs(predicted))
        except Exception as error:
            answer = msgspec.json.encode(f"{type(error).__name__}: {str(error)[:200]}")
        os.write(write, answer)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        answer = answers.read() or b'"it was not done in time"'
    os.waitpid(child, 0)
    steps = msgspec.json.decode(answer, type=tuple[float, ...] | str)
    at = facts.now()
    if isinstance(steps, str):
        return Row(predicted=predicted, failure=steps, at=at)
    return Row(predicted=predicted, measured_s=steps, at=at)


def measure(folder: pathlib.Path, file: pathlib.Path, device: str, stop_after_s: float) -> None:
    """Adds a row a model to the file, in the order of the predictions, until that time.

    The driver is not started before: a child that is forked later could not use the GPU.
    """
    end = time.monotonic() + stop_after_s
    sys.path.insert(0, str(folder))
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf  # once for all children; the GPU is not touched here

    del tf
    lines = (folder / "predicted.ndjson").read_bytes().splitlines()
    for line in lines:
        if time.monotonic() > end:
            break
        predicted = msgspec.json.decode(line, type=Predicted)
        if predicted.device == device:
            with file.open("ab") as rows:
                rows.write(msgspec.json.encode(measured(predicted)) + b"\n")


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """A measured step as today's rules predict it."""

    row: Row
    #: Seconds of the step by a + b FLOPs + c launches + d bytes of a batch, fitted on the profile's trainings.
    line_s: float

    @property
    def line_error(self) -> float:
        return abs(self.line_s / self.row.step_s - 1)


def predicted_again(rows: Sequence[Row], steps: dict[str, Network], stored: Profile) -> list[Again]:
    """The steps that were measured, predicted by today's rules from the stored rows and trainings of the machine."""
    found = []
    for row in rows:
        guess = row.predicted
        network = steps.get(guess.model)
        if network is None or not row.measured_s:
            continue
        device = "cpu" if guess.device == "cpu" else "gpu:0"
        training = Training(guess.model, guess.batch, SAMPLES)
        made = prediction.predict(training, Settings(device), stored, network)
        step = made.step_s
        now = Predicted(
            model=guess.model, batch=guess.batch, device=guess.device, value=step.value, low=step.low, high=step.high
        )
        settings = Settings(device, switches={"jit_compile": profile.JIT[made.execution]})
        launches = components.components(training, settings, stored, network).operations
        features = prediction_errors.features_of_step(network, guess.batch, launches)
        line_s = prediction_errors.line(features, _trainings(stored, device))
        found.append(Again(row=msgspec.structs.replace(row, predicted=now), line_s=line_s))
    return found


def _trainings(stored: Profile, device: str) -> list[tuple[prediction_errors.Features, float]]:
    """The line's features and the seconds of a device's trainings that are not too noisy, run as Keras chooses. Launches are
    kernels where they are compiled, else operations, of which a traced step has as many as a table's."""
    execution = components.execution_of(Settings(device))
    found = []
    for step in calibration.timed_trainings(stored):
        if step.is_fittable and step.mode == (device, execution):
            problem = step.row.problem
            network, batch = networks.find(problem.model), min(problem.batch, problem.samples)
            features = prediction_errors.features_of_step(network, batch, step.components.operations)
            found.append((features, step.step.value))
    return found


def figures(rows: Sequence[Row], again: Sequence[Again] = ()) -> list[Figure]:
    """Errors and intervals of each device, as saved and by today's rules, then a line a model."""
    found = []
    for device in TARGETS:
        found += _figures_of(device, [row for row in rows if row.predicted.by_todays_rules], "new models, as saved")
        found += _figures_of(device, [row for row in rows if not row.predicted.by_todays_rules], "as saved")
        now = [one for one in again if one.row.predicted.device == device]
        found += _figures_of(device, [one.row for one in now], "by today's rules")
        others = [one.row for one in now if one.row.predicted.model not in LED_TO_RULES]
        found += _figures_of(device, others, "by today's rules, models that led to none")
        found += _line_figures(device, now)
    now_s = {(one.row.predicted.model, one.row.predicted.device): one.row.predicted.value for one in again}
    return found + list(itertools.chain.from_iterable(_lines(row, now_s) for row in rows))


def _figures_of(device: str, rows: Sequence[Row], when: str) -> list[Figure]:
    """Errors and intervals of a device's steps; nothing without any."""
    trained = [row for row in rows if row.predicted.device == device and row.measured_s]
    if not trained:
        return []
    found = []
    errors = [row.error for row in trained]
    names = ("median", "mean", "90th percentile")
    values = (float(np.median(errors)), float(np.mean(errors)), float(np.quantile(errors, 0.9)))
    for name, limit, value in zip(names, TARGETS[device], values, strict=True):
        what = f"{name} error, {device}, {when} ({len(trained)} models)"
        found.append(at_most(what, round(100 * limit), 100 * value, "%"))
    covered = sum(row.covered for row in trained) / len(trained)
    widths = [row.predicted.high / row.predicted.low for row in trained]
    inside = f"steps inside their interval, {device}, {when}"
    found.append(at_least(inside, round(100 * COVERAGE, 1), 100 * covered, "%"))
    found.append(at_most(f"median high / low, {device}, {when}", WIDTH, float(np.median(widths))))
    return found


def _line_figures(device: str, again: Sequence[Again]) -> list[Figure]:
    """The straight line beside today's rules."""
    if not again:
        return []
    errors = [one.line_error for one in again]
    nearer = sum(one.row.error < one.line_error for one in again)
    line = f"{prediction_errors.BYTES}, {device}"
    return [
        printed(f"{line}: median error", 100 * float(np.median(errors)), "%"),
        printed(f"{line}: mean error", 100 * float(np.mean(errors)), "%"),
        printed(f"today's rules nearer than the line, {device} (of {len(again)})", nearer),
    ]


def _lines(row: Row, now_s: dict[tuple[str, str], float]) -> list[Figure]:
    """The measured step over the predicted ones; nothing of a model that did not train."""
    if not row.measured_s:
        return []
    step = exactly(row.step_s * 1e3)
    guess = row.predicted
    words = f"{guess.model}, batch {guess.batch}, {guess.device}; predicted {1e3 * guess.value:.3g} ms"
    now = now_s.get((guess.model, guess.device))
    if now is not None:
        words += f", now {1e3 * now:.3g} ms"
    return [printed(words, step, "ms")]


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("folder", nargs="?", type=pathlib.Path, help="models to measure here")
    flags.add_argument("--device", choices=TARGETS, default="gpu")
    flags.add_argument("--stop-after", type=float, default=600.0, help="seconds from which on no model is begun")
    args = flags.parse_args()
    machine = stored_profile().machine
    file = REPORTS / machine.key / ROWS
    if args.folder:
        measured_here = args.folder / ROWS
        measure(args.folder, measured_here, args.device, args.stop_after)
        machine = facts.describe()
        file = REPORTS / machine.key / ROWS
        with file.open("ab") as rows_of_the_machine:
            rows_of_the_machine.write(measured_here.read_bytes())
    rows = [msgspec.json.decode(line, type=Row) for line in file.read_bytes().splitlines()]
    again = predicted_again(rows, stored_steps(file.parent / STEPS), stored_profile())
    return table("example_models", TITLE, figures(rows, again), notes(rows, again), of=machine)


TITLE = "Steps of examples' models, predicted before they were measured"


def notes(rows: Sequence[Row], again: Sequence[Again]) -> list[str]:
    """Which predictions are a test, and which models did not train."""
    lines = []
    if again:
        lines += [
            "As saved: predicted before they were measured. By today's rules: predicted again, after every step's parts had been "
            "read beside its measured time; no number is fitted to these steps. New models: predicted by today's rules, then "
            "measured for the first time. These models led to a rule:",
            "",
            *(f"- {model}: {rule}" for model, rule in LED_TO_RULES.items()),
            "",
        ]
    failed = [row for row in rows if row.failure]
    if failed:
        lines += [
            "Not trained:",
            "",
            *(f"- {row.predicted.model}, {row.predicted.device}: {row.failure}" for row in failed),
        ]
    return lines


def stored_steps(file: pathlib.Path) -> dict[str, Network]:
    """Model -> its traced step; empty without the file."""
    if not file.is_file():
        return {}
    with gzip.open(file) as lines:
        traced = [msgspec.json.decode(line, type=Network) for line in lines]
    return {network.name.partition(".")[0]: network for network in traced}


@functools.cache
def stored_profile() -> Profile:
    return profile.read(MACHINE)


if __name__ == "__main__":
    sys.exit(main())
