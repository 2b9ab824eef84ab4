"""Charts of trainings: the parts of a step on each device, and both devices along a size."""

from collections.abc import Iterable

from analysis import labels
from analysis.crossover.crossover import Answer
from analysis.predict.budget import REST, Budget, BudgetPart
from analysis.predict.components import FIT
from analysis.predict.step_parts import HIDDEN, WORDS
from analysis.report.charts.chart import Axis, Chart, View, crossed, sides, stacked
from analysis.stats import group_by
from analysis.table import Table
from analysis.text import budget, training
from analysis.text import rows as row_words
from analysis.training import break_even
from analysis.training.break_even import BY_JOB, BY_STEP
from analysis.units import count, digits, percent, seconds


def steps(made: "list[Budget]") -> list[Chart]:
    """A step in parts, a bar a device, a view a training; none where nothing of any step is known."""
    views = []
    for group in groups(made):
        names = dict.fromkeys(p.words for b in group for p in b.parts if is_known(p))
        where = _apart([_place(b) for b in group])
        parts = {
            name: [sum(p.seconds.value for p in b.parts if p.words == name and p.seconds) for b in group]
            for name in names
        }
        parts[REST] = [b.remainder.value for b in group]

        def words(part, j, v, where=where, group=group):
            return f"{part} on the {where[j]}: {seconds(v)}, {percent(v / group[j].step.value)} of the step"

        says = " ".join(map(budget.sentence, (group[0], *group[1:][-1:])))
        axes = Axis(title="seconds of a step", unit="s", log=False), Axis(title="", unit="text", log=False)
        traces = stacked(parts, where, words)
        views.append(View(label=_name(group[0]), x=axes[0], y=axes[1], traces=traces, says=says, bars=True))
    title = "Where a training step's time goes"
    return [Chart(name="budget", title=title, views=views, numbers=numbers(made), chooses="Training")] if views else []


def groups(made: Iterable[Budget]) -> list[list[Budget]]:
    """Budgets grouped by training, one a device; only groups in which a part of a step is known."""
    found = group_by(made, lambda b: (break_even.setup_of(b.training), b.training.problem))
    return [group for group in found.values() if any(is_known(p) for b in group for p in b.parts)]


def numbers(made: list[Budget]) -> Table:
    """A line a training and device: the step with its parts, which add up to it, its losses and flags."""
    names = list(dict.fromkeys(p.words for b in made for p in b.parts if is_known(p)))
    names.sort(key=lambda n: n == WORDS[HIDDEN])
    rows = []
    for b in made:
        at = {p.words: f"{seconds(p.seconds.value)}{' (in part)' * p.partial}" for p in b.parts if p.seconds}
        rest = f"{seconds(b.remainder.value)} ({100 * b.remainder.value / b.step.value:.0f} %)"
        step = _name(b), _place(b), labels.time(b.step), labels.width(b.step)
        rest = rest if any(map(is_known, b.parts)) else "-"
        last = rest, row_words.losses(b.training) or "-", "; ".join(b.flags) or "-"
        rows.append((*step, *(at.get(n, "-") for n in names), *last))
    heads = *names, "not explained", "losses", "flags"
    return Table(("training", "device", "a step", "±", *heads), rows, 2, heads)


def is_known(part: BudgetPart) -> bool:
    """Whether the part has a time other than 0."""
    return bool(part.seconds and part.seconds.value)


def _name(b: Budget) -> str:
    """`CIFAR-10 CNN, batch 32, 50,000 samples, float64 inputs`, and what else is not the usual."""
    return training.with_type(break_even.setup_of(b.training))


def _place(b: Budget) -> str:
    """The device with its threads, and its form."""
    keras = b.training.keras
    form = [", GPU visible"] * (keras.gpu == "visible") + [f", jit {keras.jit_compile}"] * (keras.jit_compile != "auto")
    threads = f" ({count(b.training.threads, 'thread')})" if b.training.threads else ""
    return "".join([labels.device(b.training.device), threads, *form])


def _apart(names: list[str]) -> list[str]:
    """The names, those that are alike numbered."""
    seen = [names[: i + 1].count(name) for i, name in enumerate(names)]
    return [name if n == 1 else f"{name} ({n})" for name, n in zip(names, seen, strict=True)]


def along(answers: "Iterable[Answer]") -> list[Chart]:
    """Both devices' seconds along batch, samples, width or depth, a view each; by the step and by the whole training."""
    views, rows = [], []
    shown = [a for a in answers if len(a.points) > 2 and a.form.mode in (BY_STEP, BY_JOB)]
    for a in sorted(shown, key=_plainest):
        mode, varies = a.form.mode, a.family.varies
        name = training.with_type(break_even.setup_in(a.family), varies)
        cpu, gpu = ([(p.n, getattr(p, name).seconds) for p in a.points] for name in ("cpu", "gpu"))
        traces = sides(cpu, gpu, f"{varies} {{}}".format)
        said, marked = training.answer_sentence(a), crossed(a.crossings, varies, "{} from ")
        axes = Axis(title=varies, unit="count"), Axis(title=mode, unit="s")
        views.append(
            View(label=f"{name}: {mode} by {varies}", x=axes[0], y=axes[1], traces=traces, says=said, **marked)
        )
        rows += [
            (name, mode, varies, p.n, *(seconds(s.seconds.value) for s in (p.cpu, p.gpu)), digits(p.ratio.value))
            for p in a.points
        ]
    heads = "training | counted by | along | at | CPU | GPU | CPU / GPU"
    title = "Who wins a training, along one size"
    return (
        [
            Chart(
                name="along",
                title=title,
                views=views,
                numbers=Table(heads, rows, 3),
                picture="batches.svg",
                chooses="Training",
            )
        ]
        if views
        else []
    )


def _plainest(a: Answer) -> tuple:
    """Keras's own fit first, then steps by batch, then those with most sizes."""
    return (
        break_even.setup_in(a.family).kernel != FIT,
        a.family.varies != "batch",
        a.form.mode != BY_STEP,
        -len(a.points),
    )
