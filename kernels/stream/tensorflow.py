"""STREAM operations and the passes of a training step as TensorFlow runs them, by Keras's own formulas where it has some.

Every result is a fresh tensor, as in a training step; the optimizers update variables in place.
"""

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.problems import Stream
from kernels.reference import stream
from kernels.registry import TimedCall, kernel, timed_call
from kernels.tensorflow import calls

if TYPE_CHECKING:
    import tensorflow

#: Operations that update variables in place instead of giving a result.
OPTIMIZERS = ("sgd", "adam")
#: Arguments of TensorFlow's pooling operations: 2 x 2 windows, at every second row and column.
_POOL = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "VALID"}


def _refuse(problem: Stream) -> None:
    """Raises ValueError for another type than float32 and float64."""
    if problem.dtype not in ("float32", "float64"):
        raise ValueError(f"these TensorFlow passes are for float32 and float64, not {problem.dtype}")


def _scaled(tf: types.ModuleType, x: "tensorflow.Tensor") -> "tensorflow.Tensor":
    return x * tf.constant(3, x.dtype)


def _flat(tf: types.ModuleType, x: "tensorflow.Tensor") -> "tensorflow.Tensor":
    """The tensor as a vector; nothing is copied."""
    return tf.reshape(x, (-1,))


def formulas(tf: types.ModuleType, jit_compile: bool) -> dict[str, Callable]:
    """Operation of Stream -> function of its tensors that computes it. tf: the module tensorflow; jit_compile: whether XLA
    will compile it.

    A constant seed would let TensorFlow draw dropout's random numbers once for all calls, so the seed is an argument.
    tf.identity copies nothing, but the output of a compiled function is always a fresh array.
    """
    raw = tf.raw_ops
    return {
        "copy": lambda x: tf.identity(x) if jit_compile else raw.DeepCopy(x=x),
        "scale": lambda x: _scaled(tf, x),
        "add": lambda x, y: x + y,
        "triad": lambda x, y: x + _scaled(tf, y),
        "read": lambda x: tf.reshape(tf.reduce_sum(x), (1,)),
        "relu": tf.nn.relu,
        "relu_grad": lambda x, dy: raw.ReluGrad(gradients=dy, features=x),
        "dropout": lambda x, seed: tf.nn.experimental.stateless_dropout(x, stream.DROPPED, seed),
        "maxpool": lambda x: _flat(tf, tf.nn.max_pool2d(x, 2, 2, "VALID")),
        "maxpool_grad": lambda x, dy, y: _flat(tf, raw.MaxPoolGrad(orig_input=x, orig_output=y, grad=dy, **_POOL)),
        "batchnorm": lambda x: _flat(tf, _keras_batchnorm(tf, x)),
    }


def _keras_batchnorm(tf: types.ModuleType, x: "tensorflow.Tensor") -> "tensorflow.Tensor":
    """Batch normalization in training as Keras 3's layer computes it: moments, then the formula, no fused kernel."""
    mean, variance = tf.nn.moments(x, (0, 1, 2))
    return tf.nn.batch_normalization(x, mean, variance, tf.zeros_like(mean), tf.ones_like(mean), stream.EPSILON)


