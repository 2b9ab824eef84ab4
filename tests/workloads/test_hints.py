"""The command that is shown in place of a wrong one, as a record; it is parsed, a measuring one with --dry-run."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.report import page
from workloads import ROOT, SCHEMA, hints, stored_runs
from workloads.hints import Proposal
from workloads.records import baselines

SUITE = "reports/nvidia-h200/suite"
LADDER = "reports/nvidia-h200/ladder"
AMD = "reports/amd-avx512-2c"
AMD_STUDY = "reports/amd-avx512-2c/feeding"  # the first of this machine by name
PREDICTED = "reports/nvidia-h200/predictions-2026-11-21.ndjson"
# What is typed => the command that is meant; ~> an example of a command that works.
CORRECTED = """
    workloads.matmul --save 'a b/1' --fail-on 5% => workloads.matmul --save a-b-1
    workloads.matmul --save 'a b/1' --against lastweek --fail-on 5% => workloads.matmul --save a-b-1
    workloads.launch --calls empty,step --backend numpi => workloads.launch --calls empty,step
    workloads.conv --vary batch --batch 1:64:x4 => workloads.conv --vary batch --sizes 1:64:x4
    workloads.conv --model fashion-mnist-mlp --batch 32 cpu fast => workloads.matmul --model fashion-mlp --batch 32 --device cpu --fast
    workloads.conv --model lenet --direction bwd --fast => workloads.conv --model lenet --direction dgrad,wgrad --fast
    workloads.inference --sizes 1:256:x4 => workloads.inference --batch 1:256:x4
    analysis.export SUITE --to json => analysis.export SUITE --to google-benchmark
    workloads.suite --skip conv,training --fast ~> workloads.suite --only peak stream launch matmul --fast
    workloads.suite --exclude nothing ~> workloads.suite --only peak stream launch matmul conv training
    workloads.training --model lenet mnist_mlp ~> workloads.training --model lenet mnist-cnn
    analysis.predict --model lenet --profile nvidia-h100 ~> analysis.predict --model lenet --profile nvidia-h200
    analysis.predict --check SUITE PREDICTED => analysis.predict --check PREDICTED SUITE
    analysis.predict --profile nvidia-h200 ~> analysis.predict --model cifar10-cnn --batch 32 256 --profile nvidia-h200
    analysis.compare nvidia-h200 ~> analysis.compare nvidia-h200 LADDER
    analysis.compare SUITE reports/nvidia-h200/suit ~> analysis.compare SUITE LADDER
    analysis.compare reports/nvidia-h200/suit SUITE ~> analysis.compare LADDER SUITE
    analysis.report nvidia-h100 ~> analysis.report SUITE
    analysis.report suite ~> analysis.report SUITE
    workloads.describe --batch 64 => workloads.describe --batch 64 --operations
    workloads.suite quick => workloads.suite --quick
    workloads.matmul fast => workloads.matmul --fast
    workloads.matmul --fast yes --sizes 64 => workloads.matmul --fast --sizes 64
    workloads.matmul --fast no --sizes 64 => workloads.matmul --sizes 64
    workloads.matmul --sizes 64 -f json => workloads.matmul --sizes 64 --format json
    workloads.matmul -n 64 => workloads.matmul --sizes 64
    workloads.matmul --sizes 64 --backends cpu => workloads.matmul --sizes 64 --device cpu
    workloads.matmul --sizes 64 --no-gpu => workloads.matmul --sizes 64 --device cpu
    workloads.matmul --sizes 64 --device cpu,gpu:7 => workloads.matmul --sizes 64 --device cpu
    workloads.matmul --sizes 64 --threads four ~> workloads.matmul --sizes 64 --threads 1
    workloads.matmul --sizes 64 --dtypes int8 ~> workloads.matmul --sizes 64 --dtypes float32
    workloads.matmul --sizes 64 /h => workloads.matmul -h
    workloads.matmul --max-noise 150 => workloads.matmul --max-noise 100%
    workloads.matmul --sizes 64 to 512 => workloads.matmul --sizes 64:512
    workloads.matmul --sizes 64 -v 3 ~> workloads.matmul --sizes 64 -v
    workloads.matmul --sizes 64 --format= ~> workloads.matmul --sizes 64 --format table
    workloads.matmul --sizes 64 -j 1 => workloads.matmul --sizes 64 --threads 1
    analysis.explain --model lenet --verify no ~> analysis.explain --model lenet --verify 3
    analysis.explain --model mobilenet ~> analysis.explain --model cifar10-cnn
    analysis.explain --model keras.applications.ResNet50 => analysis.explain --model resnet-50
    analysis.explain --model lenet --input tf => analysis.explain --model lenet --input tf.data
    analysis.explain --model lenet -o answer.json => analysis.explain --model lenet --format json
    workloads.suite --only cpu => workloads.suite --device cpu
    workloads.suite my_model.py => analysis.explain my_model.py
    analysis.explain --model lenet --batch 32 64 128 ~> analysis.explain --model lenet --batch 32
    analysis.explain --model lenet --xla => analysis.explain --model lenet --jit on
    analysis.explain my_model.py --lr 0.1 => analysis.explain my_model.py -- --lr 0.1
    analysis.explain --price-gpu 3.5 ~> analysis.explain --price-gpu 3.5 --model cifar10-cnn
    analysis.explain --model bert ~> analysis.explain --model cifar10-cnn
    analysis.explain lenet => analysis.explain --model lenet
    analysis.explain --batch 0 --samples 0 --model lenet => analysis.explain --batch 1 --samples 1 --model lenet
    analysis.predict --profile nvidia-h200 --model lenet --switch jit:on => analysis.predict --profile nvidia-h200 --model lenet --switch jit_compile=on
    analysis.compare none nothing -v ~> analysis.compare SUITE LADDER -v
    analysis.compare SUITE nothing ~> analysis.compare SUITE LADDER
    analysis.compare nothing SUITE ~> analysis.compare LADDER SUITE
    analysis.compare '' SUITE ~> analysis.compare LADDER SUITE
    analysis.compare '' AMD ~> analysis.compare AMD_STUDY AMD
    analysis.compare AMD nothing ~> analysis.compare AMD AMD_STUDY
    analysis.compare photos AMD ~> analysis.compare AMD_STUDY AMD
    analysis.compare AMD reports ~> analysis.compare AMD AMD_STUDY
    analysis.compare my_model.py AMD ~> analysis.compare AMD_STUDY AMD
    analysis.compare '' '' ~> analysis.compare SUITE LADDER
    analysis.export csv SUITE => analysis.export --to csv SUITE
    analysis.export SUITE --format csv => analysis.export SUITE --to csv
    analysis.fleet SUITE --against lastweek => analysis.fleet SUITE
    analysis.fleet SUITE --against lastweek --fail-on 3% => analysis.fleet SUITE --save before
    analysis.report SUITE -o '' ~> analysis.report SUITE -o crossover-results
    analysis.report SUITE --output= ~> analysis.report SUITE --output crossover-results
    analysis.export SUITE --to csv -o '' ~> analysis.export SUITE --to csv
    workloads.matmul --sizes 64 --save '' ~> workloads.matmul --sizes 64 --save before
    workloads.matmul --sizes 64 -o '' ~> workloads.matmul --sizes 64 -o crossover-results
    analysis.explain --model '' ~> analysis.explain --model cifar10-cnn
    analysis.explain --model lenet --data '' ~> analysis.explain --model lenet
    analysis.report SUITE nothing ~> analysis.report SUITE
    workloads.conv --layer 3 ~> workloads.conv
    workloads.training --case S4 => analysis.explain --case S4
    workloads.training --dtype float16 => workloads.training --precision mixed_float16
    workloads.matmul --sizes 64 --device cuda:7 ~> workloads.matmul --sizes 64 --device cpu
    workloads.matmul --sizes 64 --version => crossover --version
    workloads.matmul --sizes 64 --max-time 1m30s => workloads.matmul --sizes 64 --max-time 90s
    workloads.matmul --sizes 64 --max-time -5ms => workloads.matmul --sizes 64 --max-time 5ms
    workloads.stream --kernel add => workloads.stream --operations add
    workloads.stream --bytes 64k => workloads.stream --sizes 64k
    workloads.describe SUITE => analysis.report SUITE
    analysis.explain --model lenet --cpu ~> analysis.explain --model lenet
    analysis.explain --model lenet --batch auto ~> analysis.explain --model lenet --batch 32
    workloads.describe my_model.py => workloads.describe --script my_model.py
    workloads.launch --calls copies => workloads.launch --calls copy
    workloads.stream --operations mul => workloads.stream --operations scale
    workloads.stream --sizes 256Mbit => workloads.stream --sizes 33554432
    workloads.matmul --axis 'n=[256,512]' => workloads.matmul --sizes '[256,512]'
    workloads.matmul -a n=256,512 => workloads.matmul --sizes 256,512
    workloads.training --model vgg19 ~> workloads.training --model vgg-16
    workloads.training my_model.py ~> analysis.explain my_model.py
    workloads.conv --shape 32x32x3 --filters 64 --kernel 3 ~> workloads.conv --shapes 32x32x32x3:64x3x3
    workloads.matmul --min 64 --max 512 --step 64 => workloads.matmul --sizes 64:512:+64
    workloads.layer --layer Conv2D --input 8x8x3 --filtres 4 --kernel 3 => workloads.layer --layer Conv2D --input 8x8x3 --filters 4 --kernel 3
    analysis.export SUITE rows.csv --csv => analysis.export SUITE -o rows.csv --to csv
    analysis.explain --case keras-294 ~> analysis.explain --case keras-249
