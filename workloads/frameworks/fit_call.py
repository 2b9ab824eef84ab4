"""Inside the process of a script: the numbers of a call of `fit`, from its arguments and one batch of its data."""

import math
from typing import Any

import msgspec

from kernels.networks.layers import Network
from workloads.frameworks import description, user_model
from workloads.harness.dispatch import Broken
from workloads.records import settings
from workloads.records.script_fit import DescribedScript, ScriptFit


class FitData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a fit."""

    #: Samples, of arrays; None for data that come in batches.
    rows: int | None
    #: Samples of a batch.
    batch: int
    #: Batches of an epoch; None where the data do not tell.
    batches: int | None
    #: Shape of one sample of the first input.
    shape: tuple[int, ...]
    #: Type of the first input, by NumPy's name.
    dtype: str
    #: How the samples reach the fit: numpy, tf.data, generator.
    residence: str


def described(model: Any, arguments: dict[str, Any], script: str, place: str) -> DescribedScript:
    """The call and the layers of its model. arguments: all of `fit`, by their names.

    Raises: Broken for a model that cannot be described, and for data that give no batch.
    """
    _require_plain_step(model)
    parts = (arguments["x"], arguments["y"], arguments["sample_weight"])
    data = _fit_data(parts, arguments["batch_size"], arguments["steps_per_epoch"])
    network = _network(model, data, script)
    samples = _samples(data, arguments)
    fit = ScriptFit(
        script=script,
        place=place,
        inputs=len(model.inputs),
        batch=data.batch,
        samples=samples,
        epochs=arguments["epochs"] - arguments["initial_epoch"],
        stops_early=_stops_early(arguments["callbacks"]),
        validation=_validation_samples(data, arguments),
        dtype=data.dtype,
        keras_options=_keras_options(model, data),
    )
    return DescribedScript(fit=fit, network=network)


def _require_plain_step(model: Any) -> None:
    """Raises Broken for a step that is not the one that Keras's TensorFlow models have."""
    import keras

    if not isinstance(model, keras.Model):
        raise Broken("its model is of tf_keras, which is Keras 2: import keras (3) instead")
    if keras.backend.backend() != "tensorflow":
        raise Broken(f"Keras runs on {keras.backend.backend()}: set KERAS_BACKEND=tensorflow")
    if not model.compiled:
        raise Broken("the model is not compiled: call model.compile first")
    if model.run_eagerly:
        raise Broken("the model is compiled with run_eagerly=True: leave that out")
    if type(model).train_step is not keras.Model.train_step:
        raise Broken(f"{type(model).__name__} has a train_step of its own: only Keras's own step is known")


def _network(model: Any, data: FitData, script: str) -> Network:
    """The layers of the model, which is built for the data where it was not."""
    import keras

    if isinstance(model, keras.Sequential) and not model.built:
        model.build((None, *data.shape))
    user_model.require_one_input(model, script)
    return description.network(model, script)


def _fit_data(parts: tuple, batch_size: int | None, steps: int | None) -> FitData:
    """The data that `fit` gets as x, y and sample_weight; one batch is taken where they are not arrays.

    Raises: Broken for data without a batch.
    """
    import keras
    from keras.src.trainers.data_adapters import get_data_adapter

    adapter = get_data_adapter(*parts, batch_size=batch_size, steps_per_epoch=steps)
    kind = type(adapter).__name__
    is_arrays = kind == "ArrayDataAdapter"
    source = parts[0] if is_arrays else next(iter(adapter.get_tf_dataset()), None)
    leaves = keras.tree.flatten(source)
    if not leaves or leaves[0] is None:
        raise Broken("its data give no batch")
    first = leaves[0]
    size = int(first.shape[0])
    return FitData(
        rows=size if is_arrays else None,
        batch=int(adapter.batch_size) if is_arrays else size,
        batches=adapter.num_batches,
        shape=tuple(first.shape[1:]),
        dtype=getattr(getattr(first, "dtype", None), "name", "float32"),
        residence={"ArrayDataAdapter": "numpy", "TFDatasetAdapter": "tf.data"}.get(kind, "generator"),
    )


def _samples(data: FitData, arguments: dict[str, Any]) -> int | None:
    """Samples that an epoch trains on; None where neither the data nor the call tells."""
    steps = arguments["steps_per_epoch"]
    if data.rows is not None:
        rows = _training_rows(data.rows, arguments["validation_split"])
        return min(rows, steps * data.batch) if steps else rows
    batches = steps or data.batches
    return batches * data.batch if batches else None


def _training_rows(rows: int, validation_split: float) -> int:
    """Rows of arrays that stay for training. Source: Keras's train_validation_split."""
    return math.floor(rows * (1.0 - validation_split)) if validation_split else rows


def _validation_samples(data: FitData, arguments: dict[str, Any]) -> int | None:
    """Samples that are evaluated after each epoch; None where the data do not tell."""
    validation = arguments["validation_data"]
    if validation is None:
        if data.rows is None:
            return 0
        return data.rows - _training_rows(data.rows, arguments["validation_split"])
    parts = tuple(validation) if isinstance(validation, tuple | list) else (validation,)
    steps = arguments["validation_steps"]
    evaluated = _fit_data(parts, arguments["validation_batch_size"] or data.batch, None)
    if evaluated.rows is not None:
        return min(evaluated.rows, steps * evaluated.batch) if steps else evaluated.rows
    batches = steps or evaluated.batches
    return batches * evaluated.batch if batches else None


def _stops_early(callbacks: Any) -> bool:
    import keras

    every = callbacks if isinstance(callbacks, tuple | list) else [callbacks]
    return any(isinstance(callback, keras.callbacks.EarlyStopping) for callback in every)


def _keras_options(model: Any, data: FitData) -> dict[str, str]:
    """The options of the call and of `compile` that are not the default. XLA is `auto` where it is as `auto` decides here."""
    options = {"residence": data.residence, "steps_per_execution": str(model.steps_per_execution)}
    if model.jit_compile != model._resolve_auto_jit_compile():
        options["jit_compile"] = "on" if model.jit_compile else "off"
    return settings.changed(options)
