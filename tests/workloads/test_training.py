"""python -m workloads.training: which rows its words make, what it refuses and how, its table, its plan and its studies."""

import importlib.util
import itertools
import json
import shlex
import sys
import types
import zipfile
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row
from fake_trainings import trained

from analysis.predict import budget, profile
from analysis.predict.__main__ import parser
from analysis.predict.profile import stored
from analysis.text import training as training_words
from analysis.training import costs
from kernels.problems import Training
from workloads import inference, options, records, session, training
from workloads.frameworks import grid, side_by_side, studies
from workloads.harness import runner, sweep
from workloads.records import Measurement, Samples, Settings
from workloads.tables import training_table

FIT = "training/keras/fit"


def planned(*words) -> training.TrainingPlan:
    """Parsed as if typed; a word with spaces in it is many."""
    return training.parse([part for word in words for part in word.split() or [word]])


def rows(*words, here=GPU_MACHINE):
    return planned(*words).rows(here)


def measured(*words, shown=session.print_no_row) -> sweep.Outcome:
    """The trainings of these words, measured here."""
    plan = planned(*words)
    run = session.begin(plan)
    return plan.measure(run, plan.rows(run.machine), shown)


def shapes(found):
    return [(r.kernel, r.problem.model, r.problem.batch, r.problem.samples, r.problem.epochs) for r in found]


def chosen(found, *keys):
    """The device of each row, with all of its switches or those values of them."""
    every = [(r.settings.device, r.settings.switches) for r in found]
    return [(d, *map(s.get, keys)) if keys else (d, s) for d, s in every]


def ways(found):
    """The way that each row trains, and where its samples live."""
    return [(r.kernel.partition("/")[2], r.settings.switches.get("residence")) for r in found]


def test_simple_calls_are_one_row_per_device(tmp_path):
    found = rows("--model", "cifar10-cnn", "--samples", "1000", "--epochs", "2")
    assert shapes(found) == [(FIT, "cifar10-cnn", 32, 1000, 2)] * 2
    assert chosen(found) == [(d, {"data": "synthetic"}) for d in ("cpu", "gpu:0")]
    assert shapes(rows(here=CPU_MACHINE)) == [(FIT, "cifar10-cnn", 32, 2048, 1)]
    found = rows("--batch 8,32 --steps 10 --threads 4")
    expected = [(b, 10 * b, *on) for b in (8, 32) for on in (("cpu", 4), ("gpu:0", None))]
    assert [(r.problem.batch, r.problem.samples, r.settings.device, r.settings.threads) for r in found] == expected
    file = tmp_path / "mine.keras"
    with zipfile.ZipFile(file, "w") as saved:
        saved.writestr("config.json", "{}")
    found = rows("--model", "tests.support.own_models:classes", str(file), "--device", "cpu")
    assert [r.problem.model for r in found] == ["tests.support.own_models:classes", str(file)]
    assert {(r.problem.batch, r.problem.samples) for r in found} == {(32, 2048)}


def test_peaks_trains_all_samples_in_one_batch(monkeypatch):
    for jax in (False, True):
        monkeypatch.setattr(studies, "available", lambda library, jax=jax: jax)
        found = rows("--model", "peaks", "--samples", "100", "1000", "--device", "cpu")
        jaxs = [("jax/keras_loop", "resident"), ("jax/keras_loop", "fed")] if jax else []
        loops = [("tensorflow/loop", "resident"), ("tensorflow/loop", "fed"), *jaxs]
        assert ways(r for r in found if r.problem.samples == 100) == [("keras/fit", None), *loops]
        assert {(r.problem.batch, r.problem.samples) for r in found} == {(100, 100), (1000, 1000)}
        assert {r.problem.epochs for r in found} == {studies.FULL_BATCH_EPOCHS}
    assert {r.problem.batch for r in rows("--model", "peaks", "--device", "cpu")} == {40_000}
    few = rows("--model peaks --batch 64 --epochs 3")
    assert {(r.problem.batch, r.problem.epochs) for r in few} == {(64, 3)}


