"""make bench NAME=example_models: how far predicted steps of models that nobody measured before are off.

Without arguments: the table of the stored rows. With FOLDER: measures here first. FOLDER/predicted.ndjson has rows of Predicted,
saved before; FOLDER/NAME.py has build(), a compiled Keras model, and data(), what its fit takes. A model is trained on one batch
again and again by plain Keras; its step is the time of a later epoch over the epoch's steps.
"""

import argparse
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

from workloads.machine import facts
from workloads.records import Machine

EPOCH_S = 0.7
EPOCHS = 4  # the first is not counted
LIMIT_S = 40.0  # of a model, imports and compilation included
#: Device -> the largest median, mean and 90th percentile of errors.
TARGETS = {"gpu": (0.07, 0.12, 0.25), "cpu": (0.10, 0.15, 0.30)}
COVERAGE, WIDTH = 25 / 30, 1.6  # of the intervals, nominal 90 %; their high over low, in the median
MACHINE = "nvidia-h200"
ROWS = "bench-example_models.ndjson"


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
    """Adds a row a model to the file, in the order of the predictions, until that time."""
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


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Errors and intervals of each device, then a line a model."""
    found = []
    for device, limits in TARGETS.items():
        trained = [row for row in rows if row.predicted.device == device and row.measured_s]
        if not trained:
            continue
        errors = [row.error for row in trained]
        names = ("median", "mean", "90th percentile")
        values = (float(np.median(errors)), float(np.mean(errors)), float(np.quantile(errors, 0.9)))
        for name, limit, value in zip(names, limits, values, strict=True):
            found.append(
                at_most(f"{name} error, {device} ({len(trained)} models)", round(100 * limit), 100 * value, "%")
            )
        covered = sum(row.covered for row in trained) / len(trained)
        widths = [row.predicted.high / row.predicted.low for row in trained]
        found.append(at_least(f"steps inside their interval, {device}", round(100 * COVERAGE, 1), 100 * covered, "%"))
        found.append(at_most(f"median high / low, {device}", WIDTH, float(np.median(widths))))
    return found + list(itertools.chain.from_iterable(map(_lines, rows)))


def _lines(row: Row) -> list[Figure]:
    """The measured step over the predicted one; nothing of a model that did not train."""
    if not row.measured_s:
        return []
    step = exactly(row.step_s * 1e3)
    guess = row.predicted
    return [
        printed(f"{guess.model}, batch {guess.batch}, {guess.device}; predicted {1e3 * guess.value:.3g} ms", step, "ms")
    ]


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("folder", nargs="?", type=pathlib.Path, help="models to measure here")
    flags.add_argument("--device", choices=TARGETS, default="gpu")
    flags.add_argument("--stop-after", type=float, default=600.0, help="seconds from which on no model is begun")
    args = flags.parse_args()
    machine = facts.describe() if args.folder else stored_machine()
    file = REPORTS / machine.key / ROWS
    if args.folder:
        measure(args.folder, file, args.device, args.stop_after)
    rows = [msgspec.json.decode(line, type=Row) for line in file.read_bytes().splitlines()]
    failed = [row for row in rows if row.failure]
    note = "\n".join(f"- {row.predicted.model}, {row.predicted.device}: {row.failure}" for row in failed)
    title = "Steps of examples' models, predicted before they were measured"
    return table("example_models", title, figures(rows), ["Not trained:", "", note] if failed else [], of=machine)


def stored_machine() -> Machine:
    from workloads.records import read

    return read(str(REPORTS / MACHINE / "suite")).machine


if __name__ == "__main__":
    sys.exit(main())
