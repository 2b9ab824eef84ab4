"""Inside a worker: a built Keras model as a Network, with layers of an unknown kind for what has no price."""

# A new Keras class that is one of the kinds of kernels.networks.layers is a word of _MAKERS. Keras is imported in no line of
# this file: its objects bring what is asked of them.

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kernels.networks.layers import INPUT, Layer, Network
from workloads.frameworks import user_model
from workloads.harness.dispatch import Broken

if TYPE_CHECKING:
    import keras
    from keras.src.ops.node import Node

Shape = tuple[int, ...]  # the sides of an array without the batch
_POOLS = {
    "MaxPooling1D": "pool",
    "MaxPooling2D": "pool",
    "AveragePooling1D": "avgpool",
    "AveragePooling2D": "avgpool",
}
_SQUARED = ("mse", "mean_squared_error")


def network(model: "keras.Model", name: str) -> Network:
    """Describes a compiled Keras model with one input and one output by its layers, its loss and its optimizer.

    Models inside the model are taken apart into their layers. A layer of a kind that kernels.networks does not know has its shape
    and weights alone. name: of the Network.
    Raises: Broken where a side of an array, but for the batch, is not known or 0.
    """
    shape, out = user_model.shapes(model)
    graph = _graph(model)
    walk = _Walk()
    walk.add_layers(graph, {id(graph.inputs[0]): INPUT}, prefix="", is_trainable=model.trainable)
    loss = user_model.loss_name(model)
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # mixed_float16 wraps it to scale the loss
    return Network(
        name=name,
        seed="",
        input=shape,
        classes=out[-1] if out else 1,
        layers=tuple(_without_obvious_inputs(walk.layers)),
        optimizer=type(optimizer).__name__.lower(),
        loss="mean_squared_error" if loss in _SQUARED else loss,
        precision=_precision(model),
    )


def _precision(model: "keras.Model") -> str:
    """The mixed precision of a model's layers, by Keras's name of the policy: mixed_float16; float32 where none has one."""
    policies = {layer.dtype_policy.name for layer in model.layers}
    mixed = [policy for policy in policies if policy.split("_")[0] == "mixed"]
    return max(mixed, default="float32")


def _graph(model: "keras.Operation") -> "keras.Operation":
    """The functional model inside a Sequential one, which has the graph of its layers; any other model or layer itself."""
    return getattr(model, "_functional", None) or model


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Call:
    """A call of a Keras operation in a graph."""

    #: The operation: a layer or a function of keras.ops.
    operation: Any
    #: Its name in the network.
    name: str
    #: Names of what it takes, in the order of its tensors.
    sources: tuple[str, ...]
    #: The tensors that it takes.
    taken: list[Any]
    #: The tensor that it gives.
    output: Any
    #: Whether training changes its weights.
    is_trainable: bool
    #: Whether the operation was called before.
    is_repeated: bool


