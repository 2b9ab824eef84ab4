"""Shared by TensorFlow's matmuls and convolutions: three ways to call a formula, the arithmetic, a check of what ran."""

import collections
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels import reference
from kernels.problems import Conv, Matmul
from kernels.problems.arrays import ITEM_BYTES
from kernels.reference.stream import IN_A_ROW

if TYPE_CHECKING:
    import tensorflow


def on_gpu(tensor: "tensorflow.Tensor") -> bool:
    return "GPU" in tensor.device


def allow_arithmetic(problem: Matmul | Conv, tensor: "tensorflow.Tensor", execution: str) -> None:
    """Lets this process multiply in the problem's arithmetic and no other, on the tensor's device.

    On a GPU the switch for TF32 must stay as it is for the rest of the process, since TensorFlow keeps the plans of a product
    by its shape alone: rows with and without TF32 need processes of their own (workloads.harness.worker.environment).
    execution: `eager`, `function` or `jit`, as in `called`.
    Raises: ValueError where the device has no such arithmetic.
    """
    import tensorflow

    if problem.math == "float8_e4m3":
        raise ValueError("TensorFlow multiplies no float8_e4m3")
    if not on_gpu(tensor):
        if problem.math == "tf32":
            raise ValueError("TF32 is an arithmetic of GPUs; TensorFlow's CPU kernels have float32")
        if execution != "jit" and ITEM_BYTES[problem.dtype] == 2 and not _rounds_once(problem.dtype):
            raise ValueError(
                f"TensorFlow has only general {problem.dtype} kernels for this CPU, which round sums on the way"
            )
        return
    if problem.math == "tf32" and os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        raise ValueError("NVIDIA_TF32_OVERRIDE=0 forbids TF32 in this process")
    tensorflow.config.experimental.enable_tensor_float_32_execution(problem.math == "tf32")


@functools.cache
def _rounds_once(dtype: str) -> bool:
    """Whether long sums of products are rounded to that type at their end only: oneDNN's are, where the CPU has instructions
    for the type, while Eigen's are rounded after each block of K."""
    import tensorflow

    problem = Matmul(64, 64, 4000, dtype)
    inputs = problem.inputs(1, True)
    with tensorflow.device("/CPU:0"):
        product = tensorflow.matmul(*map(tensorflow.constant, inputs))
    return reference.check(problem, inputs, np.asarray(product)).passed


def called(execution: str, formula: Callable, *tensors: "tensorflow.Tensor") -> Callable[[], Any]:
    """The call that computes `formula(*tensors)`: an operation at a time (`eager`), in a tf.function (`function`), or compiled by
    XLA (`jit`). It is called once before it is returned.

    Raises: ValueError with TensorFlow's message for what it has no kernel for.
    """
    import tensorflow

    if execution == "eager":
        function = formula
    else:
        function = tensorflow.function(formula, jit_compile=execution == "jit", autograph=False)
    errors = tensorflow.errors
    try:
        function(*tensors)
    except (errors.InvalidArgumentError, errors.UnimplementedError, errors.NotFoundError) as error:
        reason = " ".join(str(error.message).split()).rpartition("}} ")[2]
        raise ValueError(f"TensorFlow cannot do this: {reason[:160]}") from error
    return lambda: function(*tensors)


def ran(call: Callable) -> collections.Counter:
    """Operation -> how often it occurs in the graphs that a call runs, after TensorFlow's optimizer; oneDNN's names are
    replaced by those of the operations that they stand for."""
    from tensorflow.python.eager import context  # no public way to the optimized graph

    context.context().enable_graph_collection()
    try:
        call()
        graphs = context.context().export_run_metadata().partition_graphs
    finally:
        context.context().disable_graph_collection()
    counts: collections.Counter = collections.Counter()
    for graph in graphs:
        counts.update(node.op.removeprefix("_MklNative").removeprefix("_Mkl") for node in graph.node)
    return counts


#: Operations of a graph that compute nothing.
STRUCTURE = ("Const", "Identity", "NoOp", "_Arg", "_Retval", "Reshape", "VarHandleOp", "ReadVariableOp")


def _require_all(single: collections.Counter, row: collections.Counter, count: int) -> None:
    """Raises RuntimeError unless a graph has the operations of a single formula `count` times.

    single, row: operation -> how often it occurs, in the graph of the formula and in the one that repeats it.
    """
    lost = [name for name, n in single.items() if name not in STRUCTURE and row[name] < count * n]
    if lost:
        raise RuntimeError(f"TensorFlow's optimizer left out some {', '.join(lost)}: {dict(row)}")


def in_a_row(formula: Callable, *tensors: "tensorflow.Tensor", count: int = IN_A_ROW) -> Callable[[], Any]:
    """The timed call that computes `formula(*tensors)` `count` times in one graph, one after the other as the operations of a
    training step are: Python dispatches once, and TensorFlow's threads are awake from the second on.

    Every result is put into a variable, which no optimizer may leave out, and the next waits for that; the graph that runs is
    looked at.
    Raises: ValueError on a GPU, where queued calls give the same time.
    """
    import tensorflow

    if any(map(on_gpu, tensors)):
        raise ValueError(
            "a row of operations in one graph is for the CPU: on a GPU calls are queued one behind the other"
        )
    result = tensorflow.Variable(formula(*tensors))

    @tensorflow.function(autograph=False)
    def row(*tensors):
        after: list = []
        for _ in range(count):
            with tensorflow.control_dependencies(after):
                value = formula(*tensors)
            after = [result.assign(value, read_value=False)]

    _require_all(ran(called("function", formula, *tensors)), ran(lambda: row(*tensors)), count)

    def run():
        row(*tensors)
        return result

    run.passes = count
    return run
