"""STREAM operations on the GPU."""

import cupy

from kernels import cuda
from kernels.problems import Stream
from kernels.registry import kernel

_EXPRESSIONS = {"copy": "a", "scale": "3 * a", "add": "a + b", "triad": "a + 3 * b"}
_THREADS = 256
_BLOCKS_A_MULTIPROCESSOR = 8


def _checked(problem: Stream) -> str:
    if problem.operation not in _EXPRESSIONS or problem.dtype not in ("float32", "float64"):
        raise ValueError(f"no GPU {problem.operation} of {problem.dtype} yet")
    return _EXPRESSIONS[problem.operation]


@kernel
def elementwise(problem: Stream, *arrays):
    """CuPy's ElementwiseKernel, the usual way to fuse a formula: one element a thread at a time."""
    expression = _checked(problem)
    names = "T a, T b" if len(arrays) == 2 else "T a"
    fused = cupy.ElementwiseKernel(names, "T out", f"out = {expression}", f"crossover_{problem.operation}")
    out = cupy.empty(problem.elements, arrays[0].dtype)

    def run():
        fused(*arrays, out)
        return out

    return run


@kernel
def wide(problem: Stream, *arrays):
    """16-byte loads, four in flight a thread and array: enough requests under way to keep HBM busy."""
    expression = _checked(problem)
    real = {"float32": "float", "float64": "double"}[problem.dtype]
    compiled = cuda.load("stream_cupy", "stream", REAL=real, FORMULA=expression.replace(" ", ""), HAS_B=len(arrays) - 1)
    out = cupy.empty(problem.elements, arrays[0].dtype)
    most = cupy.cuda.Device().attributes["MultiProcessorCount"] * _BLOCKS_A_MULTIPROCESSOR
    blocks = max(1, min(most, -(-problem.elements // _THREADS)))
    arguments = (arrays[0], arrays[-1], out, problem.elements)

    def run():
        compiled((blocks,), (_THREADS,), arguments)
        return out

    return run
