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

    formula = stream_tensorflow.formula(tf, problem)
    if formula is not None:
        return calls.in_a_row(formula, *stream_tensorflow.tensors(tf, problem, arrays))
    if calls.on_gpu(arrays[0]):
        raise ValueError("a row of updates in one graph is for the CPU: on a GPU calls are queued one behind the other")
    return stream_tensorflow.updates(tf, problem, arrays, passes.UPDATES)


@kernel(allocates=True, rung=True)
def pooled(problem: Stream, *arrays):
    """On the CPU, a pool and its gradient again and again in one tf.function: the gradient knows where the maxima were, as it
    does in a step, where by itself it searches for them. Both are timed."""
    import tensorflow as tf

    if problem.operation != "maxpool_grad":
        raise ValueError(f"a gradient behind its pool is maxpool_grad's, not {problem.operation}'s")
    back = stream_tensorflow.formula(tf, problem)
    images, gradient, _ = stream_tensorflow.tensors(tf, problem, arrays)
    return calls.in_a_row(lambda x, dy: back(x, dy, tf.nn.max_pool2d(x, 2, 2, "VALID")), images, gradient)
