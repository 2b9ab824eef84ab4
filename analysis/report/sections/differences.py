"""The differences between runs in words: the first run against each further one."""

from analysis.blocks import Block, BulletList, Heading, ListItem, tabled
from analysis.compare import comparison
from analysis.report.material import Material
from analysis.text import comparisons, machines
from analysis.units import count

HEADING = "The differences in words"


def section(runs: "list[Material]") -> list[Block]:
    """For each run after the first: sentences on its fastest products, and the table of rows that both runs have; [] for
    one run.
    """
    blocks: list[Block] = []
    for run in runs[1:]:
        blocks += _pair(runs[0], run)
    return blocks


def _pair(old: Material, new: Material) -> list[Block]:
    """One run beside another: a heading, sentences on the fastest products and on what differs, and a table of the rows that both
    have.
    """
    compared = comparison.comparison(old.analysis.loaded, new.analysis.loaded)
    best = machines.best(old.rows, new.rows, (old.name, new.name), new.analysis.machine)
    items = [ListItem(text=sentence) for sentence in best]
    items.append(ListItem(text=f"{new.name} beside {old.name}: {comparisons.summary(compared)}"))
    if compared.differences:
        differ = f"The machines and runs differ in {count(len(compared.differences), 'thing')}:"
        items.append(ListItem(text=differ, below=tuple(compared.differences)))
    heading = Heading(text=f"{new.label} beside {old.label}")
    return [heading, BulletList(items=tuple(items)), *tabled(comparisons.rows(compared))]
