"""On a GPU: cuDNN's plans through our timing against cudnn-frontend's own method on the same plan, in alternating rounds.

cudnn-frontend's autotune (graph_interface.h) puts two events around each single call and keeps the least of up to 100, stopping
when a call is no longer a twentieth faster. It does so in C++; from Python the events would also time Python's own issuing, so
here a long product goes ahead of each batch of pairs and the queue never runs dry.
"""

import sys

import numpy as np
from gpu_bench import ROUNDS, alternating, bound, on_gpu
from must_reach import Figure, printed, table

from analysis import stats
from kernels import registry
from kernels.problems import Conv, Matmul
from workloads.harness import copy_modes, timing
from workloads.harness.timing import Limits

PAIRS = 20
WITHIN = 0.02
LAYERS = {  # of ResNet-50 and of the articles' models, at batch 32
    "resnet 3x3, 56 x 56 x 64": (56, 64, 64, 3, 1, "same"),
    "resnet 1x1, 14 x 14 x 1024": (14, 1024, 256, 1, 1, "same"),
    "resnet 7x7 / 2, 224 x 224 x 3": (224, 3, 64, 7, 2, 3),
    "cifar10-cnn conv2, 16 x 16 x 32": (16, 32, 64, 3, 1, "same"),
    "mnist-cnn conv1, 28 x 28 x 1": (28, 1, 32, 3, 1, "valid"),
}


def main() -> int:
    try:
        kernel = registry.find("conv/cudnn/plan").name
    except registry.NotInstalled as error:
        print(f"error: this bench needs cuDNN: {error}", file=sys.stderr)
        return 3
    stream, figures = copy_modes.gpu_stream(), []
    ahead = bound("matmul/cupy/cublas", Matmul(8192, 8192, 8192), stream).run
    nothing = stats.median(np.concatenate([pairs(lambda: None, stream, ahead) for _ in range(5)]))
    figures.append(printed("two events with nothing between them", nothing * 1e6, "µs"))
    for dtype in ("float32", "bfloat16"):
        for name, (side, c_in, c_out, filters, stride, pad) in LAYERS.items():
            problem = Conv(32, side, side, c_in, c_out, filters, filters, stride, pad, dtype=dtype)
            figures += compared(f"{name}, {dtype}", bound(kernel, problem, stream), problem, stream, ahead)
    about = (
        f"{ROUNDS} rounds that alternate; ours: the device clock of the sweep; theirs: {PAIRS} pairs of events a round, each "
        "around one call, less what a pair with nothing in it shows in the same round (first row). Allowed is 2 % of theirs or "
        "that tick, whichever is more."
    )
    return table("cudnn", "cuDNN's plans through our timing and through cudnn-frontend's method", figures, [about])


def compared(name: str, prepared: copy_modes.Prepared, problem: Conv, stream, ahead) -> list[Figure]:
    """The difference of the medians (the target), and the rate on our clock."""
    run, limits = prepared.run, Limits()
    long = timing.call_seconds(timing.device(run, stream), limits) >= timing.BLOCKED_BELOW_S
    ours, calls = (timing.device if long else timing.blocked)(run, stream), 5 if long else 100
    sides = (
        lambda: ours(calls) / calls,
        lambda: float(np.median(pairs(run, stream, ahead))),
        lambda: float(np.median(pairs(lambda: None, stream, ahead))),
    )
    mine, theirs, nothing = map(np.array, alternating(*sides))
    theirs = theirs - nothing
    ratio, off = stats.median(mine / theirs), stats.median((theirs - mine) * 1e6)
    allowed = max(WITHIN * float(np.median(theirs)), float(np.median(nothing))) * 1e6
    reached = -allowed <= off.low and off.high <= allowed
    rate = stats.median(problem.flops / mine / 1e12)
    plan = getattr(run, "notes", prepared.notes).get("plan", "")
    return [
        Figure(f"{name}: theirs - ours", f"within {allowed:.2f} µs", off, reached, "µs"),
        printed(f"{name}: ours / theirs", ratio),
        printed(f"{name}: {plan}", rate, "TFLOP/s"),
    ]


def pairs(run, stream, ahead) -> np.ndarray:
    """Seconds of single calls, each between two events of its own, all queued behind a long product."""
    from cupy.cuda import Event, get_elapsed_time

    marks = [(Event(), Event()) for _ in range(PAIRS)]
    ahead()
    for begin, end in marks:
        begin.record(stream)
        run()
        end.record(stream)
    stream.synchronize()
    return np.array([get_elapsed_time(begin, end) * 1e-3 for begin, end in marks])


if __name__ == "__main__":
    sys.exit(on_gpu(main))
