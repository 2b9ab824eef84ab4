"""The kernels of a traced step that is not compiled: one for each operation.

Every operation is a call of the executor, views and reads of variables too.
"""

# On a CPU the bias and the activation behind a product run inside its kernel, and the sum of a bias's gradient inside that of a
# convolution's filters. On a GPU cuDNN runs the loops of recurrent layers.

from collections.abc import Sequence

import msgspec

from analysis.predict.step_kernels.cudnn_loops import loop_kernels
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.predict.step_kernels.traced_kernel import StepPrecision, kernel_of
from analysis.predict.step_kernels.traced_runs import OperationRun, runs_of
from kernels.networks.operations import Operation, TracedStep

#: Kind of a product -> activations that its own kernel applies on a CPU.
_ACTIVATIONS_IN = {
    "matmul": ("Relu", "Elu", "Relu6", "LeakyRelu", "Tanh", "Sigmoid"),
    "conv": ("Relu", "Elu", "Relu6", "LeakyRelu"),
}


def op_by_op(step: TracedStep, batch: int, precision: StepPrecision, device: str) -> list[StepKernel]:
    """The kernels of a traced step at a batch that is not compiled: one for each operation that TensorFlow does not fuse."""
    runs = runs_of(step, batch)
    return _on_cpu(runs, precision) if device == "cpu" else _on_gpu(runs, precision)


def _on_cpu(runs: Sequence[OperationRun], precision: StepPrecision) -> list[StepKernel]:
    """The kernels on a CPU. Operations may run at the same time there, so each update of a variable is put down to the layer of
    the gradient that it waits for."""
    inside_products = _inside_products(runs)
    executed = [run for run in runs if run.index not in inside_products]
    gradients = _gradients_of_variables(executed)
    kernels = []
    for run in executed:
        kernel = kernel_of([run], precision)
        gradient = gradients.get(run.variable)
        if gradient is not None:
            weights = "kernel" if gradient.direction == "wgrad" else "bias"
            kernel = msgspec.structs.replace(kernel, layer=gradient.operation.layer, direction=f"update {weights}")
        kernels.append(kernel)
    return kernels


def _inside_products(runs: Sequence[OperationRun]) -> set[int]:
    """The indices in the trace of operations that TensorFlow fuses into another kernel: a bias and an activation into the product
    before them, and the sum for a bias's gradient into the gradient of a convolution's filters."""
    inside = set()
    convolutions = set()
    product: Operation | None = None
    fused_next: tuple[str, ...] = ()
    for run in runs:
        operation = run.operation
        if operation.kind == "view":
            continue
        if operation.phase == "forward" and operation.product is not None:
            product = operation
            fused_next = ("BiasAdd",)
            if operation.kind == "conv":
                convolutions.add(operation.layer)
        elif product is not None and operation.layer == product.layer and operation.type in fused_next:
            inside.add(run.index)
            fused_next = _ACTIVATIONS_IN[product.kind] if operation.type == "BiasAdd" else ()
        else:
            product = None
            if operation.type == "BiasAddGrad" and operation.layer in convolutions:
                inside.add(run.index)
    return inside


def _gradients_of_variables(runs: Sequence[OperationRun]) -> dict[int, OperationRun]:
    """Variable (its number in the order of updates) -> the gradient that its update waits for. The trace does not tell, so it is
    the last gradient with as many elements that is not taken yet, as gradients come from the last layer to the first."""
    gradients: dict[int, list[OperationRun]] = {}
    elements_of_variables = {}
    for run in runs:
        if run.direction in ("wgrad", "bias_grad"):
            gradients.setdefault(run.output_elements, []).append(run)
        if run.variable and run.elements > 1:
            elements_of_variables[run.variable] = run.elements
    gradients_of_variables = {}
    for variable, elements in elements_of_variables.items():
        if gradients.get(elements):
            gradients_of_variables[variable] = gradients[elements].pop()
    return gradients_of_variables


def _on_gpu(runs: Sequence[OperationRun], precision: StepPrecision) -> list[StepKernel]:
    """The kernels on a GPU. Recurrent layers that cuDNN runs as a whole come last."""
    kernels = []
    loops: dict[tuple[str, str], list[OperationRun]] = {}
    for run in runs:
        operation = run.operation
        if operation.in_cudnn and run.times > 1:
            loops.setdefault((operation.layer, operation.phase), []).append(run)
            continue
        kernel = kernel_of([run], precision)
        if _runs_on_host(operation):
            kernel = msgspec.structs.replace(kernel, problem=None, launches=0)
        kernels.append(kernel)
    for loop in loops.values():
        kernels += loop_kernels(loop, precision)
    return kernels


def _runs_on_host(operation: Operation) -> bool:
    """Whether an operation runs on the host even if the step is on a GPU: a view, or one whose results are sizes and indices
    (int32).

    Source: TensorFlow registers its GPU kernels for int32 in host memory.
    """
    types = {array.dtype for array in operation.outputs}
    return operation.kind in ("view", "host") or types == {"int32"}
