"""On two GPUs or more: NCCL's bus bandwidth through our timing and by PyTorch, and our one-shot kernel against NCCL."""

import argparse
import contextlib
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
import warnings

from gpu_bench import alternating, over
from must_reach import REPORTS, Figure, cells, exactly, table

from analysis import stats
from analysis.stats import Estimate
from kernels import reference, registry
from kernels.problems import AllReduce
from workloads.harness import copy_modes, timing
from workloads.machine import facts
from workloads.records import Settings

ROUNDS, FAST_ROUNDS = 15, 7
LARGE, KIB = 256 << 20, 1 << 10
SMALL = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)
WARM_UP, CALLS = 5, 20  # of nccl-tests
LAUNCHED = (
    ("in CUDA graphs of 32", "nccl_graph", ("one_shot_graph", "one_shot_early_graph")),
    ("launched one by one, queued", "nccl", ("one_shot",)),
)
SAMPLE_S = 0.01
PATIENCE_S = 40.0
CHILD = REPORTS.parent / "tests" / "support" / "allreduce_child.py"


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--fast", action="store_true", help="fewer rounds")
    rounds = FAST_ROUNDS if flags.parse_args().fast else ROUNDS
    if problem := facts.gpu_problem():
        print(f"error: this bench needs two NVIDIA GPUs and CuPy: {problem}", file=sys.stderr)
        return 3
    here = facts.describe()
    if len(here.gpus) < 2:
        print("error: this bench needs two NVIDIA GPUs; there is one", file=sys.stderr)
        return 3
    gpus, figures = ",".join(map(str, range(len(here.gpus)))), Figures()
    for part in (small, waited, large):
        try:
            part(gpus, rounds, figures)
        except Exception as error:  # what the other parts found is told all the same
            figures.lost(f"{part.__name__} sums", error)
    title = "All-reduce against nccl-tests' method, and our one-shot kernel against NCCL"
    return table("allreduce", title, figures.all, figures.notes)


