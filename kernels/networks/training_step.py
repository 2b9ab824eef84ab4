"""The operations of a network's training step, or of answering one batch, each with the problem to measure for it.

A pass without a problem of its own is priced as one that moves the same arrays, since such passes are memory-bound; `why` says
so.
"""

# A new kind of layer is an entry of WORK.

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from math import prod

import msgspec

from kernels.networks import layers
from kernels.networks.layers import INPUT, Layer, Network, Shape
from kernels.problems import Matmul, Problem, Stream
from kernels.problems.arrays import ITEM_BYTES


class Work(msgspec.Struct, frozen=True):
    """One operation: whose it is, of what kind (dense, conv, pass, loss, optimizer), and its FLOPs.

    `direction` is fprop, dgrad or wgrad of a product, else the name of the pass (relu, relu_grad, bias_grad, `adam kernel`).
    `problem` is what to measure for it. `why` says that it stands for another of the same arrays, or, where there is no
    problem (None), why there is none. `times`: how often it is done, one after the other; the FLOPs are of all. `is_second`:
    whether it is one of a layer's other products, of a recurrent state or of attention's second input.
    """

    layer: str
    kind: str
    direction: str
    flops: int
    problem: Problem | None = None
    why: str = ""
    times: int = 1
    is_second: bool = False

    @property
    def product(self) -> str:
        """`lstm`; `lstm/second` for a layer's other products."""
        return f"{self.layer}/second" if self.is_second else self.layer

    @property
    def name(self) -> str:
        return f"{self.product} {self.direction}"


class Place(msgspec.Struct, frozen=True):
    """A layer where it stands: the shapes of one sample before and after it, the batch, and the arithmetic.

    training: whether anything is to be learned at all; below: whether something before it learns, so that the gradient of
    its inputs is needed.
    """

    layer: Layer
    before: tuple[Shape, ...]
    after: Shape
    batch: int
    dtype: str
    math: str
    training: bool
    below: bool

    @property
    def inputs(self) -> int:
        """Elements of all inputs for the batch."""
        return self.batch * sum(map(prod, self.before))

    @property
    def outputs(self) -> int:
        return self.batch * prod(self.after)

    @property
    def learns(self) -> bool:
        """Whether a gradient arrives here."""
        return self.training and (self.below or bool(layers.variables(self.layer, self.before[0])))


