"""The kernels that XLA makes of a traced step's operations, in the order of the trace."""

# 1. A product, a convolution, a pool, a normalization and whatever has no kind is a kernel of its own.
# 2. Element-wise operations, copies and gathers that follow one another on as many elements are one kernel; operations on
#    fewer elements join those on more. A reduction ends the kernel that it is in.
# 3. An optimizer's update of a variable is one kernel on a GPU, and one for each array that it sets on a CPU: it reads the
#    gradient, and reads and writes the variable and its slots. Any other variable that is set ends the kernel that it is in.
# 4. Views launch nothing.

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.predict.step_kernels.traced_kernel import StepPrecision, kernel_of
from analysis.predict.step_kernels.traced_runs import OperationRun, runs_of
from kernels.networks.operations import TracedStep

#: Kinds that XLA fuses with what follows.
_FUSED = ("element-wise", "movement", "gather", "reduction")


def compiled(step: TracedStep, batch: int, precision: StepPrecision, device: str) -> list[StepKernel]:
    """The kernels that XLA makes of a traced step's operations at a batch on a device: products and pools alone, element-wise
    operations that follow one another in one kernel. The head of this file has the whole rule. precision: of the step's
    products."""
    launched = [run for run in runs_of(step, batch) if run.operation.kind != "view" or run.assigns]
    kernels = []
    for chain in _chains(launched):
        kernel = kernel_of(chain, precision)
        if device == "cpu":
            arrays_set = sum(run.assigns for run in chain)
            kernel = msgspec.structs.replace(kernel, launches=max(1, arrays_set))
        kernels.append(kernel)
    return kernels


def _chains(runs: Iterable[OperationRun]) -> Iterator[list[OperationRun]]:
    """Yields the operations that XLA fuses into one kernel, kernel by kernel, in the order of the trace: a kernel ends before an
    operation that cannot join it, and after one that ends it. runs: operations at one batch."""
    chain: list[OperationRun] = []
    for run in runs:
        if chain and not _joins(run, chain):
            yield chain
            chain = []
        chain.append(run)
        if _is_last_of_kernel(run):
            yield chain
            chain = []
    if chain:
        yield chain


def _joins(run: OperationRun, chain: Sequence[OperationRun]) -> bool:
    """Whether XLA fuses an operation into the kernel of those just before it (`chain`): element-wise operations, copies and
    reductions of the same phase (forward, backward, update) on as many elements, or on more."""
    last = chain[-1]
    is_fused = run.operation.kind in _FUSED or run.assigns
    if not is_fused or run.operation.phase != last.operation.phase or run.times != last.times:
        return False
    largest = max(earlier.elements for earlier in chain)
    if run.operation.phase == "update":
        variable_is_set = any(earlier.assigns for earlier in chain)
        return not variable_is_set or run.elements == largest
    return run.elements >= largest or run.elements <= 1


def _is_last_of_kernel(run: OperationRun) -> bool:
    """Whether a kernel ends with this operation: a product, a pool, a reduction, or one that sets a variable outside the
    optimizer."""
    operation = run.operation
    if run.assigns and operation.phase != "update":
        return True
    return operation.kind not in _FUSED or operation.kind == "reduction" or operation.type == "AssignSubVariableOp"
