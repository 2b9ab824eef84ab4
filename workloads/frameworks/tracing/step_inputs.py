"""The shapes and types of what a training step takes: of one batch of a user's data, else made up from the model."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from workloads.frameworks import user_model
from workloads.frameworks.tracing.fit_data import FitData, fit_data
from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken

_PARTS = ("x", "y", "sample weights")
BATCH_S = 20  # seconds that data may take for a batch
TAKE_DATA = "name a function that gives (x, y) or a data set: --data FILE:FUNCTION"


class StepInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of `train_step`."""

    #: Specs of tensors in the structure that `train_step` takes: (x, y, sample weights), or what a data set yields.
    specs: Any
    #: Samples in it.
    batch: int
    #: What was assumed; "" if nothing.
    assumed: str = ""

    def resized(self, batch: int) -> "StepInputs":
        """The same for another batch: tensors that begin with the batch are so long then, others stay."""
        import keras

        specs = keras.tree.map_structure(lambda spec: _resized(spec, self.batch, batch), self.specs)
        return StepInputs(specs=specs, batch=batch, assumed=self.assumed)

    def require_sizes(self, name: str) -> None:
        """Raises Broken where a tensor has a side of 0. name: the model's."""
        import keras

        for spec in keras.tree.flatten(self.specs):
            if spec is not None and spec.shape.rank and 0 in spec.shape.as_list():
                raise Broken(f"{name} takes an array of shape {spec.shape}: a size of 0 leaves nothing to compute")


def _resized(spec, old: int, new: int):
    import tensorflow

    if spec is None or not spec.shape.rank or spec.shape[0] != old:
        return spec
    shape = (new, *spec.shape[1:])
    if isinstance(spec, tensorflow.SparseTensorSpec):
        return tensorflow.SparseTensorSpec(shape, spec.dtype)
    return tensorflow.TensorSpec(shape, spec.dtype)


def from_data(name: str, batch: int) -> tuple[StepInputs, FitData, tuple]:
    """The shapes and types of one batch of what the function `name` returns, the numbers of its data, and the data: arrays (x, y,
    sample weights), a tf.data.Dataset, a keras.utils.PyDataset or a generator. `batch` is that of arrays; other data bring their
    own.

    Raises: Broken for a function that fails, or gives what Keras's fit does not take.
    """
    values = user_model.called(name)
    parts = tuple(values) if isinstance(values, tuple | list) and len(values) <= len(_PARTS) else (values,)
    try:
        with _time_for_batch():
            data = fit_data(parts, batch)
    except Refusal as error:
        raise Refusal(f"{name}(): {error}", error.change) from error
    except Broken as error:
        raise Broken(f"{name}(): {error}") from error
    return StepInputs(specs=data.specs, batch=data.batch), data, parts


