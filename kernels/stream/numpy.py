"""STREAM operations through NumPy."""

import numpy as np

from kernels.problems import Stream
from kernels.problems.arrays import empty
from kernels.registry import kernel

_OPERATIONS = ("copy", "scale", "add", "triad", "read")


@kernel(parallel=False)
def ufunc(problem: Stream, *arrays):
    """One NumPy pass an operator: the triad takes two, so it moves five arrays where a fused loop moves three."""
    if problem.dtype not in ("float32", "float64"):
        raise ValueError(f"NumPy has no native {problem.dtype} arithmetic")
    if problem.operation not in _OPERATIONS:
        raise ValueError(f"{problem.operation} is no single NumPy pass; this kernel has {', '.join(_OPERATIONS)}")
    out = empty((1 if problem.operation == "read" else problem.elements,), arrays[0].dtype, 5)
    out.fill(1)  # the pages exist before anything is timed
    three = arrays[0].dtype.type(3)

    def run():
        match problem.operation:
            case "copy":
                np.copyto(out, arrays[0])
            case "scale":
                np.multiply(arrays[0], three, out=out)
            case "add":
                np.add(arrays[0], arrays[1], out=out)
            case "triad":
                np.multiply(arrays[1], three, out=out)
                np.add(out, arrays[0], out=out)
            case _:
                np.sum(arrays[0], out=out, keepdims=True)
        return out

    return run
