"""Matmul in CUDA C on tensor cores by mma.sync: the form that every GPU since Ampere has."""

import math

import cupy
import numpy as np

from kernels.cuda import loader, matmul_tiles, tiles
from kernels.cuda.matmul_tiles import Tensors
from kernels.cuda.tiles import Plan, traffic
from kernels.matmul.cuda import count_in_32_bits, fastest_plan, split_sums
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import into, kernel


def call(problem: Matmul, plan: Plan[Tensors], a, b, c):
    """The call of matmul/cuda_tensor.cu with those tiles, k in that many parts."""
    of, (m, n, k), size = plan.of, (problem.m, problem.n, problem.k), a.dtype.itemsize
    a_km, b_kn, shared = int(problem.layout == "tn"), int(problem.layout != "nt"), of.shared_bytes(problem.layout, size)
    macros = {"TYPE": f'"{ARITHMETIC[problem.math].ptx}"', "TF32": int(size == 4), "VECTOR": 1 - n % 2, **of.macros()}
    macros |= {"A_STORED_KM": a_km, "BYTES_A": math.gcd(16, (m if a_km else k) * size, a.data.ptr)}
    macros |= {"B_STORED_KN": b_kn, "BYTES_B": math.gcd(16, (n if b_kn else k) * size, b.data.ptr)}
    compiled = loader.load("matmul/cuda_tensor", "matmul", **macros)
    compiled.max_dynamic_shared_size_bytes = shared
    blocks, whole, sums = split_sums(plan, m, n)
    counts = map(np.int32, (m, n, k, of.group(), whole, plan.parts, plan.steps(k * size // 2)))
    run = into(c, compiled, (blocks,), (of.threads,), (a, b, c, *counts, *sums), shared_mem=shared)
    loads = traffic(size, (sum(of.tile), of.tile_m * of.tile_n), (of.warp_m + of.warp_n, of.warp_m * of.warp_n))
    run.notes = {"tiles": str(plan), "traffic": loads}
    return run


def plans(problem: Matmul) -> list[Plan[Tensors]]:
    """The plans of matmul/cuda_tensor.cu that are tried."""
    size, most = 4 if problem.math == "tf32" else 2, loader.attribute("MaxSharedMemoryPerBlockOptin")
    fitting = [of for of in matmul_tiles.TENSORS if of.shared_bytes(problem.layout, size) <= most]
    return tiles.plans(fitting, problem.m, problem.n, problem.k * size // 2, loader.attribute("MultiProcessorCount"))


@kernel
def tensor_core(problem: Matmul, a, b):
    """mma.sync: a warp multiplies a small tile at once from pieces that ldmatrix brings into its registers: all
    that Ampere's tensor cores have, not all that Hopper's have."""
    if problem.math not in (*HALVES, "tf32") or problem.out != problem.dtype:
        raise ValueError(f"this kernel multiplies tf32, float16 and bfloat16, not {problem.math} to {problem.out}")
    count_in_32_bits(problem)
    loader.require(80)
    c = cupy.empty((problem.m, problem.n), a.dtype)
    return fastest_plan("matmul/cuda_tensor", problem, plans(problem), lambda plan: call(problem, plan, a, b, c))
