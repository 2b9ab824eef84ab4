"""The referee's matches with outsiders: our times beside those of pyperf and cuda-bench."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from analysis import noise
from kernels.problems import Matmul, Peak, Stream
from workloads import ROOT
from workloads.harness import sweep
from workloads.harness.timing import Limits, rounded
from workloads.harness.worker import environment
from workloads.machine import facts
from workloads.records import Measurement, Row, Samples, Settings
from workloads.referee import cuda_bench_child, pyperf_child
from workloads.referee.cuda_bench_child import BATCH, COLD, OURS, THEIRS
from workloads.referee.verdicts import REFEREE, medians, together

PYPERF, CUDA_BENCH = "pyperf", "cuda-bench"  # the clocks of the outsiders' samples
_VALUES = 6  # of pyperf, a process
_PATIENCE_S = 600.0
_ONE = Settings(threads=1)


class Unfit(Exception):
    """A match that cannot be held here; says why."""


def cpu_rows() -> list[Row]:
    """Ten functions of one thread from about 1 us to 100 ms: BLAS, compiled loops, memory, arithmetic."""

    def square(variant: str, n: int) -> Row:
        return Row(f"matmul/{variant}", Matmul(n, n, n), _ONE)

    return [
        square("numpy/blas", 8),
        square("numba/reordered", 24),
        Row("stream/numpy/ufunc", Stream("add", 96 << 10), _ONE),
        square("numpy/blas", 96),
        Row("stream/numpy/ufunc", Stream("add", 1536 << 10), _ONE),
        square("numba/reordered", 128),
        Row("peak/numba/fma", Peak("float32", 1 << 27), _ONE),
        square("numpy/blas", 512),
        square("numpy/blas", 1024),
        square("numpy/blas", 2048),
    ]


def gpu_rows() -> list[tuple[str, Row]]:
    """Twenty kernels from about 3 us to 10 ms: batches of those below 20 us, single calls of the others."""
    own = {noise.MATCH: CUDA_BENCH}  # timed their way: no row of a sweep, and nothing that processes of one differ by
    batch, cold = Settings("gpu:0", switches=own), Settings("gpu:0", cache="cold", switches={"flush": "memset", **own})

    def triad(mib: int, settings: Settings) -> Row:
        return Row("stream/cupy/wide", Stream("triad", mib << 20), settings)

    def square(n: int, dtype: str, settings: Settings) -> Row:
        return Row("matmul/cupy/cublas", Matmul(n, n, n, dtype), settings)

    quick = [triad(m, batch) for m in (1, 4, 16)] + [square(n, "float32", batch) for n in (128, 256)]
    quick += [square(n, "bfloat16", batch) for n in (256, 512)]
    long = [triad(m, cold) for m in (96, 256, 1024, 2048, 4096)] + [
        square(n, "float32", cold) for n in (1024, 2048, 4096, 6144)
    ]
    long += [square(n, "bfloat16", cold) for n in (2048, 4096, 8192)] + [square(2048, "float64", cold)]
    return [(BATCH, row) for row in quick] + [(COLD, row) for row in long]


def version(package: str) -> str:
    """Raises Unfit when that package is not installed."""
    if not (found := facts.version(package)):
        raise Unfit(f"{package} is not installed: make run EXTRAS=referee, or pip install {package}")
    return found


def child(words: list[str], text: str = "", variables: dict[str, str] | None = None) -> None:
    """Runs one of our modules as a program; its prints are kept apart.

    Raises: Unfit with its last words when it fails.
    """
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    own = {**os.environ, **(variables or {}), "PYTHONPATH": paths}
    with tempfile.TemporaryFile("w+") as log:
        how: dict[str, Any] = {
            "stdout": log,
            "stderr": log,
            "cwd": ROOT,
            "env": own,
            "timeout": _PATIENCE_S,
            "check": False,
        }
        try:
            done = subprocess.run([sys.executable, "-m", *words], input=text, text=True, **how)
        except subprocess.TimeoutExpired:
            raise Unfit(f"{words[0]} gave no answer within {_PATIENCE_S:.0f} s") from None
        if done.returncode:
            log.seek(0)
            last = ([line for line in log.read().splitlines() if line.strip()] or ["it said nothing"])[-1]
            raise Unfit(f"{words[0]} ended with exit code {done.returncode}: {last[:240]}")


def by_pyperf(
    row: Row, seed: int, processes: int, limits: Limits, folder: pathlib.Path
) -> tuple[Samples, list[Measurement]]:
    """The row under pyperf: seconds a call, a value each, a block a process; and by our clocks in the same processes.

    Raises: Unfit.
    """
    turn = len(list(folder.iterdir()))
    out, ours = folder / f"{turn}.json", folder / f"{turn}.ours"
    text, given = (msgspec.json.encode(x).decode() for x in (row, limits))
    flags = ["--seed", str(seed), "--ours", str(ours), "--limits", given, "-o", str(out)]
    flags += ["--copy-env", "--quiet", "-p", str(processes), "-n", str(_VALUES)]
    child([pyperf_child.MODULE, "--row", text, *flags], variables=environment(row, {}))
    import pyperf

    runs = [run for run in pyperf.Benchmark.load(str(out)).get_runs() if run.values]
    seconds = tuple(rounded(value) for run in runs for value in run.values)
    block = tuple(i for i, run in enumerate(runs) for _ in run.values)
    theirs = Samples(PYPERF, seconds, runs[0].get_total_loops(), block, f"{len(runs)} processes")
    return theirs, [msgspec.json.decode(line, type=Measurement) for line in ours.read_bytes().splitlines()]


def cpu(row: Row, repeats: int, processes: int, limits: Limits, seed: int) -> Measurement:
    """A row timed by us and by pyperf in the same processes, `repeats` times so many. Series ours_s, pyperf_s: what each of
    the repeats said.

    Raises: Unfit.
    """
    name = f"pyperf {version('pyperf')}"
    mine, yours = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            theirs, parts = by_pyperf(row, seed, processes, limits, pathlib.Path(folder))
            yours.append(theirs)
            mine.append(sweep.merged(parts))
    series = {"ours_s": tuple(medians(m.samples[0]) for m in mine), "pyperf_s": tuple(map(medians, yours))}
    samples = (together([m.samples[0] for m in mine]), together(yours))
    flags = tuple(dict.fromkeys(f for m in mine for f in m.flags))
    return msgspec.structs.replace(mine[-1], samples=samples, series=series, flags=flags, notes={REFEREE: name})


def gpu(
    rows: list[tuple[str, Row]], repeats: int, seed: int, before: dict[str, Measurement]
) -> Iterator[list[Measurement]]:
    """The rows timed by us and by cuda-bench in turns, a process each, until every row has `repeats` turns, those it has from
    before among them; after each turn what there is. Series ours_s, cuda_bench_s, ours_wall_s, theirs_wall_s: a number a turn.

    Raises: Unfit.
    """
    name = f"cuda-bench {version('cuda-bench')}"
    told = {
        row.key: {s: before[row.key].series.get(s, ()) if row.key in before else () for s in _SERIES} for _, row in rows
    }

    def turns(row: Row) -> int:
        return len(told[row.key]["ours_s"])

    def all_() -> list[Measurement]:
        return [_both(form, row, told[row.key], name) for form, row in rows if turns(row)]

    if all(turns(row) >= repeats for _, row in rows):
        yield [before[row.key] for _, row in rows]
    with tempfile.TemporaryDirectory() as folder:
        while lacking := [pair for pair in rows if turns(pair[1]) < repeats]:
            turn = turns(lacking[0][1])
            lacking = [pair for pair in lacking if turns(pair[1]) == turn]
            for side in (OURS, THEIRS) if turn % 2 else (THEIRS, OURS):
                for timed in _gpu_child(side, lacking, seed, pathlib.Path(folder) / f"{turn}-{side}"):
                    own, (clock, wall) = told[timed.row.key], _SERIES_OF[side]
                    own[clock], own[wall] = (*own[clock], timed.seconds), (*own[wall], timed.wall_s)
            yield all_()


_SERIES_OF = {OURS: ("ours_s", "ours_wall_s"), THEIRS: ("cuda_bench_s", "theirs_wall_s")}
_SERIES = [name for names in _SERIES_OF.values() for name in names]


def _both(form: str, row: Row, told: dict[str, tuple[float, ...]], name: str) -> Measurement:
    """A row of the match with cuda-bench, from what each turn said."""
    samples = tuple(
        _one_each(clock, told[series]) for clock, series in (("device", "ours_s"), (CUDA_BENCH, "cuda_bench_s"))
    )
    values = {wall: statistics.median(told[wall]) for _, wall in _SERIES_OF.values()}
    notes = {REFEREE: name, "form": form}
    return row.result("ok", samples=samples, series=dict(told), values=values, notes=notes)


def _one_each(clock: str, seconds: tuple[float, ...]) -> Samples:
    blocks = tuple(range(len(seconds)))
    return Samples(clock, tuple(map(rounded, seconds)), 1, blocks, f"{len(seconds)}{noise.PROCESSES}")


def _gpu_child(side: str, rows: list[tuple[str, Row]], seed: int, path: pathlib.Path) -> list:
    text = "".join(json.dumps([form, msgspec.to_builtins(row)]) + "\n" for form, row in rows)
    child(["workloads.referee.cuda_bench_child", side, str(path), str(seed)], text)
    return [msgspec.json.decode(line, type=cuda_bench_child.Timed) for line in path.read_bytes().splitlines()]


def restarts(row: Row, count: int, reference_s: float, seed: int) -> Measurement:
    """`count` restarted measurements of a GPU row, ours and cuda-bench's, beside one long one: how many come within 1 % of it,
    and the wall time of one.

    Raises: Unfit.
    """
    name = f"cuda-bench {version('cuda-bench')}"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "restarts"
        text = json.dumps([COLD, msgspec.to_builtins(row)]) + "\n"
        child(["workloads.referee.cuda_bench_child", f"restarts:{count}:{reference_s}", str(path), str(seed)], text)
        told = json.loads(path.read_bytes())
    middle = told["reference_s"]
    values = {"restarts": float(count), "reference_s": middle}
    for side in ("ours", "theirs"):
        near = sum(abs(t / middle - 1) <= 0.01 for t in told[f"{side}_s"])
        values |= {f"{side}_hits": float(near), f"{side}_wall_s": statistics.median(told[f"{side}_wall_s"])}
    settings = msgspec.structs.replace(row.settings, switches={**row.settings.switches, noise.MATCH: "restarts"})
    return Row(row.kernel, row.problem, settings).result("ok", values=values, notes={REFEREE: name})
