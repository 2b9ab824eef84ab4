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

    A `kind` that OUTPUTS does not know is the name of a class that somebody wrote or that nothing here prices: such a layer
    brings the `shape` of its output and how many `weights` it has, and its work is an estimate from these.
    """

    name: str
    #: An entry of OUTPUTS, or the name of a class.
    kind: str
    #: Outputs of a dense layer, filters of a convolution, numbers of a recurrent layer's state.
    units: int = 0
    #: Side of the filter or window, or its height and width; zeros on a side of a `zeropad`.
    size: int | tuple[int, int] = 1
    #: Step of the filter or window; 0: 1 for a convolution, `size` for a pool.
    stride: int = 0
    #: `same` or `valid`, as Keras counts them.
    pad: str = "valid"
    #: Groups of a convolution's channels (all channels of a `depthwise` one), gates of a recurrent cell, heads of attention.
    groups: int = 1
    #: Function of the outputs; "" for none.
    activation: str = ""
    #: Share that dropout drops.
    rate: float = 0.0
    #: Whether it has a bias (batch normalization: beta).
    bias: bool = True
    #: Whether batch normalization has its gamma.
    scale: bool = True
    #: Names of the layers that it takes; (): the one before it.
    inputs: tuple[str, ...] = ()
    #: Whether training changes its weights.
    trainable: bool = True
    #: Shape of its output where OUTPUTS cannot tell: `transposed`, `rearrange` (upsampling, cropping, padding, permuting),
    #: `merge` (inputs multiplied, averaged and such, element by element), `recurrent`, and layers of a kind that is not known.
    shape: Shape = ()
    #: Weights of an embedding, a recurrent layer or one of a kind that is not known.
    weights: int = 0
    #: Whether cuDNN has its recurrent cell.
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
    """A model, and how its article trains it; networks without an article are trained as is usual for them."""

    name: str
    #: Its row in the list of articles that this project explains; "" without an article.
    seed: str
    #: Shape of one sample: height, width, channels.
    input: Shape
    #: Outputs of the last layer; 1 of a regression.
    classes: int
    layers: tuple[Layer, ...]
    optimizer: str = "adam"
    loss: str = "sparse_categorical_crossentropy"
    #: 0: the optimizer's default.
    learning_rate: float = 0.0
    #: Name of the data set; "": made up only.
    data: str = ""
    samples: int = 50_000
    #: Keras's 32 where the article names none.
    batch: int = 32
    epochs: int = 10
    #: Keras's dtype policy of a user's model.
    precision: str = "float32"
    #: The operations of its training step, where its layers do not describe it: it has none then. None of other networks.
    traced: TracedStep | None = None
    #: Whether a user's model came without an optimizer and a loss, so that those above were chosen for it.
    compiled_for_user: bool = False

    @property
    def regression(self) -> bool:
        """Whether it learns numbers, not classes."""
        return self.loss == "mean_squared_error"


#: A transposed convolution goes forward as the gradient of a convolution, and that one goes forward as its gradient.
_TRANSPOSED_DIRECTION = {"fprop": "dgrad", "dgrad": "fprop", "wgrad": "wgrad"}


def _image(shape: Shape) -> tuple[int, int, int]:
    """Height, width and channels; a row of a sequence is an image of one line."""
    height, width, channels = tuple((1, *shape)[-3:])
    return height, width, channels


def conv(
    layer: Layer, shape: Shape, batch: int, direction: str = "fprop", dtype: str = "float32", math: str = ""
) -> Conv:
    """The convolution of a layer for a batch of inputs of that shape (without the batch), stored NHWC as Keras has them. A
    transposed one is the convolution that would give its input from its output.

    Source: Dumoulin and Visin, A guide to convolution arithmetic for deep learning, section 4.
    math: the arithmetic; "" for the type's default.
    Raises: ValueError for one that cannot be.
    """
    image = _image(shape)
    filters = layer.units
    if layer.kind == "transposed":
        filters = image[-1]
        image = _image(layer.shape)
        direction = _TRANSPOSED_DIRECTION[direction]
    return Conv(
        n=batch,
        h=image[0],
        w=image[1],
        c_in=image[2],
        c_out=filters,
        r=layer.sides[0],
        s=layer.sides[1],
        stride=layer.step,
        pad=layer.pad,
        groups=layer.groups,
        layout="NHWC",
        direction=direction,
        dtype=dtype,
        math=math,
    )


def _conv_output(layer: Layer, shape: Shape) -> Shape:
    problem = conv(layer, shape, batch=1)
    return (problem.p, problem.q, layer.units)[-len(shape) :]


def _pool_output(layer: Layer, shape: Shape) -> Shape:
    """The shape of one sample after a pool of images (height, width, channels) or of a sequence (steps, channels)."""
    if len(shape) == 2:  # a sequence: an image of one line
        return _pool_output(layer, (1, *shape))[1:]
    if layer.pad == "same":
        pooled = [-(-side // layer.step) for side in shape[:2]]
    else:
        pooled = [(side - window) // layer.step + 1 for side, window in zip(shape[:2], layer.sides, strict=True)]
    return (*pooled, shape[2])


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
#: Kinds with several inputs.
_SEVERAL = ("add", "concat", "merge", "scores", "weighted")


def _bias_weights(layer: Layer, count: int) -> int:
    return count if layer.bias else 0


def _conv_weights(layer: Layer, shape: Shape) -> dict[str, int]:
    filter_size = prod(layer.sides) * shape[-1] // layer.groups
    return {"kernel": filter_size * layer.units, "bias": _bias_weights(layer, layer.units)}


def _dense_weights(layer: Layer, shape: Shape) -> dict[str, int]:
    return {"kernel": layer.units * shape[-1], "bias": _bias_weights(layer, layer.units)}


def _normalization_weights(layer: Layer, shape: Shape) -> dict[str, int]:
    return {"gamma": shape[-1] if layer.scale else 0, "beta": _bias_weights(layer, shape[-1])}


def _recurrent_weights(layer: Layer, shape: Shape) -> dict[str, int]:
    gates = layer.groups * layer.units
    products = {"kernel": shape[-1] * gates, "recurrent": layer.units * gates}
    return products | {"bias": layer.weights - sum(products.values())}


#: The variables of a kind of layer and how many weights each has; kinds that are not named have none.
VARIABLES: dict[str, Callable[[Layer, Shape], dict[str, int]]] = {
    **dict.fromkeys(CONVOLUTIONS, _conv_weights),
    "dense": _dense_weights,
    "batchnorm": _normalization_weights,
    "layernorm": _normalization_weights,
    "embedding": lambda layer, shape: {"embeddings": layer.weights},
    "recurrent": _recurrent_weights,
}


def words(shape: Shape) -> str:
    """A shape as people write it: 32x32x3."""
    return "x".join(map(str, shape))


def output(layer: Layer, *shapes: Shape) -> Shape:
    """The shape of one sample after the layer, from the shapes of its inputs.

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


