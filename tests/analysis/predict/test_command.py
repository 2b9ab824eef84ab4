"""python -m analysis.predict: what it prints, saves and checks."""

import json
import pathlib
import shlex

import made_profile
import pytest
from made_profile import training

from analysis.predict.__main__ import main


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    trained = [training("mlp-784-100x2-10", 32, 1e-3), training("fashion-mlp", 32, 5e-3)]
    return made_profile.written(tmp_path_factory.mktemp("runs"), [*made_profile.everything(), *trained])


def test_the_command_prints_saves_and_checks(runs, tmp_path, capsys):
    kept = tmp_path / "kept.json"
    words = shlex.split("--model mlp-784-100x2-10 lenet --batch 32 --profile")
    assert main([*words, runs, "--device", "cpu", "--save", str(kept)]) == 0
    out = capsys.readouterr().out
    assert "mlp-784-100x2-10 at batch 32 on cpu, op by op: " in out
    assert len(kept.read_bytes().splitlines()) == 2
    assert json.loads(kept.read_bytes().splitlines()[0])["type"] == "prediction"
    assert main(["--check", str(kept), runs]) == 0
    out = capsys.readouterr().out
    (line,) = [text for text in out.splitlines() if text.startswith("mlp-784-100x2-10  ")]
    assert " 1 (1 to 1) " in line
    (line,) = [text for text in out.splitlines() if text.startswith("lenet  ")]
    assert "not measured" in line


def test_predictions_are_not_saved_as_rows(runs, tmp_path, capsys):
    kept = pathlib.Path(runs) / "foretold.jsonl"
    flags = ["--model", "lenet", "--batch", "32", "--profile", runs, "--save"]
    assert main([*flags, str(kept)]) == 2
    *_, error, tip = capsys.readouterr().err.splitlines()  # after a line on rows above the roofs of made-up laws
    assert error.startswith(f"error: --save: {kept}: a .jsonl file is read as rows") and not kept.exists()
    words = shlex.split(tip.partition("-m analysis.predict ")[2])
    assert words == [*flags, str(kept.with_suffix(".ndjson"))]
    assert main(words) == 0 and kept.with_suffix(".ndjson").is_file()
    assert main(flags[:-1]) == 0  # the folder can still be read
    runs = made_profile.written(tmp_path, made_profile.launches())
    assert main(["--model", "lenet", "--profile", runs]) == 2
    error, tip = capsys.readouterr().err.splitlines()
    assert "the profile has no" in error
    assert "workloads." in tip
