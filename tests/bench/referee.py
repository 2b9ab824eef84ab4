"""Our time to a 1 % interval and how often it holds the truth, beside cuda-bench's on a GPU and pyperf's on a CPU."""

import argparse
import importlib.util
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from must_reach import REPORTS, at_least, printed, table

from analysis import labels, stats, units
from kernels.problems import Matmul, Stream
from kernels.problems.arrays import precision
from tests.validation import outsiders
from tests.validation.outsiders import Told
from workloads import ROOT, records
from workloads.machine import facts
from workloads.records import Row, Settings
from workloads.records.rows import VISITS_AT

ONE, COLD = Settings(threads=1), Settings("gpu:0", cache="cold")
ROWS = {
    "pyperf": [
        *(Row("matmul/numpy/blas", Matmul(n, n, n), ONE) for n in (96, 512, 1024)),
        Row("stream/numpy/ufunc", Stream("add", 3 << 19), ONE),
    ],
    "cuda-bench": [
        *(Row("matmul/cupy/cublas", Matmul(n, n, n), COLD) for n in (1024, 4096)),
        Row("matmul/cupy/cublas", Matmul(2048, 2048, 2048, *precision("bfloat16")), COLD),
        Row("stream/cupy/wide", Stream("triad", 96 << 20), COLD),
    ],
}
WIDTH = 0.01  # the half-width that a time is asked for
FLUSH = (
    " Ours is cold where a row says so; cuda-bench always, and by writing: a call then waits for what is written back."
)
AGREE = {"pyperf": 0.02, "cuda-bench": 0.01}  # or what its own restarts differ by
SURE = 8  # restarts from which on a coverage is said


class Restart(msgspec.Struct, frozen=True):
    """What a fresh process of ours and one of the other side said of each row."""

    rows: list[Row]
    ours: list[Told]
    theirs: list[Told]


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument(
        "--restarts", type=int, default=20, help="of both sides; 0: only the table of those that are kept"
    )
    flags.add_argument(
        "--stop-after", type=float, default=1e9, help="seconds: no restart that would end later is begun"
    )
    flags.add_argument(
        "--more", action="store_true", help="beside those that are kept, of the same start of the machine"
    )
    args = flags.parse_args()
    side = "pyperf" if facts.gpu_problem() else "cuda-bench"
    if importlib.util.find_spec("cuda.bench" if side == "cuda-bench" else side) is None:
        print(f"error: {side} is not installed\n  try: make bench NAME=referee EXTRAS=bench", file=sys.stderr)
        return 3
    file = REPORTS / facts.describe().key / "bench-referee.ndjson"
    if args.restarts and not args.more:
        file.unlink(missing_ok=True)
    begin, longest = time.monotonic(), 0.0
    for i in range(args.restarts):
        if (at := time.monotonic()) - begin + longest > args.stop_after:
            break
        own = ours(ROWS[side])
        between = time.monotonic()
        other = (by_pyperf if side == "pyperf" else by_cuda_bench)(ROWS[side])
        with open(file, "ab") as out:
            out.write(msgspec.json.encode(Restart(ROWS[side], own, other)) + b"\n")
        took = between - at, time.monotonic() - between
        longest = max(longest, sum(took))
        print(f"[{i + 1}/{args.restarts}] ours {took[0]:.0f} s, {side} {took[1]:.0f} s", file=sys.stderr, flush=True)
    kept = [msgspec.json.decode(line, type=Restart) for line in file.read_bytes().splitlines()]
    return shown(side, kept) if len(kept) > 1 else 1  # one alone tells no truth for another


def ours(rows: list[Row]) -> list[Told]:
    """The rows in a sweep at its defaults; a row's wall time is its visits', each from the end of the one before."""
    with tempfile.TemporaryDirectory() as folder:
        started(["tests.validation.outsiders", "ours", folder], lines(rows))
        done = {m.key: m for m in records.read(folder).measurements}
    ends = sorted(at for m in done.values() for at in m.series[VISITS_AT])
    took = dict(zip(ends[1:], (b - a for a, b in itertools.pairwise(ends)), strict=True))
    found = []
    for m in (done[row.key] for row in rows):
        walls = [took[at] for at in m.series[VISITS_AT] if at in took]
        wall_s = statistics.median(walls) * len(m.series[VISITS_AT])
        found.append(Told(stats.median_of(m.on("device") or m.on("host-latency")), wall_s))
    return found


