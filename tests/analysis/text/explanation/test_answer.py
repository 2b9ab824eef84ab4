"""Findings of an explanation in words: each kind by its own numbers."""

from types import SimpleNamespace

import pytest

from analysis.finding import Finding, Warning
from analysis.stats import Estimate, exact
from analysis.text.explanation import changes, details, doubts, framework, price, reasons, turning_point, verdict
from analysis.text.sentences import MEASURED, PREDICTED


def words(module, kind: str, subject: str = "", doubts=(), **numbers) -> str:
    return module.SENTENCES[kind](Finding(kind=kind, subject=subject, numbers=numbers, doubts=tuple(doubts)))


@pytest.mark.parametrize(
    ("kind", "subject", "numbers", "said"),
    [
        (
            "too-big",
            "gpu",
            {"peak": exact(2**31), "capacity": 2**30},
            "It needs 2.00 GiB of memory on the GPU, which has 1.00 GiB",
        ),
        (
            "withheld",
            "",
            {"names": "attention", "share": 0.75},
            "No verdict: attention not known, 75 % of the arithmetic",
        ),
        ("not-measured", "cpu", {}, "No verdict yet: the CPU was not measured"),
        ("not-measured", "gpu", {}, "No verdict yet: no GPU was measured"),
        (
            "untraced",
            "gpu",
            {"reason": "it is compiled with run_eagerly=True"},
            "No verdict: no GPU was measured, and it is compiled with run_eagerly=True",
        ),
        ("time", "cpu", {"whole": exact(12.0), "source": PREDICTED}, "On the CPU it takes 12.0 s (predicted)."),
        (
            "winner",
            "",
            {"cpu": exact(30.0), "gpu": exact(10.0), "source": MEASURED},
            "The GPU: 10.0 s against 30.0 s on the CPU, 3.0x faster.",
        ),
    ],
)
def test_verdicts(kind, subject, numbers, said):
    assert words(verdict, kind, subject, **numbers).startswith(said)


def test_bars_are_as_long_as_times():
    """36 blocks for 18 s: 9 s [6, 12] are 12 full, 6 light to the mark and 6 light behind it."""
    cpu, gpu = verdict.bars(exact(18.0), Estimate(9.0, 6.0, 12.0))
    assert cpu.startswith("  CPU  " + "█" * 36 + "|") and gpu.startswith("  GPU  " + "█" * 12 + "░" * 6 + "|" + "░" * 6)
    (cut, _) = verdict.bars(Estimate(10.0, 10.0, 1000.0), exact(1.0))
    assert cut.count("█") == 14 and cut.count("░") == 22  # 10 s of 25, and its interval to the end


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"later_s": 0, "is_bound": False}, "The GPU's steps are 3.0x faster."),
        ({"later_s": 0, "is_bound": True}, "The GPU's steps are at least 2.0x faster."),
        ({"later_s": 14.0, "is_bound": False}, "The GPU's steps are 3.0x faster; it starts 14.0 s later."),
        (
            {"later_s": -14.0, "is_bound": False, "mostly": "build and compile"},
            "The GPU's steps are 3.0x faster; it starts 14.0 s earlier (compilation).",
        ),
    ],
)
def test_why_a_device_is_first(numbers, said):
    given = {"speedup": Estimate(3.0, 2.0, 4.0), "mostly": "", **numbers}
    assert words(reasons, "steps", **given) == said


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (exact(2.0), "Dispatch is 2.0x slower than with H200's own CPU."),
        (exact(0.5), "Dispatch is 2.0x faster than with H200's own CPU."),
        (Estimate(1.1, 0.8, 1.5), "Dispatch is as fast as with H200's own CPU, or can't be told from it."),
        (None, "Dispatch is taken as with H200's own CPU: no call was measured on both."),
    ],
)
def test_the_host_beside_that_of_a_stored_gpu(factor, said):
    assert words(reasons, "host", "H200", factor=factor) == said


def test_where_most_time_is_has_both_devices_seconds():
    assert words(reasons, "most-elsewhere", "start-up", cpu=exact(2.0), gpu=exact(5.0)) == (
        "Most time is start-up: 2.00 s on the CPU, 5.00 s on the GPU."
    )


@pytest.mark.parametrize(
    ("counts", "sure", "said"),
    [
        ({"samples": 7200.0}, True, "about 7,200 samples on, the GPU finishes first."),
        (
            {"samples": 7200.0, "epochs": 3.0},
            False,
            "about 7,200 samples or 3 epochs on, the GPU probably finishes first.",
        ),
        ({"epochs": 0.2}, True, "about 1 epoch on, the GPU finishes first."),
        ({}, True, "the first epoch on, the GPU finishes first, and it stays so."),
    ],
)
def test_from_how_many_samples_or_epochs(counts, sure, said):
    assert words(turning_point, "turning-point", "gpu", counts=counts, sure=sure) == said


