"""What the harness itself costs: our samples of a 20 µs call against a bare loop over the same call."""

import sys
import time

import numpy as np
import threadpoolctl
from gpu_bench import alternating, over
from must_reach import Figure, table

from kernels import registry
from kernels.problems import Matmul
from workloads.harness import telemetry, timing
from workloads.harness.timing import Limits

ROUNDS = 60


def bare(run, calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - begin) / calls


def call_of(seconds: float):
    """A matmul call of about that length on one thread, and its size."""
    for n in range(32, 400, 2):
        problem = Matmul(n, n, n)
        run = registry.find("matmul/numpy/blas").bind(problem, *problem.inputs(1))
        bare(run, 200)
        if min(bare(run, 200) for _ in range(5)) >= seconds:
            return run, n
    raise RuntimeError("no call is that long")


def main() -> int:
    limits, watch = Limits(), telemetry.watch("cpu")
    with threadpoolctl.threadpool_limits(1):
        run, n = call_of(20e-6)
        take = timing.host(run)
        once = timing.call_seconds(take, limits)
        calls, per_block = timing.sample_sizes(once, limits)

        def ours() -> float:
            watch.before_block()
            return float(np.mean(timing.visit(take, limits, "host-latency", once).seconds))

        mine, plain = alternating(ours, lambda: bare(run, calls * per_block), rounds=ROUNDS)
    ratio = over(mine, plain)
    figure = Figure("our seconds a call / a bare loop's", "<= 1.02", ratio, ratio.high <= 1.02)
    call = np.median(plain) * 1e6
    about = (
        f"matmul/numpy/blas n = {n} on one thread, {call:.3g} µs a call; {ROUNDS} pairs of blocks of {calls * per_block} "
        "calls, in alternating order, in one process."
    )
    return table("harness", "What the harness costs at 20 µs a call", [figure], [about])


if __name__ == "__main__":
    sys.exit(main())