def test_generators_types_epochs_and_threads_are_flags():
    sizes = {"width": ["10,100"], "depth": ["1"], "inputs": ["20"], "outputs": ["3"], "hidden_layers": ["2:4:+2"]}
    found = grid.models(["mlp", "fashion-mlp"], sizes)
    assert found == ["mlp-20-10x1-3", "mlp-20-100x1-3", "fashion-mlp-2", "fashion-mlp-4"]
    assert grid.models(["mlp", "fashion-mlp"], {}) == ["mlp-784-500x2-10", "fashion-mlp"]
    found = rows("--dtypes", "float64", "uint8", "--epochs", "1", "3", "--threads", "2", "--device", "cpu")
    here = [(r.problem.epochs, r.problem.dtype, r.settings.threads) for r in found]
    assert here == [(epochs, dtype, 2) for epochs in (1, 3) for dtype in ("float64", "uint8")]


def test_switches_make_every_combination_where_they_do_something():
    found = rows("--jit", "on", "off", "--steps-per-execution", "1", "10", "--device", "gpu")
    assert [{k: v for k, v in r.settings.switches.items() if k != "data"} for r in found] == [
        {"jit_compile": j, **({"steps_per_execution": "10"} if s == 10 else {})}
        for j, s in itertools.product(("on", "off"), (1, 10))
    ]
    assert chosen(rows("--tf32", "on", "off"), "tf32") == [("cpu", None), ("gpu:0", None), ("gpu:0", "off")]
    onednn = rows("--onednn", "on", "off")
    assert chosen(onednn, "TF_ENABLE_ONEDNN_OPTS") == [("cpu", "1"), ("cpu", "0"), ("gpu:0", None)]
    of_peaks = "--model peaks --targets float32 float64 --device cpu --residence numpy resident"
    peaks = rows(of_peaks, "--jit off --precision mixed_bfloat16")
    assert [r.settings.switches for r in peaks if r.kernel == "training/tensorflow/loop"] == [
        {"data": "synthetic", "residence": "resident", "jit_compile": "off", "precision": "mixed_bfloat16", **more}
        for more in ({}, {"targets": "float64"})
    ]
    assert {r.settings.switches.get("precision") for r in peaks if r.kernel == FIT} == {"mixed_bfloat16"}
    every = rows("--dropout on off --shuffle off --keras-backend tensorflow jax --device cpu")
    assert len(every) == 4 and {r.settings.switches["shuffle"] for r in every} == {"off"}


def test_a_residence_selects_its_kernel(monkeypatch):
    monkeypatch.setattr(studies, "available", lambda library: True)
    found = rows("--residence", "numpy", "tf.data", "resident", "--device", "gpu")
    assert ways(found) == [("keras/fit", None), ("keras/fit", "tf.data"), ("keras/resident", "resident")]
    found = rows("--variants", "loop", "--residence", "fed", "--device", "gpu")
    assert [r.kernel for r in found] == ["training/tensorflow/loop", "training/jax/keras_loop"]
    found = rows("--backends", "jax", "--device", "gpu", "--jit", "on")
    expected = [("training/jax/keras_loop", {"data": "synthetic", "residence": home}) for home in ("resident", "fed")]
    assert [(r.kernel, r.settings.switches) for r in found] == expected


@pytest.mark.parametrize(
    ("command", "words", "missing", "said"),
    [
        (training, "--device cpu", "tensorflow", "keras"),
        (inference, "--device cpu", "tensorflow", "keras"),
        (training, "--backends jax --dry-run", "jax", "jax"),
    ],
)
def test_an_unavailable_library_exits_3(command, words, missing, said, monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == missing else real(name, *a))
    assert command.main(words.split()) == 3
    error, tip = capsys.readouterr().err.splitlines()
    assert error == f"error: {said} is not installed" and tip.endswith(f"-m pip install {missing}")
    with pytest.raises(options.Missing):
        command.run(**({"device": ["cpu"]} if "cpu" in words else {"backends": ["jax"]}))
    assert "tensorflow" not in sys.modules


