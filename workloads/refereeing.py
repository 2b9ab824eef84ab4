"""The referee's matches: our times beside those of outsiders, and our verdicts on rows whose truth is known."""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import msgspec

from analysis import comparison, spread
from kernels.problems import Matmul, Peak, Stream
from workloads import cuda_bench_child, machine, pyperf_child, sweep
from workloads.cuda_bench_child import BATCH, COLD, OURS, THEIRS
from workloads.results import Loaded, Machine, Measurement, Row, Run, Samples, Settings
from workloads.timing import Limits, rounded
from workloads.worker import ROOT, Order, Worker, environment

PYPERF, CUDA_BENCH = "pyperf", "cuda-bench"  # the clocks of the outsiders' samples
REFEREE = "referee"  # the note that names the outsider and its version
PLANTED, PLANTED_RIGOROUS = 0.05, 0.02
PROCESSES = 5
_PATIENCE_S = 600.0
_ONE = Settings(threads=1)


class Unfit(Exception):
    """A match that cannot be held here; says why."""


def cpu_rows() -> list[Row]:
    """Ten functions of one thread from about 1 us to 100 ms: BLAS, compiled loops, memory, arithmetic."""

    def square(variant: str, n: int) -> Row:
        return Row(f"matmul/{variant}", Matmul(n, n, n), _ONE)

    return [
        square("numpy/blas", 8), square("numba/reordered", 24), Row("stream/numpy/ufunc", Stream("add", 96 << 10), _ONE),
        square("numpy/blas", 96), Row("stream/numpy/ufunc", Stream("add", 1536 << 10), _ONE), square("numba/reordered", 128),
        Row("peak/numba/fma", Peak("float32", 1 << 27), _ONE), square("numpy/blas", 512), square("numpy/blas", 1024),
        square("numpy/blas", 2048),
    ]  # fmt: skip


def gpu_rows() -> list[tuple[str, Row]]:
    """Twenty kernels from about 3 us to 10 ms: batches of those below 20 us, single calls of the others."""
    batch, cold = Settings("gpu:0"), Settings("gpu:0", cache="cold", switches={"flush": "memset"})

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


def spread_rows(here: Machine) -> list[Row]:
    """What people compare most, for what single processes of it differ by: products and passes of several lengths."""
    found = []
    for threads in dict.fromkeys((1, here.cores)):
        on = Settings(threads=threads)
        found += [
            Row(f"matmul/{v}", Matmul(n, n, n), on)
            for v in ("numpy/blas", "numpy/operator", "numba/parallel")
            for n in (64, 512)
        ]
        found += [Row("stream/numba/loop", Stream("triad", size), on) for size in (1 << 20, 1 << 27)]
        found.append(Row("peak/numba/fma", Peak("float32", threads << 28), on))
    for i in range(min(1, len(here.gpus))):
        on = Settings(f"gpu:{i}")
        found += [Row("matmul/cupy/cublas", Matmul(n, n, n), on) for n in (64, 512, 2048)]
        found += [Row("matmul/cupy/cublas", Matmul(1024, 1024, 1024), Settings(f"gpu:{i}", mode=mode))
                  for mode in ("roundtrip", "roundtrip-pinned")]  # fmt: skip
        found += [Row("stream/cupy/wide", Stream("triad", size), on) for size in (1 << 22, 1 << 28)]
    return found


def verdict_rows(here: Machine) -> list[Row]:
    """Rows whose processes differ by less than a verdict claims; on a GPU its own."""
    if here.gpus:
        on = Settings("gpu:0")
        return [Row("matmul/cupy/cublas", Matmul(n, n, n), on) for n in (512, 2048)] + [
            Row("stream/cupy/wide", Stream("triad", 1 << 26), on)]  # fmt: skip
    return [Row("matmul/numpy/blas", Matmul(96, 96, 96), _ONE), Row("matmul/numpy/operator", Matmul(128, 128, 128), _ONE),
            Row("matmul/numba/reordered", Matmul(64, 64, 64), _ONE),
            Row("peak/numba/fma", Peak("float32", 1 << 23), _ONE)]  # fmt: skip


def version(package: str) -> str:
    """Raises Unfit when that package is not installed."""
    if not (found := machine.version(package)):
        raise Unfit(f"{package} is not installed: make run EXTRAS=referee, or pip install {package}")
    return found


