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
from workloads.frameworks.user_fit.cut_data import CutData, fit_arguments
from workloads.frameworks.user_fit.synthetic_samples import synthetic_samples
from workloads.harness.dispatch import Broken, one_line
from workloads.records import Row, settings


def is_general(row: Row, model: Any) -> bool:
    """Whether a user's model needs the general way to be timed, which this module has.

    The simple way, trainers.KerasFit, is for made-up data and a model of one array in and one out, with known shapes, a loss of
    Keras's and Keras's own training step.
    """
    import keras

    has_length = row.keras.length > 1  # 1 stands for none
    if row.keras.data != "synthetic" or has_length:
        return True
    inputs: Sequence[Any] = getattr(model, "inputs", None) or ()
    outputs: Sequence[Any] = getattr(model, "outputs", None) or ()
    if len(inputs) != 1 or len(outputs) != 1 or isinstance(getattr(model, "_inputs_struct", None), dict):
        return True
    model_input = inputs[0]
    has_open_side = None in (*model_input.shape[1:], *outputs[0].shape[1:])
    if has_open_side or model_input.dtype == "string" or getattr(model_input, "sparse", False):
        return True
    if type(model).train_step is not keras.Model.train_step or getattr(model, "run_eagerly", False):
        return True
    loss = getattr(model, "loss", None)
    return not (loss is None or isinstance(loss, str | keras.losses.Loss))


def require_compiled(row: Row, model: Any) -> dict[str, str]:
    """Compiles a model that its writer has not compiled, and sets the row's options jit_compile and steps_per_execution.

    Returns the notes of the measurement, which say what was decided for the user.
    Raises: Refusal for a model that is not compiled and whose losses cannot be guessed.
    """
    options = row.keras
    step.require_tensorflow()
    notes = {}
    if step.compile_where_it_is_not(model, row.problem.model):
        notes["compiled"] = f"compiled with adam and {user_model.loss_name(model)}, as it came without"
    if options.jit_compile != "auto":
        model.jit_compile = settings.JIT[options.jit_compile]
    if options.steps_per_execution > 1:
        model.steps_per_execution = options.steps_per_execution
    return notes


def candidates(row: Row, model: Any, samples: int, seed: int) -> Iterator[tuple[CutData, StepInputs]]:
    """The data that a user's model may take, the likeliest first, with the shapes and types of a batch of them.

    The row may name the user's function that returns them; else `samples` samples are made up.
    Raises: Broken for data that fit does not take, and for a model for which none can be made up.
    """
    name = row.problem.model
    batch = row.problem.batch
    if row.keras.data != "synthetic":
        inputs, data, parts = step_inputs.from_data(row.keras.data, batch)
        yield CutData(fit_arguments(parts, batch), data=data, batch=batch), inputs
        return
    has_length = row.keras.length > 1  # 1 stands for none
    length = row.keras.length if has_length else 0
    for inputs in step_inputs.synthetic(model, name, batch, length):
        parts = synthetic_samples(model, inputs, samples, seed)
        yield CutData(fit_arguments(parts, batch), data=fit_data(parts, batch), batch=batch), inputs


class UserFit(trainers.Trainer):
    """The fit of a user's model. Its first weights are never restored, since nothing compares its losses."""

    def __init__(self, row: Row, model: Any, cut: CutData, notes: dict[str, str]):
        """model: compiled. cut: its data, of which fits of any number of steps can be made. notes: of the measurement so far."""
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
        """Calls model.fit with data of `samples` samples an epoch; of its results only the seconds of epochs are kept.

        Raises: Refusal where the user's generator of data has ended.
        """
        stamps = trainers.EpochStamps()
        callbacks = [stamps.callback()] if stamped else None
        with trainers.on_row_device(self._row):
            self._model.fit(**self._cut.arguments(samples), epochs=epochs, verbose=0, callbacks=callbacks)
        self._cut.require_more()
        return trainers.Fitted(losses=(), epochs_s=stamps.seconds)


def failure(error: Exception, name: str) -> Broken:
    """The error to report where a user's fit raised: with the user's own line that raised it. name: of the model or script, whose
    file is to be mended."""
    if isinstance(error, Broken):
        return error
    message = one_line(_without_graph_code(str(error)))
    file, _, _ = name.partition(":")
    return Refusal(f"its fit fails{_place(error)}: {type(error).__name__}: {message}", change=f"mend {file}")


def _without_graph_code(error: str) -> str:
    """The message of an error; of an error in a TensorFlow graph only its last part, below the lines of code that built the
    graph."""
    if "Graph execution error" not in error:
        return error
    return error.strip().rpartition("\n\n")[2]


def _place(error: Exception) -> str:
    """` in line 12 of my.py`: the innermost line of the error's traceback that is in a file of the user's; "" where none is."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if user_files.is_users(Path(frame.filename)):
            return f" in line {frame.lineno} of {Path(frame.filename).name}"
    return ""
