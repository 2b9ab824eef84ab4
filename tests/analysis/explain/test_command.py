"""python -m analysis.explain: its plan, the profiles it reads, its one-line errors, and --verify."""

import json
import pathlib
from types import SimpleNamespace

import msgspec
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, launch_rows, row, run, transfer_rows, write
from fake_predictions import MS, borrowed, predict, sources

from analysis.explain import command, explanation, measure, profiles, verify
from analysis.explain.__main__ import main, parser
from analysis.explain.measure import KnownCosts
from analysis.explain.measuring import Failure, TimeBudget
from analysis.explain.missing_parts import MeasureOptions
from analysis.explain.plan import ExplainPlan
from analysis.explain.profiles import RowNames
from analysis.explain.request import Request
from analysis.explain.sides import Side
from analysis.explain.sources import Sources
from analysis.explain.training_request import EveryCase, PublishedCase, TrainingOptions, TrainingScript
from analysis.predict import described_model, profile, what_if
from analysis.report import stored_gpu
from analysis.stats import NOTHING, Estimate, exact
from analysis.training.costs import TrainingCost
from kernels.networks.layers import Layer, Network
from kernels.problems import Launch, Training
from workloads import options
from workloads.machine import facts
from workloads.records import Settings, published_cases
from workloads.records.script_fit import DescribedScript, ScriptFit

OWN = Network("own:build", "", (4,), 3, (Layer("odd", "Odd", shape=(4,), weights=16), Layer("out", "dense", 3)))


@pytest.fixture(autouse=True)
def laws(monkeypatch):
    """What predicts follows known laws; this machine has no GPU."""
    monkeypatch.setattr("analysis.predict.prediction.predict", predict)
    monkeypatch.setattr(facts, "gpu_problem", lambda: "no driver")


def written(folder: pathlib.Path, of=GPU_MACHINE, rows=()) -> str:
    write(folder / "launch.jsonl", run(of), rows or (*launch_rows(0.0), *transfer_rows(0.0)))
    return str(folder)


def plan(*words) -> ExplainPlan:
    return ExplainPlan.from_flags(parser().parse_args(words), "typed")


def requested(*words) -> Request | None:
    chosen = plan(*words)
    return chosen.subject.request(chosen.options)


@pytest.fixture
def own_model(monkeypatch, tmp_path):
    """own:build is a model of OWN's layers; what describes it is not started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def build():\n    pass\n")
    monkeypatch.setattr(described_model, "described", lambda name, seconds: OWN)


def said(capsys, *words):
    code, caught = main(list(words)), capsys.readouterr()
    return code, caught.out, caught.err.splitlines()


def test_every_flag_is_a_field_of_the_plan():
    words = "--case S0 --batch 64 --samples 1000 --epochs 3 --dtype float64 --validation 10 --input prefetch --jit on --tf32 off"
    words += (
        " --precision mixed_float16 --steps-per-execution 8 --price-gpu 4 --price-cpu 0.5 --gpu-profile nvidia-h200"
    )
    words += " --time-limit 30 --all --measure --budget 20 --wait-quiet --format md nvidia-h200 --how 2 --verify 4"
    rows = RowNames(runs=("nvidia-h200",), gpu_profile="nvidia-h200")
    assert plan(*words.split()) == ExplainPlan(
        command="typed",
        subject=PublishedCase(case=published_cases.EVERY["S0"]),
        options=TrainingOptions(
            batch=64,
            samples=1000,
            epochs=3,
            dtype="float64",
            keras_options={
                "residence": "prefetch",
                "jit_compile": "on",
                "tf32": "off",
                "precision": "mixed_float16",
                "steps_per_execution": "8",
            },
            validation=10,
            prices={"gpu": 4.0, "cpu": 0.5},
        ),
        rows=rows,
        measuring=MeasureOptions(
            rows=rows, command="typed", first=True, everything=True, budget_s=20.0, wait_quiet=True
        ),
        all_details=True,
        format="md",
        change_number=2,
        verified_changes=4,
    )
    assert plan("--case", "all").subject == EveryCase()
    assert plan("--model", "lenet").explains_training and not plan("--case", "S0").explains_training
    assert all(plan("--case", "S0", *more.split()).explains_training for more in ("--all", "--how 1", "--format json"))


def test_cases_tables_and_models_bring_a_training(own_model):
    request = requested("--case", "S0", "--epochs", "3", "--dtype", "float32", "--price-gpu", "4", "--jit", "off")
    assert request.training == Training("cifar10-cnn", 32, 50_000, 3)
    assert (request.prices, request.switches) == ({"gpu": 4.0}, {"jit_compile": "off"})
    request = requested("--case", "so-42097115")
    assert request.training == Training("mlp-784-100x2-10", 128, 60_000, 10)
    assert (request.varies, request.sizes[0]) == ("width", 16)
    assert requested("--case", "S4", "--samples", "1000").training == Training("peaks", 1000, 1000, 2000)
    assert requested("--case", "cupy-2902") is None
    request = requested("--model", "fashion-mlp", "--batch", "64", "--input", "tf.data", "--validation", "100")
    assert (request.training, request.network) == (Training("fashion-mlp", 64, 60_000, 5), None)
    assert request.switches == {"residence": "tf.data"} and request.validation == 100
    request = requested("--model", "own:build", "--samples", "5000", "--epochs", "2")
    assert request.network is OWN and request.training == Training("own:build", 32, 5000, 2)
    assert request.assumed == ("batch",)


FIT = ScriptFit(
    script="train.py",
    place="line 41",
    inputs=1,
    batch=64,
    samples=8000,
    epochs=20,
    stops_early=True,
    validation=2000,
    dtype="int32",
    keras_options={"residence": "tf.data", "jit_compile": "off"},
)


@pytest.fixture
def own_script(monkeypatch, tmp_path):
    """train.py is there and calls FIT for a model of OWN's layers; it is not run. own_script(field=value) changes FIT."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    def calls(**fields):
        described = DescribedScript(fit=msgspec.structs.replace(FIT, **fields), network=OWN)
        monkeypatch.setattr(described_model, "described_script", lambda *words: described)

    calls()
    return calls


