"""Inside a worker: a built Keras model as a Network, with layers of an unknown kind for what has no price."""

# A new Keras class that is one of the kinds of kernels.networks.layers is an entry of _KINDS. Keras is imported in no line of
# this file: its objects bring what is asked of them.

import functools
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from kernels.networks.layers import INPUT, Layer, Network
from workloads.frameworks import user_model
from workloads.harness.dispatch import Broken

_POOLS = {"MaxPooling2D": "pool", "AveragePooling2D": "avgpool"}
_SQUARED = ("mse", "mean_squared_error")


def network(model, name: str) -> Network:
    """The layers of a compiled Keras model with one input and one output, nested models taken apart, and how it is trained.

    Raises: Broken for sizes beside the batch that are not known.
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
    """Appends the layers of a graph in the order in which they can run; `names` are those of the tensors that are there, `used`
    counts how often each operation was met. Returns the name of what gives the graph's output."""
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
                found.append(_layer(operation, last, sources, taken, node.outputs[0], learns, again))
            names |= {id(tensor): last for tensor in node.outputs}
    return names[id(graph.outputs[0])]


def _layer(operation, name: str, sources: tuple[str, ...], taken: list, given, learns: bool, again: bool) -> Layer:
    """One operation on the tensors `taken`, which gives another; `again`: as a layer that was met before."""
    kind = type(operation).__name__
    of_keras = type(operation).__module__.startswith(("keras.", "keras_core."))
    weights = int(operation.count_params()) if hasattr(operation, "count_params") else 0
    shapes = [tuple(tensor.shape[1:]) for tensor in taken]
    after = tuple(given.shape[1:]) or (1,)
    if None in after or any(None in shape for shape in shapes):
        raise Broken(f"{name} gives {given.shape}: sizes beside the batch must be known")
    known = of_keras and not (again and weights) and _KINDS.get(kind)
    made = known and known(operation, shapes, after)
    if not made:  # the weights of a layer that is used again are counted once
        made = _nameless(kind, shape=after, weights=0 if again else weights)
    return msgspec.structs.replace(made, name=name, inputs=sources, trainable=bool(learns) or not weights)


def _in_a_row(found: list[Layer]) -> Iterator[Layer]:
    """The layers without the inputs that go without saying."""
    before = INPUT
    for layer in found:
        yield msgspec.structs.replace(layer, inputs=() if layer.inputs == (before,) else layer.inputs)
        before = layer.name


def _activation(operation) -> str:
    name = getattr(getattr(operation, "activation", None), "__name__", "")
    return "" if name == "linear" else name


def _sides(pair) -> int | tuple[int, int]:
    pair = tuple(pair)
    return pair[0] if pair[0] == pair[1] else pair


_nameless = functools.partial(Layer, "")


def _plain(operation) -> bool:
    """Whether it is over images whose channels come last, and its window, if any, moves equally far both ways."""
    return operation.data_format == "channels_last" and len(set(getattr(operation, "strides", (1,)))) == 1


def _conv(operation, shapes, after) -> Layer | None:
    if tuple(operation.dilation_rate) != (1, 1) or not _plain(operation):
        return None
    size, stride, pad = _sides(operation.kernel_size), operation.strides[0], operation.padding
    filters, groups, bias = operation.filters, operation.groups, bool(operation.use_bias)
    return _nameless("conv", filters, size, stride, pad, groups, _activation(operation), bias=bias)


def _pool(operation, shapes, after) -> Layer | None:
    size, kind = _sides(operation.pool_size), _POOLS[type(operation).__name__]
    return _nameless(kind, size=size, stride=operation.strides[0], pad=operation.padding) if _plain(operation) else None


def _zero_pad(operation, shapes, after) -> Layer | None:
    (top, bottom), (left, right) = operation.padding
    even = top == bottom and left == right and _plain(operation)
    return _nameless("zeropad", size=_sides((top, left))) if even else None


def _element_wise(operation, shapes, after) -> Layer:
    return _nameless("activation", activation=_activation(operation) or type(operation).__name__.lower())


# Keras class -> what makes its nameless Layer from the operation, the shapes it takes and the one it gives; None: not as it is.
_KINDS: dict[str, Callable] = {
    "Conv2D": _conv,
    "Dense": lambda o, shapes, after: _nameless("dense", o.units, activation=_activation(o), bias=bool(o.use_bias)),
    **dict.fromkeys(_POOLS, _pool),
    "GlobalAveragePooling2D": lambda o, shapes, after: None if o.keepdims or not _plain(o) else _nameless("globalpool"),
    "ZeroPadding2D": _zero_pad,
    "BatchNormalization": lambda o, shapes, after: (
        _nameless("batchnorm", scale=bool(o.scale)) if o.center and o.axis in (-1, len(shapes[0])) else None
    ),
    "Add": lambda o, shapes, after: _nameless("add") if len(shapes) > 1 and len(set(shapes)) == 1 else None,
    "Concatenate": lambda o, shapes, after: (
        _nameless("concat") if len(shapes) > 1 and o.axis in (-1, len(shapes[0])) else None
    ),
    "Embedding": lambda o, shapes, after: _nameless("embedding", o.output_dim, weights=o.input_dim * o.output_dim),
    "Flatten": lambda o, shapes, after: _nameless("flatten"),
    "Reshape": lambda o, shapes, after: _nameless("reshape", shape=after),
    "Dropout": lambda o, shapes, after: _nameless("dropout", rate=float(o.rate)),
    **dict.fromkeys(("Activation", "ReLU", "Relu", "LeakyReLU", "ELU", "Softmax", "Rescaling"), _element_wise),
}
