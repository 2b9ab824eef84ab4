"""The parts of a training step that are no layer: the loss with the metrics, and the optimizer's update."""

import math
from typing import TYPE_CHECKING

from kernels.problems import LayerCall
from workloads.frameworks.layer_graphs.layer_use import LayerUse, OpenedModel
from workloads.frameworks.tracing.step_inputs import StepInputs

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


def loss_and_optimizer(opened: OpenedModel) -> list[LayerUse]:
    """The loss and the optimizer of a model as parts of its training step that can be called by themselves.

    [] of a model with a `train_step` of its own, of which nothing is known but its layers.
    """
    import keras

    if type(opened.model).train_step is not keras.Model.train_step:
        return []
    return [*_loss(opened), *_optimizer(opened.model)]


def _loss(opened: OpenedModel) -> list[LayerUse]:
    """The part that computes the loss and the metrics from predictions and targets; [] of a model without targets.

    Its gradient by the predictions is what the backward pass begins with.
    """
    import keras
    import tensorflow

    model, parts = opened.model, opened.inputs.specs
    if not isinstance(parts, tuple) or len(parts) < 2:
        return []
    inputs = parts[0]
    targets = parts[1]
    x = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), inputs)
    outputs = keras.src.backend.compute_output_spec(model, x, training=True)
    structure = (outputs, targets)
    leaves = keras.tree.flatten(structure)
    predictions = len(keras.tree.flatten(outputs))

    def call(*tensors: "tf.Tensor") -> "tf.Tensor":
        y_pred, y = keras.tree.pack_sequence_as(structure, list(tensors))
        loss = model.compute_loss(x=None, y=y, y_pred=y_pred, sample_weight=None, training=True)
        model.compute_metrics(x=None, y=y, y_pred=y_pred, sample_weight=None)
        return loss

    return [
        LayerUse(
            path=LayerCall.LOSS,
            kind="loss",
            call=call,
            specs=tuple(tensorflow.TensorSpec(leaf.shape, leaf.dtype) for leaf in leaves),
            differentiable=tuple(number < predictions for number in range(len(leaves))),  # targets come behind them
            weights=(),
        )
    ]


def _optimizer(model: "keras.Model") -> list[LayerUse]:
    """The part that updates all weights by their gradients, which it takes; [] of a model without optimizer or weights."""
    import tensorflow

    variables = model.trainable_variables
    if model.optimizer is None or not variables:
        return []

    def call(*gradients: "tf.Tensor") -> list:
        model.optimizer.apply(list(gradients), variables)
        return []

    return [
        LayerUse(
            path=LayerCall.OPTIMIZER,
            kind=type(model.optimizer).__name__,
            call=call,
            specs=tuple(tensorflow.TensorSpec(variable.shape, variable.dtype) for variable in variables),
            differentiable=(False,) * len(variables),
            weights=(),
        )
    ]


def sample_values(inputs: StepInputs) -> int:
    """How many numbers the model's inputs have for one sample, without targets."""
    import keras

    parts = inputs.specs if isinstance(inputs.specs, tuple) else (inputs.specs,)
    specs = [spec for spec in keras.tree.flatten(parts[0]) if spec is not None]
    return sum(math.prod(spec.shape[1:]) for spec in specs)
