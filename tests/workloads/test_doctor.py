"""The doctor and the overview: each check seen to pass, to warn and to fail; the commands in process."""

import json
import os
import subprocess
import sys
import time
import tomllib
import types
from pathlib import Path

import fake_gpu
import pytest
from fake_gpu import FakeNvml, fake_cupy, use_nvml, use_root, write
from fake_measurements import cpu_run, row, square
from fake_measurements import write as write_rows
from msgspec.structs import replace

import workloads.__main__ as overview
from analysis import noise
from kernels.registry import BACKENDS
from workloads import doctor, options, records
from workloads.harness import sweep, telemetry
from workloads.machine import cpu, facts, health, load
from workloads.machine.gpu import NoGpu
from workloads.machine.health import CheckResult
from workloads.records import Run

ROOT = Path(__file__).parent.parent.parent


def only(found) -> CheckResult:
    (one,) = found
    return one


def complains(finding: CheckResult, level: str, *words: str) -> bool:
    """The level is as expected, the words are in what was seen or in the fix, and it says why and what to type."""
    text = f"{finding.state} {finding.fix}"
    return finding.level == level and all(word in text for word in words) and bool(finding.why and finding.fix)


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


@pytest.mark.parametrize(
    ("layer", "threads", "level"),
    [("omp", 4, "ok"), ("tbb", 4, "ok"), ("workqueue", 4, "warn"), ("", 4, "problem"), ("omp", 2, "warn")],
)
def test_numba(monkeypatch, layer, threads, level):
    monkeypatch.setattr(facts, "numba_layer", lambda: layer)
    monkeypatch.setattr(facts, "numba_threads", lambda: threads)
    monkeypatch.setattr(facts, "usable_cores", lambda: 4)
    finding = next(doctor.numba())
    assert finding.level == level
    assert level == "ok" or complains(finding, level)


def test_compiled_code_that_cannot_be_kept(monkeypatch):
    kept = types.SimpleNamespace(stats=types.SimpleNamespace(cache_path="somewhere"))
    monkeypatch.setattr(telemetry, "compiled_chain", lambda: kept)
    assert [*doctor.numba()][1].level == "ok"
    kept.stats.cache_path = None
    assert complains([*doctor.numba()][1], "warn", "NUMBA_CACHE_DIR")


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
    monkeypatch.setattr(health, "child", lambda *_: answer)
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
        ("", "", None, "warn", "not installed"),
    ],
)
def test_tensorflow(monkeypatch, version, problem, answer, level, words):
    monkeypatch.setattr(facts, "version", lambda name: version)
    monkeypatch.setattr(facts, "gpu_problem", lambda: problem)
    monkeypatch.setattr(health, "child", lambda *_: answer)
    finding = only(health.tensorflow())
    assert (finding.level, words in finding.state) == (level, True), finding
    assert "tensorflow" not in sys.modules


def test_a_child_answers_fails_or_times_out(monkeypatch):
    code = "import os, sys; print(os.environ['SET']); print('said', file=sys.stderr); sys.exit(3)"
    assert health.child(code, {"SET": "yes"}) == (3, "yes\n", "said\n")
    monkeypatch.setattr(health, "CHILD_LIMIT_S", 0.3)
    assert health.child("import time; time.sleep(60)")[0] is None


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


def test_a_busy_machine_and_this_one(monkeypatch):
    values = {"cpu_clock_hz": 3e9, "steal_fraction": 0.08, "other_load_fraction": 0.5, "throttled_s": 0.2}
    assert [f.level for f in doctor.judged(values, ())] == ["ok"] * 4
    found = [*doctor.judged(values, ("cpu-clock", "steal", "quota", "other-load"))]
    assert all(complains(finding, "warn") for finding in found)
    words = " ".join(finding.state for finding in found)
    assert all(part in words for part in ("3.00 GHz", "50%", "8%", "200 ms"))
    chrome = load.Load(share=0.9, stolen=0.0, program="chrome", program_share=0.64)
    *_, named = doctor.judged(values, ("other-load",), chrome)
    assert complains(named, "warn", "`chrome` uses 64 % of the CPUs", "--wait-quiet")
    assert [f.level for f in doctor.judged({"cpu_clock_hz": 3e9}, ())] == ["ok"] * 4, "a kernel that does not count"
    monkeypatch.setattr(doctor, "_WATCH_S", 0.08)
    assert [finding.check for finding in doctor.quiet()] == ["clock", "steal", "quota", "load"]


def good() -> list[CheckResult]:
    return [CheckResult("good", "ok", "seen")]


def doubtful() -> list[CheckResult]:
    return [CheckResult("doubtful", "warn", "seen", "because", "type this")]


def busy() -> list[CheckResult]:
    return [CheckResult("load", "warn", "`chrome` uses 101 % of the CPUs", "because", "wait")]


