"""Copies in chunks beside kernels: alone, the kernels alone, and both at once on streams of their own."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import autotuner, loader
from kernels.cuda.loader import H2D
from kernels.problems import Transfer
from kernels.registry import TimedCall, kernel
from kernels.transfer.cupy import LOCKED, device_array, forks, host_array, only

#: Threads of a block of the kernels that run during the copies.
_THREADS = 256
#: Chunks at either end that grow and shrink.
_RAMP = 4
#: Values of an array of `triad`: a power of two, as the kernel in transfer/cupy_overlap.cu wraps around it.
_TRIAD_VALUES = 1 << 24
#: Blocks of a kernel on each multiprocessor.
_BLOCKS = {"fma": 4, "triad": 8}


class Chunk(NamedTuple):
    """The work on a part of the bytes."""

    #: The call that queues its copy to the device.
    copy: Callable[[], None]
    #: The call that queues the kernel, which waits for the copy.
    compute: Callable[[], None]


class ChunkedCopy(NamedTuple):
    """A copy in chunks, with a kernel for each chunk."""

    chunks: list[Chunk]
    #: The bytes on the device that the copies write.
    target: cupy.ndarray
    #: What the kernels write: of `fma` a value for each thread, of `triad` its three arrays, the last of which it writes.
    results: cupy.ndarray


@functools.lru_cache(maxsize=8)
def _trips(problem_bytes: int, compute: str, chunks: int) -> int:
    """Loop trips that a chunk of average size needs so that the kernels of all chunks take about as long as the copies of
    `problem_bytes` in all, measured on this GPU.

    compute: the kernel, `fma` or `triad`.
    """
    problem = Transfer("h2d", problem_bytes, host_memory="pinned", compute=compute, chunks=chunks)
    data = problem.inputs(1)[0]
    stream = cupy.cuda.get_current_stream()

    def seconds(works: list[Callable[[], None]]) -> float:
        """The shortest of four timings of these calls one after the other, by CUDA events."""

        def work():
            for call in works:
                call()

        return min(autotuner.milliseconds(work, 1, stream) for _ in range(4)) * 1e-3

    with_one_trip = _chunked_copy(problem, data, [stream], trips=1)
    copy_s = seconds([chunk.copy for chunk in with_one_trip.chunks])
    trips = 64
    for _ in range(4):  # times are no exact multiple of trips: launches take a part
        with_trips = _chunked_copy(problem, data, [stream], trips=trips)
        compute_s = seconds([chunk.compute for chunk in with_trips.chunks])
        trips = max(1, round(trips * copy_s / compute_s))
    return trips


def _shares(chunks: int) -> np.ndarray:
    """Each chunk's share of the bytes: the first and the last are small, as nothing overlaps with a pipeline's start and end."""
    chunks_to_nearer_end = np.minimum(np.arange(1, chunks + 1), np.arange(chunks, 0, -1))
    weights = np.minimum(chunks_to_nearer_end / _RAMP, 1)
    return weights / weights.sum()


_while_computing = only(("h2d",), LOCKED, why="beside a kernel that the problem names", computes=True)


def _blocks(compute: str) -> int:
    """Blocks of the kernel `fma` or `triad`: a fixed number for each multiprocessor."""
    return loader.attribute("MultiProcessorCount") * _BLOCKS[compute]


def _chunked_copy(problem: Transfer, data: np.ndarray, streams: Sequence[cupy.cuda.Stream], trips: int) -> ChunkedCopy:
    """The copy of `data` from host to device in chunks, with a kernel for each chunk.

    The first stream has the copies; the other streams take the kernels one after the other, each of which waits for its
    chunk. A single stream has both. A kernel computes on memory of its own, not on the chunk, so that it takes the same time
    with and without the copy: `fma` in registers, `triad` over three arrays of 128 MiB.

    trips: loop trips of the kernel of a chunk of average size.
    """
    source = host_array(problem.host_memory, problem.nbytes)
    source[:] = data
    target = device_array(problem.nbytes)
    kernel_of_chunk = loader.compile_kernel("transfer/cupy_overlap", f"{problem.compute}_trips")
    blocks = _blocks(problem.compute)
    if problem.compute == "triad":
        results = cupy.ones((3, _TRIAD_VALUES), np.float64)
    else:
        results = cupy.zeros(blocks * _THREADS, np.float32)
    copier = streams[0]
    computers = streams[1:] or streams
    shares = _shares(problem.chunks)
    bounds = np.round(problem.nbytes * np.concatenate([[0], np.cumsum(shares)])).astype(np.int64).tolist()

    def chunk(number: int) -> Chunk:
        """The calls that queue chunk `number`: its copy on the copying stream, and its kernel, which waits for that copy, on
        another."""
        start = bounds[number]
        nbytes = bounds[number + 1] - start
        computer = computers[number % len(computers)]
        copied = cupy.cuda.Event(disable_timing=True)
        copy_arguments = (target.data.ptr + start, source.ctypes.data + start, nbytes, H2D, copier.ptr)
        kernel_arguments = (results, np.int32(max(1, round(trips * problem.chunks * shares[number]))))

        def copy(keep=(source, target)):
            runtime.memcpyAsync(*copy_arguments)
            copied.record(copier)

        def compute():
            computer.wait_event(copied)
            kernel_of_chunk((blocks,), (_THREADS,), kernel_arguments, stream=computer)

        return Chunk(copy=copy, compute=compute)

    return ChunkedCopy(chunks=[chunk(number) for number in range(problem.chunks)], target=target, results=results)


def _overlapping(problem: Transfer, data: np.ndarray, *, copies: bool, computes: bool) -> TimedCall:
    """The timed call of the chunks' copies, of their kernels, or of both at once; the kernels are checked once to have done
    their work.

    data: `problem.nbytes` bytes in host memory.
    Raises: ArithmeticError if they did not.
    """
    stream = cupy.cuda.get_current_stream()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(problem.streams)]
    trips = _trips(problem.nbytes, problem.compute, problem.chunks)
    chunked_copy = _chunked_copy(problem, data, streams, trips=trips)
    chunks = chunked_copy.chunks
    target = chunked_copy.target
    fork, join = forks(stream, streams)
    if not copies:
        target.set(data)

    def run():
        """Queues the chunks' work on streams of their own, which begin after what is queued on the current stream; it waits
        for them."""
        fork()
        for copy, compute in chunks:
            if copies:
                copy()
            if computes:
                compute()
        join()
        return target

    if computes:
        run()
        stream.synchronize()
        if not _worked(problem.compute, chunked_copy.results):
            raise ArithmeticError(f"the {problem.compute} kernels beside the copies did not do their work")
        if copies:
            target.fill(0)  # so that what is checked are the copies of the next call
    return run


def _worked(compute: str, results: cupy.ndarray) -> bool:
    """Whether the kernels wrote their results. `fma`: each value is the sum of 8 registers near 2. `triad`: 1 + 3 x 1 in the
    third array, as far as the grid's first trip goes."""
    if compute == "fma":
        return bool((abs(results - 16) < 1e-3).all())
    return bool((results[2, : 8 * _blocks(compute) * _THREADS] == 4).all())


@kernel
@_while_computing
def overlap_copy(problem: Transfer, data: np.ndarray) -> TimedCall:
    """The chunks' copies alone, one after another on a stream of their own.

    data: `problem.nbytes` bytes in host memory.
    """
    return _overlapping(problem, data, copies=True, computes=False)


@kernel
@_while_computing
def overlap_compute(problem: Transfer, data: np.ndarray) -> TimedCall:
    """The chunks' kernels alone, made as long as the copies.

    data: `problem.nbytes` bytes in host memory.
    """
    return _overlapping(problem, data, copies=False, computes=True)


@kernel
@_while_computing
def overlap_both(problem: Transfer, data: np.ndarray) -> TimedCall:
    """Each chunk copied and then computed on: one stream copies chunk after chunk, the others follow with their kernels.

    data: `problem.nbytes` bytes in host memory.
    """
    return _overlapping(problem, data, copies=True, computes=True)
