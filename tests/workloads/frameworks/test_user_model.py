"""Models of the user's own: whether they are where their name says, told without importing them; what is trained and how; and how
those that cannot be are refused."""

import functools
import importlib
import os
import re
import sys
import zipfile
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from kernels.networks.layers import Network
from kernels.problems import Training
from workloads import options
from workloads.frameworks import grid, training_row, user_model
from workloads.frameworks.user_fit import fit_places
from workloads.harness import worker
from workloads.harness.dispatch import Broken
from workloads.records import Row, Settings, model_files, other_libraries, settings


def own(train, name, **keywords):
    return train(4, 8, model=f"tests.support.own_models:{name}", **keywords)


def test_a_users_function_is_trained_with_defaults_named(train):
    m = own(train, "classes")
    assert (m.status, m.reason, m.problem.model) == ("ok", "", "tests.support.own_models:classes")
    assert m.values["parameters"] == 8 * 16 + 16 + 16 * 3 + 3
    found = msgspec.json.decode(m.notes["layers"], type=Network)
    expected = [("dense", 16, "relu"), ("dense", 3, "softmax")]
    assert [(la.kind, la.units, la.activation) for la in found.layers] == expected
    assert (found.name, found.input, found.classes) == ("tests.support.own_models:classes", (8,), 3)
    assert len(m.notes["source"]) == 16
    assert m.notes["compiled"] == "compiled with adam and sparse_categorical_crossentropy, as it came without"
    assert len(m.series["accuracy"]) == len(m.series["loss"]) == 3 and m.on("host-latency").calls == 2
    m = own(train, "words")  # it takes whole numbers
    assert (m.status, m.reason) == ("ok", "") and "mse" in m.notes["compiled"] and "accuracy" not in m.series


def test_a_compiled_model_file_stays_unchanged(train):
    m = own(train, "saved")
    assert m.status == "ok" and "compiled" not in m.notes
    m = train(4, 8, model=f"{train.worker.variables['KERAS_HOME']}/plain.keras", jit_compile="on")
    assert (m.status, m.values["parameters"], m.values["jit_compile"]) == ("ok", 9, 1.0)
    assert "compiled" not in m.notes and len(m.series["accuracy"]) == 3
    m = train(4, 8, model=f"{train.worker.variables['KERAS_HOME']}/with_lambda.keras")
    assert (m.status, "holds a Lambda layer, whose code a file may not bring along" in m.reason) == ("failed", True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unbuilt", "gives a model whose outputs are not known that is not compiled"),
        ("any_length", "has an open size: (None, None, 4) in input 'keras_tensor'; say which: --length 200"),
        ("texts", "it takes texts, and no layer of it has a vocabulary to make them up from"),
        ("nothing_to_take", "layer out takes (None, 0) and gives (None, 1): a size of 0 leaves nothing to compute"),
        ("layers_that_do_not_match", "tests.support.own_models:layers_that_do_not_match() fails: ValueError"),
        ("no_such_loss", "mean_absurd_error"),
        ("a_loss_of_another_shape", "its fit fails in line 58 of own_models.py: ValueError: Dimensions must be equal"),
        ("no_model", "tests.support.own_models:no_model() returns nothing: end no_model() with `return model`"),
        ("missing", "tests.support.own_models has no function missing"),
    ],
)
def test_an_untrainable_model_fails_alone(train, name, words):
    m = own(train, name)
    assert (m.status, words in m.reason) == ("failed", True), m.reason


OWN_MODELS = "tests.support.own_models"


