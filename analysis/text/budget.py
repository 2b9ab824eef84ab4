"""Budgets in words and tables: a sentence each, devices side by side, and where each number comes from."""

from collections.abc import Callable, Iterable

from analysis.predict.budget import Budget, Part, budgets, problem_of
from analysis.predict.combine import HIDDEN
from analysis.stats import Estimate, group_by
from analysis.table import line as table_line
from analysis.text import sentences as sentences_
from analysis.text.rates import device_name
from analysis.text.rows import option_words
from analysis.text.sentences import time
from analysis.units import count, join, signed
from workloads.records import Machine, Measurement

_NAMES = {HIDDEN: "overlap"}  # of parts that stored predictions name otherwise
_TOTALS = {"sum": "explained", "step": "step", "remainder": "remainder"}  # the table's last lines and their fields
_LARGEST = 3  # parts in a sentence
_SAID = {
    "step": "{training}, on {where}: a step takes {step}.",
    "parts": "Its largest parts: {of}.",
    "rest": "{share} is not explained{missing}.",
    "noise": "The parts come to {amount} more than the step, within their noise.",
    "high": "The parts come to {amount} more than the step, so they are counted too high.",
    "busy": "The parts come to {amount} more than the step: the machine was busy, so measure again.",
}
_EVERY_STEPS = {"dispatch", "transfer calls"}  # parts that no step is without


def where(training: "Measurement") -> str:
    """The device of a row in words, with its threads when they were chosen."""
    threads = training.settings.threads
    return device_name(training.settings.device) + (f" ({count(threads, 'thread')})" if threads else "")


def subject(training: "Measurement") -> str:
    """Model and batch in a few words."""
    problem = problem_of(training)
    return f"{sentences_.title(problem.model)}, batch {problem.batch:,}"


def sentence(made: Budget) -> str:
    """The budget in two or three sentences: the step, its largest parts, and what is not explained."""
    known = {p.name: p.seconds for p in made.parts if p.name != HIDDEN and p.seconds and p.seconds.value > 0}
    largest = sorted(known, key=lambda name: -known[name].value)[:_LARGEST]
    said = [_SAID["step"].format(training=subject(made.training), where=where(made.training), step=time(made.step))]
    if made.flags:
        said[0] = f"{said[0].removesuffix('.')} (doubtful: {join(made.flags)})."
    if largest:
        said.append(_SAID["parts"].format(of=join(f"{_part(known[n], made)} {n}" for n in largest)))
    return " ".join([*said, _rest(made)])


def _rest(made: Budget) -> str:
    over = made.remainder.value < 0
    amount = time(abs(made.remainder.value))
    if over and made.flags and made.remainder.high < 0:
        return _SAID["busy"].format(amount=amount)
    if over:
        return _SAID["high" if made.remainder.high < 0 else "noise"].format(amount=amount)
    missing = f": {join(made.missing)} not measured yet" if made.missing else ""
    return _SAID["rest"].format(share=_part(made.remainder, made), missing=missing)


def _part(part: Estimate, of: Budget) -> str:
    """A part of a step in a sentence: two digits."""
    return sentences_.share(part.value / of.step.value)


def _share(part: Estimate, whole: Estimate) -> str:
    return f"{100 * part.value / whole.value:.0f} %"


def sound(made: Budget) -> bool:
    """Whether a budget says something to who does not look at its rows: its step is not doubtful, and what every step pays, the
    dispatch and on a GPU the copies' calls, is measured."""
    return not made.flags and not _EVERY_STEPS & set(made.missing)


def sentences(
    measurements: "Iterable[Measurement]",
    machine: "Machine | None" = None,
    wanted: Callable[[Budget], bool] = lambda made: True,
) -> list[str]:
    """A sentence for every training row whose budget is wanted, and for those without a time."""
    rows = list(measurements)
    without = [m for m in rows if m.problem.op == "training" and not m.ok]
    return [*(sentence(b) for b in budgets(rows, machine) if wanted(b)), *map(lost, without)]


def lost(m: "Measurement") -> str:
    """That a row has no time and why, with what is not the usual of it: other rows of its model and batch may have one."""
    given, count = m.settings.switches, m.experiment.replicas
    how = [f"{m.problem.dtype} inputs"] * (m.problem.dtype != "float32") + option_words(given, ("replicas",))
    on = f"{count} GPUs" if count > 1 else where(m)
    return f"{subject(m)}{f' ({join(how)})' if how else ''}: {m.status} on {on}, {m.reason.partition(': ')[0]}"


def table(made: list[Budget]) -> list[str]:
    """The budgets of one training side by side as a Markdown table: a line a part, then sum, step and remainder."""
    heads = [where(b.training).removeprefix("the ") for b in made]
    names = sorted(dict.fromkeys(p.name for b in made for p in b.parts), key=lambda n: n == HIDDEN)
    lines = [_line("a step", heads), "| --- |" + " ---: |" * len(made)]
    lines += [
        _line(_NAMES.get(name, name), [_cell(next((p for p in b.parts if p.name == name), None), b) for b in made])
        for name in names
    ]
    lines += [_line(name, [_amount(getattr(b, field), b) for b in made]) for name, field in _TOTALS.items()]
    return [*lines, _line("remainder's interval", [_ends(b.remainder) for b in made])]


def _line(name: str, cells: Iterable[str]) -> str:
    return table_line(c.replace("|", "\\|") for c in (name, *cells))


def _cell(part: Part | None, of: Budget) -> str:
    if part is None:
        return "-"
    if part.seconds is None:
        return part.why.partition(":")[0]
    return _amount(part.seconds, of) + (" (in part)" if part.partial else "")


def _amount(time: Estimate, of: Budget) -> str:
    return f"{signed(time.value)} ({_share(time, of.step)})"


def _ends(time: Estimate) -> str:
    return f"{signed(time.low)} to {signed(time.high)}"


def notes(made: list[Budget]) -> list[str]:
    """Where each number comes from, or why there is none: a line a part, devices that say the same together."""
    said: dict[str, list[str]] = {}
    for b in made:
        texts = [f"{_NAMES.get(p.name, p.name)}: {p.why}" for p in b.parts]
        texts += [f"step: its row is flagged {join(b.flags)}"] if b.flags else []
        for text in texts:
            said.setdefault(text, []).append(where(b.training))
    return [f"- {text}" + (f" ({join(on)})" if len(on) < len(made) else "") for text, on in said.items()]


def lines(
    measurements: "Iterable[Measurement]",
    machine: "Machine | None" = None,
    wanted: Callable[[Budget], bool] = lambda made: True,
) -> list[str]:
    """The Keras section as Markdown: the sentences, then for each training a small table of those wanted."""
    rows = list(measurements)
    found = [line for text in sentences(rows, machine, wanted) for line in (text, "")]
    groups = group_by(
        filter(wanted, budgets(rows, machine)),
        lambda b: (b.training.kernel, b.training.problem, *sorted(b.training.settings.switches.items())),
    )
    for made in groups.values():
        found += [*table(made), "", *notes(made), ""]
    return found[:-1]
