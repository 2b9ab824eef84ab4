"""The table of all numbers: every row is told from every other by what it shows, and columns that say nothing are left out."""

import pathlib

import pytest
from fake_measurements import page_of, row, square

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.report import html
from analysis.report.material import Material
from analysis.report.sections import all_numbers
from kernels.problems import Launch
from workloads.records import by_machine

REPORTS = pathlib.Path(__file__).parents[4] / "reports"


@pytest.mark.parametrize("run", ["training-seeds", "training-residence", "training-together", "inference"])
def test_no_two_rows_of_stored_runs_look_alike(run):
    for loaded in by_machine(REPORTS / "nvidia-h200" / run).values():
        shown = [Material(Analysis.from_loaded(loaded))]
        found, names = all_numbers.table(shown), html.embedded(shown)["names"]
        told = {tuple(line[: names - 1]) for line in found.rows}
        assert found.heads[names - 1] == "time" and len(told) == len(found.rows) > 1


def test_columns_that_say_nothing_are_left_out():
    for run in ("training-seeds", "suite"):
        (loaded,) = by_machine(REPORTS / "nvidia-h200" / run).values()
        shown = Material(Analysis.from_loaded(loaded))
        (first, *_), line = shown.ordered, all_numbers.table([shown]).rows[0]
        words = html._hint(first).split()
        assert len(words) == 3 and all(word in " ".join(line) for word in words)
    (loaded,) = by_machine(REPORTS / "nvidia-h200" / "training-seeds").values()
    found = all_numbers.table([Material(Analysis.from_loaded(loaded))])
    assert found.heads == ["kernel", "problem", "how", "device", "time", "±", "status, flags", "check"]
    assert {len(line) for line in found.rows} == {len(found.heads)}


def test_skipped_rows_take_a_line_per_reason():
    rows = [
        row("matmul/numpy/blas", square(8), 1e-3, threads=1),
        *(row("matmul/cupy/cublas", square(n), None, status="skipped", reason="too large") for n in (8, 16)),
        row("launch/numba/njit", Launch("empty", 64), 1e-3, threads=1),
    ]
    lines = markdown(all_numbers.section([page_of(rows)]))
    assert "- matmul/cupy/cublas: 2 rows skipped (too large)" in lines
    assert len([line for line in lines if line.startswith("| ")]) == 2 + 2
    assert lines[0].startswith("A time of `") and lines[0].endswith("` is that of all of them.")
    nothing = markdown(all_numbers.section([page_of(rows[1:3])]))
    assert "Nothing was measured." in nothing
