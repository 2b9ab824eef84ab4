"""Benches at problems that nobody chose: they are drawn from a hash of kernels/ and a salt, their rows stay in a file that only
grows, and a claim pools the last draws."""

import argparse
import collections
import hashlib
import itertools
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
from must_reach import REPORTS, Figure, short, table

from analysis import stats, units
from analysis.predict import profile
from kernels import reference, registry
from kernels.cuda import autotuner, loader
from kernels.problems import Conv, Matmul, Problem
from workloads.harness import cache_state, copy_modes, timing
from workloads.machine import facts

CLASSES = {"< 1 GFLOP": (6, 9), "1 to 100 GFLOP": (9, 11), "> 100 GFLOP": (11, 12.6)}  # powers of ten of the FLOPs
LARGE = tuple(CLASSES)[1:]
EACH = 8  # problems of a class
POOLED = 3  # draws that a claim is made of: the last ones
LOAD_S, TIMED_S, FLUSHED = 0.25, 0.5, 25  # of each side alone; calls of a short one
HELD_BELOW_S, HELD_BATCHES = 100e-6, 20  # shorter calls wait behind a held stream, in so many batches at most
FLUSHES = 4  # ahead of a short call: one takes 50 µs, and the host may take longer than that to start a call
SHORT_FLOPS = 1e9
ABOUT = (
    f"N(0,1) operands. From 1 GFLOP on each side runs alone, {LOAD_S:g} s of its own load, then {TIMED_S:g} s timed; the "
    f"order turns around from row to row. In rows of after 2026-11-28 calls below {HELD_BELOW_S * 1e6:.0f} µs wait behind a "
    "held stream. Below, single calls with the L2 flushed. The ratio is the library's time over ours, so above 1 ours is "
    "faster. Equal: ours gives the exact result of whole numbers, rounded once. Drawn: the last "
    f"{POOLED} draws, all salts. Sets: the last row of a problem at those draws' commits. Intervals are resampled over the rows."
)


class Row(msgspec.Struct, frozen=True):
    """Seconds a call of one problem, ours and the fastest library's. `drawn`: the hash and salt, or the set that it is of;
    `first_s`: until the first calls of ours of a problem never met were done, compilation and the choice of tiles included;
    sides: of everything that was timed."""

    drawn: str
    kind: str
    dtype: str
    layout: str
    shape: tuple[int, ...]
    library: str
    library_s: float
    ours_s: float
    first_s: float
    tiles: str
    equal: bool
    commit: str
    at: str
    sides: dict[str, float] = {}
    flops: float = 0.0  # 0: of rows from before it was told, all of them products

    @property
    def rate(self) -> float:
        """Ours, in FLOP/s."""
        return (self.flops or 2.0 * math.prod(self.shape)) / self.ours_s

    @property
    def ratio(self) -> float:
        return self.library_s / self.ours_s

    @property
    def key(self) -> tuple:
        return self.drawn, self.dtype, self.layout, self.shape


class Case(NamedTuple):
    """A problem of a draw (the hash and the salt) or of a set, the class that it is of, and the CPU's threads."""

    drawn: str
    kind: str
    problem: Any
    threads: int = 1


class Bench(NamedTuple):
    """A bench of one operation. cases(salt, dtypes): what to measure, sets only with salt 0; measure(case, turn): its row;
    figures(rows): what they come to, of the last draws and the last row of each problem of a set. conditions: how all of
    its rows are timed."""

    name: str
    title: str
    dtypes: tuple[str, ...]
    cases: Callable[[int, list[str]], list[Case]]
    measure: Callable[[Case, int], Row]
    figures: Callable[[list[Row]], list[Figure]]
    about: str
    conditions: str = ABOUT


