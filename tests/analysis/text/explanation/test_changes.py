"""What changes save, in words."""

import pytest

from analysis.finding import Finding
from analysis.stats import Estimate, exact
from analysis.text.explanation import changes


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