def test_the_table_explains_a_trainings_parts_once(capsys, monkeypatch):
    """An epoch of 1 ms beside its steps that spread over 10 ms: nothing is known but its upper end."""
    table = training_table.TrainingTable()
    cost = (0.1, 0.05, 2e-3)
    table.add(trained("cifar10-cnn", 32, 50_000, cost, device="gpu:0", epochs=10, once=(9.0, 0.4, 6.6)))
    table.add(trained("fashion-mlp", 2048, 60_000, cost, jit_compile="on", threads=16, residence="generator"))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[-8:] == ["ms/fit", "comp.", "s", "start", "s", "whole", "s", "notes"]
    # 9 start, 0.4 build, 6.6 compile, 0.1 a fit, 10 x (0.05 + 1563 x 0.002)
    assert " ".join(first.split()) == "cifar10-cnn 32 50000 10 gpu:0 fit 2.00 50.0 100 6.60 9.00 47.9 jit"
    assert "cpu x16" in second and "generator" in second and max(map(len, (head, first, second))) <= 120
    table = training_table.TrainingTable()
    table.add(row(FIT, Training("cifar10-cnn", 4, 8), 0.012, values={"jit_compile": 0.0}))
    assert capsys.readouterr().out.splitlines()[1].split()[6:] == ["12.0", "-", "-", "-", "-", "-", "op", "by", "op"]
    m = trained("cifar10-cnn", 32, 320, (0.0, 1e-3, 1e-2), epochs=2, noise=0.05)
    table = training_table.TrainingTable()
    table.add(m)
    shown = capsys.readouterr().out.splitlines()[1].split()
    end = costs.measured(m).epoch.high
    assert costs.measured(m).epoch.low < 0 < end and shown[7] == f"<{end * 1e3:.0f}"
    table.add(m)
    table.finish()
    out = capsys.readouterr().out
    assert out.count("ms/ep") == 1 and "<: less than" in out and "in a process of its own." in out
    training_table.TrainingTable().finish()
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("COLUMNS", "80")
    (narrow := training_table.TrainingTable()).add(m)
    narrow.finish()
    assert "maybe nothing; ms/step: a step; whole s: start-up" in capsys.readouterr().out


class Counted:
    """Stands for a worker: answers at once, and counts the processes and rows."""

    started: ClassVar[list] = []
    asked: ClassVar[list] = []

    def __init__(self, variables, patient):
        self.variables, self._running = variables, False

    def ask(self, order, timeout_s):
        if not self._running:
            Counted.started.append(self.variables)
        self._running = True
        Counted.now += 50.0
        Counted.asked.append(order.row)
        taken = (Samples("host-latency", (0.1, 0.1), 1, (1, 1), "once"),)
        return order.row.result("ok", samples=taken)

    def close(self):
        self._running = False


@pytest.fixture
def counted(monkeypatch):
    Counted.started, Counted.asked, Counted.now = [], [], 0.0
    monkeypatch.setattr(runner, "Worker", Counted)
    monkeypatch.setattr(training, "products", lambda here, done: [])
    return Counted


def test_an_environments_rows_share_a_process(counted, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "time", types.SimpleNamespace(monotonic=lambda: counted.now, sleep=None))
    flags = ["--device", "cpu", "--batch", "1", "2", "4", "--onednn", "on", "off", "-q", "-o", str(tmp_path)]
    assert training.main([*flags, "--stop-after", "120"]) == 0
    assert len(counted.asked) == 2  # 50 s each, of 12 that were guessed: a third would end at 150
    assert "--resume" in capsys.readouterr().err
    assert training.main([*flags, "--resume"]) == 0
    assert [r.settings.switches["TF_ENABLE_ONEDNN_OPTS"] for r in counted.asked] == ["1", "0"] * 3
    assert len(counted.started) == 4  # side by side, before the stop and after it
    assert training.main([*flags, "--resume"]) == 0
    assert len(counted.asked) == 6
    assert len(records.read(tmp_path).measurements) == 6


