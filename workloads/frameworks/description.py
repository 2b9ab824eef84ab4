"""Inside a worker: a built Keras model as a Network, with layers of an unknown kind for what has no price."""

# A new Keras class that is one of the kinds of kernels.networks.layers is a word of _MADE. Keras is imported in no line of
# this file: its objects bring what is asked of them.

import functools
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from kernels.networks.layers import INPUT, Layer, Network
from workloads.frameworks import user_model
from workloads.harness.dispatch import Broken

_POOLS = {f"{name}Pooling{n}D": kind for name, kind in (("Max", "pool"), ("Average", "avgpool")) for n in (1, 2)}
_SQUARED = ("mse", "mean_squared_error")


def network(model, name: str) -> Network:
    """The layers of a compiled Keras model with one input and one output, nested models taken apart, and how it is trained.

    Raises: Broken for sizes beside the batch that are not known or 0.
    """
    shape, out = user_model.shapes(model)
    found: list[Layer] = []
    graph = _graph(model)
    _walk(graph, {id(graph.inputs[0]): INPUT}, "", found, Counter(), model.trainable)
    loss = user_model.loss_name(model)
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # mixed_float16 wraps it to scale the loss
    policies = {layer.dtype_policy.name for layer in model.layers}
    return Network(
        name,
        "",
        shape,
        out[-1] if out else 1,
        tuple(_in_a_row(found)),
        type(optimizer).__name__.lower(),
        "mean_squared_error" if loss in _SQUARED else loss,
        precision=max((p for p in policies if p.startswith("mixed_")), default="float32"),
    )


def _graph(model):
    """The functional model inside a Sequential; a functional model itself."""
    return getattr(model, "_functional", None) or model


def _walk(graph, names: dict[int, str], prefix: str, found: list[Layer], used: Counter[int], trainable: bool) -> str:
    """Appends the layers of a graph in an order in which they can run, and returns the name of its output. names: the tensors
    so far. used: how often each operation was met."""
    for _, nodes in sorted(graph._nodes_by_depth.items(), reverse=True):
        for node in nodes:
            operation, taken = node.operation, node.input_tensors
            if not taken:  # an input
                continue
            sources = tuple(names[id(tensor)] for tensor in taken)
            learns = trainable and getattr(operation, "trainable", True)
            if hasattr(_graph(operation), "_nodes_by_depth") and len(taken) == len(node.outputs) == 1:
                inner = _graph(operation)
                own = dict(zip([id(tensor) for tensor in inner.inputs], sources, strict=True))
                last = _walk(inner, own, f"{prefix}{operation.name}/", found, used, learns)
            else:
                used[id(operation)] += 1
                again = used[id(operation)] > 1
                last = f"{prefix}{operation.name}" + (f" ({used[id(operation)]})" if again else "")
                found += _layers(operation, last, sources, taken, node.outputs[0], learns, again)
            names |= {id(tensor): last for tensor in node.outputs}
    return names[id(graph.outputs[0])]


def _layers(operation, name: str, sources: tuple, taken: list, given, learns: bool, again: bool) -> Iterator[Layer]:
    """The layer of an operation that takes the tensors `taken` and gives another, or those that it is made of: these take
    `sources` by their places, and each other. `again`: it was met before.

    Raises: Broken for a size that is not known or 0.
    """
    kind = type(operation).__name__
    of_keras = type(operation).__module__.startswith(("keras.", "keras_core."))
    weights = int(operation.count_params()) if hasattr(operation, "count_params") else 0
    shapes = [tuple(tensor.shape[1:]) for tensor in taken]
    after = tuple(given.shape[1:]) or (1,)
    if None in after or any(None in shape for shape in shapes):
        raise Broken(f"{name} gives {given.shape}: sizes beside the batch must be known")
    if 0 in after or any(0 in shape for shape in shapes):
        takes = ", ".join(str(tensor.shape) for tensor in taken)
        raise Broken(f"layer {name} takes {takes} and gives {given.shape}: a size of 0 leaves nothing to compute")
    known = of_keras and not (again and weights) and _KINDS.get(kind)
    made = known and known(operation, shapes, after)
    if not made:  # the weights of a layer that is used again are counted once
        made = _nameless(kind, shape=after, weights=0 if again else weights)
    inner, before = made if isinstance(made, tuple) else (made,), sources
    for layer in inner:
        own = f"{name}/{layer.name}" if layer is not inner[-1] else name
        chosen = tuple(sources[int(i)] if i.isdigit() else f"{name}/{i}" for i in layer.inputs) or before
        yield replace(layer, name=own, inputs=chosen, trainable=bool(learns) or not weights)
        before = (own,)


