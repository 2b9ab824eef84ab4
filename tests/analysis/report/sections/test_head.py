"""Sections of a page by their lines: numbers of each row, what is missing, and what a page is called."""

from types import SimpleNamespace

import fake_measurements as fake
import msgspec
import pytest
from fake_crossovers import resident_and_copies
from fake_measurements import row, square
from msgspec.structs import replace

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.crossover.crossover import crossovers
from analysis.predict import budget
from analysis.report import material
from analysis.report.sections import crossings, head, step_budgets
from analysis.stats import exact
from kernels.problems import Launch, Training
from workloads import records
from workloads.records import Measurement, Samples


def training(batch: int, status: str = "ok") -> Measurement:
    return row("training/keras/fit", Training("lenet", batch, 64), 1e-2, status=status, reason="no memory: 9 GiB")


def step(batch: int, **parts: float | None) -> budget.Budget:
    """Milliseconds of the parts of a step of 10 ms; None of one that is not known."""
    made = tuple(
        budget.BudgetPart(
            name=name,
            seconds=None if ms is None else exact(ms / 1e3),
            why=name,
            partial=True,
            command=f"measure {name}",
        )
        for name, ms in parts.items()
    )
    return budget.Budget(training=training(batch), step=exact(1e-2), parts=made, remainder=exact(0.0))


def test_missing_parts_are_named_once_with_commands():
    known, one = step(8, dense_layers=9.0), step(16, dense_layers=None, dispatch=1.0)
    both = step(32, dense_layers=None, dispatch=None)
    assert step_budgets.missing([known]) == []
    lines = markdown(step_budgets.missing([known, one, both]))
    assert (
        lines[0]
        == "Of 2 training rows not all parts of a step are known (dense_layers and dispatch); these measure them:"
    )
    assert lines[1:] == ["", "- `measure dense_layers`", "- `measure dispatch`", ""]
    silent = msgspec.structs.replace(one, parts=tuple(msgspec.structs.replace(p, command="") for p in one.parts))
    assert markdown(step_budgets.missing([silent]))[0].endswith("are known (dense_layers).")


def test_steps_with_unknown_parts_are_in_a_table():
    rows = [training(8), training(16, "failed")]
    for made, in_table in (([step(8, dense_layers=9.0)], False), ([step(8, dense_layers=None)], True), ([], False)):
        lines = markdown(step_budgets.section(made, rows))
        assert any(line.startswith("| training |") for line in lines) is in_table
        assert lines[0] == "- lenet, batch 16: failed on the CPU, no memory: 9 GiB"
    assert step_budgets.section([], [row("matmul/numpy/blas", square(8), 1e-3, threads=1)]) == []


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "commit aaaaaaaa0"), (2, "commits aaaaaaaa1 and aaaaaaaa0")],
)
def test_commits_are_told_newest_first(count, words):
    run = fake.run(fake.CPU_MACHINE)
    runs = [
        msgspec.structs.replace(run, commit=f"aaaaaaaa{i}", sources="", started_at=f"2026-01-0{i + 1}T00:00:00Z")
        for i in range(count)
    ]
    assert head.versions([*runs, *runs]) == words


def test_only_the_newest_commits_are_named():
    run = fake.run(fake.CPU_MACHINE)
    runs = [
        msgspec.structs.replace(run, commit=f"{i:09}", sources="", started_at=f"2026-01-{i + 1:02}T00:00:00Z")
        for i in range(head.MOST_HASHES + 3)
    ]
    told = head.versions(runs)
    assert told.startswith(f"commits {head.MOST_HASHES + 2:09}") and told.endswith("and 3 more")
    assert head.versions(runs[:-3]) == "commits 000000003, 000000002, 000000001 and 000000000"