def main(bench: Bench) -> int:
    """Measures a part of the cases and appends their rows, then writes the table of all stored rows; the exit code."""
    flags = argparse.ArgumentParser(description=f"{bench.title}. {bench.about}")
    flags.add_argument("--salt", type=int, nargs="+", default=[0])
    flags.add_argument("--part", default="1/1", help="I/N: every Nth problem from the Ith on, in a shuffled order")
    flags.add_argument("--dtypes", nargs="+", default=list(bench.dtypes), choices=bench.dtypes)
    flags.add_argument("--kinds", metavar="BEGINNING", default="", help="only classes whose names begin so")
    flags.add_argument("--print", type=pathlib.Path, help="measures nothing: the table of this file of rows")
    args = flags.parse_args()
    here = profile.read(str(args.print.parent)).machine if args.print else facts.describe()
    file = args.print or REPORTS / here.key / f"bench-{bench.name}.ndjson"
    if not args.print:
        part, parts = map(int, args.part.split("/"))
        every = [case for salt in args.salt for case in bench.cases(salt, args.dtypes)]
        every = [case for case in every if case.kind.startswith(args.kinds)]
        draw(0)[1].shuffle(every)  # in rounds of one of each kind: so is then a part, and what a run is cut short to
        rounds: dict[tuple, Iterator] = collections.defaultdict(itertools.count)
        every.sort(key=lambda case: next(rounds[case.kind, case.problem.math, described(case.problem)[1]]))
        with open(file, "a", 1, "utf-8") as out:  # by lines: a run that is cut short leaves whole ones
            for i, case in enumerate(every[part - 1 :: parts]):
                try:
                    row = bench.measure(case, i % 2)
                except ValueError as error:  # no library does it
                    print(f"error: {case.problem}: {error}", file=sys.stderr)
                    continue
                out.write(msgspec.json.encode(row).decode() + "\n")
                print(f"[{i + 1}] {row.ratio:.3f} {row.layout} {row.shape} {row.tiles}", file=sys.stderr)
    rows = [msgspec.json.decode(line, type=Row) for line in file.read_bytes().splitlines()]
    pooled = latest(rows)
    days, commits = sorted({r.at[:10] for r in pooled}), sorted({short(r.commit) for r in pooled})
    told = f"Measured {days[0]} to {days[-1]}, at commits {', '.join(commits)}."
    return table(bench.name, bench.title, bench.figures(pooled), [f"{told} {bench.about} {bench.conditions}"], of=here)


