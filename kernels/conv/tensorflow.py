"""Convolution as TensorFlow runs it: by oneDNN on a CPU, by cuDNN on a GPU, or compiled by XLA.

The operations are those of a Keras layer and its gradients, with TensorFlow's filters (r, s, c_in / groups, c_out) in both
layouts.
"""

# The filters of an NCHW problem are transposed when they are bound, and back for the check.

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.problems import Conv
from kernels.problems.arrays import ITEM_BYTES
from kernels.reference.conv import transform_bound
from kernels.registry import TimedCall, kernel
from kernels.tensorflow import calls

if TYPE_CHECKING:
    import tensorflow

#: Convolutions in one call of `constant_filters`.
IN_ONE_CALL = 50


def _options(problem: Conv) -> dict:
    """Strides, padding and layout as arguments of TensorFlow's convolutions."""
    (top, bottom), (left, right) = problem.pads
    zeros = [top, bottom, left, right]
    if problem.layout == "NHWC":
        strides = [1, problem.stride, problem.stride, 1]
        paddings = [0, 0, *zeros, 0, 0]
    else:
        strides = [1, 1, problem.stride, problem.stride]
        paddings = [0, 0, 0, 0, *zeros]
    options = {"strides": strides, "data_format": problem.layout}
    if isinstance(problem.pad, str):
        return options | {"padding": problem.pad.upper()}
    return options | {"padding": "EXPLICIT", "explicit_paddings": paddings}


def _formula(problem: Conv) -> Callable:
    """The direction as a function of its two tensors: of images and filters (fprop), dy and filters (dgrad), or images and dy
    (wgrad)."""
    from tensorflow import raw_ops

    options = _options(problem)
    match problem.direction:
        case "fprop":
            return lambda x, w: raw_ops.Conv2D(input=x, filter=w, **options)
        case "dgrad":
            return lambda dy, w: raw_ops.Conv2DBackpropInput(
                input_sizes=problem.x_shape, filter=w, out_backprop=dy, **options
            )
        case _:
            return lambda x, dy: raw_ops.Conv2DBackpropFilter(
                input=x,
                filter_sizes=(problem.r, problem.s, problem.c_in // problem.groups, problem.c_out),
                out_backprop=dy,
                **options,
            )


class _Oihw:
    """Filters that TensorFlow made, turned to (c_out, c_in / groups, r, s) when somebody looks at them."""

    def __init__(self, filters: "tensorflow.Tensor"):
        self._filters = filters

    def numpy(self) -> np.ndarray:
        return np.ascontiguousarray(self._filters.numpy().transpose(3, 2, 0, 1))


def _refuse(problem: Conv, tensor: "tensorflow.Tensor", execution: str) -> None:
    """Raises ValueError for what the tensor's device does not compute. `execution` is `eager`, `function` or `jit`."""
    calls.allow_arithmetic(problem, tensor, execution)
    if problem.layout == "NCHW" and not calls.on_gpu(tensor):
        raise ValueError("TensorFlow's CPU convolutions are NHWC; NCHW is its GPU layout")


def _bound(problem: Conv, a: "tensorflow.Tensor", b: "tensorflow.Tensor", execution: str) -> TimedCall:
    """The timed call of the convolution in one way to run it: `eager`, `function` (a tf.function) or `jit` (compiled by XLA).

    a, b: the operands, shaped as problem.operand_shapes says; filters of NCHW are transposed here, and back in the result of
    wgrad.
    """
    import tensorflow

    _refuse(problem, a, execution)
    if problem.layout == "NCHW" and problem.direction != "wgrad":
        b = tensorflow.transpose(b, (2, 3, 1, 0))
    call = calls.called(execution, _formula(problem), a, b)
    run: Any = (lambda: _Oihw(call())) if problem.layout == "NCHW" and problem.direction == "wgrad" else call
    # TensorFlow takes the quickest of cuDNN's algorithms, FFT and Winograd among them.
    if calls.on_gpu(a) and ITEM_BYTES[problem.dtype] >= 4:
        run.bound = transform_bound(problem)  # the error that a check of the result allows
    return run


@kernel(allocates=True)
def eager(problem: Conv, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """One operation outside a tf.function: Python and TensorFlow's dispatch before every convolution, and a fresh result.

    a, b: the operands, shaped as problem.operand_shapes says.
    """
    return _bound(problem, a, b, "eager")


@kernel(allocates=True)
def function(problem: Conv, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """The operation in a tf.function, as a training step that is not compiled runs it; oneDNN lays the filters out anew
    in every call.

    a, b: the operands, shaped as problem.operand_shapes says.
    """
    return _bound(problem, a, b, "function")


@kernel(allocates=True)
def jit(problem: Conv, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """The operation in a tf.function with jit_compile=True: XLA picks or writes the kernel.

    a, b: the operands, shaped as problem.operand_shapes says.
    """
    return _bound(problem, a, b, "jit")


@kernel(variant="held", allocates=True)
def constant_filters(problem: Conv, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """On the CPU, 50 convolutions one after the other in one graph whose filters are constants: oneDNN lays them out once
    and keeps them, and nothing is dispatched from Python between.

    a, b: the operands, shaped as problem.operand_shapes says, on the CPU.
    """
    import tensorflow

    _refuse(problem, a, execution="function")
    if calls.on_gpu(a):
        raise ValueError("layouts are held on the CPU only: cuDNN takes images and filters as they lie")
    options, filters = _with_constant_filters(problem, b.numpy())

    def formula(images: "tensorflow.Tensor"):
        return tensorflow.raw_ops.Conv2D(input=images, filter=tensorflow.constant(filters), **options)

    return calls.in_a_row(formula, a, count=IN_ONE_CALL)


def _with_constant_filters(problem: Conv, w: np.ndarray) -> tuple[dict, np.ndarray]:
    """(arguments of Conv2D, its filters) for fprop or dgrad with constant filters w, in TensorFlow's order. A dgrad without a
    stride is the convolution of dy with the filters rotated by 180 degrees, their input and output channels exchanged.

    Raises: ValueError for what is no convolution with constant filters.
    """
    if problem.direction == "fprop":
        return _options(problem), w
    (top, bottom), (left, right) = problem.pads
    short = max(top, bottom) >= problem.r or max(left, right) >= problem.s
    if problem.direction == "wgrad" or problem.stride > 1 or short:
        raise ValueError(
            "only fprop, and dgrad of stride 1 padded by less than the filter, have filters whose layout can be "
            "held: oneDNN lays out those of others in every call"
        )
    r, s = w.shape[:2]
    channels = problem.c_in // problem.groups
    filters = problem.c_out // problem.groups
    by_group = w[::-1, ::-1].reshape(r, s, channels, problem.groups, filters)
    rotated = by_group.transpose(0, 1, 4, 3, 2).reshape(r, s, filters, problem.groups * channels)
    paddings = [0, 0, r - 1 - top, r - 1 - bottom, s - 1 - left, s - 1 - right, 0, 0]
    options = {"strides": [1, 1, 1, 1], "data_format": "NHWC", "padding": "EXPLICIT", "explicit_paddings": paddings}
    return options, np.ascontiguousarray(rotated)


@kernel(allocates=True, rung=True)
def graph(problem: Conv, a: "tensorflow.Tensor", b: "tensorflow.Tensor") -> TimedCall:
    """On the CPU, the same convolution again and again in one tf.function, each after the one before: what it takes inside a
    step, whose filters change and are laid out anew each time.

    a, b: the operands, shaped as problem.operand_shapes says, on the CPU.
    """
    _refuse(problem, a, execution="function")
    return calls.in_a_row(_formula(problem), a, b)