@pytest.mark.parametrize(
    ("flags", "high", "is_bad"),
    [
        ((), 1.05e-3, False),  # [1, 1.05] ms is ±2.5 %
        ((), 1.07e-3, True),
        (("cpu-clock",), 1.05e-3, False),  # a clock that moved counts by the interval that it made
        (("cpu-clock",), 1.07e-3, True),
        (("other-load",), 1.05e-3, True),
        (("cpu-clock", "thermal"), 1.05e-3, True),
    ],
)
def test_a_noisy_row_has_a_flag_or_width(flags, high, is_bad):
    seconds = (1e-3, 1e-3, 1e-3, 1e-3, high)  # of five visits: their range
    taken = Samples("host-latency", seconds, 1, (1,) * 5, "5 visits")
    m = msgspec.structs.replace(row("matmul/numpy/blas", square(8), 1.0, flags=flags), samples=(taken,))
    device_alone = row("matmul/cupy/cublas", square(8), {"device": 1.0}, flags=("thermal",))
    assert head.noisy([m, row("matmul/numpy/blas", square(9), 1.0), device_alone]) == (int(is_bad), 2)


@pytest.mark.parametrize(
    ("rows", "wins"),
    [
        ([row("matmul/numpy/blas", square(8), 1.0), row("matmul/cupy/cublas", square(8), 1.0)], True),
        ([row("matmul/numpy/blas", square(8), 1.0), training(8)], False),
        ([row("launch/numba/njit", Launch("empty"), 1.0), row("launch/cupy/rawkernel", Launch("empty"), 1.0)], False),
        (
            [row("matmul/numpy/blas", square(8), 1.0), row("matmul/cupy/cublas", square(8), None, status="failed")],
            False,
        ),
    ],
)
def test_only_shared_operations_raise_a_winner_question(rows, wins):
    expected = "Where the GPU starts to win" if wins else "What was measured"
    assert head.title([SimpleNamespace(rows=rows)]) == expected


def test_commands_are_listed_once_without_stopping_flags():
    commands = ("python -m workloads.stream --fast", "python -m workloads.matmul --stop-after 5 --sizes 8")
    again = "python -m workloads.matmul --sizes 8 --resume"
    runs = [
        msgspec.structs.replace(fake.run(fake.CPU_MACHINE, command), started_at=f"2026-01-0{day}T00:00:00Z")
        for command, day in ((commands[0], 3), (commands[1], 1), (again, 2))
    ]
    assert head.commands(runs) == ["python -m workloads.matmul --sizes 8", "python -m workloads.stream --fast"]


def test_the_badge_and_the_why_table():
    quiet = [row("matmul/numpy/blas", square(n), 1.0) for n in range(1, 10)]
    flagged = row("matmul/numpy/blas", square(10), 1.0, flags=("steal",))
    wide = row("matmul/numpy/blas", square(11), 1.0, spread=0.3)
    for rows, told in (([*quiet, flagged], "clean: 1 of 10 timed rows"), ([*quiet, flagged, wide], "noisy: 2 of 11 ")):
        told_of = head.head(material.Material(Analysis.from_rows(rows)))
        assert f"{told_of.word}: {told_of.why}".startswith(told)
    rows = resident_and_copies()
    text = "\n".join(markdown(crossings.section(rows, crossovers(rows))))
    assert "| 64 | 50.0 µs | numpy/blas, 1 thread | 100 µs | cupy/cublas | 5.00 µs | 19.0 µs | 76.0 µs | 0 s |" in text


def test_the_head_names_every_commit_newest_first(monkeypatch):
    """Six runs of five commits: four commits and how many more, not the last one's alone."""
    commits = ("a" * 40, "b" * 40, "c" * 40, "d" * 40 + "+changes", "e" * 40, "a" * 40)
    sources = ["f" * 16, *["0123456789abcdef"] * (len(commits) - 1)]
    runs = [
        replace(fake.run(fake.GPU_MACHINE), commit=commit, sources=s, started_at=f"2025-01-0{6 - i}T00:00:00Z")
        for i, (commit, s) in enumerate(zip(commits, sources, strict=True))
    ]
    said = "commits aaaaaaaaa, bbbbbbbbb, ccccccccc, ddddddddd+changes and 1 more"
    assert head.versions(runs) == head.versions(runs[::-1]) == said
    assert head.versions(runs[:1]) == "commit aaaaaaaaa"
    loaded = records.Loaded(tuple(runs), (), 0, ("matmul.jsonl",))
    assert head.header([material.Material(Analysis.from_loaded(loaded))])[3].endswith(f"; {said}")
    monkeypatch.setattr("workloads.machine.facts.sources_of", lambda commit: "0" * 16)
    assert head.versions(runs[:1]) == "commit aaaaaaaaa+dirty"
