"""Matmul in CUDA C, float32: from a product a thread to tiles in registers. Few rows and short sums, in all types."""

import functools
import math
from collections.abc import Callable

import cupy
import numpy as np

from kernels.cuda import autotuner, loader, matmul_tiles, tiles
from kernels.cuda.matmul_tiles import FEW, Direct, Warps
from kernels.cuda.rows import Placed, copying, in_place, placed, turned
from kernels.cuda.tiles import Plan, traffic
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC
from kernels.registry import into, kernel

# m n k from which a call of the two slowest would take most of a second: nobody learns more from it.
_MOST_NAIVE, _MOST_COALESCED = 1 << 36, 1 << 39
_INT, _MOST_AT_ONCE = (1 << 31) - (1 << 12), 65535  # tiles and parts of k reach beyond the edge, less than 4,096
# Of an H200: seconds of a launch, bytes and FLOPs a second, and the share of a call that an operand takes more which is fetched
# item by item: its rows begin anywhere, or it lies along k.
_LAUNCH_S, _BYTES_S, _FLOPS_S, _BY_ITEMS = 3e-6, 4e12, 50e12, 0.11


def count_in_32_bits(problem: Matmul) -> None:
    """Raises: ValueError for a product with more rows or columns than our kernels count."""
    if max(problem.m, problem.n, problem.k) > _INT:
        raise ValueError("rows and columns are counted in 32 bits")