def _variables(layer: Layer, shape: Shape) -> dict[str, int]:
    """Weights by variable, whether or not they are trained."""
    if layer.kind not in OUTPUTS:
        return {"weights": layer.weights}
    if layer.kind not in VARIABLES:
        return {}
    return VARIABLES[layer.kind](layer, shape)


def variables(layer: Layer, shape: Shape) -> dict[str, int]:
    """Weights by variable (kernel, bias, gamma, beta) that the layer learns, for inputs of that shape."""
    if not layer.trainable:
        return {}
    return {name: count for name, count in _variables(layer, shape).items() if count}


def weights(layer: Layer, shape: Shape) -> int:
    """How many weights the layer has as Keras counts them: batch normalization's running mean and variance are among them."""
    count = sum(_variables(layer, shape).values())
    if layer.kind == "batchnorm":
        count += 2 * shape[-1]
    return count


def unknown(network: Network) -> tuple[Layer, ...]:
    """The layers of unknown kinds; the cost of each is only an estimate."""
    return tuple(layer for layer in network.layers if layer.kind not in OUTPUTS)


def sources(network: Network) -> tuple[tuple[str, ...], ...]:
    """The names of each layer's inputs, in the order of the network's layers: earlier layers, or `input`.

    Raises: ValueError for an input that is no earlier layer, and for two layers of one name.
    """
    taken = []
    before = [INPUT]
    for layer in network.layers:
        names = layer.inputs or (before[-1],)
        for name in names:
            if name not in before:
                raise ValueError(f"{layer.name} takes {name!r}, which is no layer before it")
        if layer.name in before:
            raise ValueError(f"two layers of {network.name} are called {layer.name!r}")
        taken.append(names)
        before.append(layer.name)
    return tuple(taken)


def _shapes(network: Network) -> dict[str, Shape]:
    """Name -> shape of one sample after that layer, the network's input first."""
    shapes = {INPUT: network.input}
    for layer, names in zip(network.layers, sources(network), strict=True):
        shapes[layer.name] = output(layer, *(shapes[name] for name in names))
    return shapes


def inputs(network: Network) -> tuple[Shape, ...]:
    """The shape of one sample before each layer; of a layer with several inputs the first's."""
    shapes = _shapes(network)
    return tuple(shapes[names[0]] for names in sources(network))


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
    count = 0
    for layer, shape in zip(network.layers, inputs(network), strict=True):
        count += sum(variables(layer, shape).values())
    return count


def sample_bytes(network: Network, dtype: str = "float32") -> int:
    """Bytes of one sample without its label; of a traced step with targets that are more than a label."""
    if network.traced is not None:
        return network.traced.sample_bytes(dtype)
    return prod(network.input) * (1 if dtype == "uint8" else ITEM_BYTES[dtype])
