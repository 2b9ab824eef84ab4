"""The process of plain Keras that measured_steps.py is held to: it shares no code with this project.

    python later_epochs.py

For each line of JSON on stdin, an order {"file", "function", "data", "batch"}, it builds a model, fits it and answers a line:
{"step_s": [...]}, the seconds of a step in each later epoch, or {"failure": "..."}.
"""

import contextlib
import importlib.util
import json
import pathlib
import sys
import time

EPOCH_S = 1.0  # of an epoch that is counted, so that what Keras does once an epoch is little of it
EPOCHS = 5  # the first is not counted
FEWEST_STEPS, MOST_STEPS = 8, 2000
MOST_BYTES = 256 << 20  # of an epoch's samples


def answer(order: dict) -> dict:
    """The seconds of a step of a model in later epochs."""
    import keras

    keras.backend.clear_session()
    fit = keras.Model.fit
    module = _module(order["file"])
    try:
        model, arrays = _model(module, order)
    finally:
        keras.Model.fit = fit  # a builder that runs a script up to its fit has replaced it
    if isinstance(arrays, tuple):
        return {"step_s": _steps_of_arrays(model, arrays, order["batch"])}
    return {"step_s": _steps_of_batches(model, arrays)}


def _module(file: str):
    """The module of a file, run anew."""
    path = pathlib.Path(file)
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _model(module, order: dict) -> tuple:
    """(a compiled model, (x, y) or batches)."""
    import keras

    if hasattr(module, "MODELS"):  # plain_keras.py's take Keras and say how they are compiled
        model, optimizer, one_hot = module.MODELS[order["function"]](keras)
        loss = "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy"
        model.compile(optimizer, loss, metrics=["accuracy"])
    else:
        model = getattr(module, order["function"])()
    if order["data"]:
        return model, getattr(module, order["data"])()
    return model, _made_up(model, order["batch"])


def _made_up(model, count: int) -> tuple:
    """Random (x, y) of a model with one input and one output."""
    import numpy as np

    rng = np.random.default_rng(1)
    shape = (count, *model.input_shape[1:])
    if "int" in str(model.inputs[0].dtype):
        x = rng.integers(0, 1000, shape).astype("int32")
    else:
        x = rng.random(shape, dtype=np.float32)
    outputs = (count, *model.output_shape[1:])
    loss = model.loss if isinstance(model.loss, str) else type(model.loss).__name__
    if "sparse" in loss.lower():
        return x, rng.integers(0, outputs[-1], outputs[:-1]).astype("int32")
    return x, rng.random(outputs, dtype=np.float32)


def _steps_of_arrays(model, arrays: tuple, batch: int) -> list[float]:
    """The seconds of a step of later epochs over arrays, repeated until an epoch is long enough."""
    look = _repeated(arrays, FEWEST_STEPS * batch)
    model.fit(*look, batch_size=batch, verbose=0)
    step_s = min(_epochs(model, look, epochs=3, batch_size=batch)[1:]) / FEWEST_STEPS
    sample_bytes = sum(leaf.nbytes / len(leaf) for leaf in _leaves(arrays))
    most = min(MOST_STEPS, int(MOST_BYTES / (sample_bytes * batch)))
    steps = max(FEWEST_STEPS, min(most, int(EPOCH_S / step_s)))
    epochs = _epochs(model, _repeated(arrays, steps * batch), epochs=EPOCHS, batch_size=batch)
    return [seconds / steps for seconds in epochs[1:]]


def _leaves(structure) -> list:
    import keras

    return keras.tree.flatten(structure)


def _repeated(arrays: tuple, count: int) -> tuple:
    """The arrays with so many samples."""
    import keras
    import numpy as np

    return keras.tree.map_structure(lambda array: np.resize(array, (count, *array.shape[1:])), arrays)


def _steps_of_batches(model, batches) -> list[float]:
    """The seconds of a step of later epochs over a data set or a generator that never ends."""
    look = _epochs(model, (batches,), epochs=3, steps_per_epoch=FEWEST_STEPS)
    steps = max(FEWEST_STEPS, min(MOST_STEPS, int(EPOCH_S / (min(look[1:]) / FEWEST_STEPS))))
    epochs = _epochs(model, (batches,), epochs=EPOCHS, steps_per_epoch=steps)
    return [seconds / steps for seconds in epochs[1:]]


def _epochs(model, data: tuple, **arguments) -> list[float]:
    """The seconds of the epochs of a fit."""
    import keras

    seconds: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            seconds.append(time.perf_counter() - self.begin)

    model.fit(*data, verbose=0, callbacks=[Clock()], **arguments)
    return seconds


def main() -> None:
    answers = sys.stdout
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            try:
                reply = answer(json.loads(line))
            except Exception as error:
                reply = {"failure": f"{type(error).__name__}: {str(error)[:200]}"}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
