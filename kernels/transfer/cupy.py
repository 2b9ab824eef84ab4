"""Copies between host and device, and on the device: as CuPy writes them, as CUDA has them, and staged by ourselves.

Device and host targets are zeroed first, so that a copy that does nothing is not taken for one.
"""

import ctypes
import functools
import weakref
from typing import Any

import cupy
import numba
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import loader
from kernels.cuda.loader import D2D, D2H, H2D
from kernels.problems import Transfer
from kernels.problems.arrays import empty
from kernels.registry import into, kernel

_WRITE_COMBINED = 0x04  # cudaHostAllocWriteCombined
_PAGE = 4096
_KINDS = {"h2d": H2D, "d2h": D2H, "d2d": D2D}
STAGE_BYTES, STAGES, STAGING_THREADS = 8 << 20, 4, 8


def _view(pointer: int, nbytes: int, release, *arguments) -> np.ndarray:
    """`nbytes` at a host address as an array of bytes; `release(*arguments)` runs when nothing uses it any more."""
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(pointer)
    weakref.finalize(memory, release, *arguments)
    return np.frombuffer(memory, np.uint8)


def _unregister(pointer: int, array: np.ndarray) -> None:
    runtime.hostUnregister(pointer)


def host_array(kind: str, nbytes: int) -> np.ndarray:
    """Bytes of host memory of that kind, zeroed and so touched."""
    match kind:
        case "pageable":
            array = empty((nbytes,), np.dtype(np.uint8))
        case "pinned":
            array = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
        case "write-combined":
            pointer = runtime.hostAlloc(nbytes, _WRITE_COMBINED)
            array = _view(pointer, nbytes, runtime.freeHost, pointer)
        case "registered":
            own = empty((nbytes,), np.dtype(np.uint8))
            own.fill(0)
            runtime.hostRegister(own.ctypes.data, nbytes, 0)
            array = _view(own.ctypes.data, nbytes, _unregister, own.ctypes.data, own)
        case "managed":
            pointer = runtime.mallocManaged(nbytes)
            array = _view(pointer, nbytes, runtime.free, pointer)
    array.fill(0)
    return array


def device_array(nbytes: int, data: np.ndarray | None = None) -> cupy.ndarray:
    made = cupy.zeros(nbytes, np.uint8)
    if data is not None:
        made.set(data)
    return made


def _ends(problem: Transfer, data: np.ndarray):
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
        def checked(problem, data):
            if not takes(problem):
                kinds = f" from and to {', '.join(filter(None, memories))} memory" if any(memories) else ""
                raise ValueError(f"{bind.__name__} copies {', '.join(directions)}{kinds}{why and '; '}{why}")
            return bind(problem, data)

        checked.takes = takes
        return checked

    return mark


def _address(array) -> int:
    return array.data.ptr if isinstance(array, cupy.ndarray) else array.ctypes.data


@kernel(waits=True)
@only(("h2d", "d2h"), ("pageable", *LOCKED))
def array(problem: Transfer, data):
    """`ndarray.set` and `ndarray.get(out=)` into memory that is there, as people write it who care."""
    source, target = _ends(problem, data)

    def run():
        if problem.direction == "h2d":
            target.set(source)
        else:
            source.get(out=target)
        return target

    return run


@kernel(allocates=True)
@only(("h2d", "d2h"), ("pageable",))
def asarray(problem: Transfer, data):
    """`cp.asarray` and `cp.asnumpy`, as people write it: fresh memory each call, staged through CuPy's pinned pool."""
    source, _ = _ends(problem, data)
    if problem.direction == "h2d":
        return lambda: cupy.asarray(source)
    return lambda: cupy.asnumpy(source)


@kernel(waits=True)
@only(("h2d", "d2h", "d2d"), ("pageable", *LOCKED))
def memcpy(problem: Transfer, data):
    """cudaMemcpy, waited for: of few pageable bytes and on the device it returns before they have arrived. The driver stages
    pageable memory through its own buffers."""
    source, target = _ends(problem, data)
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
    "the driver stages pageable memory while the call waits, and reading "
    "write-combined memory takes a hundred times longer",
)
def memcpy_async(problem: Transfer, data):
    """cudaMemcpyAsync on a stream: the host only enqueues it, and a copy engine does the rest."""
    stream, n = cupy.cuda.get_current_stream(), problem.nbytes
    if problem.direction == "both":
        return _both(problem, data, stream)
    source, target = _ends(problem, data)
    arguments = (_address(target), _address(source), n, _KINDS[problem.direction], stream.ptr)

    run = into(target, runtime.memcpyAsync, *arguments, keep=source)
    run.ends = source, target
    return run


