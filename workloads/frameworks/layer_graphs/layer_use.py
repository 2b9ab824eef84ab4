"""LayerUse: a layer as a model calls it, or alone; made by a constructor, or recorded while the model's step is traced."""

import contextlib
import functools
import inspect
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from workloads.corrections.nearest import nearest
from workloads.frameworks import models, user_model
from workloads.frameworks.layer_graphs.inputs import InputShape, input_words, parsed
from workloads.frameworks.tracing import step, step_inputs
from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.tracing.step_inputs import StepInputs
from workloads.harness.dispatch import Broken, described

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from tensorflow.python.framework.func_graph import FuncGraph

    from kernels.networks import Network


class LayerUse(msgspec.Struct, frozen=True, kw_only=True):
    """A layer, or another part of a training step, with what it takes."""

    #: Its path in the model, or its class.
    path: str
    #: Its class.
    kind: str
    #: call(*tensors): its output for tensors of `specs`.
    call: Callable
    #: TensorSpecs of the tensors that it takes.
    specs: tuple
    #: For each of these whether its gradient is needed.
    differentiable: tuple[bool, ...]
    #: The TensorFlow variables whose gradient is needed.
    weights: tuple
    #: What whole numbers among its inputs stay below.
    limit: int = 2
    #: What makes it equal to another.
    identity: str = ""
    #: How many layers of the model are equal to it.
    count: int = 1

    @property
    def input(self) -> str:
        """The shapes of a sample's inputs in words."""
        return input_words(self.specs)


class WrongLayer(Broken):
    """A layer cannot be made, or does not take its input, because of a flag."""

    def __init__(self, reason: str, wrong: str, right: str):
        super().__init__(reason)
        #: The flag, or its value, that is wrong; "" where one lacks.
        self.wrong = wrong
        #: The words to type for it; "" to leave it out.
        self.right = right


#: Shapes that layers take, to propose one that fits.
_USUAL_SHAPES = ("32,32,3", "128,64", "784", "16,16,16,3", "200:int32", "10,16,16,3")
#: The flags of arguments that have one; the rest is typed after --set.
FLAGS = {"filters": "--filters", "units": "--units", "kernel_size": "--kernel"}
#: Values to propose for arguments that a layer needs.
_USUAL_VALUES = {
    "filters": 32,
    "units": 64,
    "kernel_size": 3,
    "num_heads": 4,
    "key_dim": 16,
    "input_dim": 1000,
    "output_dim": 64,
}


def layer_by_itself(name: str, arguments: str, inputs: Sequence[InputShape], batch: int) -> LayerUse:
    """A layer that is part of no model, built for inputs of these shapes.

    name: the name of its class in Keras, or `file.py:Class`. arguments: of its constructor, as a JSON object; "" for none.
    inputs: shape and type of a sample of each input.
    Raises: Broken for a class that is not there, or whose constructor fails; WrongLayer for arguments or inputs that it does not
    take, with flags that it would.
    """
    layer_class = _layer_class(name)
    values = json.loads(arguments or "{}")
    _require_arguments(name, layer_class, values)
    build = functools.partial(_new_layer, name, layer_class, values)
    use_or_error = _use_with_inputs(name, build(), inputs, batch)
    if isinstance(use_or_error, LayerUse):
        return use_or_error
    error = use_or_error
    right = ""
    for text in _USUAL_SHAPES:
        if isinstance(_use_with_inputs(name, build(), [parsed(text)] * len(inputs), batch), LayerUse):
            right = shlex.join(["--input", *[text] * len(inputs)])
            break
    words = " ".join(shape.words for shape in inputs)
    if not right:
        raise Broken(f"{name} takes no input of {words}, nor a usual one: {_first_sentence(error)}") from error
    reason = f"{name} does not take an input of {words}: {_first_sentence(error)}"
    raise WrongLayer(reason, wrong="--input", right=right) from error


