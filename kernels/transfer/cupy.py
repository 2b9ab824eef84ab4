"""Copies between host and device, and on the device: as CuPy writes them, as CUDA has them, and staged by ourselves.

Device and host targets are zeroed first, so that a copy that does nothing is not taken for one.
"""

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import numba
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import loader
from kernels.cuda.loader import D2D, D2H, H2D
from kernels.problems import Transfer
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel, timed_call

#: cudaHostAllocWriteCombined, from driver_types.h.
_WRITE_COMBINED = 0x04
#: Bytes of a page of memory.
_PAGE = 4096
#: Direction -> cudaMemcpyKind.
_KINDS = {"h2d": H2D, "d2h": D2H, "d2d": D2D}
#: Bytes of a piece that `staged` copies at once, at most.
STAGE_BYTES = 8 << 20
#: Pieces of `staged` that are under way at once.
STAGES = 4
#: Most threads that copy host memory in `staged`.
STAGING_THREADS = 8


def _view(pointer: int, nbytes: int, release: Callable[[int], None], keep: np.ndarray | None = None) -> np.ndarray:
    """`nbytes` at a host address as an array of bytes; `release(pointer)` is called once nothing uses the array any more.

    keep: the array whose memory it is, alive until then.
    """
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(pointer)
    weakref.finalize(memory, _release, release, pointer, keep)
    return np.frombuffer(memory, np.uint8)


def _release(release: Callable[[int], None], pointer: int, keep: np.ndarray | None) -> None:
    release(pointer)


def host_array(kind: str, nbytes: int) -> np.ndarray:
    """`nbytes` of host memory of that kind as an array, zeroed and thereby touched.

    kind: pageable, pinned (page-locked), write-combined (page-locked and not cached), registered (pageable memory that is
    page-locked afterwards) or managed (moved between host and device by the driver).
    """
    match kind:
        case "pageable":
            array = empty((nbytes,), np.dtype(np.uint8))
        case "pinned":
            array = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
        case "write-combined":
            pointer = runtime.hostAlloc(nbytes, _WRITE_COMBINED)
            array = _view(pointer, nbytes, runtime.freeHost)
        case "registered":
            pages = empty((nbytes,), np.dtype(np.uint8))
            pages.fill(0)
            pointer = pages.ctypes.data
            runtime.hostRegister(pointer, nbytes, 0)
            array = _view(pointer, nbytes, runtime.hostUnregister, keep=pages)
        case "managed":
            pointer = runtime.mallocManaged(nbytes)
            array = _view(pointer, nbytes, runtime.free)
    array.fill(0)
    return array


def device_array(nbytes: int, data: np.ndarray | None = None) -> cupy.ndarray:
    """`nbytes` on the device: a copy of `data`, host memory of that length, or zeros."""
    array = cupy.zeros(nbytes, np.uint8)
    if data is not None:
        array.set(data)
    return array


def _source_and_target(problem: Transfer, data: np.ndarray) -> tuple[Any, Any]:
    """(source, target) of a copy one way, host memory as NumPy's arrays and device memory as CuPy's: the bytes of `data` at
    the source, zeros at the target."""
    n = problem.nbytes
    if problem.direction == "h2d":
        source = host_array(problem.host_memory, n)
        source[:] = data
        return source, device_array(n)
    if problem.direction == "d2h":
        return device_array(n, data), host_array(problem.host_memory, n)
    return device_array(n, data), device_array(n)


LOCKED = ("pinned", "write-combined", "registered", "managed")


def only(
    directions: tuple[str, ...], memories: tuple[str, ...] = ("",), why: str = "", computes: bool = False
) -> Callable:
    """A decorator of kernels: those other than for these copies are refused with a ValueError, and `kernel.takes(problem)`
    says whether a copy is one of these.

    directions, memories: fields `direction` and `host_memory` of Transfer that the kernel has; any memory for a copy on the
    device.
    why: the reason to give for refusing others.
    computes: whether the kernel computes beside the copy (the field `compute`).
    """

    def takes(problem: Transfer) -> bool:
        """Whether the kernel is for that copy. Write-combined memory is never read on the host: that takes a hundred times
        longer."""
        readable = problem.direction == "h2d" or problem.host_memory != "write-combined"
        memory = problem.host_memory in memories or problem.direction == "d2d"
        return problem.direction in directions and memory and readable and bool(problem.compute) == computes

    def mark(bind: Callable) -> Callable:
        """The kernel with the check in front of it."""

        @functools.wraps(bind)
        def checked(problem, data: np.ndarray):
            if not takes(problem):
                kinds = f" from and to {', '.join(filter(None, memories))} memory" if any(memories) else ""
                raise ValueError(f"{bind.__name__} copies {', '.join(directions)}{kinds}{why and '; '}{why}")
            return bind(problem, data)

        checked.takes = takes
        return checked

    return mark


def _address(array: np.ndarray | cupy.ndarray) -> int:
    return array.data.ptr if isinstance(array, cupy.ndarray) else array.ctypes.data


