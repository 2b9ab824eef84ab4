"""Matmul in CUDA C for Hopper: TMA, wgmma and warps with roles of their own."""

from collections.abc import Sequence
from typing import NamedTuple

import cupy
import numpy as np

from kernels.cuda import loader, matmul_tiles, tiles
from kernels.cuda.matmul_tiles import Direct, Groups
from kernels.cuda.rows import Placed, aligned, with_copies
from kernels.cuda.tiles import LINE, TilePlan, lines_and_results, traffic
from kernels.matmul import cuda_tensor
from kernels.matmul.cuda import count_in_32_bits, direct_call, fastest_plan, split_work
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import TimedCall, kernel

#: Most rows or columns of a product that takes less time than copies of its operands.
_FEW_COPIED = 64
#: Arithmetic -> layouts. Of two operands of four bytes that lie across k wgmma can take one.
LAYOUTS = dict.fromkeys(HALVES, ("nn", "nt", "tn")) | {"tf32": ("nn", "nt")}


class HopperProduct(NamedTuple):
    """A product as matmul/cuda_wgmma.cu computes it.

    tf32 nn is C^T = B^T A^T there: wgmma takes items of four bytes from shared memory along k alone, and others from registers,
    for its left side.
    """

    m: int
    n: int
    #: In items of two bytes.
    k: int
    #: `t` of the left side or `n` of the right side: it lies across k. `tt`: both sides are those of C^T.
    layout: str
    item_bytes: int

    @property
    def is_transposed(self) -> bool:
        """Whether it computes C^T."""
        return self.layout == "tt"

    @property
    def forms(self) -> list[Groups]:
        """The tiles that can be compiled for it."""
        return matmul_tiles.groups(self.layout, self.item_bytes)


def hopper_product(problem: Matmul) -> HopperProduct:
    """The problem as the kernel computes it: k counted in items of two bytes, and of tf32 stored nn the transpose of C."""
    if problem.math != "tf32":
        return HopperProduct(m=problem.m, n=problem.n, k=problem.k, layout=problem.layout, item_bytes=2)
    k = 2 * problem.k
    if problem.layout == "nn":
        return HopperProduct(m=problem.n, n=problem.m, k=k, layout="tt", item_bytes=4)
    return HopperProduct(m=problem.m, n=problem.n, k=k, layout=problem.layout, item_bytes=4)


def _operand_map(operand: Placed, side: int, k: int, *, across: bool, share: int, item_bytes: int) -> np.ndarray:
    """The TMA descriptor (a CUtensorMap, passed by value) by which a block loads its share of an operand.

    side: rows of the left operand or columns of the right one.
    across: whether it is stored k x side, so that it lies across k, not side x k.
    share: how many of the `side` lines the block loads; across k it loads boxes as wide as a line of shared memory.
    """
    line_items = LINE // item_bytes
    shape = (k, side) if across else (side, k)
    box_rows = line_items if across else share
    item = loader.TFLOAT32 if item_bytes == 4 else loader.UINT16
    return loader.tensor_map(operand.array.data.ptr, shape, operand.pitch, (box_rows, line_items), item=item)


def _result_map(c: Placed, shape: tuple[int, int], columns: int, item_bytes: int) -> np.ndarray:
    """The TMA descriptor (a CUtensorMap, passed by value) by which C, of `shape`, is stored in boxes of 64 rows x `columns`."""
    item = loader.FLOAT32 if item_bytes == 4 else loader.UINT16
    return loader.tensor_map(c.array.data.ptr, shape, c.pitch, (64, columns), item=item)


def _compiled(problem: Matmul, product: HopperProduct, groups: Groups, bias_count: int) -> "cupy.RawKernel":
    """Compiles matmul/cuda_wgmma.cu for a product by those tiles; its upper-case arguments are the source's macros.

    bias_count: 1 to add a bias and apply ReLU before C is stored, else 0.
    """
    a_across, b_across = matmul_tiles.is_across(product.layout)
    compiled = loader.compile_kernel(
        "matmul/cuda_wgmma",
        "matmul",
        _arch="sm_90a",
        TYPE=f'"{ARITHMETIC[problem.math].ptx}"',
        TF32=int(product.item_bytes == 4),
        BIAS_RELU=bias_count,
        A_STORED_KM=int(a_across),
        B_STORED_KN=int(b_across),
        **groups.macros(),
    )
    compiled.max_dynamic_shared_size_bytes = groups.shared_bytes
    return compiled


