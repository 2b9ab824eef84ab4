"""The kernels that execute the operations of a traced training step: one for each operation (op by op), or as XLA fuses them.

A product or convolution is priced as its problem; everything else as a pass over its bytes, by rows of the nearest kind.
"""

# Op by op, every operation is a call of the executor, views and reads of variables too; on a CPU the bias and the activation
# behind a product run inside its kernel, and the sum of a bias's gradient inside that of a convolution's filters.
# Compiled, in the order of the trace:
# 1. A product, a convolution, a pool, a normalization and whatever has no kind is a kernel of its own.
# 2. Element-wise operations, copies and gathers that follow one another on as many elements are one kernel; operations on
#    fewer elements join those on more. A reduction ends the kernel that it is in.
# 3. An optimizer's update of a variable is one kernel on a GPU, and one for each array that it sets on a CPU: it reads the
#    gradient, and reads and writes the variable and its slots. Any other variable that is set ends the kernel that it is in.
# 4. Views launch nothing.

import math
from collections.abc import Iterable, Iterator

import msgspec

from analysis.predict.fusion import Kernel
from kernels.networks.operations import Convolution, MatrixProduct, Operation, TracedStep, sizes
from kernels.problems import Conv, Matmul, Stream
from kernels.problems.arrays import ITEM_BYTES

_HALF = ("float16", "bfloat16")
#: Operations that TensorFlow's optimizer takes out of a graph.
_LEFT_OUT = {"Identity", "IdentityN", "StopGradient", "PreventGradient", "EnsureShape", "CheckNumerics"}
#: Kinds that no row is of: their bytes are all that is known.
BYTES_ALONE = ("fft", "gather", "scatter", "host", "other")
#: Kinds that XLA fuses with what follows.
_FUSED = ("element-wise", "movement", "gather", "reduction")
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_ACTIVATIONS = {
    "matmul": ("Relu", "Elu", "Relu6", "LeakyRelu", "Tanh", "Sigmoid"),
    "conv": ("Relu", "Elu", "Relu6", "LeakyRelu"),
}
#: TensorFlow's operation -> the pass whose rows price it.
_PASSES = {
    "Relu": "relu",
    "ReluGrad": "relu_grad",
    "MaxPool": "maxpool",
    "AvgPool": "maxpool",
    "MaxPoolGrad": "maxpool_grad",
    "AvgPoolGrad": "maxpool_grad",
    "FusedBatchNormV3": "batchnorm",
    "FusedBatchNormGradV3": "batchnorm_grad",
}
#: What is rough about the price of a product that no problem is of.
_ROUGHLY = {
    "matmul": "many small products as one of all their rows",
    "conv": "convolutions in three dimensions, dilated or of two strides as plain ones of as many FLOPs",
}
_PART_OF_KIND = {"matmul": "matmul", "conv": "conv"}


class StepPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """What products of a step compute in."""

    #: Type that takes the place of float32 in the whole step; "" for none.
    dtype: str = ""
    #: Arithmetic of float32 products: `tf32`, or "" for their own.
    math: str = ""

    def for_dtype(self, dtype: str) -> tuple[str, str]:
        """(type, arithmetic) of a product whose arrays are of a type."""
        if dtype == "float32" and self.dtype:
            return self.dtype, ""
        return dtype, self.math if dtype == "float32" else ""

    @property
    def bytes_share(self) -> float:
        """Bytes of the step's arrays over those in float32."""
        return ITEM_BYTES[self.dtype] / ITEM_BYTES["float32"] if self.dtype else 1.0


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a step at one batch."""

    #: Its place in the trace.
    index: int
    operation: Operation
    #: Elements of its largest array.
    elements: int
    #: Bytes that one run reads and writes.
    bytes_read: int
    bytes_written: int
    #: How often it runs.
    times: int
    #: The number of the variable that it updates, in the order of the trace; 0 of what updates none.
    variable: int = 0

    @property
    def nbytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def name(self) -> str:
        return f"{self.operation.layer} {self.operation.type} {self.index}".strip()


def _runs(step: TracedStep, batch: int) -> list[_Run]:
    runs = []
    variable = updated_elements = 0
    for index, operation in enumerate(step.operations):
        if operation.type in _LEFT_OUT:
            continue
        arrays = (*operation.inputs, *operation.outputs)
        elements = max((math.prod(sizes(array.shape, batch)) for array in arrays), default=0)
        updates = operation.phase == "update" and operation.kind != "view"
        # one variable after the other; between them only single numbers, as Adam's step size
        if updates and elements > 1 and elements != updated_elements:
            variable += 1
            updated_elements = elements
        runs.append(
            _Run(
                index=index,
                operation=operation,
                elements=elements,
                bytes_read=operation.bytes_read.at(batch),
                bytes_written=operation.bytes_written.at(batch),
                times=operation.runs.at(batch),
                variable=variable if updates else 0,
            )
        )
    return runs


def op_by_op(step: TracedStep, batch: int, arithmetic: StepPrecision, device: str) -> list[Kernel]:
    """A kernel for each operation of a step."""
    runs = _runs(step, batch)
    if device == "cpu":
        inside_others = _inside_products(runs)
        kernels = [_kernel([run], batch, arithmetic) for run in runs if run.index not in inside_others]
        return _updates_behind_gradients(kernels, runs, batch)
    loops: dict[tuple[str, str], list[_Run]] = {}
    kernels = []
    for run in runs:
        if run.operation.in_cudnn and run.times > 1:
            loops.setdefault((run.operation.layer, run.operation.phase), []).append(run)
            continue
        kernel = _kernel([run], batch, arithmetic)
        if _launches_nothing(run.operation):
            kernel = msgspec.structs.replace(kernel, problem=None, count=0)
        kernels.append(kernel)
    for loop in loops.values():
        kernels += _cudnn_kernels(loop, batch, arithmetic)
    return kernels


def _updates_behind_gradients(kernels: list[Kernel], runs: list[_Run], batch: int) -> list[Kernel]:
    """The kernels, with each update of a variable in the layer whose gradient it waits for: the one of as many elements, the last
    one first, as gradients come from the last layer."""
    elements_of = {run.variable: run.elements for run in runs if run.variable and run.elements > 1}
    gradients: dict[int, list[Kernel]] = {}
    by_name = {run.name: run for run in runs}
    for kernel in kernels:
        if kernel.direction in ("wgrad", "bias_grad"):
            (array, *_) = by_name[kernel.name].operation.outputs
            gradients.setdefault(math.prod(sizes(array.shape, batch)), []).append(kernel)
    sources: dict[str, Kernel] = {}
    for variable, elements in elements_of.items():
        if gradients.get(elements):
            sources[f"update {variable}"] = gradients[elements].pop()
    behind = []
    for kernel in kernels:
        source = sources.get(kernel.direction)
        if source is not None:
            weights = "kernel" if source.direction == "wgrad" else "bias"
            kernel = msgspec.structs.replace(kernel, layer=source.layer, direction=f"update {weights}")
        behind.append(kernel)
    return behind


def _launches_nothing(operation: Operation) -> bool:
    """Whether an operation runs on the host even on a GPU: views, and what gives no other numbers than sizes and indices.

    Source: TensorFlow registers its GPU kernels for int32 in host memory.
    """
    types = {array.dtype for array in operation.outputs}
    return operation.kind in ("view", "host") or types == {"int32"}


def _cudnn_kernels(loop: list[_Run], batch: int, arithmetic: StepPrecision) -> list[Kernel]:
    """The kernels of a recurrent layer's pass in cuDNN. In each time step there are a product of the state and a pass over the
    gates; the other products are of all time steps together.

    Source: J. Appleyard, T. Kocisky, P. Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs.
    """
    products = [run for run in loop if run.operation.product is not None]
    others = [run for run in loop if run.operation.kind == "element-wise"]
    kernels = []
    if others:
        widest = max(others, key=lambda run: run.nbytes)
        kernels.append(_kernel([widest], batch, arithmetic))
    waiting = _product_of_state(products)
    if waiting is not None:
        kernels.append(_weights_for_cudnn(waiting, batch))
    for run in products:
        kernel = _kernel([run], batch, arithmetic)
        if run is not waiting and isinstance(kernel.problem, Matmul):
            problem = _merged_over_steps(kernel.problem, run.times)
            kernel = msgspec.structs.replace(kernel, problem=problem, times=1)
        kernels.append(kernel)
    return kernels


def _weights_for_cudnn(product_of_state: _Run, batch: int) -> Kernel:
    """The operations that lay a recurrent layer's weights out as cuDNN has them, or their gradients back. They are many and
    short: they count as launches alone.

    Forward each gate's two matrices are transposed, between three splits and two concatenations; back there is a slice for each
    gate's matrix and bias, and a transposition for each matrix, then three concatenations.

    Source: Keras's _standardize_cudnn_weights and its callers.
    """
    operation = product_of_state.operation
    product = operation.product
    assert isinstance(product, MatrixProduct)
    short, long = sorted((product.n.at(batch), product.k.at(batch)))
    gates = long // short
    moves = 2 * gates + 5 if operation.phase == "forward" else 6 * gates + 3
    return Kernel(
        name=f"{operation.layer} weights {operation.phase}",
        part="element-wise",
        problem=None,
        operations=moves,
        count=moves,
        layer=operation.layer,
    )


def _product_of_state(products: list[_Run]) -> _Run | None:
    """The product that waits for the one of the time step before: forward the last one, whose operand is the state; of the
    gradient the last that gives no gradient of weights."""
    candidates = [run for run in products if _direction(run) != "wgrad"]
    return candidates[-1] if candidates else None


def _merged_over_steps(problem: Matmul, steps: int) -> Matmul:
    """The product of all time steps at once: with more rows, of a gradient of weights with a longer sum."""
    if problem.layout == "tn":
        return msgspec.structs.replace(problem, k=problem.k * steps)
    return msgspec.structs.replace(problem, m=problem.m * steps)


def compiled(step: TracedStep, batch: int, arithmetic: StepPrecision, device: str) -> list[Kernel]:
    """The kernels that XLA makes of a step's operations for that device, by the rule above."""
    runs = [run for run in _runs(step, batch) if run.operation.kind != "view" or _assigns(run)]
    kernels = []
    for chain in _chains(runs):
        kernel = _kernel(chain, batch, arithmetic)
        if device == "cpu":
            assigned = sum(_assigns(run) for run in chain)
            kernel = msgspec.structs.replace(kernel, count=max(1, assigned))
        kernels.append(kernel)
    return kernels


