"""LayerUse: a layer as a model calls it, or alone; made by a constructor, or recorded while the model's step is traced."""

import contextlib
import functools
import inspect
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from workloads.corrections.likeness import closest
from workloads.frameworks import models, user_model
from workloads.frameworks.layer_graphs.inputs import InputShape, input_words, parsed
from workloads.frameworks.tracing import step, step_inputs
from workloads.frameworks.tracing.refusal import Refusal
from workloads.frameworks.tracing.step_inputs import StepInputs
from workloads.harness.dispatch import Broken, described


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


def alone(name: str, arguments: str, inputs: Sequence[InputShape], batch: int) -> LayerUse:
    """A layer by the name of its class, built for inputs of these shapes.

    Raises: Broken for a class that is not there; WrongLayer for what it does not take.
    """
    layer_class = _layer_class(name)
    values = json.loads(arguments or "{}")
    _require_arguments(name, layer_class, values)
    build = functools.partial(_built, name, layer_class, values)
    use = _fitting(name, build(), inputs, batch)
    if isinstance(use, LayerUse):
        return use
    right = ""
    for text in _USUAL_SHAPES:
        if isinstance(_fitting(name, build(), [parsed(text)] * len(inputs), batch), LayerUse):
            right = shlex.join(["--input", *[text] * len(inputs)])
            break
    words = " ".join(shape.words for shape in inputs)
    if not right:
        raise Broken(f"{name} takes no input of {words}, nor a usual one: {_first_sentence(use)}") from use
    raise WrongLayer(f"{name} does not take an input of {words}: {_first_sentence(use)}", "--input", right) from use


def _built(name: str, layer_class: type, values: dict):
    """A new layer.

    Raises: Broken.
    """
    try:
        return layer_class(**values)
    except Exception as error:
        raise Broken(f"{name}({_in_words(values)}) fails: {described(error)}") from error


def _fitting(name: str, layer, inputs: Sequence[InputShape], batch: int) -> LayerUse | Exception:
    """A new layer for these inputs; what it raises where it does not take them."""
    import tensorflow

    specs = [tensorflow.TensorSpec((batch, *shape.sides), shape.dtype) for shape in inputs]
    first_error: Exception = ValueError("no input")
    for number, call in enumerate(_calls(layer, len(specs))):
        try:
            tensorflow.function(call, autograph=False).get_concrete_function(*specs)
        except Exception as error:
            first_error = first_error if number else error
            continue
        differentiable = [spec.dtype.is_floating for spec in specs]
        return _use(name, layer, call, specs=tuple(specs), differentiable=differentiable)
    return first_error


def _in_words(values: dict) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _require_arguments(name: str, layer_class: type, values: dict) -> None:
    """Raises WrongLayer for an argument that its constructor needs and has not, or has not at all."""
    parameters = [p for p in inspect.signature(layer_class).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    for argument in values:
        if argument not in (*named, *_COMMON_ARGUMENTS):
            flag = FLAGS.get(argument, "--set")
            raise WrongLayer(f"{name} has no argument {argument}; it has {', '.join(named)}", flag, "")
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    lacking = [argument for argument in needed if argument not in values]
    if lacking:
        words: list[str] = []
        for argument in lacking:
            value = str(_USUAL_VALUES.get(argument, 2))
            words += [FLAGS[argument], value] if argument in FLAGS else ["--set", f"{argument}={value}"]
        raise WrongLayer(f"{name} needs {' and '.join(lacking)}", "", shlex.join(words))


#: Arguments that Keras's layers take as keywords without naming them.
_COMMON_ARGUMENTS = ("activity_regularizer", "trainable", "dtype", "autocast", "name")


def _calls(layer, inputs: int) -> list[Callable]:
    """The ways to call a layer with so many inputs, the likeliest first. One input stands for each that the layer needs, as in
    self-attention."""
    training = {"training": True} if "training" in inspect.signature(layer.call).parameters else {}
    copies = max(1, _required_inputs(layer)) if inputs == 1 else 1

    def separately(*tensors):
        return layer(*(tensors * copies), **training)

    def as_list(*tensors):
        return layer([*tensors], **training)

    return [separately, as_list]


def _first_sentence(error: Exception) -> str:
    """An error's type and the first sentence of its message."""
    return described(error).partition(". ")[0].rstrip(".")


def _layer_class(name: str) -> type:
    """The class of a layer: Keras's by its name, a user's as file.py:Class.

    Raises: Broken.
    """
    import keras

    if ":" not in name:
        layer_class = getattr(keras.layers, name, None)
        if layer_class is None:
            similar = closest(name, [known for known in dir(keras.layers) if known[0].isupper()])
            raise WrongLayer(f"Keras has no layer {name!r}", name, similar or "Conv2D")
    else:
        layer_class = user_model.attribute(name)
    if not (inspect.isclass(layer_class) and issubclass(layer_class, keras.layers.Layer)):
        raise Broken(f"{name} is no class of a Keras layer")
    return layer_class


def _required_inputs(layer) -> int:
    """How many arguments of its call have no default."""
    parameters = inspect.signature(layer.call).parameters.values()
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in plain)


