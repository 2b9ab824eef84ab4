"""Whether a user's own model is where its name says, told without importing anything of the user's."""

import json
import sys
import zipfile

import pytest

from workloads import options
from workloads.frameworks import grid, user_model
from workloads.records import settings


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


FOUND = "ownpkg.nets:build ownpkg.nets:made ownpkg.nets:read ownpkg.lazy:any ownpkg.star:any ownpkg.broken:build"
FOUND += (
    " bare.inner:build mine.py:build ./bare/inner.py:build json:loads math:sin os.path:join email.mime.text:MIMEText"
)


@pytest.mark.parametrize("name", FOUND.split())
def test_what_may_be_there_is_let_through_and_not_imported(folder, name):
    assert user_model.missing(name) == ""
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
        ("bare.inner.deeper:build", "there is no module bare.inner.deeper: bare.inner is no package"),
    ],
)
def test_what_is_not_there_is_one_error_before_any_process_starts(folder, name, words):
    assert settings.is_user_model(name) and user_model.missing(name).startswith(words)
    with pytest.raises(options.Usage) as refused:
        grid.known_model(name)
    assert (refused.value.code, str(refused.value)) == (options.USAGE, user_model.missing(name))


def test_a_file_nearly_named_is_named(folder):
    with pytest.raises(options.Usage) as refused:
        grid.known_model("mime.py:build")
    assert refused.value.similar == ("path", "mime.py", "mine.py")


def saved(path, layers, name="config.json"):
    """A file as model.save writes it, as far as its layers go."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, json.dumps({"class_name": "Sequential", "config": {"layers": layers}}))


def test_a_file_that_is_no_saved_model_or_brings_code_along_is_refused(folder):
    dense = {"class_name": "Dense"}
    nested = {"class_name": "Functional", "config": {"layers": [{"class_name": "Lambda"}]}}
    saved("plain.keras", [dense])
    saved("nested.keras", [dense, nested])
    saved("other.keras", [dense], "weights.json")
    (folder / "garbage.keras").write_bytes(b"\x00 garbage")
    (folder / "text.keras").write_bytes(b"")
    assert user_model.missing("plain.keras") == ""
    expected = "nested.keras holds a Lambda layer, whose code a file may not bring along"
    assert expected in user_model.missing("nested.keras")
    assert user_model.missing("other.keras") == "other.keras is no Keras model: it has no config.json"
    for name in ("garbage.keras", "text.keras"):
        assert user_model.missing(name).startswith(f"{name} is no Keras model: a .keras file is a zip archive")
    assert user_model.missing("none.keras") == "there is no file none.keras"
    with zipfile.ZipFile("cut.keras", "w") as file:
        file.writestr("config.json", '{"class_name": ')
    assert user_model.missing("cut.keras").startswith("cut.keras is no Keras model that can be read: ")
