"""The cost of a GPU call before any work: empty kernels, almost empty library calls, and nodes of a CUDA graph."""

import cupy
import numpy as np

from kernels.cuda import loader
from kernels.launch._calls import only
from kernels.problems import Launch
from kernels.registry import TimedCall, kernel


@kernel
@only("empty")
def rawkernel(problem: Launch, *_: cupy.ndarray) -> TimedCall:
    """An empty kernel of ours by cupy.RawKernel, one thread: Python's way into a launch, and the launch.

    It takes no arrays and has no result.
    """
    nothing = loader.compile_kernel("launch/cupy", "nothing")
    repeats = range(problem.count)

    def run():
        for _ in repeats:
            nothing((1,), (1,), ())

    return run


@kernel
@only("elementwise")
def ufunc(problem: Launch, x: cupy.ndarray = None, *_: cupy.ndarray) -> TimedCall:
    """x + 1 by CuPy's own element-wise call, each on the result of the one before.

    x: 256 float32 values on the GPU.
    """
    one = np.float32(1)
    out = cupy.empty_like(x)
    repeats = range(problem.count - 1)  # after the first call, which is on x

    def run():
        cupy.add(x, one, out=out)
        for _ in repeats:
            cupy.add(out, one, out=out)
        return out

    return run


@kernel
@only("empty", "elementwise")
def graph(problem: Launch, x: cupy.ndarray = None, *_: cupy.ndarray) -> TimedCall:
    """The same launches recorded once as a CUDA graph and launched as one: no Python and less driver between them.

    x: 256 float32 values on the GPU; none for `empty`.
    """
    record = rawkernel(problem) if problem.call == "empty" else ufunc(problem, x)
    record()  # compiles, which a recording may not
    stream = cupy.cuda.get_current_stream()
    stream.begin_capture()
    try:
        out = record()
    finally:
        recorded = stream.end_capture()

    def run(keep=(x, record)):  # the graph holds raw addresses
        recorded.launch(stream)
        return out

    return run


@kernel
@only("matmul")
def cublas(problem: Launch, a: cupy.ndarray = None, b: cupy.ndarray = None) -> TimedCall:
    """A 16 x 16 float32 product by cupy.matmul into a result that is there: cuBLAS with CuPy's checks before it.

    a, b: 16 x 16 float32 values each, on the GPU.
    """
    out = cupy.empty((a.shape[0], b.shape[1]), a.dtype)

    def run():
        cupy.matmul(a, b, out=out)
        return out

    return run


@kernel(waits=True)
@only("copy")
def set(problem: Launch, x: cupy.ndarray = None, *_: cupy.ndarray) -> TimedCall:
    """4 bytes to the device by `ndarray.set`: the cost of a copy that copies next to nothing.

    x: one float32 value on the GPU, which is copied to the host first.
    """
    host = cupy.asnumpy(x)
    out = cupy.zeros_like(x)

    def run():
        out.set(host)
        return out

    return run
