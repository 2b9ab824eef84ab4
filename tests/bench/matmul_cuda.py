"""On a GPU: our CUDA C matmuls against the faster of cuBLAS and cuBLASLt, at shapes that nobody chose.

Shapes are drawn from a hash of kernels/ and a salt, so that a kernel cannot be tuned for those that it will meet.
"""

import argparse
import hashlib
import json
import math
import pathlib
import sys
import time
from datetime import UTC, datetime

import msgspec
import numpy as np
from gpu_bench import on_gpu
from must_reach import REPORTS, Figure, table

from analysis import stats
from analysis.predict import profile
from kernels import registry
from kernels.cuda import autotuner, loader
from kernels.problems import Matmul
from workloads.harness import cache_state, copy_modes, timing
from workloads.machine import facts
from workloads.records import Settings

SQUARES = (2048, 4096, 8192)
CLASSES = {"< 1 GFLOP": (6, 9), "1 to 100 GFLOP": (9, 11), "> 100 GFLOP": (11, 12.6)}  # powers of ten of 2 m n k
EACH, THIN, THINNEST, LONGEST = 8, 2, 64, 16384  # shapes of a class, those with a side of at most so much, any side
POOLED = 3  # draws that the claim is made of: the last ones
LOAD_S, TIMED_S, FLUSHED = 0.25, 0.5, 25  # of each side alone; calls of a short one
OURS = {"bfloat16": "matmul/cuda/wgmma", "float32": "matmul/cuda/warp_tiled"}
LAYOUTS = {"bfloat16": ("nt", "nn"), "float32": ("nn", "nt", "tn")}
LIBRARIES = ("matmul/cupy/cublas", "matmul/cublaslt/best")
GPU = Settings(device="gpu:0")


class Row(msgspec.Struct, frozen=True):
    """Seconds a call of one shape, ours and the faster library's. `drawn`: the hash and salt, or `square`; `first_s`: until
    the first call of a shape never met was done, compilation and the choice of tiles included."""

    drawn: str
    kind: str
    dtype: str
    layout: str
    shape: tuple[int, int, int]
    library: str
    library_s: float
    ours_s: float
    first_s: float
    tiles: str
    equal: bool
    commit: str
    at: str

    @property
    def ratio(self) -> float:
        return self.library_s / self.ours_s


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--salt", type=int, nargs="+", default=[0])
    flags.add_argument("--part", default="1/1", help="I/N: every Nth shape from the Ith on")
    flags.add_argument("--dtypes", nargs="+", default=list(OURS), choices=list(OURS))
    flags.add_argument("--print", type=pathlib.Path, help="measures nothing: the table of this file of rows")
    args = flags.parse_args()
    here = profile.read(str(args.print.parent)).machine if args.print else facts.describe()
    file = args.print or REPORTS / here.key / "bench-matmul_cuda.ndjson"
    if not args.print:
        part, parts = map(int, args.part.split("/"))
        wanted = [w for salt in args.salt for w in problems(salt, args.dtypes)][part - 1 :: parts]
        with open(file, "a", encoding="utf-8") as out:
            for i, (drawn_, kind, problem) in enumerate(wanted):
                row = measured(drawn_, kind, problem, i % 2)
                out.write(json.dumps(msgspec.to_builtins(row)) + "\n")
                out.flush()
                print(f"[{i + 1}/{len(wanted)}] {row.ratio:.3f} {row.shape} {row.layout} {row.tiles}", file=sys.stderr)
    rows = [msgspec.json.decode(line, type=Row) for line in file.read_bytes().splitlines()]
    about = (
        f"N(0,1) operands. From 1 GFLOP on each side runs alone, {LOAD_S:g} s of its own load, then {TIMED_S:g} s timed; the "
        "order turns around from row to row. Below, single calls with the L2 flushed. Library: the faster of cuBLAS and of "
        "what cuBLASLt's heuristic offers. The ratio is the library's time over ours, so above 1 ours is faster. Equal: ours "
        f"gives the exact product of whole numbers, rounded. Drawn: the last {POOLED} draws pooled, {EACH} shapes of each size "
        f"class, half of them multiples of 8, {THIN} with a side of at most {THINNEST}. Intervals are resampled over shapes."
    )
    return table("matmul_cuda", "Our CUDA C matmuls against cuBLAS and cuBLASLt", figures(rows), [about], of=here)


