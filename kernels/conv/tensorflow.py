"""Convolution as TensorFlow runs it: by oneDNN on a CPU, by cuDNN on a GPU, or compiled by XLA.

The operations are those of a Keras layer and its gradients, with TensorFlow's filters (r, s, c_in / groups, c_out) in both
layouts.
"""

# The filters of an NCHW problem are transposed when they are bound, and back for the check.

from typing import Any

import numpy as np

from kernels.problems import Conv
from kernels.problems.arrays import ITEM_BYTES
from kernels.reference import conv as reference_conv
from kernels.registry import kernel
from kernels.tensorflow import calls

HELD = 50  # convolutions in one call of `held`


def _options(problem: Conv) -> dict:
    """Strides, padding and layout as TensorFlow's operations take them."""
    sides, step = [(0, 0), *problem.pads, (0, 0)], [1, problem.stride, problem.stride, 1]
    if problem.layout == "NCHW":
        sides, step = [(0, 0), (0, 0), *problem.pads], [1, 1, problem.stride, problem.stride]
    made = {"strides": step, "data_format": problem.layout}
    if isinstance(problem.pad, str):
        return made | {"padding": problem.pad.upper()}
    return made | {"padding": "EXPLICIT", "explicit_paddings": [zeros for pair in sides for zeros in pair]}


def _formula(problem: Conv):
    """The direction as a function of its two tensors."""
    from tensorflow import raw_ops

    how = _options(problem)
    match problem.direction:
        case "fprop":
            return lambda x, w: raw_ops.Conv2D(input=x, filter=w, **how)
        case "dgrad":
            return lambda dy, w: raw_ops.Conv2DBackpropInput(
                input_sizes=problem.x_shape, filter=w, out_backprop=dy, **how
            )
        case _:
            return lambda x, dy: raw_ops.Conv2DBackpropFilter(
                input=x,
                filter_sizes=(problem.r, problem.s, problem.c_in // problem.groups, problem.c_out),
                out_backprop=dy,
                **how,
            )


class _Oihw:
    """Filters that TensorFlow made, turned to (c_out, c_in / groups, r, s) when somebody looks at them."""

    def __init__(self, filters):
        self._filters = filters

    def numpy(self) -> np.ndarray:
        return np.ascontiguousarray(self._filters.numpy().transpose(3, 2, 0, 1))


def _refuse(problem: Conv, tensor, way: str) -> None:
    calls.allow(problem, tensor, way)
    if problem.layout == "NCHW" and not calls.on_gpu(tensor):
        raise ValueError("TensorFlow's CPU convolutions are NHWC; NCHW is its GPU layout")


def _bound(problem: Conv, a, b, way: str):
    import tensorflow

    _refuse(problem, a, way)
    if problem.layout == "NCHW" and problem.direction != "wgrad":
        b = tensorflow.transpose(b, (2, 3, 1, 0))
    call = calls.called(way, _formula(problem), a, b)
    run: Any = (lambda: _Oihw(call())) if problem.layout == "NCHW" and problem.direction == "wgrad" else call
    # TensorFlow takes the quickest of cuDNN's algorithms, FFT and Winograd among them.
    if calls.on_gpu(a) and ITEM_BYTES[problem.dtype] >= 4:
        run.bound = reference_conv.transform_bound(problem)
    return run


@kernel(allocates=True)
def eager(problem: Conv, a, b):
    """One operation outside a tf.function: Python and TensorFlow's dispatch before every convolution, and a fresh result."""
    return _bound(problem, a, b, "eager")


@kernel(allocates=True)
def function(problem: Conv, a, b):
    """The operation in a tf.function, as a training step that is not compiled runs it; oneDNN lays the filters out anew
    in every call."""
    return _bound(problem, a, b, "function")


@kernel(allocates=True)
def jit(problem: Conv, a, b):
    """The operation in a tf.function with jit_compile=True: XLA picks or writes the kernel."""
    return _bound(problem, a, b, "jit")


@kernel(allocates=True)
def held(problem: Conv, a, b):
    """On the CPU, 50 convolutions one after the other in one graph whose filters are constants: oneDNN lays them out once
    and keeps them, and nothing is dispatched from Python between."""
    import tensorflow

    _refuse(problem, a, "function")
    if calls.on_gpu(a):
        raise ValueError("layouts are held on the CPU only: cuDNN takes images and filters as they lie")
    how, filters = _with_constant_filters(problem, b.numpy())

    def formula(images):
        return tensorflow.raw_ops.Conv2D(input=images, filter=tensorflow.constant(filters), **how)

    return calls.in_a_row(formula, a, count=HELD)


def _with_constant_filters(problem: Conv, w: np.ndarray) -> tuple[dict, np.ndarray]:
    """(the direction as Conv2D's options, its filters). A dgrad without a stride is the convolution of dy with the filters
    turned by 180 degrees, their input and output channels exchanged.

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
    r, s, c_in, groups, filters = *w.shape[:3], problem.groups, problem.c_out // problem.groups
    turned = (
        w[::-1, ::-1]
        .reshape(r, s, c_in, groups, filters)
        .transpose(0, 1, 4, 3, 2)
        .reshape(r, s, filters, groups * c_in)
    )
    pads = [0, 0, r - 1 - top, r - 1 - bottom, s - 1 - left, s - 1 - right, 0, 0]
    how = {"strides": [1, 1, 1, 1], "data_format": "NHWC", "padding": "EXPLICIT", "explicit_paddings": pads}
    return how, np.ascontiguousarray(turned)


@kernel(allocates=True, rung=True)
def graph(problem: Conv, a, b):
    """On the CPU, the same convolution again and again in one tf.function, each after the one before: what it takes inside a
    step, whose filters change and are laid out anew each time."""
    _refuse(problem, a, "function")
    return calls.in_a_row(_formula(problem), a, b)
