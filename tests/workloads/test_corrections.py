"""What is meant by words that are wrong: numbers and ranges, known words, flags; and the whole command corrected, as a record."""

import importlib
import os
import shlex
from pathlib import Path

import pytest

from analysis.report import page
from workloads import ROOT, SCHEMA, corrections, help_screen, hints, options
from workloads.corrections import likeness, runs, sizes
from workloads.hints import Proposal
from workloads.records import baselines

SUITE = "reports/nvidia-h200/suite"
LADDER = "reports/nvidia-h200/ladder"
AMD = "reports/amd-avx512-2c"
AMD_STUDY = "reports/amd-avx512-2c/feeding"  # the first of this machine by name
PREDICTED = "reports/nvidia-h200/predictions-2026-11-21.ndjson"
CPUS = len(os.sched_getaffinity(0))
COUNTS = {
    "1..64": "1:64:x2",
    "1-64": "1:64:x2",
    "64k-1m": "64k:1m:x2",
    "2^6-2^10": "2^6:2^10:x2",
    "64:4096:*4": "64:4096:x4",
    "64:4096:64": "64:4096:+64",
    "64:4096:16": "64:4096:x16",
    "64:4096:17": "64:4096:+17",
    "4096:64:x4": "64:4096:x4",
    "64:4096:x0": "64:4096:x2",
    "2**10": "1024",
    "1e6": "1000000",
    "64MB": "64",
    "-64": "64",
    "0": "1",
    "512x256": "512",
    "fast": "",
    "64:": "64",
    "64::x2": "64",
    "64:128:256:512": "64:128:x2",
}
BYTES = {"4k-256M": "4k:256M:x4", "64KiB..1GiB": "64KiB:1GiB:x4", "1.5k": "1536"}
CALLS = {
    "range(64, 1024, 64)": "64:1024:+64",
    "range(64,1024)": "64:1024:x2",
    "np.arange(64,1024,2)": "64:1024:x2",
    "64,4096,x4": "64:4096:x4",
    "64,4096": "",
}


@pytest.mark.parametrize(("word", "meant"), COUNTS.items())
def test_the_number_or_range_that_a_word_means(word, meant):
    assert sizes.meant_number(word, options.COUNTS, several=True) == meant


@pytest.mark.parametrize(("word", "meant"), BYTES.items())
def test_the_bytes_that_a_word_means(word, meant):
    assert sizes.meant_number(word, options.BYTES, several=True) == meant


@pytest.mark.parametrize(("text", "meant"), CALLS.items())
def test_a_range_in_another_languages_notation(text, meant):
    assert sizes.meant_range(text, options.COUNTS) == meant


SECONDS = {"1h30m": "5400s", "2 min 30 s": "150s", "1:30:00": "5400s", "1:30": "90s", "90": "", "5s": "", "1h30x": ""}


@pytest.mark.parametrize(("text", "meant"), SECONDS.items())
def test_the_seconds_that_several_units_mean(text, meant):
    assert sizes.meant_seconds(text, options.SECONDS) == meant


def test_brackets_around_sizes_say_nothing():
    assert options.sizes(["[64,", "128]"]) == options.sizes(["(64, 128)"]) == [64, 128]


FLAGS = ["--model", "--modes", "--jit", "--price-gpu", "--epochs", "--sizes", "--dtypes"]
MEANT = {
    "--mode": "--modes",
    "--jit_compile": "--jit",
    "--gpu-price": "--price-gpu",
    "--num-epochs": "--epochs",
    "--n": "--sizes",
    "--type": "--dtypes",
    "--optimizer": "",
}
# What differs by a number is no misspelling.
OTHER_NUMBERS = {"float16": "", "floot64": "float64", "flaot": "float64"}
TYPES = ["float64", "float32", "uint8"]


@pytest.mark.parametrize(("word", "meant"), OTHER_NUMBERS.items())
def test_words_with_different_numbers_are_unlike(word, meant):
    assert likeness.closest(word, TYPES) == meant