def test_a_script_brings_all_numbers(own_script):
    script = plan("train.py", "nvidia-h200", "--batch", "32", "--", "--lr", "0.1", "--batch", "8")
    assert script.subject == TrainingScript(name="train.py", arguments=("--lr", "0.1", "--batch", "8"), time_limit_s=60)
    assert (script.rows.runs, script.options.batch) == (("nvidia-h200",), 32)
    request = requested("train.py")
    assert request.training == Training("train.py:41", 64, 8000, 20) and request.network is OWN
    assert (request.validation, request.assumed, request.script) == (2000, (), FIT)
    assert request.switches == {"residence": "tf.data", "jit_compile": "off", "data": "script"}
    changed = requested("train.py", "--epochs", "3", "--validation", "10", "--jit", "on", "--samples", "640")
    assert changed.training == Training("train.py:41", 64, 640, 3) and changed.validation == 10
    assert changed.switches == {"residence": "tf.data", "jit_compile": "on", "data": "script"}
    assert requested("train.py", "--", "--lr", "0.1").training.model == "train.py:41 --lr 0.1"
    module = plan("-m", "package.train", "--fit", "60")
    assert module.subject == TrainingScript(name="package.train", arguments=(), time_limit_s=60, fit="60")
    own_script(samples=None)
    with pytest.raises(options.Usage, match=r"train.py, fit at line 41: its data do not tell how many samples"):
        requested("train.py")
    assert requested("train.py", "--samples", "640").training.samples == 640


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


def test_missing_numbers_are_assumed_or_an_articles(own_model):
    assert requested("--model", "own:build").assumed == ("batch", "samples", "epochs")
    assert requested("--model", "own:build", "--batch", "64", "--epochs", "2").assumed == ("samples",)
    assert requested("--model", "mlp-784-100x2-10", "--batch", "64").assumed == ("samples", "epochs")
    assert requested("--model", "lenet").assumed == requested("--case", "S0").assumed == ()


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


def test_what_is_measured_first_is_the_real_step(tmp_path):
    e = explained()
    parts = measure.parts(KnownCosts.from_explanation(e), e.request, sources(), ["cpu", "gpu:0"])
    assert [part.name for part in parts] == ["its own step on the CPU", "its own step on the GPU"]
    bare = Sources(cpu=profile.Profile((), CPU_MACHINE), gpu=None)
    names = ["its own step on the CPU", "dispatch on the CPU"]
    parts = measure.parts(KnownCosts(), e.request, bare, ["cpu"])
    assert [part.name for part in parts] == names
    assert parts[0].command[:3] == ("workloads.training", "--model", "cifar10-cnn")
    parts = measure.parts(KnownCosts(), e.request, bare, ["cpu"], everything=True)
    names += ["its convolutions on the CPU", "its dense layers on the CPU", "passes over memory on the CPU"]
    assert [part.name for part in parts] == names and {part.process for part in parts} == {"cpu"}
    on_gpu = measure.parts(KnownCosts(), e.request, bare, ["gpu:0"])
    assert [part.process for part in on_gpu] == ["training on gpu:0", *["gpu:0"] * 5]
    assert on_gpu[-2].name == "copies to the GPU"


@pytest.mark.parametrize(
    ("batch", "samples", "measured"),
    [
        (32, 100, 100),  # never more than there are
        (32, 3200, 2048),
        (32, 50_000, 2048 + 16),  # 1,562 whole batches and one of 16, for which XLA compiles once more
        (256, 50_000, 64 * 256 + 80),
        (4, 50_000, 2048),
    ],
)
def test_a_step_is_measured_with_its_smaller_batch(batch, samples, measured):
    """64 steps or 2,048 samples, whichever are more."""
    request = Request(Training("cifar10-cnn", batch, samples, 10))
    words = measure.step(request, "cpu").command
    told = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    assert (told["--batch"], told["--samples"], told["--epochs"]) == (str(batch), str(measured), "1")


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