def _bound(name: str, problem: Matmul, a, b, block: tuple[int, int], tile: tuple[int, int], most: int | None = None):
    """The kernel of that name, a block for each tile of C: rows along the grid's y (of `naive` its x).

    Raises: ValueError for another arithmetic or layout, and for more than `most` products.
    """
    if problem.math != "float32" or problem.layout != "nn":
        raise ValueError(f"this kernel multiplies float32 stored nn, not {problem.math} {problem.layout}")
    count_in_32_bits(problem)
    if most and problem.m * problem.n * problem.k > most:
        raise ValueError(f"more than 2^{most.bit_length() - 1} products would take this kernel seconds a call")
    compiled, (m, n, k) = loader.load("matmul/cuda", name), (problem.m, problem.n, problem.k)
    c = cupy.empty((m, n), np.float32)
    across, down = -(-n // tile[1]), -(-m // tile[0])
    grid, arguments = (
        (down, across) if name == "naive" else (across, down),
        (a, b, c, np.int32(m), np.int32(n), np.int32(k)),
    )
    if grid[1] > _MOST_AT_ONCE:
        raise ValueError(f"a grid has 65,535 blocks in its second direction at most, this would need {grid[1]}")

    run = into(c, compiled, grid, block, arguments)
    loaded = (sum(tile), math.prod(tile)) if name.endswith("tiled") else (2, 1)  # the first two: if no cache helped
    each = math.isqrt(math.prod(tile) // math.prod(block))
    run.notes = {"traffic": traffic(4, loaded, (2 * each, each * each))}
    return run


@kernel(rung=True)
def naive(problem: Matmul, a, b):
    """A product a thread, a warp's threads in a column of C: each of its loads of A, and each store, is 32
    lines of memory."""
    return _bound("naive", problem, a, b, (32, 8), (32, 8), _MOST_NAIVE)


@kernel(rung=True)
def coalesced(problem: Matmul, a, b):
    """The same product a thread with a warp's threads in a row of C: loads of B and stores are whole lines, A's
    are shared."""
    return _bound("coalesced", problem, a, b, (32, 8), (8, 32), _MOST_COALESCED)


@kernel(rung=True)
def tiled(problem: Matmul, a, b):
    """Tiles of 32 x 32 of A and B in shared memory: each element is read from memory once for 32 products, not
    once for each."""
    return _bound("tiled", problem, a, b, (32, 32), (32, 32))


@kernel(rung=True)
def register_tiled(problem: Matmul, a, b):
    """8 x 8 of C in each thread's registers, 128 x 128 a block: 16 loads from shared memory feed 64 products,
    not 2 for each."""
    return _bound("register_tiled", problem, a, b, (16, 16), (128, 128))


def operand(array, along: bool, copied: bool) -> Placed:
    """An operand as it lies, along k or across; or as it is copied in each call, across k with rows on 16 bytes."""
    if not copied:
        return in_place(array)
    return turned(array) if along else placed(array)


def warps_call(problem: Matmul, plan: Plan[Warps], a: Placed, b: Placed, c):
    """The call of matmul/cuda_warp.cu with those tiles, k in that many parts."""
    of, (m, n, k) = plan.of, (problem.m, problem.n, problem.k)
    a_km, b_kn = int(a.turned or problem.layout == "tn"), int(b.turned or problem.layout != "nt")

    def vector(columns: int, array) -> int:
        return int(columns % 4 == 0 and array.data.ptr % 16 == 0)

    stored = {"A_STORED_KM": a_km, "B_STORED_KN": b_kn}
    vectors = {"VECTOR_A": vector(a.pitch, a.array), "VECTOR_B": vector(b.pitch, b.array), "VECTOR": vector(n, c)}
    form = of if vectors["VECTOR_A"] and vectors["VECTOR_B"] else of.by_items()
    compiled = loader.load("matmul/cuda_warp", "matmul", **form.macros(), **stored, **vectors)
    compiled.max_dynamic_shared_size_bytes = of.shared_bytes
    grid, whole, sums = split_sums(plan, m, n)
    counts = map(np.int32, (m, n, k, a.pitch, b.pitch, whole, plan.parts, plan.steps(k) * of.deep))
    arguments = (a.array, b.array, c, *counts, *sums, np.float32(1))
    launch = functools.partial(compiled, (grid, problem.count), (of.threads,), arguments, shared_mem=of.shared_bytes)
    run = copying(launch, [a, b], in_place(c), c)
    loads = traffic(4, (sum(of.tile), of.tile_m * of.tile_n), (of.each_m + of.each_n, of.each_m * of.each_n))
    run.notes = {"tiles": str(plan), "traffic": loads}
    return run


def direct_call(problem: Matmul, plan: Plan[Direct], a, b, c):
    """The call of matmul/cuda_direct.cu, k in that many parts; of few columns it multiplies the transposes, B's by A's."""
    m, n, k, size = problem.m, problem.n, problem.k, a.dtype.itemsize
    sides = (a, m, problem.layout != "tn", n), (b, n, problem.layout == "nt", 1)
    (a, m, a_along, c_row), (b, n, b_along, c_column) = sides[:: -1 if n <= FEW and n < m else 1]
    along = b_along and k > 1
    vector = (k if along else n) % 4 == 0 and b.data.ptr % (4 * size) == 0
    of = plan.of.fitted(m, along, vector)
    whole = 0 if a.data.ptr % (4 * size) else along and vector if a_along else 2 * (of.few % 4 == 0 and m % of.few == 0)
    flags = {"ALONG": along, "VECTOR": vector, "VECTOR_A": whole, "TF32": problem.math == "tf32", "HALVES": size == 2}
    macros: dict = {name: int(flag) for name, flag in flags.items()} | of.macros()
    macros["TYPE"] = f'"{ARITHMETIC[problem.math].ptx}"'
    compiled = loader.load("matmul/cuda_direct", "matmul", **macros)
    groups = -(-n // (of.columns * (1 if along or vector else of.lanes)))  # of columns, as the source has it
    units, strides = -(-m // of.few) * groups * -(-n // (of.columns * groups)), (k, 1) if a_along else (1, m)
    blocks = -(-units // of.lanes)
    counts = map(np.int32, (m, n, k, *strides, k if along else n, c_row, c_column, plan.steps(k) * of.deep))
    sums = cupy.empty(blocks * plan.parts * of.lanes * of.few * of.columns if plan.parts > 1 else 1, np.float32)
    arguments = a, b, c, *counts, sums, cupy.zeros(blocks, np.uint32)
    run = into(c, compiled, (blocks, plan.parts), (of.lanes * of.deep,), arguments)
    run.notes = {"tiles": str(plan), "traffic": traffic(size, *[(of.few + of.columns, of.few * of.columns)] * 2)}
    return run


@kernel(batched=True)
def warp_tiled(problem: Matmul, a, b):
    """A tile a warp inside the block's: 16-byte loads that neighbors share, stages fetched ahead, a tile of C a
    thread in banks that multiply-adds read at once; few rows or columns, or short sums, straight from memory;
    the fastest here."""
    if problem.math != "float32":
        raise ValueError(f"this kernel multiplies float32, not {problem.math}")
    count_in_32_bits(problem)
    if problem.count > _MOST_AT_ONCE:
        raise ValueError(f"a grid has {_MOST_AT_ONCE:,} products at most, not {problem.count:,}")
    m, n, c = problem.m, problem.n, cupy.empty(problem.out_shape, np.float32)
    single, along = problem.count == 1, (problem.layout != "tn", problem.layout == "nt")
    saved = _BY_ITEMS * problem.flops / _FLOPS_S if single else 0
    copied = [saved > _LAUNCH_S + 2 * x.nbytes / _BYTES_S for x in (a, b)]
    read_a, read_b = map(operand, (a, b), along, copied)
    layout = ("n" if along[0] > copied[0] else "t") + ("t" if along[1] > copied[1] else "n")  # as it is multiplied
    most = loader.attribute("MaxSharedMemoryPerBlockOptin")
    forms = [of for of in matmul_tiles.warps(layout, single) if of.shared_bytes <= most]
    if single:
        ranked = tiles.plans(forms, m, n, problem.k, loader.attribute("MultiProcessorCount"))
        direct = matmul_tiles.direct(m, n, problem.k, loader.attribute("MultiProcessorCount"))
        found: list[Plan] = [*ranked[: tiles.TRIED - len(direct)], *direct]
    else:  # many of them fit on a multiprocessor, so that one loads while another multiplies
        found = list(map(Plan, forms))

    def call(plan: Plan):
        if isinstance(plan.of, Direct):
            return direct_call(problem, plan, a, b, c)
        return warps_call(problem, plan, read_a, read_b, c)

    return fastest_plan("matmul/cuda_warp", problem, found, call)


def split_sums(plan: Plan, m: int, n: int, cluster: int = 1) -> tuple[int, int, tuple]:
    """Units of work, those of them that are whole tiles, and room for the sums of the others and for how many parts of each have
    come (split_sums.cuh); a unit is of so many blocks."""
    size = m, n, loader.attribute("MultiProcessorCount")
    units, whole = plan.units(*size), plan.whole(*size)
    parts = 1 if plan.of.in_cluster else max(1, (units - whole) * cluster)
    return units, whole, (cupy.empty(parts * math.prod(plan.of.tile), np.float32), cupy.zeros(parts, np.uint32))


def fastest_plan(file: str, problem: Matmul, plans: list, call: Callable[[Plan], Callable]) -> Callable:
    """The call of the plan that takes the least time under load."""
    calls = {str(plan): functools.partial(call, plan) for plan in plans}
    many = f"{problem.count} of " if problem.count > 1 else ""
    name = f"{problem.math} {problem.layout} {many}{problem.m}x{problem.n}x{problem.k}"
    return autotuner.tuned(file, name, calls)
