"""On a GPU: our copies against the ways others measure and make them, and the law of pinned copies against held-out sizes."""

import sys
import time

import numpy as np
from gpu_bench import GPU, MIB, ROUNDS, alternating, bound, on_gpu, over
from must_reach import Figure, at_least, exactly, printed, table

from analysis import stats
from analysis.roofline import links
from analysis.roofline.data_sheets import SHEETS
from analysis.stats import Estimate
from kernels.cuda import loader
from kernels.problems import Stream, Transfer
from workloads.harness import copy_modes, timing
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Measurement, visits

MODEL_ROUNDS = 2
LOOPS = 16  # nvbandwidth's copies between two events
GIB = 1 << 30
HELD_NS = 20_000_000


def main() -> int:
    stream, figures = copy_modes.gpu_stream(), []
    figures += pinned(stream)
    figures += staged(stream)
    figures += on_device(stream)
    figures += reads(stream)
    figures += model(stream)
    about = (
        f"{ROUNDS} alternating pairs each. nvbandwidth's method: a kernel holds the stream while two events and {LOOPS} "
        "cudaMemcpyAsync between them are queued; the median counts. Rates on the device count bytes read and written. The law: "
        "cudaMemcpyAsync of 4 B to 1 GiB in steps of the root of two, waited for; fitted to every second size, judged at all."
    )
    return table("transfer", "Copies against nvbandwidth's method, CUDA's own and a fitted law", figures, [about])


def gigabytes_per_s(nbytes: int, seconds: list[float]) -> Estimate:
    return nbytes / 1e9 / stats.median(seconds)


def pinned(stream) -> list[Figure]:
    """cudaMemcpyAsync through our timing, and by nvbandwidth's method, at 512 MiB."""
    figures, size = [], 512 * MIB
    for way in ("h2d", "d2h"):
        prepared = bound("transfer/cupy/memcpy_async", Transfer(way, size, "pinned"), stream)
        take = timing.device(prepared.run, stream)
        mine, theirs = alternating(lambda: take(LOOPS) / LOOPS, nvbandwidth(way, size))  # noqa: B023
        rate, ratio = gigabytes_per_s(size, mine), over(theirs, mine)
        figures += [
            at_least(f"pinned {way}, 512 MiB: ours / nvbandwidth's method", 0.99, ratio),
            at_least(f"pinned {way}, 512 MiB", 55, rate, "GB/s"),
            printed(f"pinned {way}, 512 MiB, nvbandwidth's method", gigabytes_per_s(size, theirs), "GB/s"),
        ]
    return figures


def nvbandwidth(way: str, size: int):
    """Seconds a copy as nvbandwidth takes them, with nothing of our timing or kernels but the kernel that holds."""
    from cupy.cuda import Event, Stream, alloc, alloc_pinned_memory, get_elapsed_time, runtime

    stream, begin, end = Stream(non_blocking=True), Event(), Event()
    host, device, latch = alloc_pinned_memory(size), alloc(size), alloc_pinned_memory(8)
    np.frombuffer(host, np.uint8, size)[:] = 0xCA
    go = np.frombuffer(latch, np.int32, 1)
    hold = loader.compile_kernel("cuda/hold", "hold")
    arguments = (device.ptr, host.ptr, size, 1) if way == "h2d" else (host.ptr, device.ptr, size, 2)

    def take() -> float:
        go[0] = 0
        hold((1,), (1,), (np.uint64(latch.ptr), np.int64(HELD_NS)), stream=stream)  # ends by itself
        try:
            begin.record(stream)
            for _ in range(LOOPS):
                runtime.memcpyAsync(*arguments, stream.ptr)
            end.record(stream)
        finally:
            go[0] = 1
        end.synchronize()
        return get_elapsed_time(begin, end) * 1e-3 / LOOPS

    return take


def staged(stream) -> list[Figure]:
    """Our staged copy of pageable memory against ndarray.set and get, touched pages, 256 MiB, waited for."""
    figures, size = [], 256 * MIB
    for way, plain in (("h2d", "ndarray.set"), ("d2h", "ndarray.get(out=)")):
        problem = Transfer(way, size, "pageable")
        runs = [bound(f"transfer/cupy/{name}", problem, stream).run for name in ("staged", "array")]
        takes = [timing.latency(run, stream.synchronize) for run in runs]
        mine, theirs = alternating(*(lambda take=take: take(3) / 3 for take in takes))
        least = 2.0 if way == "h2d" else None
        figures += [
            at_least(f"pageable {way}, 256 MiB: staged / {plain}", least, over(theirs, mine)),
            printed(f"pageable {way}, 256 MiB: staged", gigabytes_per_s(size, mine), "GB/s"),
            printed(f"pageable {way}, 256 MiB: {plain}", gigabytes_per_s(size, theirs), "GB/s"),
        ]
    return figures


