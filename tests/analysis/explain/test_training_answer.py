"""The answer as data: the terminal's winner and seconds, in fields that are versioned and documented."""

import json
import re

import pytest
import stored_runs

from analysis import numbers
from analysis.explain import __main__, training_answer
from analysis.explain.training_answer import TrainingAnswer
from analysis.finding import ALWAYS
from analysis.stats import Estimate, likely
from analysis.text.explanation import verdict
from analysis.text.explanation.answer import POINTS
from analysis.text.explanation.sentence import SENTENCES
from workloads import ROOT, options

H200 = "nvidia-h200"
PAGE = (ROOT / "docs/answer.md").read_text()
FIRST = ["schema", "winner", "sure", "cpu_seconds", "gpu_seconds", "assumed", "warnings"]
SAYS = {("gpu", True): "The GPU: ", ("cpu", True): "The CPU: ", ("neither", False): "Can't tell: "}
SAYS |= {("gpu", False): "Probably the GPU: ", ("cpu", False): "Probably the CPU: "}


def answered(capsys, *words: str) -> dict:
    assert __main__.main([*words, "--format", "json", H200]) == options.OK
    return json.loads(capsys.readouterr().out)


def test_a_predicted_winner_is_a_tenth_faster():
    apart = Estimate(1.0, 0.9, 1.1), Estimate(2.0, 1.9, 2.1)
    assert likely(*apart) == "cpu"
    assert likely(*apart[::-1]) == "gpu"
    overlapping = Estimate(1.0, 0.8, 3.0), Estimate(1.1, 0.8, 3.0)
    assert likely(*overlapping) == "neither"
    assert likely(*overlapping, predicted=True) == "cpu"
    assert likely(*overlapping[::-1], predicted=True) == "gpu"
    closer = Estimate(1.0, 0.8, 3.0), Estimate(1.09, 0.8, 3.0)
    assert likely(*closer, predicted=True) == "neither"
    unsure = Estimate(1.0, 0.7, 3.0)  # wider than a factor of 4
    assert likely(unsure, Estimate(2.5, 2.4, 2.6), predicted=True) == "neither"
    assert likely(unsure, Estimate(3.5, 3.4, 3.6), predicted=True) == "cpu"  # no overlap


def test_json_begins_with_the_answer_in_documented_order(capsys):
    keys = list(answered(capsys, "--model", "fashion-mlp"))
    assert keys[:7] == FIRST
    fields = list(TrainingAnswer.__struct_fields__)
    assert keys[: len(fields)] == fields
    table = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(table)) == fields
    assert f"version of these fields, {training_answer.SCHEMA};" in PAGE


TRAININGS = [
    f"--model {model} --batch {b} --samples {n}"
    for model in ("fashion-mlp", "cifar10-cnn")
    for b in (8, 512)
    for n in (600, 60_000)
]


@pytest.mark.parametrize("words", [*TRAININGS, "--case S0", "--model resnet-50"])
def test_winner_and_seconds_are_those_of_the_terminal(words, capsys):
    answer = answered(capsys, *words.split())
    lines = answer["verdict"]
    if answer["winner"] is None:
        assert None in (answer["cpu_seconds"], answer["gpu_seconds"]) and not answer["sure"]
        return
    first = next(line for line in lines if line.startswith(tuple(SAYS.values())))
    assert first.startswith(SAYS[answer["winner"], answer["sure"]])
    for device in ("cpu", "gpu"):
        seconds = Estimate(**answer[f"{device}_seconds"])
        assert any(line.startswith(f"  {device.upper()}  ") and line.endswith(numbers.timed(seconds)) for line in lines)
        assert seconds.low <= seconds.value <= seconds.high
    winner, *others = answer["findings"]
    assert (winner["kind"], winner["subject"], winner["rank"]) == ("winner", answer["winner"], ALWAYS)
    shown = {name: winner["numbers"][name] for name in ("cpu", "gpu", "sure")}
    assert shown == {"cpu": answer["cpu_seconds"], "gpu": answer["gpu_seconds"], "sure": answer["sure"]}
    saved = {one["subject"]: one["numbers"]["saved"] for one in others if one["kind"] == "change"}
    by_explanation = {one["change"]["words"]: one["job_saved"] for one in answer["explanation"]["what_ifs"]}
    assert saved == {name: by_explanation[name] for name in saved}


def test_each_placed_kind_of_finding_has_words():
    kinds = {*verdict.VERDICTS, "time"}
    kinds.update(*POINTS.values())
    assert sorted(kinds - set(SENTENCES)) == []


def test_a_complaint_without_a_training_has_no_winner(capsys):
    answer = answered(capsys, "--case", "cupy-2902")
    assert list(answer)[:7] == FIRST
    assert (answer["schema"], answer["winner"], answer["sure"], answer["gpu_seconds"]) == (1, None, False, None)
    assert answer["case"] == "cupy-2902"


def test_a_notebook_shows_the_lines_as_they_are():
    answer = TrainingAnswer(verdict=("a <b>", "The CPU: 1 s"))
    assert str(answer) == "a <b>\nThe CPU: 1 s"
    assert answer._repr_html_() == "<pre>a &lt;b&gt;\nThe CPU: 1 s</pre>"


@pytest.mark.parametrize(
    ("model", "cpu_seconds", "gpu_seconds", "samples"),
    [
        ("cifar10-cnn", (132.0, 122.9, 132.8), (63.42, 61.83, 67.95), 10003),
        ("fashion-mlp", (52.12, 49.40, 52.72), (32.65, 29.57, 33.36), 10568),
    ],
)
def test_answers_of_a_stored_run_are_known(model, cpu_seconds, gpu_seconds, samples, capsys):
    assert __main__.main(["--model", model, "--format", "json", str(stored_runs.FOLDER / "gpu")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["winner"], answer["sure"], answer["cpu_source"]) == ("gpu", True, "measured")
    assert tuple(answer["cpu_seconds"].values()) == stored_runs.near(*cpu_seconds)
    assert tuple(answer["gpu_seconds"].values()) == stored_runs.near(*gpu_seconds)
    assert answer["finishes_first_from"][1]["samples"] == pytest.approx(samples, rel=5e-4)
