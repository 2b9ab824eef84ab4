"""python -m analysis.explain: what its words ask for, the profiles it reads, its one-line errors, and --verify."""

import functools
import json
import os
import pathlib
import signal
import subprocess

import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, launch_rows, row, run, transfer_rows, write
from fake_predictions import MS, borrowed, predict, sources

from analysis.explain import command as explain
from analysis.explain import explanation, measure, verify
from analysis.explain.__main__ import main, parser
from analysis.explain.explanation import Request, Sources
from analysis.predict import profile, what_if
from analysis.report import stored_gpu
from analysis.stats import exact
from kernels.networks.layers import Layer, Network
from kernels.problems import Launch, Training
from workloads import options
from workloads.machine import facts
from workloads.records import published_cases

OWN = Network("own:build", "", (4,), 3, (Layer("odd", "Odd", shape=(4,), weights=16), Layer("out", "dense", 3)))


@pytest.fixture(autouse=True)
def laws(monkeypatch):
    """What predicts follows known laws; this machine has no GPU."""
    monkeypatch.setattr("analysis.predict.prediction.predict", predict)
    monkeypatch.setattr(facts, "gpu_problem", lambda: "no driver")


def written(folder: pathlib.Path, of=GPU_MACHINE, rows=()) -> str:
    write(folder / "launch.jsonl", run(of), rows or (*launch_rows(0.0), *transfer_rows(0.0)))
    return str(folder)


def asked(*words):
    return explain._asked(parser().parse_args(words))


def said(capsys, *words):
    code, caught = main(list(words)), capsys.readouterr()
    return code, caught.out, caught.err.splitlines()


def test_a_case_a_table_or_a_users_model_bring_a_training_and_flags_change_it(monkeypatch):
    made, case = asked("--case", "S0", "--epochs", "3", "--dtype", "float32", "--price-gpu", "4", "--jit", "off")
    assert made.training == Training("cifar10-cnn", 32, 50_000, 3) and case.name == "S0"
    assert (made.prices, made.switches) == ({"gpu": 4.0}, {"jit_compile": "off"})
    made, case = asked("--case", "so-42097115")
    assert made.training == Training("mlp-784-100x2-10", 128, 60_000, 10)
    assert (made.varies, made.sizes[0]) == ("width", 16)
    assert asked("--case", "S4", "--samples", "1000")[0].training == Training("peaks", 1000, 1000, 2000)
    assert asked("--case", "cupy-2902") == (None, published_cases.EVERY["cupy-2902"])
    made, case = asked("--model", "fashion-mlp", "--batch", "64", "--input", "tf.data", "--validation", "100")
    assert (made.training, case, made.network) == (Training("fashion-mlp", 64, 60_000, 5), None, None)
    assert made.switches == {"residence": "tf.data"} and made.validation == 100
    monkeypatch.setattr(explain, "describe", lambda name, seconds: OWN)
    made, _ = asked("--model", "own:build", "--samples", "5000", "--epochs", "2")
    assert made.network is OWN and made.training == Training("own:build", 32, 5000, 2)
    assert made.assumed == ("batch",)


def test_numbers_that_nobody_gave_are_assumed_but_those_of_a_named_model_are_its_articles(monkeypatch):
    monkeypatch.setattr(explain, "describe", lambda name, seconds: OWN)
    assert asked("--model", "own:build")[0].assumed == ("batch", "samples", "epochs")
    assert asked("--model", "own:build", "--batch", "64", "--epochs", "2")[0].assumed == ("samples",)
    assert asked("--model", "mlp-784-100x2-10", "--batch", "64")[0].assumed == ("samples", "epochs")
    assert asked("--model", "lenet")[0].assumed == asked("--case", "S0")[0].assumed == ()


NAMED = {"S4 --all": "--case S4 --all", "a.py:build": "--model a.py:build", "--case S0 --model lenet": "--model lenet"}


@pytest.mark.parametrize(("words", "tried"), NAMED.items())
def test_what_is_explained_is_named_once_and_by_a_flag(capsys, words, tried):
    code, _, err = said(capsys, *words.split())
    assert code == options.USAGE and err[1].endswith(f"-m analysis.explain {tried}")


SLOW = "error: own:build cannot be described: building it has stopped after its time limit of 60 s\n  try: "
SLOW += "python -m workloads.describe --model own:build --time-limit 300"
LOST = "error: no function buld\n  tip: a similar model exists: 'own:made'\n  try: python -m x --model own:made"


@pytest.mark.parametrize(
    ("status", "err", "code", "said", "tried"),
    [
        (3, SLOW, options.MISSING, SLOW.splitlines()[:1], "--model own:build --batch 64 --time-limit 300"),
        (2, LOST, options.USAGE, LOST.splitlines()[:2], "--model own:made --time-limit 60 --batch 64"),
        (1, "Traceback\nKeyError: 3", options.MISSING, ["error: KeyError: 3"], "--case S4 nvidia-h200"),
    ],
)
def test_a_model_that_cannot_be_described_is_one_error_line(monkeypatch, capsys, status, err, code, said, tried):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, status, "", err))
    words = ["--model", "own:build", "--time-limit", "60", "--batch", "64"]
    assert main(words) == code
    *told, tip = capsys.readouterr().err.splitlines()
    assert told == said and tip.endswith(f"-m analysis.explain {tried}")


