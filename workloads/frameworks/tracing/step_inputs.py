"""The shapes and types of what a training step takes: of one batch of a user's data, else made up from the model."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from workloads.frameworks import user_model
from workloads.frameworks.tracing.fit_data import FitData, fit_data
from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_PARTS = ("x", "y", "sample weights")
BATCH_S = 20  # seconds that data may take for a batch
TAKE_DATA = "name a function that gives (x, y) or a data set: --data FILE:FUNCTION"


class StepInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes and types of a batch, which a model's `train_step` takes as its argument."""

    #: TensorSpecs in the structure that `train_step` takes: (x, y, sample weights), or what a data set yields.
    specs: Any
    #: Samples in it.
    batch: int
    #: What was assumed about it, as a sentence; "" if nothing.
    assumed: str = ""

    def resized(self, batch: int) -> "StepInputs":
        """The same inputs with another number of samples. Only tensors whose first side is the number of samples change."""
        import keras

        specs = keras.tree.map_structure(lambda spec: _resized(spec, self.batch, batch), self.specs)
        return StepInputs(specs=specs, batch=batch, assumed=self.assumed)

    def require_sizes(self, name: str) -> None:
        """Raises Broken where one of the arrays has a side of 0. name: the model's, for the error."""
        import keras

        for spec in keras.tree.flatten(self.specs):
            if spec is not None and spec.shape.rank and 0 in spec.shape.as_list():
                raise Broken(f"{name} takes an array of shape {spec.shape}: a size of 0 leaves nothing to compute")


def _resized(spec: "tf.TensorSpec | None", old: int, new: int) -> "tf.TensorSpec | None":
    """A spec with the first side `new` where that was `old`. Those are numbers of samples."""
    import tensorflow

    if spec is None or not spec.shape.rank or spec.shape[0] != old:
        return spec
    shape = (new, *spec.shape[1:])
    if isinstance(spec, tensorflow.SparseTensorSpec):
        return tensorflow.SparseTensorSpec(shape, spec.dtype)
    return tensorflow.TensorSpec(shape, spec.dtype)


def from_data(name: str, batch: int) -> tuple[StepInputs, FitData, tuple]:
    """The shapes and types of one batch of a user's data, the numbers of these data, and the data themselves.

    name: the user's function that returns the data, as `file.py:function`. They are a tuple of arrays (x, y, sample weights), or
    a tuple with one tf.data.Dataset, keras.utils.PyDataset or generator. batch: samples of a batch of arrays; other data come in
    batches.
    Raises: Broken for a function that fails, or gives what Keras's fit does not take.
    """
    values = user_model.called(name)
    parts = tuple(values) if isinstance(values, tuple | list) and len(values) <= len(_PARTS) else (values,)
    try:
        with _time_for_batch():
            data = fit_data(parts, batch)
    except Refusal as error:
        raise Refusal(f"{name}(): {error}", change=error.change) from error
    except Broken as error:
        raise Broken(f"{name}(): {error}") from error
    return StepInputs(specs=data.specs, batch=data.batch), data, parts


