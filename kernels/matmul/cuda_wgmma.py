"""Matmul in CUDA C for Hopper: TMA, wgmma and warps with roles of their own."""

from typing import NamedTuple

import cupy
import numpy as np

from kernels.cuda import loader, matmul_tiles, tiles
from kernels.cuda.matmul_tiles import Groups
from kernels.cuda.rows import Placed, copying, placed
from kernels.cuda.tiles import LINE, Plan, traffic
from kernels.matmul import cuda_tensor
from kernels.matmul.cuda import count_in_32_bits, direct_call, fastest_plan, split_sums
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, HALVES
from kernels.registry import kernel

_FEW_COPIED = 64  # rows or columns: with more a product takes longer than copies of its operands
# Of two operands of four bytes that lie across k wgmma can take one.
LAYOUTS = dict.fromkeys(HALVES, ("nn", "nt", "tn")) | {"tf32": ("nn", "nt")}


class Seen(NamedTuple):
    """A product as matmul/cuda_wgmma.cu computes it, k counted in items of two bytes. tf32 nn is C^T = B^T A^T there: wgmma takes
    items of four bytes from shared memory along k alone, and others from registers, for its left side."""

    m: int
    n: int
    k: int
    layout: str
    item_bytes: int

    @property
    def forms(self) -> list[matmul_tiles.Groups]:
        return matmul_tiles.groups(self.layout, self.item_bytes)


def seen(problem: Matmul) -> Seen:
    """The product as the kernel computes it."""
    m, n, k, layout = problem.m, problem.n, problem.k, problem.layout
    if problem.math != "tf32":
        return Seen(m, n, k, layout, 2)
    return Seen(n, m, 2 * k, "tt", 4) if layout == "nn" else Seen(m, n, 2 * k, layout, 4)


def call(problem: Matmul, plan: Plan[Groups], a: Placed, b: Placed, c: Placed, result, *bias, early: bool = True):
    """The call of matmul/cuda_wgmma.cu with those tiles, k in that many parts. early: launched before the one before it has
    ended."""
    of, k, (m, n, wide_k, layout, size) = plan.of, problem.k, seen(problem)
    turned, a_km, b_kn = layout == "tt", int(layout[0] == "t"), int(layout[1] == "n")
    macros = {"TYPE": f'"{ARITHMETIC[problem.math].ptx}"', "TF32": int(size == 4), "BIAS_RELU": len(bias)}
    macros |= {"A_STORED_KM": a_km, "B_STORED_KN": b_kn, **of.macros()}
    compiled = loader.load("matmul/cuda_wgmma", "matmul", _arch="sm_90a", **macros)
    compiled.max_dynamic_shared_size_bytes = of.shared_bytes
    (a_share, b_share), deep = of.shares(), LINE // size
    item, out = (loader.TFLOAT32, loader.FLOAT32) if size == 4 else (loader.UINT16, loader.UINT16)
    maps = [
        loader.tensor_map(x.array.data.ptr, shape, x.pitch, (lines, deep), kind)
        for x, shape, lines, kind in (
            (b if turned else a, (k, m) if a_km else (m, k), deep if a_km else a_share, item),
            (a if turned else b, (k, n) if b_kn else (n, k), deep if b_kn else b_share, item),
            (c, (n, m) if turned else (m, n), 64, out),
        )
    ]
    maps.append(loader.tensor_map(c.array.data.ptr, (n, m) if turned else (m, n), c.pitch, (64, deep // 2), out))
    units, whole, sums = split_sums(plan, m, n, of.cluster)
    at_once = units if of.in_cluster else min(units, of.slots(loader.attribute("MultiProcessorCount")))
    counts = map(np.int32, (m, n, k, of.group(), whole, plan.parts, plan.steps(wide_k)))
    arguments = (*maps, *counts, *sums, *(bias or sums[:1]))
    launch = loader.overlapping(compiled, at_once * of.sharing, of.threads, arguments, of.shared_bytes, early=early)
    run = copying(launch, [a, b], c, result)
    tile_m, tile_n = of.tile
    loaded = a_share + (-(-b_share // deep) * deep if b_kn else b_share)
    loads = traffic(result.dtype.itemsize, (loaded, tile_m * tile_n), (64 + tile_n, 64 * tile_n))
    run.notes = {"tiles": str(plan), "traffic": loads}
    return run


@kernel(fused=True)
def wgmma(problem: Matmul, a, b, *bias):
    """Four warps at once multiply tiles straight from shared memory (wgmma), a warp has TMA fill a ring of
    them, which blocks of a cluster share, results leave by TMA while the next tile begins; the tiles are the
    fastest of several here."""
    if problem.layout not in LAYOUTS.get(problem.math, ()) or problem.out != problem.dtype:
        wanted = f"{problem.math} {problem.layout} to {problem.out}"
        raise ValueError(f"this kernel multiplies float16, bfloat16 and (no tn) tf32 into their own type, not {wanted}")
    if bias and problem.math not in HALVES:
        raise ValueError(f"this kernel adds a bias to {' and '.join(HALVES)} alone")
    count_in_32_bits(problem)
    loader.require(90, only=True)
    result = cupy.empty((problem.m, problem.n), a.dtype)
    operands = placed(a, line=LINE), placed(b, line=LINE), placed(result, out=True)
    of = seen(problem)
    multiprocessors = loader.attribute("MultiProcessorCount")
    aligned = all(x.pitch * a.dtype.itemsize % LINE == 0 for x in operands[:2])
    found: list[Plan] = tiles.plans(of.forms, of.m, of.n, of.k, multiprocessors, aligned=aligned)
    if not bias:  # few rows or short sums, and where copies would take longer than the product: straight from memory
        others: list[Plan] = matmul_tiles.direct(problem.m, problem.n, problem.k, multiprocessors)
        if min(of.m, of.n) <= _FEW_COPIED and any(x.copy for x in operands):
            others += cuda_tensor.plans(problem)[: max(1, 2 - len(others))]
        found[tiles.TRIED - len(others) :] = others

    def called(plan: Plan):
        if isinstance(plan.of, Groups):
            return call(problem, plan, *operands, result, *bias)
        in_place = direct_call if isinstance(plan.of, matmul_tiles.Direct) else cuda_tensor.call
        return in_place(problem, plan, a, b, result)

    return fastest_plan("matmul/cuda_wgmma", problem, found, called)
