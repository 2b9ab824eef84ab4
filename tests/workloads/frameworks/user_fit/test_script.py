"""A user's training script runs as it is up to its first fit: what the call says, that nothing after it runs, and how a script
without such a call ends. The scripts are those of tests/support/scripts, whose docstrings say their numbers."""

import os
import pathlib
import shutil
import sys

import pytest

from kernels.problems import Training
from workloads import ROOT, options
from workloads.frameworks.tracing.step import RUNS_EAGERLY
from workloads.frameworks.user_fit import script, script_run
from workloads.harness.dispatch import Broken
from workloads.records import Row, Settings, script_files, settings
from workloads.records.script_fit import DescribedScript, Timing
from workloads.shared_flags import Limits

SCRIPTS = pathlib.Path(__file__).parents[3] / "support" / "scripts"
LIMIT_S = 120


@pytest.fixture
def run(monkeypatch, tmp_path):
    """run(name, argument, ...): the description of a script, copied into an empty folder; nothing may be written there."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)

    def described(name: str, *arguments: str, fit: str = "") -> DescribedScript:
        shutil.copy(SCRIPTS / name, tmp_path)
        answer = script.described(name, arguments, LIMIT_S, fit)
        assert os.listdir(tmp_path) == [name]
        return answer

    return described


def numbers(described: DescribedScript) -> tuple:
    fit = described.fit
    return fit.samples, fit.batch, fit.epochs, fit.validation


def test_arrays_and_the_arguments_of_a_script(run):
    """Its `finally` and its atexit function write a file: neither runs."""
    described = run("arrays.py", "--batch", "60")
    assert numbers(described) == (1200, 60, 7, 200)
    fit = described.fit
    assert (fit.head, fit.inputs, fit.dtype) == ("arrays.py, fit at line 29", 1, "float64")
    assert (fit.other_fits, fit.strategy) == ((), "")
    assert (fit.stops_early, fit.keras_options) == (False, {})
    assert described.network.input == (8, 8, 3)
    step = described.network.traced
    # 6 x 6 places of 3 x 3 windows of 3 channels, 4 filters; the images' gradient is not needed
    convolution = 2 * 36 * 27 * 4
    assert sum(o.step_flops(60) for o in step.operations if o.kind == "conv") == 2 * 60 * convolution
    assert (step.batch, step.weights) == (60, 27 * 4 + 4 + 144 * 10 + 10)


def test_a_model_can_depend_on_its_pipeline(run):
    described = run("pipeline.py")
    assert numbers(described) == (800, 16, 3, 0)
    assert described.fit.keras_options == {"residence": "tf.data", "steps_per_execution": "2"}
    assert (described.fit.place, described.network.input) == ("line 19", (20,))
    assert (described.network.optimizer, described.network.traced.weights) == ("sgd", 20 * 32 + 32 + 32 * 5 + 5)


def test_early_stopping_and_a_validation_split(run):
    """model.save() after fit writes a file: it does not run."""
    described = run("stopping.py")
    assert numbers(described) == (800, 32, 20, 200)
    assert described.fit.stops_early


@pytest.mark.parametrize(("words", "samples"), [((), 1000), (("endless",), None)])
def test_a_generator_has_the_samples_of_its_steps(run, words, samples):
    described = run("generator.py", *words)
    assert numbers(described) == (samples, 25, 4, 0)
    assert described.fit.keras_options == {"residence": "generator"}


def test_a_notebook(run):
    """The cell after fit writes a file: it does not run."""
    described = run("notebook.ipynb")
    assert numbers(described) == (640, 64, 2, 0)
    assert described.fit.place == "cell 3, line 4"


def test_a_broken_notebook_blames_none_of_its_lines(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.ipynb").write_text("[]")
    with pytest.raises(options.Usage) as stop:
        script.described("train.ipynb", (), LIMIT_S)
    assert str(stop.value) == "train.ipynb is no notebook that can be read: its JSON is not an object with cells"
    assert stop.value.first == "mend train.ipynb"


def test_scripts_without_a_fit_end_in_one_line(run):
    with pytest.raises(options.Usage) as stop:
        run("raises.py")
    assert str(stop.value) == "raises.py, line 4, before any fit: KeyError: 'y'"
    assert stop.value.first == "mend raises.py"
    with pytest.raises(options.Usage) as stop:
        run("without_fit.py")
    assert str(stop.value) == "without_fit.py ends without fit"
    assert stop.value.first == "write model.fit(x, y, batch_size=32, epochs=10) where its training begins"


@pytest.mark.parametrize(("fit", "numbers_"), [("", (64, 32, 2, 0)), ("17", (48, 16, 5, 16))])
def test_another_fit_is_described_by_its_line(run, fit, numbers_):
    """Line 14 writes `between` if the fit before it has trained more than a step."""
    described = run("two_fits.py", fit=fit)
    assert numbers(described) == numbers_
    assert described.fit.other_fits == (("10",) if fit else ("17",))
    assert described.fit.strategy == "MirroredStrategy"


def test_a_fit_that_is_not_there_is_corrected(run):
    with pytest.raises(options.Usage) as stop:
        run("two_fits.py", fit="11")
    assert (str(stop.value), stop.value.right) == ("two_fits.py calls no fit at 11; it calls one at 10, 17", "10")


def test_a_script_imports_from_its_folder(monkeypatch):
    monkeypatch.setattr(sys, "path", ["packages", str(ROOT)])
    monkeypatch.setattr(sys, "modules", {})
    script_run._remove_our_packages(str(ROOT))
    assert sys.path == [str(ROOT), "packages"]


def test_a_module_runs_as_python_does(run, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "data.py").write_text("import numpy as np\n\nx, y = np.zeros((64, 4)), np.zeros((64, 1))\n")
    shutil.copy(SCRIPTS / "relative.py", package / "train.py")
    fit = script.described("package.train", ("--epochs", "3"), LIMIT_S).fit
    assert (fit.head, fit.samples, fit.epochs) == ("package.train, fit at line 11", 64, 3)


TIMED = {
    # script, its batch, its samples, its residence
    "arrays.py": (29, 48, 240, "numpy"),
    "pipeline.py": (19, 16, 80, "tf.data"),
    "generator.py": (17, 25, 125, "generator"),
    "own_step.py": (28, 8, 40, "numpy"),
}


@pytest.mark.parametrize("name", TIMED)
def test_a_fit_is_timed_and_the_script_ends(monkeypatch, tmp_path, name):
    line, batch, samples, residence = TIMED[name]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    shutil.copy(SCRIPTS / name, tmp_path)
    switches = settings.without_defaults({"data": "script", "residence": residence})
    training = script_files.ScriptTraining(script=name, fit=str(line))
    row = Row("training/keras/fit", Training(training.name, batch, samples), Settings(switches=switches))
    announced = []
    timing = Timing(row=row, limits=Limits(max_time=0.1, slow_step_s=0.1))
    m = script.timed(training, timing, lambda doing: announced.append(doing.words))
    assert (m.status, m.row.key, os.listdir(tmp_path)) == ("ok", row.key, [name])
    assert m.on("host-latency").calls == 5
    assert m.values["input_step_s"] > 0 and m.phases_s["import"] > 0 and len(m.notes["source"]) == 16
    assert announced[0] == "compiling" and announced[-1] == "timing the data alone"


def test_a_failing_fit_names_the_users_line(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shutil.copy(SCRIPTS / "fails_later.py", tmp_path)
    training = script_files.ScriptTraining(script="fails_later.py", fit="15")
    row = Row("training/keras/fit", Training(training.name, 4, 40), Settings(switches={"data": "script"}))
    with pytest.raises(Broken) as error:
        script.timed(training, Timing(row=row, limits=Limits(max_time=0.1)), lambda doing: None)
    reason = "its fit fails in line 10 of fails_later.py: ValueError: no third batch"
    assert str(error.value) == f"fails_later.py, fit at line 15: {reason}"


@pytest.fixture
def train(monkeypatch, tmp_path):
    """train(code, seconds): the message of the Stop with which a script of that code ends."""
    monkeypatch.chdir(tmp_path)

    def message(code: str, seconds: float = LIMIT_S) -> str:
        (tmp_path / "train.py").write_text(code)
        with pytest.raises(options.Stop) as stop:
            script.described("train.py", (), seconds)
        return str(stop.value)

    return message


def test_a_model_of_keras_2_trains_nothing(train, tmp_path):
    """The script imports a module of its own that has the name of one of our packages."""
    package = tmp_path / "tf_keras" / "src" / "engine"
    package.mkdir(parents=True)
    write = "open('trained.txt', 'w')"
    (package / "training.py").write_text(f"class Model:\n    def fit(self, x=None):\n        {write}\n")
    (tmp_path / "analysis.py").write_text("from tf_keras.src.engine.training import Model\n")
    reason = "its model is of tf_keras, which is Keras 2: import keras (3) instead"
    assert train("import analysis\n\nanalysis.Model().fit(1)\n") == f"train.py, fit at line 3: {reason}"
    assert not (tmp_path / "trained.txt").exists()


def test_what_a_script_does_before_its_fit(monkeypatch, tmp_path):
    """Two lines, a sleep of 0.2 s, a file that stays and one that does not; the step runs as Python, so that it has no
    operations."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        """import os, time, keras, numpy as np
