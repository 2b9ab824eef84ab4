"""This machine: its key, its threads, its memory, its software and its commit."""

import sys
import time
import types

import pytest
from fake_gpu import GIB

from workloads import host, machine


def test_without_cpuinfo_numpy_tells_the_features(tmp_path):
    assert host.features(host.cpuinfo(tmp_path)) == set()
    names = machine._numpy_features()
    assert names and names == {name.lower() for name in names}
    assert host.simd({"sse42", "avx2"}) == "avx2" and host.simd({"neon", "asimd"}) == "neon"
    assert host.simd(set()) == "scalar"


@pytest.mark.parametrize(
    ("args", "key"),
    [
        (("intel", "avx512", 2, []), "intel-avx512-2c"),
        (("intel", "avx512+amx", 16, []), "intel-avx512-amx-16c"),
        (("amd", "avx2", 64, []), "amd-avx2-64c"),
        (("intel", "avx512", 16, ["NVIDIA H200"]), "nvidia-h200"),
        (("intel", "avx512", 64, ["NVIDIA H200"] * 4), "nvidia-h200-x4"),
        (("amd", "avx2", 8, ["NVIDIA A100-SXM4-80GB"]), "nvidia-a100-sxm4"),
        (("amd", "avx2", 8, ["NVIDIA H100 80GB HBM3"]), "nvidia-h100"),
        (("amd", "avx2", 8, ["NVIDIA GeForce RTX 4060 Ti"]), "nvidia-geforce-rtx-4060-ti"),
        (("amd", "avx2", 8, ["Tesla V100-PCIE-16GB", "Tesla T4"]), "tesla-t4-and-tesla-v100-pcie-x2"),
    ],
)
def test_key(args, key):
    assert machine.key(*args) == key


@pytest.mark.parametrize(
    ("physical", "cpus", "quota", "tried"),
    [
        (1, 1, None, (1,)),
        (2, 2, None, (1, 2)),
        (6, 6, None, (1, 2, 4, 6)),
        (16, 16, None, (1, 2, 4, 8, 16)),
        (8, 16, None, (1, 2, 4, 8, 16)),
        (6, 12, None, (1, 2, 4, 6, 12)),
        (64, 64, 3.5, (1, 2, 3)),
        (8, 8, 0.5, (1,)),
    ],
)
def test_threads_to_try(monkeypatch, physical, cpus, quota, tried):
    monkeypatch.setattr(host, "cores", lambda *_: (physical, cpus // physical))
    monkeypatch.setattr(host, "affinity", lambda: frozenset(range(cpus)))
    monkeypatch.setattr(host, "quota_cpus", lambda: quota)
    assert machine.threads_to_try() == tried


@pytest.mark.parametrize(
    ("virtual", "room", "free"),
    [
        (True, None, 20 * GIB),
        (True, host.Room(16 * GIB, 9 * GIB), 9 * GIB),  # a container on a VM
        (True, host.Room(256 * GIB, 250 * GIB), 250 * GIB),  # a VM whose memory grows on use
        (False, host.Room(256 * GIB, 250 * GIB), 20 * GIB),  # a limit that promises more than there is
        (True, host.Room(GIB, 0), machine.HOST_MARGIN_BYTES),
    ],
)
def test_memory_available(monkeypatch, virtual, room, free):
    monkeypatch.setattr(machine, "_virtual", lambda: virtual)
    monkeypatch.setattr(host, "memory", lambda: (31 * GIB, 20 * GIB))
    monkeypatch.setattr(host, "memory_limit", lambda: room)
    assert machine.memory_available("cpu") == max(free, machine.HOST_MARGIN_BYTES) - machine.HOST_MARGIN_BYTES
    counts = room and (virtual or room.limit < 31 * GIB)
    assert machine.memory_bytes(31 * GIB, room) == (room.limit if counts else 31 * GIB)


def test_memory_is_asked_cheaply():
    machine.memory_available("cpu")
    fastest = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        assert machine.memory_available("cpu") > 0
        fastest = min(fastest, time.perf_counter() - begin)
    assert fastest < 1e-3


def test_this_machine_is_described_without_its_name():
    import platform

    import msgspec

    here = machine.describe()
    assert here.cores >= 1 and here.memory_bytes > 0
    assert here.key == here.key.lower()
    if len(platform.node()) > 3:
        assert platform.node() not in msgspec.json.encode(here).decode()
    assert machine.describe() == here


def test_software_imports_no_training_framework():
    found = machine.software()
    assert {"python", "numpy", "blas", "numba", "os"} <= set(found)
    assert all(isinstance(value, str) and value for value in found.values())
    assert found["numba_layer"] in machine.LAYERS
    assert "tensorflow" not in sys.modules and "keras" not in sys.modules


def test_the_first_threading_layer_that_loads(monkeypatch):
    def load(name):
        if name.endswith("omppool"):
            raise ImportError("libgomp.so.1")
        return types.ModuleType(name)

    for variable in ("NUMBA_THREADING_LAYER", "NUMBA_THREADING_LAYER_PRIORITY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(machine.importlib, "import_module", load)
    assert machine.numba_layer.__wrapped__() == "tbb"
    monkeypatch.setenv("NUMBA_THREADING_LAYER_PRIORITY", "omp workqueue tbb")
    assert machine.numba_layer.__wrapped__() == "workqueue"
    monkeypatch.setenv("NUMBA_THREADING_LAYER", "omp")
    assert machine.numba_layer.__wrapped__() == "omp"


def test_commit(monkeypatch):
    answers = {"rev-parse": f"{machine._PROJECT}\nabc123", "status": ""}
    monkeypatch.delenv("CROSSOVER_COMMIT", raising=False)
    monkeypatch.setattr(machine, "_git", lambda verb, *_: answers[verb])
    assert machine.commit() == "abc123"
    answers["status"] = " M README.md"
    assert machine.commit() == "abc123+changes"
    answers["rev-parse"] = "/somewhere/else\nabc123"
    assert machine.commit() == "unknown"
    answers["rev-parse"] = str(machine._PROJECT)
    assert machine.commit() == "unknown"

    def absent(*_):
        raise FileNotFoundError("git")

    monkeypatch.setattr(machine, "_git", absent)
    assert machine.commit() == "unknown"
    monkeypatch.setenv("CROSSOVER_COMMIT", "given")
    assert machine.commit() == "given"
