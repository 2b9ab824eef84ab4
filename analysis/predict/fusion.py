"""The kernels that execute a training step's operations: one for each operation (op by op), or as XLA fuses them (compiled).

The rule below is checked against XLA's own listing (`optimized_hlo`) by tests/analysis/test_fusion.py.
"""

# 1. A product or a convolution is a kernel of its own.
# 2. Forward, element-wise passes that follow one another (bias, activation, dropout) are one kernel; a pool or a batch
#    normalization ends them and is one of its own.
# 3. Backward, so are their gradients; the gradient of a pool is one of its own.
# 4. The sum that is a bias's gradient is a kernel, but SGD's update of the bias does it too.
# 5. SGD updates a variable in one kernel. Adam's weights and moments take one each on the CPU; a GPU writes all three in one.
# 6. Loss, its gradient, the accuracy and the counts of steps are a few small kernels each.

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from analysis.table import parsed
from kernels.networks.training_step import Work
from kernels.problems import Conv, Problem, Stream


class Cost(NamedTuple):
    """Counts for one operation of Keras's step. operations: in the graph when it is not compiled, with reads of variables.
    formula: those of them on whole arrays, as written in kernels.stream.tensorflow. arrays: read and written if each of these
    is a pass of its own. kernels: those that XLA makes of it."""

    operations: int = 1
    formula: int = 1
    arrays: int = 0
    kernels: int = 1


# Source: TensorFlow's optimized graphs of Keras 3's steps, counted in tests/analysis/test_fusion.py. Adam works out its step size
# for each variable anew. Loops: a time step of an LSTM or GRU, 8 fewer in a first layer, 8 more in later ones.
_COSTS = """
dropout        | 12 |  6 |  9 | 1
dropout_grad   |  2 |  1 |  0 | 1
batchnorm      | 20 | 12 | 14 | 1
batchnorm_grad | 25 |  1 | 24 | 1
adam           | 28 | 12 | 30 | 1
sgd            |  4 |  2 |  5 | 1
loss           | 12 |  1 |  0 | 4
loss_grad      | 11 |  1 |  0 | 3
accuracy       | 18 |  1 |  0 | 5
loop           | 93 |  1 |  0 | 1
loop_grad      | 93 |  1 |  0 | 1
"""
COSTS = defaultdict(Cost, ((name, Cost(*map(int, counts))) for name, *counts in parsed(_COSTS)))
_ADAM_ON_CPU = 3
_ALONE = ("maxpool", "avgpool", "globalpool", "batchnorm", "concat", "zeropad", "rearrange")
_PARTS = {"dense": "matmul", "conv": "conv", "pass": "element-wise", "loss": "element-wise", "optimizer": "optimizer"}


class Kernel(msgspec.Struct, frozen=True):
    """A kernel of a step: its part of the budget, the problem it is priced as (None: there is none), how many operations of the
    graph it carries out, and how many small kernels it comes to. layer, direction: of the operation that it carries out, of
    several the first. times: how often it runs in a step, one after the other. rough: what is priced roughly about it, in
    words; "" where rows are of its kind."""

    name: str
    part: str
    problem: Problem | None
    operations: int = 1
    why: str = ""
    count: int = 1
    layer: str = ""
    times: int = 1
    direction: str = ""
    rough: str = ""


def kernel(*works: Work, problem: Problem | None = None, count: int = 1) -> Kernel:
    """The kernel that carries out some operations, priced as `problem`, else as the one that moves most."""
    name = works[0].name if len(works) == 1 else f"{works[0].name} to {works[-1].direction}"
    widest = max(works, key=lambda w: w.problem.bytes_moved if w.problem else 0)
    operations = sum(COSTS[_what(w)].operations for w in works)
    first, priced = works[0], problem or widest.problem
    of = first.layer, first.times, first.direction
    return Kernel(name, _PARTS[first.kind], priced, operations, widest.why, count, *of)


