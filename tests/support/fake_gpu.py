"""Stand-ins for CuPy and NVML, and a writer of other machines' /proc and /sys."""

import functools
import sys
import types

from workloads.machine import cpu, gpu

GIB = 1 << 30


def use_root(monkeypatch, root) -> None:
    """Makes a folder the one that another machine's files are read from."""
    monkeypatch.setattr(cpu, "ROOT", root)
    monkeypatch.setattr(cpu, "cgroup", functools.cache(cpu.cgroup.__wrapped__))


def write(root, files: dict[str, str]):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class CudaError(RuntimeError):
    pass


PROPERTIES = {"name": b"NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132, "uuid": bytes(range(16))}
PROPERTIES |= {"totalGlobalMem": 140 * GIB, "l2CacheSize": 60 << 20, "clockRate": 1980000, "memoryClockRate": 3201000}


def fake_cupy(monkeypatch, devices=1, error="", pooled=0):
    def count():
        if error:
            raise CudaError(error)
        return devices

    class Device:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    bus = {"deviceGetPCIBusId": lambda index: f"0000:{index:02x}:00.0", "memGetInfo": lambda: (10 * GIB, 140 * GIB)}
    about = {"getDeviceProperties": lambda index: PROPERTIES, "getDevice": lambda: 0}
    runtime = types.SimpleNamespace(getDeviceCount=count, **about, **bus)
    made = types.ModuleType("cupy")
    made.__version__ = "14.2.0"
    made.cuda = types.SimpleNamespace(runtime=runtime, Device=Device, get_local_runtime_version=lambda: 13000)
    made.is_available = lambda: not error and devices > 0
    made.get_default_memory_pool = lambda: types.SimpleNamespace(free_bytes=lambda: pooled)
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setattr(gpu, "driver_cuda", lambda: 13000)
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: object())
    return made


class FakeNvml:
    """Answers what it was given; anything else is an error, as on a GPU that does not support it."""

    class NVMLError(Exception):
        pass

    def __init__(self, **answers):
        self.answers = {"nvmlDeviceGetHandleByPciBusId": lambda bus: f"handle of {bus}", **answers}

    def __getattr__(self, name):
        if name not in self.answers:
            raise AttributeError(name)

        def call(*args):
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*args) if callable(answer) else answer

        return call


def use_nvml(monkeypatch, library):
    """Sets the NVML that is found (None: there is none), with no handle remembered."""
    monkeypatch.setattr(gpu, "nvml", lambda: library)
    monkeypatch.setattr(gpu, "handle", functools.cache(gpu.handle.__wrapped__))
