"""On a GPU: cuBLAS through our timing against plain CUDA-event loops in the same process, medians over alternating pairs."""

import sys

from gpu_bench import alternating, bound, on_gpu, over
from must_reach import Figure, table

from kernels.problems import Matmul
from workloads.harness import copy_modes, timing
from workloads.harness.timing import Limits

ROUNDS = 25


def main() -> int:
    kernel, limits, figures = "matmul/cupy/cublas", Limits(visit_s=0.05), []
    stream = copy_modes.gpu_stream()
    # keeps the device busy while the plain loop's calls are issued
    ahead = bound(kernel, Matmul(4096, 4096, 4096), stream).run
    for n in (128, 512, 4096, 8192):
        prepared = bound(kernel, Matmul(n, n, n), stream)
        long = timing.call_seconds(timing.device(prepared.run, stream), limits) >= timing.HELD_BELOW_S
        ours = (timing.device if long else timing.held)(prepared.run, stream)
        calls = 3 if long else 100
        device = lambda: plain(prepared.run, stream, calls, ahead)  # noqa: E731, B023
        issued = lambda: plain(prepared.run, stream, calls, None)  # noqa: E731, B023
        queue = timing.throughput(prepared.run, stream.synchronize)
        for name, mine, theirs in (("device time", ours, device), ("throughput", queue, issued)):
            ratio = over(*alternating(lambda: mine(calls) / calls, theirs, rounds=ROUNDS))  # noqa: B023
            within = max(abs(ratio.low - 1), abs(ratio.high - 1))
            target = "within 2 %" if name == "device time" else "printed"
            what = f"n = {n}, {name}: ours / plain event loop"
            figures.append(Figure(what, target, ratio, within <= 0.02 or target == "printed"))
    about = (
        f"float32; {ROUNDS} alternating pairs each. Device time: the plain loop puts two events around its calls behind a 4096 "
        "product, so that the queue never runs dry. Throughput: the plain loop puts two events around the calls as they are "
        "issued, ours reads the host's clock around calls and one wait."
    )
    return table("cublas", "cuBLAS through our timing and through a plain CUDA-event loop", figures, [about])


def plain(run, stream, calls: int, ahead) -> float:
    """Seconds a call by two events around a loop, the textbook way."""
    from cupy.cuda import Event, get_elapsed_time

    begin, end = Event(), Event()
    if ahead:
        ahead()
    begin.record(stream)
    for _ in range(calls):
        run()
    end.record(stream)
    end.synchronize()
    return get_elapsed_time(begin, end) * 1e-3 / calls


if __name__ == "__main__":
    sys.exit(on_gpu(main))
