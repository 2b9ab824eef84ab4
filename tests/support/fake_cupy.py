"""A CuPy whose GPU is a queue on a clock: issuing takes the host's time, work the device's, which is done when somebody waits.

What is queued begins when it was issued and what lies before it on its stream is done. Times are round numbers, to be added up by
hand: ISSUE for a launch, a copy or an event, WAIT for a wait, a copy's bytes at PINNED or PAGEABLE bytes a second.
"""

import contextlib
import ctypes
import sys
import types

import numpy as np

from kernels.cuda import loader
from workloads.harness import copy_modes

ISSUE, WAIT = 1e-6, 3e-6  # seconds on the host
PINNED, PAGEABLE = 1e9, 1e8  # bytes a second


class Operation:
    """Work of `seconds` on a stream, queued at `issued`; `effect` is what it does, when it is done."""

    def __init__(self, issued: float, seconds: float = 0.0, effect=None, hold=None):
        self.issued, self.seconds, self.effect, self.hold, self.end = issued, seconds, effect, hold, None


class Gpu:
    """The host's clock, what is queued, and what was copied how: [(direction, bytes, pinned)]."""

    def __init__(self):
        self.now, self.current, self.copied, self.held = 0.0, None, [], []
        self.pinned: list[tuple[int, int]] = []

    def launch(self, seconds: float, effect=None) -> None:
        """A kernel on the current stream."""
        self.queue(self.current, seconds, effect)

    def queue(self, stream, seconds: float = 0.0, effect=None, hold=None) -> Operation:
        self.now += ISSUE
        operation = Operation(self.now, seconds, effect, hold)
        stream.waiting.append(operation)
        return operation

    def wait(self, stream, until: Operation | None = None) -> None:
        """Does what lies on the stream, up to an operation; the host goes on when it is done."""
        while stream.waiting:
            operation = stream.waiting.pop(0)
            begin = max(stream.done, operation.issued)
            stream.done = self._held(operation, begin) if operation.hold else begin + operation.seconds
            operation.end = stream.done
            if operation.effect:
                operation.effect()
            if operation is until:
                break
        last = until.end if until else stream.done
        self.now = max(self.now, last) + WAIT

    def _held(self, operation: Operation, begin: float) -> float:
        """When the kernel that holds a stream ends: let go by now, or by itself."""
        address, limit_s, let_go = operation.hold
        if let_go:
            return begin
        flags = (ctypes.c_int32 * 2).from_address(address)
        released = flags[0] == 1
        late = not released or self.now > begin + limit_s
        if late:
            flags[1] = 1
        self.held.append((begin, released, late))
        return begin + limit_s if late else self.now

    def is_pinned(self, array: np.ndarray) -> bool:
        return any(begin <= array.ctypes.data < begin + nbytes for begin, nbytes in self.pinned)

    def copy(self, direction: str, host: np.ndarray, stream, effect) -> bool:
        """A copy of the whole host array; one of pageable memory is waited for before the call returns. Whether it was."""
        pinned = self.is_pinned(host)
        self.copied.append((direction, host.nbytes, pinned))
        operation = self.queue(stream, host.nbytes / (PINNED if pinned else PAGEABLE), effect)
        if not pinned:
            self.wait(stream, operation)
        return not pinned


class Address(int):
    """An address as CuPy's arrays tell it."""

    ptr = property(int)


class Array(np.ndarray):
    """Device memory."""

    data = property(lambda self: Address(self.ctypes.data))

    def __array_finalize__(self, source):
        self.gpu = getattr(source, "gpu", None)

    def set(self, host, stream=None):
        source = np.asarray(host)
        assert (source.shape, source.dtype) == (self.shape, self.dtype) and source.flags.c_contiguous
        self.gpu.copy("h2d", source, stream or self.gpu.current, lambda: np.copyto(self, source))

    def get(self, stream=None, out=None, blocking=True):
        out = np.empty(self.shape, self.dtype) if out is None else out
        stream = stream or self.gpu.current
        if not self.gpu.copy("d2h", out, stream, lambda: np.copyto(out, np.asarray(self))) and blocking:
            self.gpu.wait(stream)
        return out


class Pinned(bytearray):
    """Page-locked memory."""

    ptr = property(lambda self: ctypes.addressof(ctypes.c_char.from_buffer(self)))


def _stream(gpu: Gpu) -> type:
    class Stream:
        ptr = 0

        def __init__(self, non_blocking=False):
            self.non_blocking, self.waiting, self.done = non_blocking, [], 0.0

        def use(self):
            gpu.current = self

        def synchronize(self):
            gpu.wait(self)

    return Stream


def _event(gpu: Gpu) -> type:
    class Event:
        recorded = Operation(0.0)

        def record(self, stream=None):
            self.stream = stream or gpu.current
            self.recorded = gpu.queue(self.stream)

        def synchronize(self):
            if self.recorded.end is None:
                gpu.wait(self.stream, self.recorded)

    return Event


def _elapsed(begin, end) -> float:
    if begin.recorded.end is None or end.recorded.end is None:
        raise RuntimeError("cudaErrorNotReady: device not ready")
    return (end.recorded.end - begin.recorded.end) * 1e3


def cupy(gpu: Gpu) -> types.ModuleType:
    """The module, over that GPU."""

    def pinned(nbytes: int) -> Pinned:
        memory = Pinned(nbytes)
        gpu.pinned.append((memory.ptr, nbytes))
        return memory

    def empty(shape, dtype) -> Array:
        array = np.full(shape, 7, dtype).view(Array)  # nobody counts on what fresh memory holds
        array.gpu = gpu
        return array

    def asarray(host: np.ndarray) -> Array:
        array = empty(host.shape, host.dtype)
        array.set(host)
        return array

    made = types.ModuleType("cupy")
    made.empty, made.asarray, made.asnumpy, made.ndarray = empty, asarray, lambda x: x.get(), Array
    made.ascontiguousarray = lambda x: asarray(np.ascontiguousarray(x))
    made.cuda = types.SimpleNamespace(Stream=_stream(gpu), Event=_event(gpu), get_elapsed_time=_elapsed)
    made.cuda.alloc_pinned_memory, made.cuda.get_current_stream = pinned, lambda: gpu.current
    made.cuda.Device = lambda: types.SimpleNamespace(id=0)
    made.cuda.runtime = types.SimpleNamespace(getDeviceProperties=lambda _: {"name": b"NVIDIA H200"})
    made.cuda.Stream().use()  # the default one
    return made


def load(gpu: Gpu):
    """kernels.cuda.loader.compile_kernel, which knows one kernel: the one that holds the current stream."""

    def loaded(file: str, name: str):
        assert (file, name) == ("cuda/hold", "hold")

        def kernel(grid, block, arguments):
            address, limit_ns = arguments
            assert (grid, block) == ((1,), (1,)) and any(begin == address for begin, _ in gpu.pinned)
            let_go = ctypes.c_int32.from_address(int(address)).value
            gpu.queue(gpu.current, hold=(int(address), int(limit_ns) * 1e-9, let_go))

        return kernel

    return loaded


@contextlib.contextmanager
def installed(monkeypatch):
    """The Gpu of a fake CuPy that `import cupy` finds, its clock in time.perf_counter's place."""
    gpu = Gpu()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cupy", cupy(gpu))
        patch.setattr(loader, "compile_kernel", load(gpu))
        patch.setattr(copy_modes, "_stream", None)
        patch.setattr("time.perf_counter", lambda: gpu.now)
        yield gpu
