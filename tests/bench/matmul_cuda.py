"""On a GPU: our CUDA C matmuls against the faster of cuBLAS and cuBLASLt, at shapes that nobody chose, and at those of layers."""

import contextlib
import functools
import itertools
import math
import sys

import drawn
import numpy as np
from drawn import CLASSES, EACH, LARGE, Case, Row
from gpu_bench import on_gpu
from must_reach import Figure

from kernels import networks, registry
from kernels.cuda import thin_tiles
from kernels.problems import Matmul, Stream
from kernels.problems.arrays import precision
from workloads.machine import facts

SQUARES = (2048, 4096, 8192)
THIN, THINNEST, LONGEST = 2, 64, 16384  # shapes of a class with a side of at most so much, any side
WGMMA, TENSOR, WARP = "matmul/cuda/wgmma", "matmul/cuda/tensor_core", "matmul/cuda/warp_tiled"
OURS = {"bfloat16": WGMMA, "tf32": WGMMA, "float32": WARP}
LAYOUTS = {"bfloat16": ("nt", "nn"), "tf32": ("nt", "nn"), "float32": ("nn", "nt", "tn")}
LIBRARIES = ("matmul/cupy/cublas", "matmul/cublaslt/best")
BATCHES = (1, 32, 256)
TOKENS, WIDTH = 128, 768  # of a transformer block: of a sample; its products are 3, 1 and 4 times as wide, and back
#: Our kernel of products with few rows, which are bound by reading B.
THIN_KERNEL = "matmul/cuda/thin"
#: Class -> megabytes of B and how many are drawn. The L2 is always flushed.
FEW_ROWS_CLASSES = {
    "few rows, 4 to 8 MB": (4, 8, 2),
    "few rows, 8 to 32 MB": (8, 32, 14),
    "few rows, 32 to 64 MB": (32, 64, 14),
    "few rows, 64 to 100 MB": (64, 100, 2),
    "few rows, 100 to 512 MB": (100, 512, 14),
}
#: The floor: our kernel that reads an array, on B.
READING = "stream/cupy/wide"
#: Classes, their target against the library, and that as a share of the reading kernel's rate.
FEW_ROWS_TARGETS = {
    "8 to 64 MB": (tuple(FEW_ROWS_CLASSES)[1:3], 1.10, None),
    "32 to 64 MB": (tuple(FEW_ROWS_CLASSES)[2:3], None, 0.75),
    "100 to 512 MB": (tuple(FEW_ROWS_CLASSES)[4:], 0.98, 0.85),
}
#: Algorithms that cuBLASLt offers at most, and calls of each with a cold L2 by which its fastest is chosen.
OFFERED, CHOOSING_CALLS = 16, 7
TARGETS = {
    ("bfloat16", "drawn, > 1 GFLOP", LARGE): (0.98, 0.85),
    ("bfloat16", "squares", ("squares",)): (1.0, 0.0),
    ("bfloat16", "drawn, < 1 GFLOP", tuple(CLASSES)[:1]): (0.95, 0.0),
    ("tf32 nt", "drawn", tuple(CLASSES)): (0.95, 0.0),
    ("tf32 nn", "drawn", tuple(CLASSES)): (0.85, 0.0),
    ("float32", "drawn", tuple(CLASSES)): (0.95, 0.75),
    ("float32", "layers", ("layers",)): (1.0, 0.0),
    ("tf32", "layers", ("layers",)): (1.0, 0.0),
    ("bfloat16", "layers", ("layers",)): (1.0, 0.0),
}


