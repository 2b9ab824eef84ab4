"""The kernel that carries out operations of a traced step, and the problem whose rows price it: a product or convolution as its
problem, everything else as a pass over its bytes, by rows of the nearest kind.
"""

import math
from collections.abc import Sequence

import msgspec

from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.predict.step_kernels.traced_runs import OperationRun
from kernels.networks.operations import Convolution, Operation, sizes
from kernels.problems import Conv, Matmul, Stream
from kernels.problems.arrays import ITEM_BYTES

#: Kinds that no row is of: their bytes are all that is known.
_BYTES_ALONE = ("fft", "gather", "scatter", "host", "other")
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


class StepPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """What products of a step compute in."""

    #: Type that takes the place of float32 in the whole step; "" for none.
    dtype: str = ""
    #: Arithmetic of float32 products: `tf32`, or "" for float32 itself.
    math: str = ""

    def for_dtype(self, dtype: str) -> tuple[str, str]:
        """(type, arithmetic) of a product whose arrays are of a type."""
        if dtype != "float32":
            return dtype, ""
        if self.dtype:
            return self.dtype, ""
        return dtype, self.math

    @property
    def bytes_share(self) -> float:
        """Bytes of the step's arrays over those in float32."""
        return ITEM_BYTES[self.dtype] / ITEM_BYTES["float32"] if self.dtype else 1.0


def kernel_of(chain: Sequence[OperationRun], precision: StepPrecision) -> StepKernel:
    """The kernel that carries out some operations of a traced step; its seconds are those of the operation that moves most
    bytes."""
    first = chain[0]
    widest = max(chain, key=lambda run: run.nbytes)
    problem, rough = _problem(chain, widest, precision)
    return StepKernel(
        name=first.name,
        part=_part(first.operation),
        problem=problem,
        operations=len(chain),
        layer=first.operation.layer,
        times=first.times,
        direction=widest.direction,
        rough=rough,
    )


def _part(operation: Operation) -> str:
    """The part of a step that an operation's seconds count in: optimizer, matmul, conv or element-wise."""
    if operation.phase == "update":
        return "optimizer"
    if operation.kind in ("matmul", "conv"):
        return operation.kind
    return "element-wise"


def _problem(
    chain: Sequence[OperationRun], widest: OperationRun, precision: StepPrecision
) -> tuple[Matmul | Conv | Stream | None, str]:
    """(the problem by whose measured rows a kernel is timed, None if it takes no time beside its launch; why this is rough, in
    words, "" if it is not). chain: the kernel's operations. widest: the one that moves most bytes."""
    operation = widest.operation
    if operation.kind == "view":
        return None, ""
    if operation.product is not None:
        dtype, arithmetic = precision.for_dtype(operation.dtype)
        problem = operation.product.problem(widest.batch, dtype, arithmetic)
        if problem is not None and not _is_several(problem):
            return problem, operation.doubt
        nearest = nearest_product(operation, widest.batch, dtype, arithmetic)
        if nearest is not None:
            return nearest, operation.doubt or _ROUGHLY[operation.kind]
    by_bytes = f"{operation.type} by its bytes alone" if operation.kind in _BYTES_ALONE else ""
    return _pass(chain, widest, precision), operation.doubt or by_bytes


def _is_several(problem: Matmul | Conv) -> bool:
    """Whether a problem is several matrix products in one call."""
    return isinstance(problem, Matmul) and problem.count > 1


def nearest_product(operation: Operation, batch: int, dtype: str, arithmetic: str) -> Matmul | Conv | None:
    """A plain matrix product or convolution with as many FLOPs, for one that no problem describes: many small products become one
    of all their rows; a convolution that is three-dimensional, dilated or has two strides becomes a plain one in two dimensions.
    None if the type or a size is unknown."""
    product = operation.product
    if dtype not in ITEM_BYTES or product is None:
        return None
    if not isinstance(product, Convolution):
        m, n, k, count = sizes((product.m, product.n, product.k, product.count), batch)
        if min(m, n, k, count) < 1:
            return None
        return Matmul(m=m * count, n=n, k=k, dtype=dtype, math=arithmetic)
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
        math=arithmetic,
    )


def _pass(chain: Sequence[OperationRun], widest: OperationRun, precision: StepPrecision) -> Stream | None:
    """The pass over memory by which a kernel is timed; None if it moves less than one element."""
    operation, nbytes = _pass_and_bytes(chain, widest)
    try:
        return Stream(operation, int(nbytes * precision.bytes_share), "float32")
    except ValueError:
        return None


def _pass_and_bytes(chain: Sequence[OperationRun], widest: OperationRun) -> tuple[str, int]:
    """(operation of the pass by which a kernel is timed, such as add or adam; bytes that it moves in float32)."""
    assignments = [run for run in chain if run.assigns]
    if widest.operation.phase == "update" and assignments and len(chain) > 1:
        # the gradient is read; the variable and its slots are read and written
        elements = (2 * len(assignments) + 1) * max(run.elements for run in chain)
        update = "adam" if len(assignments) > 2 else "sgd"
        return update, elements * ITEM_BYTES["float32"]
    random = [run for run in chain if "Random" in run.operation.type]
    if random:
        return "dropout", 2 * max(run.bytes_written for run in random)
    return _pass_of_one(widest), widest.nbytes


def _pass_of_one(run: OperationRun) -> str:
    """The measured pass whose reads and writes are most like an operation's."""
    operation = run.operation
    if operation.kind == "reduction":
        return "read"
    if operation.type in _PASSES:
        return _PASSES[operation.type]
    if operation.kind != "element-wise":
        return "copy"
    reads_two_arrays = run.bytes_read > 1.5 * run.bytes_written
    return "add" if reads_two_arrays else "scale"
