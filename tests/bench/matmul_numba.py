"""Our matmul in Numba against NumPy's BLAS and MKL, the FMA peak and AMX: same arrays, in alternating blocks of one process.

`make bench NAME=matmul_numba ARGS="--parts float32 amx --threads 1"` runs some of it, a minute at a time; what the other parts
gave before is kept beside the table and printed with it.
"""

import argparse
import json
import os
import subprocess
import sys

os.environ.setdefault("NUMBA_THREADING_LAYER_PRIORITY", "omp tbb workqueue")  # workqueue halves small products

import msgspec
import numba
import numpy as np
import threadpoolctl
from in_turns import FEWER, ROUNDS, compare, peak
from must_reach import REPORTS, Figure, at_least, table

from analysis import stats, units
from analysis.stats import Estimate
from kernels import reference, registry
from kernels.problems import Matmul
from workloads.harness import plan, timing
from workloads.machine import facts
from workloads.records import Settings

SIZES = (256, 384, 500, 768, 1000, 1536, 2048, 3000, 4096)
ODD = ((4097, 4095, 4093), (1, 1, 1), (127, 1, 31), (5000, 3, 64), (3, 5000, 64), (700, 900, 1))
PLAIN = ("naive", "reordered", "tiled", "parallel")  # minutes at the first of them
# What AVX2 is on this chip: LLVM compiles for the last CPU that had no more, and OpenBLAS takes its kernels for it.
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+sse2,+bmi,+bmi2,+f16c,+movbe,+popcnt,+lzcnt",
    "OPENBLAS_CORETYPE": "Haswell",
}


def threads_are(count: int) -> None:
    numba.set_num_threads(count)
    threadpoolctl.ThreadpoolController().limit(limits=count)


def checked(kernel: registry.Kernel, problem: Matmul) -> None:
    """Raises SystemExit when the kernel's answer on whole numbers is wrong."""
    inputs = problem.inputs(3, True)
    if not reference.check(problem, inputs, np.asarray(kernel.bind(problem, *inputs)())).passed:
        raise SystemExit(f"{kernel.name} is wrong at {problem}")


def referees() -> dict[str, str]:
    try:
        registry.find("matmul/mkl/gemm")
    except registry.NotInstalled:
        return {}
    return {"MKL": "matmul/mkl/gemm"}


def geometric_mean(ratios: list[Estimate]) -> Estimate:
    """The geometric mean of ratios at several sizes, its interval from those of all of them taken as independent."""
    logs = np.log([[r.value, r.low, r.high] for r in ratios])
    middle = logs[:, 0].mean()
    down, up = (np.sqrt(((logs[:, 0] - logs[:, i]) ** 2).sum()) / len(ratios) for i in (1, 2))
    return Estimate(*(float(np.exp(x)) for x in (middle, middle - down, middle + up)))


def squares(
    threads: int, dtype: str, form: str, mean_at_least: float, least: float | None
) -> tuple[list[Figure], list[str]]:
    """`simd` over NumPy's BLAS and MKL at every size, and as a share of the FMA peak."""
    sides = {"simd": "matmul/numba/simd", "BLAS": "matmul/numpy/blas"} | (referees() if form == "" else {})
    kernels, figures, notes = {name: registry.find(kernel) for name, kernel in sides.items()}, [], []
    threads_are(threads)
    flops, ceiling = peak(threads)
    ratios: dict[str, list[Estimate]] = {name: [] for name in kernels if name != "simd"}
    for n in SIZES:
        problem = Matmul(n, n, n, dtype)
        checked(kernels["simd"], problem)
        inputs = problem.inputs(1)
        takes = {name: timing.host(kernel.bind(problem, *inputs)) for name, kernel in kernels.items()}
        samples = compare(takes | ({"peak": ceiling} if dtype == "float32" else {}))
        what = f"{dtype}{form}, n = {n}, {units.count(threads, 'thread')}"
        for name, of in ratios.items():
            of.append(stats.verdict(samples["simd"], samples[name], paired=True).ratio)
            figures.append(at_least(f"{what}: simd / {name}", least if name == "BLAS" else None, of[-1]))
        if "MKL" in samples:
            between = stats.verdict(samples["MKL"], samples["BLAS"], paired=True).ratio
            figures.append(at_least(f"{what}: MKL / BLAS", None, between))
        rates = {name: problem.flops / stats.of(samples[name]).value for name in kernels}
        line = ", ".join(f"{name} {rate / 1e9:.4g}" for name, rate in rates.items())
        if dtype == "float32":
            top = flops / stats.of(samples["peak"]).value
            share = rates["simd"] / top
            line += f"; simd {share:.0%}, BLAS {rates['BLAS'] / top:.0%} of the FMA peak of {top / 1e9:.4g}"
            if form == "" and threads == 1 and n >= 1024:
                paired = stats.verdict(samples["simd"], samples["peak"], paired=True).ratio
                figures.append(at_least(f"{what}: simd / FMA peak", 0.8, paired * (problem.flops / flops)))
        notes.append(f"- {what}, GFLOP/s: {line}")
    for name, of in ratios.items():
        what = f"{dtype}{form}, {units.count(threads, 'thread')}: simd / {name}, geometric mean of the sizes"
        figures.append(at_least(what, mean_at_least if name == "BLAS" else None, geometric_mean(of)))
    return figures, notes