def _new_layer(name: str, layer_class: type, values: dict[str, Any]) -> "keras.Layer":
    """A new layer of a class. name: of the class, for the error. values: the arguments of its constructor.

    Raises: Broken where the constructor raises.
    """
    try:
        return layer_class(**values)
    except Exception as error:
        raise Broken(f"{name}({_in_words(values)}) fails: {described(error)}") from error


def _use_with_inputs(name: str, layer: "keras.Layer", inputs: Sequence[InputShape], batch: int) -> LayerUse | Exception:
    """A new layer called with inputs of these shapes, in the first of the ways that it can be called; the error of the likeliest
    way where it can be called in none. name: of its class."""
    import tensorflow

    specs = [tensorflow.TensorSpec((batch, *shape.sides), shape.dtype) for shape in inputs]
    first_error: Exception | None = None
    for call in _calls(layer, len(specs)):
        try:
            tensorflow.function(call, autograph=False).get_concrete_function(*specs)
        except Exception as error:
            first_error = first_error or error
            continue
        differentiable = [spec.dtype.is_floating for spec in specs]
        return _use(name, layer, call, specs=tuple(specs), differentiable=differentiable)
    assert first_error is not None, "there are two ways to call a layer"
    return first_error


def _in_words(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _require_arguments(name: str, layer_class: type, values: dict[str, Any]) -> None:
    """Raises WrongLayer where the constructor of a class needs an argument that is not among `values`, or does not have one that
    is.

    The error has flags with usual values for what is lacking. name: of the class.
    """
    parameters = [p for p in inspect.signature(layer_class).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    for argument in values:
        if argument not in (*named, *_COMMON_ARGUMENTS):
            flag = FLAGS.get(argument, "--set")
            raise WrongLayer(f"{name} has no argument {argument}; it has {', '.join(named)}", wrong=flag, right="")
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    lacking = [argument for argument in needed if argument not in values]
    if lacking:
        words: list[str] = []
        for argument in lacking:
            value = str(_USUAL_VALUES.get(argument, _USUAL_NUMBER))
            words += [FLAGS[argument], value] if argument in FLAGS else ["--set", f"{argument}={value}"]
        raise WrongLayer(f"{name} needs {' and '.join(lacking)}", wrong="", right=shlex.join(words))


#: The value to propose for any other argument that a layer needs.
_USUAL_NUMBER = 2
#: Arguments that Keras's layers take as keywords without naming them.
_COMMON_ARGUMENTS = ("activity_regularizer", "trainable", "dtype", "autocast", "name")


def _calls(layer: "keras.Layer", inputs: int) -> list[Callable]:
    """Functions that call a layer with `inputs` tensors, the likeliest way first: as arguments, then as one list.

    A single tensor is given for every input that the layer needs, as in self-attention.
    """
    training = {"training": True} if "training" in inspect.signature(layer.call).parameters else {}
    copies = max(1, _required_inputs(layer)) if inputs == 1 else 1

    def separately(*tensors: "tf.Tensor") -> Any:
        return layer(*(tensors * copies), **training)

    def as_list(*tensors: "tf.Tensor") -> Any:
        return layer([*tensors], **training)

    return [separately, as_list]


def _first_sentence(error: Exception) -> str:
    """An error's type and the first sentence of its message."""
    return described(error).partition(". ")[0].rstrip(".")


def _layer_class(name: str) -> type:
    """The class of a layer: one of Keras's by its name, or a user's as `file.py:Class`.

    Raises: WrongLayer for a name that Keras does not have, with a similar one; Broken for a user's that is no layer.
    """
    import keras

    if ":" not in name:
        layer_class = getattr(keras.layers, name, None)
        if layer_class is None:
            similar = nearest(name, [known for known in dir(keras.layers) if known[0].isupper()])
            raise WrongLayer(f"Keras has no layer {name!r}", wrong=name, right=similar or "Conv2D")
    else:
        layer_class = user_model.attribute(name)
    if not (inspect.isclass(layer_class) and issubclass(layer_class, keras.layers.Layer)):
        raise Broken(f"{name} is no class of a Keras layer")
    return layer_class


def _required_inputs(layer: "keras.Layer") -> int:
    """How many arguments of a layer's `call` have no default."""
    parameters = inspect.signature(layer.call).parameters.values()
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in plain)


def _use(path: str, layer: "keras.Layer", call: Callable, *, specs: tuple, differentiable: list[bool]) -> LayerUse:
    """The LayerUse of a built layer; all other fields follow from the layer."""
    return LayerUse(
        path=path,
        kind=type(layer).__name__,
        call=call,
        specs=specs,
        differentiable=tuple(differentiable),
        weights=tuple(variable.value for variable in layer.trainable_variables),
        limit=_limit(layer),
        identity=_identity(path, layer, specs, differentiable),
    )


def _limit(layer: "keras.Layer") -> int:
    """The number that whole numbers have to stay below that a layer takes: the rows of its smallest embedding."""
    sizes = [int(inner.input_dim) for inner in layer._flatten_layers() if getattr(inner, "input_dim", None)]
    return min(sizes, default=user_model.WORDS)


def _identity(path: str, layer: "keras.Layer", specs: tuple, differentiable: list[bool]) -> str:
    """A text that is the same for two layers whose calls do the same work: class, configuration, weights, inputs."""
    try:
        configuration = {name: value for name, value in layer.get_config().items() if name not in ("name", "seed")}
        text = json.dumps(configuration, sort_keys=True, default=str)
    except Exception:  # a user's layer need not have one
        text = path
    weights = [(tuple(variable.shape), variable.trainable) for variable in layer.weights]
    return f"{type(layer)} {text} {weights} {specs} {differentiable}"


class OpenedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model, compiled and built, with what its training step takes."""

    model: Any
    #: The argument of its `train_step`.
    inputs: StepInputs


def open_model(name: str, network: "Network | None", batch: int, length: int = 0) -> OpenedModel:
    """A compiled model, built for `batch` samples, with the shapes that its training step takes.

    network: its description in kernels.networks; None for a user's model, whose `name` says where it is. length: of each side
    that the model leaves open.
    Raises: Broken with what to change where the model does not build or its step does not trace.
    """
    model = models.build(network) if network else user_model.opened(name)
    step.require_graph_execution(model)
    step.compile_where_it_is_not(model, name)
    first_error: Exception | None = None
    for inputs in step_inputs.synthetic(model, name, batch, length):
        inputs.require_sizes(name)
        step.build(model, inputs)
        try:
            _trace(model, inputs)
        except Refusal:  # it tells the user what to change, whatever the inputs
            raise
        except Exception as error:
            first_error = first_error or error
            continue
        return OpenedModel(model=model, inputs=inputs)
    assert first_error is not None
    raise Broken(f"{name}: its train_step does not trace: {described(first_error).rstrip('.')}") from first_error


def _trace(model: "keras.Model", inputs: StepInputs) -> "FuncGraph":
    """The graph of the model's `train_step`, traced without AutoGraph as Keras's fit does it."""
    import tensorflow

    @tensorflow.autograph.experimental.do_not_convert
    def train_step(data: Any) -> Any:
        return model.train_step(data)

    return tensorflow.function(train_step).get_concrete_function(inputs.specs).graph


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A layer's call while the step was traced."""

    path: str
    layer: Any
    #: What it was called with, tensors of the step's graph among it.
    args: tuple
    keywords: dict[str, Any]


def uses_of_model(opened_model: OpenedModel) -> list[LayerUse]:
    """The layers that a model's training step calls. Layers that do the same work are in the list once, with their number as
    `count`.

    A model inside the model is taken apart into its layers; a layer that is made of other layers is not.
    """
    recorded: list[RecordedCall] = []
    with _recording(opened_model.model, recorded):
        graph = _trace(opened_model.model, opened_model.inputs)
    learned = _depending_on_weights(graph, opened_model.model)
    by_identity: dict[str, LayerUse] = {}
    for call in recorded:
        use = _recorded_use(call, learned)
        equal = by_identity.get(use.identity)
        if equal is None:
            by_identity[use.identity] = use
        else:
            by_identity[use.identity] = msgspec.structs.replace(equal, count=equal.count + 1)
    return list(by_identity.values())


@contextlib.contextmanager
def _recording(model: "keras.Model", recorded: list[RecordedCall]) -> Iterator[None]:
    """A `with` block in which each call of a layer of the model is appended to `recorded`, but for calls inside another layer.

    Models inside the model are no such layers: what they call is recorded. The `call` of each layer is replaced meanwhile.
    """
    open_paths: list[str] = []  # names of the models that are being called now, the outermost first
    inside_layer = False

    def recording_call(layer: "keras.Layer") -> Callable:
        """A function that does what the layer's `call` does, and records it where that is not inside another layer."""
        call = layer.call

        @functools.wraps(call)
        def recorder(*args: Any, **keywords: Any) -> Any:
            """Records the call with the path of the layer, then makes it; a model's call is only made, with its name in the
            path."""
            nonlocal inside_layer
            if inside_layer:
                return call(*args, **keywords)  # a part of a layer that has been recorded
            if _is_model(layer):
                open_paths.append("" if layer is model else layer.name)
                try:
                    return call(*args, **keywords)
                finally:
                    open_paths.pop()
            path = "/".join([part for part in open_paths if part] + [layer.name])
            recorded.append(RecordedCall(path=path, layer=layer, args=args, keywords=keywords))
            inside_layer = True
            try:
                return call(*args, **keywords)
            finally:
                inside_layer = False

        return recorder

    wrapped = [layer for layer in model._flatten_layers() if "call" not in vars(layer)]
    for layer in wrapped:
        layer.call = recording_call(layer)
    try:
        yield
    finally:
        for layer in wrapped:
            del layer.call


def _is_model(layer: "keras.Layer") -> bool:
    import keras

    return isinstance(layer, keras.Model)


def _depending_on_weights(graph: "FuncGraph", model: "keras.Model") -> set[str]:
    """The names of the operations of a traced step whose results depend on a weight that training changes.

    Only what such an operation gives to a layer needs a gradient.
    """
    handles = {id(variable.value.handle) for variable in model.trainable_variables}
    # A variable outside of the graph is a placeholder in it.
    learned = {placeholder.op.name for variable, placeholder in graph.captures if id(variable) in handles}
    for operation in graph.get_operations():  # in the order of their tracing: after those that they take tensors of
        if any(tensor.op.name in learned for tensor in operation.inputs):
            learned.add(operation.name)
    return learned


def _recorded_use(recorded: RecordedCall, learned: set[str]) -> LayerUse:
    """The layer of a recorded call, with a function that calls it again in the same way with other tensors.

    learned: names of the operations that depend on a weight which training changes.
    """
    import keras
    import tensorflow

    structure = (recorded.args, recorded.keywords)
    leaves = keras.tree.flatten(structure)
    tensor_indices = [index for index, leaf in enumerate(leaves) if tensorflow.is_tensor(leaf)]
    inputs = [leaves[index] for index in tensor_indices]
    specs = tuple(tensorflow.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs)
    differentiable = [tensor.dtype.is_floating and tensor.op.name in learned for tensor in inputs]
    constants = [None if index in tensor_indices else leaf for index, leaf in enumerate(leaves)]
    layer = recorded.layer

    def call(*tensors: "tf.Tensor") -> Any:
        """Calls the layer with these tensors in place of those that it was recorded with; its other arguments are the same."""
        values = list(constants)
        for index, tensor in zip(tensor_indices, tensors, strict=True):
            values[index] = tensor
        args, keywords = keras.tree.pack_sequence_as(structure, values)
        return layer(*args, **keywords)

    return _use(recorded.path, layer, call, specs=specs, differentiable=differentiable)
