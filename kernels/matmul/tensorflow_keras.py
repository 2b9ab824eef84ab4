"""Matmul as a Keras Dense layer and its gradients come to it: what `tf.matmul` must give, and at what cost."""

from kernels.problems import Matmul
from kernels.registry import kernel
from kernels.tensorflow import calls


@kernel(allocates=True, rung=True)
def layer(problem: Matmul, a, b):
    """A Dense layer in a tf.function (nn), its gradient by the inputs (nt) or by the weights (tn) as TensorFlow
    differentiates it; what the gradient needs not is pruned."""
    import keras

    if problem.out != problem.dtype:
        raise ValueError("TensorFlow gives a product in its operands' dtype")
    calls.allow(problem, a, "function")
    samples, features, units = {
        "nn": (problem.m, problem.k, problem.n),
        "nt": (problem.m, problem.n, problem.k),
        "tn": (problem.k, problem.m, problem.n),
    }[problem.layout]
    made = keras.layers.Dense(units, use_bias=False, dtype=problem.dtype)
    made.build((samples, features))
    if made.compute_output_shape((samples, features)) != (samples, units):
        raise ArithmeticError(f"Keras gives {made.compute_output_shape((samples, features))}, not {(samples, units)}")
    direction = {"nn": "fprop", "nt": "dgrad", "tn": "wgrad"}[problem.layout]
    return calls.layer(made, direction, (samples, features), a, b)
