"""python -m analysis.explain: its plan, the profiles it reads, its one-line errors, and --verify."""

import json
import pathlib
from types import SimpleNamespace

import msgspec
import pytest
from explain_commands import explained, said, written
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row
from fake_predictions import MS, borrowed

from analysis.explain import command, explanation, measure, profiles, verify
from analysis.explain.measure import KnownCosts
from analysis.explain.measuring import Failure, TimeBudget
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.predict import profile, what_if
from analysis.report import stored_gpu
from kernels.problems import Launch, Training
from workloads import options
from workloads.machine import facts

pytestmark = pytest.mark.usefixtures("laws")


def test_a_scripts_answer_names_its_sources(own_script, tmp_path, capsys):
    own_script(keras_options={}, validation=0)
    run = written(tmp_path / "box")
    code, out, err = said(capsys, "train.py", run)
    head = "train.py, fit at line 41: 1 input, 8,000 samples, batch 64, at most 20 epochs (from your script)"
    assert code == options.OK and out.startswith(head)
    assert err == ["train.py, fit at line 41: the script ran as always up to here; nothing after it runs."]
    own_script(keras_options={}, validation=0, other_fits=("60", "72"), strategy="MirroredStrategy")
    _, _, err = said(capsys, "train.py", run)
    assert err[1:] == [
        "It calls fit at 60, 72 too: --fit 60 explains that one.",
        "MirroredStrategy is taken as one device: the answer is for one replica with the whole batch.",
    ]
    code, out, _ = said(capsys, "train.py", run, "--epochs", "3", "--", "--lr", "1")
    assert "batch 64, 3 epochs (from your script, but for --epochs)" in out
    assert out.splitlines()[-1].endswith(f"-m analysis.explain train.py {run} --epochs 3 --all -- --lr 1")
    code, out, _ = said(capsys, "train.py", run, "--format", "json")
    record = json.loads(out)
    assert (record["assumed"], record["samples"], record["epochs"]) == ([], 8000, 20)
    assert (record["script"]["place"], record["script"]["stops_early"]) == ("line 41", True)


WRONG_SCRIPTS = {
    "trian.py": "train.py",
    "train.py --model lenet": "train.py",
    "train.py train.ipynb": "train.py",
    "train.py --measure --jit on": "train.py --measure",
    "train.py --verify -- --lr 1": "--model FILE:FUNCTION --verify",
    "train.py --batch x1 -- --lr 1": "train.py --batch 1 -- --lr 1",
    "-- --lr 1": "train.py -- --lr 1",
}


@pytest.mark.parametrize(("words", "tried"), WRONG_SCRIPTS.items())
def test_an_unexplainable_script_is_corrected(own_script, capsys, words, tried):
    code, _, err = said(capsys, *words.split())
    assert code == options.USAGE and err[0].startswith("error:")
    assert err[-1].endswith(f"-m analysis.explain {tried}")


NAMED = {"S4 --all": "--case S4 --all", "a.py:build": "--model a.py:build", "--case S0 --model lenet": "--model lenet"}