def _inside_products(runs: list[_Run]) -> set[int]:
    """The places of biases and activations that run inside the product before them, and of the sums of biases' gradients that run
    inside the gradient of a convolution's filters."""
    inside = set()
    product: Operation | None = None
    behind: tuple[str, ...] = ()
    convolutions = set()
    for run in runs:
        operation = run.operation
        if operation.kind == "view":
            continue
        if operation.phase == "forward" and operation.product is not None:
            product = operation
            behind = ("BiasAdd",)
            if operation.kind == "conv":
                convolutions.add(operation.layer)
            continue
        if product is not None and operation.type in behind and operation.layer == product.layer:
            inside.add(run.index)
            behind = _ACTIVATIONS[product.kind] if operation.type == "BiasAdd" else ()
            continue
        product = None
        if operation.type == "BiasAddGrad" and operation.layer in convolutions:
            inside.add(run.index)
    return inside


def _chains(runs: Iterable[_Run]) -> Iterator[list[_Run]]:
    """The operations of each kernel."""
    chain: list[_Run] = []
    for run in runs:
        if chain and _starts_another(chain, run):
            yield chain
            chain = []
        chain.append(run)
        if _closes_kernel(run):
            yield chain
            chain = []
    if chain:
        yield chain


def _assigns(run: _Run) -> bool:
    return run.operation.type in _ASSIGNMENTS


def _starts_another(chain: list[_Run], run: _Run) -> bool:
    """Whether a chain of operations is a kernel without the next one."""
    last = chain[-1]
    fused = run.operation.kind in _FUSED or _assigns(run)
    if not fused or run.operation.phase != last.operation.phase or run.times != last.times:
        return True
    if run.operation.phase == "update":
        updated = any(_assigns(earlier) for earlier in chain)
        return updated and run.elements != max(earlier.elements for earlier in chain)
    largest = max(earlier.elements for earlier in chain)
    return run.elements < largest and run.elements > 1


def _closes_kernel(run: _Run) -> bool:
    """Whether an operation is the last of its kernel."""
    kind = run.operation.kind
    if _assigns(run) and run.operation.phase != "update":
        return True
    return kind not in _FUSED or kind == "reduction" or run.operation.type == "AssignSubVariableOp"