def test_the_estimate_is_of_what_was_just_timed():
    """Starting took 20 s. Predicted: 3 s of compilation and steps of 1.2 s, 17 of them; without it 8 layers of 80 a start."""
    request = msgspec.structs.replace(explained().request, starting_s=20.0)
    cost = TrainingCost(dataset_setup=NOTHING, epoch=NOTHING, step=exact(1.2), compile=exact(3.0), source="predicted")
    side = Side(device="cpu", training=request.training, cost=cost)
    part = measure.step(request, "cpu", side)
    assert part.seconds == pytest.approx(3 + 17 * 1.2)
    layers = len(request.model.layers)
    part = measure.step(request, "cpu")
    assert part.seconds == pytest.approx(20 * layers / 80 + 12)
    assert measure.seconds([part, part], request) == pytest.approx(20 + 2 * part.seconds)
    assert measure.seconds([part], explained().request) == pytest.approx(10 + part.seconds)


def test_what_was_measured_before_a_signal_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(profiles, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)

    def stopped(parts, folder, budget, say):
        written(folder.with_name(f"{folder.name}-1"), CPU_MACHINE)
        raise options.Terminated

    monkeypatch.setattr(measure, "run", stopped)
    stored = written(tmp_path / "stored")
    asked = "--model", "lenet", "--measure", "--gpu-profile", stored
    code, _, err = said(capsys, *asked)
    assert code == options.TERMINATED and err[-1].startswith("stopped with rows that the next answer takes: ")
    assert err[-1].endswith("-1/launch.jsonl")
    noisy = Failure(part="its own step on the CPU", reason="too noisy to tell")
    broken = Failure(part="its own step on the CPU", reason="no memory")
    slow = Failure(part="its convolutions on the CPU", reason="the time was spent", budget_s=300)
    typed = f"analysis.explain --model lenet --gpu-profile {stored} --measure"
    for failures, shown, retry in (
        ([], [noisy], [f"{typed} --wait-quiet"]),
        ([broken], [broken], []),
        ([slow, broken], [slow, broken], [f"{typed} --budget 300"]),
    ):
        monkeypatch.setattr(measure, "run", lambda *given, failures=tuple(failures): [*failures])
        _, *reasons = said(capsys, *asked)[2]
        hints = reasons[len(shown) :]
        assert reasons[: len(shown)] == [f"not measured: {failure.part}: {failure.reason}" for failure in shown]
        assert [line.partition(" -m ")[2] for line in hints] == retry


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


def test_a_verified_saving_compares_with_its_prediction(monkeypatch):
    """A step of 10 ms [5, 40], measured as 8 ms. At four times the batch 20 ms were measured: 8 - 20 / 4 = 3 ms saved, where 4
    [1, 7] were predicted: off by 10 % of the step."""
    base = SimpleNamespace(
        training=Training("lenet", 32, 320), settings=Settings("cpu"), step_s=Estimate(10e-3, 5e-3, 40e-3)
    )
    change = what_if.Change(words="batch 128", training=Training("lenet", 128, 320), settings=Settings("cpu"))
    monkeypatch.setattr(verify, "plan", lambda explanation, most: [(change, Estimate(4e-3, 1e-3, 7e-3))])
    seconds = {"as it is": Estimate(8e-3, 7e-3, 20e-3), "batch 128": Estimate(20e-3, 10e-3, 90e-3)}
    lines = list(
        verify.lines(SimpleNamespace(main=base, withheld=False), 3, lambda change, folder: seconds[change.words])
    )
    assert "measured 3.00 ms" in lines[-1] and lines[-1].endswith("(off by 10.0 % of the step)")
    with pytest.raises(options.Missing, match="no prediction to verify"):
        list(verify.lines(SimpleNamespace(main=None), 3))


def test_useless_and_unknown_changes_are_not_verified():
    def change(words: str, saves: float | None, step: float | None):
        return SimpleNamespace(
            change=words,
            job_saved=None if saves is None else Estimate(saves, saves - 9, saves + 9),
            step_saved=None if step is None else exact(step),
        )

    what_ifs = [
        change("a", 5.0, 1.0),
        change("b", -1.0, 1.0),
        change("c", None, 1.0),
        change("d", 4.0, None),
        change("e", 3.0, 2.0),
    ]
    found = [words for words, _ in verify.plan(SimpleNamespace(what_ifs=what_ifs), 9)]
    assert found == ["a", "e"] and len(verify.plan(SimpleNamespace(what_ifs=what_ifs), 1)) == 1
