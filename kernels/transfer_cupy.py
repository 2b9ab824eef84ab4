"""Copies between host and device, and on the device: as CuPy writes them, as CUDA has them, and staged by ourselves.

Device and host targets are zeroed first, so that a copy that does nothing is not taken for one.
"""

import ctypes
import functools
import weakref

import cupy
import numba
import numpy as np
from cupy.cuda import runtime

from kernels import cuda
from kernels.arrays import empty
from kernels.problems import Transfer
from kernels.registry import kernel

_H2D, _D2H, _D2D = 1, 2, 3  # cudaMemcpyKind
_WRITE_COMBINED = 0x04  # cudaHostAllocWriteCombined
_PAGE = 4096
_KINDS = {"h2d": _H2D, "d2h": _D2H, "d2d": _D2D}
_COPY_THREADS = 256
_TRIAD_VALUES = 1 << 24  # a power of two, as the kernel in transfer_cupy.cu wraps around it
STAGE_BYTES, STAGES, STAGING_THREADS = 8 << 20, 4, 8


def _view(pointer: int, nbytes: int, release, *arguments) -> np.ndarray:
    """`nbytes` at a host address as an array of bytes; `release(*arguments)` runs when nothing uses it any more."""
    memory = (ctypes.c_ubyte * nbytes).from_address(pointer)
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


def _device_array(nbytes: int, data: np.ndarray | None = None) -> cupy.ndarray:
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
        return source, _device_array(n)
    if problem.direction == "d2h":
        return _device_array(n, data), host_array(problem.host_memory, n)
    return _device_array(n, data), _device_array(n)


_LOCKED = ("pinned", "write-combined", "registered", "managed")


def _only(directions: tuple[str, ...], memories: tuple[str, ...] = ("",), why: str = "", computes: bool = False):
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
@_only(("h2d", "d2h"), ("pageable", *_LOCKED))
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
@_only(("h2d", "d2h"), ("pageable",))
def asarray(problem: Transfer, data):
    """`cp.asarray` and `cp.asnumpy`, as people write it: fresh memory each call, staged through CuPy's pinned pool."""
    source, _ = _ends(problem, data)
    if problem.direction == "h2d":
        return lambda: cupy.asarray(source)
    return lambda: cupy.asnumpy(source)


@kernel(waits=True)
@_only(("h2d", "d2h", "d2d"), ("pageable", *_LOCKED))
def memcpy(problem: Transfer, data):
    """cudaMemcpy: returns when the bytes are there; of pageable memory the driver stages them through its own buffers."""
    source, target = _ends(problem, data)
    arguments = (_address(target), _address(source), problem.nbytes, _KINDS[problem.direction])

    def run(keep=source):  # the call holds raw addresses, so their owner is held here
        runtime.memcpy(*arguments)
        return target

    return run


@kernel
@_only(("h2d", "d2h", "d2d", "both"), _LOCKED, "the driver stages pageable memory while the call waits, and reading "
       "write-combined memory takes a hundred times longer")
def memcpy_async(problem: Transfer, data):
    """cudaMemcpyAsync on a stream: the host only enqueues it, and a copy engine does the rest."""
    stream, n = cupy.cuda.get_current_stream(), problem.nbytes
    if problem.direction == "both":
        return _both(problem, data, stream)
    source, target = _ends(problem, data)
    arguments = (_address(target), _address(source), n, _KINDS[problem.direction], stream.ptr)

    def run(keep=source):
        runtime.memcpyAsync(*arguments)
        return target

    run.ends = source, target
    return run


def _both(problem: Transfer, data, stream):
    """One copy each way at once, on two streams that begin after what `stream` holds and that it then waits for."""
    n = problem.nbytes
    (up, device), (back, host) = (_ends(Transfer(way, n, problem.host_memory), data) for way in ("h2d", "d2h"))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    copies = ((_address(device), _address(up), n, _H2D, streams[0].ptr),
              (_address(host), _address(back), n, _D2H, streams[1].ptr))  # fmt: skip
    fork, join = _forks(stream, streams)

    def run(keep=(up, back)):
        fork()
        for arguments in copies:
            runtime.memcpyAsync(*arguments)
        join()
        return device, host

    return run


def _forks(stream, streams):
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
@_only(("h2d", "d2h"), ("pageable",))
def staged(problem: Transfer, data):
    """Pageable memory through our own page-locked buffers, copied into by all threads while the engine empties others."""
    source, target = _ends(problem, data)
    stream = cupy.cuda.Stream(non_blocking=True)
    size = min(STAGE_BYTES, problem.nbytes)
    buffers = [host_array("pinned", size) for _ in range(STAGES)]
    events = [cupy.cuda.Event(disable_timing=True) for _ in range(STAGES)]
    numba.set_num_threads(min(STAGING_THREADS, numba.config.NUMBA_NUM_THREADS))
    pieces = [(i % STAGES, start, min(size, problem.nbytes - start)) for i, start in enumerate(range(0, problem.nbytes, size))]
    _copy_host(buffers[0], buffers[0].copy())  # compiles

    def send():
        for i, (slot, start, n) in enumerate(pieces):
            if i >= STAGES:
                events[slot].synchronize()
            _copy_host(source[start : start + n], buffers[slot][:n])
            runtime.memcpyAsync(target.data.ptr + start, buffers[slot].ctypes.data, n, _H2D, stream.ptr)
            events[slot].record(stream)
        stream.synchronize()
        return target

    def fetch():
        for i in range(len(pieces) + STAGES - 1):
            if i < len(pieces):
                slot, start, n = pieces[i]
                runtime.memcpyAsync(buffers[slot].ctypes.data, source.data.ptr + start, n, _D2H, stream.ptr)
                events[slot].record(stream)
            if i >= STAGES - 1:
                slot, start, n = pieces[i - STAGES + 1]
                events[slot].synchronize()
                _copy_host(buffers[slot][:n], target[start : start + n])
        return target

    return send if problem.direction == "h2d" else fetch


