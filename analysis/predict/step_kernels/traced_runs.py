"""The operations of a traced training step at one batch."""

import math

import msgspec

from kernels.networks.operations import Array, Convolution, Operation, TracedStep, sizes

#: Operations that TensorFlow's optimizer takes out of a graph.
_REMOVED = {"Identity", "IdentityN", "StopGradient", "PreventGradient", "EnsureShape", "CheckNumerics"}
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


class OperationRun(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a traced step at one batch."""

    #: Its place in the trace.
    index: int
    operation: Operation
    batch: int
    #: Elements of its largest array.
    elements: int
    #: Bytes that one run reads and writes.
    bytes_read: int
    bytes_written: int
    #: How often a step runs it.
    times: int
    #: The number of the variable that it updates, in the order of the trace; 0 of what updates none.
    variable: int = 0

    @property
    def nbytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def name(self) -> str:
        return f"{self.operation.layer} {self.operation.type} {self.index}".strip()

    @property
    def output_elements(self) -> int:
        """Elements of its first result."""
        return _elements(self.operation.outputs[0], self.batch)

    @property
    def assigns(self) -> bool:
        """Whether it sets a variable."""
        return self.operation.type in _ASSIGNMENTS

    @property
    def direction(self) -> str:
        """The direction of a product, else what tells a gradient or an update of one variable from others."""
        operation = self.operation
        if operation.phase == "update":
            return f"update {self.variable}"
        if operation.phase == "forward":
            return "fprop"
        if isinstance(operation.product, Convolution):
            return operation.product.direction
        if operation.product is not None:
            return "wgrad" if operation.product.layout == "tn" else "dgrad"
        return "bias_grad" if operation.type == "BiasAddGrad" else f"{operation.type}_grad"


def _elements(array: Array, batch: int) -> int:
    """The number of elements of an array whose shape depends on the batch."""
    return math.prod(sizes(array.shape, batch))


def runs_of(step: TracedStep, batch: int) -> list[OperationRun]:
    """The operations of a traced step at a batch, in the order of the trace, without those that TensorFlow's optimizer removes.
    Updates are numbered by variable: a change of the number of elements begins a new one."""
    runs = []
    variable = 0
    variable_elements = 0
    for index, operation in enumerate(step.operations):
        if operation.type in _REMOVED:
            continue
        arrays = (*operation.inputs, *operation.outputs)
        elements = max((_elements(array, batch) for array in arrays), default=0)
        updates = operation.phase == "update" and operation.kind != "view"
        # one variable after the other; between them only single numbers, as Adam's step size
        if updates and elements > 1 and elements != variable_elements:
            variable += 1
            variable_elements = elements
        runs.append(
            OperationRun(
                index=index,
                operation=operation,
                batch=batch,
                elements=elements,
                bytes_read=operation.bytes_read.at(batch),
                bytes_written=operation.bytes_written.at(batch),
                times=operation.runs.at(batch),
                variable=variable if updates else 0,
            )
        )
    return runs
