"""The health of this machine: each check seen to pass, to warn and to fail."""

import sys
import tomllib
import types
from pathlib import Path

import fake_gpu
import pytest
from check_results import complains
from fake_gpu import FakeNvml, fake_cupy, use_nvml, use_root, write

from workloads.machine import cpu, facts, health
from workloads.machine.gpu import NoGpu
from workloads.machine.health import CheckResult

ROOT = Path(__file__).parents[3]


def only(found) -> CheckResult:
    (one,) = found
    return one


def test_python_and_dependencies(monkeypatch, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(health.DEPENDENCIES.values()) == set(project["dependencies"])
    assert only(health.dependencies()).level == "ok"
    monkeypatch.setitem(sys.modules, "rich", None)
    missing, rest = health.dependencies()
    assert complains(missing, "problem", "rich", "pip install rich")
    assert "rich" not in rest.state
    assert only(health.packages()).level == "ok"
    foreign = types.ModuleType("kernels")
    foreign.__file__ = str(tmp_path / "kernels" / "__init__.py")
    monkeypatch.setitem(sys.modules, "kernels", foreign)
    assert complains(only(health.packages()), "problem", foreign.__file__) and only(health.python()).level == "ok"
    monkeypatch.setattr(health.sys, "version_info", (3, 10, 2))
    assert complains(only(health.python()), "problem")


@pytest.mark.parametrize(
    ("threads", "cores", "most", "level"),
    [(8, 8, 8, "ok"), (16, 8, 16, "ok"), (4, 8, 8, "warn"), (64, 8, 8, "warn"), (0, 8, 8, "ok")],
)
def test_blas(monkeypatch, threads, cores, most, level):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setattr(facts, "blas", lambda: {"blas": "openblas 0.3", "blas_threads": str(threads)})
    monkeypatch.setattr(facts, "usable_cores", lambda: cores)
    monkeypatch.setattr(facts, "usable_threads", lambda: most)
    finding = only(health.blas())
    assert finding.level == level
    if level == "warn":
        assert complains(finding, "warn", "unset OMP_NUM_THREADS" if threads < cores else "OPENBLAS_NUM_THREADS=8")
        monkeypatch.delenv("OMP_NUM_THREADS")
        few = threads < cores  # as many as it was built for
        assert complains(only(health.blas()), "warn", "pip install mkl" if few else "OPENBLAS_NUM_THREADS=8")


@pytest.mark.parametrize(
    ("kernels", "flags", "asked", "fix"),
    [
        ("Haswell", "avx2 avx512f", "", "export OPENBLAS_CORETYPE=SkylakeX"),
        ("Haswell", "avx2", "", ""),
        ("Zen", "avx2 avx512f", "Zen", "unset OPENBLAS_CORETYPE"),
        ("SkylakeX", "avx2 avx512f", "", ""),
        ("", "avx512f", "", ""),
    ],
)
def test_a_blas_that_leaves_avx512_alone(monkeypatch, kernels, flags, asked, fix):
    for name in facts.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    if asked:
        monkeypatch.setenv("OPENBLAS_CORETYPE", asked)
    found = {"blas": "openblas 0.3", "blas_kernels": kernels, "blas_threads": str(facts.usable_cores())}
    monkeypatch.setattr(facts, "blas", lambda: found)
    monkeypatch.setattr(cpu, "cpuinfo", lambda: [{"flags": flags}])
    finding = only(health.blas())
    assert (finding.level, finding.fix) == ("warn" if fix else "ok", fix)
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "262144")
    finding = only(health.blas())
    assert (finding.level, finding.fix) == ("warn", "unset OPENBLAS_L2_SIZE") and "OPENBLAS_L2_SIZE" in finding.state


CUPY = "python -m pip install 'cupy-cuda12x[ctk]'"


@pytest.mark.parametrize(
    ("lacking", "level", "fix"),
    [
        (NoGpu(kind="no-driver", words="no driver"), "ok", ""),
        (NoGpu(kind="no-device", words="no device"), "warn", "nvidia-smi"),
        (NoGpu(kind="not-installed", words="no CuPy", fix=CUPY), "warn", CUPY),
        (NoGpu(kind="broken", words="CuPy does not load"), "problem", "nvidia-smi"),
    ],
)
def test_no_gpu(monkeypatch, lacking, level, fix):
    monkeypatch.setattr(facts, "no_gpu", lambda: lacking)
    monkeypatch.setattr(facts, "gpu_problem", lambda: lacking.words)
    finding = only(health.gpu())
    assert (finding.level, finding.fix) == (level, fix) and lacking.words in finding.state
    assert [*health.cupy()] == []


def test_a_gpu_and_another_process_on_it(monkeypatch):
    fake_cupy(monkeypatch)
    use_nvml(monkeypatch, FakeNvml(nvmlSystemGetDriverVersion="580.1"))
    finding = only(health.gpu())
    assert (finding.check, finding.level) == ("gpu:0", "ok") and "NVIDIA H200, 140 GiB, driver 580.1" in finding.state
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetComputeRunningProcesses=[types.SimpleNamespace(pid=1)]))
    assert complains(only(health.gpu()), "warn", "others compute on it: 1")