class _Walk:
    """Collects the layers of a functional Keras model, in an order in which they can run."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self._calls: Counter[int] = Counter()  # id of an operation -> its calls so far

    def add_layers(self, graph: "keras.Model", names: dict[int, str], *, prefix: str, is_trainable: bool) -> str:
        """Adds the layers of a functional model, and returns the name of the layer that gives its output.

        names: id of a tensor -> name of the layer that gives it, at first of the model's inputs; filled on the way. prefix: put
        before the names of layers, as `base/` for those of a model inside the model. is_trainable: whether training changes its
        weights.
        """
        for _, nodes in sorted(graph._nodes_by_depth.items(), reverse=True):
            for node in nodes:
                if not node.input_tensors:  # an input
                    continue
                last = self._add_node(node, names, prefix, is_trainable)
                for tensor in node.outputs:
                    names[id(tensor)] = last
        return names[id(graph.outputs[0])]

    def _add_node(self, node: "Node", names: dict[int, str], prefix: str, is_trainable: bool) -> str:
        """Adds the layer that a node calls, or the layers of the model that it calls, and returns the name of the last one.

        A node of a Keras graph is one call of an operation, which is a layer, a model or a function of keras.ops. The other
        arguments are those of add_layers.
        """
        operation = node.operation
        sources = tuple(names[id(tensor)] for tensor in node.input_tensors)
        learns = is_trainable and getattr(operation, "trainable", True)
        inner = _graph(operation)
        if hasattr(inner, "_nodes_by_depth") and len(node.input_tensors) == len(node.outputs) == 1:
            inputs = [id(tensor) for tensor in inner.inputs]
            inner_names = dict(zip(inputs, sources, strict=True))
            return self.add_layers(inner, inner_names, prefix=f"{prefix}{operation.name}/", is_trainable=learns)
        self._calls[id(operation)] += 1
        number = self._calls[id(operation)]
        name = f"{prefix}{operation.name}"
        if number > 1:
            name = f"{name} ({number})"
        call = _Call(
            operation=operation,
            name=name,
            sources=sources,
            taken=node.input_tensors,
            output=node.outputs[0],
            is_trainable=bool(learns),
            is_repeated=number > 1,
        )
        self.layers += _layers(call)
        return name


def _layers(call: _Call) -> Iterator[Layer]:
    """The layer that describes one call of a Keras operation, or several where the operation is made of parts.

    A part takes what the operation takes, or the result of another part; where it does not say which, the result of the part
    before.
    Raises: Broken where a side of an array, but for the batch, is not known or 0.
    """
    operation = call.operation
    kind = type(operation).__name__
    is_of_keras = type(operation).__module__.split(".")[0] in ("keras", "keras_core")
    weights = int(operation.count_params()) if hasattr(operation, "count_params") else 0
    input_shapes, output_shape = _known_shapes(call)
    parts: Layer | tuple[Layer, ...] | None = None
    if is_of_keras and kind in _KINDS and not (call.is_repeated and weights):
        parts = _KINDS[kind](operation, input_shapes, output_shape)
    if parts is None:  # the weights of a layer that is used again are counted once
        parts = _unnamed_layer(kind, shape=output_shape, weights=0 if call.is_repeated else weights)
    if isinstance(parts, Layer):
        parts = (parts,)
    before = call.sources
    for part in parts:
        inputs = tuple(_input_name(call, word) for word in part.inputs)
        name = call.name if part is parts[-1] else f"{call.name}/{part.name}"
        yield replace(part, name=name, inputs=inputs or before, trainable=call.is_trainable or not weights)
        before = (name,)


def _input_name(call: _Call, word: str) -> str:
    """The name of the layer whose result a part of an operation takes.

    word: `0`, `1` and so on for what the operation itself takes, else the name of another part.
    """
    return call.sources[int(word)] if word.isdigit() else f"{call.name}/{word}"


def _known_shapes(call: _Call) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """The shapes of the arrays that an operation takes, and the shape of the one that it gives, without the batch.

    Raises: Broken where a side is not known or 0.
    """
    shapes = [tuple(tensor.shape[1:]) for tensor in call.taken]
    after = tuple(call.output.shape[1:]) or (1,)
    if any(None in shape for shape in (after, *shapes)):
        raise Broken(f"{call.name} gives {call.output.shape}: sizes beside the batch must be known")
    if any(0 in shape for shape in (after, *shapes)):
        takes = ", ".join(str(tensor.shape) for tensor in call.taken)
        raise Broken(
            f"layer {call.name} takes {takes} and gives {call.output.shape}: a size of 0 leaves nothing to compute"
        )
    return shapes, after


def _without_obvious_inputs(layers: list[Layer]) -> Iterator[Layer]:
    """The same layers; one whose only input is the layer before it, or the network's input for the first, names no input."""
    before = INPUT
    for layer in layers:
        yield replace(layer, inputs=() if layer.inputs == (before,) else layer.inputs)
        before = layer.name


def supports_xla(model: "keras.Model") -> bool:
    """Whether Keras, left to choose, has XLA compile a model's training step on a machine with a GPU.

    Every layer must allow it, and none may be one that Keras gives to cuDNN. Source: Keras's model_supports_jit.
    """
    layers = model._flatten_layers()
    return all(getattr(layer, "supports_jit", True) and not _may_be_in_cudnn(layer) for layer in layers)


def has_cudnn_kernel(layer: "keras.Layer") -> bool:
    """Whether Keras computes a layer by one call of cuDNN on a GPU: an LSTM or GRU with its usual formulas and without recurrent
    dropout. Source: Keras's LSTM and GRU."""
    return _may_be_in_cudnn(layer) and not layer.cell.recurrent_dropout


def _may_be_in_cudnn(layer: "keras.Layer") -> bool:
    """Whether a layer is an LSTM or GRU with the formulas that cuDNN has. With recurrent dropout Keras still does not use cuDNN.

    Source: Keras's cudnn_ok.
    """
    if type(layer).__name__ not in ("LSTM", "GRU") or getattr(layer, "use_cudnn", True) is False:
        return False
    cell = layer.cell
    names = [getattr(getattr(cell, name, None), "__name__", "") for name in ("activation", "recurrent_activation")]
    if names != ["tanh", "sigmoid"] or layer.unroll:
        return False
    return bool(cell.use_bias and getattr(cell, "reset_after", True))


# ---------------------------------------------------------------- one kind of operation each
#
# Each function describes one kind of Keras operation by a Layer without a name, or by several that it is made of, from the shapes
# of the arrays that it takes and of the one that it gives. It returns None for an operation that has options beyond its kind's.


