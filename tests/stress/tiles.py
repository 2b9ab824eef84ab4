"""Every form of our tensor-core matmul on a GPU, k in one part and in several: exact on whole numbers at awkward shapes."""

import argparse
import itertools
import sys

from gpu_bench import on_gpu, same
from must_reach import Figure, exactly, table

from kernels import registry
from kernels.cuda import matmul_tiles
from kernels.matmul import cuda_wgmma
from kernels.problems import Matmul
from workloads.harness import copy_modes

SHAPES = [(1, 1, 1), (17, 33, 65), (131, 137, 35), (72, 136, 72), (9, 15, 327), (200, 392, 1048), (520, 264, 4104)]
PARTS = (1, 2, 3, 5, 16)


class Form:
    """One plan as a kernel whose `bind` the benches call."""

    def __init__(self, plan: matmul_tiles.Plan):
        self.plan = plan

    def bind(self, problem: Matmul, a, b):
        import cupy

        c = cupy.empty((problem.m, problem.n), a.dtype)
        operands = cuda_wgmma.placed(a), cuda_wgmma.placed(b), cuda_wgmma.placed(c, out=True)
        return cuda_wgmma.call(problem, self.plan, *operands, c)


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.parse_args()
    library, wrong, count = registry.find("matmul/cupy/cublas"), [], 0
    with copy_modes.gpu_stream():
        for of, layout, shape in itertools.product(matmul_tiles.GROUPS, ("nn", "nt", "tn"), SHAPES):
            if not of.fits(layout):
                continue
            problem = Matmul(*shape, "bfloat16", layout=layout)
            plans = [matmul_tiles.Plan(of, parts) for parts in PARTS]
            plans = [
                plan for plan in plans if (plan.parts - 1) * plan.deep(problem.k) < -(-problem.k // matmul_tiles.DEEP)
            ]
            count += len(plans)
            wrong += [f"{plan} {problem}" for plan in plans if not same([Form(plan)] * 2, library, problem)]
    print(*wrong[:20], sep="\n", file=sys.stderr)
    figure = Figure("products that are not exact", f"0 of {count}", exactly(len(wrong)), not wrong)
    return table("tiles", "Every form of the wgmma matmul, exact on whole numbers", [figure], kind="stress")


if __name__ == "__main__":
    sys.exit(on_gpu(main))