print("one\\ntwo")
time.sleep(0.2)
open("data.csv", "w").write("1")
open("gone.csv", "w").write("1")
os.remove("gone.csv")
open("data.csv").read()
m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
m.compile("adam", "mse", run_eagerly=True)
m.fit(np.zeros((64, 4)), np.zeros((64, 2)))
print("after")
"""
    )
    described = script.described("train.py", (), LIMIT_S)
    effects = described.fit.effects
    assert (effects.written, effects.slept_s, effects.printed) == ((str(tmp_path / "data.csv"),), 0.2, 2)
    assert (described.network.traced.untraced, described.network.traced.operations) == (RUNS_EAGERLY, ())


@pytest.mark.parametrize(("epochs", "trained"), [("0", "0"), ("2.5", "2.5"), ("3, initial_epoch=3", "0")])
def test_a_fit_without_whole_epochs_is_refused(train, epochs, trained):
    code = """import numpy as np, keras
m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
m.compile("adam", "mse")
m.fit(np.zeros((64, 4)), np.zeros((64, 2)), epochs=EPOCHS)
"""
    refused = train(code.replace("EPOCHS", epochs))
    assert refused == f"train.py, fit at line 4: its fit trains {trained} epochs"


def test_a_fit_without_a_whole_batch_is_refused(train):
    code = """import numpy as np, keras
