"""Budgets of training steps on the page: sentences, the sources of the parts' times, and one line on missing parts."""

from collections.abc import Iterable

from analysis.blocks import Block, Paragraph, listed, tabled, titled
from analysis.predict.budget import Budget
from analysis.report.charts import training as charts
from analysis.text import budget
from analysis.units import count, join
from workloads.records import Measurements


def section(made: list[Budget], measurements: Measurements, not_on_steps: Iterable[str] = ()) -> list[Block]:
    """Sentences, commands for missing parts, and the sources of the parts' times. If no part of any step is known there is no
    chart, so a table of the steps is here. not_on_steps: sentences on trainings that do not concern the time of a step."""
    rows = [m for m in measurements if m.problem.op == "training"]
    if not rows:
        return []
    lost = [budget.lost(m) for m in rows if not m.ok]
    blocks = listed([*lost, *not_on_steps])
    if made and not charts.groups(made):
        blocks += tabled(charts.numbers(made))
    return blocks + missing(made) + _sources(made)


def _sources(made: list[Budget]) -> list[Block]:
    sources: dict[str, dict[str, None]] = {}
    for p in (p for group in charts.groups(made) for b in group for p in b.parts if charts.is_known(p)):
        sources.setdefault(p.words, {})[p.why] = None
    return titled(
        "Where the parts of a step come from",
        "Dispatch and work are scaled by trainings of other models, where there are any.",
        listed(f"{n}: {'; or '.join(whys)}" for n, whys in sources.items()),
    )


def missing(made: list[Budget]) -> list[Block]:
    """A sentence: how many training rows lack which parts; then a list of the commands that measure these."""
    lacking = [b for b in made if b.missing]
    if not lacking:
        return []
    names: dict[str, None] = {}
    commands: dict[str, None] = {}
    for budget_ in lacking:
        names |= dict.fromkeys(budget_.missing)
        commands |= dict.fromkeys(part.command for part in budget_.parts if part.command)
    sentence = f"Of {count(len(lacking), 'training row')} not all parts of a step are known ({join(names)})"
    if not commands:
        return [Paragraph(text=f"{sentence}.")]
    return [Paragraph(text=f"{sentence}; these measure them:"), *listed(f"`{command}`" for command in commands)]
