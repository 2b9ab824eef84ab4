"""Inside a worker: made-up samples for what a training step takes, with values that its layers and losses take."""

from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.frameworks import user_model
from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.tracing.step_inputs import TAKE_DATA, StepInputs

if TYPE_CHECKING:
    import tensorflow as tf

_WORDS = 50  # words of a made-up text


def synthetic_samples(model: Any, inputs: StepInputs, count: int, seed: int) -> tuple:
    """`count` made-up samples, (x,) or (x, y), in the structure that the model's training step takes.

    Whole numbers are below the size of the model's smallest embedding. inputs: shapes and types of a batch.
    Raises: Refusal for texts where no layer has a vocabulary, and for sparse tensors.
    """
    import keras

    rng = np.random.default_rng(seed)
    parts = inputs.specs if isinstance(inputs.specs, tuple) else (inputs.specs,)
    limit = _smallest_vocabulary(model)
    x = keras.tree.map_structure(lambda spec: _inputs(model, spec, count, limit=limit, rng=rng), parts[0])
    if len(parts) == 1:
        return (x,)
    outputs = getattr(model, "outputs", None) or []
    targets = keras.tree.flatten(parts[1])
    widths = [output.shape[-1] for output in outputs] if len(outputs) == len(targets) else [None] * len(targets)
    arrays = [_targets(spec, width, count, rng) for spec, width in zip(targets, widths, strict=True)]
    return x, keras.tree.pack_sequence_as(parts[1], arrays)


def _smallest_vocabulary(model: Any) -> int:
    """How many whole numbers, from 0 on, every Embedding layer of a model takes; 0 for a model without one."""
    sizes = [int(layer.input_dim) for layer in model._flatten_layers() if getattr(layer, "input_dim", None)]
    return min(sizes, default=0)


def _inputs(
    model: Any, spec: "tf.TypeSpec", count: int, *, limit: int, rng: np.random.Generator
) -> "np.ndarray | tf.Tensor":
    """`count` samples of one input, of the spec's type and its shape behind the first side: texts, whole numbers below `limit`,
    or numbers from 0 to 1.

    limit: 0 for a model without an embedding. In one that has an embedding, any input may be whole numbers for it.
    Raises: Refusal for a sparse tensor, and for texts without a vocabulary.
    """
    import tensorflow

    if isinstance(spec, tensorflow.SparseTensorSpec):
        raise Refusal("it takes sparse tensors, which cannot be made up", change=TAKE_DATA)
    shape = (count, *spec.shape[1:])
    if spec.dtype == tensorflow.string:
        return tensorflow.constant(rng.choice(_texts(model), shape))
    if limit or spec.dtype.is_integer:
        return rng.integers(0, limit or user_model.WORDS, shape).astype(spec.dtype.as_numpy_dtype)
    return rng.random(shape, dtype=np.float32).astype(spec.dtype.as_numpy_dtype)


def _texts(model: Any) -> np.ndarray:
    """Texts to draw samples from, of the vocabulary of the first layer that has one: its words, or for a TextVectorization texts
    of _WORDS words each.

    Raises: Refusal where no layer has a vocabulary.
    """
    for layer in model._flatten_layers():
        if not hasattr(layer, "get_vocabulary"):
            continue
        vocabulary = [word for word in layer.get_vocabulary() if word]
        if not vocabulary:
            continue
        if type(layer).__name__ == "TextVectorization":
            return np.array([" ".join(vocabulary[i : i + _WORDS]) for i in range(0, len(vocabulary), _WORDS)], object)
        return np.array(vocabulary, object)
    raise Refusal("it takes texts, and no layer of it has a vocabulary to make them up from", change=TAKE_DATA)


def _targets(spec: "tf.TensorSpec", width: int | None, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` targets of the spec's type and its shape behind the first side: classes below `width`, or numbers from 0 to 1.

    width: the last side of the output, one place for each class; None where it is not known, then there are two classes.
    """
    shape = (count, *spec.shape[1:])
    if spec.dtype.is_integer:
        return rng.integers(0, width or 2, shape).astype(spec.dtype.as_numpy_dtype)
    return rng.random(shape, dtype=np.float32).astype(spec.dtype.as_numpy_dtype)
