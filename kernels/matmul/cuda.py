"""Matmul in CUDA C, float32: from a product a thread to tiles in registers. Few rows and short sums, in all types."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import cupy
import numpy as np

from kernels.cuda import autotuner, loader, matmul_tiles, tiles
from kernels.cuda.matmul_tiles import MOST_FEW, Direct, Warps
from kernels.cuda.rows import Placed, aligned, in_place, transposed, with_copies
from kernels.cuda.tiles import TilePlan, lines_and_results, traffic
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC
from kernels.registry import TimedCall, kernel, timed_call

#: m n k from which a call of `naive` would take most of a second: nobody learns more from it.
_MOST_NAIVE = 1 << 36
#: The same of `coalesced`.
_MOST_COALESCED = 1 << 39
#: Most rows and columns: tiles and parts of k reach beyond the edge, by less than 4,096.
_MOST_ROWS = (1 << 31) - (1 << 12)
#: Most blocks of a grid in its second direction. Source: CUDA C++ Programming Guide.
_MOST_GRID_ROWS = 65535

# Figures of an H200 by which it is decided whether an operand is copied into aligned rows first.

#: Seconds of a launch.
_LAUNCH_S = 3e-6
#: Bytes a second of such a copy.
_BYTES_S = 4e12
#: FLOPs a second of a product.
_FLOPS_S = 50e12
#: Share of a call that it takes longer if an operand is fetched item by item: its rows begin anywhere, or it lies along k.
_BY_ITEMS = 0.11


def count_in_32_bits(problem: Matmul) -> None:
    """Raises: ValueError for a product with more rows or columns than our kernels count."""
    if max(problem.m, problem.n, problem.k) > _MOST_ROWS:
        raise ValueError("rows and columns are counted in 32 bits")


# ---------------------------------------------------------------- a tile of C for each block


def _refuse(problem: Matmul, most_products: int | None) -> None:
    """Raises ValueError for another arithmetic or layout than float32 nn, and for more than `most_products` products m n k
    (None: any number)."""
    if problem.math != "float32" or problem.layout != "nn":
        raise ValueError(f"this kernel multiplies float32 stored nn, not {problem.math} {problem.layout}")
    count_in_32_bits(problem)
    if most_products and problem.m * problem.n * problem.k > most_products:
        raise ValueError(f"more than 2^{most_products.bit_length() - 1} products would take this kernel seconds a call")


def _bound(
    name: str, problem: Matmul, a: cupy.ndarray, b: cupy.ndarray, *, block: tuple[int, int], tile: tuple[int, int]
) -> TimedCall:
    """The timed call of the kernel of that name in matmul/cuda.cu, with a block of threads for each tile of C; it returns C,
    m x n.

    block: threads across and down. tile: rows and columns of C.
    Raises: ValueError where the grid would have too many rows.
    """
    tile_m, tile_n = tile
    across = -(-problem.n // tile_n)
    down = -(-problem.m // tile_m)
    grid = (down, across) if name == "naive" else (across, down)
    if grid[1] > _MOST_GRID_ROWS:
        raise ValueError(f"a grid has 65,535 blocks in its second direction at most, this would need {grid[1]}")
    compiled = loader.compile_kernel("matmul/cuda", name)
    c = cupy.empty((problem.m, problem.n), np.float32)
    arguments = (a, b, c, np.int32(problem.m), np.int32(problem.n), np.int32(problem.k))
    run = timed_call(compiled, grid, block, arguments, result=c)
    run.notes = {"traffic": _traffic(name, block, tile)}
    return run


def _traffic(name: str, block: tuple[int, int], tile: tuple[int, int]) -> str:
    """Text with the bytes loaded per FLOP by a kernel of matmul/cuda.cu, from the L2 and from shared memory. `naive` and
    `coalesced` are counted as if no cache helped: two items for each product.

    block: threads across and down. tile: rows and columns of C that a block computes.
    """
    side_of_a_thread = math.isqrt(math.prod(tile) // math.prod(block))
    uses_shared_memory = name in ("tiled", "register_tiled")
    block_loads = lines_and_results(*tile) if uses_shared_memory else (2, 1)
    thread_loads = lines_and_results(side_of_a_thread, side_of_a_thread)
    return traffic(4, block_loads, thread_loads)


@kernel(rung=True)
def naive(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """A product a thread, a warp's threads in a column of C: each of its loads of A, and each store, is 32
    lines of memory.

    a: m x k, b: k x n, float32 on the GPU.
    """
    _refuse(problem, _MOST_NAIVE)
    return _bound("naive", problem, a, b, block=(32, 8), tile=(32, 8))


@kernel(rung=True)
def coalesced(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """The same product a thread with a warp's threads in a row of C: loads of B and stores are whole lines, A's
    are shared.

    a: m x k, b: k x n, float32 on the GPU.
    """
    _refuse(problem, _MOST_COALESCED)
    return _bound("coalesced", problem, a, b, block=(32, 8), tile=(8, 32))


@kernel(rung=True)
def tiled(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Tiles of 32 x 32 of A and B in shared memory: each element is read from memory once for 32 products, not
    once for each.

    a: m x k, b: k x n, float32 on the GPU.
    """
    _refuse(problem, None)
    return _bound("tiled", problem, a, b, block=(32, 32), tile=(32, 32))


