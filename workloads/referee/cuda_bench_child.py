"""GPU rows timed by cuda-bench, or by us, in a process of its own: run as a program by the referee.

python -m workloads.referee.cuda_bench_child ours|cuda-bench FILE SEED < rows as JSON lines; FILE gets a line of JSON for each.

Rows of the form `cold` take one call after NVBench's own flush (as many bytes as the L2 has are set), behind a held stream;
rows of the form `batch` take many queued calls, all issued before the first begins, as NVBench's batches do of fast launches.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from workloads.harness.timing import HOLD_NS, Limits
from workloads.records import Row, Samples

OURS, THEIRS = "ours", "cuda-bench"
COLD, BATCH = "cold", "batch"
HELD = 2  # launches of a batch for which NVBench holds the stream
CALLS = 100  # of a batch's launch, so that all are queued before the first begins
# a turn of twenty rows is to take a minute; theirs is done with most of them in one second
OUR_LIMITS = Limits(max_time=0.7)
TIMEOUT_S = 2  # of a row there (15 by itself): what is not steady by then is told by its middle, as ours is
REPEATS = 11  # batches a run, of which the middle counts: NVBench gives one mean for each


class Timed(msgspec.Struct, frozen=True):
    """What came of one row: seconds a call (the middle of them), how many there were, and the wall time they took."""

    row: Row
    seconds: float
    samples: int
    wall_s: float


class OurStream:
    """Our stream, as cuda-bench takes one: then no call has to change CuPy's."""

    def __cuda_stream__(self) -> tuple[int, int]:
        from workloads.harness import copy_modes

        return 0, copy_modes.gpu_stream().ptr


def prepared(row: Row, seed: int):
    """The row bound to its inputs on the GPU, warm."""
    from kernels import registry
    from workloads.harness import one_row

    plain = msgspec.structs.replace(row, settings=msgspec.structs.replace(row.settings, cache="warm", switches={}))
    made = one_row._prepared(registry.find(row.kernel), plain, row.problem.inputs(seed))
    for _ in range(3):
        made.run()
    if made.synchronize:
        made.synchronize()
    return made


def flushed(run: Callable, stream) -> Callable[[int], float]:
    """Device clock around single calls as NVBench's cold measurement takes them: flush by setting the L2's bytes, wait, hold
    the stream, start event, call, stop event, let go."""
    import cupy
    import numpy as np

    from kernels.cuda import loader

    size = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["l2CacheSize"]
    buffer = cupy.cuda.alloc(size)
    kernel = loader.load("cuda/hold", "hold")
    go = np.frombuffer(cupy.cuda.alloc_pinned_memory(4), np.int32, 1)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()

    def take(calls: int) -> float:
        spent = 0.0
        for _ in range(calls):
            buffer.memset_async(0, size, stream)
            stream.synchronize()
            go[0] = 0
            kernel((1,), (1,), (np.uint64(go.ctypes.data), np.int64(HOLD_NS)))
            try:
                begin.record(stream)
                run()
                end.record(stream)
            finally:
                go[0] = 1
            end.synchronize()
            spent += cupy.cuda.get_elapsed_time(begin, end) * 1e-3
        return spent

    take.resets = True  # type: ignore[attr-defined]  # a function may carry it
    return take


def ours(row: Row, form: str, seed: int, limits: Limits) -> Samples:
    """Our samples of a row in that form."""
    from workloads.harness import timing

    made = prepared(row, seed)
    take = flushed(made.run, made.stream) if form == COLD else timing.held(made.run, made.stream)
    return timing.visits(take, limits, "device")


def theirs(rows: list[tuple[str, Row]], seed: int) -> list[Timed]:
    """What cuda-bench says of the rows, at its defaults for cold calls but for TIMEOUT_S.

    Raises: ImportError without cuda-bench; KeyError when it skipped a row.
    """
    import cuda.bench as bench

    def launcher(run: Callable, calls: int) -> Callable:
        def launch(launch) -> None:
            for _ in range(calls):
                run()

        return launch

    def registered(index: int, form: str, row: Row):
        def body(state) -> None:
            made = prepared(row, seed)
            state.set_stream(OurStream())
            if form == COLD:
                state.exec(launcher(made.run, 1), batched=False)
            else:
                state.exec(launcher(made.run, CALLS), batched=True)

        benchmark = bench.register(body).set_name(f"row{index}")
        if form == BATCH:
            benchmark.add_int64_axis("repeat", range(REPEATS))
            # A batch has at least as many launches as the cold calls before it, and only the first two are held.
            benchmark.set_min_samples(HELD).set_stopping_criterion("sample-count")
            benchmark.set_criterion_param_int64("target-samples", HELD).set_batch_target_time(1e-6)

    for index, (form, row) in enumerate(rows):
        registered(index, form, row)
    return read(_run(bench, "--timeout", str(TIMEOUT_S)), rows)


