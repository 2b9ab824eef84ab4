"""Matmul in CUDA C for Hopper with few rows: bound by reading B, the weights, once."""

import cupy
import numpy as np

from kernels.cuda import loader, thin_tiles
from kernels.cuda.thin_tiles import Thin
from kernels.cuda.tiles import LINE, lines_and_results, traffic
from kernels.matmul.cuda import count_in_32_bits
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import TimedCall, kernel


def _maps(problem: Matmul, tiles: Thin, a: cupy.ndarray, b: cupy.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The TMA descriptors (CUtensorMaps, passed to the kernel by value) by which B and A are loaded.

    Raises: ValueError where rows do not begin on 16 bytes.
    """
    columns, rows = tiles.tile
    size = a.dtype.itemsize
    line_items = LINE // size
    item = loader.TFLOAT32 if size == 4 else loader.UINT16
    box_rows = line_items if problem.layout == "nn" else rows
    b_map = loader.tensor_map(b.data.ptr, b.shape, b.shape[1], (box_rows, line_items), item=item)
    a_map = loader.tensor_map(a.data.ptr, a.shape, a.shape[1], (columns, line_items), item=item)
    return b_map, a_map


def call(problem: Matmul, tiles: Thin, a: cupy.ndarray, b: cupy.ndarray, *, c: cupy.ndarray) -> TimedCall:
    """The timed call that launches matmul/cuda_thin.cu with those tiles and returns `c`, m x n. Upper-case arguments are the
    source's macros."""
    size = a.dtype.itemsize
    maps = _maps(problem, tiles, a, b)
    compiled = loader.compile_kernel(
        "matmul/cuda_thin",
        "matmul",
        _arch="sm_90a",
        TYPE=f'"{ARITHMETIC[problem.math].ptx}"',
        TF32=int(size == 4),
        B_STORED_KN=int(problem.layout == "nn"),
        **tiles.macros(),
    )
    compiled.max_dynamic_shared_size_bytes = tiles.shared_bytes
    sizes = (problem.m, problem.n, problem.k)
    arguments = (*maps, c, *map(np.int32, sizes))
    blocks = tiles.cluster_k * tiles.clusters(problem.n, loader.attribute("MultiProcessorCount"))
    launch = loader.overlapping(compiled, blocks, tiles.threads, arguments, tiles.shared_bytes)

    def run(keep=(a, b)):  # the maps have raw addresses alone: this keeps their arrays alive
        launch()
        return c

    unit = lines_and_results(64, tiles.columns)  # of a wgmma instruction
    run.notes = {"tiles": str(tiles), "traffic": traffic(size, lines_and_results(*tiles.tile), unit)}
    return run


@kernel
def thin(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Few rows: bound by reading the weights once. They are wgmma's side of 64 lines and fill a ring in all shared
    memory; a cluster splits k and adds its sums in shared memory, so that most multiprocessors read.

    a: m x k, b: k x n (as problem.layout stores them), on the GPU.
    """
    if problem.math not in (*HALVES, "tf32") or problem.out != problem.dtype:
        raise ValueError(f"this kernel multiplies tf32, float16 and bfloat16, not {problem.math} to {problem.out}")
    if problem.m > thin_tiles.MOST_ROWS or problem.layout not in ("nn", "nt"):
        raise ValueError(f"this kernel multiplies {thin_tiles.MOST_ROWS} rows at most in nn or nt, not {problem}")
    count_in_32_bits(problem)
    loader.require_capability(90, only=True)
    tiles = thin_tiles.chosen(
        problem.m,
        problem.n,
        problem.k,
        multiprocessors=loader.attribute("MultiProcessorCount"),
        item_bytes=a.dtype.itemsize,
    )
    return call(problem, tiles, a, b, c=cupy.empty((problem.m, problem.n), a.dtype))