def _both(problem: Transfer, data, stream):
    """One copy each way at once, on two streams that begin after what `stream` holds and that it then waits for."""
    n = problem.nbytes
    (up, device), (back, host) = (_ends(Transfer(way, n, problem.host_memory), data) for way in ("h2d", "d2h"))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    copies = (
        (_address(device), _address(up), n, H2D, streams[0].ptr),
        (_address(host), _address(back), n, D2H, streams[1].ptr),
    )
    fork, join = forks(stream, streams)

    def run(keep=(up, back)):
        fork()
        for arguments in copies:
            runtime.memcpyAsync(*arguments)
        join()
        return device, host

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


@kernel(waits=True)
@only(("h2d", "d2h"), ("pageable",))
def staged(problem: Transfer, data):
    """Pageable memory through our own page-locked buffers, copied into by all threads while the engine empties others."""
    source, target = _ends(problem, data)
    stream = cupy.cuda.Stream(non_blocking=True)
    size = min(STAGE_BYTES, problem.nbytes)
    buffers = [host_array("pinned", size) for _ in range(STAGES)]
    events = [cupy.cuda.Event(disable_timing=True) for _ in range(STAGES)]
    numba.set_num_threads(min(STAGING_THREADS, numba.config.NUMBA_NUM_THREADS))
    pieces = [
        (i % STAGES, start, min(size, problem.nbytes - start)) for i, start in enumerate(range(0, problem.nbytes, size))
    ]
    _copy_host(buffers[0], buffers[0].copy())  # compiles

    def send():
        for i, (slot, start, n) in enumerate(pieces):
            if i >= STAGES:
                events[slot].synchronize()
            _copy_host(source[start : start + n], buffers[slot][:n])
            runtime.memcpyAsync(target.data.ptr + start, buffers[slot].ctypes.data, n, H2D, stream.ptr)
            events[slot].record(stream)
        stream.synchronize()
        return target

    def fetch():
        for i in range(len(pieces) + STAGES - 1):
            if i < len(pieces):
                slot, start, n = pieces[i]
                runtime.memcpyAsync(buffers[slot].ctypes.data, source.data.ptr + start, n, D2H, stream.ptr)
                events[slot].record(stream)
            if i >= STAGES - 1:
                slot, start, n = pieces[i - STAGES + 1]
                events[slot].synchronize()
                _copy_host(buffers[slot][:n], target[start : start + n])
        return target

    return send if problem.direction == "h2d" else fetch


@kernel
@only(("d2d",))
def wide(problem: Transfer, data):
    """Device to device by a kernel of ours with 16-byte loads, several in flight: no copy engine."""
    source, target = _ends(problem, data)
    compiled, blocks = loader.stream("char", "a", 1, problem.nbytes)
    arguments = (source, source, target, np.int64(problem.nbytes))

    run = into(target, compiled, (blocks,), (loader.STREAM_THREADS,), arguments)
    run.ends = source, target
    return run


@kernel
@only(("h2d",), ("managed",))
def prefetch(problem: Transfer, data):
    """Managed memory moved to the device by cudaMemPrefetchAsync; the host takes it back, untimed, before each call."""
    memory, there, send = _managed(data.size)
    memory[:] = data

    def run():
        send()
        return there  # read by the device: what the host wrote must have come

    run.before = lambda: np.add(memory[::_PAGE], 0, out=memory[::_PAGE])
    return run


@kernel(waits=True)
@only(("d2h",), ("managed",))
def page_faults(problem: Transfer, data):
    """Managed memory read on the host, which fetches it page by page; sent to the device, untimed, before each call."""
    memory, there, send = _managed(data.size)
    there.set(data)  # written by the device's copy engine: what the host reads must have come from there

    run = into(memory, np.max, memory[::_PAGE])
    run.before = send
    return run


def _managed(nbytes: int):
    """(zeroed managed memory, the same bytes as the device has them, what sends them to the device)."""
    memory, stream, device = host_array("managed", nbytes), cupy.cuda.get_current_stream(), cupy.cuda.Device().id
    pointer = memory.ctypes.data
    owned = cupy.cuda.UnownedMemory(pointer, nbytes, memory, device)
    there = cupy.ndarray(nbytes, np.uint8, cupy.cuda.MemoryPointer(owned, 0))

    def send():
        runtime.memPrefetchAsync(pointer, nbytes, device, stream.ptr)

    return memory, there, send