def _run(bench, *flags: str) -> dict:
    """NVBench's JSON file of what is registered."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        bench.run_all_benchmarks(["cuda-bench", "--devices", "0", *flags, "--json", file.name])
        with open(file.name) as text:
            return json.load(text)


def middle(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


def read(told: dict, rows: list[tuple[str, Row]]) -> list[Timed]:
    """The rows' seconds out of NVBench's JSON file.

    Raises: KeyError, with NVBench's reason, for a row that it did not time.
    """
    by_name = {benchmark["name"]: benchmark["states"] for benchmark in told["benchmarks"]}
    found = []
    for index, (form, row) in enumerate(rows):
        states = by_name[f"row{index}"]
        summaries = [{s["tag"]: _value(s) for s in state.get("summaries") or ()} for state in states]
        if form == COLD:
            (seen,) = summaries
            seconds: Sequence[float | None] = [seen.get("nv/cold/time/gpu/median") or seen.get("nv/cold/time/gpu/mean")]
            count = int(seen.get("nv/cold/sample_size") or 0)
        else:
            means = sorted(x / CALLS for s in summaries if (x := s.get("nv/batch/time/gpu/mean")))
            seconds, count = means[len(means) // 2 :][:1], len(means) * CALLS
        if not seconds or not seconds[0]:
            raise KeyError(f"cuda-bench did not time {row.kernel}: {states[0].get('skip_reason') or 'no reason given'}")
        wall = sum(s.get(f"nv/{form}/walltime") or 0.0 for s in summaries)
        found.append(Timed(row, seconds[0], count, wall))
    return found


def _value(summary: dict) -> float | None:
    """A summary's number; NVBench writes numbers as text."""
    for part in summary.get("data") or ():
        if part["name"] == "value" and part["type"] in ("float64", "int64"):
            return float(part["value"])
    return None


def restarts(row: Row, count: int, seed: int, reference_s: float) -> dict:
    """How near `count` restarted measurements come to one that takes `reference_s` seconds, ours and cuda-bench's.

    cold form; wall times are of the sampling alone, warm-up included.
    """
    from workloads.harness import timing

    made = prepared(row, seed)
    take = flushed(made.run, made.stream)
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < reference_s:
        times.append(take(1))
    told: dict[str, Any] = {f"{side}_{what}": [] for side in ("ours", "theirs") for what in ("s", "wall_s")}
    told["reference_s"] = middle(times)
    for _ in range(count):
        begin = time.perf_counter()
        samples = timing.visits(take, Limits(), "device")
        told["ours_wall_s"].append(time.perf_counter() - begin)
        told["ours_s"].append(middle(samples.seconds))
    import cuda.bench as bench

    def body(state) -> None:
        state.set_stream(OurStream())
        state.exec(lambda launch: made.run(), batched=False)

    bench.register(body).set_name("row0").add_int64_axis("restart", range(count))
    for state in _run(bench)["benchmarks"][0]["states"]:
        seen = {s["tag"]: _value(s) for s in state["summaries"]}
        told["theirs_s"].append(seen.get("nv/cold/time/gpu/median") or seen["nv/cold/time/gpu/mean"])
        told["theirs_wall_s"].append(seen["nv/cold/walltime"])
    return told


def main(side: str, path: str, seed: int) -> None:
    rows = [(form, msgspec.convert(row, Row)) for form, row in map(json.loads, sys.stdin)]
    with open(path, "wb") as file:
        if side == THEIRS:
            for timed in theirs(rows, seed):
                file.write(msgspec.json.encode(timed) + b"\n")
        elif side == OURS:
            for form, row in rows:
                begin = time.perf_counter()
                seconds = ours(row, form, seed, OUR_LIMITS).seconds
                timed = Timed(row, middle(seconds), len(seconds), time.perf_counter() - begin)
                file.write(msgspec.json.encode(timed) + b"\n")
                file.flush()
        else:
            _, count, reference_s = side.split(":")
            file.write(msgspec.json.encode(restarts(rows[0][1], int(count), seed, float(reference_s))) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
