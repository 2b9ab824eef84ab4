"""On a GPU: many small products in one launch, our CUDA C kernel against cuBLAS's strided batched call."""

import functools
import sys

import drawn
from drawn import EACH, Case, Row
from gpu_bench import on_gpu
from must_reach import Figure

from kernels.problems import Matmul
from tests.bench import matmul_cuda

OURS, LIBRARY = "matmul/cuda/warp_tiled", ("matmul/cupy/cublas",)
SQUARES, AT_ONCE = (16, 32, 64, 128), 256  # sides of the set, and how many there are in a launch
SIDES, MANY, MOST_FLOPS = (2, 8), (4, 13), 2e11  # drawn: powers of two of a product's sides and of how many in a launch
TARGET = (64, 1.0)


def cases(salt: int, dtypes: list[str]) -> list[Case]:
    """The squares, and what is drawn, half of it multiples of 8 and half of it in layouts with a transposed operand."""
    draw, rng = drawn.draw(salt)
    squares = [Case("square", "squares", Matmul(n, n, n, batch=AT_ONCE)) for n in SQUARES if salt == 0]
    found = []
    while len(found) < 2 * EACH:
        unit = 8 if len(found) % 2 else 1
        m, n, k = (max(1, round(2 ** rng.uniform(*SIDES) / unit)) * unit for _ in range(3))
        layout = ("nn", "nt", "nn", "tn")[len(found) // 2 % 4]
        problem = Matmul(m, n, k, layout=layout, batch=round(2 ** rng.uniform(*MANY)))
        if problem.flops < MOST_FLOPS:
            found.append(Case(draw, "drawn", problem))
    return squares + found


def figures(rows: list[Row]) -> list[Figure]:
    """The square that has the target, the others, what was drawn; then every row."""
    n, least = TARGET
    ratios = [r.ratio for r in rows if r.shape == (AT_ONCE, n, n, n)]
    found = drawn.claim(f"float32, {AT_ONCE} products of {n} x {n}", ratios, least)
    for kind in ("squares", "drawn"):
        found += drawn.claim(f"float32, {kind}", [r.ratio for r in rows if r.kind == kind], None)
    return found + drawn.details(rows)


BENCH = drawn.Bench(
    "batched",
    "Many small products in one launch against cuBLAS's strided batched call",
    ("float32",),
    cases,
    functools.partial(matmul_cuda.measure, ours=OURS, libraries=LIBRARY),
    figures,
    f"{2 * EACH} drawn: sides of 4 to 256, 16 to 8,192 at once.",
)


if __name__ == "__main__":
    sys.exit(drawn.main(BENCH) if "--print" in sys.argv else on_gpu(lambda: drawn.main(BENCH), compiles=True))