def fingerprint() -> str:
    """A hash of every file of kernels/."""
    files = sorted(p for p in pathlib.Path(loader.FOLDER).rglob("*") if p.suffix in (".py", ".cu", ".cuh"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()


def draw(salt: int) -> tuple[str, np.random.Generator]:
    """A draw's name, in its rows, and what it is drawn with."""
    return f"{fingerprint()[:12]} {salt}", np.random.default_rng(int(fingerprint()[:15], 16) + salt)


def is_drawn(row: Row) -> bool:
    return " " in row.drawn


def latest(rows: list[Row]) -> list[Row]:
    """The rows of the last draws of each class, whatever their salt, and of each problem of a set the last one that was measured
    at their commits: kernels of before are others."""
    # class -> its draws, in the order in which they were measured
    draws_of_kind: dict[str, dict[str, None]] = collections.defaultdict(dict)
    for row in rows:
        if is_drawn(row):
            draws_of_kind[row.kind][row.drawn.split()[0]] = None
    drawn = [r for r in rows if is_drawn(r) and r.drawn.split()[0] in [*draws_of_kind[r.kind]][-POOLED:]]
    commits = {r.commit for r in drawn}
    sets = [r for r in rows if not is_drawn(r) and r.commit in commits]
    return list({r.key: r for r in (*drawn, *sets)}.values())


def compared(
    case: Case,
    inputs: list,
    own: list[str],
    libraries: Callable[[], dict[str, Callable]],
    turn: int,
    beside: str = "",
    *,
    cold: bool = False,
) -> Row:
    """The row of both sides, each the fastest of its calls by name, ours of those kernels. Libraries' calls with `beside` in
    their names are timed and stand for no side. cold: with the L2 flushed, however long a call is."""
    problem, stream, kernels = case.problem, copy_modes.gpu_stream(), [registry.find(name) for name in own]
    with stream:
        begin = time.perf_counter()
        ours = {kernel.name: kernel.bind(problem, *inputs) for kernel in kernels}
        for call in ours.values():
            call()
        stream.synchronize()
        first_s = time.perf_counter() - begin
        equal, sides = is_exact(problem, *kernels), ours | libraries()
        calls = list(sides.values())
        every_s = cold_seconds(calls, stream) if cold else timed(problem, calls, stream, turn)
        seconds = dict(zip(sides, every_s, strict=True))
    theirs = [name for name in sides if name not in ours and not (beside and beside in name)]
    mine, library = (min(those, key=seconds.__getitem__) for those in (ours, theirs))
    shape, layout = described(problem)
    return Row(
        *(case.drawn, case.kind, problem.math, layout, shape, library, seconds[library], seconds[mine], first_s),
        " ".join([mine.rpartition("/")[2], *ours[mine].notes.values()]) if len(ours) > 1 else ours[mine].notes["tiles"],
        equal,
        facts.commit()[:12],
        datetime.now(UTC).isoformat(timespec="seconds"),
        seconds,
        float(problem.flops),
    )


def described(problem: Problem) -> tuple[tuple[int, ...], str]:
    """(its sizes, what else tells it from others): products m, n, k behind how many at once, convolutions n, h, w, c_in, c_out,
    r, s, stride, and their direction and padding."""
    if isinstance(problem, Conv):
        p = problem
        return (p.n, p.h, p.w, p.c_in, p.c_out, p.r, p.s, p.stride), f"{p.direction} pad={p.pad}"
    many = (problem.count,) if problem.count > 1 else ()
    return (*many, problem.m, problem.n, problem.k), problem.layout


def operands(problem: Matmul | Conv, whole: bool = False) -> list:
    """Both operands made on the GPU: N(0,1), or whole numbers from -2 to 2, whose sums are exact; bfloat16 as its bits."""
    import cupy

    found = []
    for shape in problem.operand_shapes:
        of = cupy.random  # its one generator: a new one takes longer to make than these take to draw
        few = min(math.prod(shape), (1 << 26) + 3)  # and then the same again
        x = of.randint(-2, 3, few, np.int32).astype(np.float32) if whole else of.standard_normal(shape, np.float32)
        x = cupy.resize(x, shape) if whole else x
        found.append((x.view(cupy.uint32) >> 16).astype(cupy.uint16) if problem.dtype == "bfloat16" else x)
    return found


def exactly(problem: Matmul | Conv, a, b):
    """The result of whole numbers: in float64 through cuBLAS, a convolution tap by tap, rounded once, to even."""
    import cupy

    bits = problem.dtype == "bfloat16"
    a, b = (((x.astype(cupy.uint32) << 16).view(cupy.float32) if bits else x).astype(cupy.float64) for x in (a, b))
    if isinstance(problem, Conv):
        exact = reference.conv.conv(problem, a, b)
    else:
        exact = cupy.matmul(*reference.operands(problem, (a, b)))
    if not bits:
        return exact.astype(cupy.float32)
    of = exact.astype(cupy.float32).view(cupy.uint32)
    return ((of + 0x7FFF + (of >> 16 & 1)) >> 16).astype(cupy.uint16)


def is_exact(problem: Matmul | Conv, *kernels) -> bool:
    """Whether each that has a kernel's `bind` gives the exact result of whole numbers, rounded, in the second call too."""
    whole = operands(problem, True)
    wanted = exactly(problem, *whole)
    for kernel in kernels:
        run = kernel.bind(problem, *whole)
        run()
        equal = (got := run()) == wanted
        if problem.dtype == "bfloat16":  # as bits: where k is 1, a product with zero is -0 or 0
            equal |= (got | wanted) & 0x7FFF == 0
        if not equal.get().all():  # CuPy compiles a reduction for each shape, seconds each
            return False
    return True


def timed(problem: Matmul | Conv, calls: list, stream, turn: int) -> list[float]:
    """Seconds of a call of each side."""
    if problem.flops < SHORT_FLOPS:
        return cold_seconds(calls, stream)
    return [sustained(call, stream) for call in calls[:: turn or -1]][:: turn or -1]


def cold_seconds(calls: list, stream, count: int = FLUSHED) -> list[float]:
    """Medians of single calls with the L2 flushed, in rounds of one of each side."""
    flush = cache_state.flush(registry.find("matmul/cupy/cublas"), "gpu:0")

    def before() -> None:
        for _ in range(FLUSHES):
            flush()

    clocks = [timing.device_after(call, before, stream) for call in calls]
    rounds = [[clock(1) for clock in clocks] for _ in range(count + 2)]
    return list(map(float, np.median(rounds[2:], axis=0)))


def sustained(run, stream) -> float:
    """Seconds of a call of this side alone, after a while of its own load: clocks are then what its power allows. Where the
    host might take as long to start a call as the GPU takes for it, calls wait behind a held stream, in batches."""
    each = max(autotuner.device_seconds(run), 1e-6)
    for _ in range(round(LOAD_S / each)):
        run()
    calls = max(1, round(TIMED_S / each))
    if each < HELD_BELOW_S:
        calls = min(calls, HELD_BATCHES * timing.BLOCKED_CALLS)
        return timing.blocked(run, stream)(calls) / calls
    return autotuner.milliseconds(run, calls, stream) * 1e-3 / calls


def claim(
    what: str, ratios: list[float], mean: float | None, least: float = 0.0, sides: str = "library / ours"
) -> list[Figure]:
    """The geometric mean of the ratios of two sides with its interval, and the 10th percentile; none of no rows."""
    if not ratios:
        return []
    logs = np.log(ratios)
    means = np.random.default_rng(1).choice(logs, (10_000, len(logs))).mean(1)
    middle = stats.Estimate(*map(float, np.exp([logs.mean(), *np.quantile(means, (0.025, 0.975))])))
    tenth = stats.exact(float(np.percentile(ratios, 10)))
    name = f"{what}, {units.count(len(ratios), 'row')}: {sides}"
    target = "printed" if mean is None else f">= {mean:g}"
    return [
        Figure(f"{name}, geometric mean", target, middle, mean is None or middle.value >= mean),
        Figure(f"{name}, 10th percentile", f">= {least:g}" if least else "printed", tenth, tenth.value >= least),
    ]


def details(rows: list[Row]) -> list[Figure]:
    """How long a problem never met takes, how many rows are exact, and every row."""
    return checks(rows) + ratios(rows)


def checks(rows: list[Row]) -> list[Figure]:
    """How long a problem never met takes, and how many rows are exact."""
    slowest = stats.exact(max(r.first_s for r in rows))
    agree = stats.exact(sum(r.equal for r in rows))
    never = "a problem never met, until its first call is done: longest"
    return [
        Figure(never, "<= 3 s", slowest, slowest.value <= 3, "s"),
        Figure("rows exact on whole numbers", f"{len(rows)}", agree, agree.value == len(rows)),
    ]


def ratios(rows: list[Row]) -> list[Figure]:
    """Every row: the library's time over ours, and our rate."""
    found = []
    for r in rows:
        name = f"{title(r)}, {r.rate / 1e12:.3g} TFLOP/s, {r.tiles}: {r.library} / ours"
        found.append(Figure(name, "printed", stats.exact(r.ratio), r.equal))
    return found


def rates(rows: list[Row]) -> list[Figure]:
    """Every row: our rate alone."""
    found = []
    for r in rows:
        rate = stats.exact(r.rate / 1e12)
        found.append(Figure(f"{title(r)}, {r.tiles}", "printed", rate, r.equal, "TFLOP/s"))
    return found


def title(row: Row) -> str:
    """The row's class and problem."""
    return f"{row.kind}: {row.dtype} {row.layout} {'x'.join(map(str, row.shape))}"
