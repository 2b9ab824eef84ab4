"""Matmul in CUDA C on tensor cores by mma.sync: the form that every GPU since Ampere has."""

import functools

import cupy
import numpy as np

from kernels.cuda import autotuner, loader, matmul_tiles
from kernels.cuda.tiles import traffic
from kernels.matmul.cuda import count_in_32_bits
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import into, kernel


def call(problem: Matmul, of: matmul_tiles.Tensors, a, b, c):
    """The call of matmul/cuda_tensor.cu with those tiles."""
    m, n, k, size = problem.m, problem.n, problem.k, a.dtype.itemsize
    piece = 16 // size
    vector = int(k % piece == 0 and n % piece == 0 and a.data.ptr % 16 == 0 and b.data.ptr % 16 == 0)
    compiled = loader.load(
        "matmul/cuda_tensor",
        "matmul",
        **of.macros(),
        VECTOR=vector,
        TF32=int(problem.math == "tf32"),
        TYPE=f'"{"" if problem.math == "tf32" else ARITHMETIC[problem.math].ptx}"',
    )
    compiled.max_dynamic_shared_size_bytes = of.shared_bytes(size)
    grid, arguments = (of.count(m, n),), (a, b, c, *map(np.int32, (m, n, k, of.group())))

    run = into(c, compiled, grid, (of.threads,), arguments, shared_mem=of.shared_bytes(size))
    loads = traffic(size, (sum(of.tile), of.tile_m * of.tile_n), (of.warp_m + of.warp_n, of.warp_m * of.warp_n))
    run.notes = {"tiles": str(of), "traffic": loads}
    return run


@kernel
def tensor_core(problem: Matmul, a, b):
    if problem.math not in (*HALVES, "tf32") or problem.layout != "nn" or problem.out != problem.dtype:
        raise ValueError(
            f"this kernel multiplies tf32, float16 and bfloat16 stored nn, not {problem.math} {problem.layout}"
        )
    count_in_32_bits(problem)
    loader.require(80)
    c = cupy.empty((problem.m, problem.n), a.dtype)
    limit = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    fitting = [of for of in matmul_tiles.TENSORS if of.shared_bytes(a.dtype.itemsize) <= limit]
    calls = {str(of): functools.partial(call, problem, of, a, b, c) for of in fitting}
    name = f"{problem.math} nn {problem.m}x{problem.n}x{problem.k}"
    return autotuner.tuned("matmul/cuda_tensor", name, calls)
