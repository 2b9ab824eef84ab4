"""Every form of our matmuls with tiles on a GPU, k in one part and in several: exact on whole numbers at awkward shapes; those
that the model ranks first also with more than 2^31 items."""

import argparse
import concurrent.futures
import contextlib
import itertools
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

import drawn
from gpu_bench import on_gpu
from must_reach import Figure, exactly, table

from kernels.cuda import matmul_tiles, thin_tiles, tiles
from kernels.problems import Matmul
from workloads.harness import copy_modes

LAYOUTS = ("nn", "nt", "tn")
SHAPES = [(1, 1, 1), (17, 33, 65), (131, 137, 35), (72, 136, 72), (9, 15, 327), (200, 392, 1048), (520, 264, 4104)]
# for the direct forms alone
FEW = [(1, 68, 1030), (3, 70, 1028), (68, 4, 260), (67, 3, 259), (40, 17, 9), (7, 690, 2671)]
# for few rows alone; every row begins on 16 bytes, and of the last shape each cluster has several tiles
THIN = [(1, 64, 512), (7, 72, 520), (16, 200, 1000), (17, 1000, 712), (33, 72, 4104), (64, 520, 1032), (24, 35000, 264)]
PRECISIONS = (("bfloat16", "bfloat16"), ("float32", "tf32"))
PARTS, BATCH = (1, 2, 3, 5, 16), 5
KINDS = ("wgmma", "tensors", "warps", "direct", "small", "thin", "large")
# large: results, operands, rows and tiles past what 32 bits count
SIDE, LONG, LONGER = 46400, (1 << 28) + 5, (1 << 29) + 3
LARGE = [((SIDE, SIDE, 16), "nn"), ((SIDE, SIDE, 17), "nt"), ((LONG, 9, 3), "nn"), ((9, LONG, 3), "tn")]
LARGE += [*(((5, 7, LONGER), way) for way in ("nn", "tn")), ((3, (1 << 30) + (1 << 20) + 1, 1), "nn")]
LARGE += [((2, 1 << 19, 1 << 13), way) for way in ("nn", "nt")]


class Form(NamedTuple):
    """A plan as a kernel whose `bind` the benches call, and what it is tried on."""

    plan: tiles.TilePlan | thin_tiles.Thin
    problem: Matmul
    copied: bool = False

    def bind(self, problem: Matmul, a, b):
        import cupy

        from kernels.cuda import rows
        from kernels.matmul import cuda, cuda_tensor, cuda_thin, cuda_wgmma

        c = cupy.empty(problem.out_shape, a.dtype)
        if isinstance(self.plan, thin_tiles.Thin):
            return cuda_thin.call(problem, self.plan, a, b, c=c)
        if isinstance(self.plan.tiles, matmul_tiles.Tensors):
            return cuda_tensor.call(problem, self.plan, a, b, c=c)
        if isinstance(self.plan.tiles, matmul_tiles.Direct):
            return cuda.direct_call(problem, self.plan, a, b, c=c)
        if isinstance(self.plan.tiles, matmul_tiles.Warps):
            placed_a = cuda.operand(a, problem.layout != "tn", self.copied)
            placed_b = cuda.operand(b, problem.layout == "nt", self.copied)
            return cuda.warps_call(problem, self.plan, placed_a, placed_b, c=c)
        operands = [rows.aligned(x, line_bytes=tiles.LINE) for x in (a, b)]
        return cuda_wgmma.call(problem, self.plan, operands, c=rows.aligned(c, is_result=True), result=c)


def thin_forms() -> Iterator[Form]:
    """All forms for few rows."""
    for shape, layout, (dtype, math) in itertools.product(THIN, ("nn", "nt"), PRECISIONS):
        problem = Matmul(*shape, dtype, math, layout=layout)
        item_bytes = 4 if math == "tf32" else 2
        for form in thin_tiles.forms(problem.m, problem.k, item_bytes):
            yield Form(form, problem)


