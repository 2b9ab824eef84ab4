"""The records of networks, and the output shapes and weights of each kind of layer.

A new kind of layer is an entry of OUTPUTS and, if it has weights, one of VARIABLES; training_step says what work it is.
"""

from collections.abc import Callable
from math import prod

import msgspec

from kernels.networks.operations import TracedStep
from kernels.problems import Conv
from kernels.problems.arrays import ITEM_BYTES

Shape = tuple[int, ...]
CONVOLUTIONS = ("conv", "depthwise", "transposed")
INPUT = "input"  # what a layer's `inputs` call the network's own input


class Layer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One layer.

    `units` are a dense layer's outputs or a convolution's filters; `size` is the side of its filter or window (or height
    and width) and the zeros of `zeropad`; `stride` 0 is 1 for a convolution and `size` for a pool; `pad` is `same` or
    `valid` as Keras counts them; `rate` is the share that dropout drops; `bias` and `scale` say whether those weights are
    there (`scale`: batch normalization's gamma). `inputs` name the layers it takes, empty: the one before it. A layer that is
    not `trainable` keeps its weights as they are. A `recurrent` one has so many gates as `groups`, `fused` where cuDNN has its
    cell; `scores` and `weighted` are attention's two products, a head for each of `groups`. A `depthwise` convolution has so
    many `groups` as channels; a `transposed` one, a `rearrange` (upsampling, cropping, padding, permuting) and a `merge` (inputs
    multiplied, averaged and such, element by element) bring the `shape` of their output.

    A `kind` that OUTPUTS does not know is the name of a class that somebody wrote or that nothing here prices: such a layer
    brings the `shape` of its output and how many `weights` it has, and its work is an estimate from these.
    """

    name: str
    kind: str
    units: int = 0
    size: int | tuple[int, int] = 1
    stride: int = 0
    pad: str = "valid"
    groups: int = 1
    activation: str = ""
    rate: float = 0.0
    bias: bool = True
    scale: bool = True
    inputs: tuple[str, ...] = ()
    trainable: bool = True
    shape: Shape = ()
    weights: int = 0
    fused: bool = False

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the filter or window."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    @property
    def step(self) -> int:
        """The stride, with its default filled in."""
        return self.stride or (1 if self.kind in CONVOLUTIONS else self.sides[0])


class Network(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model and how its article trains it. `input` is the shape of one sample: height, width, channels; `classes` the
    outputs of the last layer (1 for a regression).

    `seed` is its row in the list of articles that this project explains; `data` the data set (empty: made up only);
    `learning_rate` 0 is the optimizer's own; samples, batch and epochs are the article's (Keras's batch of 32 where it
    names none), for networks without an article those of a usual training. `precision`: Keras's dtype policy of a user's own.
    """

    name: str
    seed: str
    input: Shape
    classes: int
    layers: tuple[Layer, ...]
    optimizer: str = "adam"
    loss: str = "sparse_categorical_crossentropy"
    learning_rate: float = 0.0
    data: str = ""
    samples: int = 50_000
    batch: int = 32
    epochs: int = 10
    precision: str = "float32"
    #: The operations of its training step, where its layers do not describe it: it has none then. None of other networks.
    traced: TracedStep | None = None
    #: Whether a user's own model came without an optimizer and a loss, so that those above were chosen for it.
    compiled_for_user: bool = False

    @property
    def regression(self) -> bool:
        """Whether it learns numbers, not classes."""
        return self.loss == "mean_squared_error"


def conv(
    layer: Layer, shape: Shape, batch: int, direction: str = "fprop", dtype: str = "float32", math: str = ""
) -> Conv:
    """The convolution of a layer for a batch of inputs of that shape, stored NHWC as Keras has them. A transposed one goes
    forward as the gradient of the convolution that would give its input from its output, and that one forward is its gradient.

    Source: Dumoulin and Visin, A guide to convolution arithmetic for deep learning, section 4.

    Raises: ValueError for one that cannot be.
    """
    (h, w, c), (r, s), filters = (1, *shape)[-3:], layer.sides, layer.units  # a row is an image of one line
    if layer.kind == "transposed":
        (h, w, c), filters = (1, *layer.shape)[-3:], c
        direction = {"fprop": "dgrad", "dgrad": "fprop"}.get(direction, direction)
    return Conv(batch, h, w, c, filters, r, s, layer.step, layer.pad, layer.groups, "NHWC", direction, dtype, math)


def _conv_output(layer: Layer, shape: Shape) -> Shape:
    one = conv(layer, shape, 1)
    return (one.p, one.q, layer.units)[-len(shape) :]


def _pool_output(layer: Layer, shape: Shape) -> Shape:
    if len(shape) == 2:
        return _pool_output(layer, (1, *shape))[1:]
    if layer.pad == "same":
        return (-(-shape[0] // layer.step), -(-shape[1] // layer.step), shape[2])
    return tuple((n - side) // layer.step + 1 for n, side in zip(shape[:2], layer.sides, strict=True)) + shape[2:]


def _added_output(layer: Layer, *shapes: Shape) -> Shape:
    if len(set(shapes)) > 1:
        raise ValueError(f"{layer.name} adds inputs of different shapes: {', '.join(map(words, shapes))}")
    return shapes[0]


def _joined_output(layer: Layer, *shapes: Shape) -> Shape:
    if len({shape[:-1] for shape in shapes}) > 1:
        raise ValueError(f"{layer.name} joins inputs of different sizes: {', '.join(map(words, shapes))}")
    return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))


OUTPUTS: dict[str, Callable[..., Shape]] = {
    "conv": _conv_output,
    "depthwise": _conv_output,
    "transposed": lambda layer, shape: layer.shape,
    "pool": _pool_output,
    "avgpool": _pool_output,
    "globalpool": lambda layer, shape: shape[-1:],
    "dropout": lambda layer, shape: shape,
    "flatten": lambda layer, shape: (prod(shape),),
    "dense": lambda layer, shape: (*shape[:-1], layer.units),
    "activation": lambda layer, shape: shape,
    "batchnorm": lambda layer, shape: shape,
    "zeropad": lambda layer, shape: (shape[0] + 2 * layer.sides[0], shape[1] + 2 * layer.sides[1], shape[2]),
    "add": _added_output,
    "concat": _joined_output,
    "merge": lambda layer, *shapes: layer.shape,
    "reshape": lambda layer, shape: layer.shape,
    "rearrange": lambda layer, shape: layer.shape,
    "embedding": lambda layer, shape: (*shape, layer.units),
    "layernorm": lambda layer, shape: shape,
    "recurrent": lambda layer, shape: layer.shape,
    "scores": lambda layer, query, key: (layer.groups, query[0], key[0]),
    "weighted": lambda layer, scores, value: (scores[1], value[1]),
}
_SEVERAL = ("add", "concat", "merge", "scores", "weighted")


# The weights that a layer learns; kinds that are not named have none.
VARIABLES = {
    "conv": lambda layer, shape: {
        "kernel": prod(layer.sides) * shape[-1] // layer.groups * layer.units,
        "bias": layer.units * layer.bias,
    },
    "dense": lambda layer, shape: {"kernel": layer.units * shape[-1], "bias": layer.units * layer.bias},
    "batchnorm": lambda layer, shape: {"gamma": shape[-1] * layer.scale, "beta": shape[-1] * layer.bias},
    "embedding": lambda layer, shape: {"embeddings": layer.weights},
    "recurrent": lambda layer, shape: {
        "kernel": shape[-1] * layer.groups * layer.units,
        "recurrent": layer.units * layer.groups * layer.units,
        "bias": layer.weights - (shape[-1] + layer.units) * layer.groups * layer.units,
    },
}
VARIABLES |= dict.fromkeys(CONVOLUTIONS, VARIABLES["conv"]) | {"layernorm": VARIABLES["batchnorm"]}


def words(shape: Shape) -> str:
    """A shape as people write it: 32x32x3."""
    return "x".join(map(str, shape))


def output(layer: Layer, *shapes: Shape) -> Shape:
    """The shape of one sample after the layer, from the shapes before it.

    Raises: ValueError for a kind of layer that is not known, inputs that do not go together, or an output without elements.
    """
    if layer.kind not in OUTPUTS:
        if layer.shape:
            return layer.shape
        raise ValueError(f"{layer.name} is of the unknown kind {layer.kind!r}; known: {', '.join(OUTPUTS)}")
    if (len(shapes) > 1) != (layer.kind in _SEVERAL):
        raise ValueError(f"{layer.name} is of the kind {layer.kind} and has {len(shapes)} inputs")
    try:
        after = OUTPUTS[layer.kind](layer, *shapes)
    except ValueError as error:
        if layer.kind not in CONVOLUTIONS:
            raise
        raise ValueError(f"{layer.name} cannot be on a {words(shapes[0])} input: {error}") from error
    if min(after) < 1:
        raise ValueError(f"{layer.name} leaves nothing of a {words(shapes[0])} input")
    return after


def variables(layer: Layer, shape: Shape) -> dict[str, int]:
    """Weights by variable (kernel, bias, gamma, beta) that the layer learns, for inputs of that shape."""
    return {name: count for name, count in _held(layer, shape).items() if count} if layer.trainable else {}


def _held(layer: Layer, shape: Shape) -> dict[str, int]:
    if layer.kind not in OUTPUTS:
        return {"weights": layer.weights}
    return VARIABLES[layer.kind](layer, shape) if layer.kind in VARIABLES else {}


def weights(layer: Layer, shape: Shape) -> int:
    """How many weights the layer has as Keras counts them: batch normalization's running mean and variance are among them."""
    return sum(_held(layer, shape).values()) + (2 * shape[-1] if layer.kind == "batchnorm" else 0)


def unknown(network: Network) -> tuple[Layer, ...]:
    """The layers of unknown kinds; the cost of each is only an estimate."""
    return tuple(layer for layer in network.layers if layer.kind not in OUTPUTS)


def sources(network: Network) -> tuple[tuple[str, ...], ...]:
    """The names of each layer's inputs: earlier layers, or `input`.

    Raises: ValueError for an input that is no earlier layer, and for two layers of one name.
    """
    found, before = [], [INPUT]
    for layer in network.layers:
        taken = layer.inputs or (before[-1],)
        for name in taken:
            if name not in before:
                raise ValueError(f"{layer.name} takes {name!r}, which is no layer before it")
        if layer.name in before:
            raise ValueError(f"two layers of {network.name} are called {layer.name!r}")
        found.append(taken)
        before.append(layer.name)
    return tuple(found)


def _shapes(network: Network) -> dict[str, Shape]:
    """Name -> shape of one sample after that layer, the input's own first."""
    found = {INPUT: network.input}
    for layer, taken in zip(network.layers, sources(network), strict=True):
        found[layer.name] = output(layer, *(found[name] for name in taken))
    return found


def inputs(network: Network) -> tuple[Shape, ...]:
    """The shape of one sample before each layer; of a layer with several inputs the first's."""
    found = _shapes(network)
    return tuple(found[taken[0]] for taken in sources(network))


def outputs(network: Network) -> tuple[Shape, ...]:
    """The shape of one sample after each layer."""
    return tuple(_shapes(network).values())[1:]


def layer_weights(network: Network) -> tuple[int, ...]:
    """The weights of each layer."""
    return tuple(weights(layer, shape) for layer, shape in zip(network.layers, inputs(network), strict=True))


def parameters(network: Network) -> int:
    """The weights of the whole network as Keras counts them."""
    if network.traced is not None:
        return network.traced.weights
    return sum(layer_weights(network))


def trainable(network: Network) -> int:
    """The weights that the optimizer changes."""
    if network.traced is not None:
        return network.traced.trainable_weights
    return sum(
        sum(variables(layer, shape).values()) for layer, shape in zip(network.layers, inputs(network), strict=True)
    )


def sample_bytes(network: Network, dtype: str = "float32") -> int:
    """Bytes of one sample without its label; of a traced step with targets that are more than a label."""
    if network.traced is not None:
        return network.traced.sample_bytes(dtype)
    return prod(network.input) * (1 if dtype == "uint8" else ITEM_BYTES[dtype])
