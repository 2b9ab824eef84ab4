"""The cost of Keras with almost no work: a step, an epoch and a call of fit; predict; train_on_batch.

The model is Dense(1) on one feature; analysis.roofline.overheads separates calls from steps by rows of several counts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.launch._calls import only
from kernels.problems import Launch
from kernels.registry import TimedCall, kernel

if TYPE_CHECKING:
    import keras

_CALLS = "step", "epoch", "predict", "train_on_batch"


def tiny_model(jit_compile: bool | str) -> "keras.Model":
    """Dense(1) on one feature with weight 1 and shift 0, compiled with SGD."""
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse", jit_compile=jit_compile)
    return model


class _Steps:
    """What a timed call returns: the optimizer steps that it took, read from the model when somebody asks, after timing."""

    def __init__(self, optimizer, before: int):
        self._optimizer, self._before = optimizer, before

    def numpy(self) -> np.ndarray:
        return np.array([int(self._optimizer.iterations.numpy()) - self._before], np.int64)


def _bound(problem: Launch, arrays: Sequence[np.ndarray], jit_compile: bool | str) -> TimedCall:
    """The timed call of fit, predict or train_on_batch (`problem.call`) on a model with almost no work, `problem.count` times
    a batch of one sample. It is called once here, which builds, traces and compiles.

    arrays: for `predict` the samples, `problem.count` numbers; else none. jit_compile: Keras's argument, True, False or
    "auto".
    """
    model, count = tiny_model(jit_compile), problem.count
    if problem.call == "predict":
        rows = arrays[0].reshape(count, 1)
        model.predict(rows[:1], 1, verbose=0)
        return lambda: model.predict(rows, 1, verbose=0).ravel()
    x = np.ones((count if problem.call == "step" else 1, 1), np.float32)
    y = 2 * x
    calls = {
        "step": lambda: model.fit(x, y, 1, verbose=0),
        "epoch": lambda: model.fit(x, y, 1, epochs=count, verbose=0),
        "train_on_batch": lambda: [model.train_on_batch(x, y) for _ in range(count)],
    }
    call = calls[problem.call]
    call()  # builds, traces and compiles
    steps_before = int(model.optimizer.iterations.numpy())

    def run():
        """Calls it and returns how many optimizer steps that took, which is read later."""
        nonlocal steps_before
        steps = _Steps(model.optimizer, steps_before)
        call()
        steps_before += count
        return steps

    return run


@kernel(waits=True, allocates=True)
@only(*_CALLS)
def fit(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """As Keras chooses by itself (jit_compile="auto"): compiled where a GPU is visible, op by op where none is."""
    return _bound(problem, arrays, "auto")


@kernel(waits=True, allocates=True)
@only(*_CALLS)
def fit_jit(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """With jit_compile=True: a step is one compiled call."""
    return _bound(problem, arrays, True)


@kernel(waits=True, allocates=True)
@only(*_CALLS)
def fit_op_by_op(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """With jit_compile=False: a step is a graph of single operations."""
    return _bound(problem, arrays, False)
