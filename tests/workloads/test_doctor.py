"""The doctor and the overview: each check seen to pass, to warn and to fail; the commands in process."""

import json
import os
import subprocess
import sys
import time
import types

import pytest
from check_results import complains
from fake_measurements import cpu_run, row, square
from fake_measurements import write as write_rows
from msgspec.structs import replace

import workloads.__main__ as overview
from analysis import noise
from kernels.registry import BACKENDS
from workloads import doctor, options, records
from workloads.harness import sweep, telemetry
from workloads.machine import facts, health, load
from workloads.machine.health import CheckResult
from workloads.records import Run


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


def test_a_busy_machine_and_this_one(monkeypatch):
    values = {"cpu_clock_hz": 3e9, "steal_fraction": 0.08, "other_load_fraction": 0.5, "throttled_s": 0.2}
    assert [f.level for f in doctor.cpu_results(values, ())] == ["ok"] * 4
    found = [*doctor.cpu_results(values, ("cpu-clock", "steal", "quota", "other-load"))]
    assert all(complains(finding, "warn") for finding in found)
    words = " ".join(finding.state for finding in found)
    assert all(part in words for part in ("3.00 GHz", "50%", "8%", "200 ms"))
    chrome = load.Load(share=0.9, stolen=0.0, program="chrome", program_share=0.64)
    *_, named = doctor.cpu_results(values, ("other-load",), chrome)
    assert complains(named, "warn", "`chrome` uses 64 % of the CPUs", "--wait-quiet")
    assert [f.level for f in doctor.cpu_results({"cpu_clock_hz": 3e9}, ())] == ["ok"] * 4, (
        "a kernel that does not count"
    )
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
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)  # another test may have imported it
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
