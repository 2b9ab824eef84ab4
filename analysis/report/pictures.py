"""The pictures of a page as files, drawn from its charts; several runs are drawn in one picture."""

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator

from analysis.report.charts import (
    break_even,
    crossover,
    input_pipeline,
    ladder,
    layers,
    movement,
    overlay,
    roofline,
    training,
)
from analysis.report.charts.chart import Chart, View
from analysis.report.material import Material
from analysis.table import text

CHARTS: "dict[str, Callable[[Material], list[Chart]]]" = {
    "crossover": crossover.chart,
    "roofline": lambda run: roofline.chart(run.rows, run.analysis.roofs),
    "ladder-matmul": lambda run: ladder.ladder_chart(run.analysis.ladders["matmul"], "matmul"),
    "ladder-conv": lambda run: ladder.ladder_chart(run.analysis.ladders["conv"], "conv"),
    "memory": movement.memory,
    "transfers": movement.copies,
    "feeding": lambda run: input_pipeline.pipeline_chart(run.rows),
    "convolutions": lambda run: layers.charts(run.layers["conv"]),
    "products": lambda run: layers.charts(run.layers["matmul"]),
    "rates": lambda run: roofline.rates(run.rows, run.analysis.roofs),
    "along": lambda run: training.along(run.analysis.training_crossovers),
    "budget": lambda run: training.steps(run.analysis.budgets),
    "break-even": lambda run: break_even.break_even(run.analysis.pairs),
    "small-dataset": lambda run: break_even.small(run.analysis.small_datasets, run.analysis.budgets),
}


def draw(runs: "list[Material]", folder: pathlib.Path) -> None:
    """Draws all charts that have a picture as SVG files into a folder; several runs are in one picture. Needs matplotlib."""
    from analysis.report.charts import svg

    labels = ", ".join(run.label for run in runs if run.label)
    for name, title, view in _views(CHARTS, runs):
        svg.save(svg.figure(view, title, labels), folder / name)


def images(charts: Iterable[str], runs: "list[Material]") -> list[str]:
    """Markdown lines that show the pictures of the charts of these names, each with its sentence as alternative text."""
    lines = []
    for name, title, view in _views(charts, runs):
        lines += [f"![{text(view.says or title)}]({name})", ""]
    return lines


def numbers(charts: Iterable[str], runs: "list[Material]") -> list[str]:
    """Markdown lines of the tables of the charts of these names, each under its chart's title."""
    lines = []
    for chart in merged_charts(charts, runs):
        if not chart.numbers.rows:
            continue
        lines += [f"{chart.title}:", "", *chart.numbers.md()]
        if chart.note:
            lines += [f"\\{chart.note}", ""]
    return lines


def merged_charts(charts: Iterable[str], runs: "list[Material]") -> list[Chart]:
    """The charts of these names (keys of CHARTS); those of several runs are drawn over each other."""
    every = []
    for name in charts:
        by_letter = [(run.letter, charts_of(name, run)) for run in runs]
        every += overlay.several(by_letter)
    return every


@functools.cache
def charts_of(name: str, run: Material) -> list[Chart]:
    """The charts of that name, worked out once a run."""
    return CHARTS[name](run)


def _views(charts: Iterable[str], runs: "list[Material]") -> "Iterator[tuple[str, str, View]]":
    """(file name, title, view) of each picture. A picture shows one view of its chart: the one that most runs have a trace in."""
    letters = {run.letter for run in runs}
    for chart in merged_charts(charts, runs):
        if not chart.picture:
            continue
        drawn = [view for view in chart.views if not view.bars] or chart.views
        view = max(drawn, key=lambda view: _runs_in(view, letters))
        title = f"{chart.title}: {view.label}" if view.label else chart.title
        yield chart.picture, title, view


def _runs_in(view: View, letters: set[str]) -> int:
    """How many of the runs with these letters have a trace in a view; a trace's name begins with its run's letter."""
    in_view = {trace.name[0] for trace in view.traces}
    return len(letters & in_view)
