"""Matmul among others in one graph of TensorFlow, as in a training step: threads are awake, nothing is dispatched from Python."""

from kernels.problems import Matmul
from kernels.registry import kernel
from kernels.tensorflow import calls


@kernel(allocates=True)
def graph(problem: Matmul, a, b):
    """On the CPU, the same product again and again in one tf.function, each after the one before: what it takes inside a step."""
    import tensorflow

    if problem.out != problem.dtype:
        raise ValueError("TensorFlow gives a product in its operands' dtype")
    calls.allow(problem, a, "function")
    transposed = {"transpose_a": problem.layout == "tn", "transpose_b": problem.layout == "nt"}
    return calls.in_a_row(lambda a, b: tensorflow.matmul(a, b, **transposed), a, b)
