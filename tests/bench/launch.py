"""On a GPU: 64 small CuPy kernels launched one by one, and as the nodes of one CUDA graph."""

import sys

from gpu_bench import alternating, bound, on_gpu, over
from must_reach import printed, table

from analysis import stats
from kernels.problems import Launch
from workloads.harness import copy_modes, timing

COUNT = 64
CALLS = 100


def main() -> int:
    stream, figures = copy_modes.gpu_stream(), []
    made = [bound(f"launch/cupy/{variant}", Launch("elementwise", COUNT), stream) for variant in ("graph", "ufunc")]
    clocks = {
        "waited for": lambda p: timing.latency(p.run, stream.synchronize),
        "queued": lambda p: timing.throughput(p.run, stream.synchronize),
    }
    for clock, make in clocks.items():
        takes = [make(p) for p in made]
        node, launch = alternating(*(lambda take=take: take(CALLS) / CALLS / COUNT for take in takes))
        each, whole = stats.median(node) * 1e6, stats.median(launch) * 1e6
        figures += [
            printed(f"a CUDA graph's node, {COUNT} in a call, {clock}", each, "µs"),
            printed(f"a launch, {COUNT} in a call, {clock}", whole, "µs"),
            printed(f"node / launch, {clock}", over(node, launch)),
        ]
    about = (
        f"cupy.add on {Launch.VALUES} float32 values, each on the result of the one before. Host clock over {CALLS} calls of "
        f"{COUNT}, each call waited for, or all queued and one wait at the end."
    )
    return table("launch", f"{COUNT} small CuPy kernels: a CUDA graph's node against a launch", figures, [about])


if __name__ == "__main__":
    sys.exit(on_gpu(main))
