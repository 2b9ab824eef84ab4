"""Copies between host and device, and on the device: as CuPy writes them, as CUDA has them, and staged by ourselves.

Device and host targets are zeroed first, so that a copy that does nothing is not taken for one.
"""

import ctypes
import functools
import weakref
from collections.abc import Callable
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


def _view(pointer: int, nbytes: int, release, keep: np.ndarray | None = None) -> np.ndarray:
    """`nbytes` at a host address as an array of bytes; `release(pointer)` runs when nothing uses it any more.

    keep: the array whose memory it is, alive until then.
    """
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(pointer)
    weakref.finalize(memory, _release, release, pointer, keep)
    return np.frombuffer(memory, np.uint8)


def _release(release, pointer: int, keep: np.ndarray | None) -> None:
    release(pointer)


def host_array(kind: str, nbytes: int) -> np.ndarray:
    """Bytes of host memory of that kind, zeroed and so touched."""
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
    """Bytes on the device: the data, or zeros."""
    array = cupy.zeros(nbytes, np.uint8)
    if data is not None:
        array.set(data)
    return array


def _source_and_target(problem: Transfer, data: np.ndarray):
    """(source, target) of a copy one way: the data at its source, zeros at its target."""
    n = problem.nbytes
    if problem.direction == "h2d":
        source = host_array(problem.host_memory, n)
        source[:] = data
        return source, device_array(n)
    if problem.direction == "d2h":
        return device_array(n, data), host_array(problem.host_memory, n)
    return device_array(n, data), device_array(n)


LOCKED = ("pinned", "write-combined", "registered", "managed")


def only(directions: tuple[str, ...], memories: tuple[str, ...] = ("",), why: str = "", computes: bool = False):
    """Marks a kernel with `takes(problem)`, whether it is for such a copy, and makes it refuse all others."""

    def takes(problem: Transfer) -> bool:
        readable = problem.direction == "h2d" or problem.host_memory != "write-combined"
        memory = problem.host_memory in memories or problem.direction == "d2d"
        return problem.direction in directions and memory and readable and bool(problem.compute) == computes

    def mark(bind):
        @functools.wraps(bind)
        def checked(problem, data: np.ndarray):
            if not takes(problem):
                kinds = f" from and to {', '.join(filter(None, memories))} memory" if any(memories) else ""
                raise ValueError(f"{bind.__name__} copies {', '.join(directions)}{kinds}{why and '; '}{why}")
            return bind(problem, data)

        checked.takes = takes
        return checked

    return mark


def _address(array: cupy.ndarray) -> int:
    return array.data.ptr if isinstance(array, cupy.ndarray) else array.ctypes.data


@kernel(waits=True)
@only(("h2d", "d2h"), ("pageable", *LOCKED))
def array(problem: Transfer, data: np.ndarray) -> TimedCall:
    """`ndarray.set` and `ndarray.get(out=)` into memory that is there, as people write it who care."""
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
    """`cp.asarray` and `cp.asnumpy`, as people write it: fresh memory each call, staged through CuPy's pinned pool."""
    source, _ = _source_and_target(problem, data)
    if problem.direction == "h2d":
        return lambda: cupy.asarray(source)
    return lambda: cupy.asnumpy(source)


@kernel(waits=True)
@only(("h2d", "d2h", "d2d"), ("pageable", *LOCKED))
def memcpy(problem: Transfer, data: np.ndarray) -> TimedCall:
    """cudaMemcpy, waited for: of few pageable bytes and on the device it returns before they have arrived. The driver stages
    pageable memory through its own buffers."""
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
    """cudaMemcpyAsync on a stream: the host only enqueues it, and a copy engine does the rest."""
    stream, n = cupy.cuda.get_current_stream(), problem.nbytes
    if problem.direction == "both":
        return _both(problem, data, stream)
    source, target = _source_and_target(problem, data)
    arguments = (_address(target), _address(source), n, _KINDS[problem.direction], stream.ptr)

    run = timed_call(runtime.memcpyAsync, *arguments, result=target, keep=source)
    run.source_and_target = source, target
    return run


def _both(problem: Transfer, data: np.ndarray, stream):
    """One copy each way at once, on two streams that begin after what `stream` holds and that it then waits for."""
    n = problem.nbytes
    host_source, device_target = _source_and_target(Transfer("h2d", n, problem.host_memory), data)
    device_source, host_target = _source_and_target(Transfer("d2h", n, problem.host_memory), data)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    copies = (
        (_address(device_target), _address(host_source), n, H2D, streams[0].ptr),
        (_address(host_target), _address(device_source), n, D2H, streams[1].ptr),
    )
    fork, join = forks(stream, streams)

    def run(keep=(host_source, device_source)):
        fork()
        for arguments in copies:
            runtime.memcpyAsync(*arguments)
        join()
        return device_target, host_target

    return run


def forks(stream, streams):
    """(fork, join): the streams go on where `stream` is; `stream` waits for all of them."""
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
    """Host bytes to host bytes on STAGING_THREADS threads; both begin on 8 bytes."""
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
    """Pageable memory through our own page-locked buffers, copied into by all threads while the engine empties others."""
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
        buffer = buffers[piece.slot]
        runtime.memcpyAsync(buffer.ctypes.data, source.data.ptr + piece.start, piece.nbytes, D2H, stream.ptr)
        events[piece.slot].record(stream)

    def fetch():
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
    """Device to device by a kernel of ours with 16-byte loads, several in flight: no copy engine."""
    source, target = _source_and_target(problem, data)
    compiled, blocks = loader.stream("char", "a", 1, problem.nbytes)
    arguments = (source, source, target, np.int64(problem.nbytes))

    run = timed_call(compiled, (blocks,), (loader.STREAM_THREADS,), arguments, result=target)
    run.source_and_target = source, target
    return run


def _managed(nbytes: int) -> tuple[np.ndarray, cupy.ndarray, Callable[[], None]]:
    """(zeroed managed memory for the host, the same bytes for the device, the call that sends them to the device)."""
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
    """Managed memory moved to the device by cudaMemPrefetchAsync; the host takes it back, untimed, before each call."""
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
    """Managed memory read on the host, which fetches it page by page; sent to the device, untimed, before each call."""
    memory, on_device, send = _managed(data.size)
    on_device.set(data)  # written by the device's copy engine: what the host reads must have come from there

    run = timed_call(np.max, memory[::_PAGE], result=memory)
    run.before = send
    return run
