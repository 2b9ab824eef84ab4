"""Speed of copies and sums between the GPUs of a host, and the slowdown of each under contention, when all work."""

from analysis.stats import Estimate, group_by, median_of, verdict
from kernels.problems import AllReduce, AtOnce
from workloads.records import Measurement, Measurements

NCCL, ONE_SHOT = "collective/cupy/nccl", "collective/cupy/one_shot"
_SMALL = 256 << 10  # bytes: sums of at most this are what the one-shot kernel is for


def queued(m: Measurement) -> Estimate:
    """Seconds of a queued call, which nobody waits for in between; nccl-tests times the same."""
    return median_of(m.on("host-throughput") or m.samples[0])


def bandwidth(m: Measurement) -> Estimate:
    """Bytes a second of a copy or triad, and of a sum the bus bandwidth, 2 (n - 1) / n of its bytes over its seconds."""
    return m.problem.bytes_moved / queued(m)


def sums(rows: Measurements, kernel: str, dtype: str) -> dict[int, Measurement]:
    """Bytes -> the row of a kernel's sum out of place, the smallest first."""
    own = [m for m in rows if isinstance(m.problem, AllReduce) and m.ok and m.kernel == kernel]
    own = [m for m in own if (m.problem.dtype, m.problem.form) == (dtype, "out-of-place")]
    return {m.problem.nbytes: m for m in sorted(own, key=lambda m: m.problem.nbytes)}


def speed_ups(rows: Measurements, dtype: str) -> dict[int, Estimate]:
    """Bytes -> speedup of the one-shot kernel's sum over NCCL's, up to 256 KiB; both queued, in CUDA graphs."""
    ours, theirs = (sums(rows, f"{kernel}_graph", dtype) for kernel in (ONE_SHOT, NCCL))
    return {n: queued(theirs[n]) / queued(ours[n]) for n in ours if n in theirs and n <= _SMALL}


def slowdowns(rows: Measurements) -> list[tuple[Measurement, Measurement, Estimate]]:
    """(row alone, row while all GPUs work, slowdown of a call) of each GPU's work. Both took turns, so ratios are by round."""
    done = [m for m in rows if isinstance(m.problem, AtOnce) and m.ok]
    alone = {(*work(m), m.device): m for m in done if m.problem.together == 1}
    pairs = [(alone.get((*work(m), m.device)), m) for m in done if m.problem.together > 1]
    return [(a, m, verdict(*(x.on("host-latency") for x in (a, m)), paired=True).ratio) for a, m in pairs if a]


def contention(rows: Measurements) -> list[tuple[Measurement, Estimate]]:
    """(row, slowdown while all GPUs work) of each work that keeps a GPU busy, on the GPU with the largest slowdown."""
    busy = [
        (m, slower)
        for _, m, slower in slowdowns(rows)
        if m.problem.operation != "matmul" or (m.mode == "resident" and m.problem.size >= 2048)
    ]
    groups = group_by(busy, lambda one: work(one[0])[:4])
    return [max(own, key=lambda one: one[1].value) for own in groups.values()]


def work(m: Measurement) -> tuple:
    """(kernel, operation, size, arithmetic, copy mode) of the work on a GPU."""
    p = m.problem
    return m.kernel, p.operation, p.size, p.math, m.mode
