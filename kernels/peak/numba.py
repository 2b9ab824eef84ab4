"""The CPU's arithmetic ceiling: fused multiply-adds in vector registers, nothing else."""

import numba
import numpy as np

from kernels.problems import Peak
from kernels.problems.arrays import numpy_dtype
from kernels.registry import TimedCall, kernel, timed_call
from kernels.simd import emit


@kernel
def fma(problem: Peak, constants: np.ndarray) -> TimedCall:
    """Twelve independent chains of vector FMAs a thread: more than two FMA units of four cycles' latency can hide.

    constants: the factor and the addend of every multiply-add. The result has a row for each thread, the values of its
    chains.
    """
    if problem.math not in ("float32", "float64"):
        raise ValueError(f"CPUs have no vector FMA in {problem.math} that this kernel knows; it has float32, float64")
    dtype = numpy_dtype(problem.math)
    threads = numba.get_num_threads()
    out = np.zeros((threads, emit.CHAINS * emit.lanes(dtype)), dtype)
    factor, addend = constants.astype(dtype)
    trips = -(-problem.flops // (2 * out.size * emit.UNROLL))
    most = 2 << np.finfo(dtype).nmant  # whole numbers from 0 on that it holds
    if trips * emit.UNROLL > most:
        raise ValueError(
            f"each value would count past what {problem.math} counts exactly: at most "
            f"{2 * out.size * most:.3g} FLOPs on {threads} threads here"
        )

    return timed_call(emit.fma_peak, out, factor, addend, trips, result=out)
