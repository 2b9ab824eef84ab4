"""MKL against NumPy's BLAS: same arrays, threads and size, in alternating blocks of one process; the FMA peak beside them."""

import sys

import numba
import threadpoolctl
from must_reach import Figure, table

from analysis import stats, units
from kernels import registry
from kernels.problems import Matmul
from workloads.harness import plan, telemetry, timing
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Samples, Settings
from workloads.records.visits import joined

SIZES = (256, 512, 1024, 2048, 4096)
ROUNDS, LONG_S = 10, 0.3
SIDES = {"MKL": "matmul/mkl/gemm", "NumPy's BLAS": "matmul/numpy/blas"}


def compare(takes: dict, limits: Limits, rounds: int, fewer: int = 0, settle=telemetry.settle) -> dict[str, Samples]:
    """Blocks of every side, in turns whose order alternates (A B B A), each begun when the other's threads have stopped
    spinning; side -> its samples. `fewer`: rounds where a call takes more than 0.3 s."""
    lengths = {name: timing.call_seconds(take, limits) for name, take in takes.items()}
    found: dict[str, list[Samples]] = {name: [] for name in takes}
    for turn in range(fewer if fewer and max(lengths.values()) > LONG_S else rounds):
        for name in list(takes)[:: 1 if turn % 2 else -1]:
            settle()
            found[name].append(timing.visit(takes[name], limits, "host-latency", lengths[name]))
    return {name: joined(blocks, "in turns") for name, blocks in found.items()}


def peak(threads: int, limits: Limits):
    """(FLOPs of a call, its take) of the machine's fused multiply-adds."""
    problem = plan.peak_problem("float32", Settings(threads=threads))
    run = registry.find("peak/numba/fma").bind(problem, *problem.inputs(1))
    run()
    return problem.flops, timing.host(run)


def main() -> int:
    limits, figures, notes = Limits(visit_s=0.1), [], []
    try:
        kernels = {name: registry.find(kernel) for name, kernel in SIDES.items()}
    except registry.NotInstalled as error:
        print(f"error: {error}\n  try: make bench NAME=blas EXTRAS=bench", file=sys.stderr)
        return 3
    for threads in dict.fromkeys((1, facts.usable_cores())):
        numba.set_num_threads(threads)
        threadpoolctl.ThreadpoolController().limit(limits=threads)
        flops, ceiling = peak(threads, limits)
        for n in SIZES:
            problem = Matmul(n, n, n)
            inputs = problem.inputs(1)
            takes = {name: timing.host(kernel.bind(problem, *inputs)) for name, kernel in kernels.items()}
            samples = compare(takes | {"FMA peak": ceiling}, limits, ROUNDS)
            what = f"n = {n}, {units.count(threads, 'thread')}"
            ratio = stats.verdict(samples["MKL"], samples["NumPy's BLAS"], paired=True).ratio
            figures.append(Figure(f"{what}: MKL / NumPy's BLAS", "printed", ratio, True))
            rates = {name: problem.flops / stats.of(samples[name]).value for name in SIDES}
            top = flops / stats.of(samples["FMA peak"]).value
            shares = ", ".join(f"{name} {rate / 1e9:.4g} ({rate / top:.0%})" for name, rate in rates.items())
            notes.append(
                f"- {what}, GFLOP/s and percent of the FMA peak of {top / 1e9:.4g} measured in turns: {shares}"
            )
    blas = facts.blas()
    about = (
        f"Rates of MKL {facts.version('mkl')} over those of NumPy's {blas['blas']} ({blas.get('blas_kernels', '')} kernels), "
        f"float32, row-major, into a result that is there; {ROUNDS} alternating blocks a side in one process, each begun when "
        "the threads of the side before it have stopped spinning."
    )
    return table("blas", "MKL and NumPy's BLAS side by side", figures, [about, "", *notes])


if __name__ == "__main__":
    sys.exit(main())
