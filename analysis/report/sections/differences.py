"""The differences between runs in words: the first run against each further one."""

from analysis.compare import comparison
from analysis.report.material import Material
from analysis.table import text
from analysis.text import comparisons, machines
from analysis.units import count

HEADING = "The differences in words"


def section(runs: "list[Material]") -> list[str]:
    """For each further run: the best of both, and the rows that both have; [] for a single run."""
    return [line for of in runs[1:] for line in _pair(runs[0], of)]


def _pair(old: Material, new: Material) -> list[str]:
    found = comparison.comparison(old.analysis.loaded, new.analysis.loaded)
    said = machines.best(old.rows, new.rows, (old.name, new.name), new.analysis.machine)
    said = [*said, f"{new.name} beside {old.name}: {comparisons.summary(found)}"]
    if found.differences:
        said.append(f"The machines and runs differ in {count(len(found.differences), 'thing')}:")
    lines = [f"### {text(new.label)} beside {text(old.label)}", "", *(f"- {text(s)}" for s in said)]
    return [*lines, *(f"  - {text(words)}" for words in found.differences), "", *comparisons.rows(found).md()]
