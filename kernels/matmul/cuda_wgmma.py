"""Matmul in CUDA C for Hopper: TMA, wgmma and warps with roles of their own."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import autotuner, loader, matmul_tiles
from kernels.cuda.matmul_tiles import DEEP
from kernels.cuda.tiles import GROUP_ROWS
from kernels.matmul.cuda import count_in_32_bits
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import kernel


class Placed(NamedTuple):
    """A matrix as TMA can read or write it: an address, items from row to row, and the copy that puts it there or takes it."""

    array: cupy.ndarray
    pitch: int
    copy: Callable[[], None] | None = None


def placed(array: cupy.ndarray, out: bool = False) -> Placed:
    """The matrix itself where its rows begin on 16 bytes; else a wider one, copied to (a result: copied from) in each call."""
    rows, columns = array.shape
    pitch, size = matmul_tiles.pitch(columns), array.dtype.itemsize
    if pitch == columns and array.data.ptr % 16 == 0:
        return Placed(array, columns)
    wider = cupy.empty((rows, pitch), array.dtype)
    ends = ((array.data.ptr, columns * size), (wider.data.ptr, pitch * size))
    to, source = ends if out else ends[::-1]

    def copy(keep=(array, wider)):
        stream = cupy.cuda.get_current_stream().ptr
        runtime.memcpy2DAsync(*to, *source, columns * size, rows, runtime.memcpyDeviceToDevice, stream)

    return Placed(wider, pitch, copy)


def call(
    problem: Matmul, plan: matmul_tiles.Plan, a: Placed, b: Placed, c: Placed, result, group_rows: int = GROUP_ROWS
):
    """The call of matmul/cuda_wgmma.cu with those tiles, k in that many parts."""
    of, m, n, k = plan.of, problem.m, problem.n, problem.k
    a_share, b_share = of.shares()
    a_km, b_kn = int(problem.layout == "tn"), int(problem.layout != "nt")
    compiled = loader.load(
        "matmul/cuda_wgmma",
        "matmul",
        _arch="sm_90a",
        TYPE=f'"{ARITHMETIC[problem.math].ptx}"',
        A_STORED_KM=a_km,
        B_STORED_KN=b_kn,
        **of.macros(),
    )
    compiled.max_dynamic_shared_size_bytes = of.shared_bytes
    sides = ((k, m) if a_km else (m, k)), ((k, n) if b_kn else (n, k)), (m, n)
    boxes = (DEEP if a_km else a_share, DEEP), (DEEP if b_kn else b_share, DEEP), (64, 64)
    maps = [
        loader.tensor_map(x.array.data.ptr, *side, x.pitch, box)
        for x, side, box in zip((a, b, c), sides, boxes, strict=True)
    ]
    blocks = of.blocks(m, n, cupy.cuda.Device().attributes["MultiProcessorCount"], plan.parts)
    tiles = of.count_clusters(m, n) * of.cluster if plan.parts > 1 else 0
    partial = cupy.empty(max(1, tiles * plan.parts * of.tile[0] * of.tile[1]), np.float32)
    arrived = cupy.zeros(max(1, tiles * of.consumers), np.uint32)
    counts = map(np.int32, (m, n, k, of.group(group_rows // of.cluster_m), plan.parts, plan.deep(k)))
    arguments = (*maps, *counts, partial, arrived)
    before, after = [x.copy for x in (a, b) if x.copy], c.copy
    launch = loader.overlapping(compiled, blocks, of.threads, arguments, of.shared_bytes)

    def run(keep=(a, b, c)):  # the maps hold raw addresses, so their owners are held here
        for copy in before:
            copy()
        launch()
        if after:
            after()
        return result

    run.notes = {"tiles": str(plan)}
    return run


@kernel
def wgmma(problem: Matmul, a, b):
    if problem.math not in HALVES or problem.out != problem.dtype:
        raise ValueError(
            f"this kernel multiplies float16 and bfloat16 into their own type, not {problem.math} to {problem.out}"
        )
    count_in_32_bits(problem)
    have = cupy.cuda.Device().compute_capability
    if have != "90":
        raise ValueError(f"wgmma is of compute capability 9.0 alone, this GPU has {have}")
    result = cupy.empty((problem.m, problem.n), a.dtype)
    operands = placed(a), placed(b), placed(result, out=True)
    count = cupy.cuda.Device().attributes["MultiProcessorCount"]
    plans = matmul_tiles.plans(problem.m, problem.n, problem.k, problem.layout, count)
    calls = {str(plan): functools.partial(call, problem, plan, *operands, result) for plan in plans}
    name = f"{problem.math} {problem.layout} {problem.m}x{problem.n}x{problem.k}"
    return autotuner.tuned("matmul/cuda_wgmma", name, calls, autotuner.loaded_seconds)
