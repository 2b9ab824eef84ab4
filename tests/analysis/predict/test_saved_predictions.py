"""The file of saved predictions: written, read, damaged."""

import gzip
import json
import pathlib
import re
import resource
import signal

import made_profile
import msgspec
import pytest
from made_profile import training
from msgspec.structs import replace

from analysis.predict import saved_predictions
from analysis.predict.__main__ import main
from workloads.options import Usage


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    trained = [training("mlp-784-100x2-10", 32, 1e-3), training("fashion-mlp", 32, 5e-3)]
    return made_profile.written(tmp_path_factory.mktemp("runs"), [*made_profile.everything(), *trained])


def test_saved_predictions_refuse_unknown_switches(runs, tmp_path):
    kept = tmp_path / "kept.ndjson"
    assert main(["--model", "lenet", "--batch", "32", "--profile", runs, "--device", "cpu", "--save", str(kept)]) == 0
    (saved,) = saved_predictions.load(str(kept))
    kept.write_bytes(b"\xef\xbb\xbf" + kept.read_bytes())
    assert saved_predictions.load(str(kept)) == [saved]
    settings = replace(saved.settings, switches={"jit_compile": "maybe"})
    kept.write_bytes(msgspec.json.encode(replace(saved, settings=settings)))
    with pytest.raises(Usage, match="line 1: jit_compile can be auto, on, off, not 'maybe'"):
        saved_predictions.load(str(kept))


