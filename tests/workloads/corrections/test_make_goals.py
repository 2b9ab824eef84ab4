"""What is typed wrong after make: one error, and the command that is meant."""

import shlex
import subprocess

import pytest

from workloads import ROOT, options
from workloads.corrections.make_goals import Makefile, MakeLine, typed_variables

# What is typed after make => what the command in the hint has after it.
MAKE = """
    tests ARGS="-k stream" => make test ARGS='-k stream'
    docs => make help
    instal => make run
    run MODEL=lenet EPOCHS=3 => python -m crossover training --epochs 3 --model lenet
    run train.py => python -m crossover explain train.py
    run SIZES=512 ARGS=--fast => python -m crossover matmul --fast --sizes 512
    README.md => make readme
    runn VENV= ARGS=--dry-run => make run VENV= ARGS=--dry-run
    run quick VENV= => make run VENV=
    run VENV => make run VENV=
    run FAST=1 ARGS=--dry-run => make run ARGS='--dry-run --fast'
    run only=matmul VENV= => make run ARGS='--only matmul' VENV=
    run ITERATIONS=3 VENV= => make run VENV=
    explain MODEL=lenet => python -m crossover explain --model lenet
    matmul SIZES=512 => python -m crossover matmul --sizes 512
    doctor reports/nvidia-h200/suite => python -m crossover doctor reports/nvidia-h200/suite
    install => make run
    check PYTHON=python3 => make test PYTHON=python3
    matmul => python -m crossover matmul -h
    matmul ARGS="--sizes 64" => python -m crossover matmul --sizes 64
    report => python -m crossover report -h
    fuzz => make stress NAME=fuzz
    bench => make bench NAME=aa
    bench matmul_numba VENV= => make bench NAME=matmul_numba VENV=
    stress fuzz ARGS="-n 3" => make stress NAME=fuzz ARGS='-n 3'
    bench NAME=matmul-numba VENV= PYTHON=python3 => make bench NAME=matmul_numba VENV= PYTHON=python3
    bench NAME=matmul => make bench NAME=matmul_numba
    bench NAME=matmuls => make bench NAME=matmul_numba
    bench NAME conv_numba => make bench NAME=conv_numba
    benches NAME=tiles => make stress NAME=tiles
    benches NAME=aa => make bench NAME=aa
    bench name=aa => make bench NAME=aa
    test ARG="-k stream" => make test ARGS='-k stream'
    test stream => make test ARGS='-k stream'
    test tests/workloads ARGS="-k 'a b'" => make test ARGS="-k 'a b' tests/workloads"
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
    "--quikc": ["error: unexpected argument '--quikc'", "  try: make run"],
    "--onyl matmul": ["error: unexpected argument '--onyl'", "  try: make run ARGS='--only matmul'"],
}


@pytest.mark.parametrize(("arguments", "lines"), ARGUMENTS.items())
def test_arguments_are_parsed_before_set_up(arguments, lines):
    assert MAKEFILE.lines(MakeLine(goals=("run",), variables={"ARGS": arguments})) == lines


def test_all_unknown_variables_are_named_at_once():
    line = MakeLine(goals=("bench",), variables={"NAME": "aa", "FAST": "1", "SIZE": "3"})
    correction = MAKEFILE.correction(line)
    assert "'FAST' 'SIZE'" in correction.message
    assert correction.line == MakeLine(goals=("bench",), variables={"NAME": "aa"}) and correction.is_example


def test_variables_are_read_from_makes_flags():
    assert typed_variables("n -- ARGS=-k\\ stream VENV=") == {"ARGS": "-k stream", "VENV": ""}
