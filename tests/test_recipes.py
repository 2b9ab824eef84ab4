"""The recipes of docs/recipes.md do what they say in a copy of the code, and touch no more files than they may."""

import csv
import io
import json
import os
import subprocess
import sys

import pytest
import recipes

QUICK = ("--device", "cpu", "--threads", "1", "--max-time", "0.05", "--min-time", "0.005", "-q", "-o", "out")


@pytest.mark.parametrize(("name", "most"), recipes.LIMITS.items())
def test_a_recipe_touches_few_files(name, most):
    assert 1 <= len(recipes.files(name)) <= most


def carried_out(name: str, root) -> list[str]:
    """What the commands of a recipe print in a copy where it was carried out; sweeps are made short."""
    said, env = [], {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for python, *words in recipes.carry_out(name, root):
        assert python == "python"
        words += QUICK if "--fast" in words else ()
        ran = subprocess.run([sys.executable, *words], cwd=root, env=env, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout)
    return said


def result_lines(file, kernel: str) -> list[dict]:
    """The first visits to a kernel's rows in a result file."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if line.get("kernel") == kernel and line["visit"] == 1]


def measured(root, kernel: str) -> list[dict]:
    """The first visits to a kernel's rows in the result file that a recipe's command wrote."""
    return result_lines(root / "out" / "matmul.jsonl", kernel)


@pytest.mark.slow
def test_a_kernel_is_one_function_in_one_file(tmp_path):
    carried_out("a kernel", tmp_path)
    assert [(row.get("status", "ok"), row["check"]) for row in measured(tmp_path, "matmul/numpy/einsum")] == [
        ("ok", "exact")
    ]


@pytest.mark.slow
def test_a_backend_is_a_line_and_a_kernel(tmp_path):
    overview, _ = carried_out("a backend", tmp_path)
    assert [line.split()[1] for line in overview.splitlines() if line.startswith("  scipy ")] == ["ready"]
    assert [row.get("status", "ok") for row in measured(tmp_path, "matmul/scipy/gemm")] == ["ok"]


def test_an_operation_is_a_record_and_kernels(tmp_path):
    overview, measured_here, table = carried_out("an operation", tmp_path)
    assert "workloads.transpose" in overview and "GB/s" in measured_here
    (row,) = csv.DictReader(io.StringIO(table))
    assert (row["op"], row["variant"], row["status"]) == ("transpose", "copyto", "ok")
    assert float(row["bytes_moved"]) == 2 * 64 * 64 * 4
    (visit, *_) = result_lines(tmp_path / "out" / "transpose.jsonl", "transpose/numpy/copyto")
    assert visit["check"] == "exact"


def test_a_study_is_a_function_and_its_name(tmp_path):
    (planned,) = carried_out("a Keras study", tmp_path)
    assert [f"batch={batch} " in planned for batch in (31, 32, 33)] == [True] * 3


def test_an_option_is_values_flag_and_use(tmp_path):
    said, planned = carried_out("an option", tmp_path)
    assert "--weight-average" in said
    assert "weight_average" in planned


@pytest.mark.slow
def test_a_check_is_a_line_and_a_function(tmp_path):
    _, doctored = carried_out("a check", tmp_path)
    assert "all visits within 10 s" in doctored and "brief" in doctored


CHECKED = """
from kernels import reference, registry
from kernels.problems import Matmul
problem = Matmul(17, 33, 65, "float8_e5m2")
operands = problem.inputs(1, whole_numbers=True)
print(reference.check(problem, operands, registry.find("matmul/numpy/widened").bind(problem, *operands)()))
"""


def test_a_dtype_is_a_row_and_a_kernel(tmp_path):
    (planned,) = carried_out("a dtype", tmp_path)
    assert "matmul/numpy/widened" in planned
    ran = subprocess.run([sys.executable, "-c", CHECKED], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "passed=True" in ran.stdout, ran.stderr


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (recipes.Edit("a.py", "new\n"), "there already"),
        (recipes.Edit("a.py", "new\n", "after", "x = 2"), "0 lines"),
        (recipes.Edit("a.py", "new\n", "before", "y = 1"), "2 lines"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(tmp_path, edit, reason):
    (tmp_path / "a.py").write_text("x = 1\ny = 1\ny = 1\n")
    with pytest.raises(ValueError, match=reason):
        edit.apply(tmp_path)