@pytest.mark.parametrize(
    ("name", "switches", "parameters"),
    [
        # 4 inputs in all, 1 output
        ("two_inputs", {}, 5),
        ("two_inputs", {"data": f"{OWN_MODELS}:arrays_of_two"}, 5),
        ("two_inputs", {"data": f"{OWN_MODELS}:dataset_of_two", "residence": "tf.data"}, 5),
        ("two_inputs", {"data": f"{OWN_MODELS}:py_dataset_of_two", "residence": "generator"}, 5),
        ("two_inputs", {"data": f"{OWN_MODELS}:endless_of_two", "residence": "generator"}, 5),
        # the mean of 4 numbers over a length, 3 outputs
        ("any_length", {"length": "6"}, 15),
        # 3 words of a vocabulary and one for those that it lacks, 1 output
        ("words_of_a_vocabulary", {}, 5),
        # 2 inputs, 3 outputs; its step gives no `loss`
        ("own_step", {}, 9),
    ],
)
def test_any_compiled_model_is_timed_with_some_data(train, name, switches, parameters):
    m = own(train, name, **switches)
    assert (m.status, m.reason) == ("ok", "")
    assert m.values["parameters"] == parameters
    assert len(m.on("host-latency").seconds) > 0
    has_own_data = "data" in switches
    assert ("input_step_s" in m.values, len(m.notes["source"])) == (has_own_data, 16)
    comes_in_batches = "residence" in switches
    assert [bool(fits.setup_s) for fits in m.fits] == [True, not comes_in_batches]


@pytest.mark.parametrize(
    ("switches", "reason"),
    [
        ({"data": f"{OWN_MODELS}:short_of_two"}, "its generator ends after "),
        ({"data": f"{OWN_MODELS}:dataset_of_three"}, "its data come in batches of 3"),
        ({"data": f"{OWN_MODELS}:fails_in_the_middle"}, "ValueError: no third batch"),
        ({"data": f"{OWN_MODELS}:missing"}, "has no function missing"),
    ],
)
def test_short_or_unfitting_data_are_reported(train, switches, reason):
    m = own(train, "two_inputs", **switches)
    assert (m.status, reason in m.reason) == ("failed", True), m.reason


def test_missing_unfitting_and_impossible_settings_are_reported(train):
    assert "there is no module tests.own_modules" in train(model="tests.own_modules:classes").reason
    assert train(model="nowhere.keras").reason.startswith("there is no file ")
    m = train(4, 10**12, model="tests.support.own_models:classes")
    # 3 x 8 numbers x 4 bytes x 10^12
    assert m.status == "skipped" and m.reason.startswith("needs 89400 GiB of host memory, ")
    for name, value in (("data", "real"), ("dropout", "off"), ("targets", "float64")):
        m = own(train, "classes", **{name: value})
        assert m.status == "skipped" and f"is a model of your own: {name} can only be " in m.reason


def model(loss, out=(3,), shape=(5,), dtype="float32", vocabulary=0):
    layers = [SimpleNamespace(input_dim=vocabulary)] if vocabulary else [SimpleNamespace()]
    shapes = {"input_shape": (None, *shape), "output_shape": (None, *out)}
    return SimpleNamespace(**shapes, inputs=[SimpleNamespace(dtype=dtype)], loss=loss, layers=layers)


@pytest.fixture(autouse=True)
def losses(request, monkeypatch):
    """Without TensorFlow: a loss is known by its own name."""
    if "train" not in request.fixturenames:
        of = SimpleNamespace(get=lambda loss: SimpleNamespace(name=loss))
        monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(losses=of, Model=functools.partial))


def test_inputs_and_targets_suit_model_and_loss():
    x, y = user_model.samples(model("mean_squared_error"), 200, 1, "float32")
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((200, 5), np.float32, (200, 3), np.float32)
    assert 0 <= x.min() < 0.1 and 0.9 < x.max() <= 1
    residual = np.linalg.lstsq(np.c_[x, np.ones(200)], y, rcond=None)[1]
    assert residual.max() < 1e-6  # linear in the inputs
    _, classes = user_model.samples(model("sparse_categorical_crossentropy"), 200, 1, "float32")
    assert (classes.shape, classes.dtype) == ((200,), np.int32) and (classes == y.argmax(-1)).all()
    _, one_hot = user_model.samples(model("categorical_crossentropy"), 200, 1, "float32")
    assert (one_hot == np.eye(3)[classes]).all()
    _, yes = user_model.samples(model("binary_crossentropy", (1,)), 200, 1, "float32")
    assert yes.shape == (200, 1) and set(np.unique(yes)) == {0.0, 1.0} and 40 < yes.sum() < 160
    _, places = user_model.samples(model("sparse_categorical_crossentropy", (7, 7, 3)), 4, 1, "float32")
    assert places.shape == (4, 7, 7) and (places == places[:, :1, :1]).all()
    scaled, _ = user_model.samples(model("mse"), 50, 1, "float64")
    levels, _ = user_model.samples(model("mse"), 50, 1, "uint8")
    assert (scaled.dtype, levels.dtype) == (np.float64, np.uint8)
    assert np.abs(levels / 255 - scaled).max() <= 0.5 / 255 + 1e-6
    tokens, _ = user_model.samples(model("mse", dtype="int32", vocabulary=50), 200, 1, "float32")
    assert (tokens.dtype, tokens.min(), tokens.max()) == (np.int32, 0, 49)
    tokens, _ = user_model.samples(model("mse", vocabulary=50), 200, 1, "float32")
    assert (tokens.dtype, tokens.max(), (tokens == tokens.round()).all()) == (np.float32, 49, True)
    with pytest.raises(Broken, match="sizes beside the batch must be known"):
        user_model.samples(model("mse", shape=(None, 3)), 2, 1, "float32")


