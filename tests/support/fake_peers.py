"""Several GPUs over NumPy: a CuPy with streams, graphs and peer copies, NCCL, and a driver that runs our kernel on the CPU.

What is put on a stream happens when somebody waits, each stream's work in a thread of its own, as kernels of two GPUs wait for
each other.
"""

import contextlib
import ctypes
import importlib
import pathlib
import shutil
import sys
import threading
import types

import cuda_on_cpu
import fake_cupy
import numpy as np

from kernels import registry
from kernels.cuda import loader
from kernels.problems.arrays import numpy_dtype

_SHARED = "kernels.cuda.several_gpus"
PEERS = (_SHARED, "kernels.collective.cupy", "kernels.peer.cupy")


class CUDARuntimeError(RuntimeError):
    pass


class Host:
    """All GPUs: what is current, who reaches whom, what was asked for."""

    def __init__(self, count: int, reach: bool = True):
        self.count, self.reach, self.current, self.enabled, self.streams = count, reach, 0, set(), []
        self.capturing: dict[int, list] = {}

    def put(self, stream: int, work) -> None:
        """On the stream, or into the graph that is being recorded of it."""
        self.capturing.get(stream, self.streams[stream].waiting).append(work)

    def wait(self) -> None:
        """Everything that lies on the streams, each stream's in order."""
        queues = [s.waiting for s in self.streams]
        for s in self.streams:
            s.waiting = []
        broken: list[BaseException] = []

        def work(queue):
            try:
                for each in queue:
                    each()
            except BaseException as error:
                broken.append(error)

        threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a stream hangs"
        if broken:
            raise broken[0]


class Array(cuda_on_cpu.Array):
    """An array of one GPU."""

    gpu = 0

    def set(self, values):
        self[...] = values

    @property
    def data(self):
        return Memory(self.ctypes.data)

    @property
    def device(self):
        return types.SimpleNamespace(id=self.gpu)


class Memory(cuda_on_cpu.Pointer):
    def memset_async(self, value, nbytes, stream):
        ctypes.memset(int(self), value, nbytes)


def _device(host: Host) -> type:
    class Device:
        compute_capability = "90"

        def __init__(self, gpu=None):
            self.gpu = host.current if gpu is None else gpu

        def __enter__(self):
            self.before, host.current = host.current, self.gpu

        def __exit__(self, *_):
            host.current = self.before

    return Device


def _stream(host: Host) -> type:
    class Graph:
        def __init__(self, works):
            self.works = works

        def upload(self, stream):
            pass

        def launch(self, stream):
            assert host.current == stream.gpu, "a graph is launched with its own GPU current"
            for work in self.works:
                host.put(stream.number, work)

    class Stream:
        def __init__(self, non_blocking=False):
            self.number, self.gpu, self.waiting = len(host.streams), host.current, []
            self.ptr = self.number + 1
            host.streams.append(self)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

        def synchronize(self):
            host.wait()

        def wait_event(self, event):
            host.put(self.number, event.passed)

        def begin_capture(self):
            host.capturing[self.number] = []

        def end_capture(self):
            return Graph(host.capturing.pop(self.number))

    return Stream


def _event(host: Host) -> type:
    class Event:
        def __init__(self, disable_timing=False):
            self.recorded = None

        def record(self, stream):
            happened = self.recorded = threading.Event()
            host.put(stream.number, happened.set)

        def synchronize(self):
            host.wait()

        @property
        def passed(self):
            recorded = self.recorded
            return (lambda: recorded.wait(30)) if recorded else (lambda: None)

    return Event


def _runtime(host: Host) -> types.SimpleNamespace:
    def enable(other):
        if (host.current, other) in host.enabled:
            raise CUDARuntimeError("cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled")
        host.enabled.add((host.current, other))

    def peer_copy(to, gpu, source, other, count, stream):
        assert (other, gpu) in host.enabled and gpu != other
        host.put(stream - 1, lambda: ctypes.memmove(int(to), int(source), count))

    def copy(to, source, count, kind, stream):
        assert kind in (1, 2) and host.streams[stream - 1].gpu == host.current
        host.put(stream - 1, lambda: ctypes.memmove(int(to), int(source), count))

    return types.SimpleNamespace(
        getDeviceCount=lambda: host.count,
        deviceCanAccessPeer=lambda a, b: int(host.reach),
        deviceEnablePeerAccess=enable,
        setDevice=lambda gpu: setattr(host, "current", gpu),
        memcpyPeerAsync=peer_copy,
        memcpyAsync=copy,
        CUDARuntimeError=CUDARuntimeError,
    )


