"""Copies from one GPU to another: straight over their link, and through the host."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import several_gpus
from kernels.cuda.loader import D2H, H2D
from kernels.problems import PeerCopy
from kernels.registry import TimedCall, kernel, timed_call

#: Bytes of a piece that `staged` copies at once, at most.
STAGE_BYTES = 4 << 20
#: Pieces of `staged` that are under way at once.
STAGES = 4


class Route(NamedTuple):
    """One way of a copy."""

    #: The GPU that it comes from, counted as this process sees them, and its array there.
    source: int
    sent: cupy.ndarray
    #: The GPU that it goes to, and its array there.
    target: int
    received: cupy.ndarray


def _routes(problem: PeerCopy, data: Sequence[np.ndarray]) -> list[Route]:
    """The copy that the problem asks for and, if it has two ways, the one back. Sources have the bytes of `data`, targets zeros.

    data: for each copy its `problem.nbytes` bytes, in host memory.
    """
    several_gpus.require_gpus(len(problem.members))
    first = problem.members.index(problem.source)
    second = problem.members.index(problem.target)
    routes = []
    for (source, target), values in zip(((first, second), (second, first))[: problem.ways], data, strict=True):
        sent = several_gpus.array(source, values)
        received = several_gpus.array(target, np.zeros_like(values))
        routes.append(Route(source=source, sent=sent, target=target, received=received))
    return routes


def _bound(run: Callable[[], None], routes: list[Route]) -> TimedCall:
    """The timed call of `run`, which returns the arrays that receive. It has the attributes that timing and checks read:
    `synchronize` waits for both GPUs, `on_host` copies its results to the host as one array."""
    call = timed_call(run, result=[route.received for route in routes])
    call.synchronize = several_gpus.wait_for(2)
    call.on_host = lambda arrays: np.concatenate([cupy.asnumpy(array) for array in arrays])
    return call


@kernel
def direct(problem: PeerCopy, *data: np.ndarray) -> TimedCall:
    """cudaMemcpyPeerAsync on the source's stream, access to the other's memory on: a copy engine writes over the link.

    data: for each way the `problem.nbytes` bytes that are copied, in host memory.
    """
    several_gpus.require_reach(2)
    routes = _routes(problem, data)
    copies = []
    for route in routes:
        stream = several_gpus.stream(route.source).ptr
        pointers = (route.received.data.ptr, route.target, route.sent.data.ptr, route.source)
        copies.append((*pointers, problem.nbytes, stream))

    def run(keep=routes):
        for arguments in copies:
            runtime.memcpyPeerAsync(*arguments)

    return _bound(run, routes)


def _events(gpu: int) -> list[cupy.cuda.Event]:
    """An event of that GPU for each piece under way."""
    with cupy.cuda.Device(gpu):
        return [cupy.cuda.Event(disable_timing=True) for _ in range(STAGES)]


@kernel
def staged(problem: PeerCopy, *data: np.ndarray) -> TimedCall:
    """Piece by piece into page-locked host memory and out again, four pieces under way: what works without a link.

    data: the `problem.nbytes` bytes that are copied, in host memory.
    """
    if problem.ways > 1:
        raise ValueError("staged goes one way")
    routes = _routes(problem, data)
    (route,) = routes
    out_stream = several_gpus.stream(route.source)
    in_stream = several_gpus.stream(route.target)
    size = min(STAGE_BYTES, problem.nbytes)
    slots = [cupy.cuda.alloc_pinned_memory(size) for _ in range(STAGES)]
    full = _events(route.source)
    free = _events(route.target)
    pieces = []
    for number, start in enumerate(range(0, problem.nbytes, size)):
        pieces.append((number % STAGES, start, min(size, problem.nbytes - start)))
    source = route.source
    target = route.target
    sent = route.sent
    received = route.received

    def run(keep=routes) -> None:
        """Queues each piece's copy into its page-locked buffer and out of it; events make a copy wait for its buffer to be
        full or free."""
        for slot, start, count in pieces:
            runtime.setDevice(source)
            out_stream.wait_event(free[slot])  # an event that nobody recorded yet makes nothing wait
            runtime.memcpyAsync(slots[slot].ptr, sent.data.ptr + start, count, D2H, out_stream.ptr)
            full[slot].record(out_stream)
            runtime.setDevice(target)
            in_stream.wait_event(full[slot])
            runtime.memcpyAsync(received.data.ptr + start, slots[slot].ptr, count, H2D, in_stream.ptr)
            free[slot].record(in_stream)
        runtime.setDevice(0)

    return _bound(run, routes)