def tensors(tf: types.ModuleType, problem: Stream, arrays: Sequence["tensorflow.Tensor"]) -> list["tensorflow.Tensor"]:
    """The arguments of the operation's formula, from the problem's flat inputs: reshaped to images where it is of images;
    dropout's seed and maxpool_grad's pooled images are added."""
    arguments = list(arrays)
    if problem.operation in problem.IMAGE_OPERATIONS:
        height, width, channels = tuple(problem.IMAGE)
        arguments[0] = tf.reshape(arrays[0], (-1, height, width, channels))
        if problem.operation == "maxpool_grad":
            arguments[1] = tf.reshape(arrays[1], (-1, height // 2, width // 2, channels))
            arguments.append(tf.nn.max_pool2d(arguments[0], 2, 2, "VALID"))
    if problem.operation == "dropout":
        arguments.append(tf.constant([1, 2], tf.int32))
    return arguments


def formula(tf: types.ModuleType, problem: Stream, jit_compile: bool = False) -> Callable:
    """The function that computes the problem from its tensors.

    jit_compile: whether XLA will compile it.
    Raises: ValueError for another type than float32 and float64, for an optimizer, and for what Keras has no operation for.
    """
    _refuse(problem)
    computed = formulas(tf, jit_compile).get(problem.operation)
    if computed is None:
        raise ValueError(
            f"Keras differentiates batch normalization together with its forward pass: no {problem.operation} by itself"
        )
    return computed


def _bound(problem: Stream, arrays: Sequence["tensorflow.Tensor"], jit_compile: bool) -> TimedCall:
    """The timed call of the operation in a tf.function, compiled by XLA or not; it is traced here."""
    import tensorflow as tf

    if problem.operation in OPTIMIZERS:
        return updates(tf, problem, arrays, count=1, jit_compile=jit_compile)
    computed = formula(tf, problem, jit_compile)
    arguments = tensors(tf, problem, arrays)
    compiled = tf.function(computed, jit_compile=jit_compile, autograph=False)
    compiled(*arguments)
    return lambda: compiled(*arguments)


def update(
    tf: types.ModuleType,
    operation: str,
    weights: "tensorflow.Variable",
    state: list,
    gradient: "tensorflow.Tensor",
    rate: "tensorflow.Tensor",
) -> None:
    """Updates one variable as Keras's SGD or Adam does. Adam's step size, which has the bias correction in it, is one number
    for all weights and an argument; here it is the learning rate itself.

    operation: sgd or adam. state: none for sgd; the variables of the first and the second moment for adam.
    """
    if operation == "sgd":
        weights.assign_sub(gradient * rate)
        return
    m, v = state
    m.assign_add((gradient - m) * (1 - stream.BETA1))
    v.assign_add((tf.square(gradient) - v) * (1 - stream.BETA2))
    weights.assign_sub((m * rate) / (tf.sqrt(v) + stream.ADAM_EPSILON))


def updates(
    tf: types.ModuleType, problem: Stream, arrays: Sequence["tensorflow.Tensor"], count: int, jit_compile: bool = False
) -> TimedCall:
    """The timed call that updates `count` equal variables in one tf.function and returns the first.

    arrays: weights, gradient and, for adam, the first and second moment.
    """
    _refuse(problem)
    variables = []
    for _ in range(count):
        weights = tf.Variable(arrays[0])
        state = [tf.Variable(array) for array in arrays[2:]]
        variables.append((weights, state))
    rate = tf.constant(stream.RATE, arrays[0].dtype)

    def update_all(gradient, rate):
        for weights, state in variables:
            update(tf, problem.operation, weights, state=state, gradient=gradient, rate=rate)

    step = tf.function(update_all, jit_compile=jit_compile, autograph=False)
    step.get_concrete_function(arrays[1], rate)  # traced, and no step taken: the first call is the one that is checked
    run = timed_call(step, arrays[1], rate, result=variables[0][0])
    run.passes = count
    return run


@kernel(allocates=True)
def function(problem: Stream, *arrays: "tensorflow.Tensor") -> TimedCall:
    """A tf.function, not compiled: every operation of the formula is a pass over memory with a fresh result.

    arrays: the problem's inputs, flat tensors.
    """
    return _bound(problem, arrays, False)


@kernel(allocates=True)
def jit(problem: Stream, *arrays: "tensorflow.Tensor") -> TimedCall:
    """A tf.function with jit_compile=True: XLA fuses the formula into one or a few passes.

    arrays: the problem's inputs, flat tensors.
    """
    return _bound(problem, arrays, True)


class _OneElement:
    """The one element of a data set, taken only when somebody reads it."""

    def __init__(self, dataset):
        self._dataset = dataset

    def numpy(self) -> np.ndarray:
        return next(iter(self._dataset)).numpy()


@kernel(allocates=True, waits=True, rung=True)
def dataset(problem: Stream, *arrays: "tensorflow.Tensor") -> TimedCall:
    """tf.data.Dataset.from_tensors of an array: a fresh copy in host memory; where TensorFlow sees a GPU, there and back.

    arrays: one flat tensor, which is copied.
    """
    import tensorflow

    if problem.operation != "copy":
        raise ValueError("a tf.data set only holds what it is made of: it is a copy")
    data = arrays[0].numpy()
    return lambda: _OneElement(tensorflow.data.Dataset.from_tensors(data))


@kernel(allocates=True, rung=True)
def graph(problem: Stream, *arrays: "tensorflow.Tensor") -> TimedCall:
    """On the CPU, the same pass again and again in one tf.function, each after the one before. Of an optimizer the updates of
    8
    variables, which do not wait for each other: so they stand in a step.

    arrays: the problem's inputs, flat tensors on the CPU.
    """
    import tensorflow as tf

    if problem.operation not in OPTIMIZERS:
        return calls.in_a_row(formula(tf, problem), *tensors(tf, problem, arrays))
    if calls.on_gpu(arrays[0]):
        raise ValueError("a row of updates in one graph is for the CPU: on a GPU calls are queued one behind the other")
    return updates(tf, problem, arrays, stream.UPDATES)


@kernel(allocates=True, rung=True)
def pooled(problem: Stream, *arrays: "tensorflow.Tensor") -> TimedCall:
    """On the CPU, a pool and its gradient again and again in one tf.function: the gradient knows where the maxima were, as it
    does in a step, where by itself it searches for them. Both are timed.

    arrays: the images and the gradient of the pooled ones, flat tensors on the CPU.
    """
    import tensorflow as tf

    if problem.operation != "maxpool_grad":
        raise ValueError(f"a gradient behind its pool is maxpool_grad's, not {problem.operation}'s")
    back = formula(tf, problem)
    images, gradient, _ = tensors(tf, problem, arrays)
    return calls.in_a_row(lambda x, dy: back(x, dy, tf.nn.max_pool2d(x, 2, 2, "VALID")), images, gradient)
