"""STREAM operations through NumPy."""

import numpy as np

from kernels.problems import Stream
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel
from kernels.stream import _passes

_OPERATIONS = ("copy", "scale", "add", "triad", "read")


@kernel(parallel=False)
def ufunc(problem: Stream, *arrays: np.ndarray) -> TimedCall:
    """One NumPy pass an operator: the triad takes two, so it moves five arrays where a fused loop moves three.

    arrays: the one or two arrays read, of `problem.elements` values each.
    """
    if problem.dtype not in ("float32", "float64"):
        raise ValueError(f"NumPy has no native {problem.dtype} arithmetic")
    if problem.operation not in _OPERATIONS:
        raise ValueError(f"{problem.operation} is no single NumPy pass; this kernel has {', '.join(_OPERATIONS)}")
    out = empty((1 if problem.operation == "read" else problem.elements,), arrays[0].dtype, place=5)
    out.fill(1)  # the pages exist before anything is timed
    return _passes.library(np, problem, arrays, out)