@kernel(rung=True)
def register_tiled(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """8 x 8 of C in each thread's registers, 128 x 128 a block: 16 loads from shared memory feed 64 products,
    not 2 for each.

    a: m x k, b: k x n, float32 on the GPU.
    """
    _refuse(problem, None)
    return _bound("register_tiled", problem, a, b, block=(16, 16), tile=(128, 128))


# ---------------------------------------------------------------- a tile of C for each warp


def operand(array: cupy.ndarray, along: bool, copied: bool) -> Placed:
    """An operand as it lies in memory; or, if `copied`, a copy made anew in each call that lies across k, with rows on 16
    bytes.

    along: whether the operand lies along k, so that the copy transposes it.
    """
    if not copied:
        return in_place(array)
    return transposed(array) if along else aligned(array)


def _in_fours(pitch: int, array: cupy.ndarray) -> int:
    """1 where every row of a float32 matrix begins on 16 bytes, so that four numbers are read at once; else 0.

    pitch: items from row to row.
    """
    return int(pitch % 4 == 0 and array.data.ptr % 16 == 0)


def warps_call(problem: Matmul, plan: TilePlan[Warps], a: Placed, b: Placed, c: cupy.ndarray) -> TimedCall:
    """The timed call that launches matmul/cuda_warp.cu by that plan and returns `c`, m x n (a batch has a leading dimension).
    Upper-case arguments are the source's macros."""
    a_in_fours = _in_fours(a.pitch, a.array)
    b_in_fours = _in_fours(b.pitch, b.array)
    compiled_tiles = plan.tiles if a_in_fours and b_in_fours else plan.tiles.by_items()
    compiled = loader.compile_kernel(
        "matmul/cuda_warp",
        "matmul",
        **compiled_tiles.macros(),
        A_STORED_KM=int(a.is_transposed or problem.layout == "tn"),
        B_STORED_KN=int(b.is_transposed or problem.layout != "nt"),
        VECTOR_A=a_in_fours,
        VECTOR_B=b_in_fours,
        VECTOR=_in_fours(problem.n, c),
    )
    shared_bytes = plan.tiles.shared_bytes
    compiled.max_dynamic_shared_size_bytes = shared_bytes
    work = split_work(plan, problem.m, problem.n)
    k_of_a_part = plan.steps(problem.k) * plan.tiles.deep
    sizes = (problem.m, problem.n, problem.k, a.pitch, b.pitch, work.whole, plan.parts, k_of_a_part)
    scale = np.float32(1)
    arguments = (a.array, b.array, c, *map(np.int32, sizes), work.sums, work.arrived, scale)
    grid = (work.units, problem.count)
    launch = functools.partial(compiled, grid, (plan.tiles.threads,), arguments, shared_mem=shared_bytes)
    run = with_copies(launch, [a, b], in_place(c), c)
    loads = traffic(4, lines_and_results(*plan.tiles.tile), lines_and_results(*plan.tiles.unit))
    run.notes = {"tiles": str(plan), "traffic": loads}
    return run


def _layout_as_multiplied(a_along: bool, b_along: bool) -> str:
    """The layout (`nn`, `nt`, `tn` or `tt`) of operands of which each lies along k or across it."""
    return ("n" if a_along else "t") + ("t" if b_along else "n")


@kernel(batched=True)
def warp_tiled(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """A tile a warp inside the block's: 16-byte loads that neighbors share, stages fetched ahead, a tile of C a
    thread in banks that multiply-adds read at once; few rows or columns, or short sums, straight from memory;
    the fastest here.

    a: m x k, b: k x n (as problem.layout stores them), float32 on the GPU; a batch has a leading dimension.
    """
    if problem.math != "float32":
        raise ValueError(f"this kernel multiplies float32, not {problem.math}")
    count_in_32_bits(problem)
    if problem.count > _MOST_GRID_ROWS:
        raise ValueError(f"a grid has {_MOST_GRID_ROWS:,} products at most, not {problem.count:,}")
    is_single = problem.count == 1
    c = cupy.empty(problem.out_shape, np.float32)
    a_along = problem.layout != "tn"
    b_along = problem.layout == "nt"
    a_copied = is_single and _copy_pays(problem, a)
    b_copied = is_single and _copy_pays(problem, b)
    operand_a = operand(a, a_along, a_copied)
    operand_b = operand(b, b_along, b_copied)
    layout = _layout_as_multiplied(a_along and not a_copied, b_along and not b_copied)
    most_bytes = loader.attribute("MaxSharedMemoryPerBlockOptin")
    forms = [form for form in matmul_tiles.warps(layout, is_single) if form.shared_bytes <= most_bytes]
    plans: list[TilePlan]
    if is_single:
        multiprocessors = loader.attribute("MultiProcessorCount")
        direct = matmul_tiles.direct(problem.m, problem.n, problem.k, multiprocessors)
        ranked = tiles.plans(forms, problem.m, problem.n, problem.k, multiprocessors=multiprocessors)
        plans = [*ranked[: tiles.TRIED - len(direct)], *direct]
    else:  # many of them fit on a multiprocessor, so that one loads while another multiplies
        plans = [TilePlan(tiles=form) for form in forms]

    def call(plan: TilePlan) -> TimedCall:
        if isinstance(plan.tiles, Direct):
            return direct_call(problem, plan, a, b, c=c)
        return warps_call(problem, plan, operand_a, operand_b, c=c)

    return fastest_plan("matmul/cuda_warp", problem, plans, call)


def _copy_pays(problem: Matmul, array: cupy.ndarray) -> bool:
    """Whether the product is faster if this operand is copied into aligned rows first than if it is fetched item by item."""
    saved_s = _BY_ITEMS * problem.flops / _FLOPS_S
    copy_s = _LAUNCH_S + 2 * array.nbytes / _BYTES_S
    return saved_s > copy_s


# ---------------------------------------------------------------- straight from memory


class _Side(NamedTuple):
    """An operand of matmul/cuda_direct.cu, which multiplies few lines of one by many of the other."""

    array: cupy.ndarray
    #: Its lines: rows of A or columns of B.
    lines: int
    #: Whether a line lies along k in memory.
    along: bool
    #: Items of C from line to line.
    c_step: int


def direct_call(
    problem: Matmul, plan: TilePlan[Direct], a: cupy.ndarray, b: cupy.ndarray, c: cupy.ndarray
) -> TimedCall:
    """The timed call that launches matmul/cuda_direct.cu by that plan and returns `c`, m x n. The kernel multiplies few lines
    of one operand by many of the other: where C has few columns, B's by A's. Upper-case arguments are the source's macros."""
    k = problem.k
    few = _Side(array=a, lines=problem.m, along=problem.layout != "tn", c_step=problem.n)
    many = _Side(array=b, lines=problem.n, along=problem.layout == "nt", c_step=1)
    if problem.n <= MOST_FEW and problem.n < problem.m:
        few, many = many, few
    size = a.dtype.itemsize
    along = many.along and k > 1
    vector = (k if along else many.lines) % 4 == 0 and many.array.data.ptr % (4 * size) == 0
    fitted = plan.tiles.fitted(few.lines, along, vector)
    compiled = loader.compile_kernel(
        "matmul/cuda_direct",
        "matmul",
        ALONG=int(along),
        VECTOR=int(vector),
        VECTOR_A=_vectors_of_few(few, fitted, reads_fours_along=along and vector),
        TF32=int(problem.math == "tf32"),
        HALVES=int(size == 2),
        **fitted.macros(),
        TYPE=f'"{ARITHMETIC[problem.math].ptx}"',
    )
    # Groups of columns of the many, and units of work, as the source counts them.
    columns_of_a_group = fitted.columns * (1 if along or vector else fitted.lanes)
    groups = -(-many.lines // columns_of_a_group)
    units = -(-few.lines // fitted.few) * groups * -(-many.lines // (fitted.columns * groups))
    blocks = -(-units // fitted.lanes)
    line_step, k_step = (k, 1) if few.along else (1, few.lines)
    many_pitch = k if along else many.lines
    k_of_a_part = plan.steps(k) * fitted.deep
    sizes = (few.lines, many.lines, k, line_step, k_step, many_pitch, few.c_step, many.c_step, k_of_a_part)
    sums_of_a_block = fitted.lanes * fitted.few * fitted.columns
    sums = cupy.empty(blocks * plan.parts * sums_of_a_block if plan.parts > 1 else 1, np.float32)
    arrived = cupy.zeros(blocks, np.uint32)
    arguments = (few.array, many.array, c, *map(np.int32, sizes), sums, arrived)
    run = timed_call(compiled, (blocks, plan.parts), (fitted.lanes * fitted.deep,), arguments, result=c)
    unit_loads = lines_and_results(fitted.few, fitted.columns)
    run.notes = {"tiles": str(plan), "traffic": traffic(size, unit_loads, unit_loads)}
    return run


def _vectors_of_few(few: _Side, fitted: Direct, *, reads_fours_along: bool) -> int:
    """The macro VECTOR_A of matmul/cuda_direct.cu. 0: items of the few lines are read one by one; 1: four of k at once; 2: of
    four lines at once.

    reads_fours_along: whether the other operand is read by four of k at once.
    """
    if few.array.data.ptr % (4 * few.array.dtype.itemsize):
        return 0
    if few.along:
        return int(reads_fours_along)
    return 2 if fitted.few % 4 == 0 and few.lines % fitted.few == 0 else 0


# ---------------------------------------------------------------- what the CUDA matmuls share


class SplitWork(NamedTuple):
    """The work of a launch where k is split (split_sums.cuh)."""

    #: Units of work: whole tiles, and the parts of the split ones.
    units: int
    #: Tiles that are not split.
    whole: int
    #: Room for the sums of the parts.
    sums: cupy.ndarray
    #: How many parts of a split tile have come.
    arrived: cupy.ndarray


def split_work(plan: TilePlan, m: int, n: int, cluster: int = 1) -> SplitWork:
    """The units of work of a plan for C of m x n, and room for partial sums. cluster: blocks that share one unit."""
    multiprocessors = loader.attribute("MultiProcessorCount")
    units = plan.units(m, n, multiprocessors)
    whole = plan.whole(m, n, multiprocessors)
    parts = 1 if plan.tiles.in_cluster else max(1, (units - whole) * cluster)
    return SplitWork(
        units=units,
        whole=whole,
        sums=cupy.empty(parts * math.prod(plan.tiles.tile), np.float32),
        arrived=cupy.zeros(parts, np.uint32),
    )


def fastest_plan(file: str, problem: Matmul, plans: list, call: Callable[[TilePlan], TimedCall]) -> TimedCall:
    """The timed call of the plan that takes the least time under load, found by timing each once on this GPU.

    file: the kernel's source, for the key under which the choice is stored. call: makes the call of a plan.
    """
    calls = {str(plan): functools.partial(call, plan) for plan in plans}
    batch = f"{problem.count} of " if problem.count > 1 else ""
    name = f"{problem.math} {problem.layout} {batch}{problem.m}x{problem.n}x{problem.k}"
    return autotuner.tuned(file, name, calls)
