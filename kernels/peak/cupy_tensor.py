"""The arithmetic ceilings of the GPU's tensor cores: products of tiles from registers or shared memory, nothing else."""

from typing import Any

import cupy
import numpy as np

from kernels.cuda import loader
from kernels.problems import Peak
from kernels.problems.arrays import ARITHMETIC, HALVES, ITEM_BYTES, precision
from kernels.registry import into, kernel

# Sums are float32 (float64 of float64); the operands of a step are 32 bytes deep, 128 of float64.
_MMA = ("float16", "bfloat16", "tf32", "float64")
_SINGLE: dict[str, Any] = {"WORD": "unsigned", "SUM": "float", "AS": '"r"', "TO": '"f"', "A_WORDS": 4, "SUMS": 4}
_DOUBLE: dict[str, Any] = {"WORD": "double", "SUM": "double", "AS": '"d"', "TO": '"d"', "A_WORDS": 8, "SUMS": 4}
_CHAINS, _UNROLL, _THREADS, _BLOCKS_A_MULTIPROCESSOR = 8, 4, 256, 4
_LEAST_TRIPS, _MOST_TRIPS = 20, 1 << 18

_WGMMA = ("float16", "bfloat16", "tf32", "float8_e4m3")
_WGMMA_THREADS, _WGMMA_UNROLL = 256, 4


def _trips(problem: Peak, a_trip: int) -> int:
    """Loop trips for the FLOPs of the problem, of which the whole grid does `a_trip` in each."""
    trips = -(-problem.flops // a_trip)
    if not _LEAST_TRIPS <= trips <= _MOST_TRIPS:
        raise ValueError(
            f"{problem.flops} FLOPs are too few or too many for one launch; from {_LEAST_TRIPS * a_trip} to "
            f"{_MOST_TRIPS * a_trip} here"
        )
    return trips


def _depth(math: str) -> int:
    """Steps of the sum in an instruction."""
    return 32 // ITEM_BYTES[precision(math)[0]]


def _bound(compiled, out, constants, trips: int, blocks: int, threads: int):
    arguments = (out, float(cupy.asnumpy(constants)[0]), np.int32(trips))
    return into(out, compiled, (blocks,), (threads,), arguments)


@kernel
def tensor(problem: Peak, constants):
    """mma.sync on every warp, eight independent tiles each, operands in registers: the form that all GPUs since Ampere have."""
    if problem.math not in _MMA:
        raise ValueError(f"mma.sync has no {problem.math}; this kernel has {', '.join(_MMA)}")
    loader.require(80)
    kind, rows, depth, words = ARITHMETIC[problem.math].ptx, 16, _depth(problem.math), _SINGLE
    if problem.math == "float64":
        rows, depth, words = 16, 16, _DOUBLE
        if int(cupy.cuda.Device().compute_capability) < 90:
            rows, depth, words = 8, 4, _DOUBLE | {"A_WORDS": 1, "SUMS": 2}
    total = "f64" if problem.math == "float64" else "f32"
    shape = f"mma.sync.aligned.m{rows}n8k{depth}.row.col.{total}.{kind}.{kind}.{total}"
    macros = words | {"PACK": f"packed_{kind}", "MMA": f'"{shape}"'}
    compiled = loader.load("peak/cupy_tensor", "mma_chains", **macros)
    blocks = loader.attribute("MultiProcessorCount") * _BLOCKS_A_MULTIPROCESSOR
    warps = blocks * _THREADS // 32
    trips = _trips(problem, 2 * rows * 8 * depth * warps * _CHAINS * _UNROLL)
    dtype = np.float64 if problem.math == "float64" else np.float32
    out = cupy.empty((_CHAINS * macros["SUMS"], blocks * _THREADS), dtype)
    return _bound(compiled, out, constants, trips, blocks, _THREADS)


@kernel
def wgmma(problem: Peak, constants):
    """wgmma on two warpgroups a multiprocessor, 64 x 256 tiles from shared memory: the only form at Hopper's full rate."""
    if problem.math not in _WGMMA:
        raise ValueError(f"wgmma has no {problem.math}; this kernel has {', '.join(_WGMMA)}")
    loader.require(90, only=True)
    kind, depth = ARITHMETIC[problem.math].ptx, _depth(problem.math)
    compiled = loader.load(
        "peak/cupy_wgmma",
        "wgmma_chain",
        _arch="sm_90a",
        FLAGS=f'"p, 1, 1{", 0, 0" if problem.math in HALVES else ""}"',
        PACK=f"packed_{kind}",
        WGMMA=f'"wgmma.mma_async.sync.aligned.m64n256k{depth}.f32.{kind}.{kind}"',
    )
    blocks = loader.attribute("MultiProcessorCount")
    groups = blocks * _WGMMA_THREADS // 128
    trips = _trips(problem, 2 * 64 * 256 * depth * groups * _WGMMA_UNROLL)
    out = cupy.empty((128, blocks * _WGMMA_THREADS), np.float32)
    return _bound(compiled, out, constants, trips, blocks, _WGMMA_THREADS)