@pytest.mark.parametrize(("word", "meant"), MEANT.items())
def test_the_known_flag_that_is_closest(word, meant):
    assert likeness.closest(word, FLAGS) == meant


VOCABULARIES = {
    "direction": ["fprop", "dgrad", "wgrad", "all"],
    "copy": ["h2d", "d2h", "d2d", "both"],
    "call": ["empty", "elementwise", "matmul", "copy", "step"],
    "command": ["conv", "matmul", "stream", "transfer", "compare"],
    "format": ["google-benchmark", "bencher", "github", "csv"],
    "table": ["table", "md", "csv", "json"],
    "flag": ["--batch", "--modes"],
}
TRANSLATED = {
    ("bwd", "direction"): "dgrad,wgrad",
    ("Backwards", "direction"): "dgrad,wgrad",
    ("backprop", "direction"): "dgrad,wgrad",
    ("forward", "direction"): "fprop",
    ("host2device", "copy"): "h2d",
    ("htod", "copy"): "h2d",
    ("cpu2gpu", "copy"): "h2d",
    ("device2host", "copy"): "d2h",
    ("gpu2cpu", "copy"): "d2h",
    ("dtod", "copy"): "d2d",
    ("kernel", "call"): "empty",
    ("copy", "call"): "copy",
    ("convolution", "command"): "conv",
    ("convolutions", "command"): "conv",
    ("matrix", "command"): "matmul",
    ("gemm", "command"): "matmul",
    ("memory", "command"): "stream",
    ("copy", "command"): "transfer",
    ("json", "format"): "google-benchmark",
    ("json", "table"): "json",
    ("--sizes", "flag"): "--batch",
}


@pytest.mark.parametrize(("typed", "meant"), TRANSLATED.items())
def test_a_word_of_another_vocabulary(typed, meant):
    word, vocabulary = typed
    assert likeness.closest(word, VOCABULARIES[vocabulary]) == meant


