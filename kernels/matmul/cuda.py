"""Matmul in CUDA C, float32: from a product a thread to tiles in registers that stand beside cuBLAS."""

import functools

import cupy
import numpy as np

from kernels.cuda import autotuner, loader, matmul_tiles
from kernels.problems import Matmul
from kernels.registry import kernel

# m n k from which a call of the two slowest would take most of a second: nobody learns more from it.
_MOST_NAIVE, _MOST_COALESCED = 1 << 36, 1 << 39
_INT = 1 << 31


def count_in_32_bits(problem: Matmul) -> None:
    """Raises: ValueError for a product with more rows or columns than our kernels count."""
    if max(problem.m, problem.n, problem.k) >= _INT:
        raise ValueError("rows and columns are counted in 32 bits")


def _known(problem: Matmul, most: int | None = None) -> None:
    if problem.math != "float32" or problem.layout != "nn":
        raise ValueError(f"this kernel multiplies float32 stored nn, not {problem.math} {problem.layout}")
    count_in_32_bits(problem)
    if most and problem.m * problem.n * problem.k > most:
        raise ValueError(f"more than 2^{most.bit_length() - 1} products would take this kernel seconds a call")


def _bound(name: str, problem: Matmul, a, b, block: tuple[int, int], tile: tuple[int, int]):
    """The kernel of that name, a block for each tile of C: rows along the grid's y (of `naive` its x)."""
    compiled, (m, n, k) = loader.load("matmul/cuda", name), (problem.m, problem.n, problem.k)
    c = cupy.empty((m, n), np.float32)
    across, down = -(-n // tile[1]), -(-m // tile[0])
    grid, arguments = (
        (down, across) if name == "naive" else (across, down),
        (a, b, c, np.int32(m), np.int32(n), np.int32(k)),
    )
    if grid[1] > 65535:
        raise ValueError(f"a grid has 65,535 blocks in its second direction at most, this would need {grid[1]}")

    def run():
        compiled(grid, block, arguments)
        return c

    return run


@kernel(rung=True)
def naive(problem: Matmul, a, b):
    _known(problem, _MOST_NAIVE)
    return _bound("naive", problem, a, b, (32, 8), (32, 8))


@kernel(rung=True)
def coalesced(problem: Matmul, a, b):
    _known(problem, _MOST_COALESCED)
    return _bound("coalesced", problem, a, b, (32, 8), (8, 32))


@kernel(rung=True)
def tiled(problem: Matmul, a, b):
    _known(problem)
    return _bound("tiled", problem, a, b, (32, 32), (32, 32))


@kernel(rung=True)
def register_tiled(problem: Matmul, a, b):
    _known(problem)
    return _bound("register_tiled", problem, a, b, (16, 16), (128, 128))


def warps_call(problem: Matmul, of: matmul_tiles.Warps, a, b, c):
    """The call of matmul/cuda_warp.cu with those tiles."""
    m, n, k = problem.m, problem.n, problem.k
    vector = int(n % 4 == 0 and b.data.ptr % 16 == 0)
    compiled = loader.load("matmul/cuda_warp", "matmul", **of.macros(), VECTOR=vector)
    compiled.max_dynamic_shared_size_bytes = of.shared_bytes
    grid, arguments = (of.count(m, n),), (a, b, c, *map(np.int32, (m, n, k)), np.float32(1))

    def run():
        compiled(grid, (of.threads,), arguments, shared_mem=of.shared_bytes)
        return c

    run.notes = {"tiles": str(of)}
    return run


@kernel
def warp_tiled(problem: Matmul, a, b):
    _known(problem)
    c = cupy.empty((problem.m, problem.n), np.float32)
    limit = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    fitting = [of for of in matmul_tiles.WARPS if of.shared_bytes <= limit]
    calls = {str(of): functools.partial(warps_call, problem, of, a, b, c) for of in fitting}
    name = f"float32 nn {problem.m}x{problem.n}x{problem.k}"
    return autotuner.tuned("matmul/cuda_warp", name, calls)