def test_studies_share_a_folder(counted, monkeypatch, tmp_path):
    seen = []

    def beside(name, measuring, run, shown):
        seen.append((measuring.output, measuring.stop_after_s))
        m = trained("mnist-cnn", 32, 2048, (0.0, 0.0, 1e-3), beside="fits", at_once="2")
        shown(m)
        return sweep.Outcome(run, tmp_path / "training-together.jsonl", [m])

    monkeypatch.setattr(side_by_side, "measure", beside)
    monkeypatch.setattr(sweep, "LOCAL", tmp_path / "local")
    shown = []
    outcome = measured("--study epochs together --device cpu -q", shown=shown.append)
    (first,) = (tmp_path / "local").glob("*/*/training.jsonl")
    assert seen == [(str(first.parent), None)]
    models = [[m.problem.model for m in each] for each in (outcome.measurements, shown)]
    assert models == [["fashion-mlp", "mnist-cnn"]] * 2
    words = ("--study epochs together --device cpu -q --stop-after 1e-9 -o", str(tmp_path / "b"))
    outcome = measured(*words)
    assert (outcome.stopped, len(seen)) == ("stop-after", 1)
    assert outcome.left == 1 + len(side_by_side.rows("together", planned(*words).measuring, outcome.run.machine))
    outcome = measured("--study", "together", "--device", "cpu", "-q", "-o", str(tmp_path / "c"))
    assert [m.problem.model for m in outcome.measurements] == ["mnist-cnn"]


def test_rows_of_starts_have_their_times(capsys):
    started = {"import_s": (8.0, 9.0, 10.0), "device_start_s": (0.04, 0.05, 0.06)}
    once = started | {"build_s": (0.1, 0.1, 0.2), "first_call_s": (1.1, 0.9, 1.0)}
    phases = {"import": 10.0, "device_start": 0.06, "build": 0.2, "first_call": 1.0}
    settings = Settings("cpu", process="fresh", switches={"data": "synthetic"})
    of = {"phases_s": phases, "series": once, "values": {"jit_compile": 0.0}, "notes": {"gpu": "hidden"}}
    m = Measurement(FIT, Training("cifar10-cnn", 32, 1024), settings, "ok", **of)
    training_table.TrainingTable().add(m)
    shown = capsys.readouterr().out.splitlines()[1].split()[6:]
    assert shown == ["-", "-", "-", "-", "9.05", "-", "op", "by", "op", "3", "starts"]
    assert training_words.lines([m]) == [  # 9 + 0.05 + 0.1 + 1 s
        "CIFAR-10 CNN on the CPU, 3 fresh processes: 10.2 s until the first step ends, 9.00 s of it importing the framework."
    ]
    warm = Measurement(FIT, m.problem, Settings("cpu"), "ok", **of)  # it trained on: its start is no answer
    assert training_words.start_sentences([warm]) == []


def saved(path, *told: tuple[str, dict], model: str = "cifar10-cnn") -> str:
    """A file of predictions of a model at batch 64, on such devices with such switches."""
    from analysis.predict import saved_predictions
    from analysis.predict.prediction import Prediction
    from analysis.stats import NOTHING

    predictions = []
    for device, given in told:
        one = Prediction(
            training=Training(model, 64, 640),
            settings=Settings(device, switches={"data": "synthetic", **given}),
            parts={},
            step_s=NOTHING,
            epoch_s=NOTHING,
            fit_s=NOTHING,
            compile_s=NOTHING,
            start_s=NOTHING,
            execution="op by op",
            partial=(),
            profile="somewhere",
        )
        predictions.append(one)
    saved_predictions.save(str(path), predictions)
    return str(path)


