"""All numbers of a page: a line a row, the skipped ones by their reasons."""

from collections import Counter

from analysis import labels
from analysis.blocks import Block, Paragraph, listed, tabled
from analysis.report.material import Material
from analysis.report.rows import NUMBERS, OPTIONAL, is_concurrent
from analysis.table import Table
from analysis.units import count

MOST = 2500  # rows that the Markdown lists


def section(runs: list[Material]) -> list[Block]:
    """Every row that was tried, a line each; the skipped ones by their reasons."""
    every = [m for of in runs for m in of.rows]
    tried = [m for m in every if m.status != "skipped"]
    skipped = Counter((m.kernel, m.reason) for m in every if m.status == "skipped")
    left = [f"{kernel}: {count(n, 'row')} skipped ({reason})" for (kernel, reason), n in skipped.items()]
    many = next((m.problem for m in tried if m.problem.op == "launch" and m.problem.count > 1), None)
    said = [f"A time of `{labels.problem(many)}` is that of all of them."] if many else []
    if any(map(is_concurrent, tried)):
        said.append("Contention is the time over the steps of all processes together.")
    if len(tried) > MOST:
        many_rows = (
            f"{len(tried):,} rows are too many for a page of text: the HTML page filters and sorts them, "
            "`python -m analysis.export --to csv RUN` writes them."
        )
        numbers: list[Block] = [Paragraph(text=many_rows)]
    else:
        numbers = tabled(table(runs, skipped=False)) or [Paragraph(text="Nothing was measured.")]
    notes = [Paragraph(text=" ".join(said))] if said else []
    return [*notes, *numbers, *listed(left)]


def table(runs: list[Material], skipped: bool = True) -> Table:
    """A table, a line a row: what was run, its numbers, and the check of its answer. With several runs the run comes first."""
    several = len(runs) > 1
    heads = [*["run"] * several, *NUMBERS, "check"]
    rows = (
        [*[of.letter] * several, *map(str, row), m.check or "-"]
        for of in runs
        for m, row in zip(of.ordered, of.numbers, strict=True)
        if skipped or m.status != "skipped"
    )
    return Table(heads, rows, heads.index("how") + 1, OPTIONAL)