def raising() -> list[CheckResult]:
    raise OSError("nobody knows")


@pytest.mark.parametrize(
    ("checks", "code", "words"),
    [
        ((good,), options.OK, ["This machine is fit to be measured."]),
        (
            (good, doubtful),
            options.OK,
            ["1 thing disturbs measurements.", "  doubtful       because", "mend it: type this"],
        ),
        ((good, busy), options.OK, ["Not now: `chrome` uses 101 % of the CPUs.", "mend it: wait"]),
        ((raising, busy), options.FAILED, ["not fit to be measured: 1 thing is broken and 1 thing disturbs"]),
        ((raising, good), options.FAILED, ["not fit to be measured: 1 thing is broken.", "OSError: nobody knows"]),
    ],
)
def test_the_command(monkeypatch, capsys, checks, code, words):
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert doctor.main([]) == code
    printed = capsys.readouterr().out
    assert all(word in printed for word in words)
    assert doctor.main(["--format", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert [one["level"] for one in found] == [f.level for f in doctor.run()]
    assert set(found[0]) == {"check", "level", "seen", "why", "fix"}


def test_failed_and_wrong_rows_are_unsound(tmp_path, capsys):
    rows = [
        row("matmul/numpy/blas", square(64), 1e-3, threads=1),
        row("matmul/numpy/blas", square(128), None, threads=1, status="failed", reason="it broke"),
        row("matmul/numpy/blas", square(256), None, threads=1, status="failed", reason="later"),
        row("matmul/numpy/blas", square(512), None, threads=1, status="wrong", reason="off by 3"),
    ]
    write_rows(tmp_path / "matmul.jsonl", cpu_run(sizes=(64,)).runs[0], rows)
    assert doctor.main([str(tmp_path), "--format", "json"]) == options.FAILED
    findings = [CheckResult(state=one.pop("seen"), **one) for one in json.loads(capsys.readouterr().out)]
    failed, wrong = (one for one in findings if one.check in ("failed", "wrong"))
    assert complains(failed, "problem", "2 of 4 rows", "n=128", "it broke", "python -m workloads.matmul")
    assert complains(wrong, "problem", "n=512", "off by 3")
    assert doctor.main([str(tmp_path)]) == options.FAILED
    assert "These rows are not sound" in capsys.readouterr().out


def test_unreadable_lines_name_their_files_command(tmp_path, capsys):
    first = replace(cpu_run(sizes=(64,)).runs[0], command="python -m workloads.stream --sizes 64KiB -o old --resume")
    foreign = replace(first, command="make stress")
    rows = [row("matmul/numpy/blas", square(64), 1e-3, threads=1)]
    for name, run in (("a", first), ("b", foreign)):
        write_rows(tmp_path / name / "stream.jsonl", run, rows)
        with open(tmp_path / name / "stream.jsonl", "ab") as file:
            file.write(b"\n\n{\n")
    assert doctor.main([str(tmp_path), "--format", "json"]) == options.OK
    findings = [CheckResult(state=one.pop("seen"), **one) for one in json.loads(capsys.readouterr().out)]
    of_a, of_b = (one for one in findings if one.check == "bad lines")
    assert of_a.fix == f"python -m workloads.stream --sizes 64KiB -o {tmp_path}/a --resume"
    assert of_a.state == f"1 line of {tmp_path}/a/stream.jsonl cannot be read"
    assert of_b.fix == "python -m workloads.matmul -o DIR"


def test_every_quick_check_on_this_machine(monkeypatch):
    monkeypatch.setattr(doctor, "_WATCH_S", 0.08)
    quick = tuple(check for check in doctor.CHECKS if check not in (health.tensorflow, health.cupy, doctor.timings))
    found = list(doctor.run(quick))
    assert not [finding for finding in found if "the check itself failed" in finding.state]
    assert {"python", "packages", "blas", "numba", "disk", "memory", "clock"} <= {finding.check for finding in found}
    assert all(finding.why and finding.fix for finding in found if finding.level != "ok")


@pytest.fixture
def swept(tmp_path, monkeypatch):
    """What ten sweeps in no time leave: a row of 1 ms that is 1 % off in every other one. Gives the sweeps that were begun."""
    begun: list[list[str]] = []

    def child(command, **how):
        folder = how["cwd"] / command[command.index("-o") + 1]
        begun.append(command)
        run = Run(records.SCHEMA, facts.describe(), {}, "", 1, "", "", f"2026-01-01T00:{len(begun):02}:00Z")
        with records.Writer(folder / "matmul.jsonl", run) as writer:
            for n in (64, 128):
                writer.append(row("matmul/numpy/blas", square(n), 2e-3 * 1.01 ** (len(begun) % 2), threads=1))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(doctor, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(sweep, "LOCAL", tmp_path / "reports" / "local")
    monkeypatch.setattr(noise, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(subprocess, "run", child)
    return begun


def test_ten_sweeps_become_one_noise_per_clock(swept, capsys):
    assert doctor.main(["--noise", "--over", "0.01"]) == options.OK
    assert len(swept) == 10 and all("--sizes" in command for command in swept)
    assert not [word for command in swept for word in command[1:] if os.path.isabs(word)], "it is stored with the rows"
    out, err = capsys.readouterr()
    assert "CPU" in out and "1.00 %" in out and "stored: " in err
    here = facts.describe()
    kept = noise.stored(noise.REPORTS)[here.key]
    assert (kept.span_s, len(kept.sweeps)) == (540.0, 10) and len({*kept.sweeps}) == 10
    between = noise.between_runs(here, noise.CPU, 2e-3)
    assert (between.share, between.source, between.runs) == (pytest.approx(0.01, rel=1e-3), noise.THIS_MACHINE, 10)


def test_what_sweeps_differ_by_is_printed_as_json(swept, capsys):
    """Two rows in 15 pairs of sweeps that lie far enough apart."""
    assert doctor.main(["--noise", "--over", "0.01", "--format", "json"]) == options.OK
    (share,) = json.loads(capsys.readouterr().out)
    assert (share["side"], share["pairs"]) == (noise.CPU, 30) and share["share"] == pytest.approx(0.01, rel=1e-3)


def test_stopped_sweeps_go_on(swept, capsys):
    begin = time.monotonic()
    assert doctor.main(["--noise", "--over", "900", "--stop-after", "1"]) == options.OK
    assert len(swept) == 1 and time.monotonic() - begin < 30
    assert "--noise --resume" in capsys.readouterr().err
    (folder,) = (sweep.LOCAL / facts.describe().key).glob("noise-*")
    (folder / "02.part").mkdir()
    assert doctor.main(["--noise", "--resume", "--over", "0.01"]) == options.OK
    assert len(swept) == 10 and sorted(p.name for p in folder.iterdir()) == [f"{i:02}" for i in range(1, 11)]
    assert noise.stored(noise.REPORTS)


def test_ten_sweeps_begin_at_even_distances(swept, monkeypatch):
    """Nine distances of 100 s lie between the ten of --over 900; a sweep takes no time here."""
    now = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds))
    began: list[float] = []
    begin_sweep = doctor._sweep

    def sweep_at(*given):
        began.append(now[0])
        begin_sweep(*given)

    monkeypatch.setattr(doctor, "time", clock)
    monkeypatch.setattr(doctor, "_sweep", sweep_at)
    assert doctor.main(["--noise", "--over", "900"]) == options.OK
    assert began == pytest.approx([100.0 * number for number in range(10)])


def test_a_failing_sweep_names_its_command(monkeypatch, swept, capsys):
    monkeypatch.setattr(subprocess, "run", lambda command, **how: subprocess.CompletedProcess(command, 3))
    assert doctor.main(["--noise"]) == options.USAGE
    assert "exit code 3" in (err := capsys.readouterr().err) and "-m workloads.matmul" in err


def test_the_overview_and_why_a_backend_is_absent(capsys, monkeypatch):
    assert overview.main([]) == options.OK
    page = capsys.readouterr().out
    for words in ("numpy", "numba", "cupy", "keras", "workloads.matmul", "-m workloads.doctor", "To begin"):
        assert words in page
    assert "workloads.harness.worker" not in page
    assert "tensorflow" not in sys.modules
    monkeypatch.setattr(facts, "software", lambda: {"numpy": "2.4", "keras": "3.15"})
    monkeypatch.setattr(facts, "gpu_problem", lambda: "a driver but no device")
    states = {name: overview._state(name, facts.software()) for name in BACKENDS}
    assert states["numpy"][0] == "ready" and states["cupy"] == ("absent", "a driver but no device")
    assert "numba is not installed" in states["numba"][1] and "without TensorFlow" in states["keras"][1]
    ready = {"cupy": "14.2.0", "cuda_runtime": "13.0", "cublas": "13.1"}
    ready |= {"driver": "580.1", "tensorflow": "2.21", "keras": "3.15"}
    monkeypatch.setattr(facts, "software", lambda: ready)
    monkeypatch.setattr(facts, "gpu_problem", lambda: "")
    states = {name: overview._state(name, facts.software()) for name in BACKENDS}
    assert states["cupy"] == ("ready", "CuPy 14.2.0, CUDA 13.0, cuBLAS 13.1, driver 580.1")
    assert states["cuda"] == ("ready", "our own kernels, compiled by NVRTC through CuPy 14.2.0")
    assert states["keras"] == ("ready", "Keras 3.15 on TensorFlow 2.21") and states["numpy"][0] == "absent"