def _maps(
    problem: Matmul, product: HopperProduct, groups: Groups, operands: Sequence[Placed], *, c: Placed
) -> list[np.ndarray]:
    """The four TMA descriptors that the kernel takes: of its left and right operand, of C by lines of 128 bytes, and of C by
    half lines.

    operands: A and B; the kernel's left operand is B where it computes the transpose of C.
    """
    left, right = reversed(operands) if product.is_transposed else operands
    a_across, b_across = matmul_tiles.is_across(product.layout)
    a_share, b_share = groups.shares()
    size = product.item_bytes
    c_shape = (problem.m, problem.n)
    return [
        _operand_map(left, product.m, problem.k, across=a_across, share=a_share, item_bytes=size),
        _operand_map(right, product.n, problem.k, across=b_across, share=b_share, item_bytes=size),
        _result_map(c, c_shape, LINE // size, size),
        _result_map(c, c_shape, LINE // size // 2, size),
    ]


def _traffic(product: HopperProduct, groups: Groups) -> str:
    """Text with the bytes that a block loads per FLOP: its share of both operands. Of a B that lies across k it loads whole
    boxes."""
    tile_m, tile_n = groups.tile
    a_share, b_share = groups.shares()
    line_items = LINE // product.item_bytes
    _, b_across = matmul_tiles.is_across(product.layout)
    b_lines = -(-b_share // line_items) * line_items if b_across else b_share
    return traffic(product.item_bytes, (a_share + b_lines, tile_m * tile_n), lines_and_results(*groups.unit))


def call(
    problem: Matmul,
    plan: TilePlan[Groups],
    operands: Sequence[Placed],
    *,
    c: Placed,
    result: cupy.ndarray,
    bias: Sequence[cupy.ndarray] = (),
    early: bool = True,
) -> TimedCall:
    """The call that launches matmul/cuda_wgmma.cu by that plan and returns `result`, C of m x n.

    operands: A and B.
    c: where the kernel writes, `result` itself or a copy of it with aligned rows.
    bias: empty, or one array: the n numbers that are added to C's columns before ReLU.
    early: its blocks start while the launch before it ends (programmatic dependent launch).
    """
    product = hopper_product(problem)
    groups = plan.tiles
    compiled = _compiled(problem, product, groups, len(bias))
    maps = _maps(problem, product, groups, operands, c=c)
    work = split_work(plan, product.m, product.n, groups.cluster)
    stages_of_a_part = plan.steps(product.k)
    sizes = (product.m, product.n, problem.k, groups.group(), work.whole, plan.parts, stages_of_a_part)
    last = bias or (work.sums,)  # the sums stand for a bias that is not read
    arguments = (*maps, *map(np.int32, sizes), work.sums, work.arrived, *last)
    clusters = work.units
    if not groups.in_cluster:
        clusters = min(work.units, groups.slots(loader.attribute("MultiProcessorCount")))
    blocks = clusters * groups.sharing
    launch = loader.overlapping(compiled, blocks, groups.threads, arguments, groups.shared_bytes, early=early)
    run = with_copies(launch, operands, c, result)
    run.notes = {"tiles": str(plan), "traffic": _traffic(product, groups)}
    return run


def _plans_straight_from_memory(problem: Matmul, product: HopperProduct, has_copies: bool) -> list[TilePlan]:
    """Plans of other kernels to time beside this one's: for few rows or short sums, and where copies take longer than the
    product.

    has_copies: whether an operand or C must be copied to have aligned rows.
    """
    multiprocessors = loader.attribute("MultiProcessorCount")
    plans: list[TilePlan] = [*matmul_tiles.direct(problem.m, problem.n, problem.k, multiprocessors)]
    if has_copies and min(product.m, product.n) <= _FEW_COPIED:
        plans += cuda_tensor.plans(problem)[: max(1, 2 - len(plans))]
    return plans


@kernel(fused=True)
def wgmma(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray, *bias: cupy.ndarray) -> TimedCall:
    """Four warps at once multiply tiles straight from shared memory (wgmma), a warp has TMA fill a ring of
    them, which blocks of a cluster share, results leave by TMA while the next tile begins; the tiles are the
    fastest of several here.

    a: m x k, b: k x n (as problem.layout stores them), bias: n numbers or none; all on the GPU.
    """
    if problem.layout not in LAYOUTS.get(problem.math, ()) or problem.out != problem.dtype:
        wanted = f"{problem.math} {problem.layout} to {problem.out}"
        raise ValueError(f"this kernel multiplies float16, bfloat16 and (no tn) tf32 into their own type, not {wanted}")
    if bias and problem.math not in HALVES:
        raise ValueError(f"this kernel adds a bias to {' and '.join(HALVES)} alone")
    count_in_32_bits(problem)
    loader.require_capability(90, only=True)
    result = cupy.empty((problem.m, problem.n), a.dtype)
    aligned_a = aligned(a, line_bytes=LINE)
    aligned_b = aligned(b, line_bytes=LINE)
    aligned_c = aligned(result, is_result=True)
    product = hopper_product(problem)
    size = a.dtype.itemsize
    plans: list[TilePlan] = tiles.plans(
        product.forms,
        product.m,
        product.n,
        product.k,
        multiprocessors=loader.attribute("MultiProcessorCount"),
        aligned=aligned_a.pitch * size % LINE == 0 and aligned_b.pitch * size % LINE == 0,
    )
    if not bias:
        has_copies = any(matrix.copy for matrix in (aligned_a, aligned_b, aligned_c))
        others = _plans_straight_from_memory(problem, product, has_copies)
        plans = [*plans[: tiles.TRIED - len(others)], *others]

    def bind(plan: TilePlan) -> TimedCall:
        """The call of the product by that plan, with the kernel that the plan's tiles belong to."""
        if isinstance(plan.tiles, Groups):
            return call(problem, plan, (aligned_a, aligned_b), c=aligned_c, result=result, bias=bias)
        if isinstance(plan.tiles, Direct):
            return direct_call(problem, plan, a, b, c=result)
        return cuda_tensor.call(problem, plan, a, b, c=result)

    return fastest_plan("matmul/cuda_wgmma", problem, plans, bind)