def forms(kinds: list[str]) -> Iterator[Form]:
    """All of them, in every layout, at every shape, in every number of parts that leaves none empty; the small ones on many at
    once."""
    from kernels.matmul import cuda_wgmma

    if "thin" in kinds:
        yield from thin_forms()
    for shape, layout in [*itertools.product(SHAPES + FEW * ("direct" in kinds), LAYOUTS), *LARGE * ("large" in kinds)]:
        large = (shape, layout) in LARGE
        kinds = KINDS[:4] if large else ["direct"] if shape in FEW else kinds
        tried = [(Matmul(*shape, layout=layout), matmul_tiles.warps(layout))] * ("warps" in kinds)
        for dtype, math in PRECISIONS:
            problem = Matmul(*shape, dtype, math, layout=layout)
            tried += [(problem, matmul_tiles.TENSORS)] * ("tensors" in kinds)
            if "wgmma" in kinds and layout in cuda_wgmma.LAYOUTS[math]:
                tried.append((problem, cuda_wgmma.hopper_product(problem).forms))
        for problem, forms in tried:
            k = problem.k if problem.math == "float32" else cuda_wgmma.hopper_product(problem).k
            plans = [
                tiles.TilePlan(tiles=of, parts=parts)
                for of in forms
                for parts in PARTS
                if parts in of.parts(max(PARTS))
            ]
            plans = [plan for plan in plans if plan.leaves_none_empty(k)]
            plans = tiles.plans(forms, *shape[:2], k, multiprocessors=132)[:1] if large else plans
            ways = (False, True) if problem.math == "float32" else (False,)
            yield from (Form(plan, problem, copied) for plan in plans for copied in ways)
        plans = matmul_tiles.direct(*shape, 132) if "direct" in kinds else []
        plans += [tiles.TilePlan(tiles=plan.tiles, parts=3) for plan in plans if plan.tiles.deep > 1]
        for plan, precision in itertools.product(plans, (("float32",), ("bfloat16",), ("float32", "tf32"))):
            yield Form(plan, Matmul(*shape, *precision, layout=layout))
        for of in matmul_tiles.warps(layout, single=False) if "small" in kinds else ():
            yield Form(tiles.TilePlan(tiles=of), Matmul(*shape, layout=layout, batch=BATCH))


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    every = list(forms(kinds := flags.parse_args().kinds))
    import cupy

    device, stream, alone = cupy.cuda.Device(), copy_modes.gpu_stream(), threading.Lock()

    def is_exact(form: Form) -> bool | None:
        large = form.problem.bytes_moved > 1 << 31
        device.use()  # a thread of the pool has no context yet
        try:
            with alone if large else contextlib.nullcontext(), stream:
                return drawn.is_exact(form.problem, form)
        except cupy.cuda.memory.OutOfMemoryError:
            return None
        finally:
            if large:
                cupy.get_default_memory_pool().free_all_blocks()

    with concurrent.futures.ThreadPoolExecutor() as pool:  # their compilations take a second each
        found = dict(zip(every, pool.map(is_exact, every), strict=True))
    bad = {form: exact for form, exact in found.items() if not exact}  # None: the GPU's memory is too small
    print(*(f"{exact}: {form}" for form, exact in list(bad.items())[:20]), sep="\n", file=sys.stderr)
    wrong, tried = list(bad.values()).count(False), len(every) - list(bad.values()).count(None)
    lost = [form for form, exact in bad.items() if exact is None and form.problem.bytes_moved <= 1 << 31]
    figure = Figure("products that are not exact", f"0 of {tried}", exactly(wrong), not (wrong or lost))
    args = "" if kinds == list(KINDS) else f"--kinds {' '.join(kinds)}"
    return table(
        "tiles", "Every form of our matmuls with tiles, exact on whole numbers", [figure], kind="stress", args=args
    )


if __name__ == "__main__":
    sys.exit(on_gpu(main))
