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
    all_reduces = [m for m in rows if isinstance(m.problem, AllReduce) and m.ok and m.kernel == kernel]
    same_dtype = [m for m in all_reduces if (m.problem.dtype, m.problem.form) == (dtype, "out-of-place")]
    return {m.problem.nbytes: m for m in sorted(same_dtype, key=lambda m: m.problem.nbytes)}


def speed_ups(rows: Measurements, dtype: str) -> dict[int, Estimate]:
    """Bytes -> speedup of the one-shot kernel's sum over NCCL's, up to 256 KiB; both queued, in CUDA graphs."""
    ours = sums(rows, f"{ONE_SHOT}_graph", dtype)
    nccl = sums(rows, f"{NCCL}_graph", dtype)
    return {n: queued(nccl[n]) / queued(ours[n]) for n in ours if n in nccl and n <= _SMALL}


def slowdowns(rows: Measurements) -> list[tuple[Measurement, Measurement, Estimate]]:
    """(row alone, row while all GPUs work, slowdown of a call) of each GPU's work. Both took turns, so ratios are by round."""
    measured = [m for m in rows if isinstance(m.problem, AtOnce) and m.ok]
    alone_rows = {(*work(m), m.device): m for m in measured if m.problem.together == 1}
    slowdowns = []
    for together in measured:
        alone = alone_rows.get((*work(together), together.device))
        if together.problem.together > 1 and alone:
            ratio = verdict(alone.on("host-latency"), together.on("host-latency"), paired=True).ratio
            slowdowns.append((alone, together, ratio))
    return slowdowns


def contention(rows: Measurements) -> list[tuple[Measurement, Estimate]]:
    """(row, slowdown while all GPUs work) of each work that keeps a GPU busy, on the GPU with the largest slowdown."""
    busy = [
        (m, slower)
        for _, m, slower in slowdowns(rows)
        if m.problem.operation != "matmul" or (m.mode == "resident" and m.problem.size >= 2048)
    ]
    same_work = group_by(busy, lambda pair: work(pair[0])[:4])
    return [max(pairs, key=lambda pair: pair[1].value) for pairs in same_work.values()]


def work(m: Measurement) -> tuple:
    """(kernel, operation, size, arithmetic, copy mode) of the work on a GPU."""
    p = m.problem
    return m.kernel, p.operation, p.size, p.math, m.mode
