"""Copies in chunks beside kernels: alone, the kernels alone, and both at once on streams of their own."""

import functools

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import autotuner, loader
from kernels.cuda.loader import H2D
from kernels.problems import Transfer
from kernels.registry import kernel
from kernels.transfer.cupy import LOCKED, device_array, forks, host_array, only

_COPY_THREADS = 256
_RAMP = 4  # so many chunks at either end grow and shrink
_TRIAD_VALUES = 1 << 24  # a power of two, as the kernel in transfer/cupy_overlap.cu wraps around it


@functools.lru_cache(maxsize=8)
def _trips(problem_bytes: int, compute: str, chunks: int) -> int:
    """Loop trips of a chunk of average size that make the kernels over all chunks about as long as the copies of their
    bytes, measured here."""
    problem = Transfer("h2d", problem_bytes, "pinned", compute, chunks)
    data = problem.inputs(1)[0]
    stream = cupy.cuda.get_current_stream()
    copies, *_ = _pieces(problem, data, [stream], 1)
    copy_s = _device_seconds(lambda: [copy() for copy, _ in copies], stream)
    trips = 64
    for _ in range(4):
        pieces, *_ = _pieces(problem, data, [stream], trips)
        seconds = _device_seconds(lambda made=pieces: [work() for _, work in made], stream)
        trips = max(1, round(trips * copy_s / seconds))
    return trips


def _device_seconds(work, stream) -> float:
    """The least of a few times by events."""
    return min(autotuner.milliseconds(work, 1, stream) for _ in range(4)) * 1e-3


def _shares(chunks: int) -> np.ndarray:
    """Each chunk's share of the bytes: the first and the last are small, as nothing runs beside a pipeline's ends."""
    ends = np.minimum(np.arange(1, chunks + 1), np.arange(chunks, 0, -1))
    weights = np.minimum(ends / _RAMP, 1)
    return weights / weights.sum()


_beside = only(("h2d",), LOCKED, "beside a kernel that the problem names", computes=True)


def _pieces(problem: Transfer, data, streams, trips: int):
    """[(copy, compute)] of every chunk, the target, and what the kernels write.

    The first stream has the copies, the others the kernels in turn, each of which waits for its chunk; of a single stream it
    has both. compute works beside the bytes, not on them, so that its length is the same with and without the copy: `fma`
    in registers, `triad` over three arrays of 128 MiB."""
    source = host_array(problem.host_memory, problem.nbytes)
    source[:] = data
    target = device_array(problem.nbytes)
    work = loader.load("transfer/cupy_overlap", f"{problem.compute}_trips")
    blocks = loader.attribute("MultiProcessorCount") * (4 if problem.compute == "fma" else 8)
    triad = problem.compute == "triad"
    room = cupy.ones((3, _TRIAD_VALUES), np.float64) if triad else cupy.zeros(blocks * _COPY_THREADS, np.float32)
    shares = _shares(problem.chunks)
    bounds = np.round(problem.nbytes * np.concatenate([[0], np.cumsum(shares)])).astype(np.int64)
    made = []
    for i, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        copier, computer = streams[0], (streams[1:] or streams)[i % max(1, len(streams) - 1)]
        copied = (target.data.ptr + start, source.ctypes.data + start, stop - start, H2D, copier.ptr)
        own = max(1, round(trips * problem.chunks * shares[i]))
        there, arguments = cupy.cuda.Event(disable_timing=True), (room, np.int32(own))

        def copy(copied=copied, there=there, copier=copier, keep=source):
            runtime.memcpyAsync(*copied)
            there.record(copier)

        def compute(there=there, computer=computer, arguments=arguments):
            computer.wait_event(there)
            work((blocks,), (_COPY_THREADS,), arguments, stream=computer)

        made.append((copy, compute))
    return made, target, room


def _overlapping(problem: Transfer, data, copies: bool, computes: bool):
    stream = cupy.cuda.get_current_stream()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(problem.streams)]
    pieces, target, room = _pieces(problem, data, streams, _trips(problem.nbytes, problem.compute, problem.chunks))
    fork, join = forks(stream, streams)
    if not copies:
        target.set(data)

    def run():
        fork()
        for copy, compute in pieces:
            if copies:
                copy()
            if computes:
                compute()
        join()
        return target

    if computes:
        run()
        stream.synchronize()
        if not _worked(problem.compute, room):
            raise ArithmeticError(f"the {problem.compute} kernels beside the copies did not do their work")
        if copies:
            target.fill(0)  # so that what is checked are the copies of the next call
    return run


def _worked(compute: str, room) -> bool:
    """Whether the kernels wrote their results: 8 registers near 2 each, or 1 + 3 x 1 where the grid's first trip went."""
    if compute == "fma":
        return bool((abs(room - 16) < 1e-3).all())
    blocks = loader.attribute("MultiProcessorCount") * 8
    return bool((room[2, : 8 * blocks * _COPY_THREADS] == 4).all())


@kernel
@_beside
def overlap_copy(problem: Transfer, data):
    """The chunks' copies alone, one after another on a stream of their own."""
    return _overlapping(problem, data, True, False)


@kernel
@_beside
def overlap_compute(problem: Transfer, data):
    """The chunks' kernels alone, made as long as the copies."""
    return _overlapping(problem, data, False, True)


@kernel
@_beside
def overlap_both(problem: Transfer, data):
    """Each chunk copied and then computed on: one stream copies chunk after chunk, the others follow with their kernels."""
    return _overlapping(problem, data, True, True)
