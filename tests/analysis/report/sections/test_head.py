"""Sections of a page by their lines: numbers of each row, what is missing, and what a page is called."""

from types import SimpleNamespace

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import page_of, row, square

from analysis.blocks import markdown
from analysis.explain.published import ClaimRow
from analysis.predict import budget
from analysis.report import pictures
from analysis.report.sections import all_numbers, head, inference, step_budgets
from analysis.report.sections import training as trainings
from analysis.stats import exact
from analysis.table import Table
from analysis.training import inference as answers
from kernels.problems import Inference, Launch, Training
from workloads.records import Measurement, Samples, Settings, published_cases


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


def answer(batch: int, seconds: float, device: str = "cpu", joules: float | None = None, low: float | None = None):
    visits = (low or seconds, seconds, seconds, seconds, 2 * seconds - (low or seconds))
    taken = Samples("host-latency", visits, 1, (1,) * 5, "5 visits")
    values = {} if joules is None else {"joules_per_sample": joules}
    settings = Settings(device, None, "resident", switches={})
    return Measurement(
        answers.RESIDENT.kernel, Inference("lenet", batch), settings, "ok", samples=(taken,), values=values
    )


def test_an_answers_line_has_rates_and_speedup():
    """8 answers in 4 ms on the CPU and in 1 ms on the GPU; 32 in 2 ms on either, one of them known to a half."""
    rows = [
        answer(8, 4e-3),
        answer(8, 1e-3, "gpu:0", joules=0.5),
        answer(32, 2e-3, low=1e-3),
        answer(32, 2e-3, "gpu:0"),
    ]
    case = answers.InferenceCase(model="lenet", dtype="float32", precision="float32")
    assert inference._line(case, rows, answers.RESIDENT, 8) == (
        *("lenet", "8", "resident"),
        *("4.00 ms", "0 %", "1.00 ms", "0 %"),
        *("2000", "8000", "4.00"),
        *("-", "0.500"),
    )
    assert inference._line(case, rows, answers.RESIDENT, 32)[-3] == "can't tell"
    assert inference._line(case, rows[:1], answers.RESIDENT, 8)[5:10] == ("-", "-", "2000", "-", "-")
    assert inference._line(case, rows[:1], answers.QUEUED, 8) is None
    assert inference._line(case, rows, answers.ROUNDTRIP, 8) is None


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


def test_an_articles_claim_joins_the_faster_device(monkeypatch):
    """5 s on the CPU and 2 s on the GPU, the other way round, equal, and a claim without rows."""
    case = published_cases.CASES[0]
    claim = case.claims[0]
    seconds = [(exact(5.0), exact(2.0)), (exact(2.0), exact(5.0)), (exact(2.0), exact(2.0)), (None, None)]
    rows = [ClaimRow(case, claim, cpu=cpu, gpu=gpu) for cpu, gpu in seconds]
    monkeypatch.setattr(trainings, "comparisons", lambda measurements: rows)
    cells = [line.split(" | ") for line in markdown(trainings._articles([])) if line.startswith(f"| {case.name}: ")]
    assert [(line[3], line[5].removesuffix(" |")) for line in cells] == [
        ("2.5x", "gpu"),
        ("0.40x", "cpu"),
        ("1.0x", "neither"),
        ("not measured", "-"),
    ]


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


def test_options_are_compared_with_keras_plain_step(monkeypatch):
    """A step of 2 ms where Keras's own takes 6 ms, and one of 6 ms where it takes 2 ms."""
    pairs = [("jit on", exact(2e-3), exact(6e-3)), ("2 threads", exact(6e-3), exact(2e-3))]
    changed = []
    for what, step, plain in pairs:
        change = trainings.training.StepChange(
            training="LeNet", device="cpu", options=what, step=step, plain_step=plain
        )
        changed.append(change)
    monkeypatch.setattr(trainings.training, "changes", lambda rows: changed)
    table = markdown(trainings._changes([]))
    assert [line.split(" | ")[3:] for line in table if line.startswith("| LeNet")] == [
        ["2.00 ms", "6.00 ms", "3.0x faster |"],
        ["6.00 ms", "2.00 ms", "3.0x slower |"],
    ]


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


def test_each_chart_with_rows_has_its_table(monkeypatch):
    charts = [
        SimpleNamespace(title="Rates", numbers=Table("n", [("8",)]), note="* a note"),
        SimpleNamespace(title="Empty", numbers=Table("n"), note=""),
        SimpleNamespace(title="Copies", numbers=Table("way", [("h2d",)]), note=""),
    ]
    monkeypatch.setattr(pictures, "merged_charts", lambda names, runs: charts)
    assert pictures.numbers((), []) == [
        *("Rates:", "", "| n |", "| --- |", "| 8 |", "", "\\* a note", ""),
        *("Copies:", "", "| way |", "| --- |", "| h2d |", ""),
    ]
