"""The parts of a training step that are no layer: the loss with the metrics, and the optimizer's update."""

import math

from kernels.problems import LayerCall
from workloads.frameworks.layer_graphs.layer_use import LayerUse, OpenedModel
from workloads.frameworks.tracing.step_inputs import StepInputs


def loss_and_optimizer(opened: OpenedModel) -> list[LayerUse]:
    """Both parts, of a model whose step is Keras's own; of another's step nothing is known beside its layers."""
    import keras

    if type(opened.model).train_step is not keras.Model.train_step:
        return []
    return [*_loss(opened), *_optimizer(opened.model)]


def _loss(opened: OpenedModel) -> list[LayerUse]:
    """The loss and the metrics of predictions, whose gradient is what the backward pass begins with."""
    import keras
    import tensorflow

    model, parts = opened.model, opened.inputs.specs
    if not isinstance(parts, tuple) or len(parts) < 2:
        return []
    x = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), parts[0])
    outputs = keras.src.backend.compute_output_spec(model, x, training=True)
    structure = (outputs, parts[1])
    leaves = keras.tree.flatten(structure)
    predictions = len(keras.tree.flatten(outputs))

    def call(*tensors):
        y_pred, y = keras.tree.pack_sequence_as(structure, list(tensors))
        loss = model.compute_loss(None, y, y_pred, None, training=True)
        model.compute_metrics(None, y, y_pred, None)
        return loss

    return [
        LayerUse(
            path=LayerCall.LOSS,
            kind="loss",
            call=call,
            specs=tuple(tensorflow.TensorSpec(leaf.shape, leaf.dtype) for leaf in leaves),
            differentiable=tuple(place < predictions for place in range(len(leaves))),
            weights=(),
        )
    ]


def _optimizer(model) -> list[LayerUse]:
    """The optimizer's update of all weights by their gradients."""
    import tensorflow

    variables = model.trainable_variables
    if model.optimizer is None or not variables:
        return []

    def call(*gradients):
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
    """Numbers in the inputs of a sample."""
    import keras

    parts = inputs.specs if isinstance(inputs.specs, tuple) else (inputs.specs,)
    specs = [spec for spec in keras.tree.flatten(parts[0]) if spec is not None]
    return sum(math.prod(spec.shape[1:]) for spec in specs)