@pytest.mark.parametrize(
    ("cudnn", "minor", "said"),
    [("9.28.0.42", 0, True), ("9.11.0.98", 2, True), ("9.10.2.21", 0, False), ("9.28.0.42", 5, False), ("", 0, False)],
)
def test_an_old_gpu_learns_its_last_cudnn(monkeypatch, cudnn, minor, said):
    fake_cupy(monkeypatch)
    use_nvml(monkeypatch, None)
    monkeypatch.setitem(fake_gpu.PROPERTIES, "major", 7)
    monkeypatch.setitem(fake_gpu.PROPERTIES, "minor", minor)
    monkeypatch.setattr(facts, "version", lambda package: cudnn if package == "nvidia-cudnn-cu12" else "")
    first, *others = health.gpu()
    assert first.level == "ok" and len(others) == said
    for finding in others:
        assert complains(finding, "problem", "pip install 'nvidia-cudnn-cu12<9.11'") and cudnn in finding.state


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        ((0, "True\n", ""), "ok", ""),
        ((0, "False\n", ""), "problem", "wrong answer"),
        ((1, "", "Traceback\nRuntimeError: NVRTC is missing\n"), "problem", "NVRTC is missing"),
        ((-11, "", ""), "problem", "signal 11"),
        ((None, "", ""), "problem", "no answer within"),
    ],
)
def test_cupy(monkeypatch, answer, level, words):
    monkeypatch.setattr(facts, "gpu_problem", lambda: "")
    monkeypatch.setattr(health, "run_python", lambda *_: health.ChildResult(*answer))
    finding = only(health.cupy())
    assert (finding.level, words in finding.state) == (level, True)


LOG = "I0000 dso_loader.cc:144] Could not load dynamic library 'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open\n"


@pytest.mark.parametrize(
    ("version", "problem", "answer", "level", "words"),
    [
        ("2.21.0", "no NVIDIA driver", (0, "0\n", LOG), "ok", "no GPU"),
        ("2.21.0", "", (0, "1\n", ""), "ok", "sees 1 GPU"),
        ("2.21.0", "", (0, "0\n", LOG + LOG), "warn", "missing: libcudnn.so.9"),
        ("2.21.0", "", (0, "0\n", ""), "warn", "does not say"),
        ("2.21.0", "", (1, "", "ImportError: no protobuf"), "problem", "no protobuf"),
        ("2.21.0", "", (None, "", ""), "problem", "no answer within"),
        ("", "", (None, "", ""), "warn", "not installed"),
    ],
)
def test_tensorflow(monkeypatch, version, problem, answer, level, words):
    monkeypatch.setattr(facts, "version", lambda name: version)
    monkeypatch.setattr(facts, "gpu_problem", lambda: problem)
    monkeypatch.setattr(health, "run_python", lambda *_: health.ChildResult(*answer))
    finding = only(health.tensorflow())
    assert (finding.level, words in finding.state) == (level, True), finding
    assert "tensorflow" not in sys.modules


def test_a_child_answers_fails_or_times_out(monkeypatch):
    code = "import os, sys; print(os.environ['SET']); print('said', file=sys.stderr); sys.exit(3)"
    assert health.run_python(code, {"SET": "yes"}) == (3, "yes\n", "said\n")
    monkeypatch.setattr(health, "CHILD_LIMIT_S", 0.3)
    assert health.run_python("import time; time.sleep(60)").exit_code is None


def test_disk_and_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(health, "REPORTS", tmp_path)
    usage = types.SimpleNamespace(free=1 << 40)
    monkeypatch.setattr(health.shutil, "disk_usage", lambda folder: usage)
    assert only(health.disk()).level == "ok"
    usage.free = 1 << 20
    assert complains(only(health.disk()), "warn", "df -h")
    monkeypatch.setattr(health.os, "access", lambda *_: False)
    assert complains(only(health.disk()), "problem", "may not be written")
    monkeypatch.setattr(facts, "memory_available", lambda device: 8 << 30)
    assert only(health.memory()).level == "ok"
    monkeypatch.setattr(facts, "memory_available", lambda device: 1 << 30)
    assert complains(only(health.memory()), "warn", "1.0 GiB")


@pytest.mark.parametrize(
    ("governor", "driver", "level"),
    [
        ("performance", "acpi-cpufreq", "ok"),
        ("powersave", "intel_pstate", "ok"),
        ("powersave", "acpi-cpufreq", "warn"),
        ("ondemand", "acpi-cpufreq", "warn"),
        ("schedutil", "cppc_cpufreq", "ok"),
    ],
)
def test_governor(tmp_path, monkeypatch, governor, driver, level):
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    root = write(tmp_path, {f"{folder}/scaling_governor": governor, f"{folder}/scaling_driver": driver})
    use_root(monkeypatch, root)
    finding = only(health.governor())
    assert (finding.level, governor in finding.state) == (level, True)
    use_root(monkeypatch, tmp_path / "none")
    assert only(health.governor()).level == "ok"