@contextlib.contextmanager
def _time_for_batch() -> Iterator[None]:
    """Raises Refusal in what is done inside, where it takes longer than data may take for a batch."""

    def end(number: int, frame: Any) -> NoReturn:
        raise Refusal(f"its data gave no batch within {BATCH_S} s", "let its generator yield sooner")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(BATCH_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def synthetic(model, name: str, batch: int, length: int) -> Iterator[StepInputs]:
    """What the step may take, the likeliest first: inputs as the model declares them, targets as its losses want them. Each open
    size beside the batch is `length`.

    Raises: Broken for a model that declares no inputs, and for an open size without a length.
    """
    import keras

    inputs = _declared_inputs(model, name)
    x = keras.tree.map_structure(lambda tensor: _spec(tensor, batch, length, name), inputs)
    first = keras.tree.flatten(x)[0]
    batch = int(first.shape[0])
    targets = _targets(model, x)
    plain_step = type(model).train_step is _base_model().train_step
    if targets is not None:
        yield StepInputs(specs=(x, targets), batch=batch, assumed=f"targets are made up: {_in_words(targets)}")
        other = _other_targets(model, targets)
        if other is not None:
            yield StepInputs(specs=(x, other), batch=batch, assumed=f"targets are made up: {_in_words(other)}")
    yield StepInputs(specs=(x,), batch=batch, assumed="the step is taken to need no targets")
    if not plain_step:
        yield StepInputs(specs=x, batch=batch, assumed="the step is taken to need no targets")


def require_matching(model, inputs: StepInputs, name: str) -> None:
    """Raises Refusal for data whose shapes are not those of the inputs that a model declares."""
    import keras

    structure = getattr(model, "_inputs_struct", None)
    declared = keras.tree.flatten(getattr(model, "inputs", None) or [] if structure is None else structure)
    parts = inputs.specs if isinstance(inputs.specs, tuple) else (inputs.specs,)
    specs = [spec for spec in keras.tree.flatten(parts[0]) if spec is not None]
    wanted = ", ".join(str(tuple(tensor.shape)) for tensor in declared)
    shapes = ", ".join(str(tuple(spec.shape)) for spec in specs)
    matches = len(declared) == len(specs) and all(map(_matches, declared, specs))
    if declared and not matches:
        raise Refusal(f"{name}: its data give {shapes}, and it takes {wanted}", f"give it data of the shapes {wanted}")


def _matches(tensor, spec) -> bool:
    """Whether an array has the shape of an input, whose open sizes take any."""
    if len(tensor.shape) != len(spec.shape):
        return False
    pairs = zip(tensor.shape[1:], spec.shape[1:], strict=True)
    return all(wanted in (None, side) for wanted, side in pairs)


def _base_model():
    import keras

    return keras.Model


def _declared_inputs(model, name: str):
    """The inputs of a functional or sequential model, in their structure; of another, those that it was built for."""
    structure = getattr(model, "_inputs_struct", None)
    if structure is not None:
        return structure
    inputs = getattr(model, "inputs", None)
    if inputs:
        return inputs[0] if len(inputs) == 1 else inputs
    import keras

    shapes = getattr(model, "_build_shapes_dict", None) or {}
    if len(shapes) == 1:
        shape = next(iter(shapes.values()))
        if isinstance(shape, tuple) and all(isinstance(side, int | None) for side in shape):
            return keras.KerasTensor(shape, keras.config.floatx())
    raise Broken(f"{name} gives a model whose input shapes are not known: {TAKE_DATA}", "open-input")


def _spec(tensor, batch: int, length: int, name: str):
    import tensorflow

    sides = list(tensor.shape)
    if sides and sides[0] is None:
        sides[0] = batch
    if getattr(tensor, "ragged", False):
        reason = f"{name} takes ragged tensors in input {tensor.name!r}, which cannot be made up: {TAKE_DATA}"
        raise Broken(reason, "open-input")
    if None in sides and not length:
        raise Broken(
            f"{name} has an open size: {tuple(tensor.shape)} in input {tensor.name!r}; say which: --length 200",
            "open-size",
        )
    shape = tuple(length if side is None else side for side in sides)
    if getattr(tensor, "sparse", False):
        return tensorflow.SparseTensorSpec(shape, tensor.dtype)
    return tensorflow.TensorSpec(shape, tensor.dtype)


def _targets(model, x):
    """Specs of the targets in the structure of the model's outputs; None for a model without a loss."""
    import keras

    loss = getattr(model, "loss", None)
    if loss is None:
        return None
    outputs = _outputs(model, x)
    if outputs is None:
        return None
    leaves = keras.tree.flatten(outputs)
    losses = _losses(loss, outputs, len(leaves))
    batch = int(keras.tree.flatten(x)[0].shape[0])
    specs = [_target(output, function, batch) for output, function in zip(leaves, losses, strict=True)]
    return keras.tree.pack_sequence_as(outputs, specs)


def _outputs(model, x):
    """The outputs for a batch; None where they cannot be told without a step."""
    import keras

    symbolic = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), x)
    try:
        return keras.src.backend.compute_output_spec(model, symbolic, training=False)
    except Exception:
        return None


def _losses(loss, outputs, count: int) -> list:
    """The loss of each output; None where it has none."""
    import keras

    if isinstance(loss, dict):
        names = [path[-1] for path, _ in keras.tree.flatten_with_path(outputs)]
        return [loss.get(name) for name in names] if set(names) & set(loss) else list(loss.values())[:count]
    if isinstance(loss, list | tuple):
        return list(keras.tree.flatten(loss))[:count] if len(loss) == count else [None] * count
    return [loss] * count


def _target(output, loss, batch: int):
    """The target of an output, which may not know its batch where its layers compute it."""
    import tensorflow

    shape = (batch, *output.shape[1:])
    if "sparse" in user_model.name_of_loss(loss):
        return tensorflow.TensorSpec(shape[:-1], "int32")
    return tensorflow.TensorSpec(shape, "float32")


def _other_targets(model, targets):
    """A class for each place, where a loss of the user's own may want that; None for losses by Keras's names."""
    import keras
    import tensorflow

    loss = model.loss
    if isinstance(loss, str | keras.losses.Loss) or not callable(loss):
        return None

    def classes(spec):
        return tensorflow.TensorSpec(spec.shape[:-1], "int32")

    return keras.tree.map_structure(classes, targets)


def _in_words(targets) -> str:
    import keras

    leaves = keras.tree.flatten(targets)
    return ", ".join(f"{leaf.dtype.name} {tuple(leaf.shape)}" for leaf in leaves)