@kernel
@_only(("d2d",))
def wide(problem: Transfer, data):
    """Device to device by a kernel of ours with 16-byte loads, several in flight: no copy engine."""
    source, target = _ends(problem, data)
    compiled, blocks = cuda.stream("char", "a", 1, problem.nbytes)
    arguments = (source, source, target, np.int64(problem.nbytes))

    def run():
        compiled((blocks,), (cuda.STREAM_THREADS,), arguments)
        return target

    run.ends = source, target
    return run


@kernel
@_only(("h2d",), ("managed",))
def prefetch(problem: Transfer, data):
    """Managed memory moved to the device by cudaMemPrefetchAsync; the host takes it back, untimed, before each call."""
    memory, send = _managed(data)

    def run():
        send()
        return memory

    run.before = lambda: np.add(memory[::_PAGE], 0, out=memory[::_PAGE])
    return run


@kernel(waits=True)
@_only(("d2h",), ("managed",))
def page_faults(problem: Transfer, data):
    """Managed memory read on the host, which fetches it page by page; sent to the device, untimed, before each call."""
    memory, send = _managed(data)

    def run():
        np.max(memory[::_PAGE])
        return memory

    run.before = send
    return run


def _managed(data):
    """Managed memory that holds the data, and what sends it to the device."""
    memory, stream, device = host_array("managed", data.size), cupy.cuda.get_current_stream(), cupy.cuda.Device().id
    memory[:] = data
    pointer, n = memory.ctypes.data, data.size

    def send():
        runtime.memPrefetchAsync(pointer, n, device, stream.ptr)

    return memory, send


@functools.lru_cache(maxsize=8)
def _trips(problem_bytes: int, compute: str, chunks: int) -> int:
    """Loop trips that make the kernels over all chunks about as long as the copies of their bytes, measured here."""
    problem = Transfer("h2d", problem_bytes, "pinned", compute, chunks)
    data = problem.inputs(1)[0]
    stream = cupy.cuda.get_current_stream()
    copies, _ = _pieces(problem, data, [stream], 1)
    copy_s = _device_seconds(lambda: [copy() for copy, _ in copies], stream)
    trips = 64
    for _ in range(4):
        pieces, _ = _pieces(problem, data, [stream], trips)
        seconds = _device_seconds(lambda made=pieces: [work() for _, work in made], stream)
        trips = max(1, round(trips * copy_s / seconds))
    return trips


def _device_seconds(work, stream) -> float:
    """The least of a few times by events."""
    begin, end, least = cupy.cuda.Event(), cupy.cuda.Event(), float("inf")
    for _ in range(4):
        begin.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        least = min(least, cupy.cuda.get_elapsed_time(begin, end) * 1e-3)
    return least


def _pieces(problem: Transfer, data, streams, trips: int):
    """[(copy, compute)] of every chunk, and the target. The first stream has the copies, the others the kernels in turn, each
    of which waits for its chunk; of a single stream it has both. compute works beside the bytes, not on them, so that
    its length is the same with and without the copy: `fma` in registers, `triad` over three arrays of 128 MiB."""
    source = host_array(problem.host_memory, problem.nbytes)
    source[:] = data
    target = _device_array(problem.nbytes)
    work = cuda.load("transfer_cupy", f"{problem.compute}_trips")
    blocks = cupy.cuda.Device().attributes["MultiProcessorCount"] * (4 if problem.compute == "fma" else 8)
    triad = problem.compute == "triad"
    room = cupy.ones((3, _TRIAD_VALUES), np.float64) if triad else cupy.zeros(blocks * _COPY_THREADS, np.float32)
    bounds = np.linspace(0, problem.nbytes, problem.chunks + 1).astype(np.int64)
    made = []
    for i, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        copier, computer = streams[0], (streams[1:] or streams)[i % max(1, len(streams) - 1)]
        copied = (target.data.ptr + start, source.ctypes.data + start, stop - start, _H2D, copier.ptr)
        there, arguments = cupy.cuda.Event(disable_timing=True), (room, np.int32(trips))

        def copy(copied=copied, there=there, copier=copier, keep=source):
            runtime.memcpyAsync(*copied)
            there.record(copier)

        def compute(there=there, computer=computer, arguments=arguments):
            computer.wait_event(there)
            work((blocks,), (_COPY_THREADS,), arguments, stream=computer)

        made.append((copy, compute))
    return made, target


def _overlapping(problem: Transfer, data, copies: bool, computes: bool):
    stream = cupy.cuda.get_current_stream()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(problem.streams)]
    pieces, target = _pieces(problem, data, streams, _trips(problem.nbytes, problem.compute, problem.chunks))
    fork, join = _forks(stream, streams)
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

    return run


@kernel
@_only(("h2d",), _LOCKED, "beside a kernel that the problem names", computes=True)
def overlap_copy(problem: Transfer, data):
    """The chunks' copies alone, one after another on a stream of their own."""
    return _overlapping(problem, data, True, False)


@kernel
@_only(("h2d",), _LOCKED, "beside a kernel that the problem names", computes=True)
def overlap_compute(problem: Transfer, data):
    """The chunks' kernels alone, made as long as the copies."""
    return _overlapping(problem, data, False, True)


@kernel
@_only(("h2d",), _LOCKED, "beside a kernel that the problem names", computes=True)
def overlap_both(problem: Transfer, data):
    """Each chunk copied and then computed on: one stream copies chunk after chunk, the others follow with their kernels."""
    return _overlapping(problem, data, True, True)
