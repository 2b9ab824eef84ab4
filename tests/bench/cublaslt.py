"""On a GPU: our cuBLASLt kernel against torch.mm in bfloat16, both timed as mamf-finder does, in alternating rounds.

mamf-finder (github.com/stas00/ml-engineering) sets 256 MiB to zero and writes the result anew before each product, puts
two events around it, waits once at the end, and reports the mean, the median and the best of 100 after 50 warm-ups.
"""

import functools
import sys

import numpy as np
from gpu_bench import alternating, on_gpu
from must_reach import Figure, printed, table

from analysis import stats
from kernels import registry
from kernels.problems import Matmul
from workloads.harness import copy_modes, timing
from workloads.harness.timing import Limits

# the first: its best on an H200
SHAPES = ((2048, 2048, 13312), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192))
ROUNDS, WARM_UPS, ITERATIONS = 10, 50, 100
FLUSHED_BYTES = 256 << 20
WITHIN = 0.02


def main() -> int:
    try:
        import torch

        kernel = registry.find("matmul/cublaslt/best")
    except (ImportError, registry.NotInstalled) as error:
        print(f"error: this bench needs PyTorch and nvmath-python: {error}", file=sys.stderr)
        return 3
    figures, stream = [], copy_modes.gpu_stream()
    with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        for shape in SHAPES:
            figures += compared(torch, kernel, Matmul(*shape, "bfloat16", layout="nt"), stream)
    about = (
        "bfloat16, B stored n x k as mamf-finder has it, N(0,1) operands, the same ones on both sides; "
        f"{ROUNDS} rounds that alternate, each of {WARM_UPS} warm-ups and {ITERATIONS} products. The ratio is torch.mm's time "
        f"over ours, so above 1 ours is faster; torch {torch.__version__}. `back to back` is our own device clock, warm and "
        "without a pause between products, which the power limit may slow."
    )
    return table("cublaslt", "cuBLASLt through our kernel and torch.mm as mamf-finder times it", figures, [about])


def compared(torch, kernel, problem: Matmul, stream) -> list[Figure]:
    """Ratio of the medians (the target), both sides' best TFLOP/s, and ours on our own clock."""
    import cupy

    a, b = (cupy.asarray(x.view(np.int16)) for x in problem.inputs(1))
    run = kernel.bind(problem, a.view(np.uint16), b.view(np.uint16))
    ours, fresh = run(), cupy.asarray(Matmul(problem.m, problem.n, 1, "bfloat16").inputs(3)[0].view(np.uint16))
    fresh = cupy.ascontiguousarray(cupy.broadcast_to(fresh, ours.shape))
    left, right = (torch.from_dlpack(x).view(torch.bfloat16) for x in (a, b))
    theirs = torch.empty(problem.m, problem.n, dtype=torch.bfloat16, device=left.device)
    theirs_fresh = torch.randn_like(theirs)
    flushed = torch.empty(FLUSHED_BYTES // 4, dtype=torch.int, device=left.device)
    sides = {
        "ours": (run, lambda: cupy.copyto(ours, fresh)),
        "torch": (lambda: torch.mm(left, right.t(), out=theirs), lambda: theirs.copy_(theirs_fresh)),
    }
    takes = (functools.partial(timed, torch, *side, flushed) for side in sides.values())
    taken = dict(zip(sides, alternating(*takes, rounds=ROUNDS), strict=True))
    ratio = stats.median([np.median(t) / np.median(o) for o, t in zip(taken["ours"], taken["torch"], strict=True)])
    what, rate = f"{problem.m} x {problem.n} x {problem.k}", problem.flops / 1e12
    rows = [Figure(f"{what}: torch.mm's median / ours", "at least 0.98", ratio, ratio.low >= 1 - WITHIN)]
    for name, rounds in taken.items():
        middle = stats.median([rate / np.median(r) for r in rounds])
        rows.append(printed(f"{what}: {name}, median", middle, "TFLOP/s"))
        rows.append(printed(f"{what}: {name}, best", rate / min(r.min() for r in rounds), "TFLOP/s"))
    steady = timing.visits(timing.device(run, stream), Limits(), "device")
    rows.append(printed(f"{what}: ours, back to back", rate / stats.median_of(steady), "TFLOP/s"))
    return rows


def timed(torch, product, renew, flushed) -> np.ndarray:
    """Seconds of each product after the warm-ups, by a pair of events each; all are queued and waited for once."""
    pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(WARM_UPS + ITERATIONS)]
    for begin, end in pairs:
        flushed.zero_()
        renew()
        begin.record()
        product()
        end.record()
    torch.cuda.synchronize()
    return np.array([begin.elapsed_time(end) * 1e-3 for begin, end in pairs[WARM_UPS:]])


if __name__ == "__main__":
    sys.exit(on_gpu(main))