def lines(rows: list[Row]) -> str:
    return "".join(f"{row.key}\n" for row in rows)


def started(words: list[str], text: str = "") -> None:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", *words], input=text, text=True, capture_output=True, cwd=ROOT, env=env)
    if done.returncode:
        raise SystemExit(f"{words[0]} ended with exit code {done.returncode}: {done.stderr[-500:]}")


def by_pyperf(rows: list[Row]) -> list[Told]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for i, row in enumerate(rows):
            file, begin = Path(folder) / f"{i}.json", time.monotonic()
            started(["tests.validation.outsiders", "pyperf", row.key, "--copy-env", "--quiet", "-o", str(file)])
            found.append(outsiders.of_pyperf(file.read_text(), time.monotonic() - begin))
    return found


def by_cuda_bench(rows: list[Row]) -> list[Told]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "told.json"
        started(["tests.validation.outsiders", "cuda-bench", str(file)], lines(rows))
        return outsiders.of_cuda_bench(file.read_text())


def to_width(told: Told) -> float:
    """Wall seconds to a half-width of WIDTH: what it took, or where it is wider as many times more as independent noise asks."""
    return told.wall_s * max(1.0, (told.seconds.noise / WIDTH) ** 2)


def coverage(told: list[Told]) -> int:
    """How many intervals hold the truth: the median of all other restarts."""
    held = 0
    for i, one in enumerate(told):
        truth = statistics.median(t.seconds.value for j, t in enumerate(told) if j != i)
        held += one.seconds.low <= truth <= one.seconds.high
    return held


def shown(side: str, restarts: list[Restart]) -> int:
    """Prints and writes the table; the exit code."""
    heads = ["row", f"ours / {side}", "to 1 %: ours", side, "half-width: ours", side]
    heads += ["intervals that hold the truth: ours", side]
    told, agree, ratios, held = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)], 0, [], [0, 0]
    for i, row in enumerate(restarts[0].rows):
        sides = [[r.ours[i] for r in restarts], [r.theirs[i] for r in restarts]]
        values = [[t.seconds.value for t in of] for of in sides]
        ratio = statistics.median(values[0]) / statistics.median(values[1])
        agree += abs(ratio - 1) <= max(AGREE[side], max(values[1]) / min(values[1]) - 1)
        times = [statistics.median(map(to_width, of)) for of in sides]
        widths = [statistics.median(t.seconds.noise for t in of) for of in sides]
        ratios.append(times[0] / times[1])
        own = [coverage(of) for of in sides]
        held = [a + b for a, b in zip(held, own, strict=True)]
        cells = [labels.row(row), f"{ratio:.4f}", *map(units.seconds, times)]
        cells += [*(f"{w:.2%}" for w in widths), *map(str, own)]
        told.append("| " + " | ".join(cells) + " |")
    count = len(restarts)
    allowed = f"{AGREE[side]:.0%}, or what its own restarts differ by"
    shares = [100 * n / (count * len(ratios)) for n in held]
    figures = [
        at_least(f"rows of {len(ratios)} where our time is {side}'s within {allowed}", len(ratios), agree),
        at_least("restarts, each of fresh processes", SURE, count),
        printed("our intervals that hold the truth", shares[0], "%"),
        printed(f"{side}'s, had its mean, deviation and count been read as one", shares[1], "%"),
        printed(f"our time to a 1 % interval over {side}'s, median of rows", statistics.median(ratios)),
    ]
    about = (
        f"{count} restarts, ours and {side} in turns, both at their defaults. Truth: the median of the other restarts. Our "
        f"interval: of visits; {side} gives none, so here it is its mean ± {outsiders.Z} standard errors. Time: wall time "
        "of a measurement, and where its half-width is above 1 % as many times more as independent noise asks."
        + FLUSH
        * (side == "cuda-bench")
    )
    return table("referee", f"Our intervals beside {side}'s", figures, [about, "", *told])


if __name__ == "__main__":
    sys.exit(main())