m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
m.compile("adam", "mse")
m.fit(np.zeros((64, 4)), np.zeros((64, 2)), batch_size=1.5)
"""
    assert train(code) == "train.py, fit at line 4: its fit takes batches of 1.5 samples"


OTHER_SIZE = "train.py, fit at line 4: train.py: its data give (32, 4), and it takes (None, 5)"
REFUSED = {
    # 10^6 x 10^7 weights of 4 bytes, three times
    "keras.Sequential([keras.Input((10**7,)), keras.layers.Dense(10**6)])": (
        "train.py, line 2, before any fit: its weights, their gradients and the optimizer's state take 112000 GiB and more, "
    ),
    "keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])": OTHER_SIZE,
    "keras.Model(x := keras.Input((5,)), keras.layers.Dense(2)(x))": OTHER_SIZE,
}


@pytest.mark.parametrize(("model", "refusal"), REFUSED.items())
def test_an_oversized_or_mismatched_model_is_refused(train, model, refusal):
    code = f"""import numpy as np, keras
m = {model}
m.compile("adam", "mse")
m.fit(np.zeros((64, 4)), np.zeros((64, 2)))
"""
    assert train(code)[: len(refusal)] == refusal


def test_a_script_without_keras_fails_by_its_line(train):
    assert (
        train("x = 1\nx = (\n")
        == "train.py, line 2, before any fit: SyntaxError: '(' was never closed (train.py, line 2)"
    )
    assert train("x = 1\n\0\n").startswith(
        "train.py, before any fit: SyntaxError: source code string cannot contain null"
    )
    assert train("import argparse\nargparse.ArgumentParser().error('no data')\n").endswith(
        "ended before any fit with exit code 2: train.py: error: no data"
    )
    assert train("def load():\n    raise OSError('no data')\n\n\nload()\n").startswith(
        "train.py, line 2, before any fit: OSError"
    )


def test_what_a_script_starts_ends_with_its_time(train, tmp_path):
    code = "import pathlib, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
    code += "pathlib.Path('child').write_text(str(child.pid))\ntime.sleep(600)\n"
    assert train(code, seconds=8) == "train.py has called no fit within 8 s"
    state = pathlib.Path("/proc", (tmp_path / "child").read_text(), "stat")
    assert not state.exists() or state.read_text().rpartition(") ")[2][0] == "Z"


def test_a_late_fit_is_given_five_times_longer(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("while True: pass\n")
    monkeypatch.setattr(script._ScriptProcess, "wait", lambda process, seconds, announce: None)  # its time was over
    monkeypatch.setattr(script._ScriptProcess, "__init__", lambda process, words, folder, logs: None)
    with pytest.raises(options.Missing) as stop:
        script.described("train.py", (), 8)
    assert (stop.value.wrong, stop.value.right) == ("--time-limit", "--time-limit 40")