@pytest.mark.parametrize(
    ("counts", "below", "said"),
    [
        ({"samples": 7200.0}, True, "Below about 7,200 samples the CPU probably wins: how many have you?"),
        ({"epochs": 12.0}, False, "From about 12 epochs the CPU probably wins: how many will you train?"),
    ],
)
def test_where_the_other_device_wins_as_a_question(counts, below, said):
    assert words(turning_point, "question", "cpu", counts=counts, below=below) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "not known"),
        (exact(0.0), "nothing"),
        (Estimate(2.0, -1.0, 5.0), "perhaps 2.00 s"),
        (Estimate(-2.0, -5.0, 1.0), "perhaps costs 2.00 s"),
        (Estimate(-2.0, -5.0, -1.0), "costs 2.00 s"),
        (exact(2.0), "2.00 s"),
    ],
)
def test_what_a_change_saves_or_costs(seconds, said):
    assert changes.saved(seconds) == said


def change(subject: str, sure: bool = True, note: str = "", gpu_wins: bool = False) -> Finding:
    numbers = {"saved": Estimate(3.0, 2.0, 4.0), "sure": sure, "note": note, "gpu_wins": gpu_wins}
    return Finding(kind="change", subject=subject, numbers=numbers)


def test_changes_are_numbered_with_their_notes():
    made = changes.table([change("batch 128", note="learns else", gpu_wins=True), change("XLA")])
    assert [row[0] for row in made.rows] == ["1. batch 128", "2. XLA"]
    assert [row[2] for row in made.rows] == ["learns else, then the GPU wins", ""]
    assert all(row[1].startswith("saves 3") for row in made.rows)


@pytest.mark.parametrize(
    ("shown", "hidden", "most", "complete", "lines"),
    [
        (1, [], 2, False, ["--how 1 shows the code."]),
        (2, [], 2, False, ["Savings overlap: do not add them. --how 1 shows the code."]),
        (1, [True, False], 2, True, ["2 more below. --how 1 shows the code."]),
        (1, [False], 2, False, ["1 more, not sure to save 1 % (--all). --how 1 shows the code."]),
        (0, [True], 2, False, []),
        (1, [True], 0, False, []),
    ],
)
def test_the_line_under_the_changes(shown, hidden, most, complete, lines):
    all_shown, rest = [change("a")] * shown, [change("b", sure) for sure in hidden]
    assert changes.footer(all_shown, rest, most=most, complete=complete) == lines


def test_a_price_names_the_cheapest_and_the_fastest():
    told = words(price, "price", cpu=exact(2.0), gpu=exact(1.0), cheapest="gpu", fastest="cpu")
    assert told == "CPU 2.00, GPU 1.00, in your currency. Cheapest: GPU. Fastest: CPU."
    unsure = words(price, "price", cpu=exact(2.0), gpu=exact(1.0), cheapest="neither", fastest="neither")
    assert unsure.endswith("Cheapest: can't tell. Fastest: can't tell.")


def warning(kind: str, rows: int, used: int, share: float | None = None, names=()) -> Warning:
    return Warning(kind=kind, device="cpu", rows=rows, rows_used=used, share=share, names=tuple(names))


def test_each_disturbance_is_said_once():
    told = words(
        doubts,
        "disturbed",
        doubts=[warning("other-load", 1, 20, 0.1), warning("other-load", 8, 20, 0.4), warning("thermal", 3, 3)],
    )
    assert told == (
        "Other programs used 40 % of the CPU in 8 of 20 rows and heat lowered the GPU's clock: measure again (--wait-quiet)."
    )


@pytest.mark.parametrize(
    ("problem", "begins"),
    [
        (None, "On box TensorFlow used the GPU in 1,200 rows, 7 of them trainings."),
        ("", "This machine has a GPU, which was left aside. On box"),
        ("no driver", "This machine has no GPU that can be measured (no driver). On box"),
    ],
)
def test_whether_the_framework_used_the_gpu(problem, begins):
    assert words(framework, "gpu-used", "box", rows=1200, trained=7, here_problem=problem).startswith(begins)


@pytest.mark.parametrize(
    ("batch", "said"),
    [(None, "-"), (Estimate(1200.0, 600.0, 2400.0), "about 1,200"), (Estimate(0.5, 0.2, 9.0), "none fits")],
)
def test_the_largest_batch_that_fits_is_the_likeliest(batch, said):
    assert details._largest_batch(SimpleNamespace(largest_batch=batch)) == said
