"""What benches on a GPU share: the check that there is one, kernels bound and warmed, equal results and samples of a length."""

import os
import sys
import tempfile

from analysis import stats
from kernels import registry
from workloads.harness import copy_modes
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
