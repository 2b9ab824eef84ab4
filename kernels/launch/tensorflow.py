"""The cost of a TensorFlow call before any work: one operation at a time, in a graph, in a compiled graph."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.launch._calls import only
from kernels.problems import Launch
from kernels.registry import TimedCall, kernel
from kernels.tensorflow import calls

if TYPE_CHECKING:
    import tensorflow


@kernel(allocates=True)
@only("elementwise", "matmul", "copy")
def eager(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """An operation at a time from Python, as code outside a tf.function runs; `copy` makes a tensor of 4 bytes there.

    arrays: 256 float32 values for `elementwise`, two of 16 x 16 for `matmul`, one value for `copy`; in host memory.
    """
    import tensorflow

    repeats = range(problem.count)
    if problem.call == "copy":
        device = tensorflow.zeros(1).device  # that was chosen around the bind

        def convert():
            for _ in repeats:
                with tensorflow.device(device):
                    out = tensorflow.constant(arrays[0])
            return out

        return convert
    first, second = _operands(problem, arrays)
    if problem.call == "matmul":

        def multiply():
            for _ in repeats:
                out = tensorflow.matmul(first, second)
            return out

        return multiply

    def run():
        out = first
        for _ in repeats:
            out = tensorflow.subtract(out, second)
        return out

    return run


def _operands(problem: Launch, arrays: Sequence[np.ndarray]) -> tuple:
    """The call's two tensors. x + 1 is computed as x - (-1) with the -1 an argument: TensorFlow's optimizer makes one
    addition of a chain of x + 1, and of x + one with `one` an argument, but lets a chain of subtractions stand.

    arrays: 256 float32 values for `elementwise`, two of 16 x 16 for `matmul`; in host memory.
    """
    import tensorflow

    second = arrays[1] if problem.call == "matmul" else np.float32(-1)
    return tuple(tensorflow.identity(tensorflow.constant(value)) for value in (arrays[0], second))


def _in_a_function(problem: Launch, arrays: Sequence[np.ndarray], jit_compile: bool) -> TimedCall:
    """The timed call of a tf.function whose graph has `problem.count` operations, compiled by XLA or not.

    Raises: ValueError for several equal products; RuntimeError if TensorFlow's optimizer left operations out.
    """
    import tensorflow

    first, second = _operands(problem, arrays)

    @tensorflow.function(jit_compile=jit_compile, autograph=False)
    def chain(x: "tensorflow.Tensor", y: "tensorflow.Tensor"):
        if problem.call == "matmul":
            return tensorflow.matmul(x, y)
        for _ in range(problem.count):
            x = tensorflow.subtract(x, y)
        return x

    if problem.call == "matmul" and problem.count > 1:
        raise ValueError("equal products in one function are computed once; ask for a single one")
    if not jit_compile:
        _require(problem, lambda: chain(first, second))
    return lambda: chain(first, second)


def _require(problem: Launch, call: Callable) -> None:
    """Raises RuntimeError unless the graph that `call` runs has `problem.count` operations of its kind after TensorFlow's
    optimizer."""
    operations = calls.ran(call)
    count = operations["MatMul" if problem.call == "matmul" else "Sub"]
    if count != problem.count:
        raise RuntimeError(
            f"the optimized graph has {count} operations, not {problem.count}; it holds {', '.join(sorted(operations))}"
        )


@kernel(allocates=True)
@only("elementwise", "matmul")
def function(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """A tf.function, not compiled: one call runs its graph's `count` operations, each a kernel of its own."""
    return _in_a_function(problem, arrays, False)


@kernel(allocates=True)
@only("elementwise", "matmul")
def jit(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """A tf.function with jit_compile=True: XLA fuses its `count` operations into one kernel."""
    return _in_a_function(problem, arrays, True)
