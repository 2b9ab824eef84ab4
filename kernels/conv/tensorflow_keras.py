"""Convolution as a Keras Conv2D layer and its gradients come to it: what TensorFlow's operations must give, and at what cost."""

from kernels.problems import Conv
from kernels.registry import kernel
from kernels.tensorflow import calls


@kernel(allocates=True, rung=True)
def layer(problem: Conv, a, b):
    """A Conv2D layer in a tf.function, its gradient by the images or by the filters as TensorFlow differentiates it; what
    the gradient needs not is pruned."""
    import keras

    if problem.layout != "NHWC" or not isinstance(problem.pad, str):
        raise ValueError("Keras's layers keep their images NHWC here and pad them `same` or `valid`")
    calls.allow(problem, a, "function")
    made = keras.layers.Conv2D(
        problem.c_out,
        (problem.r, problem.s),
        problem.stride,
        problem.pad,
        "channels_last",
        groups=problem.groups,
        use_bias=False,
        dtype=problem.dtype,
    )
    made.build(problem.x_shape)
    shapes = tuple(made.compute_output_shape(problem.x_shape)), tuple(made.kernel.shape)
    if shapes != (problem.y_shape, problem.w_shape):
        raise ArithmeticError(f"Keras has outputs and filters of {shapes}, not {(problem.y_shape, problem.w_shape)}")
    return calls.layer(made, problem.direction, problem.x_shape, a, b)