def test_a_run_is_explained_and_json_says_the_same(tmp_path, capsys, monkeypatch):
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


def test_rows_of_several_machines_are_refused(tmp_path, capsys):
    written(tmp_path / "a")
    written(tmp_path / "b", CPU_MACHINE)
    code, _, err = said(capsys, "--case", "S0", str(tmp_path))
    assert code == options.USAGE and "of 2 machines" in err[0]
    assert "name one, as reports/" in err[0] and "--profile" not in err[0]


def test_a_stored_gpu_stands_beside_this_machines_own_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(explain, "ROOT", tmp_path)
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)
    slow = [row("launch/tensorflow/fit_op_by_op", Launch("step", n), 0.02 + n * 8e-4) for n in (10, 80, 640)]
    written(tmp_path / "reports/local" / CPU_MACHINE.key / "one", CPU_MACHINE, slow)
    stored = written(tmp_path / "stored")
    code, out, _ = said(capsys, "--model", "cifar10-cnn", "--samples", "3200", "--all", "--gpu-profile", stored)
    assert code == options.OK and "predicted, nvidia-h200" in out.splitlines()[0]
    assert "This machine has no GPU that can be measured (no driver). On nvidia-h200 TensorFlow used the GPU" in out
    assert "Dispatch takes 2.0x as long" in out  # 0.8 ms a step here, 0.4 there
    code, _, err = said(capsys, "--case", "S0", "--gpu-profile", str(tmp_path / "reports/local" / CPU_MACHINE.key))
    assert code == options.USAGE and "has no row of a GPU" in err[0]


def test_a_machine_without_rows_is_told_what_to_measure(tmp_path, capsys, monkeypatch):
    monkeypatch.undo()  # the real predictor
    monkeypatch.setattr(explain, "ROOT", tmp_path)
    monkeypatch.setattr(facts, "gpu_problem", lambda: "")  # so no stored GPU is taken
    code, _, err = said(capsys, "--model", "fashion-mlp")
    assert code == options.MISSING and len(err) == 2
    assert err[0].startswith("error: no rows of this machine tell it")
    assert err[1].endswith("--model fashion-mlp --measure")


def test_without_a_gpu_a_stored_one_is_set_beside_this_cpu(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)
    monkeypatch.setattr(explain, "ROOT", tmp_path)
    code, out, _ = said(capsys, "--model", "cifar10-cnn", "--samples", "3200")
    assert code == options.OK and "predicted, nvidia-h200" in out.splitlines()[0]
    assert out.splitlines()[-1].startswith("Measure it here, about ")


def test_the_page_of_a_cpu_alone_says_what_a_stored_gpu_would_do(monkeypatch):
    """On the CPU 15,630 steps of 1.64 ms, 5 s to begin, 0.5 s of epochs and 0.1 of the fit."""
    from test_jobs import trained

    of = borrowed()
    monkeypatch.setattr(stored_gpu, "STORED", GPU_MACHINE.key)
    monkeypatch.setattr(stored_gpu, "predict", predict)
    monkeypatch.setattr(stored_gpu.profile, "read", lambda *runs: of.gpu)
    rows = [*of.cpu.measurements, trained("cifar10-cnn", 32, 640, (0.0, 0.0, 2e-3))]
    (line,) = stored_gpu.sentences(rows, CPU_MACHINE)
    e = explanation.explain(Request(Training("cifar10-cnn", 32, 50_000, 10)), of)
    told = "CIFAR-10 CNN, batch 32, 50,000 samples, 10 epochs, with the GPU of nvidia-h200: 31.2 s on the CPU, "
    assert line.startswith(told) and line.endswith("(predicted).") and e.both[0].whole.value == pytest.approx(31.2332)
    assert stored_gpu.sentences(rows, GPU_MACHINE) == stored_gpu.sentences(rows[:-1], CPU_MACHINE) == []
    assert stored_gpu.sentences(rows[-1:], CPU_MACHINE) == [], "how fast this host dispatches is not known"


def test_what_is_measured_first_is_the_real_step_and_what_was_not_reached_is_said(tmp_path, monkeypatch):
    e = explained()
    parts = measure.parts(e, e.asked, sources(), ["cpu", "gpu:0"])
    assert [part.words for part in parts] == ["its own step on the CPU", "its own step on the GPU"]
    bare = Sources(profile.Profile((), CPU_MACHINE), None, predict)
    parts = measure.parts(None, e.asked, bare, ["cpu"])
    names = ["its own step", "dispatch", "its convolutions", "its dense layers", "passes over memory"]
    assert [part.words for part in parts] == [f"{name} on the CPU" for name in names]
    assert parts[0].command[:3] == ("workloads.training", "--model", "cifar10-cnn")
    assert (measure.seconds(parts), measure.seconds(parts[:1], 20)) == (90, 20)
    ran = []
    monkeypatch.setattr(measure, "child", lambda part, folder, left, head, say: ran.append(part.words) or "it broke")
    clock = iter([0.0, 0.0, 50.0, 80.0, 90.0, 95.0])
    monkeypatch.setattr(measure.time, "monotonic", lambda: next(clock))
    left_out = measure.run(parts, tmp_path, 90)
    assert ran == [f"{name} on the CPU" for name in names[:2]] + [f"{names[2]} on the CPU"] * (len(ran) - 2)
    assert left_out[0] == "its own step on the CPU: it broke" and left_out[-1].endswith(": the time was spent")


