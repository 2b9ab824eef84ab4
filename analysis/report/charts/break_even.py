"""Charts of whole trainings: break-even by epochs, and the parts of the time of small data sets."""

from math import inf
from typing import Any

from analysis import numbers
from analysis.predict import budget
from analysis.predict.budget import Budget
from analysis.report.charts.chart import Axis, Chart, Mark, Points, View, marked, sides, stacked
from analysis.stats import Estimate, faster, total
from analysis.table import Table
from analysis.text import sentences, training
from analysis.training import costs
from analysis.training.break_even import BY_EPOCH, BY_WHOLE_TRAINING, Pair, Setup, planned, planned_length
from analysis.training.costs import TrainingCost
from analysis.units import count, digits, seconds

#: Drawn numbers of epochs: 1 to 1000, six in each factor of ten.
_EPOCHS = tuple(sorted({round(10 ** (i / 6)) for i in range(19)}))


def break_even(pairs: "list[Pair]") -> list[Chart]:
    """The chart of the whole training's seconds against its epochs on both devices, with the break-even marked. It has a view
    for each training that was measured on both with default options; [] without one.
    """
    views = []
    rows = []
    for pair in pairs:
        if pair.setup.switches:
            continue
        views.append(_break_even_view(pair))
        rows.append(_break_even_row(pair))
    if not views:
        return []
    heads = "training | CPU begins in | GPU begins in | an epoch, CPU | an epoch, GPU | break-even after epochs"
    return [
        Chart(
            name="break-even",
            title="Whole training: break-even",
            views=views,
            numbers=Table(heads, rows),
            chooses="Training",
        )
    ]


def _break_even_view(pair: Pair) -> View:
    """Seconds of the whole training on both devices against its epochs, with the break-even marked."""
    cpu = _by_epochs(pair.opponent.cost, pair.steps)
    gpu = _by_epochs(pair.gpu.cost, pair.steps)
    return View(
        label=training.subject(pair.setup),
        x=Axis(title="epochs", unit="count"),
        y=Axis(title="whole training", unit="s"),
        traces=sides(cpu, gpu, lambda epochs: count(int(epochs), "epoch")),
        says=training.break_even_sentence(pair),
        **_break_even_marks(pair.break_even),
    )


def _by_epochs(cost: TrainingCost, steps: int) -> Points:
    """Seconds of the whole training for each of _EPOCHS."""
    return [(float(epochs), costs.whole_training(cost, epochs, steps)) for epochs in _EPOCHS]


def _break_even_row(pair: Pair) -> tuple[str, ...]:
    """The cells of the break-even table: when each device begins its first epoch, what an epoch takes, and the break-even."""
    both = (pair.opponent.cost, pair.gpu.cost)
    start = [seconds(costs.whole_training(cost, 0, pair.steps).value) for cost in both]
    epoch = [seconds(cost.epoch_seconds(pair.steps).value) for cost in both]
    return (training.subject(pair.setup), *start, *epoch, _words(pair.break_even))


def _words(epochs: Estimate | None) -> str:
    """The break-even in epochs with its interval, for a table's cell; None: the GPU never catches up."""
    if epochs is None:
        return "never"
    if epochs.value == inf:
        return f"can't tell ({digits(epochs.low)} at the earliest)" if epochs.low else "can't tell"
    if not epochs.value:
        return "0: ahead from the first"
    if epochs.high == inf:
        return f"{digits(epochs.value)} ({digits(epochs.low)} or more)"
    return f"{digits(epochs.value)} ({digits(epochs.low)}..{digits(epochs.high)})"


def _break_even_marks(epochs: Estimate | None) -> dict[str, Any]:
    """The fields `lines` and `bands` of a View that mark the break-even, as far as the chart goes; {} without one."""
    if epochs is None or epochs.value < 1 or epochs.value == inf:
        return {}
    first, last = _EPOCHS[0], _EPOCHS[-1]
    low = min(max(epochs.low, first), last)
    high = min(max(epochs.high, first), last)
    at = epochs.value if epochs.value <= last else None
    return marked([Mark(at=at, low=low, high=high, words=f"break-even after {_words(epochs)}")])


def small(trainings: "list[tuple[Setup, tuple[Pair, ...]]]", budgets: "list[Budget]") -> list[Chart]:
    """The chart of the small-dataset study: for each training the seconds of the whole against its samples on both devices, and
    the parts of these seconds as bars. [] without trainings.

    Args:
        trainings: (setup without its number of samples, the pairs of rows by rising samples).
        budgets: the parts of a step, for the rows that have them.
    """
    if not trainings:
        return []
    budget_of = {one.training.key: one for one in budgets}
    views = []
    rows = []
    for setup, pairs in trainings:
        name = training.subject(setup, "samples")
        says = _first_and_last(pairs)
        views.append(_samples_view(name, pairs, says))
        views.append(_parts_view(name, _job_parts(pairs, budget_of), says))
        for pair in pairs:
            rows += [(name, *cells) for cells in _small_rows(pair)]
    heads = "training | samples | device | whole training | start-up | build and compile | per fit | per epoch"
    heads += " | per step | an epoch | GPU wins by epoch | by whole training | break-even, epochs"
    return [
        Chart(
            name="small-dataset",
            title="Small data sets: seconds of the whole training by samples",
            views=views,
            numbers=Table(heads, rows, left=3),
            picture="small-dataset.svg",
            chooses="Training",
        )
    ]


