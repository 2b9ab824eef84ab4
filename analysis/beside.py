"""Runs and machines beside each other in words, for a page that shows several: what analysis.comparison found."""

import statistics
from typing import TYPE_CHECKING

from analysis.roofline import is_gpu
from analysis.sentences import compare_sentence
from analysis.units import count, digits, join, seconds

if TYPE_CHECKING:
    from analysis.comparison import Compared, Comparison

_NAMED = 3  # rows of each verdict, in words
HEADS = ("row", "clock", "before", "after", "times as long", "verdict")


def sentences(made: "Comparison", old: str, new: str) -> list[str]:
    """How many shared rows are faster, slower, the same by device and operation, which differ most, what else differs."""
    if not made.rows:
        return [f"{old} and {new} share no row with a time in both.", *_differing(made)]
    groups: dict[tuple[bool, str], list[Compared]] = {}
    for r in made.rows:
        groups.setdefault((is_gpu(r.new.settings.device), r.new.problem.op), []).append(r)
    said = []
    for (gpu, op), group in groups.items():
        counts = [(word, sum(r.word == word for r in group)) for word in ("faster", "slower", "same", "can't tell")]
        middle = statistics.median(r.verdict.ratio.value for r in group)
        said.append(
            f"Of {count(len(group), f'{op} row')} on the {'GPU' if gpu else 'CPU'} that both have, in {new} "
            f"{join(f'{n} {word}' for word, n in counts if n)}; in the middle they take {digits(middle)} times as long as in "
            f"{old}."
        )
    for word in ("slower", "faster"):
        said += [f"{r.name}: {compare_sentence(r.verdict, old, new)}" for r in made.of(word)[:_NAMED]]
    return [*said, *_differing(made)]


def _differing(made: "Comparison") -> list[str]:
    return [f"They differ in {join(made.differences)}."] if made.differences else []


def rows(made: "Comparison") -> list[tuple]:
    """A line a shared row, those that differ most first."""
    ranked = [r for word in ("slower", "faster", "can't tell", "same") for r in made.of(word)]
    return [
        (
            r.name,
            r.clock,
            *(seconds(statistics.median(m.on(r.clock).seconds)) for m in (r.old, r.new)),
            f"{digits(r.verdict.ratio.value)} ({digits(r.verdict.ratio.low)}..{digits(r.verdict.ratio.high)})",
            r.word,
        )
        for r in ranked
    ]
