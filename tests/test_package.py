"""The package that pip builds, installed outside the checkout: the same winners and seconds, results in the user's data."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ("kernels", "workloads", "analysis")
FILES = ("crossover.py", "pyproject.toml", "README.md", "LICENSE")
CPU_RUN = "reports/intel-avx512-amx-2c/step-parts"

pytestmark = pytest.mark.slow


class Installed:
    """A folder with the installed package, another to work in, and the environment that leads there."""

    def __init__(self, folder: pathlib.Path):
        source = folder / "source"
        for name in SOURCES:
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, source / name)
        self.site = folder / "site"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--target", str(self.site), str(source)], check=True, cwd=folder)
        self.work = folder / "work"
        self.work.mkdir()
        self.data = folder / "data"
        self.environment = os.environ | {"PYTHONPATH": str(self.site), "XDG_DATA_HOME": str(self.data)}

    def crossover(self, *words: str) -> subprocess.CompletedProcess:
        return self.python(str(self.site / "bin" / "crossover"), *words)

    def python(self, *words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=self.work, env=self.environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("package"))


def from_checkout(*words: str) -> dict:
    command = [sys.executable, "-m", "analysis.explain", *words, "--format", "json"]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


FIELDS = ("winner", "sure", "cpu_seconds", "gpu_seconds", "assumed", "warnings")


@pytest.mark.parametrize("model", ["fashion-mlp", "cifar10-cnn"])
@pytest.mark.parametrize("run", ["nvidia-h200", CPU_RUN])
def test_the_installed_package_gives_the_same_answer(model, run, installed):
    rows = run if run == "nvidia-h200" else str(ROOT / run)
    words = ("explain", "--model", model, "--samples", "3000", rows, "--gpu-profile", "nvidia-h200")
    answer = json.loads(installed.crossover(*words, "--format", "json").stdout)
    expected = from_checkout(*words[1:])
    assert [answer[name] for name in FIELDS] == [expected[name] for name in FIELDS]
    assert answer["gpu_seconds"]["value"] > 0


def test_a_machine_without_rows_gets_an_answer(installed):
    ended = installed.crossover("explain", "--model", "cifar10-cnn", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["gpu_seconds"]["value"] > 0


def test_hints_are_typed_as_the_console_command(installed):
    ended = installed.crossover("explain", "--model", "cifar10-cnn", "nvidia-h200")
    more = ended.stdout.splitlines()[-1]
    assert more.startswith("More: ") and more.endswith("/crossover explain --model cifar10-cnn nvidia-h200 --all")


def test_a_notebook_gets_the_same(installed):
    cell = "from crossover import explain; a = explain('cifar10-cnn', runs='nvidia-h200'); print(a.gpu_seconds.value)"
    ended = installed.python("-c", cell)
    expected = from_checkout("--model", "cifar10-cnn", "nvidia-h200")
    assert float(ended.stdout) == expected["gpu_seconds"]["value"]


def test_results_go_into_the_users_data(installed):
    words = ("--sizes", "16", "--backends", "numpy", "--max-time", "1", "--max-noise", "50%", "-q")
    ended = installed.crossover("matmul", *words)
    assert ended.returncode == 0, ended.stderr
    assert list((installed.data / "crossover" / "reports" / "local").rglob("matmul.jsonl"))
    assert not (installed.site / "reports").exists()
