"""All that is behind an answer: parts of the training and of its step, crossovers, changes, memory and cost, gaps."""

from collections.abc import Iterable

from analysis import blocks, numbers
from analysis.explain.explanation import Explanation
from analysis.explain.findings import findings
from analysis.explain.framework import framework
from analysis.finding import IN_DETAIL, Finding
from analysis.predict.memory import Memory
from analysis.predict.prediction import Prediction
from analysis.predict.step_parts import WORDS
from analysis.stats import NOTHING, Estimate
from analysis.table import Table
from analysis.text.explanation import changes
from analysis.text.explanation.sentence import sentence
from analysis.text.sentences import NAMES
from analysis.units import size
from workloads import terminal

_INDENT = "  "
_JOULES_PER_KWH = 3.6e6


def details(explanation: Explanation, markdown: bool = False) -> list[str]:
    """The sections of --all as lines: each with its title, then sentences and tables. Sections without content are left out."""
    lines = [""] if markdown else []
    for title, parts in sections(explanation).items():
        if not parts:
            continue
        if markdown:
            lines += blocks.markdown(blocks.titled(title, *parts))
            continue
        lines += ["", title]
        for part in parts:
            shown = part.text(max(0, terminal.width() - len(_INDENT))) if isinstance(part, Table) else [part]
            lines += [terminal.Line(line, label=_INDENT) for line in shown]
    return lines


def sections(explanation: Explanation) -> dict[str, list[Table | str]]:
    """Title -> the tables and sentences of a section; empty where nothing is known."""
    every = findings(explanation)
    all_changes = [one for one in every if one.kind == "change"]
    in_detail = [one for one in every if one.rank == IN_DETAIL]
    return {
        "The whole training, in parts": _if_filled(training_table(explanation)),
        "A step, predicted": _if_filled(step_table(explanation)),
        "Where the winner changes": _sentences(in_detail, "crossover"),
        "What changes would save": _if_filled(changes.all_changes(all_changes)),
        "Memory and cost": [
            *_if_filled(resources_table(explanation)),
            *_sentences(in_detail, "price", "worth"),
        ],
        "Does the framework use the GPU?": [sentence(framework(explanation.sources))],
        "What this does not know": [
            *_sentences(in_detail, "not-known"),
            *_sentences(every, "host"),
            *_sentences(in_detail, "missing"),
        ],
    }


def _if_filled(table: Table) -> list[Table | str]:
    """The table, if it has rows."""
    return [table] if table.rows else []


def _sentences(every: Iterable[Finding], *kinds: str) -> list[Table | str]:
    """The sentences of the findings of these kinds."""
    return [sentence(one) for one in every if one.kind in kinds]


def training_table(explanation: Explanation) -> Table:
    """The table of the whole training's parts, a column a device; a dash where a part takes no time or was not measured. It has
    no rows where no device has seconds.
    """
    sides = explanation.sides
    if not sides:
        return Table("part")
    rows = []
    for name in sides[0].parts:
        parts = [side.parts[name] for side in sides]
        rows.append([name, *(numbers.timed(part.at_least(0)) if part.high > 0 else "-" for part in parts)])
    rows.append(["in all", *(numbers.timed(side.whole) for side in sides)])
    return Table(["part", *(f"{side.name}, {side.cost.source}" for side in sides)], rows)


def step_table(explanation: Explanation) -> Table:
    """The table of a predicted step's parts, a column a device, with their sum; where it was measured, also the measured step
    and by how much the prediction is off. It has no rows where the prediction is withheld.
    """
    predictions = explanation.predictions
    if explanation.withheld or not predictions:
        return Table("part")
    rows = []
    for part, name in WORDS.items():
        cells = [_part(prediction, part) for prediction in predictions]
        if any(cells):
            rows.append([name, *(cell or "-" for cell in cells)])
    rows.append(["in all", *(numbers.timed(prediction.step_s) for prediction in predictions)])
    if explanation.measured:
        measured = ["measured"]
        rest = ["measured less predicted"]
        for prediction in predictions:
            cost = explanation.measured.get(prediction.settings.device)
            step = prediction.step_s.value
            measured.append(numbers.timed(cost.step) if cost else "-")
            rest.append(_signed(cost.step.value - step, step) if cost else "-")
        rows += [measured, rest]
    heads = [f"{NAMES[prediction.settings.device]}, {prediction.execution}" for prediction in predictions]
    return Table(["part (share of their sum)", *heads], rows)


def _part(prediction: Prediction, part: str) -> str:
    """A part of a predicted step for a cell: seconds with their share of all parts; "" where it takes none."""
    seconds = prediction.parts.get(part, NOTHING).value
    return _signed(seconds, prediction.parts_s) if seconds else ""


def _signed(seconds: float, whole: float) -> str:
    """Seconds, which may be below 0, with their share of a whole: `-450 µs (-16 %)`."""
    return f"{numbers.time(seconds)} ({numbers.share(seconds / whole)})"


def resources_table(explanation: Explanation) -> Table:
    """Memory at the peak, the largest batch that fits into it, and the energy, a line a device."""
    joules = {cost.device: cost.joules for cost in explanation.costs}
    rows = []
    for need in explanation.memory:
        peak = size(need.peak.value)
        if need.capacity:
            peak = f"{peak} of {size(need.capacity)}"
        rows.append((NAMES[need.device], peak, _largest_batch(need), _kwh(joules.get(need.device))))
    return Table("on | memory at its peak | largest batch | energy, kWh", rows)


def _largest_batch(need: Memory) -> str:
    if need.largest_batch is None:
        return "-"
    batch = need.largest_batch.value
    return f"about {numbers.number(batch, most=2)}" if batch >= 1 else "none fits"


def _kwh(joules: Estimate | None) -> str:
    return numbers.number(joules / _JOULES_PER_KWH) if joules else "-"