def test_saved_predictions_are_measured_and_checked(tmp_path):
    given = ("cpu", {}), ("gpu:0", {"jit_compile": "on"}), ("gpu:0", {"residence": "resident"}), ("cpu", {})
    file = saved(tmp_path / "p.ndjson", *given)
    found = rows("--predicted", file)
    assert [(r.kernel, r.settings.device, r.settings.switches) for r in found] == [
        (FIT, "cpu", {"data": "synthetic"}),
        (FIT, "gpu:0", {"data": "synthetic", "jit_compile": "on"}),
        ("training/keras/resident", "gpu:0", {"data": "synthetic", "residence": "resident"}),
    ]
    assert {r.problem for r in found} == {Training("cifar10-cnn", 64, 640)}
    assert [r.settings.device for r in rows("--predicted", file, here=CPU_MACHINE)] == ["cpu"]
    of_gpu = saved(tmp_path / "q.ndjson", ("gpu:0", {}))
    for words, told in (
        (["--predicted", of_gpu, "--batch", "8"], "--predicted brings its own rows; leave --batch out"),
        (["--predicted", of_gpu, "--study", "seeds"], "leave --predicted out"),
        (["--predicted", of_gpu, "--device", "cpu"], "has predictions for gpu:0; asked for: cpu"),
        (["--predicted", str(tmp_path / "none")], "holds no predictions"),
        (["--predicted", ""], "'' names nothing"),
    ):
        with pytest.raises(options.Usage, match=told):
            rows(*words)


def test_a_file_without_predictions_is_not_proposed(tmp_path, capsys):
    """A readme, and an empty file: the command that is offered makes another file, and its words are the flags that there are."""
    for text, why in (("# Crossover", "line 1: JSON is malformed"), ("", "it is empty")):
        (file := tmp_path / "README.md").write_text(text)
        assert training.main(["--predicted", str(file), "--dry-run"]) == 2
        error, tip = capsys.readouterr().err.splitlines()
        assert error.startswith(f"error: {file} holds no predictions: {why}") and "--save" not in error
        words = shlex.split(tip.partition("-m analysis.predict ")[2])
        args = parser().parse_args(words)
        assert (args.model, args.profile, args.save) == (["cifar10-cnn"], ["nvidia-h200"], "predicted.ndjson")
        assert stored(args.profile[0]).is_file() and file.read_text() == text


def test_predictions_for_other_devices_are_counted(tmp_path, capsys):
    given = ("cpu", {}), ("gpu:0", {}), ("gpu:1", {}), ("gpu:0", {"jit_compile": "on"})
    file = saved(tmp_path / "p.ndjson", *given)
    assert len(rows("--predicted", file, here=CPU_MACHINE)) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{file}: 2 of 4 predictions left out, being for gpu:0; taken: cpu",
        f"{file}: 1 of 4 predictions left out, being for gpu:1; taken: cpu",
    ]
    assert len(rows("--predicted", file, "--quiet", here=CPU_MACHINE)) == 1
    assert capsys.readouterr().err == ""
    file = saved(tmp_path / "p.ndjson", ("cpu", {}), model="nonsense")
    with pytest.raises(options.Usage, match=r"p\.ndjson: unknown model 'nonsense'; known: "):
        rows("--predicted", file)


