"""On a GPU: SMs kept busy by a bounded kernel of ours are found by analysis.fleet, and nothing is where none are."""

import contextlib
import math
import sys

import cupy
import numpy as np
from gpu_bench import on_gpu
from must_reach import Figure, at_most, exactly, table

from analysis.fleet import devices, judgment
from analysis.text import machines as fleet
from kernels import registry
from kernels.cuda import loader
from kernels.problems import Matmul
from workloads import records
from workloads.harness import copy_modes, one_row, telemetry, timing
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Loaded, Measurement, Row, Run, Settings

CLEAN = 5
PLANTED = (1, 2, 3, 4, 6, 8)
SHARE = 0.0625  # of the SMs: 8 of an H200's 132
SIDES = (2048, 3072, 4096, 6144, 8192)
LONGEST_NS = 15_000_000_000
LIMITS = Limits(visit_s=0.02, max_noise=0.01, max_time=0.25)
_PRODUCTS = [Matmul(n, n, n, dtype) for dtype in ("float32", "bfloat16") for n in SIDES]
ROWS = [Row("matmul/cupy/cublas", product, Settings("gpu:0")) for product in _PRODUCTS]


def main() -> int:
    here = facts.describe()
    multiprocessors = here.gpus[0].multiprocessors
    prepared = [ready(row) for row in ROWS]
    run = Run(records.SCHEMA, here, {}, "bench_fleet_gpu", 1, "", "", facts.now())

    def device(busy: int) -> devices.Device:
        with kept_busy(busy):
            taken = tuple(clocked(row, p) for row, p in zip(ROWS, prepared, strict=True))
        (made,) = devices.node_devices(Loaded((run,), taken, 0, ()), "")
        return made

    device(0)  # warms up
    baseline = device(0)

    def found(busy: int) -> list[judgment.Deviation]:
        return judgment.against_baseline(device(busy), baseline)

    clean = [f for _ in range(CLEAN) for f in found(0)]
    told = {busy: found(busy) for busy in PLANTED if busy <= multiprocessors // 2}
    most = max((busy for busy in told if busy <= SHARE * multiprocessors), default=0)
    flagged = [busy for busy, each in told.items() if any(f.flagged for f in each)]
    least = next((busy for busy in sorted(told) if all(other in flagged for other in told if other >= busy)), math.inf)
    false = sum(f.flagged for f in clean)
    flags = exactly(sum(f.flagged for f in told.get(most, ())))
    slow = f"quantities called slow with {most} of {multiprocessors} SMs kept busy"
    from_ = "the smallest number of busy SMs from which every larger one tried is called slow"
    figures = [
        Figure(f"quantities called slow in {CLEAN} clean runs", "0", exactly(false), false == 0),
        Figure(slow, ">= 1", flags, most in flagged),
        at_most(from_, most, least),
    ]
    worst = 100 * max(abs(f.below.value) for f in clean)
    notes = [
        f"cuBLAS products of {', '.join(map(str, SIDES))} in float32 and bfloat16, {LIMITS.max_time:.3g} s a row at most, "
        "against a run of the same before it. The kernel has a block on each SM that it keeps, with all shared memory that "
        f"a block may have, and ends after {LONGEST_NS // 10**9} s at most. Products lose far more than the share of the SMs "
        "that it takes, so this fault is easier to find than SMs that are only slow. "
        f"The clean runs are at most {worst:.2g} % off the baseline.",
        "",
    ]
    for busy, each in told.items():
        notes += [f"- {busy} busy: {fleet.finding(f)}{'' if f.flagged else ' (not called slow)'}" for f in each]
    return table("fleet_gpu", "Busy SMs are found", figures, notes)


def ready(row: Row) -> copy_modes.Prepared:
    kernel = registry.find(row.kernel)
    check = one_row.checked(kernel, row, 1).check
    if not check.passed:
        raise ArithmeticError(f"a wrong product: {row.problem}")
    return copy_modes.prepare(kernel, row.problem, row.settings, row.problem.inputs(1))


def clocked(row: Row, prepared: copy_modes.Prepared) -> Measurement:
    """The row on the device's clock, watched as a worker watches it."""
    watch = telemetry.watch("gpu:0")
    for _ in range(3):
        prepared.run()
    samples = timing.visits(timing.device(prepared.run, prepared.stream), LIMITS, "device", watch.before_block)
    values, flags = watch.readings()
    return Measurement(row.kernel, row.problem, row.settings, "ok", samples=(samples,), values=values, flags=flags)


_stream = None


@contextlib.contextmanager
def kept_busy(multiprocessors: int):
    """So many SMs busy on a stream of their own until the block is left: a row's `run` must not wait for the whole device.

    Raises: RuntimeError when the kernel ended by itself before that.
    """
    global _stream
    _stream = _stream or cupy.cuda.Stream(non_blocking=True)
    kernel = loader.compile_kernel("cuda/hold", "keep_busy")
    room = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    kernel.max_dynamic_shared_size_bytes = room
    stop, out = np.frombuffer(cupy.cuda.alloc_pinned_memory(8), np.int32, 1), cupy.zeros(1, np.float32)
    stop[0], ended = 0, cupy.cuda.Event(disable_timing=True)
    arguments = (np.uint64(stop.ctypes.data), np.int64(LONGEST_NS), out)
    cupy.cuda.get_current_stream().synchronize()
    if multiprocessors:
        kernel((multiprocessors,), (256,), arguments, shared_mem=room, stream=_stream)
        ended.record(_stream)
    try:
        yield
        if multiprocessors and ended.done:
            raise RuntimeError(f"the kernel ended before its {LONGEST_NS // 10**9} s were over or the rows were done")
    finally:
        stop[0] = 1
        _stream.synchronize()


if __name__ == "__main__":
    sys.exit(on_gpu(main))
