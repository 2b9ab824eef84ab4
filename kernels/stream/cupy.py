"""STREAM operations on the GPU."""

import cupy
import numpy as np

from kernels.cuda import loader
from kernels.problems import Stream
from kernels.registry import TimedCall, kernel, timed_call
from kernels.stream import _passes

_EXPRESSIONS = {"copy": "a", "scale": "3 * a", "add": "a + b", "triad": "a + 3 * b"}
_REALS = {"float32": "float", "float64": "double"}
_SUM_FLIGHT = 16  # loads a thread, as stream/cupy_sum.cu has them
_SUM_PLACES = 1024  # places that blocks add to, as stream/cupy_sum.cu has them


def _known(problem: Stream, *operations: str) -> None:
    """Raises ValueError for other operations than these and other types than float32 and float64."""
    if problem.operation not in operations or problem.dtype not in _REALS:
        raise ValueError(f"no {problem.operation} of {problem.dtype} here; this kernel has {', '.join(operations)}")


@kernel
def library(problem: Stream, *arrays: cupy.ndarray) -> TimedCall:
    """CuPy's own calls, one for each operator: the triad takes two passes over five arrays, `read` is cupy.sum.

    arrays: the one or two arrays read, of `problem.elements` values each, on the GPU.
    """
    _known(problem, *_EXPRESSIONS, "read")
    out = cupy.empty(1 if problem.operation == "read" else problem.elements, arrays[0].dtype)
    return _passes.library(cupy, problem, arrays, out)


@kernel
def elementwise(problem: Stream, *arrays: cupy.ndarray) -> TimedCall:
    """CuPy's ElementwiseKernel, the usual way to fuse a formula: one element a thread at a time.

    arrays: the one or two arrays read, of `problem.elements` values each, on the GPU.
    """
    _known(problem, *_EXPRESSIONS)
    names = "T a, T b" if len(arrays) == 2 else "T a"
    formula = f"out = {_EXPRESSIONS[problem.operation]}"
    fused = cupy.ElementwiseKernel(names, "T out", formula, f"crossover_{problem.operation}")
    out = cupy.empty(problem.elements, arrays[0].dtype)

    return timed_call(fused, *arrays, out, result=out)


@kernel
def wide(problem: Stream, *arrays: cupy.ndarray) -> TimedCall:
    """16-byte loads, several in flight a thread: enough requests under way to keep the memory busy.

    arrays: the one or two arrays read, of `problem.elements` values each, on the GPU.
    """
    _known(problem, *_EXPRESSIONS, "read")
    real = _REALS[problem.dtype]
    if problem.operation == "read":
        return _sum(problem, arrays[0], real)
    out = cupy.empty(problem.elements, arrays[0].dtype)
    compiled, blocks = loader.element_wise_kernel(
        real, _EXPRESSIONS[problem.operation], arrays=len(arrays), nbytes=out.nbytes
    )
    arguments = (arrays[0], arrays[-1], out, np.int64(problem.elements))

    return timed_call(compiled, (blocks,), (loader.STREAM_THREADS,), arguments, result=out)


def _sum(problem: Stream, array: cupy.ndarray, real: str) -> TimedCall:
    """The timed call of a sum in two kernels: blocks add their parts to 1,024 places in memory, then one block adds the
    places.

    real: C's type of the values, `float` or `double`.
    """
    add_tiles = loader.compile_kernel("stream/cupy_sum", "tiles", REAL=real)
    add_places = loader.compile_kernel("stream/cupy_sum", "places", REAL=real)
    blocks = -(-array.nbytes // (loader.STREAM_THREADS * _SUM_FLIGHT * 16))
    places = cupy.zeros(_SUM_PLACES, array.dtype)
    out = cupy.empty(1, array.dtype)
    tile_arguments = (array, places, np.int64(problem.elements))
    place_arguments = (places, out)

    def run():
        add_tiles((blocks,), (loader.STREAM_THREADS,), tile_arguments)
        add_places((1,), (_SUM_PLACES,), place_arguments)
        return out

    run.reads = array
    return run
