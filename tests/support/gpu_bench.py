"""What benches on a GPU share: the check that there is one, kernels bound and warmed, equal results and samples of a length."""

import os
import sys
import tempfile
import time

import numpy as np
from must_reach import Figure, exactly

from analysis import stats
from kernels import registry
from workloads.harness import copy_modes, timing
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Settings

GPU = Settings(device="gpu:0")
MIB, ROUNDS = 1 << 20, 15


def on_gpu(main, compiles: bool = False) -> int:
    """main()'s exit code, or 3 where there is no GPU; with `compiles` nothing is taken from CuPy's cache."""
    if compiles:
        os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp()
    if problem := facts.gpu_problem():
        print(f"error: this bench needs an NVIDIA GPU and CuPy: {problem}", file=sys.stderr)
        return 3
    return main()


def bound(name: str, problem, stream) -> copy_modes.Prepared:
    """A kernel on a problem, warmed."""
    prepared = copy_modes.prepare(registry.find(name), problem, GPU, problem.inputs(1))
    for _ in range(3):
        prepared.run()
    stream.synchronize()
    return prepared


def same(own: list, library, problem, nearest: bool = False) -> bool:
    """Whether all give the library's result on whole numbers, whose sums are exact in any order; `nearest`: the whole numbers
    nearest to it, where the library rounds."""
    import cupy

    inputs = [cupy.asarray(x.view(np.uint16) if problem.dtype == "bfloat16" else x) for x in problem.inputs(3, True)]
    expected = library.bind(problem, *inputs)()
    expected = cupy.rint(expected) if nearest else expected
    return all(bool(cupy.array_equal(kernel.bind(problem, *inputs)(), expected)) for kernel in own)


def take(kernel, problem, inputs: tuple, stream, sample_s: float, min_time: float):
    """What gives the seconds of a call: the mean of as many as fill a sample."""
    run = copy_modes.prepare(kernel, problem, GPU, inputs).run
    device = timing.device(run, stream)
    seconds = timing.call_seconds(device, Limits(visit_s=min_time))
    clock = device if seconds >= timing.HELD_BELOW_S else timing.held(run, stream)
    calls = max(1, round(sample_s / seconds))
    return lambda: clock(calls) / calls


def geometric_mean(ratios: list[stats.Estimate]) -> stats.Estimate:
    """Of the values, and of each end."""
    ends = (float(np.exp(np.mean([np.log(getattr(r, end)) for r in ratios]))) for end in ("value", "low", "high"))
    return stats.Estimate(*ends)


def longest_compilation(loads: list) -> Figure:
    """Seconds of the slowest of some kernels' compilations."""
    seconds = []
    for load in loads:
        compiled, begin = load(), time.perf_counter()
        compiled.compile()
        seconds.append(time.perf_counter() - begin)
    longest = exactly(max(seconds))
    return Figure(f"longest of {len(loads)} compilations", "below 2 s", longest, longest.value < 2, "s")


def alternating(*sides, rounds: int = 0) -> list[list[float]]:
    """Seconds of each side in every round (0: ROUNDS), the order turned around from round to round; the first warms up."""
    taken: list[list[float]] = [[] for _ in sides]
    for round_ in range(-1, rounds or ROUNDS):
        order = range(len(sides)) if round_ % 2 else reversed(range(len(sides)))
        for i in order:
            seconds = sides[i]()
            if round_ >= 0:
                taken[i].append(seconds)
    return taken


def over(numerator: list[float], denominator: list[float]) -> stats.Estimate:
    """The median of the rounds' ratios."""
    return stats.median([a / b for a, b in zip(numerator, denominator, strict=True)])
