"""The operations of a network's training step, or of answering one batch, each with the problem to measure for it.

A pass without a problem of its own is priced as one that moves the same arrays, since such passes are memory-bound; `why` says
so.
"""

# A new kind of layer is an entry of WORK.

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from math import prod

import msgspec

from kernels.networks import layers
from kernels.networks.layers import INPUT, Layer, Network, Shape
from kernels.problems import Matmul, Problem, Stream
from kernels.problems.arrays import ITEM_BYTES


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a training step."""

    #: The layer that it belongs to; the loss by its name.
    layer: str
    #: dense, conv, pass, loss or optimizer.
    kind: str
    #: fprop, dgrad or wgrad of a product, else the name of the pass: relu, relu_grad, bias_grad, `adam kernel`.
    direction: str
    #: FLOPs of all `times`.
    flops: int
    #: What to measure for it.
    problem: Problem | None = None
    #: Why another pass stands for it, or, without a problem, why it has none; "" if the problem is the operation itself.
    why: str = ""
    #: How often it is done, one after the other.
    times: int = 1
    #: Whether it is one of a layer's other products: of a recurrent state, or of attention's second input.
    is_second: bool = False

    @property
    def product(self) -> str:
        """`lstm`; `lstm/second` for a layer's other products."""
        return f"{self.layer}/second" if self.is_second else self.layer

    @property
    def name(self) -> str:
        return f"{self.product} {self.direction}"


class PlacedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer where it stands in its network, in one training step or in answering one batch."""

    layer: Layer
    #: Shapes of one sample of its inputs.
    input_shapes: tuple[Shape, ...]
    #: Shape of one sample of its output.
    output_shape: Shape
    batch: int
    dtype: str
    #: The arithmetic of its products; "" for the type's default.
    math: str
    #: Whether the network is trained, not asked for answers.
    training: bool
    #: Whether something before it learns, so that the gradient of its inputs is needed.
    needs_input_gradient: bool

    @property
    def input_elements(self) -> int:
        """Elements of all inputs for the batch."""
        return self.batch * sum(map(prod, self.input_shapes))

    @property
    def output_elements(self) -> int:
        """Elements of the output for the batch."""
        return self.batch * prod(self.output_shape)

    @property
    def gets_gradient(self) -> bool:
        """Whether a gradient arrives here: the network is trained, and this layer or one before it learns."""
        return self.training and (self.needs_input_gradient or bool(layers.variables(self.layer, self.input_shapes[0])))


def stream(operation: str, elements: int, dtype: str) -> Stream:
    """The problem of an element-wise operation (one of Stream's) over arrays of at least that many elements; whole images
    where the operation is of images."""
    granule = prod(Stream.IMAGE) if operation in Stream.IMAGE_OPERATIONS else 1
    whole = -(-elements // granule) * granule
    arrays = Stream.WEIGHTS[operation].read + Stream.WEIGHTS[operation].written
    return Stream(operation=operation, nbytes=int(whole * arrays * ITEM_BYTES[dtype]), dtype=dtype)


# ---------------------------------------------------------------- passes


def _element_wise(placed: PlacedLayer, direction: str, elements: int, priced_as: str = "", why: str = "") -> Work:
    """An element-wise operation of a layer, `elements` elements each array, with the measured problem that stands for it.

    direction: its name in the step.
    priced_as: the operation of Stream whose measured time stands for it ("": the one that `direction` names).
    why: why that stands for it, if it is another ("": because it moves the same arrays).
    """
    operation = priced_as or direction
    if operation != direction and not why:
        why = f"priced as {operation}: the same arrays"
    return Work(
        layer=placed.layer.name,
        kind="pass",
        direction=direction,
        flops=int(elements * Stream.WEIGHTS[operation].flops),
        problem=stream(operation, elements, placed.dtype),
        why=why,
    )


def _copy(placed: PlacedLayer, direction: str) -> Work:
    """An operation of a layer that only moves data, priced as a copy of the same bytes: it reads its inputs and writes its
    outputs, or the other way round for a gradient.

    direction: its name in the step.
    """
    elements = placed.input_elements + placed.output_elements
    return Work(
        layer=placed.layer.name,
        kind="pass",
        direction=direction,
        flops=0,
        problem=Stream(operation="copy", nbytes=elements * ITEM_BYTES[placed.dtype], dtype=placed.dtype),
        why="priced as a copy of the same bytes",
    )


def _movement(name: str, placed: PlacedLayer) -> Iterator[Work]:
    """Work that only moves data or nearly so, in both directions."""
    yield _copy(placed, name)
    if placed.needs_input_gradient:
        yield _copy(placed, f"{name}_grad")


def _activation(placed: PlacedLayer) -> Iterator[Work]:
    """The work of a layer's activation function, if it has one, and of its gradient; priced as ReLU, which moves the same
    arrays."""
    name = placed.layer.activation
    if not name:
        return
    yield _element_wise(placed, name, placed.output_elements, priced_as="relu")
    if placed.gets_gradient:
        yield _element_wise(placed, f"{name}_grad", placed.output_elements, priced_as="relu_grad")


def _bias(placed: PlacedLayer) -> Iterator[Work]:
    """The work of adding a layer's bias, if it has one, and of the bias's gradient."""
    if not placed.layer.bias:
        return
    rows = (
        placed.layer.kind == "dense" and len(placed.output_shape) > 1
    )  # reshaped first, so that it is not in the product
    yield _element_wise(placed, "bias of rows" if rows else "bias", placed.output_elements, priced_as="scale")
    if placed.training and placed.layer.trainable:
        why = "a sum over all but the last axis, priced as one over everything"
        yield _element_wise(placed, "bias_grad", placed.output_elements, priced_as="read", why=why)


def _maxpool(placed: PlacedLayer) -> Iterator[Work]:
    """The work of a max-pool and of its gradient; a window other than 2 x 2 every 2 is priced as that, and says so."""
    height, width = placed.layer.sides
    why = ""
    if (height, width, placed.layer.step) != (2, 2, 2):
        why = f"a window of {height} x {width} every {placed.layer.step}, priced as 2 x 2 every 2"
    yield _element_wise(placed, "maxpool", placed.input_elements, why=why)
    if placed.needs_input_gradient:
        yield _element_wise(placed, "maxpool_grad", placed.input_elements, why=why)


def _avgpool(placed: PlacedLayer) -> Iterator[Work]:
    """The work of an average pool and of its gradient, priced as a max-pool.

    Source: oneDNN's pooling primitive, one for both; traces of LeNet's steps.
    """
    why = "priced as a pool of maxima"
    yield _element_wise(placed, "avgpool", placed.input_elements, priced_as="maxpool", why=why)
    if placed.needs_input_gradient:
        yield _element_wise(placed, "avgpool_grad", placed.input_elements, priced_as="maxpool_grad", why=why)


def _dropout(placed: PlacedLayer) -> Iterator[Work]:
    """The work of dropout and of its gradient, in training alone."""
    if not placed.training:
        return
    yield _element_wise(placed, "dropout", placed.input_elements)
    if placed.needs_input_gradient:
        yield _element_wise(placed, "dropout_grad", placed.input_elements, priced_as="relu_grad")


def _normalization(placed: PlacedLayer) -> Iterator[Work]:
    """The work of batch or layer normalization and of its gradient. Frozen, it only scales and shifts by its running values."""
    if placed.training and placed.layer.trainable:
        yield _element_wise(placed, "batchnorm", placed.input_elements)
        yield _element_wise(placed, "batchnorm_grad", placed.input_elements)
        return
    why = "a scale and a shift by channel, priced as scale"  # frozen, it keeps to its running values
    yield _element_wise(placed, "batchnorm", placed.input_elements, priced_as="scale", why=why)
    if placed.gets_gradient:
        yield _element_wise(placed, "batchnorm_grad", placed.input_elements, priced_as="scale", why=why)


def _add(placed: PlacedLayer) -> Iterator[Work]:
    """A pass for each input beyond the first; the gradient is the output's own."""
    for i in range(1, len(placed.input_shapes)):
        yield _element_wise(placed, "add" if i == 1 else f"add {i}", placed.output_elements, priced_as="add")


def _merge(placed: PlacedLayer) -> Iterator[Work]:
    """The work of a layer that combines its inputs element by element: one pass for each input beyond the first, backward one
    for each."""
    for i in range(1, len(placed.input_shapes)):
        yield _element_wise(placed, f"merge {i}", placed.output_elements, priced_as="add")
    if placed.needs_input_gradient:
        for i in range(len(placed.input_shapes)):
            yield _element_wise(placed, f"merge_grad {i}", placed.output_elements, priced_as="add")


def _embedding(placed: PlacedLayer) -> Iterator[Work]:
    """A row of the table for each whole number; the gradient is a table of zeros to which those rows are added."""
    yield _element_wise(placed, "lookup", placed.output_elements, priced_as="copy")
    if placed.gets_gradient:
        yield _element_wise(placed, "lookup_grad", placed.output_elements + placed.layer.weights, priced_as="copy")


# ---------------------------------------------------------------- products


def _directions(placed: PlacedLayer) -> list[str]:
    """The directions of a layer's product that are needed: fprop, the output; dgrad, the gradient of the inputs, if a layer
    below learns; wgrad, the gradient of the weights, if they are trained."""
    directions = ["fprop"]
    if placed.needs_input_gradient:
        directions.append("dgrad")
    if placed.training and placed.layer.trainable:
        directions.append("wgrad")
    return directions


def _products(placed: PlacedLayer, rows: int, fan_in: int, fan_out: int, why: str = "") -> Iterator[Work]:
    """Work of a dense product of X (rows x fan_in) and W (fan_in x fan_out), in the directions that are needed.

        Y  = X W        fprop
        dX = dY W^T     dgrad
        dW = X^T dY     wgrad

    why: why the product only stands for the layer's work; "" if it is the work itself.
    """
    problems = {
        "fprop": Matmul(m=rows, n=fan_out, k=fan_in, dtype=placed.dtype, math=placed.math),
        "dgrad": Matmul(m=rows, n=fan_in, k=fan_out, dtype=placed.dtype, math=placed.math, layout="nt"),
        "wgrad": Matmul(m=fan_in, n=fan_out, k=rows, dtype=placed.dtype, math=placed.math, layout="tn"),
    }
    for direction in _directions(placed):
        problem = problems[direction]
        yield Work(
            layer=placed.layer.name,
            kind="dense",
            direction=direction,
            flops=problem.flops,
            problem=problem,
            why=why,
        )


def _dense(placed: PlacedLayer) -> Iterator[Work]:
    shape = placed.input_shapes[0]
    yield from _products(placed, placed.batch * prod(shape[:-1]), shape[-1], placed.layer.units)
    yield from _bias(placed)
    yield from _activation(placed)


def _conv(placed: PlacedLayer) -> Iterator[Work]:
    """The work of a convolution, its bias and its activation. Each direction has 2 n p q c_out (c_in / groups) r s FLOPs: of
    a depthwise one 2 n p q c_out r s, of a transposed one with p and q of its input."""
    for direction in _directions(placed):
        problem = layers.conv(
            placed.layer,
            placed.input_shapes[0],
            placed.batch,
            direction=direction,
            dtype=placed.dtype,
            math=placed.math,
        )
        yield Work(layer=placed.layer.name, kind="conv", direction=direction, flops=problem.flops, problem=problem)
    yield from _bias(placed)
    yield from _activation(placed)


def _recurrent(placed: PlacedLayer) -> Iterator[Work]:
    """The work of a recurrent layer: in each time step a product of the inputs, one of the state, and the cell's element-wise
    operations on its gates. On the way back the gradients of both weights are added up, step by step."""
    _, width = placed.input_shapes[0]
    yield from _recurrent_products(placed, width, is_second=False)
    state = msgspec.structs.replace(
        placed, needs_input_gradient=placed.training
    )  # its gradient leads to the step before
    yield from _recurrent_products(state, placed.layer.units, is_second=True)
    yield from _cell(placed)


def _recurrent_products(placed: PlacedLayer, fan_in: int, is_second: bool) -> Iterator[Work]:
    """Products of a recurrent layer's gates, one a time step; cuDNN makes those that wait for no state of all steps at once.

    fan_in: numbers that a gate is computed from. is_second: whether these are the products of the state, not of the inputs.
    """
    steps, _ = placed.input_shapes[0]
    gates = placed.layer.groups * placed.layer.units
    step_products = _products(placed, placed.batch, fan_in, gates)
    whole_products = _products(placed, placed.batch * steps, fan_in, gates)
    for work, whole in zip(step_products, whole_products, strict=True):
        waits_for_state = is_second and work.direction != "wgrad"
        if placed.layer.fused and not waits_for_state:
            yield msgspec.structs.replace(whole, is_second=is_second)
        else:
            yield msgspec.structs.replace(work, is_second=is_second, times=steps, flops=whole.flops)


def _cell(placed: PlacedLayer) -> Iterator[Work]:
    """The element-wise operations of a recurrent cell in each time step. In TensorFlow's loop, without cuDNN, the gradients
    of the weights are added up too."""
    layer = placed.layer
    steps, width = placed.input_shapes[0]
    gates = layer.groups * layer.units
    name = "cell" if layer.fused else "loop"
    gate_elements = 4 * placed.batch * gates
    elements = {name: gate_elements}
    if placed.gets_gradient:
        elements[f"{name}_grad"] = gate_elements
        if not layer.fused:
            elements["gradient_sum"] = (width + layer.units) * gates
    for direction, count in elements.items():
        work = _element_wise(placed, direction, count, priced_as="add")
        yield msgspec.structs.replace(work, times=steps, flops=work.flops * steps)


def _attention(placed: PlacedLayer) -> Iterator[Work]:
    """The work of attention's scores S = Q K^T, or of its values weighted by them, S V; and of the transposes around the
    product."""
    is_scores = placed.layer.kind == "scores"
    heads, queries, keys = tuple(placed.output_shape if is_scores else placed.input_shapes[0])
    width = placed.input_shapes[1][1] // heads  # of a head
    n, k = (keys, width) if is_scores else (width, keys)
    yield _head_product(placed, "fprop", m=heads * queries, n=n, k=k)
    if placed.needs_input_gradient:
        yield _head_product(placed, "dgrad", m=heads * queries, n=k, k=n)
        second = _head_product(placed, "dgrad", m=heads * k, n=n, k=queries)
        yield msgspec.structs.replace(second, is_second=True)
    yield from _movement("transpose", placed)


def _head_product(placed: PlacedLayer, direction: str, *, m: int, n: int, k: int) -> Work:
    """The matrix products of all heads and samples of attention, priced as one product of as many rows.

    m: the rows of a sample's heads together; n, k: columns and depth of a head's product.
    """
    problem = Matmul(m=placed.batch * m, n=n, k=k, dtype=placed.dtype, math=placed.math)
    return Work(
        layer=placed.layer.name,
        kind="dense",
        direction=direction,
        flops=problem.flops,
        problem=problem,
        why="a product for each head and sample, priced as one of as many rows",
    )


def _unknown(placed: PlacedLayer) -> Iterator[Work]:
    """The work of a layer of a kind that is not known, an estimate: its arrays are moved, and its weights are taken for a
    dense layer's, used at every position of its input or output, whichever has more."""
    layer = placed.layer
    name = layer.kind.lower()
    yield _copy(placed, name)
    if placed.gets_gradient:
        yield _copy(placed, f"{name}_grad")
    if layer.weights:
        shape = placed.input_shapes[0]
        fan_in = shape[-1] if shape else 1
        rows = placed.batch * max(prod(shape[:-1]), prod(placed.output_shape[:-1]))
        why = f"{layer.kind} is not known: estimated as a dense layer with its weights"
        yield from _products(placed, rows, fan_in, max(1, layer.weights // fan_in), why=why)


#: Kind of layer -> its work; a flatten or a reshape moves nothing.
WORK: dict[str, Callable[[PlacedLayer], Iterator[Work]]] = {
    "dense": _dense,
    **dict.fromkeys(layers.CONVOLUTIONS, _conv),
    "activation": _activation,
    "pool": _maxpool,
    "avgpool": _avgpool,
    "globalpool": functools.partial(_movement, "globalpool"),
    "dropout": _dropout,
    "batchnorm": _normalization,
    "add": _add,
    "concat": functools.partial(_movement, "concat"),
    "zeropad": functools.partial(_movement, "zeropad"),
    "rearrange": functools.partial(_movement, "rearrange"),
    "merge": _merge,
    "embedding": _embedding,
    "layernorm": _normalization,
    "recurrent": _recurrent,
    "scores": _attention,
    "weighted": _attention,
}


def _work(placed: PlacedLayer) -> Iterator[Work]:
    """The work of one layer: forward and, in training, backward."""
    kind = placed.layer.kind
    if kind not in layers.OUTPUTS:
        return _unknown(placed)
    if kind not in WORK:
        return iter(())
    return WORK[kind](placed)


# ---------------------------------------------------------------- whole networks


def _places(network: Network, *, batch: int, dtype: str, math: str, training: bool) -> list[PlacedLayer]:
    """Every layer with its shapes, batch and arithmetic, in the network's order.

    math: the arithmetic of products; "" for the type's default. training: whether the network is trained, not asked for
    answers.
    """
    shapes = {INPUT: network.input}
    gets_gradient = {INPUT: False}
    places = []
    for layer, names in zip(network.layers, layers.sources(network), strict=True):
        input_shapes = tuple(shapes[name] for name in names)
        placed = PlacedLayer(
            layer=layer,
            input_shapes=input_shapes,
            output_shape=layers.output(layer, *input_shapes),
            batch=batch,
            dtype=dtype,
            math=math,
            training=training,
            needs_input_gradient=training and any(gets_gradient[name] for name in names),
        )
        shapes[layer.name] = placed.output_shape
        gets_gradient[layer.name] = placed.gets_gradient
        places.append(placed)
    return places


def step(network: Network, batch: int, dtype: str = "float32", math: str = "") -> tuple[Work, ...]:
    """The operations of one training step on `batch` samples: layer by layer the forward and backward work, the sums of
    gradients where a layer feeds several, the loss, and the optimizer's pass over each variable.

    dtype: of the data. math: the arithmetic of products; "" for the type's default.
    """
    places = _places(network, batch=batch, dtype=dtype, math=math, training=True)
    readers = Counter(itertools.chain.from_iterable(layers.sources(network)))
    works: list[Work] = []
    for placed in places:
        works += _work(placed)
        if placed.gets_gradient:
            works += [
                _element_wise(placed, f"gradient_sum {i}", placed.output_elements, priced_as="add")
                for i in range(1, readers[placed.layer.name])
            ]
    works += _loss(network, places[-1])
    for placed in places:
        works += _updates(network.optimizer, placed)
    return tuple(works)


def inference(network: Network, batch: int) -> tuple[Work, ...]:
    """The operations that answer `batch` samples: forward only, no dropout, batch normalization by its running values."""
    works: list[Work] = []
    for placed in _places(network, batch=batch, dtype="float32", math="", training=False):
        works += _work(placed)
    return tuple(works)


def _loss(network: Network, last: PlacedLayer) -> Iterator[Work]:
    """The work of the loss, its gradient and, of classes, the accuracy: element-wise operations on a number for each sample
    and class.

    last: the network's last layer.
    """
    passes = {"loss": "read", "loss_grad": "relu_grad"}
    if not network.regression:
        passes["accuracy"] = "read"
    for direction, operation in passes.items():
        work = _element_wise(last, direction, last.output_elements, priced_as=operation)
        yield msgspec.structs.replace(work, layer=network.loss, kind="loss")


#: Optimizers that read and write the arrays that Adam does.
_LIKE_ADAM = ("nadam", "adamw", "adamax")


def _updates(optimizer: str, placed: PlacedLayer) -> Iterator[Work]:
    """The optimizer's work on each variable of a layer; variables are float32, or float64 if the data is.

    optimizer: Keras's name of it, such as `adam`.
    """
    dtype = "float64" if placed.dtype == "float64" else "float32"
    operation = "adam" if optimizer in _LIKE_ADAM else optimizer
    for name, count in layers.variables(placed.layer, placed.input_shapes[0]).items():
        work = Work(
            layer=placed.layer.name,
            kind="optimizer",
            direction=f"{optimizer} {name}",
            flops=0,
            why=f"no stream problem is a step of {optimizer}",
        )
        if operation in Stream.WEIGHTS:
            problem = stream(operation, count, dtype)
            why = "" if operation == optimizer else "priced as adam: the same arrays"
            work = msgspec.structs.replace(work, flops=problem.flops, problem=problem, why=why)
        yield work


@functools.lru_cache(maxsize=1024)
def training_flops(network: Network) -> int:
    """FLOPs of the products of a training step, for each sample."""
    if network.traced is not None:
        return network.traced.product_flops()
    return _flops_of_products(step(network, 1))


@functools.lru_cache(maxsize=1024)
def inference_flops(network: Network) -> int:
    """FLOPs of the products that answer one sample."""
    if network.traced is not None:
        return network.traced.product_flops(forward=True)
    return _flops_of_products(inference(network, 1))


def _flops_of_products(works: tuple[Work, ...]) -> int:
    return sum(work.flops for work in works if work.kind in ("dense", "conv"))
