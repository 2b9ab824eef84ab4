"""Doubts in words."""

from finding_words import words

from analysis.finding import Warning
from analysis.text.explanation import doubts


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
