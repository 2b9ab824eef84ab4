"""The kernels of a recurrent layer that Keras gives to cuDNN as a whole on a GPU: an LSTM or a GRU.

In each time step there are a product of the state and a pass over the gates; the other products are of all time steps together.
"""

# Source: J. Appleyard, T. Kocisky, P. Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs.

from collections.abc import Sequence

import msgspec

from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.predict.step_kernels.traced_kernel import StepPrecision, kernel_of
from analysis.predict.step_kernels.traced_runs import OperationRun
from kernels.networks.operations import MatrixProduct
from kernels.problems import Matmul


def loop_kernels(loop: Sequence[OperationRun], precision: StepPrecision) -> list[StepKernel]:
    """The kernels of a recurrent layer (LSTM or GRU) that cuDNN executes, for one phase, forward or backward. loop: the
    operations of its loop over time steps."""
    kernels = []
    gates = [run for run in loop if run.operation.kind == "element-wise"]
    if gates:
        widest = max(gates, key=lambda run: run.nbytes)
        kernels.append(kernel_of([widest], precision))
    products = [run for run in loop if run.operation.product is not None]
    state_product = _product_of_state(products)
    if state_product is not None:
        kernels.append(_weights_kernel(state_product))
    for run in products:
        kernel = kernel_of([run], precision)
        if run is not state_product and isinstance(kernel.problem, Matmul):
            problem = _all_time_steps(kernel.problem, run.times)
            kernel = msgspec.structs.replace(kernel, problem=problem, times=1)
        kernels.append(kernel)
    return kernels


def _product_of_state(products: Sequence[OperationRun]) -> OperationRun | None:
    """The matrix product that waits for the time step before it, as its operand is the layer's state: the last one that is no
    gradient of weights; None without one."""
    candidates = [run for run in products if run.direction != "wgrad"]
    return candidates[-1] if candidates else None


def _weights_kernel(state_product: OperationRun) -> StepKernel:
    """The operations that lay a recurrent layer's weights out as cuDNN has them, or their gradients back. They are many and
    short: they count as launches alone.

    Forward each gate's two matrices are transposed, between three splits and two concatenations; back there is a slice for each
    gate's matrix and bias, and a transposition for each matrix, then three concatenations.

    Source: Keras's _standardize_cudnn_weights and its callers.
    """
    operation = state_product.operation
    product = operation.product
    assert isinstance(product, MatrixProduct)
    units, units_of_all_gates = sorted((product.n.at(state_product.batch), product.k.at(state_product.batch)))
    gates = units_of_all_gates // units
    moves = 2 * gates + 5 if operation.phase == "forward" else 6 * gates + 3
    return StepKernel(
        name=f"{operation.layer} weights {operation.phase}",
        part="element-wise",
        problem=None,
        operations=moves,
        launches=moves,
        layer=operation.layer,
    )


def _all_time_steps(problem: Matmul, time_steps: int) -> Matmul:
    """The product for all time steps in one call: with so many times the rows, or of a gradient of weights, with a sum that is so
    many times as long."""
    if problem.layout == "tn":
        return msgspec.structs.replace(problem, k=problem.k * time_steps)
    return msgspec.structs.replace(problem, m=problem.m * time_steps)
