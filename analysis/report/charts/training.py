"""Charts of trainings: the parts of a step on each device, and both devices along a size."""

from collections.abc import Iterable

from analysis import labels
from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.predict.budget import REST, Budget, BudgetPart
from analysis.predict.components import FIT
from analysis.predict.step_parts import HIDDEN, WORDS
from analysis.report.charts.chart import Axis, Chart, View, crossed, sides, stacked
from analysis.stats import group_by
from analysis.table import Table
from analysis.text import budget, training
from analysis.text.rows import losses
from analysis.training import break_even
from analysis.training.break_even import BY_STEP, BY_WHOLE_TRAINING
from analysis.units import count, digits, percent, seconds


def steps(budgets: "list[Budget]") -> list[Chart]:
    """The chart of a training step's parts: stacked bars, one a device, a view a training; [] where no part of any step is
    known.
    """
    views = [_step_view(group) for group in groups(budgets)]
    if not views:
        return []
    return [
        Chart(
            name="budget",
            title="Where a training step's time goes",
            views=views,
            numbers=numbers(budgets),
            chooses="Training",
        )
    ]


def _step_view(group: list[Budget]) -> View:
    """The stacked bars of one training, one for each device or setting. group: the parts of its step on each."""
    parts = {}
    for name in known_parts(group):
        parts[name] = [_part_seconds(one, name) for one in group]
    parts[REST] = [one.remainder.value for one in group]
    devices = _numbered([_place(one) for one in group])

    def words(part: str, bar: int, time: float) -> str:
        share = percent(time / group[bar].step.value)
        return f"{part} on the {devices[bar]}: {seconds(time)}, {share} of the step"

    says = budget.sentence(group[0])
    if len(group) > 1:
        says += f" {budget.sentence(group[-1])}"
    return View(
        label=_name(group[0]),
        x=Axis(title="seconds of a step", unit="s", log=False),
        y=Axis(title="", unit="text", log=False),
        traces=stacked(parts, devices, words),
        says=says,
        bars=True,
    )


def _part_seconds(one: Budget, name: str) -> float:
    """Seconds of the parts of a step that have this name in words; 0 where they are unknown."""
    return sum(part.seconds.value for part in one.parts if part.words == name and part.seconds)


def groups(budgets: Iterable[Budget]) -> list[list[Budget]]:
    """The budgets of each training, which has one for each device; only of trainings of whose step a part is known."""
    by_training = group_by(budgets, lambda one: (break_even.setup_of(one.training), one.training.problem))
    return [group for group in by_training.values() if known_parts(group)]


def known_parts(budgets: Iterable[Budget]) -> list[str]:
    """The names of the parts of which a time is known, in the order of the budgets."""
    names: dict[str, None] = {}
    for one in budgets:
        names.update(dict.fromkeys(part.words for part in one.parts if is_known(part)))
    return list(names)


def numbers(budgets: list[Budget]) -> Table:
    """The table of the chart, a line a training and device: the step, its parts, which add up to it, its losses and flags."""
    names = known_parts(budgets)
    names.sort(key=lambda name: name == WORDS[HIDDEN])
    heads = (*names, "not explained", "losses", "flags")
    rows = [_cells(one, names) for one in budgets]
    return Table(("training", "device", "a step", "±", *heads), rows, left=2, optional=heads)


def _cells(one: Budget, names: list[str]) -> tuple[str, ...]:
    """The cells of one budget. names: the parts that have a column."""
    times = {}
    for part in one.parts:
        if part.seconds:
            times[part.words] = seconds(part.seconds.value) + (" (in part)" if part.partial else "")
    rest = "-"
    if any(is_known(part) for part in one.parts):
        rest = f"{seconds(one.remainder.value)} ({100 * one.remainder.value / one.step.value:.0f} %)"
    return (
        _name(one),
        _place(one),
        labels.time(one.step),
        labels.width(one.step),
        *(times.get(name, "-") for name in names),
        rest,
        losses(one.training) or "-",
        "; ".join(one.flags) or "-",
    )


def is_known(part: BudgetPart) -> bool:
    """Whether the part has a time other than 0."""
    return bool(part.seconds and part.seconds.value)


def _name(one: Budget) -> str:
    """The training of a budget: `CIFAR-10 CNN, batch 32, 50,000 samples, float64 inputs`, and further options that are no
    default.
    """
    return training.with_type(break_even.setup_of(one.training))


def _place(one: Budget) -> str:
    """The device with its threads and the options that differ from the default: `CPU (2 threads), GPU visible, jit on`."""
    keras = one.training.keras
    words = labels.device(one.training.device)
    if one.training.threads:
        words += f" ({count(one.training.threads, 'thread')})"
    if keras.gpu == "visible":
        words += ", GPU visible"
    if keras.jit_compile != "auto":
        words += f", jit {keras.jit_compile}"
    return words


def _numbered(names: list[str]) -> list[str]:
    """The names with repeated ones made different: `CPU`, `CPU (2)`."""
    numbered = []
    for i, name in enumerate(names):
        number = names[: i + 1].count(name)
        numbered.append(name if number == 1 else f"{name} ({number})")
    return numbered


def along(answers: "Iterable[Answer]") -> list[Chart]:
    """The chart of trainings along one size (batch, samples, width or depth): seconds of a step, or of the whole training, on
    both devices, a view each; [] without answers of three sizes or more.
    """
    shown = [
        answer for answer in answers if len(answer.points) > 2 and answer.form.mode in (BY_STEP, BY_WHOLE_TRAINING)
    ]
    if not shown:
        return []
    views = []
    rows = []
    for answer in sorted(shown, key=_plainest):
        name = training.with_type(break_even.setup_in(answer.family), answer.family.varies)
        views.append(_along_view(name, answer))
        for point in answer.points:
            rows.append((name, answer.form.mode, answer.family.varies, *_point_cells(point)))
    heads = "training | counted by | along | at | CPU | GPU | CPU / GPU"
    return [
        Chart(
            name="along",
            title="Who wins a training, along one size",
            views=views,
            numbers=Table(heads, rows, left=3),
            picture="batches.svg",
            chooses="Training",
        )
    ]


def _along_view(name: str, answer: Answer) -> View:
    """The view of one answer: both devices' seconds along its size, and where the winner changes. name: the training in words."""
    mode = answer.form.mode
    varies = answer.family.varies
    cpu = [(point.n, point.cpu.seconds) for point in answer.points]
    gpu = [(point.n, point.gpu.seconds) for point in answer.points]
    return View(
        label=f"{name}: {mode} by {varies}",
        x=Axis(title=varies, unit="count"),
        y=Axis(title=mode, unit="s"),
        traces=sides(cpu, gpu, lambda n: f"{varies} {n}"),
        says=training.answer_sentence(answer),
        **crossed(answer.crossings, varies, "{} from "),
    )


def _point_cells(point: CrossoverPoint) -> tuple[object, ...]:
    """The cells of a size: the size, seconds on both devices, and the GPU's speedup."""
    cpu = seconds(point.cpu.seconds.value)
    gpu = seconds(point.gpu.seconds.value)
    return (point.n, cpu, gpu, digits(point.ratio.value))


def _plainest(answer: Answer) -> tuple:
    """The key by which answers are sorted: Keras's fit first, then crossovers along the batch, by the step, with most sizes."""
    return (
        break_even.setup_in(answer.family).kernel != FIT,
        answer.family.varies != "batch",
        answer.form.mode != BY_STEP,
        -len(answer.points),
    )