def test_a_child_that_hangs_is_ended_and_one_that_fails_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "_PATIENCE_S", 0)
    for code, words in (
        ("import time; time.sleep(60)", "it took longer than the 0 s it had"),
        ("import sys; sys.exit('error: no such layer')", "no such layer"),
    ):
        (tmp_path / "hangs.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        reason = measure.child(measure.Part("it", ("hangs",), 1), tmp_path / "out", 0.5)
        assert reason.endswith(words)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/training.jsonl").touch()
    for code, words in ((1, "failed: lenet gpu:0: TensorFlow finds no GPU"), (0, "")):
        source = f"import sys; print('results: x\\n{words}', file=sys.stderr); sys.exit({code})"
        (tmp_path / "hangs.py").write_text(source)
        assert measure.child(measure.Part("it", ("hangs",), 1), tmp_path / "out", 30) == words


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_child(tmp_path, capsys, monkeypatch, number, code):
    source = "import os, time; open('pid', 'w').write(f'{os.getpid()}\\n'); time.sleep(60); os.remove('pid')"
    (tmp_path / "waits.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    pid = tmp_path / "pid"

    def begun(text):
        if pid.exists() and pid.read_text().endswith("\n"):
            os.kill(os.getpid(), number)

    part = measure.Part("it", ("waits",), 1)
    body = functools.partial(measure.child, part, tmp_path / "out", 30, "", begun)
    assert options.command(options.parser("x", "", "x"), [], lambda args: bool(body())) == code
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert capsys.readouterr().err == "stopped before anything was measured\n"


def test_what_was_measured_before_a_signal_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(explain, "ROOT", tmp_path)
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)

    def stopped(parts, folder, left, say):
        written(folder.with_name(f"{folder.name}-1"), CPU_MACHINE)
        raise options.Terminated

    monkeypatch.setattr(measure, "run", stopped)
    asked = "--model", "lenet", "--measure", "--gpu-profile", written(tmp_path / "stored")
    code, _, err = said(capsys, *asked)
    assert code == options.TERMINATED and err[-1].startswith("stopped with rows that the next answer takes: ")
    assert err[-1].endswith("-1/launch.jsonl")
    noisy = "its own step on the CPU: too noisy to tell; ask again when nothing else runs"
    for told in ([], ["its own step on the CPU: no memory"], ["its convolutions on the CPU: the time was spent"]):
        monkeypatch.setattr(measure, "run", lambda *given, told=tuple(told): [*told])
        assert said(capsys, *asked)[2] == [f"not measured: {one}" for one in told or [noisy]]


def explained():
    return explanation.explain(Request(Training("cifar10-cnn", 32, 3200, 10)), sources())


def test_what_is_verified_stands_beside_what_was_predicted():
    plan = verify.plan(explained(), 3)
    assert [change.words for change, _ in plan] == ["batch 512", "data on the GPU, own loop", "batch 128"]
    assert plan[0][1].value == pytest.approx(2.164 * MS - 3.124 * MS / 16)
    steps = {"as it is": 2.4 * MS, "batch 512": 3.2 * MS}

    def measured(change, folder):
        return exact(steps[change.words]) if change.words in steps else "no memory"

    lines = list(verify.lines(explained(), 3, measured))
    assert "  a step as it is: predicted 2.16 ms, measured 2.40 ms" in lines
    # 2.4 - 3.2 / 16 ms at batch 512, predicted 1.97: 0.231 of 2.164 ms
    expected = "batch 512: saves predicted 1.97 ms, measured 2.20 ms of a step's work (off by 10.7 % of the step)"
    assert any(expected in s for s in lines)
    assert any("not measured: no memory" in s for s in lines)


def test_a_measurement_runs_the_training_command_and_reads_its_file(tmp_path, monkeypatch):
    from test_jobs import trained

    on_gpu = trained("cifar10-cnn", 32, 320, (0, 0, 1e-3), device="gpu:0").settings
    change = what_if.changes(Training("cifar10-cnn", 32, 3200), on_gpu)[0]

    def ran(part, folder, left):
        assert part.command[0] == "workloads.training" and "--batch" in part.command and part.command[-1] == "--fast"
        written(folder, GPU_MACHINE, [trained("cifar10-cnn", 128, 2048, (0.0, 0.0, 3e-3), device="gpu:0")])
        return ""

    monkeypatch.setattr(measure, "child", ran)
    assert verify.step(change, tmp_path / "x").value == pytest.approx(3e-3)
    monkeypatch.setattr(measure, "child", lambda *given: "no GPU here")
    assert verify.step(change, tmp_path / "none") == "no GPU here"
