"""Inside a worker, or the process of a script: the fit of any compiled Keras model, with the user's data or made-up ones."""

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workloads.frameworks import tensors, trainers, user_model
from workloads.frameworks.tracing import step, step_inputs, user_files
from workloads.frameworks.tracing.fit_data import fit_data
from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.tracing.step_inputs import StepInputs
from workloads.frameworks.user_fit.cut_data import CutData, call_of
from workloads.frameworks.user_fit.synthetic_samples import synthetic_samples
from workloads.harness.dispatch import Broken, one_line
from workloads.records import Row, settings


def is_general(row: Row, model: Any) -> bool:
    """Whether a user's model is timed here: with the user's data, or where it is more than one array in and one out, which
    Keras trains with its own step and one of its losses."""
    import keras

    if row.keras.data != "synthetic" or row.keras.length > 1:
        return True
    inputs: Sequence[Any] = getattr(model, "inputs", None) or ()
    outputs: Sequence[Any] = getattr(model, "outputs", None) or ()
    if len(inputs) != 1 or len(outputs) != 1 or isinstance(getattr(model, "_inputs_struct", None), dict):
        return True
    source = inputs[0]
    if (
        None in (*source.shape[1:], *outputs[0].shape[1:])
        or source.dtype == "string"
        or getattr(source, "sparse", False)
    ):
        return True
    if type(model).train_step is not keras.Model.train_step or getattr(model, "run_eagerly", False):
        return True
    loss = getattr(model, "loss", None)
    return not (loss is None or isinstance(loss, str | keras.losses.Loss))


def require_compiled(row: Row, model: Any) -> dict[str, str]:
    """Compiles a model that came without, and sets the options of the row; what was decided for it, as notes.

    Raises: Refusal for a model whose losses nobody can guess.
    """
    chosen = row.keras
    step.require_tensorflow()
    notes = {}
    if step.compile_where_it_is_not(model, row.problem.model):
        notes["compiled"] = f"compiled with adam and {user_model.loss_name(model)}, as it came without"
    if chosen.jit_compile != "auto":
        model.jit_compile = settings.JIT[chosen.jit_compile]
    if chosen.steps_per_execution > 1:
        model.steps_per_execution = chosen.steps_per_execution
    return notes


def candidates(row: Row, model: Any, samples: int, seed: int) -> Iterator[tuple[CutData, StepInputs]]:
    """The data that a model of the user's may take, the likeliest first: those of its function, else made-up ones.

    Raises: Broken for data that fit does not take, and for a model that none can be made up for.
    """
    name = row.problem.model
    batch = row.problem.batch
    if row.keras.data != "synthetic":
        inputs, data, parts = step_inputs.from_data(row.keras.data, batch)
        yield CutData(call_of(parts, batch), data, batch), inputs
        return
    length = row.keras.length if row.keras.length > 1 else 0
    for inputs in step_inputs.synthetic(model, name, batch, length):
        parts = synthetic_samples(model, inputs, samples, seed)
        yield CutData(call_of(parts, batch), fit_data(parts, batch), batch), inputs


class UserFit(trainers.Trainer):
    """The fit of a user's model. It is never restored: nothing compares its losses."""

    def __init__(self, row: Row, model: Any, cut: CutData, notes: dict[str, str]):
        self.values = {
            "parameters": float(model.count_params()) if model.built else 0.0,
            "jit_compile": float(model.jit_compile is True),
        }
        self.notes = {**notes, **tensors.software_notes(row)}
        self._row = row
        self._model = model
        self._cut = cut

    def restore(self) -> None:
        """Nothing."""

    def fit(self, samples: int, epochs: int, stamped: bool = False) -> trainers.Fitted:
        stamps = trainers.EpochStamps()
        callbacks = [stamps.callback()] if stamped else None
        with trainers.on_row_device(self._row):
            self._model.fit(**self._cut.arguments(samples), epochs=epochs, verbose=0, callbacks=callbacks)
        self._cut.require_going()
        return trainers.Fitted(losses=(), epochs_s=stamps.seconds)


def failure(error: Exception, name: str) -> Broken:
    """The error of a fit by the user's own line that raised it."""
    if isinstance(error, Broken):
        return error
    reason = f"its fit fails{_place(error)}: {type(error).__name__}: {one_line(_innermost(str(error)))}"
    return Refusal(reason, f"mend {name.partition(':')[0]}")


def _innermost(error: str) -> str:
    """Of a TensorFlow graph's error, the message below the places where it was built."""
    return error.strip().rpartition("\n\n")[2] if "Graph execution error" in error else error


def _place(error: Exception) -> str:
    """` in line 12 of my.py`: the innermost line of the user's; "" where none is in the traceback."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if user_files.is_users(Path(frame.filename)):
            return f" in line {frame.lineno} of {Path(frame.filename).name}"
    return ""
