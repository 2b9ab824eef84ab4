"""Matmul in CUDA C on tensor cores by mma.sync: the form that every GPU since Ampere has."""

import math

import cupy
import numpy as np

from kernels.cuda import loader, matmul_tiles, tiles
from kernels.cuda.matmul_tiles import Tensors
from kernels.cuda.tiles import TilePlan, lines_and_results, traffic
from kernels.matmul.cuda import count_in_32_bits, fastest_plan, split_work
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import TimedCall, kernel, timed_call


def _aligned_bytes(row_items: int, array: cupy.ndarray) -> int:
    """Bytes, 16 at most, on which every row of an operand begins: so many are loaded at once."""
    return math.gcd(16, row_items * array.dtype.itemsize, array.data.ptr)


def call(problem: Matmul, plan: TilePlan[Tensors], a: cupy.ndarray, b: cupy.ndarray, c: cupy.ndarray) -> TimedCall:
    """The timed call that launches matmul/cuda_tensor.cu by that plan and returns `c`, m x n. Upper-case arguments are the
    source's macros."""
    size = a.dtype.itemsize
    a_across, b_across = matmul_tiles.is_across(problem.layout)
    compiled = loader.compile_kernel(
        "matmul/cuda_tensor",
        "matmul",
        TYPE=f'"{ARITHMETIC[problem.math].ptx}"',
        TF32=int(size == 4),
        VECTOR=1 - problem.n % 2,
        **plan.tiles.macros(),
        A_STORED_KM=int(a_across),
        BYTES_A=_aligned_bytes(problem.m if a_across else problem.k, a),
        B_STORED_KN=int(b_across),
        BYTES_B=_aligned_bytes(problem.n if b_across else problem.k, b),
    )
    shared_bytes = plan.tiles.shared_bytes(problem.layout, size)
    compiled.max_dynamic_shared_size_bytes = shared_bytes
    work = split_work(plan, problem.m, problem.n)
    stages_of_a_part = plan.steps(problem.k * size // 2)
    sizes = (problem.m, problem.n, problem.k, plan.tiles.group(), work.whole, plan.parts, stages_of_a_part)
    arguments = (a, b, c, *map(np.int32, sizes), work.sums, work.arrived)
    run = timed_call(compiled, (work.units,), (plan.tiles.threads,), arguments, shared_mem=shared_bytes, result=c)
    loads = traffic(size, lines_and_results(*plan.tiles.tile), lines_and_results(*plan.tiles.unit))
    run.notes = {"tiles": str(plan), "traffic": loads}
    return run


def plans(problem: Matmul) -> list[TilePlan[Tensors]]:
    """The plans of matmul/cuda_tensor.cu that are worth timing on this GPU, best first by the cost model."""
    size = 4 if problem.math == "tf32" else 2
    most_bytes = loader.attribute("MaxSharedMemoryPerBlockOptin")
    forms = [form for form in matmul_tiles.TENSORS if form.shared_bytes(problem.layout, size) <= most_bytes]
    k_of_two_bytes = problem.k * size // 2
    multiprocessors = loader.attribute("MultiProcessorCount")
    return tiles.plans(forms, problem.m, problem.n, k_of_two_bytes, multiprocessors=multiprocessors)


@kernel
def tensor_core(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """mma.sync: a warp multiplies a small tile at once from pieces that ldmatrix brings into its registers: all
    that Ampere's tensor cores have, not all that Hopper's have.

    a: m x k, b: k x n (as problem.layout stores them), on the GPU.
    """
    if problem.math not in (*HALVES, "tf32") or problem.out != problem.dtype:
        raise ValueError(f"this kernel multiplies tf32, float16 and bfloat16, not {problem.math} to {problem.out}")
    count_in_32_bits(problem)
    loader.require_capability(80)
    c = cupy.empty((problem.m, problem.n), a.dtype)
    return fastest_plan("matmul/cuda_tensor", problem, plans(problem), lambda plan: call(problem, plan, a, b, c=c))
