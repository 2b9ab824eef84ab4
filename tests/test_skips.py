"""The suite's own rules: in CI a test skips for want of hardware only; the last line says what was not run."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.conftest import allowed_skip, not_run, refuse_skip
from workloads import ROOT


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [
        *((reason, True) for reason in ("no GPU", "no AVX-512 on this CPU", "no AMX")),
        *((reason, False) for reason in ("no GPUs today", "TensorFlow is not installed", "")),
    ],
)
def test_ci_allows_two_kinds_of_skips(reason, allowed, monkeypatch):
    assert allowed_skip(reason) is allowed
    report = SimpleNamespace(skipped=True, outcome="skipped", longrepr=("file", 1, f"Skipped: {reason}"))
    monkeypatch.delenv("CI", raising=False)
    refuse_skip(report)
    assert report.outcome == "skipped"
    monkeypatch.setenv("CI", "1")
    refuse_skip(report)
    assert report.outcome == ("skipped" if allowed else "failed")


def test_skipped_tests_are_counted_by_reason():
    skipped = ["no GPU", "no Chromium", "no Chromium"]
    assert not_run(skipped, 120) == "2 tests (no Chromium), 1 test (no GPU), 120 slow tests (make test-all)"
    assert not_run([], 0) == ""


A_FEW = """
import pytest

def test_a(): pass

def test_b(): pytest.skip("no Chromium")

@pytest.mark.slow
def test_c(): pass

def test_d(): assert False
"""


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "chosen"), [("2", "not test_d"), ("0", "test_c or test_d")])
def test_a_passing_runs_last_line_names_skipped_tests(processes, chosen, tmp_path):
    (tmp_path / "test_few.py").write_text(A_FEW)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow")
    ours = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(ours)}
    variables.pop("CI", None)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-n", processes]
    command += ["-m", "not slow", "-k", chosen]
    run = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    last = run.stdout.splitlines()[-1]
    if chosen == "not test_d":
        assert last == "passed; not run here: 1 test (no Chromium), 1 slow test (make test-all)"
    else:
        assert "1 failed" in last
