"""Inside the process of a script: the numbers of a call of `fit`, from its arguments and one batch of its data."""

import math
import numbers
from typing import Any

import msgspec

from workloads.frameworks.tracing import step
from workloads.frameworks.tracing.fit_data import FitData, fit_data
from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.tracing.step_inputs import StepInputs
from workloads.harness.dispatch import Broken
from workloads.records import settings
from workloads.records.script_fit import DescribedScript, ScriptFit


class CallData(msgspec.Struct, frozen=True, kw_only=True):
    """What the data of a call of `fit` tell."""

    #: The data that it trains on.
    training: FitData
    #: Samples that are evaluated after each epoch; None where the data do not tell.
    validation_samples: int | None


def call_data(arguments: dict[str, Any]) -> CallData:
    """What the data of a call of Keras's `fit` tell. arguments: all of the call's by their names, with defaults.

    Raises: Broken for data that give no batch; Refusal for a batch size that is no whole number.
    """
    batch = arguments["batch_size"]
    if batch is not None and not isinstance(batch, numbers.Integral):
        raise Refusal(f"its fit takes batches of {batch} samples", change="give fit a whole batch_size")
    data = fit_data(
        (arguments["x"], arguments["y"], arguments["sample_weight"]),
        arguments["batch_size"],
        steps=arguments["steps_per_epoch"],
        class_weight=arguments["class_weight"],
    )
    return CallData(training=data, validation_samples=_validation_samples(data, arguments))


def _epochs(arguments: dict[str, Any]) -> int:
    """The number of epochs that a call of `fit` trains. arguments: the call's by their names.

    Raises: Refusal where it is less than 1 or no whole number.
    """
    epochs = arguments["epochs"] - arguments["initial_epoch"]
    if not isinstance(epochs, numbers.Integral) or epochs < 1:
        fix = "give fit a whole number of epochs, at least 1 more than initial_epoch"
        raise Refusal(f"its fit trains {epochs} epochs", change=fix)
    return int(epochs)


def described(
    model: Any, arguments: dict[str, Any], data: CallData, *, where: tuple[str, str], strategy: str
) -> DescribedScript:
    """Describes a call of `fit` in a script, and its model by the operations of a training step.

    arguments: the call's by their names. where: (the script as it was typed, the place in it as `line 41`). strategy: the
    strategy over several devices that the script asked for and that was taken as one device; "" for none.
    Raises: Broken for a model that does not trace.
    """
    script, place = where
    training = data.training
    inputs = StepInputs(specs=training.specs, batch=training.batch)
    traced = step.traced_model(model, script, [inputs])
    fit = ScriptFit(
        script=script,
        place=place,
        inputs=len(traced.inputs),
        batch=training.batch,
        samples=_samples(training, arguments),
        epochs=_epochs(arguments),
        stops_early=_stops_early(arguments["callbacks"]),
        validation=data.validation_samples,
        dtype=training.dtype,
        keras_options=_keras_options(model, training),
        strategy=strategy,
    )
    return DescribedScript(fit=fit, network=step.network_of(model, script, traced))


def require_keras_step(model: Any) -> None:
    """Raises Broken for a model that is not of Keras 3 on TensorFlow, or that is not compiled."""
    import keras

    if not isinstance(model, keras.Model):
        raise Broken("its model is of tf_keras, which is Keras 2: import keras (3) instead")
    step.require_tensorflow()
    if not model.compiled:
        raise Refusal(
            "the model is not compiled", change="write model.compile('adam', 'mse'), with its own loss, before fit"
        )


def _samples(data: FitData, arguments: dict[str, Any]) -> int | None:
    """How many samples an epoch trains on; None where neither the data nor the call tells. arguments: the call's by their
    names."""
    steps = arguments["steps_per_epoch"]
    samples = data.samples
    if data.rows is not None:
        samples = _training_rows(data.rows, arguments["validation_split"])
    if not steps:
        return samples
    return steps * data.batch if samples is None else min(samples, steps * data.batch)


def _training_rows(rows: int, validation_split: float) -> int:
    """How many of an array's rows are trained on, where the share `validation_split` of them, from 0 to 1, is kept for
    validation.

    Source: Keras's train_validation_split.
    """
    return math.floor(rows * (1.0 - validation_split)) if validation_split else rows


def _validation_samples(data: FitData, arguments: dict[str, Any]) -> int | None:
    """How many samples are evaluated after each epoch; None where the data do not tell. data: what is trained on. arguments: the
    call's by their names."""
    validation = arguments["validation_data"]
    if validation is None:
        if data.rows is None:
            return 0
        return data.rows - _training_rows(data.rows, arguments["validation_split"])
    parts = tuple(validation) if isinstance(validation, tuple | list) else (validation,)
    steps = arguments["validation_steps"]
    evaluated = fit_data(parts, arguments["validation_batch_size"] or data.batch)
    if not steps:
        return evaluated.samples
    evaluated_by_steps = steps * evaluated.batch
    return evaluated_by_steps if evaluated.samples is None else min(evaluated.samples, evaluated_by_steps)


def _stops_early(callbacks: Any) -> bool:
    """Whether an EarlyStopping is among the callbacks of `fit`: one, a list of them, or None."""
    import keras

    callback_list = callbacks if isinstance(callbacks, tuple | list) else [callbacks]
    return any(isinstance(callback, keras.callbacks.EarlyStopping) for callback in callback_list)


def _keras_options(model: Any, data: FitData) -> dict[str, str]:
    """The options of a row, of those that differ from the default, by which it trains as the script does.

    jit_compile is left at its default, `auto`, where the script's own setting is what `auto` would decide here.
    """
    options = {"residence": data.residence, "steps_per_execution": str(model.steps_per_execution)}
    if model.jit_compile != model._resolve_auto_jit_compile():
        options["jit_compile"] = "on" if model.jit_compile else "off"
    return settings.without_defaults(options)
