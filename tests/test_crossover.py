"""The console command `crossover`, the form of its hints, and the line on packages that are not installed."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import crossover
from analysis.predict import described_model
from kernels import networks
from workloads import help_screen, options, terminal
from workloads.command_line import invocation, requirements

ROOT = pathlib.Path(__file__).resolve().parent.parent


def started(monkeypatch, path: str, on_path: str | None = None) -> None:
    """Makes this process one that was started by the file `path`; `on_path`: the console command that a shell runs."""
    monkeypatch.setattr(invocation.sys, "argv", [path])
    monkeypatch.setattr(invocation.shutil, "which", lambda name: on_path if name == "crossover" else "/usr/bin/python")
    monkeypatch.setattr(invocation.sys, "executable", "/usr/bin/python")


def test_every_command_has_a_short_name():
    named = crossover.commands()
    assert list(named)[:4] == ["explain", "run", "doctor", "report"]
    assert sorted(named.values()) == sorted([*help_screen.commands(), "workloads.suite"])
    assert (named["fleet"], named["run"], named["matmul"]) == ("analysis.fleet", "workloads.suite", "workloads.matmul")


@pytest.mark.parametrize("name", crossover.commands())
def test_a_short_name_starts_its_modules_main(name, monkeypatch, capsys):
    started(monkeypatch, "/opt/bin/crossover", "/opt/bin/crossover")
    with pytest.raises(SystemExit) as stop:
        crossover.main([name, "--help"])
    assert stop.value.code == 0
    shown = "suite" if name == "run" else name
    assert capsys.readouterr().out.startswith(f"usage: crossover {shown} ")


def test_run_is_the_quick_suite(monkeypatch):
    given = []
    monkeypatch.setattr("workloads.suite.main", lambda argv: given.extend(argv) or 7)
    assert crossover.main(["run", "-q"]) == 7
    assert given == ["--quick", "-q"]


def test_without_a_word_the_commands_are_listed(capsys):
    for words in ([], ["-h"], ["--help"]):
        assert crossover.main(words) == 0
        listed = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in listed[1:-1]] == list(crossover.commands())


WRONG = {
    "explian --model lenet": "crossover explain --model lenet",
    "workloads.matmul --sizes 64": "crossover matmul --sizes 64",
    "--model lenet": "crossover explain --model lenet",
    "--batch 64 explain --model lenet": "crossover explain --batch 64 --model lenet",
    "--sizes 64 --fast": "crossover matmul --sizes 64 --fast",
    "mtamul --sizs 64 --fast": "crossover matmul --sizes 64 --fast",
    "zzz --fast": "crossover",
    "-v": "crossover",
    "help": "crossover",
    "help explian": "crossover explain -h",
    "explain help": "crossover explain -h",
    "matmul --sizes 64 --thread 2": "crossover matmul --sizes 64 --threads 2",
    "run --fats": "crossover run --fast",
}


def test_the_version_is_the_one_of_the_project(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert crossover.main(["--version"]) == 0 and capsys.readouterr().out == f"crossover {project['version']}\n"


@pytest.mark.parametrize(("words", "right"), WRONG.items())
def test_a_correction_has_the_typed_form(words, right, monkeypatch, capsys):
    started(monkeypatch, "/opt/bin/crossover", "/opt/bin/crossover")
    assert crossover.main(words.split()) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("error: ") and error[-1] == f"  try: {right}"


def test_hints_have_the_form_of_the_start(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "crossover"
    script.touch()
    shown = "More: python -m analysis.explain --all"
    started(monkeypatch, str(script), str(script))
    assert options.typed(shown) == "More: crossover explain --all"
    assert options.typed("python -m workloads.suite --quick -q") == "crossover run -q"
    assert options.typed("python -m workloads.suite --only matmul") == "crossover suite --only matmul"
    assert options.typed("python -m workloads.matmul --quick") == "crossover matmul --quick"
    assert options.typed("python -m workloads") == options.typed("python -m crossover") == "crossover"
    assert options.typed("python -m pip install rich") == "python -m pip install rich"
    started(monkeypatch, str(script), None)  # not on PATH
    assert options.typed(shown) == "More: bin/crossover explain --all"
    started(monkeypatch, str(ROOT / "crossover.py"))
    assert options.typed(shown) == "More: python -m crossover explain --all"
    started(monkeypatch, str(ROOT / "analysis/explain/__main__.py"), str(script))
    assert options.typed(shown) == shown


def test_a_wrapped_console_command_ends_in_a_backslash():
    line = terminal.Line("More: ", command="crossover explain --model mine.py:build --all")
    assert terminal.wrapped(line, 40) == ["More: crossover explain --model \\", "        mine.py:build --all"]
    sentence = "Only the crossover along the batch was measured here."
    assert all("\\" not in part for part in terminal.wrapped(sentence, 40))


# ---------------------------------------------------------------- packages that are not installed


def test_the_packages_searched_are_the_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert list(requirements.PACKAGES) == project["dependencies"]


def test_missing_packages_are_one_line(monkeypatch, capsys):
    for module in ("msgspec", "pynvml"):
        monkeypatch.setitem(sys.modules, module, None)
    assert crossover.main(["matmul", "--dry-run"]) == options.MISSING
    error = capsys.readouterr().err.splitlines()
    assert error[0] == "error: not installed: msgspec, nvidia-ml-py"
    assert error[1:] == [f"  try: {options.python()} -m pip install msgspec nvidia-ml-py"]


NEEDS = {"analysis.compare": "OLD NEW", "analysis.export": "RUN --to csv"}
NEEDS |= dict.fromkeys(("analysis.fleet", "analysis.report", "analysis.roofline"), "RUN")


@pytest.mark.parametrize("module", ["crossover", "workloads", "analysis", *help_screen.commands()])
def test_a_python_without_packages_gets_one_error_line(module):
    """-S: no site-packages."""
    words = [sys.executable, "-S", "-m", module, *NEEDS.get(module, "").split()]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    lines = ended.stderr.splitlines()
    assert ended.returncode == options.MISSING and len(lines) == 2
    assert lines[0] == f"error: not installed: {', '.join(requirements.PACKAGES)}"
    assert re.fullmatch(r"  try: .*python[\d.]* -m pip install ml_dtypes msgspec .* threadpoolctl", lines[1])


# ---------------------------------------------------------------- explain() for notebooks


def test_the_cell_on_the_page_of_answers_runs():
    (cell,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/answer.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(cell, names)
    answer = names["answer"]
    assert (answer.model, answer.batch, answer.samples, answer.stored_gpu) == ("cifar10-cnn", 64, 5000, "")
    assert answer.winner in ("cpu", "gpu", "neither")
    assert answer.gpu_seconds.low <= answer.gpu_seconds.value <= answer.gpu_seconds.high
    assert answer.verdict[-1].endswith(" --model cifar10-cnn nvidia-h200 --batch 64 --samples 5000 --all")


class Built:
    """Stands for a Keras model: what it is asked for is its name and its file."""

    name = "mine"
    layers = ()

    def save(self, file: str) -> None:
        pathlib.Path(file).write_text("a model")


@pytest.mark.parametrize("model", [Built(), Built])
def test_a_model_is_read_in_another_process(model, monkeypatch):
    read = []

    def describe(request: described_model.ModelRequest, time_limit_s: float):
        file = pathlib.Path(request.model)
        read.append((file.name, file.read_text(), request.batch, time_limit_s))
        return networks.find("fashion-mlp")

    monkeypatch.setattr(described_model, "described", describe)
    answer = crossover.explain(model, batch=64, runs="nvidia-h200", time_limit=90)
    known = crossover.explain("fashion-mlp", batch=64, runs="nvidia-h200")
    assert read == [("mine.keras", "a model", 64, 90)]
    assert answer.model == "mine (notebook)"
    assert [one.name for one in answer.assumed] == ["samples", "epochs"]
    # its own trainings are no longer left out of the fit
    assert answer.gpu_seconds.value == pytest.approx(known.gpu_seconds.value, rel=0.3)
    assert not any(line.startswith("More: ") for line in answer.verdict)  # no command asks the same


def test_explain_refuses_no_models_and_unknown_flags():
    for wrong in (3, lambda: 3):
        with pytest.raises(TypeError, match="a function that builds one, not int"):
            crossover.explain(wrong)
    with pytest.raises(TypeError, match="unknown option 'batches'"):
        crossover.explain("fashion-mlp", batches=3)
    with pytest.raises(TypeError, match="measure=True takes a name"):
        crossover.explain(Built(), measure=True)
    with pytest.raises(options.Missing, match="measure=True measures them"):
        crossover.explain("fashion-mlp", runs=str(ROOT / "reports/nvidia-h200/odd-matmul"))


def test_explain_names_all_packages_that_are_not_installed(monkeypatch):
    for module in ("msgspec", "rich"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"not installed: msgspec, rich; .* -m pip install msgspec rich"):
        crossover.explain("fashion-mlp")


def test_a_false_flag_of_explain_is_left_out():
    command = crossover._command("mnist-cnn", {"measure": False, "all": True, "batch": 64, "samples": None})
    assert command.split()[-5:] == ["--model", "mnist-cnn", "--all", "--batch", "64"]
