"""The kernels that execute the training step of a table's network: one for each operation (op by op), or as XLA fuses them
(compiled).

The rule below is checked against XLA's own listing (`optimized_hlo`) by tests/analysis/predict/step_kernels/test_fusion.py.
"""

# 1. A product or a convolution is a kernel of its own.
# 2. Forward, element-wise passes that follow one another (bias, activation, dropout) are one kernel; a pool or a batch
#    normalization ends them and is one of its own.
# 3. Backward, so are their gradients; the gradient of a pool is one of its own.
# 4. The sum that is a bias's gradient is a kernel, but SGD's update of the bias does it too.
# 5. SGD updates a variable in one kernel. Adam's weights and moments take one each on the CPU; a GPU writes all three in one.
# 6. Loss, its gradient, the accuracy and the counts of steps are a few small kernels each.

from collections.abc import Iterable, Iterator, Sequence

from analysis.predict.step_kernels.operation_counts import counts
from analysis.predict.step_kernels.step_kernel import StepKernel, is_backward
from kernels.networks.training_step import Work
from kernels.problems import Conv, Problem

#: Kernels of an Adam's update of one variable on a CPU: weights and two moments.
_ADAM_ON_CPU = 3
#: Passes that XLA fuses with no other.
_NEVER_FUSED = ("maxpool", "avgpool", "globalpool", "batchnorm", "concat", "zeropad", "rearrange")
#: Kind of an operation -> part of the step's budget.
_PARTS = {"dense": "matmul", "conv": "conv", "pass": "element-wise", "loss": "element-wise", "optimizer": "optimizer"}
_ACTIVATIONS_IN_CONV = ("relu", "elu", "relu6", "leaky_relu")
#: Kind of a product -> activations that its own kernel applies on a CPU, with oneDNN, which is TensorFlow's default on CPUs with
#: AVX512-VNNI; without it tanh and sigmoid stand alone, and so do the sums that are a convolution's bias gradients.
#: Source: TensorFlow's remapper.cc, and its optimized graphs.
_ACTIVATIONS_IN = {"dense": (*_ACTIVATIONS_IN_CONV, "tanh", "sigmoid"), "conv": _ACTIVATIONS_IN_CONV}


def kernel_of(works: Sequence[Work], problem: Problem | None = None, launches: int = 1) -> StepKernel:
    """The kernel that carries out some operations. It is timed as `problem`, or if that is None as the operation that moves most
    bytes. launches: how many kernels it really is."""
    first = works[0]
    widest = max(works, key=lambda work: work.problem.bytes_moved if work.problem else 0)
    return StepKernel(
        name=first.name if len(works) == 1 else f"{first.name} to {works[-1].direction}",
        part=_PARTS[first.kind],
        problem=problem or widest.problem,
        operations=sum(counts(_operation(work)).operations for work in works),
        why=widest.why,
        launches=launches,
        layer=first.layer,
        times=first.times,
        direction=first.direction,
    )


def op_by_op(works: Iterable[Work], device: str = "") -> list[StepKernel]:
    """The kernels of a step that is not compiled: one for each operation. On a CPU, TensorFlow fuses the bias and the activation
    after a product into it, and the sum for a bias's gradient into the gradient of a convolution's filters, but not of a
    transposed convolution."""
    works = list(works)
    inside_products = _inside_products(works) if device == "cpu" else set()
    return [kernel_of([work]) for work in works if work.name not in inside_products]


def _inside_products(works: Sequence[Work]) -> set[str]:
    """The names of the passes that TensorFlow fuses into a product's kernel on a CPU."""
    passes: dict[str, list[Work]] = {}
    transposed = set()
    for work in works:
        if work.kind == "pass":
            passes.setdefault(work.layer, []).append(work)
        if isinstance(work.problem, Conv) and work.problem.direction != work.direction:
            transposed.add(work.layer)
    inside = set[str]()
    for product in works:
        if product.kind not in _ACTIVATIONS_IN or product.layer in transposed:
            continue
        behind = passes.get(product.layer, [])
        fused: tuple[str, ...] = ()
        if product.direction == "fprop" and any(work.direction == "bias" for work in behind):
            fused = ("bias", *_ACTIVATIONS_IN[product.kind])
        elif product.direction == "wgrad" and product.kind == "conv":
            fused = ("bias_grad",)
        inside.update(work.name for work in behind if work.direction in fused)
    return inside


def compiled(works: Iterable[Work], device: str = "cpu") -> list[StepKernel]:
    """The kernels that XLA makes of a training step's operations on a device: one for each product, convolution and pool; one for
    each run of element-wise operations between them, forward and then backward from the last layer to the first; the loss's small
    kernels; the optimizer's. The head of this file has the whole rule."""
    works = list(works)
    layers = [work for work in works if work.kind not in ("loss", "optimizer")]
    forward = [work for work in layers if not is_backward(work.direction)]
    backward = [work for work in layers if is_backward(work.direction) and work.direction != "bias_grad"]
    losses = [work for work in works if work.kind == "loss"]
    return [
        *_fused(forward),
        *_fused(reversed(backward)),
        *(kernel_of([work], launches=counts(work.direction).kernels) for work in losses),
        *_updates(works, device),
    ]


def _fused(works: Iterable[Work]) -> Iterator[StepKernel]:
    """The kernels of operations in this order: one for each product and for each pass that XLA never fuses (such as a pool), and
    one for each run of other passes between them."""
    chain: list[Work] = []
    for work in works:
        if _stands_alone(work):
            if chain:
                yield _chain_kernel(chain)
                chain = []
            yield kernel_of([work])
        else:
            chain.append(work)
    if chain:
        yield _chain_kernel(chain)


def _stands_alone(work: Work) -> bool:
    """Whether XLA makes a kernel of an operation alone: a product, a loop, or a pass such as a pool."""
    return work.kind != "pass" or work.times > 1 or _operation(work).removesuffix("_grad") in _NEVER_FUSED


def _chain_kernel(chain: Sequence[Work]) -> StepKernel:
    """The kernel of fused passes: it reads and writes one array. With a dropout among them it is timed as that, as it also draws
    random numbers."""
    for work in chain:
        if work.direction == "dropout":
            return kernel_of(chain, problem=work.problem)
    return kernel_of(chain)


def _updates(works: Sequence[Work], device: str) -> list[StepKernel]:
    """The kernels of the optimizer, one for each variable; Adam's are three on a CPU. The sum over the batch that is a bias's
    gradient is a kernel before the update of the bias, but SGD does both in one."""
    bias_sums = {work.layer: work for work in works if work.direction == "bias_grad"}
    kernels = []
    for update in works:
        if update.kind != "optimizer":
            continue
        updates_bias = update.direction.endswith(" bias")
        bias_sum = bias_sums.pop(update.layer, None) if updates_bias else None
        if bias_sum is not None and _operation(update) == "sgd":
            kernels.append(kernel_of([bias_sum, update], problem=bias_sum.problem))
            continue
        if bias_sum is not None:
            kernels.append(kernel_of([bias_sum]))
        is_adam_on_cpu = _operation(update) == "adam" and device == "cpu"
        kernels.append(kernel_of([update], launches=_ADAM_ON_CPU if is_adam_on_cpu else 1))
    return kernels


def _operation(work: Work) -> str:
    """The operation without the variable that it updates: `adam` of `adam kernel`."""
    return work.direction.partition(" ")[0]
