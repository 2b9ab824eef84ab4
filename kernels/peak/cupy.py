"""The GPU's arithmetic ceiling on its ordinary cores: fused multiply-adds in registers, nothing else."""

import cupy
import numpy as np

from kernels.cuda import loader
from kernels.problems import Peak
from kernels.registry import TimedCall, kernel, timed_call

_CHAINS = 8  # independent values a thread
_UNROLL = 16  # FMAs of a chain in a trip of the loop
_THREADS = 256  # a block
_BLOCKS_A_MULTIPROCESSOR = 8
_LEAST_TRIPS = 20  # fewer would understate the rate by more than 5 %, as trips are rounded up
_MOST_TRIPS = 1 << 20  # so that a launch ends soon


@kernel
def fma(problem: Peak, constants: cupy.ndarray) -> TimedCall:
    """Eight independent FMA chains a thread on 2048 threads a multiprocessor; the trips are counted out beforehand.

    constants: the factor and the addend of every multiply-add. The result has each chain's value, a row for each of the
    eight.
    """
    if problem.math not in ("float32", "float64"):
        raise ValueError(f"no GPU FMA peak in {problem.math} yet")
    dtype = np.dtype(problem.math)
    blocks = loader.attribute("MultiProcessorCount") * _BLOCKS_A_MULTIPROCESSOR
    out = cupy.empty((_CHAINS, blocks * _THREADS), dtype)
    factor, addend = cupy.asnumpy(constants).astype(dtype)
    trip_flops = 2 * out.size * _UNROLL
    trips = -(-problem.flops // trip_flops)
    if trips < _LEAST_TRIPS:
        least = _LEAST_TRIPS * trip_flops
        raise ValueError(f"{problem.flops} FLOPs are too few for a GPU this wide; at least {least}")
    if trips > _MOST_TRIPS:
        most = _MOST_TRIPS * trip_flops
        raise ValueError(f"{problem.flops} FLOPs in one launch is too long; the most here is {most}")
    real = {"float32": "float", "float64": "double"}[problem.math]
    compiled = loader.compile_kernel("peak/cupy", "fma_chains", REAL=real, CHAINS=_CHAINS, UNROLL=_UNROLL)
    arguments = (out, factor, addend, np.int32(trips))

    return timed_call(compiled, (blocks,), (_THREADS,), arguments, result=out)
