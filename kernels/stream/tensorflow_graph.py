"""The passes of a training step among others in one graph of TensorFlow: threads are awake, Python dispatches once."""

from kernels.problems import Stream
from kernels.reference import stream as passes
from kernels.registry import kernel
from kernels.stream import tensorflow as stream_tensorflow
from kernels.tensorflow import calls


@kernel(allocates=True, rung=True)
def graph(problem: Stream, *arrays):
    """On the CPU, the same pass again and again in one tf.function, each after the one before. Of an optimizer the updates of 8
    variables, which do not wait for each other: so they stand in a step."""
    import tensorflow as tf

    if problem.dtype not in ("float32", "float64"):
        raise ValueError(f"these TensorFlow passes are for float32 and float64, not {problem.dtype}")
    if problem.operation in ("sgd", "adam"):
        return _updates(tf, problem, arrays)
    formula = stream_tensorflow.formulas(tf, False).get(problem.operation)
    if formula is None:
        raise ValueError(
            f"Keras differentiates batch normalization together with its forward pass: no {problem.operation} by itself"
        )
    return calls.in_a_row(formula, *stream_tensorflow.tensors(tf, problem, arrays))


@kernel(allocates=True, rung=True)
def pooled(problem: Stream, *arrays):
    """On the CPU, a pool and its gradient again and again in one tf.function: the gradient knows where the maxima were, as it
    does in a step, where by itself it searches for them. Both are timed."""
    import tensorflow as tf

    if problem.operation != "maxpool_grad" or problem.dtype not in ("float32", "float64"):
        raise ValueError(
            f"a gradient behind its pool is maxpool_grad's, in float32 or float64, not {problem.operation}'s "
            f"in {problem.dtype}"
        )
    back = stream_tensorflow.formulas(tf, False)["maxpool_grad"]
    images, gradient, _ = stream_tensorflow.tensors(tf, problem, arrays)
    return calls.in_a_row(lambda x, dy: back(x, dy, tf.nn.max_pool2d(x, 2, 2, "VALID")), images, gradient)


def _updates(tf, problem: Stream, arrays):
    if calls.on_gpu(arrays[0]):
        raise ValueError("a row of updates in one graph is for the CPU: on a GPU calls are queued one behind the other")
    sets = [[tf.Variable(array) for array in (arrays[0], *arrays[2:])] for _ in range(passes.UPDATES)]
    rate = tf.constant(passes.RATE, arrays[0].dtype)

    @tf.function(autograph=False)
    def step(gradient, rate):
        for weights, *state in sets:
            stream_tensorflow.update(tf, problem.operation, weights, state, gradient, rate)

    step.get_concrete_function(arrays[1], rate)  # traced, and no step taken: the first call is the one that is checked

    def run():
        step(arrays[1], rate)
        return sets[0][0]

    run.passes = passes.UPDATES
    return run