"""  # noqa: E501
RUNS = {"SUITE": SUITE, "LADDER": LADDER, "AMD_STUDY": AMD_STUDY, "AMD": AMD, "PREDICTED": PREDICTED}


def rows() -> Iterator[tuple[str, str, bool]]:
    """(the words that are typed, those of the command shown, whether that is an example)."""
    for line in CORRECTED.strip().splitlines():
        typed, arrow, corrected = re.split(" (=>|~>) ", line.strip())
        sides = [" ".join(RUNS.get(word, word) for word in side.split(" ")) for side in (typed, corrected)]
        yield *sides, arrow == "~>"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model file, lines of another program and the stored runs, on a machine without runs of its own."""
    (tmp_path / "my_model.py").write_text("x = 3\n")
    (tmp_path / "reports").mkdir()
    for machine in ("nvidia-h200", "amd-avx512-2c"):
        (tmp_path / "reports" / machine).symlink_to(ROOT / "reports" / machine)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/train.jsonl").write_text('{"text": "cat"}\n')
    monkeypatch.setattr(stored_runs, "LOCAL", tmp_path / "none")
    monkeypatch.setattr(baselines, "FOLDER", tmp_path / "none" / "saved")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def relative(line: str) -> str:
    """A command without `python -m`, with the stored runs as paths from here."""
    words = shlex.split(line)[2:]
    stored = {os.path.realpath(run): run for run in (SUITE, LADDER, AMD_STUDY)}
    return shlex.join([stored.get(os.path.realpath(word), word) for word in words])