def drawn(salt: int) -> dict[str, list[tuple[int, int, int]]]:
    """Class -> its shapes (m, n, k)."""
    rng = np.random.default_rng(int(fingerprint()[:15], 16) + salt)
    found: dict[str, list[tuple[int, int, int]]] = {}
    for name, (low, high) in CLASSES.items():
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


def fingerprint() -> str:
    """A hash of every file of kernels/."""
    files = sorted(p for p in pathlib.Path(loader.FOLDER).rglob("*") if p.suffix in (".py", ".cu", ".cuh"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()


def problems(salt: int, dtypes: list[str]) -> list[tuple[str, str, Matmul]]:
    """(draw, class, product) of every row to measure: the squares and what is drawn, in every layout that we have."""
    hopper = facts.describe().gpus[0].compute_capability == "9.0"
    found = []
    for dtype in (d for d in dtypes if d != "bfloat16" or hopper):
        for layout in LAYOUTS[dtype]:
            found += [("square", "squares", Matmul(n, n, n, dtype, layout=layout)) for n in SQUARES if salt == 0]
            for kind, shapes in drawn(salt).items():
                name = f"{fingerprint()[:12]} {salt}"
                found += [(name, kind, Matmul(*shape, dtype, layout=layout)) for shape in shapes]
    return found


def measured(drawn_: str, kind: str, problem: Matmul, turn: int) -> Row:
    """Both sides of a product, ours checked on whole numbers."""
    every = [registry.find(name) for name in (OURS[problem.dtype], *LIBRARIES)]
    stream, inputs = copy_modes.gpu_stream(), operands(problem, False)
    with stream:
        begin = time.perf_counter()
        calls = [every[0].bind(problem, *inputs)]
        calls[0]()
        stream.synchronize()
        first_s = time.perf_counter() - begin
        calls += [kernel.bind(problem, *inputs) for kernel in every[1:]]
        whole = operands(problem, True)
        equal = bool((every[0].bind(problem, *whole)() == exactly_rounded(problem, *whole)).all())
        del whole
        mine, *theirs = timed(problem, calls, stream, turn)
    library = int(np.argmin(theirs))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    shape, tiles, commit = (problem.m, problem.n, problem.k), calls[0].notes["tiles"], facts.commit()[:12]
    sides = LIBRARIES[library], theirs[library], mine
    return Row(drawn_, kind, problem.dtype, problem.layout, shape, *sides, first_s, tiles, equal, commit, now)


def operands(problem: Matmul, whole: bool) -> tuple:
    """A and B made on the GPU: N(0,1), or whole numbers from -2 to 2, whose float32 sums are exact."""
    import cupy

    m, n, k = problem.m, problem.n, problem.k
    found = []
    for shape in ((k, m) if problem.layout == "tn" else (m, k), (n, k) if problem.layout == "nt" else (k, n)):
        rng = cupy.random.default_rng(len(found))
        x = rng.integers(-2, 3, shape).astype(cupy.float32) if whole else rng.standard_normal(shape, dtype=cupy.float32)
        found.append((x.view(cupy.uint32) >> 16).astype(cupy.uint16) if problem.dtype == "bfloat16" else x)
    return tuple(found)


def exactly_rounded(problem: Matmul, a, b):
    """The product of whole numbers, whose float32 sums are exact, in the type of the result, rounded to even."""
    import cupy

    if problem.dtype == "bfloat16":
        a, b = ((x.astype(cupy.uint32) << 16).view(cupy.float32) for x in (a, b))
    c = (a.T if problem.layout == "tn" else a) @ (b.T if problem.layout == "nt" else b)
    bits = c.view(cupy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(cupy.uint16) if problem.dtype == "bfloat16" else c


def timed(problem: Matmul, calls: list, stream, turn: int) -> list[float]:
    """Seconds of a call of each side."""
    if problem.flops < 1e9:
        flush = cache_state.flush(registry.find(OURS[problem.dtype]), "gpu:0")
        clocks = [timing.device_each(call, flush, stream) for call in calls]
        return list(map(float, np.median([[clock(1) for clock in clocks] for _ in range(FLUSHED + 2)][2:], axis=0)))
    step = 1 if turn else -1
    return [sustained(call, stream) for call in calls[::step]][::step]


def sustained(run, stream) -> float:
    """Seconds of a call of this side alone, after a while of its own load: clocks are then what its power allows."""
    each = max(autotuner.device_seconds(run), 1e-6)
    for _ in range(round(LOAD_S / each)):
        run()
    calls = max(1, round(TIMED_S / each))
    return autotuner.milliseconds(run, calls, stream) * 1e-3 / calls


TARGETS = {
    ("bfloat16", "drawn, > 1 GFLOP"): (0.98, 0.85),
    ("bfloat16", "squares"): (1.0, 0.0),
    ("bfloat16", "drawn, < 1 GFLOP"): (0.95, 0.0),
    ("float32", "drawn"): (0.95, 0.75),
}


def figures(rows: list[Row]) -> list[Figure]:
    """The claim's rows from the last draws and the last squares, then every shape."""
    draws = list(dict.fromkeys(r.drawn for r in rows if r.drawn != "square"))[-POOLED:]
    latest = {(r.drawn, r.dtype, r.layout, r.shape): r for r in rows if r.drawn in (*draws, "square")}
    found, every = [], list(latest.values())
    for (dtype, what), (mean, least) in TARGETS.items():
        kinds = {
            "squares": ("squares",),
            "drawn, > 1 GFLOP": tuple(CLASSES)[1:],
            "drawn, < 1 GFLOP": tuple(CLASSES)[:1],
        }
        taken = [r.ratio for r in every if r.dtype == dtype and r.kind in kinds.get(what, tuple(CLASSES))]
        if not taken:
            continue
        logs = np.log(taken)
        means = np.random.default_rng(1).choice(logs, (10_000, len(logs))).mean(1)
        middle = stats.Estimate(*map(float, np.exp([logs.mean(), *np.quantile(means, (0.025, 0.975))])))
        tenth = stats.exact(float(np.percentile(taken, 10)))
        name = f"{dtype}, {what}, {len(taken)} rows: library / ours"
        found.append(Figure(f"{name}, geometric mean", f">= {mean:g}", middle, middle.value >= mean))
        found.append(Figure(f"{name}, least", f">= {least:g}" if least else "printed", tenth, tenth.value >= least))
    slowest = stats.exact(max(r.first_s for r in every))
    found.append(
        Figure("a shape never met, until its first call is done: longest", "<= 3 s", slowest, slowest.value <= 3, "s")
    )
    agree = stats.exact(sum(r.equal for r in every))
    found.append(Figure("rows exact on whole numbers", f"{len(every)}", agree, agree.value == len(every)))
    for r in every:
        rate = 2 * math.prod(r.shape) / r.ours_s / 1e12
        what = f"{r.kind}: {r.dtype} {r.layout} {'x'.join(map(str, r.shape))}, {rate:.3g} TFLOP/s, {r.tiles}"
        found.append(Figure(f"{what}: {r.library} / ours", "printed", stats.exact(r.ratio), r.equal))
    return found


if __name__ == "__main__":
    sys.exit(main() if "--print" in sys.argv else on_gpu(main, compiles=True))
