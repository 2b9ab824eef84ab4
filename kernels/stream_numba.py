"""STREAM operations in Numba loops over all threads."""

import numba

from kernels.problems import Stream, empty
from kernels.registry import kernel


@numba.njit(cache=True, parallel=True, fastmath={"contract"})
def _copy(a, out):
    for i in numba.prange(out.size):
        out[i] = a[i]


@numba.njit(cache=True, parallel=True, fastmath={"contract"})
def _scale(a, out):
    three = out.dtype.type(3)
    for i in numba.prange(out.size):
        out[i] = three * a[i]


@numba.njit(cache=True, parallel=True, fastmath={"contract"})
def _add(a, b, out):
    for i in numba.prange(out.size):
        out[i] = a[i] + b[i]


@numba.njit(cache=True, parallel=True, fastmath={"contract"})
def _triad(a, b, out):
    three = out.dtype.type(3)
    for i in numba.prange(out.size):
        out[i] = a[i] + three * b[i]


_LOOPS = {"copy": _copy, "scale": _scale, "add": _add, "triad": _triad}


@kernel
def loop(problem: Stream, *arrays):
    """One fused loop shared out over the threads; a cache still reads each line of the output before it is written."""
    loops = _LOOPS.get(problem.operation)
    if loops is None or problem.dtype not in ("float32", "float64"):
        raise ValueError(f"the Numba loops have no {problem.operation} of {problem.dtype}")
    out = empty((problem.elements,), arrays[0].dtype, 5)
    loops(*arrays, out)  # touched first by the threads that will write it

    def run():
        loops(*arrays, out)
        return out

    return run