class Figures:
    """The table as it grows; each line is also printed at once, as a bench that is ended early has no table."""

    def __init__(self):
        self.all: list[Figure] = []
        self.notes: list[str] = []

    def add(self, what: str, target: str, figure: Estimate, reached: bool, unit: str = "") -> None:
        self.all.append(Figure(what, target, figure, reached, unit))
        print(" | ".join(cells(self.all[-1])), file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        self.notes += [text, ""]

    def lost(self, what: str, error: Exception) -> None:
        self.note(f"Not measured: {what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
        print(self.notes[-2], file=sys.stderr, flush=True)
        self.all.append(Figure(f"not measured: {what}", "0", exactly(1), False))


def bound(variant: str, problem: AllReduce) -> copy_modes.Prepared:
    """The kernel, checked exactly on whole numbers, then with N(0,1) data.

    Raises: ArithmeticError for a wrong sum.
    """
    kernel, settings = registry.find(f"collective/cupy/{variant}"), Settings(device="gpu:0")
    whole = problem.inputs(1, True)
    checked = copy_modes.prepare(kernel, problem, settings, whole)
    for _ in range(1 if problem.form == "in-place" else 3):  # both halves of an inbox
        value = checked.run()
        checked.synchronize()
        if not reference.check(problem, whole, checked.result(value)).passed:
            raise ArithmeticError(f"{variant} is wrong at {problem}")
    return copy_modes.prepare(kernel, problem, settings, problem.inputs(1))


def by_nccl_tests(prepared: copy_modes.Prepared) -> float:
    """Seconds of a call as nccl-tests' perf programs take them: CALLS in a row after WARM_UP, the host's clock around them.

    Source: nccl-tests, src/common.cu, BenchTime.
    """
    for _ in range(WARM_UP):
        prepared.run()
    prepared.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        prepared.run()
    prepared.synchronize()
    return (time.perf_counter() - begin) / CALLS


@contextlib.contextmanager
def by_pytorch(count: int):
    """(what gives the seconds of a call by PyTorch, a process a GPU, by CUDA events; its NCCL)."""
    with tempfile.TemporaryDirectory() as folder:
        meet = str(pathlib.Path(folder) / "meet")
        log = open(pathlib.Path(folder) / "log", "w+")  # noqa: SIM115
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True, "bufsize": 1}
        words = [[sys.executable, str(CHILD), str(rank), str(count), meet, str(LARGE)] for rank in range(count)]
        children = [subprocess.Popen(command, **pipes) for command in words]

        def said(child) -> str:
            if select.select([child.stdout], [], [], PATIENCE_S)[0] and (line := child.stdout.readline()):
                return line.strip()
            log.seek(0)
            raise RuntimeError(f"PyTorch's part says nothing: {log.read()[-300:] or 'no message'}")

        def take() -> float:
            for child in children:
                child.stdin.write("go\n")
                child.stdin.flush()
            return max(float(said(child)) for child in children)

        try:
            versions = [said(child) for child in children]
            yield take, versions[0]
        finally:
            for child in children:
                child.kill()
                child.wait()
            log.close()


def large(gpus: str, rounds: int, figures: Figures) -> None:
    """The bus bandwidth at 256 MiB: by nccl-tests' method, in and out of place, by our own clock, and by PyTorch."""
    problem = AllReduce(LARGE, gpus)
    outside, inside = (bound("nccl", AllReduce(LARGE, gpus, form=form)) for form in AllReduce.FORMS)
    take = timing.throughput(outside.run, outside.synchronize)
    sides = [lambda: by_nccl_tests(outside), lambda: by_nccl_tests(inside), lambda: take(CALLS) / CALLS]
    names = ["nccl-tests' method, out of place", "nccl-tests' method, in place", "our clock, out of place"]
    pairs = [("our clock / nccl-tests' method, out of place", 2, 0)]
    with contextlib.ExitStack() as open_:
        try:
            theirs, version = open_.enter_context(by_pytorch(len(problem.members)))
            sides.append(theirs)
            names.append("PyTorch")
            pairs.append(("nccl-tests' method in place / PyTorch's all_reduce", 1, 3))
            text = f"PyTorch's all_reduce is by {version}, a process a GPU, CUDA events around {CALLS} calls in place."
            figures.note(text)
        except RuntimeError as error:
            figures.lost("an independent measurement", error)
        taken = alternating(*sides, rounds=rounds)
    for name, seconds in zip(names, taken, strict=True):
        rate = problem.bytes_moved / 1e9 / stats.median(seconds)
        figures.add(f"bus bandwidth at 256 MiB, float32: {name}", "", rate, True, "GB/s")
    for name, mine, other in pairs:
        ratio = over(taken[other], taken[mine])
        figures.add(f"bus bandwidth: {name}", "1 +- 0.02", ratio, abs(ratio.value - 1) <= 0.02)


def small(gpus: str, rounds: int, figures: Figures) -> None:
    """Sums up to 256 KiB: how many of ours fit into the time of one of NCCL's, both launched alike."""
    for how, theirs, all_ours in LAUNCHED:
        for dtype in ("float32", "bfloat16"):
            for nbytes in SMALL:
                problem, made = AllReduce(nbytes, gpus, dtype), {}
                for variant in (theirs, *all_ours):
                    try:
                        made[variant] = queued(variant, problem)
                    except (RuntimeError, ValueError) as error:
                        figures.lost(f"{variant} of {nbytes // KIB} KiB, {dtype}", error)
                taken = dict(zip(made, alternating(*made.values(), rounds=rounds), strict=True))
                for variant in (v for v in all_ours if v in taken and theirs in taken):
                    ratio, mine, other = over(taken[theirs], taken[variant]), taken[variant], taken[theirs]
                    what = f"{nbytes // KIB} KiB of {dtype}, {how}: {variant} {us(mine)}, NCCL {us(other)}"
                    figures.add(what, ">= 3", ratio, ratio.low >= 3, "x")
    figures.note(
        f"{rounds} alternating rounds. NCCL and ours are called from one thread of one process for all GPUs; "
        "NVLink multicast is off."
    )


def us(seconds: list[float]) -> str:
    return f"{1e6 * stats.median(seconds).value:.3g} µs"


def queued(variant: str, problem: AllReduce):
    """What gives the seconds of a sum among many that nobody waits for in between."""
    prepared = bound(variant, problem)
    take = timing.throughput(prepared.run, prepared.synchronize)
    calls = max(1, round(SAMPLE_S / max(take(5) / 5, 1e-6)))
    return lambda: take(calls) / calls / prepared.passes


def waited(gpus: str, rounds: int, figures: Figures) -> None:
    """The same at 4 KiB for sums that are each waited for: mostly launches and waits."""
    sides = []
    for name in ("one_shot", "nccl"):
        prepared = bound(name, AllReduce(SMALL[0], gpus))
        take = timing.latency(prepared.run, prepared.synchronize)
        take(100)
        sides.append(lambda take=take: take(200) / 200)
    mine, other = alternating(*sides, rounds=rounds)
    what = f"4 KiB of float32, each waited for: one_shot {us(mine)}, NCCL {us(other)}"
    figures.add(what, "", over(other, mine), True, "x")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    code = main()
    sys.stdout.flush()
    os._exit(code)  # NCCL's communicators would wait for graphs that hold them
