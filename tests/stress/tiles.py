"""Every form of our matmuls with tiles on a GPU, k in one part and in several: exact on whole numbers at awkward shapes."""

import argparse
import concurrent.futures
import itertools
import sys
from collections.abc import Iterator
from typing import NamedTuple

import drawn
from gpu_bench import on_gpu
from must_reach import Figure, exactly, table

from kernels.cuda import matmul_tiles
from kernels.problems import Matmul
from workloads.harness import copy_modes

LAYOUTS = ("nn", "nt", "tn")
SHAPES = [(1, 1, 1), (17, 33, 65), (131, 137, 35), (72, 136, 72), (9, 15, 327), (200, 392, 1048), (520, 264, 4104)]
PARTS, BATCH = (1, 2, 3, 5, 16), 5
KINDS = ("wgmma", "warps", "small")


class Form(NamedTuple):
    """Tiles and parts of k as a kernel whose `bind` the benches call, and what it is tried on."""

    of: matmul_tiles.Groups | matmul_tiles.Warps
    parts: int
    problem: Matmul

    def bind(self, problem: Matmul, a, b):
        import cupy

        from kernels.matmul import cuda, cuda_wgmma

        c = cupy.empty(problem.out_shape, a.dtype)
        if isinstance(self.of, matmul_tiles.Warps):
            return cuda.warps_call(problem, self.of, self.parts, a, b, c)
        operands = cuda_wgmma.placed(a), cuda_wgmma.placed(b), cuda_wgmma.placed(c, out=True)
        return cuda_wgmma.call(problem, matmul_tiles.Plan(self.of, self.parts), *operands, c)


def forms(kinds: list[str]) -> Iterator[Form]:
    """All of them, in every layout, at every shape, in every number of parts that leaves none empty; the small ones on many at
    once."""
    for layout, shape in itertools.product(LAYOUTS, SHAPES):
        half, single = Matmul(*shape, "bfloat16", layout=layout), Matmul(*shape, layout=layout)
        wgmma = [(of, half, matmul_tiles.DEEP) for of in matmul_tiles.GROUPS if of.fits(layout)]
        warps = [(of, single, of.deep) for of in matmul_tiles.WARPS]
        for of, problem, deep in wgmma * ("wgmma" in kinds) + warps * ("warps" in kinds):
            steps = -(-problem.k // deep)
            yield from (Form(of, parts, problem) for parts in PARTS if (parts - 1) * -(-steps // parts) < steps)
        for of in matmul_tiles.SMALL if "small" in kinds else ():
            yield Form(of, 1, Matmul(*shape, layout=layout, batch=BATCH))


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    every = list(forms(flags.parse_args().kinds))
    import cupy

    device, stream = cupy.cuda.Device(), copy_modes.gpu_stream()

    def is_exact(form: Form) -> bool:
        device.use()  # a thread of the pool has no context yet
        with stream:
            return drawn.is_exact(form.problem, form)

    with concurrent.futures.ThreadPoolExecutor() as pool:  # their compilations take a second each
        wrong = [form for form, exact in zip(every, pool.map(is_exact, every), strict=True) if not exact]
    print(*(f"{form}" for form in wrong[:20]), sep="\n", file=sys.stderr)
    figure = Figure("products that are not exact", f"0 of {len(every)}", exactly(len(wrong)), not wrong)
    return table("tiles", "Every form of our matmuls with tiles, exact on whole numbers", [figure], kind="stress")


if __name__ == "__main__":
    sys.exit(on_gpu(main))
