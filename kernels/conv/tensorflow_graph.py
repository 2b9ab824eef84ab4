"""Convolution among others in one graph of TensorFlow, as in a training step: threads are awake, filters are laid out anew."""

from kernels.conv import tensorflow as conv_tensorflow
from kernels.problems import Conv
from kernels.registry import kernel
from kernels.tensorflow import calls


@kernel(allocates=True, rung=True)
def graph(problem: Conv, a, b):
    """On the CPU, the same convolution again and again in one tf.function, each after the one before: what it takes inside a
    step, whose filters change and are laid out anew each time."""
    calls.allow(problem, a, "function")
    if problem.layout == "NCHW":
        raise ValueError("TensorFlow's CPU convolutions are NHWC; NCHW is its GPU layout")
    return calls.in_a_row(conv_tensorflow._formula(problem), a, b)
