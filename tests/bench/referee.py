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

from must_reach import at_least, printed, table

from analysis import labels, stats, units
from tests.validation import outsiders
from tests.validation.outsiders import Told
from workloads import ROOT, records
from workloads.machine import facts
from workloads.records import Row
from workloads.records.rows import VISITS_AT

CPU = [
    "matmul --sizes 96,512,1024 --no-refine --device cpu --backends numpy --variants blas --threads 1",
    "stream --operations add --sizes 1536KiB --device cpu --backends numpy --variants ufunc --threads 1",
]
GPU = [
    "matmul --sizes 1024,2048,4096 --no-refine --device gpu --backends cupy --variants cublas --dtypes float32 bfloat16 "
    "--cache cold",
    "stream --operations triad --sizes 96MiB,1GiB --device gpu --backends cupy --variants wide",
]
WIDTH = 0.01  # the half-width that a time is asked for
AGREE = {"pyperf": 0.02, "cuda-bench": 0.01}  # or what its own restarts differ by
Found = dict[str, list[Told]]  # a row's key -> what each restart said


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--restarts", type=int, default=20)
    args = flags.parse_args()
    side = "pyperf" if facts.gpu_problem() else "cuda-bench"
    if importlib.util.find_spec("cuda.bench" if side == "cuda-bench" else side) is None:
        print(f"error: {side} is not installed\n  try: make bench NAME=referee EXTRAS=bench", file=sys.stderr)
        return 3
    mine, theirs, rows = {}, {}, {}
    begin = time.monotonic()
    for i in range(args.restarts):
        found = ours(CPU if side == "pyperf" else GPU)
        rows = {row.key: row for row, _ in found}
        other = (by_pyperf if side == "pyperf" else by_cuda_bench)(list(rows.values()))
        for row, told in found:
            mine.setdefault(row.key, []).append(told)
            theirs.setdefault(row.key, []).append(other[row.key])
        print(f"[{i + 1}/{args.restarts}] {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return shown(side, rows, mine, theirs)


def ours(commands: list[str]) -> list[tuple[Row, Told]]:
    """The rows as the commands measure them; a row's wall time is its visits', each from the end of the one before."""
    found = []
    for command in commands:
        name, *words = command.split()
        with tempfile.TemporaryDirectory() as folder:
            started([f"workloads.{name}", *words, "--format", "json", "-q", "-o", folder])
            done = [m for m in records.read(folder).measurements if m.ok and VISITS_AT in m.series]
        ends = sorted(at for m in done for at in m.series[VISITS_AT])
        took = dict(zip(ends[1:], (b - a for a, b in itertools.pairwise(ends)), strict=True))
        for m in (m for m in done if m.problem.op == name):
            walls = [took[at] for at in m.series[VISITS_AT] if at in took]
            wall_s = statistics.median(walls) * len(m.series[VISITS_AT])
            found.append((m.row, Told(stats.of(m.on("device") or m.on("host-latency")), wall_s)))
    return found


def started(words: list[str], text: str = "") -> None:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", *words], input=text, text=True, capture_output=True, cwd=ROOT, env=env)
    if done.returncode:
        raise SystemExit(f"{words[0]} ended with exit code {done.returncode}: {done.stderr[-500:]}")


def by_pyperf(rows: list[Row]) -> dict[str, Told]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, row in enumerate(rows):
            file, begin = Path(folder) / f"{i}.json", time.monotonic()
            started(["tests.validation.outsiders", "pyperf", row.key, "--copy-env", "--quiet", "-o", str(file)])
            found[row.key] = outsiders.of_pyperf(file.read_text(), time.monotonic() - begin)
    return found


def by_cuda_bench(rows: list[Row]) -> dict[str, Told]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "told.json"
        started(["tests.validation.outsiders", "cuda-bench", str(file)], "".join(f"{row.key}\n" for row in rows))
        return dict(zip((row.key for row in rows), outsiders.of_cuda_bench(file.read_text()), strict=True))


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


def shown(side: str, rows: dict[str, Row], mine: Found, theirs: Found) -> int:
    """Prints and writes the table; the exit code."""
    heads = ["row", f"ours / {side}", "to 1 %: ours", side, "half-width: ours", side]
    heads += ["intervals that hold the truth: ours", side]
    lines, agree, ratios = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)], 0, []
    middle = lambda found, of: statistics.median(map(of, found))  # noqa: E731
    for key, row in rows.items():
        values = [[t.seconds.value for t in found[key]] for found in (mine, theirs)]
        ratio = statistics.median(values[0]) / statistics.median(values[1])
        agree += abs(ratio - 1) <= max(AGREE[side], max(values[1]) / min(values[1]) - 1)
        times = [middle(found[key], to_width) for found in (mine, theirs)]
        widths = [middle(found[key], lambda t: t.seconds.noise) for found in (mine, theirs)]
        ratios.append(times[0] / times[1])
        cells = [labels.row(row), f"{ratio:.4f}", *map(units.seconds, times), *(f"{w:.2%}" for w in widths)]
        lines.append("| " + " | ".join([*cells, *(str(coverage(found[key])) for found in (mine, theirs))]) + " |")
    restarts = len(next(iter(mine.values())))
    held = [sum(map(coverage, found.values())) / (restarts * len(rows)) for found in (mine, theirs)]
    allowed = f"{AGREE[side]:.0%}, or what its own restarts differ by"
    figures = [
        at_least(f"rows of {len(rows)} where our time is {side}'s within {allowed}", len(rows), agree),
        printed("our intervals that hold the truth", held[0]),
        printed(f"{side}'s, had its mean, deviation and count been read as one", held[1]),
        printed(f"our time to a 1 % interval over {side}'s, median of rows", statistics.median(ratios)),
    ]
    about = (
        f"{restarts} restarts, ours and {side} in turns, both at their defaults. Truth: the median of the other restarts. Our "
        f"interval: of visits; {side} gives none, so here it is its mean +- {outsiders.Z} standard errors. Time: wall time "
        "of a measurement, and where its half-width is above 1 % as many times more as independent noise asks."
    )
    return table("referee", f"Our intervals beside {side}'s", figures, [about, "", *lines])


if __name__ == "__main__":
    sys.exit(main())