def on_device(stream) -> list[Figure]:
    """Copies on the device against cudaMemcpy, between events."""
    import cupy

    size, figures = 2 * GIB, []
    begin, end, null = cupy.cuda.Event(), cupy.cuda.Event(), cupy.cuda.Stream.null

    def plain(source, target) -> float:
        begin.record(null)
        for _ in range(8):
            cupy.cuda.runtime.memcpy(target.data.ptr, source.data.ptr, size, 3)
        end.record(null)
        end.synchronize()
        return cupy.cuda.get_elapsed_time(begin, end) * 1e-3 / 8

    for name in ("wide", "memcpy_async"):
        run = bound(f"transfer/cupy/{name}", Transfer("d2d", size), stream).run
        take = timing.device(run, stream)  # both copy the same memory: where it lies moves the rate by half a percent
        mine, theirs = alternating(lambda: take(8) / 8, lambda: plain(*run.source_and_target))  # noqa: B023
        least = 1.0 if name == "wide" else None  # the other is the same function of CUDA's
        figures += [
            at_least(f"on the device, 2 GiB: {name} / cudaMemcpy", least, over(theirs, mine)),
            printed(f"on the device, 2 GiB: {name}", gigabytes_per_s(2 * size, mine), "GB/s"),
            printed("on the device, 2 GiB: cudaMemcpy", gigabytes_per_s(2 * size, theirs), "GB/s"),
        ]
    return figures


def reads(stream) -> list[Figure]:
    """Reading device memory against cupy.sum, and against the data sheet."""
    import cupy

    problem = Stream("read", 4 * GIB)
    prepared = bound("stream/cupy/wide", problem, stream)
    x = prepared.run.reads  # the same memory on both sides
    takes = [timing.device(run, stream) for run in (prepared.run, lambda: cupy.sum(x))]
    mine, theirs = alternating(*(lambda take=take: take(8) / 8 for take in takes))
    ratio, rate = over(theirs, mine), problem.bytes_moved * prepared.passes / stats.median(mine)
    sheet = SHEETS.get(facts.describe().gpus[0].name)
    figures = [at_least("HBM read, 4 GiB: ours / cupy.sum", 1.0, ratio)]
    figures.append(printed("HBM read, 4 GiB", rate * 1e-9, "GB/s"))
    if sheet:
        what = f"HBM read, 4 GiB / the data sheet's {sheet.bytes_per_s / 1e12:.3g} TB/s"
        figures.append(at_least(what, 0.95, rate / sheet.bytes_per_s))
    return figures


def model(stream) -> list[Figure]:
    """The law of pinned copies, fitted to every second size and judged at all of them."""
    figures = []
    limits = Limits(visit_s=0.01, max_noise=0.01, max_time=0.15)
    for way in ("h2d", "d2h"):
        parts: dict[int, list] = {}
        for _ in range(MODEL_ROUNDS):  # all sizes in turn: what disturbs one round does not stay with one size
            for n in sorted({4 * round(2 ** (power / 2) / 4) for power in range(4, 61)}):
                prepared = bound("transfer/cupy/memcpy_async", Transfer(way, n, "pinned"), stream)
                wait_until_clocked(prepared, stream)
                take = timing.latency(prepared.run, stream.synchronize)
                parts.setdefault(n, []).append(timing.visits(take, limits, "host-latency"))
        kernel, taken = "transfer/cupy/memcpy_async", {n: (visits.joined(t, "rounds"),) for n, t in parts.items()}
        rows = [Measurement(kernel, Transfer(way, n, "pinned"), GPU, "ok", samples=s) for n, s in taken.items()]
        for name, fitted in (("held-out", rows[::2]), ("in-sample", rows)):
            (link,) = links.fits(fitted)
            if name == "held-out":
                print(f"{link.kernel} {link.host_memory} {link.direction}: {len(link.pieces)} pieces")
            errors = links.errors(link, rows)
            middle = max(errors, key=lambda e: e[3] * (16 << 10 <= e[0] <= 4 * MIB))
            others = max(errors, key=lambda e: e[3] * (not 16 << 10 <= e[0] <= 4 * MIB))
            for where, (n, _, _, error), most in (("16 KiB..4 MiB", middle, 0.10), ("elsewhere", others, 0.05)):
                what = f"law of pinned {way}, {name}, largest error {where} (at {n} bytes)"
                figures.append(Figure(what, f"<= {most:.0%}", exactly(100 * error), error <= most, "%"))
    return figures


def wait_until_clocked(prepared: copy_modes.Prepared, stream, spend_s: float = 0.05) -> None:
    """Copies for a moment: a link that idled while the data was made falls back in generation."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < spend_s:
        prepared.run()
        stream.synchronize()


if __name__ == "__main__":
    sys.exit(on_gpu(main))
