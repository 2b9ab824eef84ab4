"""Charts of whole trainings: break-even by epochs, and the parts of the time of small data sets."""

from math import inf
from typing import Any

from analysis import numbers
from analysis.predict import budget
from analysis.predict.budget import Budget
from analysis.report.charts.chart import Axis, Chart, View, marked, sides, stacked
from analysis.stats import Estimate, faster, total
from analysis.table import Table
from analysis.text import sentences, training
from analysis.training import break_even as jobs
from analysis.training import costs
from analysis.training.break_even import BY_EPOCH, BY_JOB, Pair
from analysis.units import count, digits, seconds

_EPOCHS = tuple(sorted({round(10 ** (i / 6)) for i in range(19)}))  # 1 to 1000


def break_even(pairs: "list[Pair]") -> list[Chart]:
    """The whole training over its epochs on both devices, a view a training, with its break-even marked."""
    views, rows = [], []
    for pair in (p for p in pairs if not p.setup.switches):
        paid, both = pair.break_even, (pair.opponent.cost, pair.gpu.cost)
        on_cpu, on_gpu = ([(float(e), costs.whole_training(cost, e, pair.steps)) for e in _EPOCHS] for cost in both)
        axes = Axis(title="epochs", unit="count"), Axis(title="whole training", unit="s")
        says, traces = training.break_even_sentence(pair), sides(on_cpu, on_gpu, lambda e: count(int(e), "epoch"))
        views.append(
            View(label=training.subject(pair.setup), x=axes[0], y=axes[1], traces=traces, says=says, **_paid(paid))
        )
        begun = (costs.whole_training(cost, 0, pair.steps) for cost in both)
        told = (seconds(e.value) for e in (*begun, *(cost.epoch_seconds(pair.steps) for cost in both)))
        rows.append((training.subject(pair.setup), *told, _words(paid)))
    heads = "training | CPU begins in | GPU begins in | an epoch, CPU | an epoch, GPU | break-even after epochs"
    title = "Whole training: break-even"
    return (
        [Chart(name="break-even", title=title, views=views, numbers=Table(heads, rows), chooses="Training")]
        if views
        else []
    )


def _words(e: Estimate | None) -> str:
    """Epochs, with their interval."""
    if e is None:
        return "never"
    if e.value == inf:
        return f"can't tell ({digits(e.low)} at the earliest)" if e.low else "can't tell"
    ends = f"{digits(e.low)} or more" if e.high == inf else f"{digits(e.low)}..{digits(e.high)}"
    return f"{digits(e.value)} ({ends})" if e.value else "0: ahead from the first"


def _paid(e: Estimate | None) -> dict[str, Any]:
    """The break-even as a marked line, and its interval as far as the chart goes."""
    if e is None or e.value < 1 or e.value == inf:
        return {}
    low, high = (min(max(end, _EPOCHS[0]), _EPOCHS[-1]) for end in (e.low, e.high))
    at = e.value if e.value <= _EPOCHS[-1] else None
    return marked([(at, low, high, f"break-even after {_words(e)}")])


def small(found: "list[tuple[jobs.Setup, tuple[Pair, ...]]]", made: "list[Budget]") -> list[Chart]:
    """Seconds of the whole training against samples on both devices, and their parts: a bar a device and sample count."""
    if not found:
        return []
    by_row = {b.training.key: b for b in made}
    views, rows = [], []
    for fixed, one in found:
        name, says = training.subject(fixed, "samples"), _small_says(one)
        epochs = jobs.planned(one[0].setup, "samples")[1]
        both: list[list] = [[], []]
        bars = {}
        for pair in one:
            sides_of, times = pair.sides(BY_JOB, "samples"), pair.seconds(BY_JOB, "samples")
            for points, where, side, time in zip(both, ("CPU", "GPU"), sides_of, times, strict=True):
                points.append((pair.setup.samples, time))
                split = budget.job_parts(side.cost, epochs, pair.steps, by_row.get(side.row.key))
                bars[f"{pair.setup.samples:,} {where}"] = split
        axes = Axis(title="samples", unit="count"), Axis(title=f"whole training of {count(epochs, 'epoch')}", unit="s")
        traces = sides(both[0], both[1], lambda n: sentences.counted(n, "samples"))
        views.append(View(label=f"{name}: whole training", x=axes[0], y=axes[1], traces=traces, says=says))
        views.append(_bars(name, bars, says))
        rows += [(name, *row) for pair in one for row in _small_rows(pair)]
    heads = "training | samples | device | whole training | start-up | build and compile | per fit | per epoch"
    heads += " | per step | an epoch | GPU wins by epoch | by whole training | break-even, epochs"
    title = "Small data sets: seconds of the whole training by samples"
    return [
        Chart(
            name="small-dataset",
            title=title,
            views=views,
            numbers=Table(heads, rows, 3),
            picture="small-dataset.svg",
            chooses="Training",
        )
    ]


def _small_rows(pair: Pair) -> list[tuple]:
    """A row a device: the whole training and its parts; the GPU's row also has the winner and the break-even."""
    rows, (epochs, _) = [], jobs.job_of(pair, "samples")
    for side in pair.sides(BY_JOB, "samples"):
        parts = costs.parts(side.cost, epochs, pair.steps)
        times = (seconds(total(parts.values()).value), *map(_known, parts.values()))
        device, won = f"CPU, {side.form}", ("", "", "")
        if side is pair.gpu:
            device, won = "GPU", (_wins(pair, BY_EPOCH), _wins(pair, BY_JOB), _words(pair.break_even))
        epoch = seconds(side.cost.epoch_seconds(pair.steps).value)
        rows.append((f"{pair.setup.samples:,}", device, *times, epoch, *won))
    return rows


def _known(e: Estimate) -> str:
    """`1.2 s`; `<0.3 s` for a part whose interval holds 0: its upper end."""
    end = numbers.less_than(e)
    return seconds(e.value) if end is None else f"<{seconds(end)}"


def _wins(pair: Pair, by: str) -> str:
    return {"gpu": "yes", "cpu": "no", "neither": "can't tell"}[faster(*pair.seconds(by, "samples"))]


def _bars(name: str, bars: dict[str, dict[str, float]], says: str) -> View:
    """A bar for each training: the parts of its seconds."""
    where, axes = (
        list(bars),
        (Axis(title="seconds of the whole training", unit="s", log=False), Axis(title="", unit="text", log=False)),
    )
    parts = {part: [s[part] for s in bars.values()] for part in budget.JOB_PARTS if any(s[part] for s in bars.values())}
    traces = stacked(parts, where, lambda part, i, v: f"{part}, {where[i]}: {seconds(v)}")
    says = f"The parts of each training add up to its time. {says}"
    return View(label=f"{name}: where its seconds go", x=axes[0], y=axes[1], traces=traces, says=says, bars=True)


def _small_says(one: "tuple[Pair, ...]") -> str:
    ends = (
        sentences.winner(*p.seconds(BY_JOB, "samples"), subject=count(p.setup.samples, "sample"))
        for p in (one[0], one[-1])
    )
    return " ".join(ends)
