"""The arithmetic ceilings of the GPU's tensor cores: products of tiles from registers or shared memory, nothing else."""

from typing import Any

import cupy
import numpy as np

from kernels.cuda import loader
from kernels.problems import Peak
from kernels.registry import kernel

# math -> rows and k of a product of rows x 8 x k, and the instruction's words and types. Sums are float32 (float64 of float64).
_DOUBLE: dict[str, Any] = {"PACK": "packed_f64", "WORD": "double", "SUM": "double", "AS": '"d"', "TO": '"d"'}
_MMA: dict[str, tuple[int, int, str, dict[str, Any]]] = {
    "float16": (16, 16, "f32.f16.f16.f32", {"PACK": "packed_f16"}),
    "bfloat16": (16, 16, "f32.bf16.bf16.f32", {"PACK": "packed_bf16"}),
    "tf32": (16, 8, "f32.tf32.tf32.f32", {"PACK": "packed_tf32"}),
    "float64": (16, 16, "f64.f64.f64.f64", {**_DOUBLE, "A_WORDS": 8, "SUMS": 4}),
}
_FLOAT64_BEFORE_HOPPER = (8, 4, "f64.f64.f64.f64", {**_DOUBLE, "A_WORDS": 1, "SUMS": 2})
_SINGLE: dict[str, Any] = {"WORD": "unsigned", "SUM": "float", "AS": '"r"', "TO": '"f"', "A_WORDS": 4, "SUMS": 4}
_CHAINS, _UNROLL, _THREADS, _BLOCKS_A_MULTIPROCESSOR = 8, 4, 256, 4
_LEAST_TRIPS, _MOST_TRIPS = 20, 1 << 18

_WGMMA = {
    "float16": (16, "f32.f16.f16", "p, 1, 1, 0, 0", "packed_f16"),
    "bfloat16": (16, "f32.bf16.bf16", "p, 1, 1, 0, 0", "packed_bf16"),
    "tf32": (8, "f32.tf32.tf32", "p, 1, 1", "packed_tf32"),
    "float8_e4m3": (32, "f32.e4m3.e4m3", "p, 1, 1", "packed_fp8"),
}
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


def _capability() -> int:
    return int(cupy.cuda.Device().compute_capability[:-1])


def _require(major: int, only: bool = False) -> None:
    have = _capability()
    if have < major or (only and have != major):
        raise ValueError(
            f"needs a GPU of compute capability {major}.0{'' if only else ' or newer'}, this one has {have}.x"
        )


@kernel
def tensor(problem: Peak, constants):
    """mma.sync on every warp, eight independent tiles each, operands in registers: the form that all GPUs since Ampere have."""
    if problem.math not in _MMA:
        raise ValueError(f"mma.sync has no {problem.math}; this kernel has {', '.join(_MMA)}")
    _require(8)
    before = problem.math == "float64" and _capability() < 9
    rows, depth, types, words = _FLOAT64_BEFORE_HOPPER if before else _MMA[problem.math]
    macros = {**_SINGLE, **words, "MMA": f'"mma.sync.aligned.m{rows}n8k{depth}.row.col.{types}"'}
    compiled = loader.load("peak/cupy_tensor", "mma_chains", **macros)
    blocks = cupy.cuda.Device().attributes["MultiProcessorCount"] * _BLOCKS_A_MULTIPROCESSOR
    warps = blocks * _THREADS // 32
    trips = _trips(problem, 2 * rows * 8 * depth * warps * _CHAINS * _UNROLL)
    dtype = np.float64 if problem.math == "float64" else np.float32
    out = cupy.empty((_CHAINS * macros["SUMS"], blocks * _THREADS), dtype)
    arguments = (out, float(cupy.asnumpy(constants)[0]), np.int32(trips))

    def run():
        compiled((blocks,), (_THREADS,), arguments)
        return out

    return run


@kernel
def wgmma(problem: Peak, constants):
    """wgmma on two warpgroups a multiprocessor, 64 x 256 tiles from shared memory: the only form at Hopper's full rate."""
    if problem.math not in _WGMMA:
        raise ValueError(f"wgmma has no {problem.math}; this kernel has {', '.join(_WGMMA)}")
    _require(9, only=True)
    depth, types, flags, pack = _WGMMA[problem.math]
    compiled = loader.load(
        "peak/cupy_wgmma",
        "wgmma_chain",
        _arch="sm_90a",
        FLAGS=f'"{flags}"',
        PACK=pack,
        WGMMA=f'"wgmma.mma_async.sync.aligned.m64n256k{depth}.{types}"',
    )
    blocks = cupy.cuda.Device().attributes["MultiProcessorCount"]
    groups = blocks * _WGMMA_THREADS // 128
    trips = _trips(problem, 2 * 64 * 256 * depth * groups * _WGMMA_UNROLL)
    out = cupy.empty((128, blocks * _WGMMA_THREADS), np.float32)
    arguments = (out, float(cupy.asnumpy(constants)[0]), np.int32(trips))

    def run():
        compiled((blocks,), (_WGMMA_THREADS,), arguments)
        return out

    return run