def test_the_command_from_flags_to_budget(one_tensorflow, tmp_path, capsys):
    folder = tmp_path / "run"
    words = "--device cpu --batch 4 --steps 2 --fast --max-time 0.01 --min-time 0.001 -q -o"
    flags = [*words.split(), str(folder)]
    assert training.main(flags) == 0
    out = capsys.readouterr().out
    assert "op by op" in out and "CIFAR-10 CNN, batch 4, 8 samples, 1 epoch, on the CPU: " in out
    assert "Its largest parts" not in out  # what a step's dispatch takes is not known
    assert training.main([*flags, "--resume", "-v"]) == 0
    out = capsys.readouterr().out
    assert "CIFAR-10 CNN, batch 4, on the CPU: a step takes" in out and "Its largest parts" in out
    read = records.read(folder).measurements
    assert [m.kernel for m in read] == ["training/keras/fit"] + ["matmul/numpy/blas"] * 6
    assert {m.status for m in read} == {"ok"}
    made = budget.budgets(profile.Profile(read))[0]
    told = sum(p.seconds.value for p in made.parts if p.seconds)
    assert 0 < told == pytest.approx(made.step.value - made.remainder.value)
    assert training.main([*flags, "--resume", "--format", "json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["model"], line["status"]) == ("cifar10-cnn", "ok")
    assert line["median_s"] == pytest.approx(np.median(read[0].samples[0].seconds))
    assert records.read(folder).measurements == read


def test_a_plan_as_json_is_one_object(capsys):
    """The arrays of a training of LeNet take more than one batch of its images: 32 of 28 x 28 values of float32."""
    words = ["--model", "lenet", "--samples", "64", "--device", "cpu", "--dry-run", "--format", "json", "-q"]
    assert training.main(words) == 0
    planned = json.loads(capsys.readouterr().out)
    (row,) = planned["rows"]
    assert (row["problem"]["model"], row["problem"]["samples"], row["problem"]["batch"]) == ("lenet", 64, 32)
    assert planned["largest_bytes"] > 32 * 28 * 28 * 4 and planned["seconds_at_most"] > 0


def test_products_follow_the_trainings_that_ran(capsys):
    cpu = row("training/keras/fit", Training("cifar10-cnn", 32, 64), 0.02, values={"tf32": 0.0})
    gpu = row("training/keras/fit", Training("cifar10-cnn", 32, 64), 0.002, device="gpu:0", values={"tf32": 1.0})
    lost = row("training/keras/fit", Training("cifar10-cnn", 8, 64), None, status="failed")
    found = training.products(GPU_MACHINE, [cpu, gpu, lost])
    expected = [("matmul/numpy/blas", "cpu", 16, "float32"), ("matmul/cupy/cublas", "gpu:0", None, "tf32")]
    assert [(r.kernel, r.settings.device, r.settings.threads, r.problem.math) for r in found[::6]] == expected
    assert len(found) == 12
    done = [cpu, gpu, *(r.result("ok") for r in found)]
    assert training.products(GPU_MACHINE, done) == []
    small, phases = Training("cifar10-cnn", 4, 8), {"import": 4.0, "device_start": 1.0}
    lost = row("training/keras/fit", small, None, device="gpu:0", status="failed", reason="no luck", phases_s=phases)
    table = training_table.TrainingTable()
    table.add(lost)
    table.add(row("matmul/numpy/blas", budget.gemms(row("training/keras/fit", small, 0.1))[0], 1.0))
    head, line = capsys.readouterr().out.splitlines()
    assert "ms/step" in head and "failed" in line and line.endswith("no luck") and "5.00" in line


def test_unavailable_real_data_exit_with_3(monkeypatch, capsys, tmp_path):
    reason = "CIFAR-10 cannot be loaded: no way"
    lost = row(
        "training/keras/fit", Training("cifar10-cnn", 4, 8), None, status="failed", reason=reason, cause="no-data"
    )
    monkeypatch.setattr(sweep, "sweep", lambda *given, **more: SimpleNamespace(measurements=[lost]))
    assert training.main(["--device", "cpu", "--data", "real", "-q", "-o", str(tmp_path)]) == 3
    said = capsys.readouterr().err.splitlines()
    works = f"{options.python()} -m workloads.training --device cpu --data synthetic -q -o {tmp_path}"
    assert said == ["error: CIFAR-10 cannot be loaded: no way", f"  try: {works}"]
