"""What a GPU is and what it lacks, by its facts and by NVML."""

import functools

import msgspec
import pytest
from fake_gpu import FakeNvml, use_nvml
from fake_measurements import GPU_MACHINE, H200

from kernels.problems.arrays import ARITHMETIC
from workloads.machine import gpu as nvidia


@pytest.mark.parametrize(
    ("capability", "has"),
    [("7.0", 0), ("7.5", 0), ("8.0", 2), ("8.6", 2), ("8.9", 3), ("9.0", 3), ("12.0", 3), ("", 3)],
)
def test_missing_arithmetic_by_facts_and_by_nvml(monkeypatch, capability, has):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    here = msgspec.structs.replace(GPU_MACHINE, gpus=(msgspec.structs.replace(H200, compute_capability=capability),))
    told = {"nvmlDeviceGetCudaComputeCapability": [int(part) for part in capability.split(".") if part]}
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetHandleByIndex=lambda index: index, **told))
    lacking = ["tf32", "bfloat16", "float8_e4m3"][has:]
    for lacks in (here.lacks, functools.partial(nvidia.lacks, "gpu:0")):
        assert [math for math in ARITHMETIC if lacks(math)] == lacking
    use_nvml(monkeypatch, None)
    assert nvidia.lacks("gpu:0", "tf32") == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("first\n=== \nlast  \n  "), "last"),
        (RuntimeError(""), "RuntimeError"),
        (OSError("\n===\n"), "OSError"),
    ],
)
def test_an_error_is_its_last_line(error, words):
    assert nvidia._last_line(error) == words


@pytest.mark.parametrize(("number", "version"), [(12080, "12.8"), (13000, "13.0"), (11040, "11.4")])
def test_a_cuda_number_has_its_minor_version(number, version):
    assert nvidia._dotted(number) == version
