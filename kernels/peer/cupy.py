"""Copies from one GPU to another: straight over their link, and through the host."""

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import several_gpus
from kernels.cuda.loader import D2H, H2D
from kernels.problems import PeerCopy
from kernels.registry import into, kernel

STAGE_BYTES, STAGES = 4 << 20, 4


def _ends(problem: PeerCopy, data) -> list[tuple]:
    """(source GPU, its array, target GPU, its array) of each way, GPUs counted as this process sees them."""
    several_gpus.require(len(problem.members))
    there, back = (problem.members.index(gpu) for gpu in (problem.source, problem.target))
    ways = ((there, back), (back, there))[: problem.ways]
    made = []
    for (source, target), values in zip(ways, data, strict=True):
        sent = several_gpus.array(source, values)
        made.append((source, sent, target, several_gpus.array(target, np.zeros_like(values))))
    return made


def _told(run, ends):
    call = into([array for *_, array in ends], run)
    call.synchronize = several_gpus.wait_for(2)
    call.on_host = lambda value: np.concatenate([cupy.asnumpy(each) for each in value])
    return call


@kernel
def direct(problem: PeerCopy, *data):
    """cudaMemcpyPeerAsync on the source's stream, access to the other's memory on: a copy engine writes over the link."""
    several_gpus.require_reach(2)
    ends = _ends(problem, data)
    copies = [
        (b.data.ptr, target, a.data.ptr, source, problem.nbytes, several_gpus.stream(source).ptr)
        for source, a, target, b in ends
    ]

    def run(keep=ends):
        for arguments in copies:
            runtime.memcpyPeerAsync(*arguments)

    return _told(run, ends)


@kernel
def staged(problem: PeerCopy, *data):
    """Piece by piece into page-locked host memory and out again, four pieces under way: what works without a link."""
    if problem.ways > 1:
        raise ValueError("staged goes one way")
    ends = _ends(problem, data)
    ((source, sent, target, got),) = ends
    away, back = several_gpus.stream(source), several_gpus.stream(target)
    size = min(STAGE_BYTES, problem.nbytes)
    slots = [cupy.cuda.alloc_pinned_memory(size) for _ in range(STAGES)]
    full: list[cupy.cuda.Event] = []
    free: list[cupy.cuda.Event] = []
    for gpu, events in ((source, full), (target, free)):
        with cupy.cuda.Device(gpu):
            events += [cupy.cuda.Event(disable_timing=True) for _ in range(STAGES)]
    pieces = [
        (i % STAGES, start, min(size, problem.nbytes - start)) for i, start in enumerate(range(0, problem.nbytes, size))
    ]

    def run(keep=ends):
        for slot, start, count in pieces:
            runtime.setDevice(source)
            away.wait_event(free[slot])  # an event that nobody recorded yet holds nothing up
            runtime.memcpyAsync(slots[slot].ptr, sent.data.ptr + start, count, D2H, away.ptr)
            full[slot].record(away)
            runtime.setDevice(target)
            back.wait_event(full[slot])
            runtime.memcpyAsync(got.data.ptr + start, slots[slot].ptr, count, H2D, back.ptr)
            free[slot].record(back)
        runtime.setDevice(0)

    return _told(run, ends)