@kernel(waits=True)
@only(("h2d", "d2h"), ("pageable", *LOCKED))
def array(problem: Transfer, data: np.ndarray) -> TimedCall:
    """`ndarray.set` and `ndarray.get(out=)` into memory that is there, as people write it who care.

    data: `problem.nbytes` bytes in host memory.
    """
    source, target = _source_and_target(problem, data)

    def run():
        if problem.direction == "h2d":
            target.set(source)
        else:
            source.get(out=target)
        return target

    return run


@kernel(allocates=True)
@only(("h2d", "d2h"), ("pageable",))
def asarray(problem: Transfer, data: np.ndarray) -> TimedCall:
    """`cp.asarray` and `cp.asnumpy`, as people write it: fresh memory each call, staged through CuPy's pinned pool.

    data: `problem.nbytes` bytes in host memory.
    """
    source, _ = _source_and_target(problem, data)
    if problem.direction == "h2d":
        return lambda: cupy.asarray(source)
    return lambda: cupy.asnumpy(source)


@kernel(waits=True)
@only(("h2d", "d2h", "d2d"), ("pageable", *LOCKED))
def memcpy(problem: Transfer, data: np.ndarray) -> TimedCall:
    """cudaMemcpy, waited for: of few pageable bytes and on the device it returns before they have arrived. The driver stages
    pageable memory through its own buffers.

    data: `problem.nbytes` bytes in host memory.
    """
    source, target = _source_and_target(problem, data)
    arguments = (_address(target), _address(source), problem.nbytes, _KINDS[problem.direction])

    def run(keep=source):
        runtime.memcpy(*arguments)
        cupy.cuda.Stream.null.synchronize()
        return target

    return run


@kernel
@only(
    ("h2d", "d2h", "d2d", "both"),
    LOCKED,
    why="the driver stages pageable memory while the call waits, and reading "
    "write-combined memory takes a hundred times longer",
)
def memcpy_async(problem: Transfer, data: np.ndarray) -> TimedCall:
    """cudaMemcpyAsync on a stream: the host only enqueues it, and a copy engine does the rest.

    data: `problem.nbytes` bytes in host memory.
    """
    stream = cupy.cuda.get_current_stream()
    if problem.direction == "both":
        return _both(problem, data, stream)
    source, target = _source_and_target(problem, data)
    arguments = (_address(target), _address(source), problem.nbytes, _KINDS[problem.direction], stream.ptr)

    run = timed_call(runtime.memcpyAsync, *arguments, result=target, keep=source)
    run.source_and_target = source, target
    return run


def _both(problem: Transfer, data: np.ndarray, stream: cupy.cuda.Stream) -> TimedCall:
    """The timed call of two copies at once in opposite directions, host to device and device to host, of `problem.nbytes`
    each.

    The copies have a stream each. They begin after what is queued on `stream`, and what is queued there later waits for both.
    """
    n = problem.nbytes
    to_device = Transfer(direction="h2d", nbytes=n, host_memory=problem.host_memory)
    to_host = Transfer(direction="d2h", nbytes=n, host_memory=problem.host_memory)
    host_source, device_target = _source_and_target(to_device, data)
    device_source, host_target = _source_and_target(to_host, data)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    copies = (
        (_address(device_target), _address(host_source), n, H2D, streams[0].ptr),
        (_address(host_target), _address(device_source), n, D2H, streams[1].ptr),
    )
    fork, join = forks(stream, streams)

    def run(keep=(host_source, device_source)):
        """Queues both copies and returns (the array on the device, the array on the host) that they fill."""
        fork()
        for arguments in copies:
            runtime.memcpyAsync(*arguments)
        join()
        return device_target, host_target

    return run


def forks(
    stream: cupy.cuda.Stream, streams: Sequence[cupy.cuda.Stream]
) -> tuple[Callable[[], None], Callable[[], None]]:
    """(fork, join): after fork() the `streams` wait for what is queued on `stream`; after join() `stream` waits for all of
    them."""
    begun = cupy.cuda.Event(disable_timing=True)
    done = [cupy.cuda.Event(disable_timing=True) for _ in streams]

    def fork():
        begun.record(stream)
        for other in streams:
            other.wait_event(begun)

    def join():
        for other, event in zip(streams, done, strict=True):
            event.record(other)
            stream.wait_event(event)

    return fork, join


@numba.njit(parallel=True, cache=True)
def _copy_words(source, target, words):
    for i in numba.prange(words):
        target[i] = source[i]


def _copy_host(source: np.ndarray, target: np.ndarray) -> None:
    """Copies host bytes to host bytes on STAGING_THREADS threads, in words of 8 bytes; both arrays begin on 8 bytes."""
    words = source.size // 8
    _copy_words(source[: 8 * words].view(np.int64), target[: 8 * words].view(np.int64), words)
    target[8 * words :] = source[8 * words :]


class StagedPiece(NamedTuple):
    """What `staged` copies at once."""

    #: The page-locked buffer that it goes through.
    slot: int
    #: Its first byte, and the byte after its last one.
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