@contextlib.contextmanager
def _time_for_batch() -> Iterator[None]:
    """A `with` block in which Refusal is raised after BATCH_S seconds, the longest that data may take for a batch."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Refusal(f"its data gave no batch within {BATCH_S} s", change="let its generator yield sooner")

    handler_before = signal.signal(signal.SIGALRM, end)
    signal.alarm(BATCH_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler_before)


def synthetic(model: "keras.Model", name: str, batch: int, length: int) -> Iterator[StepInputs]:
    """The shapes and types that a model's training step may take, the likeliest first.

    Inputs are as the model declares them, targets as its losses want them. length: of each side that the model leaves open
    besides the batch; 0 if none is given. name: the model's, for errors.
    Raises: Broken for a model that declares no inputs, and for an open side where `length` is 0.
    """
    import keras

    inputs = _declared_inputs(model, name)
    x = keras.tree.map_structure(lambda tensor: _spec(tensor, batch, length, name), inputs)
    first = keras.tree.flatten(x)[0]
    batch = int(first.shape[0])
    targets = _targets(model, x)
    has_step_of_keras = type(model).train_step is keras.Model.train_step
    if targets is not None:
        yield StepInputs(specs=(x, targets), batch=batch, assumed=f"targets are made up: {_in_words(targets)}")
        classes = _class_targets(model, targets)
        if classes is not None:
            yield StepInputs(specs=(x, classes), batch=batch, assumed=f"targets are made up: {_in_words(classes)}")
    yield StepInputs(specs=(x,), batch=batch, assumed="the step is taken to need no targets")
    if not has_step_of_keras:  # a user's own step may take x itself in place of a tuple
        yield StepInputs(specs=x, batch=batch, assumed="the step is taken to need no targets")


def require_matching(model: "keras.Model", inputs: StepInputs, name: str) -> None:
    """Raises Refusal for data whose shapes are not those of the inputs that a model declares. name: the model's, for the
    error."""
    import keras

    structure = getattr(model, "_inputs_struct", None)
    declared = keras.tree.flatten(getattr(model, "inputs", None) or [] if structure is None else structure)
    parts = inputs.specs if isinstance(inputs.specs, tuple) else (inputs.specs,)
    specs = [spec for spec in keras.tree.flatten(parts[0]) if spec is not None]
    wanted = ", ".join(str(tuple(tensor.shape)) for tensor in declared)
    shapes = ", ".join(str(tuple(spec.shape)) for spec in specs)
    matches = len(declared) == len(specs) and all(map(_matches, declared, specs))
    if declared and not matches:
        raise Refusal(
            f"{name}: its data give {shapes}, and it takes {wanted}", change=f"give it data of the shapes {wanted}"
        )


def _matches(tensor: "keras.KerasTensor", spec: "tf.TensorSpec") -> bool:
    """Whether an array of the data, given by its spec, has the shape of an input that the model declares, given by its tensor.

    The number of samples may be any, and so may a side that the model leaves open (None).
    """
    if len(tensor.shape) != len(spec.shape):
        return False
    pairs = zip(tensor.shape[1:], spec.shape[1:], strict=True)
    return all(declared in (None, side) for declared, side in pairs)


def _declared_inputs(model: "keras.Model", name: str) -> Any:
    """The inputs that a model declares: a KerasTensor, or a list, tuple or dictionary of them.

    A functional or sequential model has them. Of any other, it is the one shape that it was built for.
    Raises: Broken where that is not known either.
    """
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
    raise Broken(f"{name} gives a model whose input shapes are not known: {TAKE_DATA}", cause="open-input")


def _spec(tensor: "keras.KerasTensor", batch: int, length: int, name: str) -> "tf.TensorSpec | tf.SparseTensorSpec":
    """The spec of a batch for an input that the model `name` declares.

    length: of every other side that it leaves open; 0 if none is given.
    Raises: Broken for a ragged input, and for an open side where `length` is 0.
    """
    import tensorflow

    sides = list(tensor.shape)
    if sides and sides[0] is None:
        sides[0] = batch
    if getattr(tensor, "ragged", False):
        reason = f"{name} takes ragged tensors in input {tensor.name!r}, which cannot be made up: {TAKE_DATA}"
        raise Broken(reason, cause="open-input")
    if None in sides and not length:
        raise Broken(
            f"{name} has an open size: {tuple(tensor.shape)} in input {tensor.name!r}; say which: --length 200",
            cause="open-size",
        )
    shape = tuple(length if side is None else side for side in sides)
    if getattr(tensor, "sparse", False):
        return tensorflow.SparseTensorSpec(shape, tensor.dtype)
    return tensorflow.TensorSpec(shape, tensor.dtype)


def _targets(model: "keras.Model", x: Any) -> Any:
    """TensorSpecs of the targets in the structure of the model's outputs.

    None for a model without a loss, and for one whose outputs are not known before it runs. x: TensorSpecs of its inputs.
    """
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


def _outputs(model: "keras.Model", x: Any) -> Any:
    """The model's outputs for inputs of the specs x, as KerasTensors; None where Keras cannot compute them symbolically."""
    import keras

    symbolic = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), x)
    try:
        return keras.src.backend.compute_output_spec(model, symbolic, training=False)
    except Exception:
        return None


def _losses(loss: Any, outputs: Any, count: int) -> list:
    """The loss of each of a model's `count` outputs; None where an output has none.

    loss: what the model was compiled with: one loss, or a list or dictionary of them. outputs: in the model's structure.
    """
    import keras

    if isinstance(loss, dict):
        names = [path[-1] for path, _ in keras.tree.flatten_with_path(outputs)]
        return [loss.get(name) for name in names] if set(names) & set(loss) else list(loss.values())[:count]
    if isinstance(loss, list | tuple):
        return list(keras.tree.flatten(loss))[:count] if len(loss) == count else [None] * count
    return [loss] * count


def _target(output: "keras.KerasTensor", loss: Any, batch: int) -> "tf.TensorSpec":
    """The spec of an output's target: a whole number for each class distribution where the loss is sparse, else the output's
    shape.

    The output's own number of samples may be None, so `batch` is taken.
    """
    import tensorflow

    shape = (batch, *output.shape[1:])
    if "sparse" in user_model.name_of_loss(loss):
        return tensorflow.TensorSpec(shape[:-1], "int32")
    return tensorflow.TensorSpec(shape, "float32")


def _class_targets(model: "keras.Model", targets: Any) -> Any:
    """The same targets as numbers of classes, without their last side: a loss that is a function of the user's may want these.

    None for losses of Keras, of which it is known what they want.
    """
    import keras
    import tensorflow

    loss = model.loss
    if isinstance(loss, str | keras.losses.Loss) or not callable(loss):
        return None

    def classes(spec: "tf.TensorSpec") -> "tf.TensorSpec":
        return tensorflow.TensorSpec(spec.shape[:-1], "int32")

    return keras.tree.map_structure(classes, targets)


def _in_words(targets: Any) -> str:
    """A nest of TensorSpecs for a sentence: `int32 (32,), float32 (32, 10)`."""
    import keras

    leaves = keras.tree.flatten(targets)
    return ", ".join(f"{leaf.dtype.name} {tuple(leaf.shape)}" for leaf in leaves)
