"""Budgets of training steps on the page: sentences, the sources of the parts' times, and one line on missing parts."""

from collections.abc import Iterable

from analysis.blocks import Block, Paragraph, listed, tabled, titled
from analysis.predict.budget import Budget
from analysis.report.charts.training import groups, is_known, numbers
from analysis.text import budget
from analysis.units import count, join
from workloads.records import Measurements


def section(budgets: list[Budget], measurements: Measurements, not_on_steps: Iterable[str] = ()) -> list[Block]:
    """The page's part on where a step's time goes: failed rows, commands that measure missing parts, and the sources of the
    parts' times. The parts are in a chart; where none is known, a table of the steps takes its place.

    not_on_steps: sentences on trainings that are not about the time of a step.
    """
    rows = [m for m in measurements if m.problem.op == "training"]
    if not rows:
        return []
    lost = [budget.lost(m) for m in rows if not m.ok]
    blocks = listed([*lost, *not_on_steps])
    if budgets and not groups(budgets):
        blocks += tabled(numbers(budgets))
    return blocks + missing(budgets) + _sources(budgets)


def _sources(budgets: list[Budget]) -> list[Block]:
    """A list that says, for each part of a step, from which rows or rule its time was taken."""
    sources: dict[str, dict[str, None]] = {}
    for group in groups(budgets):
        for step in group:
            for part in filter(is_known, step.parts):
                sources.setdefault(part.words, {})[part.why] = None
    return titled(
        "Where the parts of a step come from",
        "Dispatch and work are scaled by trainings of other models, where there are any.",
        listed(f"{n}: {'; or '.join(whys)}" for n, whys in sources.items()),
    )


def missing(budgets: list[Budget]) -> list[Block]:
    """A sentence on how many training rows lack which parts of their step, and a list of the commands that measure these; []
    where no row lacks any.
    """
    lacking = [step for step in budgets if step.missing]
    if not lacking:
        return []
    names: dict[str, None] = {}
    commands: dict[str, None] = {}
    for step in lacking:
        names |= dict.fromkeys(step.missing)
        commands |= dict.fromkeys(part.command for part in step.parts if part.command)
    sentence = f"Of {count(len(lacking), 'training row')} not all parts of a step are known ({join(names)})"
    if not commands:
        return [Paragraph(text=f"{sentence}.")]
    return [Paragraph(text=f"{sentence}; these measure them:"), *listed(f"`{command}`" for command in commands)]
