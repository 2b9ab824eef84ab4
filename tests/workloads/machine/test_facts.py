"""This machine: its key, its threads, its memory, its software and its commit; its GPUs or why there are none, on fakes of
CuPy and NVML."""

import platform
import subprocess
import sys
import types

import msgspec
import pytest
from fake_gpu import GIB, FakeNvml, fake_cupy, use_nvml, use_root

from kernels.problems import AllReduce, Matmul
from workloads import records
from workloads.harness import copy_modes
from workloads.machine import cpu, facts
from workloads.machine import gpu as nvidia
from workloads.records import Settings


def test_without_cpuinfo_numpy_tells_the_features(tmp_path, monkeypatch):
    use_root(monkeypatch, tmp_path)
    assert cpu.features(cpu.cpuinfo()) == set()
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
    monkeypatch.setattr(cpu, "cores", lambda *_: cpu.Cores(physical, cpus // physical))
    monkeypatch.setattr(cpu, "affinity", lambda: frozenset(range(cpus)))
    monkeypatch.setattr(cpu, "quota_cpus", lambda: quota)
    assert facts.threads_to_try() == tried
    assert facts.threads_to_try(fast=True) == tuple(n for n in tried if n in (1, tried[-1], physical))


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
    monkeypatch.setattr(cpu, "memory", lambda: cpu.HostMemory(31 * GIB, 20 * GIB))
    monkeypatch.setattr(cpu, "memory_limit", lambda: room)
    assert facts.memory_available("cpu") == max(free, facts.HOST_MARGIN_BYTES) - facts.HOST_MARGIN_BYTES
    counts = room and (virtual or room.limit < 31 * GIB)
    assert facts.memory_bytes(31 * GIB, room) == (room.limit if counts else 31 * GIB)


def test_a_machine_is_described_without_names():
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


def test_a_changed_copy_is_dirty(monkeypatch, tmp_path):
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


def test_a_missing_driver_comes_before_missing_cupy(monkeypatch):
    monkeypatch.setattr(nvidia, "driver_cuda", lambda: None)
    assert facts.gpu_problem() == "no NVIDIA driver"
    assert nvidia.gpus() == () and nvidia.software() == {}
    monkeypatch.setattr(nvidia, "driver_cuda", lambda: 12080)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'cupy-cuda12x[ctk]'" in facts.gpu_problem()
    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: object())
    assert facts.gpu_problem().startswith("CuPy does not load: ")


@pytest.mark.parametrize(
    ("error", "hidden", "said"),
    [
        ("cudaErrorInsufficientDriver: too old", None, "insufficient driver: it knows CUDA 13.0"),
        ("cudaErrorNoDevice: no CUDA-capable device is detected", None, "a driver but no device"),
        ("cudaErrorNoDevice: no CUDA-capable device is detected", "", "CUDA_VISIBLE_DEVICES='' hides them"),
        ("cudaErrorSystemNotReady: not yet initialized", None, "the CUDA runtime does not start: cudaErrorSystem"),
    ],
)
def test_why_there_is_no_gpu(monkeypatch, error, hidden, said):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    fake_cupy(monkeypatch, error=error)
    assert said in facts.gpu_problem()
    assert nvidia.gpus() == ()


def test_gpus_with_nvml_and_without(monkeypatch):
    fake_cupy(monkeypatch, devices=2)
    link = {"nvmlDeviceGetMaxPcieLinkGeneration": 5, "nvmlDeviceGetCurrPcieLinkWidth": 16}
    board = {"nvmlDeviceGetPowerManagementLimit": 700000, "nvmlSystemGetDriverVersion": "580.159.04"}
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}", **link, **board))
    first, second = nvidia.gpus()
    assert (first.uuid, second.uuid) == ("GPU-handle of 0000:00:00.0", "GPU-handle of 0000:01:00.0")
    assert (first.name, first.compute_capability, first.multiprocessors) == ("NVIDIA H200", "9.0", 132)
    assert (first.max_clock_hz, first.memory_clock_hz, first.power_limit_w) == (1.98e9, 3.201e9, 700.0)
    assert (first.pcie_generation, first.pcie_width) == (5, 16)
    here = facts.describe()
    assert (here.key, here.driver, len(here.gpus)) == ("nvidia-h200-x2", "580.159.04", 2)
    assert (here.gpu("gpu:0"), here.gpu("gpu:1"), here.gpu("gpu:2")) == (*here.gpus, None)
    fake_cupy(monkeypatch)
    refuse = FakeNvml.NVMLError("not supported")
    for library in (None, FakeNvml(), FakeNvml(nvmlDeviceGetPowerManagementLimit=refuse, nvmlDeviceGetUUID=refuse)):
        use_nvml(monkeypatch, library)
        (gpu,) = nvidia.gpus()
        assert gpu.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
        assert (gpu.power_limit_w, gpu.pcie_generation) == (None, None)
        assert nvidia.driver() == "CUDA 13.0"
    assert nvidia._uuid(b"\x01cut") == ""


def test_only_products_of_missing_arithmetic_are_skipped(monkeypatch):
    monkeypatch.setattr(nvidia, "lacks", lambda device, math: f"{device} lacks it" * (math == "bfloat16"))
    monkeypatch.setattr(copy_modes, "_prepare", lambda kernel, *_: kernel)
    low = Matmul(8, 8, 8, "bfloat16")
    with pytest.raises(ValueError, match="gpu:1 lacks it"):
        copy_modes.prepare("bound", low, Settings("gpu:1"), ())
    for problem, device in ((Matmul(8, 8, 8), "gpu:0"), (low, "cpu"), (AllReduce(8, "0,1"), "gpu:0")):
        assert copy_modes.prepare("bound", problem, Settings(device), ()) == "bound"


def test_gpu_memory_and_software_by_cupy_and_nvml(monkeypatch):
    fake_cupy(monkeypatch, pooled=3 * GIB)
    use_nvml(monkeypatch, None)
    assert facts.memory_available("gpu:0") == 13 * GIB - nvidia.MARGIN_BYTES
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(free=20 * GIB)))
    assert facts.memory_available("gpu:0") == 23 * GIB - nvidia.MARGIN_BYTES
    assert facts.memory_available("gpu:1") == 20 * GIB - nvidia.MARGIN_BYTES, "the pool is another GPU's"
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(free=1)))
    fake_cupy(monkeypatch)
    assert facts.memory_available("gpu") == 0
    made = fake_cupy(monkeypatch)
    use_nvml(monkeypatch, FakeNvml(nvmlSystemGetDriverVersion="580.159.04"))
    found = nvidia.software()
    assert (found["cupy"], found["cuda_runtime"], found["cuda_driver"]) == ("14.2.0", "13.0", "13.0")
    assert found["driver"] == "580.159.04"
    made.cuda.get_local_runtime_version = lambda: 1 / 0
    assert nvidia.software() == {"cupy": "does not load: division by zero"}
