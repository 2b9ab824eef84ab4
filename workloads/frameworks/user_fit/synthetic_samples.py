"""Inside a worker: made-up samples for what a training step takes, with values that its layers and losses take."""

from typing import Any

import numpy as np

from workloads.frameworks import user_model
from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.tracing.step_inputs import TAKE_DATA, StepInputs

_WORDS = 50  # words of a made-up text


def synthetic_samples(model: Any, inputs: StepInputs, count: int, seed: int) -> tuple:
    """(x,) or (x, y): `count` samples in the structure of what the step takes. Whole numbers are below the smallest vocabulary.

    Raises: Refusal for texts that no layer has a vocabulary for, and for sparse tensors.
    """
    import keras

    rng = np.random.default_rng(seed)
    parts = inputs.specs if isinstance(inputs.specs, tuple) else (inputs.specs,)
    words = _smallest_vocabulary(model)
    x = keras.tree.map_structure(lambda spec: _inputs(model, spec, count, words=words, rng=rng), parts[0])
    if len(parts) == 1:
        return (x,)
    outputs = getattr(model, "outputs", None) or []
    targets = keras.tree.flatten(parts[1])
    widths = [output.shape[-1] for output in outputs] if len(outputs) == len(targets) else [None] * len(targets)
    targets_ = [_targets(spec, width, count, rng) for spec, width in zip(targets, widths, strict=True)]
    return x, keras.tree.pack_sequence_as(parts[1], targets_)


def _smallest_vocabulary(model: Any) -> int:
    """Whole numbers that every embedding of a model knows; 0 without one."""
    sizes = [int(layer.input_dim) for layer in model._flatten_layers() if getattr(layer, "input_dim", None)]
    return min(sizes, default=0)


def _inputs(model: Any, spec: Any, count: int, *, words: int, rng: np.random.Generator) -> Any:
    import tensorflow

    if isinstance(spec, tensorflow.SparseTensorSpec):
        raise Refusal("it takes sparse tensors, which cannot be made up", TAKE_DATA)
    shape = (count, *spec.shape[1:])
    if spec.dtype == tensorflow.string:
        return tensorflow.constant(rng.choice(_texts(model), shape))
    if words or spec.dtype.is_integer:
        return rng.integers(0, words or user_model.WORDS, shape).astype(spec.dtype.as_numpy_dtype)
    return rng.random(shape, dtype=np.float32).astype(spec.dtype.as_numpy_dtype)


def _texts(model: Any) -> np.ndarray:
    """Texts of the vocabulary of a model's layers.

    Raises: Refusal without one.
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
    raise Refusal("it takes texts, and no layer of it has a vocabulary to make them up from", TAKE_DATA)


def _targets(spec: Any, width: int | None, count: int, rng: np.random.Generator) -> np.ndarray:
    """Classes as whole numbers below the output's width, else numbers from 0 to 1."""
    shape = (count, *spec.shape[1:])
    if spec.dtype.is_integer:
        return rng.integers(0, width or 2, shape).astype(spec.dtype.as_numpy_dtype)
    return rng.random(shape, dtype=np.float32).astype(spec.dtype.as_numpy_dtype)