def _in_a_row(found: list[Layer]) -> Iterator[Layer]:
    """The layers, without the inputs that follow from their order."""
    before = INPUT
    for layer in found:
        yield replace(layer, inputs=() if layer.inputs == (before,) else layer.inputs)
        before = layer.name


def _activation(operation) -> str:
    name = getattr(getattr(operation, "activation", None), "__name__", "")
    return "" if name == "linear" else name


def _sides(pair) -> int | tuple[int, int]:
    pair = (1, *pair)[-2:]  # of a row: a line high
    return pair[0] if pair[0] == pair[1] else pair


_nameless = functools.partial(Layer, "")


def _plain(operation) -> bool:
    """Whether it is over images whose channels come last, and its window, if any, moves equally far both ways."""
    return operation.data_format == "channels_last" and len(set(getattr(operation, "strides", (1,)))) == 1


def _conv(operation, shapes, after) -> Layer | None:
    """A causal convolution has the sizes of one that pads both sides."""
    if set(operation.dilation_rate) != {1} or not _plain(operation):
        return None
    name, bias, pad = type(operation).__name__, bool(operation.use_bias), operation.padding.replace("causal", "same")
    how = _sides(operation.kernel_size), operation.strides[0], pad
    if name.endswith("Transpose"):
        return _nameless("transposed", after[-1], *how, activation=_activation(operation), bias=bias, shape=after)
    kind, groups = ("conv", operation.groups) if name.startswith("Conv") else ("depthwise", shapes[0][-1])
    return _nameless(kind, after[-1], *how, groups, _activation(operation), bias=bias)


def _separable(operation, shapes, after) -> tuple[Layer, ...] | None:
    """A depthwise convolution, then one of 1 x 1."""
    if one := _conv(operation, shapes, (shapes[0][-1] * operation.depth_multiplier,)):
        depthwise = replace(one, name="depthwise", activation="", bias=False)
        return depthwise, _nameless("conv", after[-1], activation=one.activation, bias=one.bias)
    return None


def _pool(operation, shapes, after) -> Layer | None:
    size, kind = _sides(operation.pool_size), _POOLS[type(operation).__name__]
    return _nameless(kind, size=size, stride=operation.strides[0], pad=operation.padding) if _plain(operation) else None


def _global_pool(operation, shapes, after) -> tuple[Layer, ...] | None:
    pooled = Layer("pooled", "globalpool"), _nameless("reshape", shape=after)
    return pooled[: 1 + operation.keepdims] if _plain(operation) else None


def supports_xla(model) -> bool:
    """Whether Keras has XLA compile a model's step where there is a GPU: every layer allows it, and none may be cuDNN's.

    Source: Keras's model_supports_jit. Without a GPU an LSTM allows it.
    """
    layers = model._flatten_layers()
    return all(getattr(layer, "supports_jit", True) and not _may_be_in_cudnn(layer) for layer in layers)


def has_cudnn_kernel(layer) -> bool:
    """Whether Keras gives a recurrent layer to cuDNN on a GPU. Source: Keras's LSTM and GRU."""
    return _may_be_in_cudnn(layer) and not layer.cell.recurrent_dropout


def _may_be_in_cudnn(layer) -> bool:
    """Whether a layer is a recurrent one of cuDNN's formulas; with recurrent dropout it does not run there after all.

    Source: Keras's cudnn_ok.
    """
    if type(layer).__name__ not in ("LSTM", "GRU") or getattr(layer, "use_cudnn", True) is False:
        return False
    cell = layer.cell
    names = [getattr(getattr(cell, name, None), "__name__", "") for name in ("activation", "recurrent_activation")]
    if names != ["tanh", "sigmoid"] or layer.unroll:
        return False
    return bool(cell.use_bias and getattr(cell, "reset_after", True))


def _recurrent(operation, shapes, after) -> Layer | None:
    cell, gates = operation.cell, {"SimpleRNN": 1, "GRU": 3, "LSTM": 4}[type(operation).__name__]
    fused = has_cudnn_kernel(operation)
    weights = int(operation.count_params())
    return _nameless("recurrent", cell.units, groups=gates, shape=after, weights=weights, fused=fused)


