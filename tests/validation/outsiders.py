"""Rows under our sweep and under other benchmarks, all at their defaults: pyperf on a CPU, cuda-bench on a GPU.

Run as a program by the bench `referee`: `pyperf ROW -o FILE` (which pyperf starts again for each of its processes), `ours
FOLDER` or `cuda-bench FILE`, which read rows as lines of JSON.
"""

import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable

import msgspec

from analysis.stats import Estimate
from kernels import registry
from workloads.harness import copy_modes
from workloads.records import Row

Z = 1.96  # standard errors on either side of a mean: what a reader of a mean, a deviation and a count takes for 95 %


class Told(msgspec.Struct, frozen=True):
    """What a benchmark says of a row: the mean seconds of a call with the interval of its deviation, and the wall seconds."""

    seconds: Estimate
    wall_s: float


def interval(mean: float, error: float) -> Estimate:
    return Estimate(mean, mean - Z * error, mean + Z * error)


def of_pyperf(text: str, wall_s: float) -> Told:
    """pyperf's file: a mean over its processes, whose means are what is independent."""
    (benchmark,) = json.loads(text)["benchmarks"]
    means = [statistics.fmean(run["values"]) for run in benchmark["runs"] if run.get("values")]
    return Told(interval(statistics.fmean(means), statistics.stdev(means) / len(means) ** 0.5), wall_s)


def of_cuda_bench(text: str) -> list[Told]:
    """NVBench's JSON, whose numbers are texts, row by row.

    Raises: KeyError for a row that it did not time, with its reason.
    """
    found = []
    for benchmark in json.loads(text)["benchmarks"]:
        (state,) = benchmark["states"]
        parts = ((s["tag"], part) for s in state.get("summaries") or () for part in s["data"])
        said = {tag.removeprefix("nv/cold/"): part["value"] for tag, part in parts if part["name"] == "value"}
        if "time/gpu/mean" not in said:
            raise KeyError(f"cuda-bench did not time {benchmark['name']}: {state.get('skip_reason') or 'no reason'}")
        mean = float(said["time/gpu/mean"])
        error = mean * float(said["time/gpu/stdev/relative"]) / float(said["sample_size"]) ** 0.5
        found.append(Told(interval(mean, error), float(said["walltime"])))
    return found


class _OurStream:
    """Our stream as cuda-bench takes one: then no call has to change CuPy's."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, copy_modes.gpu_stream().ptr


def _call(row: Row) -> Callable:
    """The row's call, warm: cuda-bench empties the cache itself."""
    warm = msgspec.structs.replace(row.settings, cache="warm")
    prepared = copy_modes.prepare(registry.find(row.kernel), row.problem, warm, row.problem.inputs(1))
    prepared.run()
    return prepared.run


def _by_us(rows: Iterable[Row], folder: str) -> None:
    from workloads import matmul
    from workloads.harness import sweep

    measuring = matmul.parse(["--output", folder, "--quiet"]).measuring
    sweep.sweep(list(rows), measuring, "referee", sweep.header("make bench NAME=referee", measuring.seed))


def _by_cuda_bench(rows: Iterable[Row]) -> str:
    import cuda.bench

    for i, row in enumerate(rows):

        def body(state, row=row) -> None:
            run = _call(row)
            state.set_stream(_OurStream())
            state.exec(lambda launch: run(), batched=False)

        cuda.bench.register(body).set_name(f"row{i:02}")
    with tempfile.NamedTemporaryFile("r") as file:
        cuda.bench.run_all_benchmarks(["cuda-bench", "--devices", "0", "--json", file.name])
        return file.read()


def _by_pyperf(text: str) -> None:
    import pyperf

    row = msgspec.json.decode(text, type=Row)
    runner = pyperf.Runner(program_args=("-m", "tests.validation.outsiders", "pyperf", text))
    worker = runner.parse_args().worker
    runner.timeit("row", stmt="run()", globals={"run": _call(row) if worker else None})


if __name__ == "__main__":
    side, given = sys.argv[1:3]
    if side == "pyperf":
        del sys.argv[1:3]
        _by_pyperf(given)
    else:
        rows = [msgspec.json.decode(line, type=Row) for line in sys.stdin.buffer]
        if side == "ours":
            _by_us(rows, given)
        else:
            pathlib.Path(given).write_text(_by_cuda_bench(rows))
