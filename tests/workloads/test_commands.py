"""Every command answers --help quickly because it imports nothing heavy, and refuses nonsense in one line."""

import os
import subprocess
import sys

import pytest

from tests.bench import start as bench_start
from workloads import ROOT

COMMANDS = [c for c in bench_start.commands() if c != "workloads.harness.worker"]


def test_all_commands_are_found():
    assert {"workloads", "workloads.matmul", "workloads.doctor", "workloads.suite", "analysis.report"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_heavy(command):
    assert bench_start.heavy(command) == ""


def test_the_check_for_heavy_imports_can_fail():
    assert "numpy" in bench_start.heavy("kernels.problems.arrays")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_flag_is_one_error_line_and_exit_2(command):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", command, "--nonsense"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) <= 2 and not done.stdout
