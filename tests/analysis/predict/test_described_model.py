"""The child that describes a user's own model: what it answers, how it fails, and how it dies."""

import subprocess
import sys

import msgspec
import pytest

from analysis.explain.__main__ import main
from analysis.predict.described_model import ModelRequest, described
from kernels.networks.layers import Layer, Network
from workloads import options
from workloads.records.messages import ChildFailure, Failed

ASKED = ModelRequest(model="own:build", batch=32)
OWN = Network("own:build", "", (4,), 3, (Layer("out", "dense", 3),))


@pytest.fixture
def child(monkeypatch):
    """child(code, variables): the child of `described` runs that Python code in its place."""
    real = subprocess.run

    def runs(code: str):
        monkeypatch.setattr(subprocess, "run", lambda command, **how: real([sys.executable, "-c", code], **how))

    return runs


def test_the_layers_are_read_from_its_answer(child):
    child(f"print({msgspec.json.encode(OWN).decode()!r})")
    assert described(ASKED, 60) == OWN


SLOW = ChildFailure(
    message="own:build cannot be described: it has stopped",
    wrong="--time-limit",
    right="--time-limit 300",
    exit=options.MISSING,
)
LOST = ChildFailure(
    message="no function buld", wrong="own:build", right="own:made", similar="model", exit=options.USAGE
)
BROKEN = ChildFailure(message="KeyError: 3")


@pytest.mark.parametrize(
    ("error", "code", "lines", "tried"),
    [
        (SLOW, options.MISSING, [], "--model own:build --time-limit 300 --batch 64"),
        (
            LOST,
            options.USAGE,
            ["  tip: a similar model exists: 'own:made'"],
            "--model own:made --time-limit 60 --batch 64",
        ),
        (BROKEN, options.MISSING, [], "-h"),
    ],
    ids=["slow", "lost", "broken"],
)
def test_an_error_names_the_command_that_started_it(child, monkeypatch, tmp_path, capsys, error, code, lines, tried):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def build():\n    pass\n\n\ndef made():\n    pass\n")
    answer = msgspec.json.encode(Failed(error=error)).decode()
    child(f"import sys; print({answer!r}); print('what libraries print', file=sys.stderr); sys.exit({error.exit})")
    assert main(["--model", "own:build", "--time-limit", "60", "--batch", "64"]) == code
    first, *others, hint = capsys.readouterr().err.splitlines()
    flag = "--model: " if error.wrong == "own:build" else ""
    assert (first, others) == (f"error: {flag}{error.message}", lines)
    assert hint.endswith(f"-m analysis.explain {tried}")


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
        ("raise SystemExit(7)", "exit code 7"),
        ("pass", "exit code 0"),
        ("print('no JSON'); raise SystemExit(1)", "exit code 1"),
        ("raise SystemExit('no memory\\n')", "exit code 1: no memory"),
    ],
)
def test_a_dying_child_is_one_line(child, code, ending):
    child(code)
    with pytest.raises(options.Missing) as stop:
        described(ASKED, 60)
    assert str(stop.value) == f"own:build cannot be described: its process ended with {ending}"
    assert stop.value.tip is None


def test_the_real_child_fails_in_json(tmp_path, monkeypatch):
    """A function that is not there: an error of its own class, without a line of stderr being read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def build():\n    pass\n")
    with pytest.raises(options.Usage) as stop:
        described(ModelRequest(model="mine.py:biuld", batch=32), 60)
    assert str(stop.value) == "mine.py has no function biuld"
    assert (stop.value.wrong, stop.value.right, stop.value.similar) == ("mine.py:biuld", "mine.py:build", "model")