def test_predictions_are_appended_to_predictions_alone(runs, tmp_path, capsys):
    foreign = tmp_path / "notes.txt"
    foreign.write_text("my own notes\n")
    flags = ["--model", "lenet", "--batch", "32", "--profile", runs, "--save"]
    assert main([*flags, str(foreign)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: --save: {foreign} holds no predictions: ") and said.out == ""
    assert foreign.read_text() == "my own notes\n"
    kept = tmp_path / "kept.ndjson"
    kept.touch()
    assert main([*flags, str(kept)]) == main([*flags, str(kept)]) == 0
    devices = len({p.settings.device for p in saved_predictions.load(str(kept))})
    assert len(saved_predictions.load(str(kept))) == 2 * devices


def test_a_torn_last_prediction_is_left_out(tmp_path, capsys):
    stored = pathlib.Path(__file__).parents[3] / "reports/nvidia-h200/predictions-2026-11-21.ndjson"
    lines = stored.read_bytes().splitlines(keepends=True)[:5]
    path = tmp_path / "predictions.ndjson"
    path.write_bytes(b"".join(lines[:4]) + lines[4][:100])
    four = saved_predictions.load(str(path))
    assert len(four) == 4
    assert capsys.readouterr().err == f"warning: the last line of {path} is cut off; 4 predictions read\n"
    saved_predictions.save(str(path), four[:1])
    assert len(saved_predictions.load(str(path))) == 5
    assert path.read_bytes().startswith(b"".join(lines[:4]))
    path.write_bytes(b"".join(lines[:2]).rstrip())  # whole, without its newline
    saved_predictions.save(str(path), four[:1])
    assert len(saved_predictions.load(str(path))) == 3
    path.write_bytes(lines[0][:100])
    with pytest.raises(Usage, match="holds no predictions"):
        saved_predictions.load(str(path))


def saved_lines() -> list[bytes]:
    """The first three lines of a stored file of predictions."""
    stored = pathlib.Path(__file__).parents[3] / "reports/nvidia-h200/predictions-2026-11-21.ndjson"
    return stored.read_bytes().splitlines(keepends=True)[:3]


@pytest.mark.parametrize(
    ("damaged", "number"),
    [
        (lambda first, second, third: first + second[:100] + third, 2),  # written on after a kill
        (lambda first, second, third: first + bytes(4096) + b"\n" + third, 2),  # as after a loss of power
        (lambda first, second, third: first + b"\n \r\n" + b'{"type":"run"}\n' + third, 4),  # blank lines count
        (lambda first, second, third: first.decode().encode("utf-16"), 1),
        (lambda first, second, third: bytes(100), 1),
        (lambda first, second, third: first + b"[" * 100_000 + b"\n", 2),
    ],
)
def test_a_damaged_line_of_predictions_is_named(tmp_path, capsys, damaged, number):
    path = tmp_path / "predictions.ndjson"
    path.write_bytes(damaged(*saved_lines()))
    with pytest.raises(Usage, match=re.escape(f"{path} holds no predictions: line {number}: ")):
        saved_predictions.load(str(path))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("end", [b"\n \t", b"\r\n\r\n  "])
def test_blank_lines_are_no_predictions(tmp_path, capsys, end):
    path = tmp_path / "predictions.ndjson"
    path.write_bytes(b"\n\r\n" + b"\r\n".join(saved_lines()) + end)
    assert len(saved_predictions.load(str(path))) == 3
    path.write_bytes(b"\n \r\n\t")
    with pytest.raises(Usage, match="holds no predictions: it is empty"):
        saved_predictions.load(str(path))
    assert capsys.readouterr().err == ""


def test_predictions_are_not_appended_to_a_compressed_file(runs, tmp_path, capsys):
    path = tmp_path / "p.ndjson.gz"
    compressed = gzip.compress(b"".join(saved_lines()))
    path.write_bytes(compressed)
    assert main(["--model", "lenet", "--profile", runs, "--save", str(path)]) == 2
    *_, error, tip = capsys.readouterr().err.splitlines()
    assert f"{path}: predictions are appended as text" in error
    assert tip.endswith(f" --save {tmp_path / 'p.ndjson'}")
    assert path.read_bytes() == compressed


def test_unwritable_predictions_propose_the_command_without_save(tmp_path):
    stored = pathlib.Path(__file__).parents[3] / "reports/nvidia-h200/predictions-2026-11-21.ndjson"
    one = saved_predictions.load(str(stored))[0]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(Usage, match=r"cannot write .*: File too large") as refused:
            saved_predictions.save(str(tmp_path / "p.ndjson"), [one])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (refused.value.wrong, refused.value.right) == ("--save", "")


def test_trailing_zero_bytes_are_a_torn_line(tmp_path, capsys):
    path = tmp_path / "predictions.ndjson"
    path.write_bytes(b"\n" + b"".join(saved_lines()) + bytes(4096))
    three = saved_predictions.load(str(path))
    assert capsys.readouterr().err == f"warning: the last line of {path} is cut off; 3 predictions read\n"
    saved_predictions.save(str(path), three[:1])
    assert len(saved_predictions.load(str(path))) == 4


@pytest.mark.parametrize(
    ("place", "value", "shown"),
    [
        ("step_s", {"value": 1e308, "low": -1e308, "high": 1e308}, "step_s of -1e+308 to 1e+308 s"),
        ("fit_s", {"value": 1.0, "low": 2.0, "high": 0.5}, "fit_s of 2 to 0.5 s"),
        ("parts", {"matmul": {"value": 1e9, "low": 0.0, "high": 1e9}}, "matmul of 0 to 1e+09 s"),
        ("step_s", {"value": -0.5, "low": -1.0, "high": 1.0}, "step_s of -0.5 s"),
        ("saved_at", "garbage", "saved_at is 'garbage', no time such as 2026-11-21T17:46:40Z"),
        ("saved_at", "2026-13-21T17:46:40Z", "saved_at is '2026-13-21T17:46:40Z', no time"),
    ],
)
def test_saved_times_that_no_training_takes_are_named(tmp_path, place, value, shown):
    stored = pathlib.Path(__file__).parents[3] / "reports/nvidia-h200/predictions-2026-11-21.ndjson"
    first, second, *_ = stored.read_text().splitlines()
    path = tmp_path / "predictions.ndjson"
    path.write_text(f"{first}\n{json.dumps({**json.loads(second), place: value})}\n")
    with pytest.raises(Usage, match=re.escape(f"{path} holds no predictions: line 2: {shown}")):
        saved_predictions.load(str(path))
