"""Refuses a model whose weights do not fit into the host's memory, before they are allocated."""

from typing import Any

import numpy as np

from analysis import units
from workloads.frameworks.tracing.refusal import Refusal
from workloads.machine import facts

_TRAINED_FACTOR = (
    3  # times the bytes of a weight that is trained: the weight, its gradient, a variable of the optimizer
)
_FLOAT_BYTES = 4
_INSTALLED = "_crossover_limit"  # attribute of Keras's class of variables


class WeightLimit:
    """Counts the memory that weights need, before they are allocated, against what was free."""

    def __init__(self, free_bytes: int):
        """free_bytes: of the host's memory, before the first weight."""
        self._free_bytes = free_bytes
        self._taken_bytes = 0

    def add(self, nbytes: int, *, is_trainable: bool) -> None:
        """Counts a weight of `nbytes` bytes. One that is trained also needs its gradient and at least one variable of the
        optimizer.

        Raises: Refusal where the memory is too small.
        """
        self._taken_bytes += _TRAINED_FACTOR * nbytes if is_trainable else nbytes
        if self._taken_bytes > self._free_bytes:
            needed, free = units.size(self._taken_bytes), units.size(self._free_bytes)
            raise Refusal(
                f"its weights, their gradients and the optimizer's state take {needed} and more, {free} are free",
                change="make the model smaller, or take a machine with more memory",
            )


def install() -> None:
    """Has Keras count each variable that it creates from now on, before it allocates it, against the memory that is free now.

    Keras's own method that initializes a variable is replaced once a process; a later call only begins a new count.
    """
    from keras.src import backend

    setattr(backend.Variable, _INSTALLED, WeightLimit(facts.memory_available()))
    original = backend.Variable._initialize_with_initializer
    if getattr(original, _INSTALLED, False):
        return

    def limited(variable: Any, initializer: Any) -> None:
        limit = getattr(backend.Variable, _INSTALLED)
        nbytes = int(np.prod(variable.shape, dtype=float)) * _item_bytes(variable.dtype)
        limit.add(nbytes, is_trainable=variable.trainable)
        original(variable, initializer)

    setattr(limited, _INSTALLED, True)
    backend.Variable._initialize_with_initializer = limited


def _item_bytes(dtype: str) -> int:
    """Bytes of a number of this type, by Keras's name: that of NumPy, or one that NumPy does not know, as bfloat16."""
    try:
        return np.dtype(dtype).itemsize
    except TypeError:  # one that NumPy does not know
        return _FLOAT_BYTES