def child(words: list[str], text: str = "", variables: dict[str, str] | None = None) -> None:
    """Runs one of our modules as a program; its prints are kept apart.

    Raises: Unfit with its last words when it fails.
    """
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    own = {**os.environ, **(variables or {}), "PYTHONPATH": paths}
    with tempfile.TemporaryFile("w+") as log:
        try:
            done = subprocess.run([sys.executable, "-m", *words], input=text, text=True, stdout=log, stderr=log, cwd=ROOT,
                                  env=own, timeout=_PATIENCE_S, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unfit(f"{words[0]} gave no answer within {_PATIENCE_S:.0f} s") from None
        if done.returncode:
            log.seek(0)
            last = ([line for line in log.read().splitlines() if line.strip()] or ["it said nothing"])[-1]
            raise Unfit(f"{words[0]} ended with exit code {done.returncode}: {last[:240]}")


def fresh(row: Row, limits: Limits, seed: int, processes: int = PROCESSES) -> Measurement:
    """The row measured in so many processes, a block each."""
    parts = []
    for _ in range(processes):
        with contextlib.closing(Worker(environment(row, {}))) as worker:
            parts.append(worker.ask(Order("measure", row, limits, seed), _PATIENCE_S))
        if parts[-1].status != "ok":
            break
    return sweep.merged(parts)


def by_pyperf(row: Row, seed: int, processes: int, folder: pathlib.Path) -> Samples:
    """The row under pyperf: seconds a call, a value each, a block a process.

    Raises: Unfit.
    """
    out = folder / f"pyperf-{len(list(folder.iterdir()))}.json"
    text = msgspec.json.encode(row).decode()
    flags = ["--seed", str(seed), "--copy-env", "--quiet", "-p", str(processes), "-o", str(out)]
    child([pyperf_child.MODULE, "--row", text, *flags],
          variables=environment(row, {}))  # fmt: skip
    import pyperf

    runs = [run for run in pyperf.Benchmark.load(str(out)).get_runs() if run.values]
    seconds = tuple(rounded(value) for run in runs for value in run.values)
    block = tuple(i for i, run in enumerate(runs) for _ in run.values)
    return Samples(PYPERF, seconds, runs[0].get_total_loops(), block, f"{len(runs)} processes")


def medians(samples: Samples) -> float:
    """The middle of the processes' middles: what a run says."""
    groups: dict[int, list[float]] = {}
    for second, block in zip(samples.seconds, samples.block, strict=True):
        groups.setdefault(block, []).append(second)
    return statistics.median(map(statistics.median, groups.values()))


def together(parts: list[Samples]) -> Samples:
    """Several runs' samples as one, every process a block of its own."""
    seconds, block = [], []
    for part in parts:
        base = max(block, default=-1) + 1
        ids = {b: base + i for i, b in enumerate(dict.fromkeys(part.block))}
        seconds += part.seconds
        block += [ids[b] for b in part.block]
    return Samples(parts[0].clock, tuple(seconds), parts[0].calls, tuple(block), f"{max(block) + 1}{spread.PROCESSES}")


def cpu(row: Row, repeats: int, processes: int, limits: Limits, seed: int) -> Measurement:
    """A row timed by us and by pyperf in turns, `repeats` times. Series ours_s, pyperf_s: what each run said.

    Raises: Unfit.
    """
    name = f"pyperf {version('pyperf')}"
    mine, yours = [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(repeats):
            for side in ("ours", "theirs") if turn % 2 else ("theirs", "ours"):
                if side == "theirs":
                    yours.append(by_pyperf(row, seed, processes, pathlib.Path(folder)))
                    continue
                done = fresh(row, limits, seed, processes)
                if done.status != "ok":
                    return done
                mine.append(done)
    series = {"ours_s": tuple(medians(m.samples[0]) for m in mine), "pyperf_s": tuple(map(medians, yours))}
    samples = (together([m.samples[0] for m in mine]), together(yours))
    return msgspec.structs.replace(mine[-1], samples=samples, series=series, notes={REFEREE: name})


def gpu(rows: list[tuple[str, Row]], repeats: int, seed: int) -> Iterator[Measurement]:
    """The rows timed by us and by cuda-bench in turns, `repeats` times, a process each. Series ours_s, cuda_bench_s.

    Raises: Unfit.
    """
    name = f"cuda-bench {version('cuda-bench')}"
    told: dict[str, dict[str, list]] = {row.key: {OURS: [], THEIRS: []} for _, row in rows}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(repeats):
            for side in (OURS, THEIRS) if turn % 2 else (THEIRS, OURS):
                for timed in _gpu_child(side, rows, seed, pathlib.Path(folder) / f"{turn}-{side}"):
                    told[timed.row.key][side].append(timed)
    for form, row in rows:
        mine, yours = told[row.key][OURS], told[row.key][THEIRS]
        samples = tuple(_one_each(clock, side) for clock, side in (("device", mine), (CUDA_BENCH, yours)))
        series = {"ours_s": tuple(t.seconds for t in mine), "cuda_bench_s": tuple(t.seconds for t in yours)}
        walls = {
            "ours_wall_s": statistics.median(t.wall_s for t in mine),
            "theirs_wall_s": statistics.median(t.wall_s for t in yours),
        }
        yield Measurement(row.kernel, row.problem, row.settings, "ok", samples=samples, series=series, values=walls,
                          notes={REFEREE: name, "form": form})  # fmt: skip


def _one_each(clock: str, runs: list) -> Samples:
    return Samples(
        clock, tuple(rounded(t.seconds) for t in runs), 1, tuple(range(len(runs))), f"{len(runs)}{spread.PROCESSES}"
    )


def _gpu_child(side: str, rows: list[tuple[str, Row]], seed: int, path: pathlib.Path) -> list:
    text = "".join(json.dumps([form, msgspec.to_builtins(row)]) + "\n" for form, row in rows)
    child(["workloads.cuda_bench_child", side, str(path), str(seed)], text)
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
        child(["workloads.cuda_bench_child", f"restarts:{count}:{reference_s}", str(path), str(seed)], text)
        told = json.loads(path.read_bytes())
    middle = told["reference_s"]
    values = {"restarts": float(count), "reference_s": middle}
    for side in ("ours", "theirs"):
        near = sum(abs(t / middle - 1) <= 0.01 for t in told[f"{side}_s"])
        values |= {f"{side}_hits": float(near), f"{side}_wall_s": statistics.median(told[f"{side}_wall_s"])}
    settings = msgspec.structs.replace(row.settings, switches={**row.settings.switches, "match": "restarts"})
    return Measurement(row.kernel, row.problem, settings, "ok", values=values, notes={REFEREE: name})


def verdicts(row: Row, pairs: int, limits: Limits, seed: int, rigorous: bool, here: Run,
             said: Callable[[str], None] = lambda text: None) -> Measurement:  # fmt: skip
    """Triples of the row in fresh processes and alternating blocks: two alike and one with a planted slow-down, 5 %, or for
    `rigorous` 2 % and five processes a side. `compare` judges each; values count what it said."""
    planted = PLANTED_RIGOROUS if rigorous else PLANTED
    known = spread.stored(here.machine.key)
    told: dict[str, list] = {"aa": [], "planted": []}
    for i in range(pairs):
        done = _triple(row, limits, seed + i, planted, PROCESSES if rigorous else 1)
        if done[0].status != "ok":
            return done[0]
        for name, other in (("aa", done[1]), ("planted", done[2])):
            made = comparison.comparison(*(Loaded((here,), (m,), 0, ()) for m in (done[0], other)), stored=known)
            told[name].append(made.rows[0])
        said(f"{row.kernel} {i + 1}/{pairs}: {told['aa'][-1].word}, planted {told['planted'][-1].word}")
    values = {"pairs": float(pairs), "planted": planted, "false": float(sum(r.word in ("slower", "faster") for r in told["aa"])),
              "found": float(sum(r.word == "slower" for r in told["planted"])),
              "least_effect": told["aa"][-1].least.limit}  # fmt: skip
    series = {f"{name}_{end}": tuple(rounded(getattr(r.verdict.ratio, field)) for r in rows)
              for name, rows in told.items()
              for end, field in (("ratio", "value"), ("low", "low"), ("high", "high"))}  # fmt: skip
    row = judged(row, rigorous)
    return Measurement(
        row.kernel, row.problem, row.settings, "ok", values=values, series=series, notes={REFEREE: "planted truth"}
    )


def judged(row: Row, rigorous: bool) -> Row:
    """The row whose measurement holds what was said of its pairs."""
    settings = msgspec.structs.replace(row.settings, switches={"match": "rigorous" if rigorous else "verdicts"})
    return msgspec.structs.replace(row, settings=settings)


def _triple(row: Row, limits: Limits, seed: int, planted: float, processes: int) -> list[Measurement]:
    """Two rows alike and one slowed down, side by side; with several processes each side's are its blocks."""
    handicaps = [h for h in (0.0, 0.0, planted) for _ in range(processes)]
    done = sweep.alternate([row] * len(handicaps), limits, seed=seed, handicaps=handicaps)
    if done[0].status != "ok":
        return done
    sides = [done[i : i + processes] for i in range(0, len(done), processes)]
    made = []
    for side in sides:
        samples = side[0].samples[0]
        if processes > 1:
            samples = sweep.joined([m.samples[0] for m in side], f"{processes}{spread.PROCESSES}")
        made.append(msgspec.structs.replace(side[0], samples=(samples,), notes={comparison.SIDE_BY_SIDE: str(seed)}))
    return made
