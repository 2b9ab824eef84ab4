"""Our matmul in Numba against NumPy's BLAS (in bfloat16 oneDNN), at shapes that nobody chose, those of layers, and squares."""

import contextlib
import itertools
import os
import sys
import time

os.environ.setdefault("NUMBA_THREADING_LAYER_PRIORITY", "omp tbb workqueue")  # workqueue halves small products

import drawn
import numba
import numpy as np
import threadpoolctl
from drawn import Case, Row
from in_turns import BLOCKS, PEAK, row
from must_reach import Figure, printed

from kernels import reference, registry
from kernels.problems import Matmul
from kernels.simd.emit import features
from tests.bench.matmul_cuda import layers, shapes
from workloads.machine import facts

SQUARES = (256, 384, 500, 768, 1000, 1536, 2048, 3000, 4096)
CLASSES = {"< 10 MFLOP": (5, 7), "10 MFLOP to 1 GFLOP": (7, 9), "> 1 GFLOP": (9, 10.5)}  # powers of ten of 2 m n k
BLAS, MKL = "matmul/numpy/blas", "matmul/mkl/gemm"
OURS = dict.fromkeys(("float32", "float64"), "matmul/numba/simd") | {
    "bfloat16": f"matmul/numba/{'amx' if 'amx-bf16' in features() else 'dots'}"
}
LIBRARY = dict.fromkeys(("float32", "float64"), BLAS) | {"bfloat16": "matmul/tensorflow/eager"}
# Holds both sides to AVX2, as on a CPU that has no more: where all of it is set, squares alone are measured.
AVX2 = {"OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}
HELD = AVX2.items() <= os.environ.items()
LEAST_FLOPS, MOST_FLOPS = 1e5, 2e10  # of a layer's product: below, Python is what is timed
# (dtype, set): the geometric mean and the least to reach
TARGETS = {
    ("float32", "drawn"): (1.05, 0.9),
    ("float32", "layers"): (1.05, 0.9),
    ("float32", "squares"): (1.04, 0.0),
    ("float32", "squares in AVX2"): (0.97, 0.0),
    ("float64", "drawn"): (None, 0.0),
    ("bfloat16", "layers"): (1.0, 0.0),
}
BELOW = 6  # the lowest rows of a set, each with a line of its own


def cases(salt: int, dtypes: list[str]) -> list[Case]:
    """What is drawn, a layout after the other; the squares and the layers too where the salt is 0. All of it on one thread and
    on all."""
    found = [("square-avx2", "squares in AVX2", Matmul(n, n, n, "float32")) for n in SQUARES] if HELD else []
    for dtype in () if HELD else dtypes:
        layouts = itertools.cycle(("nn", "nt", "tn"))
        for of in shapes(salt, CLASSES).values():
            found += [(drawn.draw(salt)[0], "drawn", Matmul(*shape, dtype, layout=next(layouts))) for shape in of]
        if salt == 0 and dtype != "float64":
            found += [("layers", "layers", p) for p in layers(dtype) if LEAST_FLOPS <= p.flops <= MOST_FLOPS]
        if salt == 0 and dtype == "float32":
            found += [("square", "squares", Matmul(n, n, n, dtype)) for n in SQUARES]
    cores = facts.usable_cores()  # TensorFlow's threads are told once a process, so bfloat16 has all of them
    few = {name: 1 if LIBRARY[name] == BLAS else cores for name in dtypes}
    return [Case(*case, threads) for case in found for threads in dict.fromkeys((few[case[2].dtype], cores))]


def measure(case: Case, turn: int) -> Row:
    """Both sides through the same registry."""
    problem = case.problem
    numba.set_num_threads(case.threads)
    threadpoolctl.ThreadpoolController().limit(limits=case.threads)
    names = [OURS[problem.dtype], LIBRARY[problem.dtype]]
    with contextlib.suppress(registry.NotInstalled):
        names += [registry.find(MKL).name] if LIBRARY[problem.dtype] == BLAS else []
    kernels = {name: registry.find(name) for name in names}
    begin = time.perf_counter()
    inputs = problem.inputs(1)
    calls = {name: kernel.bind(problem, *placed(inputs, kernel)) for name, kernel in kernels.items()}
    calls[OURS[problem.dtype]]()
    first_s = time.perf_counter() - begin
    whole = problem.inputs(2, True)
    equal = reference.check(problem, whole, kernels[OURS[problem.dtype]].bind(problem, *whole)()).passed
    layout = f"{problem.layout}, {case.threads} thread{'s' * (case.threads > 1)}"
    told = {"layout": layout, "shape": (problem.m, problem.n, problem.k), "first_s": first_s, "equal": equal}
    return row(case, calls, [LIBRARY[problem.dtype]], turn, **told)


def placed(inputs: tuple, kernel: registry.Kernel) -> tuple:
    """The operands as the kernel takes them."""
    if kernel.backend != "tensorflow":
        return inputs
    import tensorflow

    return tuple(map(tensorflow.constant, inputs))


def figures(rows: list[Row]) -> list[Figure]:
    """The claim of every set, and its lowest rows."""
    found = [printed("rows exact on whole numbers", sum(r.equal for r in rows))]
    for (dtype, kind), target in TARGETS.items():
        for threads in sorted({r.layout.partition(", ")[2] for r in rows}):
            of = [r for r in rows if (r.dtype, r.kind) == (dtype, kind) and r.layout.endswith(threads)]
            found += drawn.claim(f"{dtype}, {kind}, {threads}", [r.ratio for r in of], *target)
            if beside := [r.sides[MKL] / r.ours_s for r in of if MKL in r.sides]:
                found += drawn.claim(f"{dtype}, {kind}, {threads}, MKL", beside, None)
            if large := [100 * r.sides[PEAK] / r.ours_s for r in of if min(r.shape) >= 1024]:
                what = f"{dtype}, {kind}, {threads}, sides >= 1024: of the FMA peak"
                found.append(printed(what, np.median(large), "%"))
            for r in sorted(of, key=lambda r: r.ratio)[:BELOW]:
                what = f"{dtype} {r.layout} {'x'.join(map(str, r.shape))}, {r.rate / 1e9:.3g} GFLOP/s"
                found.append(printed(f"{kind}: {what}: library / ours", r.ratio))
    return found


def main() -> int:
    chosen = facts.blas_variables() + ["OPENBLAS_CORETYPE"] * ("OPENBLAS_CORETYPE" in os.environ and not HELD)
    if chosen:
        print(
            f"error: {' '.join(chosen)} changes what BLAS does, so this would not be held against its own choice; "
            f"unset {' '.join(chosen)}; make bench NAME=matmul_numba",
            file=sys.stderr,
        )
        return 2
    return drawn.main(BENCH)


BENCH = drawn.Bench(
    *("matmul_numba", "Our matmul in Numba beside the libraries", tuple(OURS), cases, measure, figures),
    "Ours: `simd`, in bfloat16 `dots` or `amx`; the library: NumPy's BLAS, in bfloat16 oneDNN through TensorFlow. One thread "
    f"and all. Drawn: {drawn.EACH} shapes of each of {', '.join(CLASSES)}, half of them multiples of 8, thin ones among them. "
    f"Layers: the models' dense ones and a transformer block's, of {LEAST_FLOPS:g} to {MOST_FLOPS:g} FLOPs, batch 1, 32 and "
    f"256, all directions. In AVX2: both sides are held to it ({' '.join(map('='.join, AVX2.items()))}). Below each claim its "
    "lowest rows.",
    f"N(0,1) operands. {BLOCKS} blocks a side whose order turns around, the FMA peak among them, each side's fastest counts.",
)


if __name__ == "__main__":
    sys.exit(main())
