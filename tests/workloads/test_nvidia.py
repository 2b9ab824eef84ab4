"""The GPUs here or why there are none, on fakes of CuPy and NVML."""

import sys
import types

import pytest
from fake_gpu import GIB, FakeNvml, fake_cupy, use_nvml

from workloads.machine import facts
from workloads.machine import gpu as nvidia


def test_no_driver_comes_first_then_why_cupy_is_not_there(monkeypatch):
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
    fake_cupy(monkeypatch)
    refuse = FakeNvml.NVMLError("not supported")
    for library in (None, FakeNvml(), FakeNvml(nvmlDeviceGetPowerManagementLimit=refuse, nvmlDeviceGetUUID=refuse)):
        use_nvml(monkeypatch, library)
        (gpu,) = nvidia.gpus()
        assert gpu.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
        assert (gpu.power_limit_w, gpu.pcie_generation) == (None, None)
        assert nvidia.driver() == "CUDA 13.0"
    assert nvidia._uuid(b"\x01cut") == ""


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