def _use(path: str, layer, call: Callable, *, specs: tuple, differentiable: list[bool]) -> LayerUse:
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


def _limit(layer) -> int:
    """What whole numbers stay below that a layer takes: the rows of its embeddings."""
    sizes = [int(inner.input_dim) for inner in layer._flatten_layers() if getattr(inner, "input_dim", None)]
    return min(sizes, default=user_model.WORDS)


def _identity(path: str, layer, specs: tuple, differentiable: list[bool]) -> str:
    """Text that two layers share whose calls do the same work."""
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


def opened(name: str, network, batch: int, length: int = 0) -> OpenedModel:
    """A network of the tables, or a user's model by its name, built for a batch.

    Raises: Broken with what to change.
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
        except Refusal:
            raise
        except Exception as error:
            first_error = first_error or error
            continue
        return OpenedModel(model=model, inputs=inputs)
    assert first_error is not None
    raise Broken(f"{name}: its train_step does not trace: {described(first_error).rstrip('.')}") from first_error


def _trace(model, inputs: StepInputs):
    """The graph of `train_step`."""
    import tensorflow

    @tensorflow.autograph.experimental.do_not_convert
    def train_step(data):
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
    """The layers that a model's training step calls, equal ones once. A model inside the model counts by its layers, a layer made
    of layers as a whole."""
    recorded: list[RecordedCall] = []
    with _recording(opened_model.model, recorded):
        graph = _trace(opened_model.model, opened_model.inputs)
    learned = _learned(graph, opened_model.model)
    first: dict[str, LayerUse] = {}
    for call in recorded:
        use = _recorded_use(call, learned)
        equal = first.get(use.identity)
        if equal is None:
            first[use.identity] = use
        else:
            first[use.identity] = msgspec.structs.replace(equal, count=equal.count + 1)
    return list(first.values())


@contextlib.contextmanager
def _recording(model, recorded: list[RecordedCall]) -> Iterator[None]:
    """Records the calls of all layers of a built model that are in no other layer but models."""
    open_paths: list[str] = []
    inside_layer = False

    def wrapper(layer):
        call = layer.call

        @functools.wraps(call)
        def recorder(*args, **keywords):
            nonlocal inside_layer
            if inside_layer:
                return call(*args, **keywords)
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
        layer.call = wrapper(layer)
    try:
        yield
    finally:
        for layer in wrapped:
            del layer.call


def _is_model(layer) -> bool:
    import keras

    return isinstance(layer, keras.Model)


def _learned(graph, model) -> set[str]:
    """The names of the operations of a step whose results depend on a weight that is learned."""
    handles = {id(variable.value.handle) for variable in model.trainable_variables}
    learned = {placeholder.op.name for source, placeholder in graph.captures if id(source) in handles}
    for operation in graph.get_operations():
        if any(tensor.op.name in learned for tensor in operation.inputs):
            learned.add(operation.name)
    return learned


def _recorded_use(recorded: RecordedCall, learned: set[str]) -> LayerUse:
    """The layer of a recorded call, which is called in the same way again."""
    import keras
    import tensorflow

    structure = (recorded.args, recorded.keywords)
    leaves = keras.tree.flatten(structure)
    places = [place for place, leaf in enumerate(leaves) if tensorflow.is_tensor(leaf)]
    specs = tuple(tensorflow.TensorSpec(leaves[place].shape, leaves[place].dtype) for place in places)
    differentiable = [leaves[place].dtype.is_floating and leaves[place].op.name in learned for place in places]
    constants = [None if place in places else leaf for place, leaf in enumerate(leaves)]
    layer = recorded.layer

    def call(*tensors):
        values = list(constants)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        args, keywords = keras.tree.pack_sequence_as(structure, values)
        return layer(*args, **keywords)

    return _use(recorded.path, layer, call, specs=specs, differentiable=differentiable)
