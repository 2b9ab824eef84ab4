"""The cost of a NumPy call before any work. `calls` on a kernel names the calls it has, so that a plan need not bind it."""

import numpy as np

from kernels.launch._calls import only
from kernels.problems import Launch
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel


@kernel(parallel=False)
@only("elementwise", "matmul")
def ufunc(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """np.add and np.matmul into an array that is there: the arguments' checks, the loop's choice, the call.

    arrays: 256 float32 values for `elementwise`; two of 16 x 16 for `matmul`.
    """
    out = empty(arrays[0].shape, arrays[0].dtype, place=5)
    if problem.call == "matmul":
        a, b = arrays
        times = range(problem.count)

        def multiply():
            for _ in times:
                np.matmul(a, b, out=out)
            return out

        return multiply
    (x,) = arrays
    one = np.float32(1)
    repeats = range(problem.count - 1)  # after the first call, which is on x

    def run():
        np.add(x, one, out=out)
        for _ in repeats:
            np.add(out, one, out=out)
        return out

    return run


@kernel(parallel=False, allocates=True)
@only("elementwise", "matmul")
def operator(problem: Launch, *arrays: np.ndarray) -> TimedCall:
    """`x + 1` and `a @ b` as people write them: a fresh array each time.

    arrays: 256 float32 values for `elementwise`; two of 16 x 16 for `matmul`.
    """
    repeats = range(problem.count)
    if problem.call == "matmul":
        a, b = arrays

        def multiply():
            for _ in repeats:
                out = a @ b
            return out

        return multiply
    (x,) = arrays
    one = np.float32(1)

    def run():
        out = x
        for _ in repeats:
            out = out + one
        return out

    return run
