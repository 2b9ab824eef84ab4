"""Crossovers as tables, for square products and for layers, with the parts of the GPU's time."""

from collections.abc import Callable, Iterable, Sequence

from analysis.blocks import Block, Paragraph, listed, tabled
from analysis.crossover.answer import Answer
from analysis.crossover.families import SQUARES, rows_of
from analysis.crossover.time_split import Why, why
from analysis.report.charts.crossover import answered, wins
from analysis.table import Table, named
from analysis.text import crossings
from analysis.units import seconds
from workloads.records import Machine, Measurements

_WHY = "a call | at | CPU | CPU kernel | GPU | GPU kernel | arithmetic | launch and Python | copies | not explained"
_ADDS_UP = (
    "The last columns add up to the GPU's time: the device clock, what a resident call takes beyond it, what copying adds to "
    "that, and what is not explained."
)


def section(measurements: Measurements, answers: tuple[Answer, ...], machine: Machine | None = None) -> list[Block]:
    """The section on square products: who wins at which size for each form of a call, and the parts of the GPU's time on both
    sides of each crossing; [] where only one device was timed.
    """
    two_sided = answered(answers)
    if not any(a.points for a in two_sided):
        return []
    squares = rows_of(measurements, SQUARES)
    notes = [*crossings.noise_sentences(two_sided, machine), *gaps(two_sided)]
    return [*tabled(wins(two_sided)), *listed(notes), *details(two_sided, lambda a: why(squares, a))]


def gaps(answers: list[Answer], which: Callable[[Answer], tuple] = lambda a: ()) -> list[str]:
    """Sentences on sizes that were not measured, each once. which: called with an answer, gives the cells that name its
    problem.
    """
    sentences: dict[str, None] = {}
    for a in answers:
        for gap in a.gaps:
            sentences[", ".join((*which(a)[:1], a.precision, gap))] = None
    return list(sentences)


def details(
    answers: list[Answer],
    whys: Callable[[Answer], Iterable[Why]],
    heads: Sequence[str] = (),
    which: Callable[[Answer], tuple] = lambda a: (),
) -> list[Block]:
    """A table of where the time of a call goes, in the first precision.

    Args:
        whys: called with an answer, gives the times in parts at some of its sizes.
        heads: the heads of columns that name an answer's problem.
        which: called with an answer, gives the cells under these heads.
    """
    first = answers[0].precision
    rows = []
    for a in answers:
        if a.precision == first:
            rows += [(*which(a), *_cells(a, split)) for split in whys(a)]
    if not rows:
        return []
    caption = f"Where the GPU's time goes in {first}, on both sides of each crossing"
    table = Table([*heads, *named(_WHY)], rows, left=len(heads) + 1, optional="copies")
    return [Paragraph(text=_ADDS_UP), *tabled(table, caption)]


def _cells(a: Answer, split: Why) -> tuple[object, ...]:
    """The cells under _WHY: the form of a call, the size, seconds and kernel of both devices, and the parts of the GPU's time."""
    sides: list[str] = []
    for side in (split.cpu, split.gpu):
        sides += [seconds(side.seconds.value), crossings.side_name(side)]
    parts = ["-" if part is None else seconds(part) for part in split.parts.values()]
    return crossings.form_name(a.form), split.n, *sides, *parts