@kernel(waits=True)
@only(("h2d", "d2h"), ("pageable",))
def staged(problem: Transfer, data: np.ndarray) -> TimedCall:
    """Pageable memory through our own page-locked buffers, copied into by all threads while the engine empties others.

    data: `problem.nbytes` bytes in host memory.
    """
    source, target = _source_and_target(problem, data)
    stream = cupy.cuda.Stream(non_blocking=True)
    size = min(STAGE_BYTES, problem.nbytes)
    buffers = [host_array("pinned", size) for _ in range(STAGES)]
    events = [cupy.cuda.Event(disable_timing=True) for _ in range(STAGES)]
    numba.set_num_threads(min(STAGING_THREADS, numba.config.NUMBA_NUM_THREADS))
    pieces = []
    for number, start in enumerate(range(0, problem.nbytes, size)):
        pieces.append(StagedPiece(slot=number % STAGES, start=start, stop=min(start + size, problem.nbytes)))
    _copy_host(buffers[0], buffers[0].copy())  # compiles

    def send():
        """Host to device, piece by piece: a piece is copied into a page-locked buffer once the copy engine has emptied that
        buffer."""
        for number, piece in enumerate(pieces):
            buffer = buffers[piece.slot]
            if number >= STAGES:  # the engine has emptied the buffer
                events[piece.slot].synchronize()
            _copy_host(source[piece.start : piece.stop], buffer[: piece.nbytes])
            runtime.memcpyAsync(target.data.ptr + piece.start, buffer.ctypes.data, piece.nbytes, H2D, stream.ptr)
            events[piece.slot].record(stream)
        stream.synchronize()
        return target

    def begin_fetching(piece: StagedPiece) -> None:
        """Queues the copy of a piece from the device into its page-locked buffer."""
        buffer = buffers[piece.slot]
        runtime.memcpyAsync(buffer.ctypes.data, source.data.ptr + piece.start, piece.nbytes, D2H, stream.ptr)
        events[piece.slot].record(stream)

    def fetch():
        """Device to host, piece by piece: up to STAGES pieces are on their way while the oldest is copied out of its buffer."""
        for number in range(len(pieces) + STAGES - 1):
            if number < len(pieces):
                begin_fetching(pieces[number])
            if number >= STAGES - 1:  # a piece that was begun some pieces ago
                piece = pieces[number - STAGES + 1]
                events[piece.slot].synchronize()
                _copy_host(buffers[piece.slot][: piece.nbytes], target[piece.start : piece.stop])
        return target

    return send if problem.direction == "h2d" else fetch


@kernel
@only(("d2d",))
def wide(problem: Transfer, data: np.ndarray) -> TimedCall:
    """Device to device by a kernel of ours with 16-byte loads, several in flight: no copy engine.

    data: `problem.nbytes` bytes in host memory.
    """
    source, target = _source_and_target(problem, data)
    compiled, blocks = loader.element_wise_kernel(real="char", formula="a", arrays=1, nbytes=problem.nbytes)
    arguments = (source, source, target, np.int64(problem.nbytes))

    run = timed_call(compiled, (blocks,), (loader.STREAM_THREADS,), arguments, result=target)
    run.source_and_target = source, target
    return run


def _managed(nbytes: int) -> tuple[np.ndarray, cupy.ndarray, Callable[[], None]]:
    """(`nbytes` of zeroed managed memory as the host's array, the same bytes as the device's array, the call that moves them
    to the device)."""
    memory = host_array("managed", nbytes)
    stream = cupy.cuda.get_current_stream()
    device = cupy.cuda.Device().id
    pointer = memory.ctypes.data
    unowned = cupy.cuda.UnownedMemory(pointer, nbytes, memory, device)
    on_device = cupy.ndarray(nbytes, np.uint8, cupy.cuda.MemoryPointer(unowned, 0))

    def send():
        runtime.memPrefetchAsync(pointer, nbytes, device, stream.ptr)

    return memory, on_device, send


@kernel
@only(("h2d",), ("managed",))
def prefetch(problem: Transfer, data: np.ndarray) -> TimedCall:
    """Managed memory moved to the device by cudaMemPrefetchAsync; the host takes it back, untimed, before each call.

    data: `problem.nbytes` bytes in host memory.
    """
    memory, on_device, send = _managed(data.size)
    memory[:] = data

    def run():
        send()
        return on_device  # read by the device: what the host wrote must have come

    run.before = lambda: np.add(memory[::_PAGE], 0, out=memory[::_PAGE])
    return run


@kernel(waits=True)
@only(("d2h",), ("managed",))
def page_faults(problem: Transfer, data: np.ndarray) -> TimedCall:
    """Managed memory read on the host, which fetches it page by page; sent to the device, untimed, before each call.

    data: `problem.nbytes` bytes in host memory.
    """
    memory, on_device, send = _managed(data.size)
    on_device.set(data)  # written by the device's copy engine: what the host reads must have come from there

    run = timed_call(np.max, memory[::_PAGE], result=memory)
    run.before = send
    return run