def _both_ways(operation, shapes, after) -> tuple[Layer, ...] | None:
    if operation.merge_mode != "concat" or _KINDS.get(type(operation.forward_layer).__name__) is not _recurrent:
        return None
    one = _recurrent(operation.forward_layer, shapes, (*after[:-1], after[-1] // 2))
    forth, back = (replace(one, name=name, inputs=("0",)) for name in ("forward", "backward"))
    return forth, back, _nameless("concat", inputs=("forward", "backward"))


def _attention(operation, shapes, after) -> tuple[Layer, ...] | None:
    if {len(shape) for shape in shapes} != {2}:
        return None
    heads, bias, last = operation.num_heads, bool(operation.use_bias), len(shapes) - 1
    keys, values = operation.key_dim, operation.value_dim
    own = (("query", keys, 0), ("key", keys, last), ("value", values, min(1, last)))
    return (
        *(Layer(name, "dense", heads * size, bias=bias, inputs=(str(at),)) for name, size, at in own),
        Layer("scores", "scores", groups=heads, inputs=("query", "key")),
        Layer("softmax", "activation", activation="softmax"),
        Layer("dropout", "dropout", rate=float(operation.dropout)),
        Layer("weighted", "weighted", groups=heads, inputs=("dropout", "value")),
        _nameless("dense", after[-1], bias=bias),
    )


def _element_wise(operation, shapes, after) -> Layer:
    return _nameless("activation", activation=_activation(operation) or type(operation).__name__.lower())


def _merged(operation, shapes, after) -> Layer | None:
    kind = {"Add": "add", "Concatenate": "concat"}.get(type(operation).__name__, "merge")
    if len(shapes) < 2:
        return _element_wise(operation, shapes, after) if kind != "concat" else None
    if kind == "concat":
        return _nameless(kind) if operation.axis in (-1, len(shapes[0])) else None
    return _nameless("add") if kind == "add" and len(set(shapes)) == 1 else _nameless("merge", shape=after)


def _normalized(operation, shapes, after) -> Layer | None:
    kind = "batchnorm" if type(operation).__name__ == "BatchNormalization" else "layernorm"
    last = operation.axis in (-1, len(shapes[0]), [-1], [len(shapes[0])])
    return _nameless(kind, scale=bool(operation.scale), bias=bool(operation.center)) if last else None


# What makes a nameless Layer from an operation, the shapes it takes and the one it gives (None: not as it is), and the Keras
# classes that it does so for.
_MADE: tuple[tuple[Callable, str], ...] = (
    (_conv, "Conv1D Conv2D DepthwiseConv1D DepthwiseConv2D Conv1DTranspose Conv2DTranspose"),
    (_separable, "SeparableConv1D SeparableConv2D"),
    (lambda o, shapes, after: _nameless("dense", o.units, activation=_activation(o), bias=bool(o.use_bias)), "Dense"),
    (_pool, " ".join(_POOLS)),
    (_global_pool, " ".join(f"Global{name}" for name in _POOLS)),
    (_recurrent, "SimpleRNN GRU LSTM"),
    (_both_ways, "Bidirectional"),
    (_attention, "MultiHeadAttention"),
    (_normalized, "BatchNormalization LayerNormalization"),
    (
        lambda o, shapes, after: _nameless("rearrange", shape=after),
        "ZeroPadding1D ZeroPadding2D Cropping1D Cropping2D UpSampling1D UpSampling2D Permute Transpose RepeatVector",
    ),
    (_merged, "Add Concatenate Multiply Subtract Average Maximum Minimum Divide"),
    (lambda o, shapes, after: _nameless("embedding", o.output_dim, weights=o.input_dim * o.output_dim), "Embedding"),
    (lambda o, shapes, after: _nameless("flatten"), "Flatten"),
    (lambda o, shapes, after: _nameless("reshape", shape=after), "Reshape"),
    (
        lambda o, shapes, after: _nameless("dropout", rate=float(getattr(o, "rate", 1))),
        "Dropout SpatialDropout1D SpatialDropout2D GaussianDropout AlphaDropout GaussianNoise",
    ),
    (_element_wise, "Activation ReLU Relu Relu6 LeakyReLU ELU Gelu Sigmoid Silu HardSigmoid HardSilu Softmax"),
    (_element_wise, "Rescaling Normalization"),  # the latter's few numbers are learned by nothing
)
_KINDS = {name: made for made, names in _MADE for name in names.split()}
