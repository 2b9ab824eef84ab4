"""What is typed wrong after make: one error, and the command that is meant."""

import shlex
import subprocess

import pytest

from workloads import ROOT, options
from workloads.corrections.make_goals import Makefile, error_lines, typed_variables

# What is typed after make => what the command in the hint has after it.
MAKE = """
    tset => make test
    tests ARGS="-k stream" => make test ARGS='-k stream'
    instal => make run
    install => make run
    check PYTHON=python3 => make test PYTHON=python3
    README.md => make readme
    runn VENV= ARGS=--dry-run => make run VENV= ARGS=--dry-run
    run quick VENV= => make run VENV=
    docs => make help
    test stream => make test
    run VENV => make run VENV=
    run FAST=1 ITERATIONS=3 VENV= => make run VENV=
    test ARG="-k stream" => make test ARGS='-k stream'
    bench name=aa => make bench NAME=aa
    fuzz => make stress NAME=fuzz
    bench => make bench NAME=aa
    benches NAME=aa => make bench NAME=aa
    bench training VENV= => make bench NAME=training VENV=
    bench NAME=matmul-numba VENV= PYTHON=python3 => make bench NAME=matmul_numba VENV= PYTHON=python3
    stress fuzz ARGS="-n 3" => make stress NAME=fuzz ARGS='-n 3'
    explain => python -m crossover explain -h
    report => python -m crossover report -h
    explain MODEL=lenet => python -m crossover explain --model lenet
    matmul ARGS="--sizes 64" => python -m crossover matmul --sizes 64
    doctor reports/nvidia-h200/suite => python -m crossover doctor reports/nvidia-h200/suite
    run train.py => python -m crossover explain train.py
"""


@pytest.mark.parametrize(("typed", "right"), [line.split(" => ") for line in MAKE.strip().splitlines()])
def test_wrong_make_goals_are_corrected_in_one_error(typed, right, monkeypatch):
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):  # of the make that runs the tests
        monkeypatch.delenv(name, raising=False)
    words = shlex.split(typed)
    ended = subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True)
    error, *_, tried, _ = ended.stderr.splitlines()
    assert ended.returncode == options.USAGE and not ended.stdout and error.startswith("error: ")
    shown = shlex.split(tried.partition(": ")[2])
    expected = shlex.split(right)
    assert shown[1] == expected[1] and sorted(shown[2:]) == sorted(expected[2:])
    if shown[0] == "make":
        planned = subprocess.run(["make", "-n", *shown[1:]], cwd=ROOT, capture_output=True, text=True)
        assert planned.returncode == options.OK and "exit 2" not in planned.stdout


MAKEFILE = Makefile(targets=("help", "run", "test", "bench"), names={"bench": ("aa", "matmul_numba")})
ARGUMENTS = {
    "--dry-run": [],
    "--quikc": ["error: unexpected argument '--quikc'", "  try: make run ARGS="],
    "--onyl matmul": ["error: unexpected argument '--onyl'", "  try: make run ARGS='--only matmul'"],
}


@pytest.mark.parametrize(("arguments", "lines"), ARGUMENTS.items())
def test_arguments_are_parsed_before_set_up(arguments, lines):
    assert error_lines(["run"], {"ARGS": arguments}, MAKEFILE) == lines


def test_all_unknown_variables_are_named_at_once():
    error, shown = error_lines(["bench"], {"NAME": "aa", "FAST": "1", "SIZE": "3"}, MAKEFILE)
    assert "'FAST' 'SIZE'" in error and shown == "  try, for example: make bench NAME=aa"


def test_variables_are_read_from_makes_flags():
    assert typed_variables("n -- ARGS=-k\\ stream VENV=") == {"ARGS": "-k stream", "VENV": ""}


def test_an_unclosed_quote_is_one_error():
    error, *_ = error_lines(["runn"], {"ARGS": "it's"}, MAKEFILE)
    assert error.startswith("error: no target 'runn'")
