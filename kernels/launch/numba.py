"""The cost of a call of compiled Numba code before any work, and of waking its threads."""

from collections.abc import Callable

import numba
import numpy as np

from kernels.launch._calls import only
from kernels.problems import Launch
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel

_NOTHING = np.empty(0)


@numba.njit(cache=True)
def _nothing(out: np.ndarray):
    pass


@numba.njit(cache=True)
def _plus_one(x: np.ndarray, out: np.ndarray):
    for i in range(out.size):
        out[i] = x[i] + np.float32(1)


@numba.njit(cache=True, parallel=True)
def _wake(out: np.ndarray):
    for i in numba.prange(out.size):  # one store a thread: a region without any would be removed
        out[i] = i


@kernel(parallel=False)
@only("empty", "elementwise")
def njit(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """Compiled code called from Python: unboxing the arguments and a jump; `elementwise` adds a loop over 256 values.

    arrays: 256 float32 values for `elementwise`, none for `empty`.
    """
    if problem.call == "empty":
        return _repeated(_nothing, _NOTHING, problem.count)
    (x,) = arrays
    repeats = range(problem.count - 1)  # after the first call, which is on x
    out = empty(x.shape, x.dtype, place=5)
    _plus_one(x, out)  # compiled before anything is timed

    def run():
        _plus_one(x, out)
        for _ in repeats:
            _plus_one(out, out)
        return out

    return run


@kernel
@only("empty")
def prange(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """A parallel region with one store a thread: what it costs to share work out (fork) and to wait for all (join)."""
    return _repeated(_wake, np.zeros(numba.get_num_threads(), np.int64), problem.count)


def _repeated(compiled: Callable, argument: np.ndarray, count: int) -> TimedCall:
    """The timed call that calls a compiled function `count` times with that argument and has no result."""
    repeats = range(count)
    compiled(argument)  # compiled before anything is timed

    def run():
        for _ in repeats:
            compiled(argument)
        return _NOTHING

    return run
