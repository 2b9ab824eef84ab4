"""The pictures of a page as files, drawn from its charts; several runs are drawn in one picture."""

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator

from analysis.report.charts import break_even, crossover, input_pipeline, ladder, layers, overlay
from analysis.report.charts import movement as charts_movement
from analysis.report.charts import roofline as charts_roofline
from analysis.report.charts import training as charts_training
from analysis.report.charts.chart import Chart, View
from analysis.report.material import Material
from analysis.table import text

CHARTS: "dict[str, Callable[[Material], list[Chart]]]" = {
    "crossover": crossover.chart,
    "roofline": lambda of: charts_roofline.chart(of.rows, of.analysis.roofs),
    "ladder-matmul": lambda run: ladder.ladder_chart(run.analysis.ladders["matmul"], "matmul"),
    "ladder-conv": lambda run: ladder.ladder_chart(run.analysis.ladders["conv"], "conv"),
    "memory": charts_movement.memory,
    "transfers": charts_movement.copies,
    "feeding": lambda of: input_pipeline.pipeline_chart(of.rows),
    "convolutions": lambda of: layers.charts(of.layers["conv"]),
    "products": lambda of: layers.charts(of.layers["matmul"]),
    "rates": lambda of: charts_roofline.rates(of.rows, of.analysis.roofs),
    "along": lambda of: charts_training.along(of.analysis.training_crossovers),
    "budget": lambda of: charts_training.steps(of.analysis.budgets),
    "break-even": lambda of: break_even.break_even(of.analysis.pairs),
    "small-dataset": lambda of: break_even.small(of.analysis.small_datasets, of.analysis.budgets),
}


def draw(runs: "list[Material]", folder: pathlib.Path) -> None:
    """Draws the pictures of one run, or of several runs in one picture each. Needs matplotlib."""
    from analysis.report.charts import svg

    who = ", ".join(of.label for of in runs if of.label)
    for name, title, view in _views(CHARTS, runs):
        svg.save(svg.figure(view, title, who), folder / name)


def images(charts: Iterable[str], runs: "list[Material]") -> list[str]:
    """The Markdown lines of the pictures of these charts, each with its sentence as alternative text."""
    views = _views(charts, runs)
    return [line for name, title, view in views for line in (f"![{text(view.says or title)}]({name})", "")]


def numbers(charts: Iterable[str], runs: "list[Material]") -> list[str]:
    """The Markdown lines of these charts' tables, each under its chart's title."""
    lines = []
    for one in over_each_other(charts, runs):
        if one.numbers.rows:
            lines += [f"{one.title}:", "", *one.numbers.md(), *([f"\\{one.note}", ""] if one.note else [])]
    return lines


def over_each_other(charts: Iterable[str], runs: "list[Material]") -> list[Chart]:
    """The charts of these names, those of several runs drawn over each other."""
    return [one for name in charts for one in overlay.several((of.letter, charts_of(name, of)) for of in runs)]


@functools.cache
def charts_of(name: str, of: Material) -> list[Chart]:
    """The charts of that name, worked out once a run."""
    return CHARTS[name](of)


def _views(charts: Iterable[str], runs: "list[Material]") -> "Iterator[tuple[str, str, View]]":
    """(file name, title, view) of each picture: the view with the most runs in it."""
    letters = {of.letter for of in runs}
    for one in over_each_other(charts, runs):
        drawn = [view for view in one.views if not view.bars] or one.views
        if one.picture:
            view = max(drawn, key=lambda v: len(letters & {t.name[0] for t in v.traces}))
            yield one.picture, ": ".join(filter(None, (one.title, view.label))), view