# Activations that a product's own kernel applies on a CPU, with oneDNN, which is TensorFlow's default on CPUs with AVX512-VNNI;
# without it tanh and sigmoid stand alone, and so do the sums that are a convolution's bias gradients.
# Source: TensorFlow's remapper.cc, and its optimized graphs.
_IN_CONV = ("relu", "elu", "relu6", "leaky_relu")
_IN_PRODUCT = {"dense": (*_IN_CONV, "tanh", "sigmoid"), "conv": _IN_CONV}


def op_by_op(works: Iterable[Work], device: str = "") -> list[Kernel]:
    """A kernel for each operation. On the CPU, TensorFlow fuses the bias and the activation after a product into it, and the
    sum for a bias's gradient into the gradient of a convolution's filters; not those of a transposed convolution."""
    works, taken = list(works), set()
    turned = {w.layer for w in works if isinstance(w.problem, Conv) and w.problem.direction != w.direction}
    if device == "cpu":
        for w in (w for w in works if w.kind in _IN_PRODUCT and w.layer not in turned):
            own = [o for o in works if o.kind == "pass" and o.layer == w.layer]
            if w.direction == "fprop" and any(o.direction == "bias" for o in own):
                behind = ("bias", *_IN_PRODUCT[w.kind])
                taken |= {o.name for o in own if o.direction in behind}
            elif w.direction == "wgrad" and w.kind == "conv":
                taken |= {o.name for o in own if o.direction == "bias_grad"}
    return [kernel(w) for w in works if w.name not in taken]


def compiled(works: Iterable[Work], device: str = "cpu") -> list[Kernel]:
    """The kernels that XLA makes of the operations for that device, by the rule above."""
    works = list(works)
    sums = {w.layer: w for w in works if w.direction == "bias_grad"}
    layers = [w for w in works if w.kind not in ("loss", "optimizer")]
    forward = [w for w in layers if not is_backward(w)]
    backward = [w for w in reversed(layers) if is_backward(w) and w.direction != "bias_grad"]
    found = [
        *_chains(forward),
        *_chains(backward),
        *(kernel(w, count=COSTS[w.direction].kernels) for w in works if w.kind == "loss"),
    ]
    for w in (w for w in works if w.kind == "optimizer"):
        summed = sums.pop(w.layer, None) if w.direction.endswith(" bias") else None
        if summed and _what(w) == "sgd":
            found.append(kernel(summed, w, problem=summed.problem))
            continue
        several = _ADAM_ON_CPU if _what(w) == "adam" and device == "cpu" else 1
        found += [*([kernel(summed)] if summed else []), kernel(w, count=several)]
    return found


def _chains(works: Iterable[Work]) -> Iterable[Kernel]:
    """Products and stand-alone operations as they are; each run of passes between them as one kernel."""
    chain: list[Work] = []
    for w in works:
        alone = w.kind != "pass" or w.times > 1 or _what(w).removesuffix("_grad") in _ALONE
        if alone and chain:
            yield _fused(chain)
            chain = []
        if alone:
            yield kernel(w)
        else:
            chain.append(w)
    if chain:
        yield _fused(chain)


def _fused(chain: list[Work]) -> Kernel:
    """The kernel of a chain: it reads and writes one array. A dropout in it also draws random numbers."""
    drawn = next((w.problem for w in chain if w.direction == "dropout"), None)
    return kernel(*chain, problem=drawn)


def is_backward(of: Work | Kernel) -> bool:
    """Whether it belongs to the backward pass: a gradient, or the sum of gradients where branches meet."""
    return of.direction.endswith("grad") or of.direction.startswith("gradient_sum")


def _what(work: Work) -> str:
    """The kind of an operation, its first word: `adam kernel` is an adam."""
    return work.direction.split()[0]


def operations(kernels: Iterable[Kernel], loops: bool = False) -> int:
    """Number of graph operations that the kernels carry out, outside loops or, with `loops`, inside them."""
    return sum(k.operations * k.times for k in kernels if (k.times > 1) == loops)


def passes(operation: str) -> float:
    """Bytes that an operation moves step by step, over those of one fused pass; at least 1."""
    read, written, _ = Stream.WEIGHTS[operation]
    return max(1.0, COSTS[operation].arrays / (read + written))


def count(kernels: Iterable[Kernel]) -> int:
    """How many kernels are launched."""
    return sum(k.count * k.times for k in kernels)