def cupy(host: Host) -> types.ModuleType:
    made = types.ModuleType("cupy")

    def empty(shape, dtype):
        array = cuda_on_cpu.empty(shape, dtype).view(Array)
        array.gpu = host.current
        return array

    made.ndarray, made.empty, made.asnumpy = Array, empty, lambda array: np.array(array)
    made.empty_like = lambda array: empty(array.shape, array.dtype)

    def zeros(shape, dtype):
        array = empty(shape, dtype)
        array[...] = 0
        return array

    made.zeros = zeros
    made.cuda = types.ModuleType("cupy.cuda")
    made.cuda.runtime = _runtime(host)
    made.cuda.Device, made.cuda.Stream, made.cuda.Event = _device(host), _stream(host), _event(host)
    made.cuda.alloc_pinned_memory, made.cuda.get_local_runtime_version = fake_cupy.Pinned, lambda: 13000
    made.cuda.nccl = nccl(host)
    return made


def nccl(host: Host) -> types.ModuleType:
    """Sums when the streams are waited for: of a group, on every stream, after all of it has come there."""
    made = types.ModuleType("cupy.cuda.nccl")
    made.available, made.NCCL_SUM = True, 0
    made.NCCL_FLOAT32, made.NCCL_BFLOAT16 = 7, 9
    groups: list[list] = []

    class Communicator:
        def __init__(self, gpu):
            self.gpu = gpu

        def allReduce(self, sent, got, count, kind, op, stream):
            groups[-1].append((sent, got, count, kind, stream))

    def end():
        parts = groups.pop()
        met = threading.Barrier(len(parts))

        def work(got, count, kind):
            def done():
                met.wait(30)
                dtype = numpy_dtype({made.NCCL_FLOAT32: "float32", made.NCCL_BFLOAT16: "bfloat16"}[kind])
                bits = [(ctypes.c_ubyte * (count * dtype.itemsize)).from_address(int(sent)) for sent, *_ in parts]
                total = np.sum([np.frombuffer(b, dtype).astype(np.float32) for b in bits], axis=0).astype(dtype)
                met.wait(30)
                ctypes.memmove(int(got), total.ctypes.data, total.nbytes)

            return done

        for _, got, count, kind, stream in parts:
            host.put(stream - 1, work(got, count, kind))

    made.NcclCommunicator = types.SimpleNamespace(initAll=lambda gpus: [Communicator(gpu) for gpu in gpus])
    made.groupStart, made.groupEnd = lambda: groups.append([]), end
    return made


class Driver:
    """cuLaunchKernelEx of kernels that were compiled for the CPU: one library a GPU, as each has its own blocks."""

    def __init__(self, host: Host, folder):
        self.host, self.folder, self.kernels = host, folder, []

    def load(self, file, kernel, **macros):
        built = cuda_on_cpu.load(self.folder, file, kernel, **macros)
        first = len(self.kernels)
        for gpu in range(self.host.count):  # a copy each, whose blocks and threads are its own
            own = pathlib.Path(f"{built.library._name}.{gpu}")
            if not own.exists():
                shutil.copy(built.library._name, own)
            self.kernels.append(cuda_on_cpu.Launched(ctypes.CDLL(own), built.kinds))
        driver = self

        class Compiled:
            @property
            def kernel(self):
                return types.SimpleNamespace(ptr=first + driver.host.current + 1)

        return Compiled()

    def cuLaunchKernelEx(self, config, function, addresses, extra) -> int:
        config, kernel = config._obj, self.kernels[function.value - 1]
        told = [(attribute.id, attribute.value) for attribute in config.attributes[: config.count]]
        assert told in ([], [(6, 1)])  # programmatic stream serialization
        assert config.shared_bytes == 0 and extra is None
        assert self.host.streams[config.stream - 1].gpu == self.host.current
        given = [
            ctypes.c_void_p(ctypes.c_uint64.from_address(a).value) if "*" in kind else ctypes.c_void_p(a)
            for a, kind in zip(addresses, kernel.kinds, strict=True)
        ]
        self.host.put(config.stream - 1, lambda: kernel.library.go(config.grid_x, 1, config.block_x, *given))
        return 0


@contextlib.contextmanager
def imported(monkeypatch, folder, count: int = 2, reach: bool = True, names: tuple[str, ...] = PEERS):
    """The modules of these names, by default (collective_cupy, peer_cupy), and the host, over so many fake GPUs."""
    host = Host(count, reach)
    made = cupy(host)
    with monkeypatch.context() as patch:
        for name, module in (("cupy", made), ("cupy.cuda", made.cuda), ("cupy.cuda.nccl", made.cuda.nccl)):
            patch.setitem(sys.modules, name, module)
        driver = Driver(host, folder)
        patch.setattr(loader, "_driver", lambda: driver)
        patch.setattr(loader, "compile_kernel", driver.load)
        patch.setattr(registry, "_registered", {})
        for name in names:
            patch.setitem(sys.modules, name, None)
            del sys.modules[name]
            package, _, own = name.rpartition(".")
            package = importlib.import_module(package)
            patch.setattr(package, own, None, raising=False)
            delattr(package, own)  # else `from kernels.cuda import ...` finds the old one
        yield *[importlib.import_module(name) for name in names if name != _SHARED], host