@pytest.mark.parametrize(("typed", "corrected", "is_example"), list(rows()))
def test_a_wrong_command_is_corrected(typed, corrected, is_example, folder):
    proposal = hints.corrected_line(f"python -m {typed}")
    assert (relative(proposal.line), proposal.is_example) == (corrected, is_example)
    shown = hints.hints_for(proposal.line)
    if shown is not None:
        is_measuring = "--dry-run" in shown.grammar.flags and shown.words[:1] != ["-h"]
        assert shown.mistake([*shown.words, *(["--dry-run"] if is_measuring else [])]) is None


@pytest.mark.parametrize(
    "typed",
    [
        "analysis.explain --model cifar10-cnn -- --lr 1",
        "workloads.stream --sizes -1",
        "workloads.matmul --sizes 16 --threads -99999",
    ],
)
def test_mistakes_of_a_correction_are_no_notes(typed, folder):
    assert hints.corrected_line(f"python -m {typed}").notes[1:] == ()


def test_every_typed_mistake_is_a_note(folder):
    proposal = hints.corrected_line("python -m analysis.explain --batch 0 --samples 0 --model lenet")
    assert [note.partition(":")[0] for note in proposal.notes] == ["--batch", "--samples"]


def test_a_missing_device_comes_before_other_errors(folder, monkeypatch):
    from workloads.machine import facts

    monkeypatch.setattr(facts, "gpu_problem", lambda: "no NVIDIA driver")
    command = hints.hints_for("python -m workloads.transfer --sizes 4k-256M")
    mistake = command.mistake(command.words)
    proposal = command.best(mistake)
    if "copies to or from a GPU" not in proposal.error:
        pytest.skip("this machine has a GPU")
    assert proposal.notes == ("--sizes: '4k-256M' is no size; a range is written 4k:256M:x4",)
    assert (relative(proposal.line), proposal.is_example) == ("workloads.stream --sizes 4k:256M:x4", True)


def test_an_older_schemas_run_is_never_proposed(folder, monkeypatch):
    local = folder / "local"
    monkeypatch.setattr(stored_runs, "LOCAL", local)
    stored = (ROOT / SUITE / "2026-11-22/matmul.jsonl").read_bytes()
    for name, content in (("new", stored), ("old", stored.replace(b'"schema":%d' % SCHEMA, b'"schema":1'))):
        (local / "here" / name).mkdir(parents=True)
        (local / "here" / name / "matmul.jsonl").write_bytes(content)
        os.utime(local / "here" / name / "matmul.jsonl", (1, 1 if name == "new" else 2))
    assert stored_runs.any_run() == str(local / "here/new")


def test_a_run_of_another_command_is_not_resumed(folder):
    (folder / "run").mkdir()
    (folder / "run/matmul.jsonl").write_text("")
    proposal = hints.corrected_line("python -m workloads.stream --resume -o run")
    assert proposal == Proposal(
        line="python -m workloads.stream -o run",
        notes=("no run of stream in run to resume: it has matmul.jsonl",),
    )


def test_a_stored_machines_page_goes_into_its_folder(folder):
    assert page.place(["nvidia-h200"]).resolve() == (ROOT / "reports/nvidia-h200").resolve()
    assert page.place([SUITE]) == Path(SUITE)