def _kernel(chain: list[_Run], batch: int, arithmetic: StepPrecision) -> Kernel:
    first = chain[0].operation
    widest = max(chain, key=lambda run: run.nbytes)
    problem, rough = _problem(chain, widest, batch, arithmetic)
    part = "optimizer" if first.phase == "update" else _PART_OF_KIND.get(first.kind, "element-wise")
    return Kernel(
        name=chain[0].name,
        part=part,
        problem=problem,
        operations=len(chain),
        layer=first.layer,
        times=chain[0].times,
        direction=_direction(widest),
        rough=rough,
    )


def _direction(run: _Run) -> str:
    """The direction of a product, else what tells a gradient or an update of one variable from others."""
    operation = run.operation
    if operation.phase == "update":
        return f"update {run.variable}"
    if operation.phase == "forward":
        return "fprop"
    if isinstance(operation.product, Convolution):
        return operation.product.direction
    if operation.product is not None:
        return "wgrad" if operation.product.layout == "tn" else "dgrad"
    return "bias_grad" if operation.type == "BiasAddGrad" else f"{operation.type}_grad"


def _problem(
    chain: list[_Run], widest: _Run, batch: int, arithmetic: StepPrecision
) -> tuple[Matmul | Conv | Stream | None, str]:
    """(the problem whose rows price a kernel, None of what takes no time beside its call; what is priced roughly, in words)."""
    operation = widest.operation
    if operation.kind == "view":
        return None, ""
    if operation.product is not None:
        dtype, math_ = arithmetic.for_dtype(operation.dtype)
        problem = operation.product.problem(batch, dtype, math_)
        if problem is not None and not _is_several(problem):
            return problem, operation.doubt
        nearest = nearest_product(operation, batch, dtype, math_)
        if nearest is not None:
            return nearest, operation.doubt or _ROUGHLY[operation.kind]
    by_bytes = f"{operation.type} by its bytes alone" if operation.kind in BYTES_ALONE else ""
    return _pass(chain, widest, arithmetic), operation.doubt or by_bytes


def _is_several(problem: Matmul | Conv) -> bool:
    """Whether it is several products in one call."""
    return isinstance(problem, Matmul) and problem.count > 1


def nearest_product(operation: Operation, batch: int, dtype: str, math_: str) -> Matmul | Conv | None:
    """The problem with as many FLOPs for a product that no problem is of: for many small products one of all their rows, for a
    convolution in three dimensions, with dilated windows or with two strides, a plain one in two dimensions."""
    product = operation.product
    if dtype not in ITEM_BYTES or product is None:
        return None
    if not isinstance(product, Convolution):
        m, n, k, count = sizes((product.m, product.n, product.k, product.count), batch)
        if min(m, n, k, count) < 1:
            return None
        return Matmul(m=m * count, n=n, k=k, dtype=dtype, math=math_)
    positions = sizes(product.positions, batch)
    images = product.images.at(batch) * math.prod(positions[:-2])
    if images < 1 or min(positions) < 1:
        return None
    return Conv(
        n=images,
        h=positions[-2],
        w=positions[-1],
        c_in=product.channels * math.prod(product.window[:-2]),
        c_out=product.filters,
        r=product.window[-2],
        s=product.window[-1],
        pad="same",
        groups=product.groups,
        direction=product.direction,
        dtype=dtype,
        math=math_,
    )


def _pass(chain: list[_Run], widest: _Run, arithmetic: StepPrecision) -> Stream | None:
    """The pass over memory that a kernel is priced as; None of so few bytes that they hold no element of it."""
    drawn = [run for run in chain if "Random" in run.operation.type]
    operation = _PASSES.get(widest.operation.type, "")
    nbytes = widest.nbytes
    assigned = [run for run in chain if _assigns(run)]
    if widest.operation.phase == "update" and assigned and len(chain) > 1:
        nbytes = (2 * len(assigned) + 1) * max(run.elements for run in chain) * ITEM_BYTES["float32"]
        operation = "adam" if len(assigned) > 2 else "sgd"
    elif drawn:
        operation = "dropout"
        nbytes = 2 * max(run.bytes_written for run in drawn)
    elif widest.operation.kind == "reduction":
        operation = "read"
    elif not operation:
        operation = "add" if widest.bytes_read > 1.5 * widest.bytes_written else "scale"
        if widest.operation.kind != "element-wise":
            operation = "copy"
    nbytes = int(nbytes * arithmetic.bytes_share)
    try:
        return Stream(operation, nbytes, "float32")
    except ValueError:
        return None
