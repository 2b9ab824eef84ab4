"""Speed of copies and sums between the GPUs of a host, and the slowdown of each under contention, when all work."""

from analysis.stats import Estimate, group_by, median_of, samples_on, verdict
from kernels.problems import AllReduce, AtOnce
from workloads.records import Measurement, Measurements

NCCL, ONE_SHOT = "collective/cupy/nccl", "collective/cupy/one_shot"
_SMALL = 256 << 10  # bytes: sums of at most this are what the one-shot kernel is for
_BUSY_SIDE = 2048  # the least side of a square product that keeps a GPU busy


def queued(m: Measurement) -> Estimate:
    """Seconds of a call in a series of queued calls, of which only the last is waited for; nccl-tests times the same."""
    return median_of(m.on("host-throughput") or m.samples[0])


def bandwidth(m: Measurement) -> Estimate:
    """Bytes a second of a copy or triad. Of an all-reduce over n GPUs it is the bus bandwidth of nccl-tests, 2 (n - 1) / n of its
    bytes over its seconds."""
    return m.problem.bytes_moved / queued(m)


def sums(rows: Measurements, kernel: str, dtype: str) -> dict[int, Measurement]:
    """Bytes -> the kernel's row of an out-of-place all-reduce of so many, the smallest first."""
    all_reduces = [m for m in rows if isinstance(m.problem, AllReduce) and m.ok and m.kernel == kernel]
    same_dtype = [m for m in all_reduces if (m.problem.dtype, m.problem.form) == (dtype, "out-of-place")]
    return {m.problem.nbytes: m for m in sorted(same_dtype, key=lambda m: m.problem.nbytes)}


def speed_ups(rows: Measurements, dtype: str) -> dict[int, Estimate]:
    """Bytes -> speedup of our one-shot all-reduce over NCCL's, up to 256 KiB; both queued, in CUDA graphs."""
    ours = sums(rows, f"{ONE_SHOT}_graph", dtype)
    nccl = sums(rows, f"{NCCL}_graph", dtype)
    return {
        nbytes: queued(nccl[nbytes]) / queued(ours[nbytes]) for nbytes in ours if nbytes in nccl and nbytes <= _SMALL
    }


def slowdowns(rows: Measurements) -> list[tuple[Measurement, Measurement, Estimate]]:
    """(row alone, row while all GPUs work, slowdown of a call) of each GPU's work.

    A call alone and one beside the other GPUs were timed in turn, round by round, so the slowdown is that of each round.
    """
    measured = [m for m in rows if isinstance(m.problem, AtOnce) and m.ok]
    alone_rows = {(*work(m), m.mode, m.device): m for m in measured if m.problem.together == 1}
    slowdowns = []
    for together in measured:
        alone = alone_rows.get((*work(together), together.mode, together.device))
        if together.problem.together > 1 and alone:
            alone_samples, together_samples = samples_on(alone, "host-latency"), samples_on(together, "host-latency")
            slowdowns.append((alone, together, verdict(alone_samples, together_samples, paired=True).ratio))
    return slowdowns


def contention(rows: Measurements) -> list[tuple[Measurement, Estimate]]:
    """(row, slowdown while all GPUs work) of each kind of work, on the GPU with the largest slowdown. Products that are too small
    to keep a GPU busy, or whose operands are copied in each call, are left out."""
    busy = [
        (m, slower)
        for _, m, slower in slowdowns(rows)
        if m.problem.operation != "matmul" or (m.mode == "resident" and m.problem.size >= _BUSY_SIDE)
    ]
    same_work = group_by(busy, lambda pair: work(pair[0]))
    return [max(pairs, key=lambda pair: pair[1].value) for pairs in same_work.values()]


def work(m: Measurement) -> tuple[str, str, int, str]:
    """(kernel, operation, size, arithmetic) of the work on a GPU."""
    p = m.problem
    return m.kernel, p.operation, p.size, p.math
