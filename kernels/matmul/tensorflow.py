"""Matmul as TensorFlow runs it: oneDNN or Eigen on a CPU, cuBLAS or XLA's own kernels on a GPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.problems import Matmul
from kernels.registry import TimedCall, kernel
from kernels.tensorflow import calls

if TYPE_CHECKING:
    import tensorflow


def formula(problem: Matmul) -> Callable:
    """The product as a function of its two tensors.

    Raises: ValueError for a result of another type.
    """
    import tensorflow

    if problem.out != problem.dtype:
        raise ValueError("TensorFlow gives a product in its operands' dtype")
    transposed = {"transpose_a": problem.layout == "tn", "transpose_b": problem.layout == "nt"}
    return lambda a, b: tensorflow.matmul(a, b, **transposed)


def _bound(problem: Matmul, a: "tensorflow.Tensor", b: "tensorflow.Tensor", execution: str) -> TimedCall:
    product = formula(problem)
    calls.allow_arithmetic(problem, a, execution)
    return calls.called(execution, product, a, b)


@kernel(allocates=True, batched=True)
def eager(problem: Matmul, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """tf.matmul outside a tf.function: Python and TensorFlow's dispatch before every product, and a fresh result."""
    return _bound(problem, a, b, "eager")


@kernel(allocates=True, batched=True)
def function(problem: Matmul, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """tf.matmul in a tf.function, as a training step that is not compiled runs it."""
    return _bound(problem, a, b, "function")


@kernel(allocates=True, batched=True)
def jit(problem: Matmul, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """tf.matmul in a tf.function with jit_compile=True: XLA picks or writes the kernel."""
    return _bound(problem, a, b, "jit")


@kernel(allocates=True, rung=True)
def graph(problem: Matmul, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """On the CPU, the same product again and again in one tf.function, each after the one before: what it takes inside a
    step.

    a, b: A and B as problem.layout stores them, on the CPU.
    """
    product = formula(problem)
    calls.allow_arithmetic(problem, a, execution="function")
    return calls.in_a_row(product, a, b)
