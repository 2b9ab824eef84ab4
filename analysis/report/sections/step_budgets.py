"""Trainings with Keras on the page: what a step takes, the largest part that is known of it, and one line on what is missing."""

import re
from collections.abc import Iterable

from analysis import labels
from analysis.predict.budget import Budget, Part
from analysis.predict.combine import HIDDEN
from analysis.stats import group_by
from analysis.table import Table, listed, text, titled
from analysis.text import budget, training
from analysis.text import rows as row_words
from analysis.training import break_even
from analysis.units import count, join, signed
from workloads.records import Measurement

_SCALED = re.compile(r", times [\d.]+ as trainings of .*")
_UNMEASURED = "not measured: "  # how the reason of a part begins that a command can measure


def section(made: list[Budget], measurements: "Iterable[Measurement]", said: Iterable[str] = ()) -> list[str]:
    """Sentences that the page has not `said` already, what to measure for more and where the parts' numbers come from; the
    steps themselves where no chart has them, as no part of any is known."""
    every = list(measurements)
    rows = [m for m in every if m.problem.op == "training"]
    if not rows:
        return []
    lines = listed(budget.lost(m) for m in rows if not m.ok)
    told = training.side_by_side(every) + training.start_sentences(rows)  # whose question is not a step's time
    lines += listed(line for line in told if line not in set(said))
    if made and not groups(made):
        lines += numbers(made).md()
    return lines + missing(made) + _sources(made)


def numbers(made: list[Budget]) -> Table:
    """A line a training and device: the step with its parts, which add up to it, its losses and flags."""
    names = list(dict.fromkeys(p.name for b in made for p in b.parts if is_known(p)))
    names.sort(key=lambda n: n == HIDDEN)
    rows = []
    for b in made:
        at = {p.name: f"{signed(p.seconds.value)}{' (in part)' * p.partial}" for p in b.parts if p.seconds}
        rest = f"{signed(b.remainder.value)} ({100 * b.remainder.value / b.step.value:.0f} %)"
        step = name(b), place(b), labels.time(b.step), labels.width(b.step)
        last = (
            rest if any(map(is_known, b.parts)) else "-",
            row_words.losses(b.training) or "-",
            "; ".join(b.flags) or "-",
        )
        rows.append((*step, *(at.get(n, "-") for n in names), *last))
    heads = *names, "not explained", "losses", "flags"
    return Table(("training", "device", "a step", "±", *heads), rows, 2, heads)


def _sources(made: list[Budget]) -> list[str]:
    """Where the numbers of each part come from."""
    sources: dict[str, dict[str, None]] = {}
    for p in (p for group in groups(made) for b in group for p in b.parts if is_known(p)):
        sources.setdefault(p.name, {})[re.sub(r"\b\d[\d,.]*\b", "N", _SCALED.sub("", p.why))] = None
    return titled(
        "Where the parts of a step come from",
        "N: as many as that training has. Dispatch and work are scaled by trainings of other models, where there are any.",
        listed(f"{n}: {'; or '.join(whys)}" for n, whys in sources.items()),
    )


def is_known(part: Part) -> bool:
    """Whether it is a part of the step itself with a number."""
    return bool(part.seconds and part.seconds.value)


def name(b: Budget) -> str:
    """`CIFAR-10 CNN, batch 32, 50,000 samples, float64 inputs`, and what else is not the usual."""
    return training.with_type(break_even.setup_of(b.training))


def place(b: Budget) -> str:
    """The device with its threads, and its form."""
    keras = b.training.keras
    form = [", GPU visible"] * (keras.gpu == "visible") + [f", jit {keras.jit_compile}"] * (keras.jit_compile != "auto")
    return "".join([budget.where(b.training).removeprefix("the "), *form])


def groups(made: Iterable[Budget]) -> list[list[Budget]]:
    """The budgets of one training on its devices together, those of which any part of a step is known."""
    found = group_by(made, lambda b: (b.training.kernel, b.training.problem, name(b)))
    return [group for group in found.values() if any(is_known(p) for b in group for p in b.parts)]


def missing(made: list[Budget]) -> list[str]:
    """Of how many trainings which parts are not known, and the commands that measure them as a list."""
    lacking = [b for b in made if b.missing]
    parts = join(dict.fromkeys(n for b in lacking for n in b.missing))
    whys = dict.fromkeys(p.why for b in lacking for p in b.parts if p.seconds is None and p.why.startswith(_UNMEASURED))
    commands = [f"- `{text(why.removeprefix(_UNMEASURED))}`" for why in whys]
    said = f"Of {count(len(lacking), 'training row')} not all parts of a step are known ({parts})"
    end = ["; these measure them:", "", *commands, ""] if commands else [".", ""]
    return [said + end[0], *end[1:]] if lacking else []
