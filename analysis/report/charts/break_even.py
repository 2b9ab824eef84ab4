"""Charts of whole training jobs: when the GPU has paid back its start, and where the seconds of small data sets' jobs go."""

from math import inf
from typing import TYPE_CHECKING, Any

from analysis.crossover.crossover import FINE
from analysis.predict import budget
from analysis.report.charts.chart import Axis, Chart, Trace, View, line, rounded, signed
from analysis.report.charts.training import COLORS, PATTERNS
from analysis.text import training, whole_training
from analysis.training import break_even as jobs
from analysis.training.break_even import BY_JOB, Pair
from analysis.units import count, digits, percent, seconds

if TYPE_CHECKING:
    from analysis.predict.budget import Budget
    from analysis.stats import Estimate
    from analysis.text.whole_training import Small

_EPOCHS = tuple(sorted({round(10 ** (i / 6)) for i in range(19)}))  # 1 to 1000


def break_even(pairs: "list[Pair]") -> list[Chart]:
    """The whole job over its epochs on both devices, a view a training; where the GPU has paid back its start is marked."""
    views, rows = [], []
    for pair in (p for p in pairs if not p.setup.switches):
        cpu, paid = jobs.opponent(pair), jobs.payback(pair)
        traces = []
        for name, side, color, marker, dash in (
            ("CPU", cpu, "blue", "circle", "dot"),
            ("GPU", pair.gpu, "vermillion", "square", "solid"),
        ):
            at = [(e, side.job(e, pair.steps)) for e in _EPOCHS]
            traces.append(
                line(
                    name,
                    at,
                    color,
                    [f"{name}, {count(e, 'epoch')}: {seconds(t.value)}" for e, t in at],
                    marker=marker,
                    dash=dash,
                    hollow=name == "CPU",
                )
            )
        views.append(
            View(
                training.subject(pair.setup),
                Axis("epochs", "count"),
                Axis("the whole job", "seconds"),
                traces,
                whole_training.payback_sentence(pair),
                **_paid(paid),
            )
        )
        rows.append(
            (
                training.subject(pair.setup),
                *(seconds(s.begins(pair.steps).value) for s in (cpu, pair.gpu)),
                *(seconds(s.epoch(pair.steps).value) for s in (cpu, pair.gpu)),
                "never" if paid is None else "cannot be told" if paid.value == inf else digits(paid.value),
            )
        )
    heads = (
        "training",
        "CPU begins in",
        "GPU begins in",
        "an epoch, CPU",
        "an epoch, GPU",
        "epochs until the GPU has paid back",
    )
    return (
        [
            Chart(
                "break-even",
                "The whole job: when the GPU has paid back its start",
                views[0].says,
                views,
                heads,
                rows,
                "",
                1,
                "Training",
            )
        ]
        if views
        else []
    )


def _paid(e: "Estimate | None") -> dict[str, Any]:
    """Where a GPU has paid back its start: a line, and its interval as far as the chart goes."""
    if e is None or e.value < 1 or e.value == inf:
        return {}
    low, high = (min(max(end, _EPOCHS[0]), _EPOCHS[-1]) for end in (e.low, e.high))
    words = f"paid back after {digits(e.value)}"
    wide = e.high > FINE * e.low and low < high
    ends = f"{digits(e.low)} or more" if e.high == inf else f"{digits(e.low)}..{digits(e.high)}"
    lines = [(rounded(e.value), "" if wide else words)] if e.value <= _EPOCHS[-1] else []
    return {"lines": lines, "bands": [(rounded(low), rounded(high), f"{words} ({ends})")] if wide else []}


def small(found: "list[Small]", made: "list[Budget]") -> list[Chart]:
    """Samples against the whole job on both devices, and where its seconds go: a bar a device and sample count."""
    if not found:
        return []
    by_row = {b.training.key: b for b in made}
    lines_, bars, rows = [], [], []
    for one in found:
        name = training.subject(one.fixed, "samples")
        epochs = [jobs.planned(p.setup, "samples")[1] for p in one.pairs]
        sides = [
            (pair, e, where, side)
            for pair, e in zip(one.pairs, epochs, strict=True)
            for where, side in (("CPU", pair.cpu(BY_JOB, e)), ("GPU", pair.gpu))
        ]
        traces = []
        for where, color, marker, dash in (("CPU", "blue", "circle", "dot"), ("GPU", "vermillion", "square", "solid")):
            at = [
                (pair.setup.samples, jobs.split(side, e, pair.steps).total) for pair, e, w, side in sides if w == where
            ]
            traces.append(
                line(
                    where,
                    at,
                    color,
                    [f"{where}, {n:,} samples: {seconds(t.value)}" for n, t in at],
                    marker=marker,
                    dash=dash,
                    hollow=where == "CPU",
                )
            )
        says = _small_says(one)
        lines_.append(
            View(
                f"{name}: the whole job",
                Axis("samples", "count"),
                Axis(f"job of {count(epochs[0], 'epoch')}", "seconds"),
                traces,
                says,
            )
        )
        split = [
            (f"{pair.setup.samples:,} {where}", budget.job_parts(side, e, pair.steps, by_row.get(side.row.key)))
            for pair, e, where, side in sides
        ]
        bars.append(
            View(
                f"{name}: where its seconds go",
                Axis("seconds of the job", "seconds", False),
                Axis("", "words", False),
                [_bar(part, i, split) for i, part in enumerate(budget.JOB_PARTS) if any(s[part] for _, s in split)],
                f"The parts of each job add up to its time. {says}",
                bars=True,
            )
        )
        rows += [
            (name, where, part, signed(s[part]), percent(s[part] / sum(s.values())))
            for where, s in split
            for part in budget.JOB_PARTS
            if s[part]
        ]
    heads = ("training", "samples, device", "part", "time", "of the job")
    views = [view for both in zip(lines_, bars, strict=True) for view in both]
    return [
        Chart(
            "small-dataset",
            "Small data sets: samples against the whole job",
            views[0].says,
            views,
            heads,
            rows,
            "small-dataset.svg",
            3,
            "Training",
        )
    ]


def _bar(part: str, i: int, split: list[tuple[str, dict[str, float]]]) -> Trace:
    color = "gray" if part == budget.REST else COLORS[i % len(COLORS)]
    says = [f"{part}, {where}: {signed(s[part])}" for where, s in split]
    return Trace(
        part,
        [rounded(s[part]) for _, s in split],
        [where for where, _ in split],
        color,
        says=says,
        pattern="/" if part == budget.REST else PATTERNS[i % len(PATTERNS)],
    )


def _small_says(one: "Small") -> str:
    """Who wins at the fewest and at the most samples, and what most of the GPU's time is at the fewest."""
    said = []
    for pair in (one.pairs[0], one.pairs[-1]):
        e = jobs.planned(pair.setup, "samples")[1]
        cpu, gpu = pair.cpu(BY_JOB, e).job(e, pair.steps), pair.gpu.job(e, pair.steps)
        who = (
            "the GPU is faster"
            if gpu.high < cpu.low
            else "the CPU is faster"
            if cpu.high < gpu.low
            else "neither is faster"
        )
        said.append(
            f"with {pair.setup.samples:,} samples {who} ({seconds(cpu.value)} on the CPU, {seconds(gpu.value)} on the GPU)"
        )
    told = "; ".join(said)
    return f"{told[:1].upper()}{told[1:]}."