def avx2(threads: int) -> tuple[list[Figure], list[str]]:
    """The same in a process where both sides take AVX2 for the best there is."""
    env = os.environ | AVX2
    done = subprocess.run(
        [sys.executable, __file__, "--inside-avx2", str(threads)], env=env, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise SystemExit("the process with AVX2 alone failed")
    figures, notes = json.loads(done.stdout)
    return [msgspec.convert(figure, Figure) for figure in figures], notes


def amx(threads: int) -> tuple[list[Figure], list[str]]:
    """AMX per core at n = 2048, beside NumPy's BLAS in float32."""
    figures, notes = [], []
    tiles, blas = registry.find("matmul/numba/amx"), registry.find("matmul/numpy/blas")
    threads_are(threads)
    for n in (512, 1024, 2048, 4096):
        problem, single = Matmul(n, n, n, "bfloat16", out="float32"), Matmul(n, n, n)
        try:
            checked(tiles, problem)
        except ValueError as refusal:
            return [], [f"- amx: skipped, {refusal}"]
        takes = {
            "amx": timing.host(tiles.bind(problem, *problem.inputs(1))),
            "BLAS": timing.host(blas.bind(single, *single.inputs(1))),
        }
        samples = compare(takes)
        what = f"amx bfloat16, n = {n}, {units.count(threads, 'thread')}"
        time = stats.of(samples["amx"])
        rate = Estimate(*(problem.flops / threads / t / 1e9 for t in (time.value, time.high, time.low)))
        ratio = stats.verdict(samples["amx"], samples["BLAS"], paired=True).ratio
        for word, figure, target, unit in (("per core", rate, 1500, "GFLOP/s"), ("/ float32 BLAS", ratio, 8, "")):
            figures.append(at_least(f"{what}: {word}", target if n == 2048 else None, figure, unit))
    peaks = plan.peak_problem("bfloat16", Settings(threads=threads))
    run = registry.find("peak/numba/tiles").bind(peaks, *peaks.inputs(1))
    run()
    time = stats.of(compare({"peak": timing.host(run)})["peak"]).value
    top = peaks.flops * getattr(run, "passes", 1) / time / threads / 1e9
    notes.append(f"- measured peak of the tiles, {units.count(threads, 'thread')}: {top:.4g} GFLOP/s a core")
    return figures, notes


def odd(threads: int) -> tuple[list[Figure], list[str]]:
    """Every rung on odd shapes: right, or refused with a reason."""
    notes = []
    threads_are(threads)
    for kernel in registry.load("matmul", "numba"):
        shapes = ODD[1:] if kernel.variant in PLAIN else ODD
        said = "right at " + ", ".join("x".join(map(str, shape)) for shape in shapes)
        if shapes != ODD:
            said += f"; {'x'.join(map(str, ODD[0]))} left out, as it takes plain loops minutes"
        try:
            for shape in shapes:
                checked(kernel, Matmul(*shape, *(("bfloat16", "", "float32") if kernel.variant == "amx" else ())))
        except ValueError as error:
            said = f"refused: {error}"
        notes.append(f"- {kernel.name}, {units.count(threads, 'thread')}: {said}")
    return [], notes


RUNS = {
    "float32": lambda threads: squares(threads, "float32", "", 1.08, 0.97),
    "float64": lambda threads: squares(threads, "float64", "", 1.03, None),
    "avx2": avx2,
    "amx": amx,
    "odd": odd,
}


def main() -> int:
    cores = tuple(dict.fromkeys((1, facts.usable_cores())))
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--parts", nargs="+", choices=list(RUNS), default=list(RUNS))
    flags.add_argument("--threads", nargs="+", type=int, choices=cores, default=cores)
    flags.add_argument("--inside-avx2", type=int, help=argparse.SUPPRESS)
    args = flags.parse_args()
    if args.inside_avx2:
        print(json.dumps(msgspec.to_builtins(squares(args.inside_avx2, "float32", ", AVX2", 0.9, None))))
        return 0
    if chosen := [*facts.blas_variables(), *(["OPENBLAS_CORETYPE"] if "OPENBLAS_CORETYPE" in os.environ else [])]:
        print(
            f"error: {' '.join(chosen)} changes what BLAS does, so this would not be held against its own choice; "
            f"unset {' '.join(chosen)}; make bench NAME=matmul_numba",
            file=sys.stderr,
        )
        return 2
    path = REPORTS / facts.describe().key / "bench-matmul_numba.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for part in args.parts:
        for threads in args.threads:
            found[f"{part} {threads}"] = msgspec.to_builtins(RUNS[part](threads))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found, indent=1) + "\n")
    done = [found[key] for part in RUNS for threads in cores if (key := f"{part} {threads}") in found]
    figures = [msgspec.convert(figure, Figure) for part in done for figure in part[0]]
    notes = [note for part in done for note in part[1]]
    blas = facts.blas()
    about = (
        f"Rates of our `simd` over those of NumPy's {blas['blas']} ({blas.get('blas_kernels', '')} kernels), MKL "
        f"{facts.version('mkl') or 'not installed'} and the measured FMA peak, N(0,1) data, into a result that is there; "
        f"{ROUNDS} alternating blocks a side in one process ({FEWER} where a call is long), each begun when the threads of the "
        "side before it have stopped spinning. AVX2: a process in which LLVM compiles for Haswell and OpenBLAS takes its Haswell "
        "kernels."
    )
    return table("matmul_numba", "Our matmul in Numba beside the libraries", figures, [about, "", *notes])


if __name__ == "__main__":
    sys.exit(main())