@pytest.mark.parametrize(("words", "tried"), NAMED.items())
def test_the_subject_is_named_once_by_a_flag(capsys, words, tried, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("def build():\n    pass\n")
    code, _, err = said(capsys, *words.split())
    assert code == options.USAGE and err[1].endswith(f"-m analysis.explain {tried}")


def test_a_run_is_explained_equally_in_json(tmp_path, capsys, monkeypatch):
    words = ("--model", "cifar10-cnn", "--samples", "3200", written(tmp_path / "box"))
    code, out, _ = said(capsys, *words)
    assert code == options.OK and "The CPU: 7.24 s against 11.8 s on the GPU, 1.6x faster (predicted)." in out
    assert len(out.splitlines()) <= 12 and out.splitlines()[-1].endswith("--all")  # no GPU here could check it
    with monkeypatch.context() as narrow:
        narrow.setenv("COLUMNS", "40")
        _, less, _ = said(capsys, *words)
    assert "changes learning" in out and "1. batch 512; saves 1.95 s;" in less
    code, more, _ = said(capsys, *words, "--all")
    assert more.startswith(out.splitlines()[0]) and "On nvidia-h200 TensorFlow used the GPU in 24 rows" in more
    assert " more (--all)." in out and " more below." in more
    markdown = said(capsys, *words, "--all", "--format", "md")[1]
    bold = "**The CPU: 7.24 s against 11.8 s on the GPU, 1.6x faster (predicted).**\n\n| on | whole training |\n| --- | ---: |"
    assert f"{bold}\n| CPU | 7.24 s |\n| GPU | 11.8 s |\n\n- **Why.** " in markdown
    assert "\n### A step, predicted\n\n| " in markdown
    assert all(line[6:] in markdown for line in out.splitlines() if line.startswith(("Why", "From")))
    made = json.loads(said(capsys, *words, "--format", "json")[1])
    assert made["verdict"][1].startswith("The CPU: 7.24 s against 11.8 s on the GPU")
    assert made["finishes_first_from"] == ["cpu", {}]
    assert made["explanation"]["gpu"]["step_s"]["value"] == pytest.approx(2.164 * MS)
    assert [side["cost"]["source"] for side in made["explanation"]["sides"]] == ["predicted"] * 2


def test_a_changes_code_is_shown_by_its_number(tmp_path, capsys):
    words = ("--model", "cifar10-cnn", "--samples", "3200", written(tmp_path / "box"))
    _, answer, _ = said(capsys, *words)
    assert "1. batch 512 " in answer and answer.count("--how") == 1
    code, out, _ = said(capsys, *words, "--how", "1")
    lines = [line.strip() for line in out.splitlines()]
    assert code == options.OK and lines[0] == "1. batch 512"
    assert [line for line in lines if line.startswith("model.fit")] == [
        "model.fit(x, y, batch_size=32, epochs=10)",
        "model.fit(x, y, batch_size=512, epochs=10)",
    ]
    record = json.loads(said(capsys, *words, "--how", "1", "--format", "json")[1])
    assert record["code"]["before"].splitlines()[0] == "model = build()  # cifar10-cnn"
    code, out, errors = said(capsys, *words, "--how", "99")
    assert code == options.USAGE and not out
    assert errors[0].startswith("error: --how: no change 99 in this answer; its changes: 1, 2")
    assert errors[1].endswith("--how 1")
    assert said(capsys, "--case", "all", "--how", "1")[0] == options.USAGE


@pytest.mark.parametrize(
    ("borrowed_gpu", "gpu", "problem", "script", "can_check"),
    [
        (None, "gpu:0", "", None, True),
        (None, None, "no driver", None, True),  # an answer about the CPU alone
        ("h200", "gpu:0", "", None, False),
        (None, "gpu:0", "no driver", None, False),
        (None, "gpu:0", "", "train.py", False),
    ],
)
def test_only_an_answers_devices_can_check_a_change(borrowed_gpu, gpu, problem, script, can_check, monkeypatch):
    explained = SimpleNamespace(
        sources=SimpleNamespace(borrowed=borrowed_gpu), gpu=gpu, request=SimpleNamespace(script=script)
    )
    result = command.CommandAnswer(
        command="typed",
        passed_on="",
        all_details=False,
        has_training=True,
        reply=None,
        explained=SimpleNamespace(explanation=explained, measuring_s=0.0),
        change_number=0,
    )
    monkeypatch.setattr(command, "answer", lambda *words, **given: given["can_check"])
    monkeypatch.setattr(facts, "gpu_problem", lambda: problem)
    assert result.verdict_lines() is can_check


def test_rows_of_several_machines_are_refused(tmp_path, capsys):
    written(tmp_path / "a")
    written(tmp_path / "b", CPU_MACHINE)
    code, _, err = said(capsys, "--case", "S0", str(tmp_path))
    assert code == options.USAGE and "of 2 machines" in err[0]
    assert "name one, as reports/" in err[0] and "--profile" not in err[0]


def test_a_stored_gpu_joins_this_machines_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(profiles, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)
    slow = [row("launch/tensorflow/fit_op_by_op", Launch("step", n), 0.02 + n * 8e-4) for n in (10, 80, 640)]
    written(tmp_path / "reports/local" / CPU_MACHINE.key / "one", CPU_MACHINE, slow)
    stored = written(tmp_path / "stored")
    code, out, _ = said(capsys, "--model", "cifar10-cnn", "--samples", "3200", "--all", "--gpu-profile", stored)
    assert code == options.OK and "predicted, nvidia-h200" in out.splitlines()[0]
    assert "This machine has no GPU that can be measured (no driver). On nvidia-h200 TensorFlow used the GPU" in out
    assert "Dispatch is 2.0x slower" in out  # 0.8 ms a step here, 0.4 there
    code, _, err = said(capsys, "--case", "S0", "--gpu-profile", str(tmp_path / "reports/local" / CPU_MACHINE.key))
    assert code == options.USAGE and "no stored rows of a GPU in" in err[0]


def test_a_machine_without_rows_learns_what_to_measure(tmp_path, capsys, monkeypatch):
    monkeypatch.undo()  # the real predictor
    monkeypatch.setattr(profiles, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(facts, "gpu_problem", lambda: "")  # so no stored GPU is taken
    code, _, err = said(capsys, "--model", "fashion-mlp")
    assert code == options.MISSING and len(err) == 2
    assert err[0].startswith("error: no rows of this machine tell it")
    assert err[1].endswith("--model fashion-mlp --measure")


def test_without_a_gpu_a_stored_one_is_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)
    monkeypatch.setattr(profiles, "REPORTS", tmp_path / "reports")
    code, out, _ = said(capsys, "--model", "cifar10-cnn", "--samples", "3200")
    assert code == options.OK and "predicted, nvidia-h200" in out.splitlines()[0]
    assert out.splitlines()[-1].startswith("Measure it here, about ")


def test_a_cpus_page_predicts_a_stored_gpu(monkeypatch):
    """On the CPU 15,630 steps of 1.64 ms, 5 s to begin, 0.5 s of epochs and 0.1 of the fit."""
    from fake_trainings import trained

    of = borrowed()
    monkeypatch.setattr(stored_gpu, "STORED", GPU_MACHINE.key)
    monkeypatch.setattr(stored_gpu.profile, "read", lambda *runs: of.gpu)
    untold = msgspec.structs.replace(trained("cifar10-cnn", 32, 640, (0.0, 0.0, 2e-3)), fits=())
    rows = [*of.cpu.measurements, untold]
    (line,) = stored_gpu.sentences(rows, CPU_MACHINE)
    e = explanation.explain(Request(Training("cifar10-cnn", 32, 50_000, 10)), of)
    told = "CIFAR-10 CNN, batch 32, 50,000 samples, 10 epochs, with the GPU of nvidia-h200: 31.2 s on the CPU, "
    assert line.startswith(told) and line.endswith("(predicted).") and e.both[0].whole.value == pytest.approx(31.2332)
    assert stored_gpu.sentences(rows, GPU_MACHINE) == stored_gpu.sentences(rows[:-1], CPU_MACHINE) == []
    assert stored_gpu.sentences(rows[-1:], CPU_MACHINE) == [], "how fast this host dispatches is not known"


class SlowChild:
    """Breaks at the first part; each of the others takes its clocks 120 s."""

    def __init__(self):
        self.folders = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def measure(self, name, command, budget, say):
        self.folders.append(command[-1])
        say("compiling", 1.0)
        if len(self.folders) == 1:
            return Failure(part=name, reason="it broke")
        budget.spent += 120
        return None


def test_parts_beyond_the_time_budget_are_named(tmp_path):
    """Of 90 s, up to 270: after 120 and 240 s there are 30 left for 5 s of dense layers, then none for 10 s of passes."""
    bare = Sources(cpu=profile.Profile((), CPU_MACHINE), gpu=None)
    parts = measure.parts(KnownCosts(), explained().request, bare, ["cpu"], everything=True)
    child, shown = SlowChild(), []
    failures = measure.run(
        parts, tmp_path / "x", TimeBudget(seconds=90), lambda doing, taken_s: shown.append((doing, taken_s)), child
    )
    assert child.folders == [str(tmp_path / f"x-{number}") for number in (1, 2, 3, 4)]
    assert shown[0] == ("1/5 its own step on the CPU: compiling", 1.0)
    first, last = failures
    assert (first.reason, first.budget_s) == ("it broke", 0)
    assert (last.part, last.reason, last.budget_s) == ("passes over memory on the CPU", "the time was spent", 400)


def test_a_measurement_runs_and_reads_the_training_command(tmp_path):
    from fake_trainings import trained

    on_gpu = trained("cifar10-cnn", 32, 320, (0, 0, 1e-3), device="gpu:0").settings
    change = what_if.changes(Training("cifar10-cnn", 32, 3200), on_gpu)[0]

    class Child:
        failure = None

        def measure(self, name, command, budget, say):
            assert command[0] == "workloads.training" and "--batch" in command and "--fast" in command
            if self.failure is None:
                rows = [trained("cifar10-cnn", 128, 2048, (0.0, 0.0, 3e-3), device="gpu:0")]
                written(pathlib.Path(command[-1]), GPU_MACHINE, rows)
            return self.failure

    child = Child()
    assert verify.step(child, change, tmp_path / "x").value == pytest.approx(3e-3)
    child.failure = Failure(part="batch 128", reason="no GPU here")
    assert verify.step(child, change, tmp_path / "x") == "no GPU here"
