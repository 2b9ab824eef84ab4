"""All numbers of a page: a line a row, the skipped ones by their reasons."""

from collections import Counter

from analysis import labels
from analysis.blocks import Block, Paragraph, listed, tabled
from analysis.report.material import Material
from analysis.report.rows import NUMBERS, OPTIONAL, is_concurrent
from analysis.table import Table
from analysis.units import count
from workloads.records import Measurement

MOST = 2500  # rows that the Markdown lists


def section(runs: list[Material]) -> list[Block]:
    """The section of all numbers: a table of every row that was tried, and how many were skipped for which reason. More rows
    than MOST are left to the HTML page.
    """
    every: list[Measurement] = []
    for run in runs:
        every += run.rows
    tried = [m for m in every if m.status != "skipped"]
    skipped = Counter((m.kernel, m.reason) for m in every if m.status == "skipped")
    skipped_lines = [f"{kernel}: {count(n, 'row')} skipped ({reason})" for (kernel, reason), n in skipped.items()]
    if len(tried) > MOST:
        many_rows = (
            f"{len(tried):,} rows are too many for a page of text: the HTML page filters and sorts them, "
            "`python -m analysis.export --to csv RUN` writes them."
        )
        numbers: list[Block] = [Paragraph(text=many_rows)]
    else:
        numbers = tabled(table(runs, skipped=False)) or [Paragraph(text="Nothing was measured.")]
    sentences = _sentences(tried)
    notes = [Paragraph(text=" ".join(sentences))] if sentences else []
    return [*notes, *numbers, *listed(skipped_lines)]


def _sentences(tried: list[Measurement]) -> list[str]:
    """Sentences that explain times that mean something else: of rows of several launches, and of trainings at the same time."""
    sentences = []
    several_launches = [m.problem for m in tried if m.problem.op == "launch" and m.problem.count > 1]
    if several_launches:
        sentences.append(f"A time of `{labels.problem(several_launches[0])}` is that of all of them.")
    if any(map(is_concurrent, tried)):
        sentences.append("Contention is the time over the steps of all processes together.")
    return sentences


def table(runs: list[Material], skipped: bool = True) -> Table:
    """The table of all numbers, a line a row: what was run, its numbers, and how its answer was checked. With several runs their
    letter comes first. skipped: whether it has the rows that were skipped, too.
    """
    several = len(runs) > 1
    heads = [*NUMBERS, "check"]
    if several:
        heads.insert(0, "run")
    rows = []
    for run in runs:
        for m, numbers in zip(run.ordered, run.numbers, strict=True):
            if m.status == "skipped" and not skipped:
                continue
            cells = [*map(str, numbers), m.check or "-"]
            if several:
                cells.insert(0, run.letter)
            rows.append(cells)
    return Table(heads, rows, left=heads.index("how") + 1, optional=OPTIONAL)