def test_users_models_are_found_from_the_typed_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = Row("training/keras/fit", Training("mine:build", 4, 8), Settings())
    assert worker.environment(row, {})[settings.FOLDER] == str(tmp_path)
    assert row.problem.footprint_bytes == 0 and row.problem.patience_s > 0
    (tmp_path / "crossover_own_mine.py").write_text("raise AttributeError('no\\n luck\\x1b\\x07')\n")
    monkeypatch.setenv(settings.FOLDER, str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(Broken, match="importing crossover_own_mine fails: AttributeError: no luck"):
        user_model.load("crossover_own_mine:build", "auto")
    saved = Row("training/keras/fit", Training("a.keras", 4, 8), Settings(switches={"precision": "mixed_bfloat16"}))
    with pytest.raises(ValueError, match="has the precision that it was saved with"):
        training_row._samples_of_user_model(saved, 1)
    held = "import functools\nmodel = functools.partial(int)\ndef build():\n    return model\n"
    (tmp_path / "held.py").write_text(held)
    for name in ("held.py:model", "held.py:build"):  # a model can be called, as a function can
        assert isinstance(user_model._from_function(name), functools.partial)
    (tmp_path / "ends_at_once.py").write_text("raise SystemExit(3)")
    (tmp_path / "ends_when_called.py").write_text("import sys\n\n\ndef build():\n    sys.exit(0)\n")
    for name, words in (
        ("ends_at_once", "importing ends_at_once fails: SystemExit: 3"),
        ("ends_when_called", r"ends_when_called:build\(\) fails: SystemExit: 0"),
    ):
        with pytest.raises(Broken, match=words):
            user_model.load(f"{name}:build", "auto")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of models in which the command is typed; importing any of them would fail."""
    package = tmp_path / "ownpkg"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "nets.py").write_text(
        "raise SystemExit('imported')\n\ndef build():\n    pass\n\nmade = other = None\n"
        "from json import loads as read\n"
    )
    (package / "lazy.py").write_text("def __getattr__(name):\n    raise SystemExit('imported')\n")
    (package / "star.py").write_text("from json import *\n")
    (package / "broken.py").write_text("def build(:\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "inner.py").write_text("def build():\n    pass\n")
    (tmp_path / "mine.py").write_text("import ownpkg.nets\n\ndef build():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


FOUND = """ownpkg.nets:build ownpkg.nets:made ownpkg.nets:read ownpkg.lazy:any ownpkg.star:any ownpkg.broken:build
bare.inner:build mine.py:build ./bare/inner.py:build json:loads math:sin os.path:join email.mime.text:MIMEText"""


@pytest.mark.parametrize("name", FOUND.split())
def test_possible_models_pass_without_import(folder, name):
    assert model_files.missing(name) == ""
    assert not [module for module in sys.modules if module.startswith(("ownpkg", "bare."))]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nopkg.mod:build", "there is no module nopkg (looked in "),
        ("ownpkg.other:build", "there is no module ownpkg.other "),
        ("bare.other:build", "there is no module bare.other "),
        ("mine.py:nothing", "mine.py has no function nothing"),
        ("bare/mine.py:build", "there is no file bare/mine.py"),
        ("json:nothing", "json has no function nothing"),
        ("ownpkg.nets:nothing", "ownpkg.nets has no function nothing"),
        ("bare.inner.deeper:build", "there is no module bare.inner.deeper "),
    ],
)
def test_a_missing_model_fails_before_any_process(folder, name, words):
    assert settings.is_user_model(name) and model_files.missing(name).startswith(words)
    with pytest.raises(options.Usage) as refused:
        grid.known_model(name)
    assert (refused.value.code, str(refused.value)) == (options.USAGE, model_files.missing(name))


RIGHT = ("mime.py:build", "mine.py:buld", "mine.py", "mine.build", "mine:buld", "zzz.py:build")


@pytest.mark.parametrize("wrong", RIGHT)
def test_a_model_nearly_named_is_named(folder, wrong):
    with pytest.raises(options.Usage) as refused:
        grid.known_model(wrong)
    assert (refused.value.wrong, refused.value.right) == (wrong, "mine.py:build")


SOURCE = """
def data():
    return 3
def build_for(width, depth=2, *, seed):
    pass
def build(width=64):
    pass
"""
IN_A_FILE = {
    "own.py:build": ("", ""),
    "own.py:build_for": ("own.py:build_for is called without arguments, and needs width, seed", "own.py:build"),
    "own.py:bild": ("own.py has no function bild", "own.py:build"),
    "own.py:build()": ("'build()' is no name of a function in own.py", "own.py:build"),
    "own.py": ("own.py is a file: name its function that returns the model, as own.py:build", "own.py:build"),
    "bad.py:build": ("bad.py is no Python that can be read: invalid syntax, line 1: def build(:", "bad.py:build"),
}


@pytest.mark.parametrize(("name", "expected"), IN_A_FILE.items())
def test_a_file_names_the_models_it_has(name, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(SOURCE)
    (tmp_path / "bad.py").write_text("def build(:")
    why, right = expected
    assert model_files.missing(name) == why
    if why:
        assert model_files.unusable(why, name).right == right


def test_a_keras_file_is_inspected_in_a_worker(folder):
    (folder / "some.keras").write_bytes(b"garbage")
    no_zip = "some.keras is no Keras model: it is not the zip file that model.save() writes"
    assert model_files.missing("some.keras") == no_zip
    with zipfile.ZipFile("some.keras", "w") as parts:
        parts.writestr("weights", "")
    assert model_files.missing("some.keras") == "some.keras is no Keras model: there is no config.json in it"
    with zipfile.ZipFile("some.keras", "w") as parts:
        parts.writestr("config.json", "not JSON")
    assert model_files.missing("some.keras") == ""
    os.mkfifo("pipe.keras")
    assert model_files.missing("pipe.keras") == "cannot read pipe.keras: it is a pipe, not a file"


def test_an_exploding_keras_file_is_not_read(folder):
    """67 kB unpack to 70 MB; of parts that are not packed, 70 MB are a model's."""
    many = bytes(70_000_000)
    with zipfile.ZipFile("bomb.keras", "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("config.json", many)
    why = model_files.missing("bomb.keras")
    assert "its 66.6 KiB unpack to 66.8 MiB" in why
    with zipfile.ZipFile("whole.keras", "w") as parts:
        parts.writestr("config.json", many)
    assert model_files.missing("whole.keras") == ""


def test_an_unusable_model_gets_a_working_proposal(folder):
    (folder / "net.keras").mkdir()
    assert model_files.unusable("a folder", "net.keras").right == "net-new.keras"
    assert model_files.unusable("not there", "net2.keras").right == "net2.keras"
    (folder / "package.py").mkdir()
    assert model_files.missing("package.py:build") == "cannot read package.py: it is a folder, not a file"
    assert model_files.unusable("a folder", "package.py:build").right == "package-new.py:build"
    too_long = "n" * 300
    for name, right in ((f"{too_long}.keras", "model.keras"), (f"{too_long}.py:build", "model.py:build")):
        assert "File name too long" in model_files.missing(name)
        assert model_files.unusable("too long", name).right == right


def test_an_unreadable_model_is_made_readable(folder, monkeypatch):
    (folder / "mine2.py").write_text((folder / "mine.py").read_text())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert model_files.missing("mine.py:build") == "cannot read mine.py: Permission denied"
    error = model_files.unusable("cannot read", "mine.py:build")
    assert (error.first, error.right, error.similar) == ("chmod u+r mine.py", "mine.py:build", "")


def test_a_pipe_is_no_model_source(folder):
    """Nobody writes to it: whoever opened it would wait for ever."""
    os.mkfifo("pipe.py")
    with pytest.raises(options.Usage, match=r"cannot read pipe\.py: it is a pipe, not a file"):
        grid.known_model("pipe.py:build")
    with pytest.raises(options.Usage) as refused:
        grid.known_model("zzz.py:build")
    assert refused.value.right == "mine.py:build"


# Kind: how a file of it is made, and what its error line says.
UNREADABLE = {
    "a link to what is not there": lambda path: path.symlink_to("nothing"),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "longer than 16 MiB|is no Keras model": lambda path: os.truncate(path.open("wb").name, (1 << 24) + 1),
    "null bytes|is no Keras model": lambda path: path.write_bytes(b"def build(): ..." + bytes(20)),
}
MODULES_WITH_MODELS = (
    "analysis.explain.__main__",
    "analysis.predict.__main__",
    "workloads.describe",
    "workloads.training",
    "workloads.inference",
    "workloads.layer.__main__",
    "workloads.matmul",
    "workloads.conv",
)


@pytest.mark.parametrize("module", MODULES_WITH_MODELS)
@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_model_file_is_one_error_line(folder, capsys, module, kind):
    for file, model in (("net.py", "net.py:build"), ("net.keras", "net.keras")):
        UNREADABLE[kind](folder / file)
        assert importlib.import_module(module).main(["--model", model]) == options.USAGE
        printed = capsys.readouterr()
        error, tip = printed.err.splitlines()
        assert printed.out == ""
        assert error.startswith("error: --model: ") and file in error and re.search(kind, error)
        assert f"-m {module.removesuffix('.__main__')} " in tip


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("analysis.explain.__main__", ["--model", "mine.py:build", "--data", "net.py:data"]),
        ("workloads.describe", ["--model", "mine.py:build", "--operations", "--data", "net.py:data"]),
        ("workloads.training", ["--model", "mine.py:build", "--data", "net.py:data"]),
        ("workloads.layer.__main__", ["--layer", "net.py:Layer", "--input", "8"]),
    ],
)
def test_an_unreadable_data_file_is_one_error_line(folder, capsys, module, words, kind):
    UNREADABLE[kind](folder / "net.py")
    assert importlib.import_module(module).main(words) == options.USAGE
    error, _ = capsys.readouterr().err.splitlines()
    assert re.match("error: (--data: )?(cannot read )?net.py", error) and re.search(kind, error)


@pytest.mark.parametrize(
    "source", ["x = " + "-" * 200_000 + "1", "x = a" + ".b" * 200_000, "x = " + "(" * 300 + ")" * 300]
)
def test_deeply_nested_source_is_no_readable_python(folder, source):
    (folder / "deep.py").write_text(f"{source}\ndef build(): ...\n")
    assert model_files.missing("deep.py:build").startswith("deep.py is no Python that can be read: ")
    with pytest.raises(options.Usage, match=r"deep\.py is no Python"):
        model_files.require_source("deep.py")
    assert other_libraries.library_imported(folder / "deep.py") == ""
    assert fit_places.places("deep.py") == ()


@pytest.mark.parametrize(
    ("name", "way"), [("a.keras", "file"), ("their.module:build", "function"), ("m.py:f", "function")]
)
def test_a_name_means_a_file_or_a_function(monkeypatch, name, way):
    monkeypatch.setattr(user_model, "_from_file", lambda name: ("file", name))
    monkeypatch.setattr(user_model, "_from_function", lambda name: ("function", name))
    assert user_model.opened(name) == (way, name)