# What is typed => the command corrected; (number of other mistakes, whether a value of it is an example).
PROPOSALS = {
    "workloads.matmul --save 'a b/1' --fail-on 5%": ("workloads.matmul --save a-b-1", 2, False),
    "workloads.matmul --save 'a b/1' --against lastweek --fail-on 5%": ("workloads.matmul --save a-b-1", 2, False),
    "workloads.launch --calls empty,step --backend numpi": ("workloads.launch --calls empty,step", 3, False),
    "workloads.conv --vary batch --batch 1:64:x4": ("workloads.conv --vary batch --sizes 1:64:x4", 1, False),
    "workloads.conv --model fashion-mnist-mlp --batch 32 cpu fast": (
        "workloads.matmul --model fashion-mlp --batch 32 --device cpu --fast",
        4,
        False,
    ),
    "workloads.conv --model lenet --direction bwd --fast": (
        "workloads.conv --model lenet --direction dgrad,wgrad --fast",
        1,
        False,
    ),
    "workloads.inference --sizes 1:256:x4": ("workloads.inference --batch 1:256:x4", 1, False),
    f"analysis.export {SUITE} --to json": (f"analysis.export {SUITE} --to google-benchmark", 1, False),
    "workloads.suite --skip conv,training --fast": (
        "workloads.suite --only peak stream launch matmul --fast",
        1,
        False,
    ),
    "workloads.suite --exclude nothing": ("workloads.suite", 1, True),
    "workloads.training --model lenet mnist_mlp": ("workloads.training --model lenet mnist-cnn", 1, True),
    "analysis.predict --model lenet --profile nvidia-h100": (
        "analysis.predict --model lenet --profile nvidia-h200",
        1,
        True,
    ),
    f"analysis.predict --check {SUITE} {PREDICTED}": (f"analysis.predict --check {PREDICTED} {SUITE}", 1, False),
    "analysis.predict --profile nvidia-h200": (
        "analysis.predict --model cifar10-cnn --batch 32 256 --profile nvidia-h200",
        1,
        True,
    ),
    "analysis.compare nvidia-h200": (f"analysis.compare {SUITE} {LADDER}", 1, True),
    f"analysis.compare {SUITE} {SUITE[:-1]}": (f"analysis.compare {SUITE} {LADDER}", 1, True),
    f"analysis.compare {SUITE[:-1]} {SUITE}": (f"analysis.compare {LADDER} {SUITE}", 1, True),
    "analysis.report nvidia-h100": (f"analysis.report {SUITE}", 1, True),
    "analysis.report suite": (f"analysis.report {SUITE}", 1, True),
    "workloads.describe --batch 64": ("workloads.describe --batch 64 --operations", 1, False),
    "workloads.suite quick": ("workloads.suite --quick", 1, False),
    "workloads.matmul fast": ("workloads.matmul --fast", 1, False),
    "workloads.matmul --fast yes --sizes 64": ("workloads.matmul --fast --sizes 64", 1, False),
    "workloads.matmul --fast no --sizes 64": ("workloads.matmul --sizes 64", 1, False),
    "workloads.matmul --sizes 64 -f json": ("workloads.matmul --sizes 64 --format json", 1, False),
    "workloads.matmul -n 64": ("workloads.matmul --sizes 64", 1, False),
    "workloads.matmul --sizes 64 --backends cpu": ("workloads.matmul --sizes 64 --device cpu", 1, False),
    "workloads.matmul --sizes 64 --no-gpu": ("workloads.matmul --sizes 64 --device cpu", 1, False),
    "workloads.matmul --sizes 64 --device cpu,gpu:7": ("workloads.matmul --sizes 64 --device cpu", 1, False),
    "workloads.matmul --sizes 64 --threads four": ("workloads.matmul --sizes 64 --threads 1", 1, True),
    "workloads.matmul --sizes 64 --dtypes int8": ("workloads.matmul --sizes 64 --dtypes float32", 1, True),
    "workloads.matmul --sizes 64 /h": ("workloads.matmul -h", 1, False),
    "workloads.matmul --max-noise 150": ("workloads.matmul --max-noise 100%", 1, False),
    "workloads.matmul --sizes 64 to 512": ("workloads.matmul --sizes 64:512", 1, False),
    "workloads.matmul --sizes 64 -v 3": ("workloads.matmul --sizes 64 -v", 1, False),
    "workloads.matmul --sizes 64 --format=": ("workloads.matmul --sizes 64 --format=table", 1, False),
    "workloads.matmul --sizes 64 -j 1": ("workloads.matmul --sizes 64 --threads 1", 1, False),
    "analysis.explain --model lenet --verify no": ("analysis.explain --model lenet --verify 3", 1, True),
    "analysis.explain --model mobilenet": ("analysis.explain --model cifar10-cnn", 1, True),
    "analysis.explain --model keras.applications.ResNet50": ("analysis.explain --model resnet-50", 1, False),
    "analysis.explain --model lenet --input tf": ("analysis.explain --model lenet --input tf.data", 1, False),
    "analysis.explain --model lenet -o answer.json": ("analysis.explain --model lenet --format json", 1, False),
    "workloads.suite --only cpu": ("workloads.suite --device cpu", 1, False),
    "workloads.suite my_model.py": ("analysis.explain my_model.py", 1, False),
    "analysis.explain --model lenet --batch 32 64 128": ("analysis.explain --model lenet --batch 32", 1, False),
    "analysis.explain --model lenet --xla": ("analysis.explain --model lenet --jit on", 1, False),
    "analysis.explain my_model.py --lr 0.1": ("analysis.explain my_model.py -- --lr 0.1", 1, False),
    "analysis.explain --price-gpu 3.5": ("analysis.explain --price-gpu 3.5 --model cifar10-cnn", 1, True),
    "analysis.explain --model bert": ("analysis.explain --model cifar10-cnn", 1, True),
    "analysis.explain lenet": ("analysis.explain --model lenet", 1, False),
    "analysis.explain --batch 0 --samples 0 --model lenet": (
        "analysis.explain --batch 1 --samples 1 --model lenet",
        2,
        False,
    ),
    "analysis.predict --model lenet --profile nvidia-h200 --switch jit_compile:on": (
        "analysis.predict --model lenet --profile nvidia-h200 --switch jit_compile=on",
        1,
        False,
    ),
    "analysis.compare none nothing -v": (f"analysis.compare {SUITE} {LADDER} -v", 2, True),
    f"analysis.compare {SUITE} nothing": (f"analysis.compare {SUITE} {LADDER}", 1, True),
    f"analysis.compare nothing {SUITE}": (f"analysis.compare {LADDER} {SUITE}", 1, True),
    f"analysis.compare '' {SUITE}": (f"analysis.compare {LADDER} {SUITE}", 1, True),
    f"analysis.compare '' {AMD}": (f"analysis.compare {AMD_STUDY} {AMD}", 1, True),
    f"analysis.compare {AMD} nothing": (f"analysis.compare {AMD} {AMD_STUDY}", 1, True),
    f"analysis.compare photos {AMD}": (f"analysis.compare {AMD_STUDY} {AMD}", 1, True),
    f"analysis.compare {AMD} reports": (f"analysis.compare {AMD} {AMD_STUDY}", 1, True),
    f"analysis.compare my_model.py {AMD}": (f"analysis.compare {AMD_STUDY} {AMD}", 1, True),
    "analysis.compare '' ''": (f"analysis.compare {SUITE} {LADDER}", 1, True),
    f"analysis.export csv {SUITE}": (f"analysis.export --to csv {SUITE}", 1, False),
    f"analysis.export {SUITE} --format csv": (f"analysis.export {SUITE} --to csv", 1, False),
    f"analysis.fleet {SUITE} --against lastweek": (f"analysis.fleet {SUITE}", 1, False),
    f"analysis.fleet {SUITE} --against lastweek --fail-on 3%": (f"analysis.fleet {SUITE} --save before", 2, False),
    f"analysis.report {SUITE} -o ''": (f"analysis.report {SUITE} -o crossover-results", 1, True),
    f"analysis.report {SUITE} --output=": (f"analysis.report {SUITE} --output=crossover-results", 1, True),
    f"analysis.export {SUITE} --to csv -o ''": (f"analysis.export {SUITE} --to csv", 1, False),
    "workloads.matmul --sizes 64 --save ''": ("workloads.matmul --sizes 64 --save before", 1, True),
    "workloads.matmul --sizes 64 -o ''": ("workloads.matmul --sizes 64 -o crossover-results", 1, True),
    "analysis.explain --model ''": ("analysis.explain --model cifar10-cnn", 1, True),
    "analysis.explain --model lenet --data ''": ("analysis.explain --model lenet", 1, False),
    f"analysis.report {SUITE} nothing": (f"analysis.report {SUITE}", 1, False),
    "workloads.conv --layer 3": ("workloads.conv", 1, True),
    "workloads.matmul --sizes 64 --threads 1 max": (f"workloads.matmul --sizes 64 --threads 1 {CPUS}", 1, False),
    "workloads.training --case S4": ("analysis.explain --case S4", 1, False),
    "workloads.training --dtype float16": ("workloads.training --precision mixed_float16", 2, False),
    "workloads.matmul --sizes 64 --device cuda:7": ("workloads.matmul --sizes 64 --device cpu", 2, True),
    "workloads.matmul --sizes 64 --version": ("crossover --version", 1, False),
    "workloads.matmul --sizes 64 --max-time 1m30s": ("workloads.matmul --sizes 64 --max-time 90s", 1, False),
    "workloads.matmul --sizes 64 --max-time -5ms": ("workloads.matmul --sizes 64 --max-time 5ms", 1, False),
    "workloads.stream --kernel add": ("workloads.stream --operations add", 1, False),
    "workloads.stream --bytes 64k": ("workloads.stream --sizes 64k", 1, False),
    f"workloads.describe {SUITE}": (f"analysis.report {SUITE}", 1, False),
    "analysis.explain --model lenet --cpu": ("analysis.explain --model lenet", 1, True),
    "analysis.explain --model lenet --batch auto": ("analysis.explain --model lenet", 1, False),
    "workloads.describe my_model.py": ("workloads.describe --script my_model.py", 1, False),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model file, lines of another program and the stored runs, on a machine without runs of its own."""
    (tmp_path / "my_model.py").write_text("x = 3\n")
    (tmp_path / "reports").mkdir()
    for machine in ("nvidia-h200", "amd-avx512-2c"):
        (tmp_path / "reports" / machine).symlink_to(ROOT / "reports" / machine)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/train.jsonl").write_text('{"text": "cat"}\n')
    monkeypatch.setattr(runs, "LOCAL", tmp_path / "none")
    monkeypatch.setattr(baselines, "FOLDER", tmp_path / "none" / "saved")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def relative(line: str) -> str:
    """A command without `python -m`, with the stored runs as paths from here."""
    words = shlex.split(line)[2:]
    stored = {os.path.realpath(run): run for run in (SUITE, LADDER, AMD_STUDY)}
    return shlex.join([stored.get(os.path.realpath(word), word) for word in words])


@pytest.mark.parametrize(("typed", "expected"), PROPOSALS.items())
def test_a_correction_keeps_all_that_was_typed(typed, expected, folder):
    proposal = hints.corrected_line(f"python -m {typed}")
    assert (relative(proposal.line), len(proposal.notes), proposal.is_example) == expected


def test_a_missing_device_comes_before_other_errors(folder, monkeypatch):
    from workloads.machine import facts

    monkeypatch.setattr(facts, "gpu_problem", lambda: "no NVIDIA driver")
    command = hints.hints_for("python -m workloads.transfer --sizes 4k-256M")
    mistake = command.mistake(command.words)
    proposal = command.best(mistake)
    if "copies to or from a GPU" not in proposal.error:
        pytest.skip("this machine has a GPU")
    assert hints.corrected_line("python -m workloads.transfer --directions htod").notes[-1].endswith("exists: 'h2d'")
    assert proposal.notes == ("--sizes: '4k-256M' is no size; a range is written 4k:256M:x4",)
    assert (relative(proposal.line), proposal.is_example) == ("workloads.stream --sizes 4k:256M:x4", True)


def test_numbers_behind_a_flag_that_takes_one():
    flags = importlib.import_module(help_screen.starts("analysis.explain")).parser()._option_string_actions
    words = ["--batch", "32", "64", "--model", "lenet", "7"]
    assert corrections.numbers_beyond_one(words, flags) == ("--batch", ["32", "64"], [*words[:2], *words[3:]])
    assert corrections.numbers_beyond_one(["--batch", "32", "--model", "lenet"], flags) == ("", [], [])


def test_an_older_schemas_run_is_never_proposed(folder, monkeypatch):
    local = folder / "local"
    monkeypatch.setattr(runs, "LOCAL", local)
    stored = (ROOT / SUITE / "2026-11-22/matmul.jsonl").read_bytes()
    for name, content in (("new", stored), ("old", stored.replace(b'"schema":%d' % SCHEMA, b'"schema":1'))):
        (local / "here" / name).mkdir(parents=True)
        (local / "here" / name / "matmul.jsonl").write_bytes(content)
        os.utime(local / "here" / name / "matmul.jsonl", (1, 1 if name == "new" else 2))
    assert runs.any_run() == str(local / "here/new")


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
