"""What one asks of the page and the rows themselves: a size of one's own, distributions, all numbers, how it was measured."""

from typing import TYPE_CHECKING

from analysis import calculator
from analysis.report import cells, fold, method, rows, sections, trust

if TYPE_CHECKING:
    from analysis.report.html_page import Page
    from workloads.records import Measurement

_TABLES = (
    "<p>Times are read off tables of what was measured here, on straight lines between the sizes in the logarithm; "
    "beyond them the last line goes on, and the answer is gray and says so.</p>"
)


def calculate(page: "Page") -> list[dict]:
    """The section of one's own size, where any run has tables; these, by run."""
    found = [{"run": of.label, "tools": calculator.tools(of.rows, of.answers, of.profile)} for of in page.runs]
    found = [one for one in found if one["tools"]]
    if found:
        page.add("calculator", "Try your own size", _TABLES, str(page.parts.calculator(page.several)))
    return found


def list_rows(page: "Page") -> None:
    """Distributions and all numbers; without JavaScript as a table."""
    if not any(of.rows for of in page.runs):
        return
    hint = _hint(next(m for of in page.runs for m in of.ordered))
    page.add("distributions", "The distribution of any row", str(page.parts.distributions(hint)))
    tried = [m.status != "skipped" for of in page.runs for m in of.ordered]
    heads, found = rows.table(page.runs)
    told = [row for row, kept in zip(found, tried, strict=True) if kept]
    still = fold.table(heads, told, "All numbers", is_open=False)
    labels = [of.label for of in page.runs]
    page.add("numbers", "All numbers", str(page.parts.numbers(labels, page.safe(still), hint)))


def _hint(m: "Measurement") -> str:
    """Words that find a row: `fit cifar10-cnn cpu`."""
    return " ".join((m.kernel.rpartition("/")[2], cells.problem(m).split()[0].rstrip(","), m.settings.device))


def how_measured(page: "Page") -> None:
    """How far to trust it, how it was measured."""
    page.add("trust", "How far to trust this", page.told(lambda of: trust.section(of.rows, of.said)))
    page.add(
        "method",
        "How it was measured",
        page.told(lambda of: sections.details_section(of.left_out)),
        page.told(lambda of: method.how_section(of.loaded)),
        fold.markdown(method.formulas(m for of in page.runs for m in of.rows)),
    )
