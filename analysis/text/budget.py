"""Budgets in words and tables: a sentence each, devices side by side, and where each number comes from."""

from collections.abc import Callable, Iterable

from analysis.predict.budget import Budget, Part, budgets, problem_of
from analysis.predict.combine import HIDDEN
from analysis.stats import Estimate, group_by
from analysis.table import table as table_of
from analysis.text.rates import device_name
from analysis.text.rows import option_words
from analysis.text.sentences import say, share, title
from analysis.units import count, join, signed
from workloads.records import Machine, Measurement

_LARGEST = 3  # parts in a sentence
_TOTALS = {"sum": "explained", "step": "step", "remainder": "remainder"}  # the table's last lines and their fields
SAID = {
    "step": "{training}, on {where}: a step takes {step:time}{doubt}.",
    "parts": "Its largest parts: {parts}.",
    "rest": "{rest:share} is not explained{missing}.",
    "noise": "The parts come to {over:time} more than the step, within their noise.",
    "high": "The parts come to {over:time} more than the step, so they are counted too high.",
    "busy": "The parts come to {over:time} more than the step: the machine was busy, so measure again.",
    "lost": "{training}: {status} on {where}, {reason}",
}
_EVERY_STEPS = {"dispatch", "transfer calls"}  # parts that no step is without


def where(training: Measurement) -> str:
    """The device of a row in words, with its threads when they were chosen."""
    threads = training.settings.threads
    return device_name(training.settings.device) + (f" ({count(threads, 'thread')})" if threads else "")


def subject(training: Measurement) -> str:
    """Model and batch in a few words."""
    problem = problem_of(training)
    return f"{title(problem.model)}, batch {problem.batch:,}"


def sentence(made: Budget) -> str:
    """The budget in two or three sentences: the step, its largest parts, and what is not explained."""
    known = [(p.seconds.value, p.name) for p in made.parts if p.name != HIDDEN and p.seconds and p.seconds.value > 0]
    largest = [f"{share(seconds / made.step.value)} {name}" for seconds, name in sorted(known, reverse=True)[:_LARGEST]]
    over, sure = -made.remainder.value, made.remainder.high < 0
    kind = "rest" if over <= 0 else "noise" if not sure else "busy" if made.flags else "high"
    values = {"training": subject(made.training), "where": where(made.training), "step": made.step, "over": over}
    values |= {"doubt": f" (doubtful: {join(made.flags)})" * bool(made.flags), "rest": -over / made.step.value}
    values |= {"missing": f": {join(made.missing)} not measured yet" * bool(made.missing), "parts": join(largest)}
    return " ".join(say(SAID[key], **values) for key in ("step", *["parts"] * bool(largest), kind))


def sound(made: Budget) -> bool:
    """Whether a budget says something to who does not look at its rows: its step is not doubtful, and what every step pays, the
    dispatch and on a GPU the copies' calls, is measured."""
    return not made.flags and not _EVERY_STEPS & set(made.missing)


def lost(m: Measurement) -> str:
    """That a row has no time and why, with what is not the usual of it: other rows of its model and batch may have one."""
    replicas = m.experiment.replicas
    how = [f"{m.problem.dtype} inputs"] * (m.problem.dtype != "float32") + option_words(
        m.settings.switches, ("replicas",)
    )
    training = f"{subject(m)} ({join(how)})" if how else subject(m)
    on = f"{replicas} GPUs" if replicas > 1 else where(m)
    return say(SAID["lost"], training=training, status=m.status, where=on, reason=m.reason.partition(": ")[0])


def table(made: list[Budget]) -> list[str]:
    """The budgets of one training side by side as a Markdown table: a line a part, then sum, step and remainder."""
    each = [{p.name: p for p in b.parts} for b in made]
    names = sorted(dict.fromkeys(name for parts in each for name in parts), key=lambda n: n == HIDDEN)
    rows = [[_name(n), *(_cell(parts.get(n), b.step) for parts, b in zip(each, made, strict=True))] for n in names]
    rows += [[name, *(_amount(getattr(b, field), b.step) for b in made)] for name, field in _TOTALS.items()]
    rows.append(["remainder's interval", *(f"{signed(b.remainder.low)} to {signed(b.remainder.high)}" for b in made)])
    return table_of(["a step", *(where(b.training).removeprefix("the ") for b in made)], rows)


def _name(part: str) -> str:
    return "overlap" if part == HIDDEN else part  # stored predictions name it otherwise


def _cell(part: Part | None, step: Estimate) -> str:
    if part is None or part.seconds is None:
        return part.why.partition(":")[0] if part else "-"
    return _amount(part.seconds, step) + " (in part)" * part.partial


def _amount(time: Estimate, step: Estimate) -> str:
    return f"{signed(time.value)} ({100 * time.value / step.value:.0f} %)"


def notes(made: list[Budget]) -> list[str]:
    """Where each number comes from, or why there is none: a line a part, devices that say the same together."""
    said = [(f"{_name(p.name)}: {p.why}", where(b.training)) for b in made for p in b.parts]
    said += [(f"step: its row is flagged {join(b.flags)}", where(b.training)) for b in made if b.flags]
    texts = {text: [on for _, on in group] for text, group in group_by(said, lambda one: one[0]).items()}
    return [f"- {text}" + f" ({join(on)})" * (len(on) < len(made)) for text, on in texts.items()]


def lines(
    measurements: Iterable[Measurement],
    machine: Machine | None = None,
    wanted: Callable[[Budget], bool] = lambda made: True,
    tables: bool = True,
) -> list[str]:
    """Of every training row whose budget is wanted the sentence, of each training the table too; and the rows without a time."""
    rows = list(measurements)
    groups = group_by(
        filter(wanted, budgets(rows, machine)),
        lambda b: (b.training.kernel, b.training.problem, *sorted(b.training.settings.switches.items())),
    )
    said = [lost(m) for m in rows if m.problem.op == "training" and not m.ok]
    for made in groups.values():
        said += [*map(sentence, made), *(["", *table(made), *notes(made), ""] if tables else [])]
    return said
