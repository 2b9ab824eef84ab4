"""This machine: its key, its threads, its memory, its software and its commit."""

import platform
import subprocess
import sys
import types

import msgspec
import pytest
from fake_gpu import GIB

from workloads import records
from workloads.machine import cpu, facts


def test_without_cpuinfo_numpy_tells_the_features(tmp_path):
    assert cpu.features(cpu.cpuinfo(tmp_path)) == set()
    names = facts._numpy_features()
    assert names and names == {name.lower() for name in names}
    assert cpu.simd({"sse42", "avx2"}) == "avx2" and cpu.simd({"neon", "asimd"}) == "neon"
    assert cpu.simd(set()) == "scalar"


@pytest.mark.parametrize(
    ("args", "key"),
    [
        (("intel", "avx512", 2, []), "intel-avx512-2c"),
        (("intel", "avx512+amx", 16, []), "intel-avx512-amx-16c"),
        (("intel", "avx512", 16, ["NVIDIA H200"]), "nvidia-h200"),
        (("intel", "avx512", 64, ["NVIDIA H200"] * 4), "nvidia-h200-x4"),
        (("amd", "avx2", 8, ["NVIDIA A100-SXM4-80GB"]), "nvidia-a100-sxm4"),
        (("amd", "avx2", 8, ["NVIDIA H100 80GB HBM3"]), "nvidia-h100"),
        (("amd", "avx2", 8, ["NVIDIA GeForce RTX 4060 Ti"]), "nvidia-geforce-rtx-4060-ti"),
        (("amd", "avx2", 8, ["Tesla V100-PCIE-16GB", "Tesla T4"]), "tesla-t4-and-tesla-v100-pcie-x2"),
    ],
)
def test_key(args, key):
    assert facts.key(*args) == key


@pytest.mark.parametrize(
    ("physical", "cpus", "quota", "tried"),
    [
        (1, 1, None, (1,)),
        (6, 6, None, (1, 2, 4, 6)),
        (8, 16, None, (1, 2, 4, 8, 16)),
        (6, 12, None, (1, 2, 4, 6, 12)),
        (64, 64, 3.5, (1, 2, 3)),
        (8, 8, 0.5, (1,)),
    ],
)
def test_threads_to_try(monkeypatch, physical, cpus, quota, tried):
    monkeypatch.setattr(cpu, "cores", lambda *_: (physical, cpus // physical))
    monkeypatch.setattr(cpu, "affinity", lambda: frozenset(range(cpus)))
    monkeypatch.setattr(cpu, "quota_cpus", lambda: quota)
    assert facts.threads_to_try() == tried


@pytest.mark.parametrize(
    ("virtual", "room", "free"),
    [
        (True, None, 20 * GIB),
        (True, cpu.Room(16 * GIB, 9 * GIB), 9 * GIB),  # a container on a VM
        (True, cpu.Room(256 * GIB, 250 * GIB), 250 * GIB),  # a VM whose memory grows on use
        (False, cpu.Room(256 * GIB, 250 * GIB), 20 * GIB),  # a limit that promises more than there is
        (True, cpu.Room(GIB, 0), facts.HOST_MARGIN_BYTES),
    ],
)
def test_memory_available(monkeypatch, virtual, room, free):
    monkeypatch.setattr(facts, "_virtual", lambda: virtual)
    monkeypatch.setattr(cpu, "memory", lambda: (31 * GIB, 20 * GIB))
    monkeypatch.setattr(cpu, "memory_limit", lambda: room)
    assert facts.memory_available("cpu") == max(free, facts.HOST_MARGIN_BYTES) - facts.HOST_MARGIN_BYTES
    counts = room and (virtual or room.limit < 31 * GIB)
    assert facts.memory_bytes(31 * GIB, room) == (room.limit if counts else 31 * GIB)


def test_this_machine_and_its_software_are_described_without_names_and_frameworks():
    here = facts.describe()
    assert here.cores >= 1 and here.memory_bytes > 0 and here.key == here.key.lower()
    if len(platform.node()) > 3:
        assert platform.node() not in msgspec.json.encode(here).decode()
    assert facts.describe() == here
    found = facts.software()
    assert {"python", "numpy", "blas", "numba", "os"} <= set(found)
    assert all(isinstance(value, str) and value for value in found.values()) and found["numba_layer"] in facts.LAYERS
    assert "tensorflow" not in sys.modules and "keras" not in sys.modules
    assert facts.memory_available("cpu") > 0


def test_the_first_threading_layer_that_loads(monkeypatch):
    def load(name):
        if name.endswith("omppool"):
            raise ImportError("libgomp.so.1")
        return types.ModuleType(name)

    for variable in ("NUMBA_THREADING_LAYER", "NUMBA_THREADING_LAYER_PRIORITY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(facts.importlib, "import_module", load)
    assert facts.numba_layer.__wrapped__() == "tbb"
    monkeypatch.setenv("NUMBA_THREADING_LAYER_PRIORITY", "omp workqueue tbb")
    assert facts.numba_layer.__wrapped__() == "workqueue"
    monkeypatch.setenv("NUMBA_THREADING_LAYER", "omp")
    assert facts.numba_layer.__wrapped__() == "omp"


def test_commit(monkeypatch):
    answers = {"rev-parse": f"{facts.ROOT}\nabc123", "status": ""}
    monkeypatch.delenv("CROSSOVER_COMMIT", raising=False)
    monkeypatch.setattr(facts, "_git", lambda verb, *_: answers[verb])
    assert facts.commit() == "abc123"
    answers["status"] = " M README.md"
    assert facts.commit() == "abc123+changes"
    for answers["rev-parse"] in ("/somewhere/else\nabc123", str(facts.ROOT)):
        assert facts.commit() == "unknown"

    def absent(*_):
        raise FileNotFoundError("git")

    monkeypatch.setattr(facts, "_git", absent)
    assert facts.commit() == "unknown"
    monkeypatch.setenv("CROSSOVER_COMMIT", "given")
    assert facts.commit() == "given" == facts.marked("given", "no hash")


def test_a_copy_that_differs_from_its_commit_is_dirty(monkeypatch, tmp_path):
    """A repository of two commits; a copy of the second is measured as if it were one of the first."""

    def git(*words):
        how = ["-c", "user.name=a", "-c", "user.email=b", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", "-C", tmp_path, *how, *words], capture_output=True, text=True, check=True).stdout

    git("init")
    for text in ("one", "two"):
        for top in records.SOURCES:
            (tmp_path / top).mkdir(exist_ok=True)
            (tmp_path / top / "a.py").write_text(text)
        git("add", ".")
        git("commit", "-m", text)
    monkeypatch.setattr(facts, "ROOT", tmp_path)
    one, two = (git("rev-parse", ref).strip() for ref in ("HEAD~", "HEAD"))
    here = records.source_hash(tmp_path)
    monkeypatch.setattr(facts, "source_hash", lambda folder=tmp_path: records.source_hash(folder))
    same = (two, f"{one}+changes", "--output=x")
    for given, told in ((one, f"{one}+dirty"), *zip(same, same, strict=True)):
        monkeypatch.setenv("CROSSOVER_COMMIT", given)
        assert facts.commit() == facts.marked(given, here) == told