def _samples_view(name: str, pairs: tuple[Pair, ...], says: str) -> View:
    """The seconds of the whole training on both devices, by its samples. says: the sentence of the view."""
    cpu = []
    gpu = []
    for pair in pairs:
        cpu_seconds, gpu_seconds = pair.seconds(BY_WHOLE_TRAINING, "samples")
        cpu.append((pair.setup.samples, cpu_seconds))
        gpu.append((pair.setup.samples, gpu_seconds))
    epochs = _planned_epochs(pairs)
    return View(
        label=f"{name}: whole training",
        x=Axis(title="samples", unit="count"),
        y=Axis(title=f"whole training of {count(epochs, 'epoch')}", unit="s"),
        traces=sides(cpu, gpu, lambda samples: sentences.counted(samples, "samples")),
        says=says,
    )


def _planned_epochs(pairs: tuple[Pair, ...]) -> int:
    return planned(pairs[0].setup, "samples").epochs


def _job_parts(pairs: tuple[Pair, ...], budget_of: dict[Any, Budget]) -> dict[str, dict[str, float]]:
    """Name of a bar (`1,000 GPU`: samples and device) -> part of the whole training -> its seconds. budget_of: key of a row ->
    the parts of its step.
    """
    epochs = _planned_epochs(pairs)
    bars = {}
    for pair in pairs:
        for device, side in zip(("CPU", "GPU"), pair.sides(BY_WHOLE_TRAINING, "samples"), strict=True):
            parts = budget.job_parts(side.cost, epochs, pair.steps, budget_of.get(side.row.key))
            bars[f"{pair.setup.samples:,} {device}"] = parts
    return bars


def _small_rows(pair: Pair) -> list[tuple]:
    """The cells of the small-dataset table for both devices of a pair: the whole training and its parts. The GPU's row also has
    the winner by the epoch and by the whole training, and the break-even.
    """
    rows = []
    epochs = planned_length(pair, "samples").epochs
    for side in pair.sides(BY_WHOLE_TRAINING, "samples"):
        parts = costs.parts(side.cost, epochs, pair.steps)
        whole = seconds(total(parts.values()).value)
        device = f"CPU, {side.form}"
        winners = ("", "", "")
        if side is pair.gpu:
            device = "GPU"
            winners = (_wins(pair, BY_EPOCH), _wins(pair, BY_WHOLE_TRAINING), _words(pair.break_even))
        epoch = seconds(side.cost.epoch_seconds(pair.steps).value)
        rows.append((f"{pair.setup.samples:,}", device, whole, *map(_known, parts.values()), epoch, *winners))
    return rows


def _known(time: Estimate) -> str:
    """Seconds in words: `1.2 s`; `<0.3 s`, the upper end, where the interval holds 0."""
    end = numbers.less_than(time)
    return seconds(time.value) if end is None else f"<{seconds(end)}"


def _wins(pair: Pair, by: str) -> str:
    """yes, no or can't tell: whether the GPU wins. by: BY_EPOCH or BY_WHOLE_TRAINING, which is the whole training."""
    cpu, gpu = pair.seconds(by, "samples")
    return {"gpu": "yes", "cpu": "no", "neither": "can't tell"}[faster(cpu, gpu)]


def _parts_view(name: str, bars: dict[str, dict[str, float]], says: str) -> View:
    """The bars of whole trainings. bars: name of a bar -> part -> its seconds. Parts that take no time in any bar are left
    out.
    """
    names = list(bars)
    parts = {}
    for part in budget.JOB_PARTS:
        times = [bar[part] for bar in bars.values()]
        if any(times):
            parts[part] = times

    def words(part: str, bar: int, time: float) -> str:
        return f"{part}, {names[bar]}: {seconds(time)}"

    return View(
        label=f"{name}: where its seconds go",
        x=Axis(title="seconds of the whole training", unit="s", log=False),
        y=Axis(title="", unit="text", log=False),
        traces=stacked(parts, names, words),
        says=f"The parts of each training add up to its time. {says}",
        bars=True,
    )


def _first_and_last(pairs: "tuple[Pair, ...]") -> str:
    """Two sentences: who wins with the fewest samples, and with the most. pairs: by rising samples."""
    winners = []
    for pair in (pairs[0], pairs[-1]):
        cpu, gpu = pair.seconds(BY_WHOLE_TRAINING, "samples")
        winners.append(sentences.winner(cpu, gpu, subject=count(pair.setup.samples, "sample")))
    return " ".join(winners)