_unnamed_layer = functools.partial(Layer, "")


def _activation(operation: "keras.Operation") -> str:
    """The name of an operation's activation function; "" where it has none, or a linear one."""
    name = getattr(getattr(operation, "activation", None), "__name__", "")
    return "" if name == "linear" else name


def _sides(window: tuple[int, ...]) -> int | tuple[int, int]:
    """The (height, width) of a window, or one number where they are equal. A window over sequences, (width,), is 1 high."""
    height, width = window if len(window) == 2 else (1, *window)
    return height if height == width else (height, width)


def _is_plain(operation: "keras.Operation") -> bool:
    """Whether a convolution or pooling has the channels as the last side, and moves its window equally far in every direction."""
    return operation.data_format == "channels_last" and len(set(getattr(operation, "strides", (1,)))) == 1


def _conv(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer | None:
    """A convolution, transposed convolution or depthwise convolution; None for a dilated one.

    A causal convolution, which pads one side, has the sizes of one that pads both.
    """
    if set(operation.dilation_rate) != {1} or not _is_plain(operation):
        return None
    name = type(operation).__name__
    pad = "same" if operation.padding == "causal" else operation.padding
    layer = _unnamed_layer(
        "conv",
        units=output_shape[-1],
        size=_sides(operation.kernel_size),
        stride=operation.strides[0],
        pad=pad,
        activation=_activation(operation),
        bias=bool(operation.use_bias),
    )
    if name in ("Conv1DTranspose", "Conv2DTranspose"):
        return replace(layer, kind="transposed", shape=output_shape)
    if name in ("Conv1D", "Conv2D"):
        return replace(layer, groups=operation.groups)
    return replace(layer, kind="depthwise", groups=input_shapes[0][-1])


def _separable(
    operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape
) -> tuple[Layer, ...] | None:
    """A depthwise convolution, then a convolution with a window of 1 x 1, which has the activation and the bias."""
    convolution = _conv(operation, input_shapes, (input_shapes[0][-1] * operation.depth_multiplier,))
    if convolution is None:
        return None
    depthwise = replace(convolution, name="depthwise", activation="", bias=False)
    pointwise = _unnamed_layer("conv", units=output_shape[-1], activation=convolution.activation, bias=convolution.bias)
    return depthwise, pointwise


def _dense(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer:
    return _unnamed_layer(
        "dense", units=operation.units, activation=_activation(operation), bias=bool(operation.use_bias)
    )


def _pool(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer | None:
    """A maximum or average pooling by windows; None of one that is not plain."""
    if not _is_plain(operation):
        return None
    kind = _POOLS[type(operation).__name__]
    size = _sides(operation.pool_size)
    return _unnamed_layer(kind, size=size, stride=operation.strides[0], pad=operation.padding)


def _global_pool(
    operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape
) -> tuple[Layer, ...] | None:
    """A pooling over whole images or sequences; where Keras keeps their sides as 1, a reshape follows. None of one that is not
    plain."""
    if not _is_plain(operation):
        return None
    pooled = Layer("pooled", "globalpool")
    return (pooled, _unnamed_layer("reshape", shape=output_shape)) if operation.keepdims else (pooled,)


def _recurrent(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer | None:
    """A recurrent layer. `groups` is the number of gates of its cell, `fused` whether cuDNN computes it on a GPU."""
    gates = {"SimpleRNN": 1, "GRU": 3, "LSTM": 4}[type(operation).__name__]
    return _unnamed_layer(
        "recurrent",
        units=operation.cell.units,
        groups=gates,
        shape=output_shape,
        weights=int(operation.count_params()),
        fused=has_cudnn_kernel(operation),
    )


def _both_directions(
    operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape
) -> tuple[Layer, ...] | None:
    """A Bidirectional layer: two recurrent layers of the same input, one forward and one backward, whose results are
    concatenated. None where they are merged otherwise, or are no recurrent layers of Keras."""
    if operation.merge_mode != "concat" or _KINDS.get(type(operation.forward_layer).__name__) is not _recurrent:
        return None
    one = _recurrent(operation.forward_layer, input_shapes, (*output_shape[:-1], output_shape[-1] // 2))
    forward = replace(one, name="forward", inputs=("0",))  # what the operation takes
    backward = replace(one, name="backward", inputs=("0",))
    return forward, backward, _unnamed_layer("concat", inputs=("forward", "backward"))


def _attention(
    operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape
) -> tuple[Layer, ...] | None:
    """A MultiHeadAttention as its dense layers and the products of queries, keys and values; None of arrays that are no
    sequences.

    Keras calls it with (query, value) or (query, value, key): without a key the value is the key too.
    """
    if {len(shape) for shape in input_shapes} != {2}:
        return None
    heads = operation.num_heads
    bias = bool(operation.use_bias)
    # An input that is a number is what Keras calls the layer with, by its place in the call.
    query_input = "0"
    value_input = str(min(1, len(input_shapes) - 1))
    key_input = str(len(input_shapes) - 1)
    key_units = heads * operation.key_dim
    value_units = heads * operation.value_dim
    return (
        Layer("query", "dense", units=key_units, bias=bias, inputs=(query_input,)),
        Layer("key", "dense", units=key_units, bias=bias, inputs=(key_input,)),
        Layer("value", "dense", units=value_units, bias=bias, inputs=(value_input,)),
        Layer("scores", "scores", groups=heads, inputs=("query", "key")),
        Layer("softmax", "activation", activation="softmax"),
        Layer("dropout", "dropout", rate=float(operation.dropout)),
        Layer("weighted", "weighted", groups=heads, inputs=("dropout", "value")),
        _unnamed_layer("dense", units=output_shape[-1], bias=bias),
    )


def _element_wise(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer:
    return _unnamed_layer("activation", activation=_activation(operation) or type(operation).__name__.lower())


def _merged(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer | None:
    """A layer that merges several arrays: Concatenate along the channels, Add of equal shapes, or another; None for a Concatenate
    along another side."""
    name = type(operation).__name__
    if name == "Concatenate":
        is_of_channels = len(input_shapes) > 1 and operation.axis in (-1, len(input_shapes[0]))
        return _unnamed_layer("concat") if is_of_channels else None
    if len(input_shapes) < 2:
        return _element_wise(operation, input_shapes, output_shape)
    if name == "Add" and len(set(input_shapes)) == 1:
        return _unnamed_layer("add")
    return _unnamed_layer("merge", shape=output_shape)


def _normalized(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer | None:
    """A batch or layer normalization; None for one along another side than the last."""
    last_axis = len(input_shapes[0])
    if operation.axis not in (-1, last_axis, [-1], [last_axis]):
        return None
    kind = "batchnorm" if type(operation).__name__ == "BatchNormalization" else "layernorm"
    return _unnamed_layer(kind, scale=bool(operation.scale), bias=bool(operation.center))


def _rearranged(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer:
    return _unnamed_layer("rearrange", shape=output_shape)


def _embedding(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer:
    return _unnamed_layer("embedding", units=operation.output_dim, weights=operation.input_dim * operation.output_dim)


def _flat(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer:
    return _unnamed_layer("flatten")


def _reshaped(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer:
    return _unnamed_layer("reshape", shape=output_shape)


def _dropout(operation: "keras.Operation", input_shapes: list[Shape], output_shape: Shape) -> Layer:
    return _unnamed_layer("dropout", rate=float(getattr(operation, "rate", 1)))


# A function of the kinds above, and the Keras classes that it is for.
_MAKERS: tuple[tuple[Callable, str], ...] = (
    (_conv, "Conv1D Conv2D DepthwiseConv1D DepthwiseConv2D Conv1DTranspose Conv2DTranspose"),
    (_separable, "SeparableConv1D SeparableConv2D"),
    (_dense, "Dense"),
    (_pool, " ".join(_POOLS)),
    (_global_pool, " ".join(f"Global{name}" for name in _POOLS)),
    (_recurrent, "SimpleRNN GRU LSTM"),
    (_both_directions, "Bidirectional"),
    (_attention, "MultiHeadAttention"),
    (_normalized, "BatchNormalization LayerNormalization"),
    (
        _rearranged,
        "ZeroPadding1D ZeroPadding2D Cropping1D Cropping2D UpSampling1D UpSampling2D Permute Transpose RepeatVector",
    ),
    (_merged, "Add Concatenate Multiply Subtract Average Maximum Minimum Divide"),
    (_embedding, "Embedding"),
    (_flat, "Flatten"),
    (_reshaped, "Reshape"),
    (_dropout, "Dropout SpatialDropout1D SpatialDropout2D GaussianDropout AlphaDropout GaussianNoise"),
    (_element_wise, "Activation ReLU Relu Relu6 LeakyReLU ELU Gelu Sigmoid Silu HardSigmoid HardSilu Softmax"),
    (_element_wise, "Rescaling Normalization"),  # the latter's few numbers are learned by nothing
)


def _makers_by_class() -> dict[str, Callable]:
    """Name of a Keras class -> the function that describes a call of it by one or more layers."""
    by_class = {}
    for maker, class_names in _MAKERS:
        for name in class_names.split():
            by_class[name] = maker
    return by_class


_KINDS = _makers_by_class()
