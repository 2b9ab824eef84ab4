"""Networks as tables of layers, and the problems that one training step of them comes to.

The Keras models, the data and the budgets are all made from these tables, so they cannot tell different stories. A
new network is an entry of NETWORKS; a new kind of layer is an entry of OUTPUTS and one of WEIGHTS; a new kind of work
in a step is one more function in WORK.
"""

from math import prod

import msgspec

from kernels.problems import ITEM_BYTES, Matmul, Problem, Training

Shape = tuple[int, ...]
CONV_WHY = "not measured yet: convolution comes with workloads.conv"


class Layer(msgspec.Struct, frozen=True):
    """One layer. `units` are a dense layer's outputs or a convolution's filters; `size` is the side of its filter or
    pooling window; `pad` is `same` or `valid` as Keras counts them; `rate` is the share that dropout drops."""

    name: str
    kind: str
    units: int = 0
    size: int = 1
    pad: str = "valid"
    activation: str = ""
    rate: float = 0.0


class Network(msgspec.Struct, frozen=True):
    """A model and how it is trained. `input` is the shape of one sample: height, width, channels.

    `seed` is its row in the list of articles that this project explains.
    """

    name: str
    seed: str
    input: Shape
    classes: int
    layers: tuple[Layer, ...]
    optimizer: str = "adam"
    loss: str = "sparse_categorical_crossentropy"


class Work(msgspec.Struct, frozen=True):
    """One operation of a training step: whose it is, in which direction (fprop, dgrad, wgrad), and its FLOPs.

    `problem` is what to measure for it; None when there is no such problem yet, and `why` says so.
    """

    layer: str
    kind: str
    direction: str
    flops: int
    problem: Problem | None = None
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.layer} {self.direction}"


NETWORKS = {
    network.name: network
    for network in (
        Network("cifar10-cnn", "S0", (32, 32, 3), 10, (
            Layer("conv1", "conv", 32, 3, "same", "relu"),
            Layer("pool1", "pool", size=2),
            Layer("dropout1", "dropout", rate=0.25),
            Layer("conv2", "conv", 64, 3, "same", "relu"),
            Layer("conv3", "conv", 64, 3, "valid", "relu"),
            Layer("pool2", "pool", size=2),
            Layer("dropout2", "dropout", rate=0.25),
            Layer("flatten", "flatten"),
            Layer("dense1", "dense", 512, activation="relu"),
            Layer("dropout3", "dropout", rate=0.2),
            Layer("dense2", "dense", 10, activation="softmax"),
        )),
    )
}  # fmt: skip


def find(name: str) -> Network:
    """The network of that name.

    Raises: ValueError naming those that there are.
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(NETWORKS)}")
    return NETWORKS[name]


def _conv_output(layer: Layer, shape: Shape) -> Shape:
    lost = 0 if layer.pad == "same" else layer.size - 1
    return (shape[0] - lost, shape[1] - lost, layer.units)


def _unchanged(layer: Layer, shape: Shape) -> Shape:
    return shape


OUTPUTS = {
    "conv": _conv_output,
    "pool": lambda layer, shape: (shape[0] // layer.size, shape[1] // layer.size, shape[2]),
    "dropout": _unchanged,
    "flatten": lambda layer, shape: (prod(shape),),
    "dense": lambda layer, shape: (*shape[:-1], layer.units),
}
# A bias a unit, and a weight for each input that a unit sees; kinds that are not named have no weights.
WEIGHTS = {
    "conv": lambda layer, shape: layer.units * (layer.size**2 * shape[-1] + 1),
    "dense": lambda layer, shape: layer.units * (shape[-1] + 1),
}


def output(layer: Layer, shape: Shape) -> Shape:
    """The shape of one sample after the layer, from its shape before it.

    Raises: ValueError for a kind of layer that is not known, or an output without elements.
    """
    if layer.kind not in OUTPUTS:
        raise ValueError(f"{layer.name} is of the unknown kind {layer.kind!r}; known: {', '.join(OUTPUTS)}")
    after = OUTPUTS[layer.kind](layer, shape)
    if min(after) < 1:
        raise ValueError(f"{layer.name} leaves nothing of a {'x'.join(map(str, shape))} input")
    return after


def weights(layer: Layer, shape: Shape) -> int:
    """How many weights the layer learns, biases among them, for inputs of that shape."""
    return WEIGHTS[layer.kind](layer, shape) if layer.kind in WEIGHTS else 0


def inputs(network: Network) -> tuple[Shape, ...]:
    """The shape of one sample before each layer."""
    shapes = [network.input]
    for layer in network.layers[:-1]:
        shapes.append(output(layer, shapes[-1]))
    return tuple(shapes)


def outputs(network: Network) -> tuple[Shape, ...]:
    """The shape of one sample after each layer."""
    return tuple(output(layer, shape) for layer, shape in zip(network.layers, inputs(network), strict=True))


def layer_weights(network: Network) -> tuple[int, ...]:
    """The weights of each layer."""
    return tuple(weights(layer, shape) for layer, shape in zip(network.layers, inputs(network), strict=True))


def parameters(network: Network) -> int:
    """The weights of the whole network."""
    return sum(layer_weights(network))


def footprint_bytes(problem: Training) -> int:
    """Bytes that a training holds at least: the data set, and the weights four times (gradients, Adam's two moments).

    Raises: ValueError for a model that is not in the tables.
    """
    network = find(problem.model)
    return problem.samples * sample_bytes(network, problem.dtype) + 4 * parameters(network) * ITEM_BYTES["float32"]


def sample_bytes(network: Network, dtype: str = "float32") -> int:
    """Bytes of one sample without its label."""
    return prod(network.input) * ITEM_BYTES[dtype]


def _dense(layer: Layer, shape: Shape, batch: int, first: bool, dtype: str, math: str) -> list[Work]:
    """Y = X W forward; dX = dY W^T, which the network's first layer does not need; dW = X^T dY."""
    rows, fan_in, fan_out = batch * prod(shape[:-1]), shape[-1], layer.units
    products = {
        "fprop": Matmul(rows, fan_out, fan_in, dtype, math),
        "dgrad": Matmul(rows, fan_in, fan_out, dtype, math, layout="nt"),
        "wgrad": Matmul(fan_in, fan_out, rows, dtype, math, layout="tn"),
    }
    return [Work(layer.name, layer.kind, d, p.flops, p) for d, p in products.items() if d != "dgrad" or not first]


def _conv(layer: Layer, shape: Shape, batch: int, first: bool, dtype: str, math: str) -> list[Work]:
    """2 n p q c_out c_in r s FLOPs in each direction; the network's first layer needs no dgrad."""
    p, q, c_out = output(layer, shape)
    flops = 2 * batch * p * q * c_out * shape[-1] * layer.size**2
    directions = ("fprop", "wgrad") if first else ("fprop", "dgrad", "wgrad")
    return [Work(layer.name, layer.kind, d, flops, why=CONV_WHY) for d in directions]


WORK = {"dense": _dense, "conv": _conv}


def step(network: Network, batch: int, dtype: str = "float32", math: str = "") -> tuple[Work, ...]:
    """The operations of one training step on `batch` samples, layer by layer, in the arithmetic `math`."""
    found: list[Work] = []
    first = True
    for layer, shape in zip(network.layers, inputs(network), strict=True):
        if layer.kind in WORK:
            found += WORK[layer.kind](layer, shape, batch, first, dtype, math)
        first = first and not weights(layer, shape)
    return tuple(found)