def shapes(salt: int, classes: dict[str, tuple[float, float]] = CLASSES) -> dict[str, list[tuple[int, int, int]]]:
    """Class -> its shapes (m, n, k), of FLOPs between two powers of ten."""
    rng = drawn.draw(salt)[1]
    found: dict[str, list[tuple[int, int, int]]] = {}
    for name, (low, high) in classes.items():
        found[name] = []
        for i in range(EACH):
            products = 10 ** rng.uniform(low, high) / 2
            sides = 2.0 ** rng.uniform(-2, 2, 3)
            if i < THIN:
                thin = rng.integers(3)
                sides[thin] = rng.integers(1, THINNEST + 1)
                others = [j for j in range(3) if j != thin]
                sides[others] *= math.sqrt(products / math.prod(sides))
            else:
                sides *= (products / math.prod(sides)) ** (1 / 3)
            unit = 8 if i % 2 else 1
            m, n, k = (int(np.clip(round(side / unit), 1, LONGEST // unit)) * unit for side in sides)
            found[name].append((m, n, k))
    return found


def layers(name: str) -> list[Matmul]:
    """The products of the models' dense layers and of a transformer block, in every direction and batch, each once."""
    of, found = precision(name), {}
    for batch in BATCHES:
        for model in ("cifar10-mlp", "fashion-mlp", "mnist-cnn", "resnet-50"):
            works = networks.step(networks.find(model), batch, *of)
            found |= {w.problem: None for w in works if w.kind == "dense"}
        for a, b in ((1, 3), (1, 1), (1, 4), (4, 1)):
            rows, fan_in, fan_out = batch * TOKENS, a * WIDTH, b * WIDTH
            found[Matmul(rows, fan_out, fan_in, *of)] = None
            found[Matmul(rows, fan_in, fan_out, *of, layout="nt")] = None
            found[Matmul(fan_in, fan_out, rows, *of, layout="tn")] = None
    return [problem for problem in found if name != "tf32" or problem.layout != "tn"]  # which tensor cores do not take


def cases(salt: int, dtypes: list[str]) -> list[Case]:
    """The squares, the layers and what is drawn, in every layout that we have."""
    hopper = facts.describe().gpus[0].compute_capability == "9.0"
    found = few_rows(salt) if hopper and "bfloat16" in dtypes else []
    for dtype in (d for d in dtypes if d == "float32" or hopper):
        for layout in LAYOUTS[dtype]:
            made = functools.partial(Matmul, dtype=precision(dtype)[0], math=precision(dtype)[1], layout=layout)
            found += [Case("square", "squares", made(n, n, n)) for n in SQUARES if salt == 0]
            for kind, of in shapes(salt).items():
                found += [Case(drawn.draw(salt)[0], kind, made(*shape)) for shape in of]
        found += [Case("layers", "layers", problem) for problem in (layers(dtype) if salt == 0 else ())]
    return found


def few_rows(salt: int) -> list[Case]:
    """Products with 1 to 128 rows, their number drawn as a power of two; B as wide as high within a factor of four, its sides
    multiples of 8 (TMA's), stored either way."""
    draw, rng = drawn.draw(salt)
    cases = []
    for kind, (least, most, count) in FEW_ROWS_CLASSES.items():
        for i in range(count):
            rows = round(2 ** rng.uniform(0, 7))
            items = math.exp(rng.uniform(math.log(least), math.log(most))) * 1e6 / 2
            n = round(math.sqrt(items) * 2 ** rng.uniform(-1, 1) / 8) * 8
            k = round(items / n / 8) * 8
            cases.append(Case(draw, kind, Matmul(rows, n, k, "bfloat16", layout=LAYOUTS["bfloat16"][i % 2])))
    return cases


def torch_call(problem: Matmul, a, b):
    """The product by PyTorch on the current stream.

    Raises: ImportError where it is not installed.
    """
    import cupy
    import torch

    left, right = (torch.from_dlpack(x.view(np.int16)).view(torch.bfloat16) for x in (a, b))
    if problem.layout == "nt":
        right = right.t()
    result = torch.empty(problem.m, problem.n, dtype=torch.bfloat16, device=left.device)
    torch.cuda.set_stream(torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr))
    return functools.partial(torch.mm, left, right, out=result)


def cublaslt_call(problem: Matmul, a, b):
    """The product by cuBLASLt's fastest algorithm with a cold L2: the kernel chooses its own with a warm one."""
    import cupy

    from kernels.matmul import cublaslt

    calls = []
    for algorithm in range(OFFERED):
        cublaslt._chosen[problem] = algorithm
        calls.append(cublaslt.best(problem, a, b))
    seconds = drawn.cold_seconds(calls, cupy.cuda.get_current_stream(), CHOOSING_CALLS)
    return calls[int(np.argmin(seconds))]


def measure_few_rows(case: Case, turn: int) -> Row:
    """Ours for so many rows, cuBLAS, cuBLASLt, PyTorch where it is installed, and the reading kernel on B, which stands for no
    side."""
    a, b = inputs = drawn.operands(case.problem)
    ours = THIN_KERNEL if case.problem.m <= thin_tiles.MOST_ROWS else WGMMA

    def others() -> dict:
        calls = {
            "matmul/cupy/cublas": registry.find("matmul/cupy/cublas").bind(case.problem, a, b),
            "matmul/cublaslt/best": cublaslt_call(case.problem, a, b),
            READING: registry.find(READING).bind(Stream("read", b.nbytes, "float32"), b.view(np.float32).ravel()),
        }
        with contextlib.suppress(ImportError):
            calls["torch"] = torch_call(case.problem, a, b)
        return calls

    return drawn.compared(case, inputs, [ours], others, turn, READING, cold=True)


def measure(case: Case, turn: int, ours: str = "", libraries: tuple[str, ...] = LIBRARIES) -> Row:
    """Both sides of a product."""
    if case.kind in FEW_ROWS_CLASSES:
        return measure_few_rows(case, turn)
    problem, inputs = case.problem, drawn.operands(case.problem)
    names = [ours or OURS[problem.math]]
    if names == [WGMMA] and problem.flops < drawn.SHORT_FLOPS:
        names.append(TENSOR)  # of short ones ours is the faster of the two, as the library is of its two

    others = lambda: {name: registry.find(name).bind(problem, *inputs) for name in libraries}  # noqa: E731
    return drawn.compared(case, inputs, names, others, turn)


def figures(rows: list[Row]) -> list[Figure]:
    """The claim's rows, then every shape."""
    found = []
    for (of, what, kinds), target in TARGETS.items():
        taken = [r.ratio for r in rows if f"{r.dtype} {r.layout}".startswith(of) and r.kind in kinds]
        found += drawn.claim(f"{of}, {what}", taken, *target)
    found += few_rows_figures(rows)
    for dtype, odd in itertools.product(OURS, (False, True)):
        of = [r for r in rows if r.kind in CLASSES and r.dtype == dtype and any(size % 8 for size in r.shape) is odd]
        what = "other sizes" if odd else "sizes that are multiples of 8"
        found += drawn.claim(f"{dtype}, drawn, {what}", [r.ratio for r in of], None)
    return found + drawn.details(rows)


def few_rows_figures(rows: list[Row]) -> list[Figure]:
    """Products with few rows against the library, and against the reading kernel."""
    found = []
    for what, (kinds, of_library, of_reading) in FEW_ROWS_TARGETS.items():
        taken = [r for r in rows if r.kind in kinds]
        name = f"bfloat16, 1 to 128 rows, B of {what}"
        found += drawn.claim(name, [r.ratio for r in taken], of_library)
        shares = [r.sides[READING] / r.ours_s for r in taken]
        found += drawn.claim(name, shares, of_reading, sides="reading B / ours")
    return found


BENCH = drawn.Bench(
    "matmul_cuda",
    "Our CUDA C matmuls against cuBLAS and cuBLASLt",
    tuple(OURS),
    cases,
    measure,
    figures,
    f"Library: the faster of cuBLAS and of what cuBLASLt's heuristic offers. {EACH} shapes of each size class are drawn, half of "
    f"them multiples of 8, {THIN} with a side of at most {THINNEST}. Few rows: single calls with a flushed L2 at every size; the "
    "library is the fastest of cuBLAS, all that cuBLASLt offers, chosen with a flushed L2, and PyTorch where it is installed. "
    "Times contain 1.3 µs of the events.",
)


if __name__ == "__main__":
    sys.exit(drawn.main(BENCH) if "--print" in sys.argv else on_gpu(lambda: drawn.main(BENCH), compiles=True))