def stream(operation: str, elements: int, dtype: str) -> Stream:
    """The pass over arrays of at least that many elements (whole images where the operation is of images)."""
    granule = prod(Stream.IMAGE) if operation in Stream.OF_IMAGES else 1
    read, written, _ = Stream.WEIGHTS[operation]
    return Stream(operation, int(-(-elements // granule) * granule * (read + written) * ITEM_BYTES[dtype]), dtype)


def _pass(place: Place, direction: str, elements: int, operation: str = "", why: str = "") -> Work:
    problem = stream(operation or direction, elements, place.dtype)
    if operation and not why:
        why = f"priced as {operation}: the same arrays"
    flops = int(elements * Stream.WEIGHTS[problem.operation][2])
    return Work(place.layer.name, "pass", direction, flops, problem, why)


def _both(
    place: Place, name: str, elements: int, learned: bool, operations: tuple[str, str] = ("", ""), why: str = ""
) -> Iterator[Work]:
    """A pass and, where something is `learned`, that of its gradient."""
    yield _pass(place, name, elements, operations[0], why)
    if learned:
        yield _pass(place, f"{name}_grad", elements, operations[1], why)


def _moved(place: Place, direction: str) -> Work:
    """A pass that reads its inputs and writes its outputs, or the other way round for a gradient."""
    elements = place.inputs + place.outputs
    problem = Stream("copy", elements * ITEM_BYTES[place.dtype], place.dtype)
    return Work(place.layer.name, "pass", direction, 0, problem, "priced as a copy of the same bytes")


def _activation(place: Place) -> Iterator[Work]:
    name = place.layer.activation
    if name:
        operations = ("", "") if name == "relu" else ("relu", "relu_grad")
        yield from _both(place, name, place.outputs, place.learns, operations)


def _bias(place: Place) -> Iterator[Work]:
    if not place.layer.bias:
        return
    rows = place.layer.kind == "dense" and len(place.after) > 1  # reshaped first, so that it is not in the product
    yield _pass(place, "bias of rows" if rows else "bias", place.outputs, "scale")
    if place.training and place.layer.trainable:
        yield _pass(
            place, "bias_grad", place.outputs, "read", "a sum over all but the last axis, priced as one over everything"
        )


def _directions(place: Place) -> tuple[str, ...]:
    learned = place.training and place.layer.trainable
    return ("fprop", *("dgrad",) * (place.training and place.below), *("wgrad",) * learned)


def _products(place: Place, rows: int, fan_in: int, fan_out: int, why: str = "") -> Iterator[Work]:
    """Work of a dense product: Y = X W; dX = dY W^T, skipped where no layer below learns; dW = X^T dY."""
    products = {
        "fprop": Matmul(rows, fan_out, fan_in, place.dtype, place.math),
        "dgrad": Matmul(rows, fan_in, fan_out, place.dtype, place.math, layout="nt"),
        "wgrad": Matmul(fan_in, fan_out, rows, place.dtype, place.math, layout="tn"),
    }
    for direction in _directions(place):
        yield Work(place.layer.name, "dense", direction, products[direction].flops, products[direction], why)


def _dense(place: Place) -> Iterator[Work]:
    shape = place.before[0]
    yield from _products(place, place.batch * prod(shape[:-1]), shape[-1], place.layer.units)
    yield from _bias(place)
    yield from _activation(place)


def _conv(place: Place) -> Iterator[Work]:
    """2 n p q c_out (c_in / groups) r s FLOPs in each direction: of a depthwise one 2 n p q c_out r s, of a transposed one with p
    and q of its input."""
    for direction in _directions(place):
        problem = layers.conv(place.layer, place.before[0], place.batch, direction, place.dtype, place.math)
        yield Work(place.layer.name, "conv", direction, problem.flops, problem)
    yield from _bias(place)
    yield from _activation(place)


def _maxpool(place: Place) -> Iterator[Work]:
    layer = place.layer
    known = (layer.sides, layer.step) == ((2, 2), 2)
    window = f"a window of {layer.sides[0]} x {layer.sides[1]} every {layer.step}, priced as 2 x 2 every 2"
    yield from _both(place, "maxpool", place.inputs, place.below, why="" if known else window)


def _avgpool(place: Place) -> Iterator[Work]:
    """Source: oneDNN's pooling primitive, one for both; traces of LeNet's steps."""
    why = "priced as a pool of maxima"
    yield from _both(place, "avgpool", place.inputs, place.below, ("maxpool", "maxpool_grad"), why)


def _moves(forward: str) -> Callable[[Place], Iterator[Work]]:
    """Work that only moves data or nearly so, in both directions."""

    def made(place: Place) -> Iterator[Work]:
        yield _moved(place, forward)
        if place.below:
            yield _moved(place, f"{forward}_grad")

    return made


def _dropout(place: Place) -> Iterator[Work]:
    if place.training:
        yield from _both(place, "dropout", place.inputs, place.below, ("", "relu_grad"))


def _batchnorm(place: Place) -> Iterator[Work]:
    if place.training and place.layer.trainable:
        yield from _both(place, "batchnorm", place.inputs, True)
    else:  # frozen, it keeps to its running values
        why = "a scale and a shift by channel, priced as scale"
        yield from _both(place, "batchnorm", place.inputs, place.learns, ("scale", "scale"), why)


def _add(place: Place) -> Iterator[Work]:
    for i in range(1, len(place.before)):
        yield _pass(place, "add" if i == 1 else f"add {i}", place.outputs, "" if i == 1 else "add")


def _merge(place: Place) -> Iterator[Work]:
    """A pass for each input beyond the first, back one for each."""
    yield from (_pass(place, f"merge {i}", place.outputs, "add") for i in range(1, len(place.before)))
    if place.below:
        yield from (_pass(place, f"merge_grad {i}", place.outputs, "add") for i in range(len(place.before)))


def _embedding(place: Place) -> Iterator[Work]:
    """A row of the table for each whole number; the gradient is a table of zeros to which those rows are added."""
    yield _pass(place, "lookup", place.outputs, "copy")
    if place.learns:
        yield _pass(place, "lookup_grad", place.outputs + place.layer.weights, "copy")


def _recurrent(place: Place) -> Iterator[Work]:
    """In each time step a product of the inputs, one of the state, and the cell's passes over its gates; on the way back the
    gradients of both weights are added up. cuDNN makes the products that wait for no state of all steps at once."""
    layer, (steps, width), gates = place.layer, place.before[0], place.layer.groups * place.layer.units
    state = msgspec.structs.replace(place, below=place.training)
    for own, fan_in in ((place, width), (state, layer.units)):
        both = (_products(own, rows, fan_in, gates) for rows in (place.batch, place.batch * steps))
        for one, whole in zip(*both, strict=True):
            waits = not layer.fused or (own is state and one.direction != "wgrad")
            made, times = (one, steps) if waits else (whole, 1)
            yield msgspec.structs.replace(made, is_second=own is state, times=times, flops=whole.flops)
    cell, each = "cell" if layer.fused else "loop", 4 * place.batch * gates
    passes = [(cell, each), (f"{cell}_grad", each), ("gradient_sum", (width + layer.units) * gates)]
    for direction, elements in passes[: (2 if layer.fused else 3) if place.learns else 1]:
        work = _pass(place, direction, elements, "add")
        yield msgspec.structs.replace(work, times=steps, flops=work.flops * steps)


def _heads(place: Place) -> Iterator[Work]:
    """Attention's scores, or its values weighted by them: a product for each head and sample, and transposes around it."""
    scores = place.layer.kind == "scores"
    heads, m, columns = place.after if scores else place.before[0]
    depth, each = place.before[1][1] // heads, place.batch * heads
    n, k = (columns, depth) if scores else (depth, columns)
    why = "a product for each head and sample, priced as one of as many rows"
    forth, back = [(False, "fprop", m, n, k)], [(False, "dgrad", m, k, n), (True, "dgrad", k, n, m)]
    for is_second, direction, rows, wide, deep in forth + (back if place.below else []):
        problem = Matmul(each * rows, wide, deep, place.dtype, place.math)
        yield Work(
            layer=place.layer.name,
            kind="dense",
            direction=direction,
            flops=problem.flops,
            problem=problem,
            why=why,
            is_second=is_second,
        )
    yield from _moves("transpose")(place)


def _unknown(place: Place) -> Iterator[Work]:
    """A layer of a kind that is not known: its arrays are moved, and its weights are taken for a dense layer's, used at every
    position of its input or output, whichever has more."""
    name, layer, shape = place.layer.kind.lower(), place.layer, place.before[0]
    yield _moved(place, name)
    if place.learns:
        yield _moved(place, f"{name}_grad")
    if layer.weights:
        fan_in = shape[-1] if shape else 1
        rows = place.batch * max(prod(shape[:-1]), prod(place.after[:-1]))
        why = f"{layer.kind} is not known: estimated as a dense layer with its weights"
        yield from _products(place, rows, fan_in, max(1, layer.weights // fan_in), why)


WORK: dict[str, Callable[[Place], Iterator[Work]]] = {
    "dense": _dense,
    **dict.fromkeys(layers.CONVOLUTIONS, _conv),
    "activation": _activation,
    "pool": _maxpool,
    "avgpool": _avgpool,
    "globalpool": _moves("globalpool"),
    "dropout": _dropout,
    "batchnorm": _batchnorm,
    "add": _add,
    "concat": _moves("concat"),
    "zeropad": _moves("zeropad"),
    "rearrange": _moves("rearrange"),
    "merge": _merge,
    "embedding": _embedding,
    "layernorm": _batchnorm,
    "recurrent": _recurrent,
    "scores": _heads,
    "weighted": _heads,
}  # a flatten or a reshape moves nothing


def _places(
    network: Network, batch: int, dtype: str, math: str, training: bool
) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """(every layer with its shapes, batch and arithmetic; the names of its inputs)."""
    shapes, learned = {INPUT: network.input}, {INPUT: False}
    for layer, taken in zip(network.layers, layers.sources(network), strict=True):
        before = tuple(shapes[name] for name in taken)
        shapes[layer.name] = layers.output(layer, *before)
        below = training and any(learned[name] for name in taken)
        place = Place(layer, before, shapes[layer.name], batch, dtype, math, training, below)
        learned[layer.name] = place.learns
        yield place, taken


def step(network: Network, batch: int, dtype: str = "float32", math: str = "") -> tuple[Work, ...]:
    """The operations of one training step on `batch` samples in the arithmetic `math`: layer by layer the forward and
    backward work, the sums of gradients where a layer feeds several, the loss, and the optimizer's pass over each variable.
    """
    found: list[Work] = []
    places = list(_places(network, batch, dtype, math, True))
    fed = Counter(name for _, taken in places for name in taken)
    for place, _ in places:
        found += _work(place)
        if place.learns:
            for i in range(1, fed[place.layer.name]):
                found.append(_pass(place, f"gradient_sum {i}", place.outputs, "add"))
    found += _loss(network, places[-1][0])
    kept = "float64" if dtype == "float64" else "float32"
    for place, _ in places:
        for name, count in layers.variables(place.layer, place.before[0]).items():
            found.append(_update(network.optimizer, place.layer, name, count, kept))
    return tuple(found)


def inference(network: Network, batch: int) -> tuple[Work, ...]:
    """The operations that answer `batch` samples: forward only, no dropout, batch normalization by its running values."""
    return tuple(work for place, _ in _places(network, batch, "float32", "", False) for work in _work(place))


def _work(place: Place) -> Iterator[Work]:
    kind = place.layer.kind
    return WORK.get(kind, lambda place: iter(()))(place) if kind in layers.OUTPUTS else _unknown(place)


def _loss(network: Network, last: Place) -> Iterator[Work]:
    """The loss, its gradient and, of classes, the accuracy: passes over a number for each sample and class."""
    passes = [("loss", "read"), ("loss_grad", "relu_grad")] + ([] if network.regression else [("accuracy", "read")])
    for direction, operation in passes:
        yield msgspec.structs.replace(_pass(last, direction, last.outputs, operation), layer=network.loss, kind="loss")


_LIKE_ADAM = ("nadam", "adamw", "adamax")


def _update(optimizer: str, layer: Layer, variable: str, count: int, dtype: str) -> Work:
    problem, flops, why = None, 0, f"no stream problem is a step of {optimizer}"
    like = "adam" if optimizer in _LIKE_ADAM else optimizer
    if like in Stream.WEIGHTS:
        problem = stream(like, count, dtype)
        flops, why = problem.flops, "" if like == optimizer else "priced as adam: the same arrays"
    return Work(layer.name, "optimizer", f"{optimizer} {variable}", flops, problem, why)


@functools.lru_cache(maxsize=1024)
def training_flops(network: Network) -> int:
    """FLOPs of the products of a training step, for each sample."""
    if network.traced is not None:
        return network.traced.product_flops()
    return _of_products(step(network, 1))


@functools.lru_cache(maxsize=1024)
def inference_flops(network: Network) -> int:
    """FLOPs of the products that answer one sample."""
    if network.traced is not None:
        return network.traced.product_flops(forward=True)
    return _of_products(inference(network, 1))


def _of_products(works: tuple[Work, ...]) -> int:
    return sum(work.flops for work in works if work.kind in ("dense", "conv"))
