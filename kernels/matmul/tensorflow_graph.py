"""Matmul among others in one graph of TensorFlow, as in a training step: threads are awake, nothing is dispatched from Python."""

from kernels.matmul import tensorflow as matmul_tensorflow
from kernels.problems import Matmul
from kernels.registry import kernel
from kernels.tensorflow import calls


@kernel(allocates=True, rung=True)
def graph(problem: Matmul, a, b):
    """On the CPU, the same product again and again in one tf.function, each after the one before: what it takes inside a step."""
    product = matmul_tensorflow.formula(problem)
    calls.allow(problem, a, "function")
    return calls.in_a_row(product, a, b)
