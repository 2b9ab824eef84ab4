"""The pictures of a page as files: a single run's made by hand, several runs' drawn from the charts that lie over each other."""

import pathlib
from collections.abc import Callable, Iterator

from analysis.report.charts import break_even, chart, choose, crossover, overlay
from analysis.report.charts import movement as charts_movement
from analysis.report.charts import roofline as charts_roofline
from analysis.report.charts import training as charts_training
from analysis.report.charts.chart import Chart, View
from analysis.report.material import Material
from analysis.report.sections import layers, movement, training
from analysis.table import image

CHARTS: "dict[str, Callable[[Material], list[Chart]]]" = {
    "roofline": lambda of: charts_roofline.chart(of.rows, of.roofs),
    "memory": lambda of: charts_movement.memory(of.rows, of.machine),
    "transfers": lambda of: charts_movement.copies(of.rows),
    "rates": lambda of: chart.rates(of.rows, of.roofs),
    "along": lambda of: charts_training.along(of.trainings),
    "budget": lambda of: charts_training.steps(of.budgets),
    "foretold": lambda of: charts_training.predicted_steps(of.foretold),
    "break-even": lambda of: break_even.break_even(of.pairs),
    "small-dataset": lambda of: break_even.small(of.small, of.budgets),
}
_HEADINGS = {
    "## How far from the hardware's limit": ("roofline",),
    "## Memory: how fast at every level": ("memory",),
    "## Host-device copies": ("transfers",),
    "## Kernels": ("rates",),
    "## Training with Keras": ("along", "small-dataset"),
}
_CROSSOVER = "## Where the GPU wins"


def one(runs: "list[Material]", folder: pathlib.Path) -> None:
    """Draws the pictures of a single run. Needs matplotlib."""
    from analysis.report.pictures import products
    from analysis.report.pictures import roofline as roofline_svg

    (of,) = runs
    rows = of.rows
    if roofline_svg.has_any(rows, of.roofs):
        products.save(roofline_svg.figure(rows, of.roofs), folder / "roofline.svg")
    if of.answers:
        products.save(products.crossover(of.answers, rows), folder / "crossover.svg")
    if choose.by_kernel(rows):
        products.save(products.rates(rows), folder / "rates.svg")
    _layers(of, folder)
    if movement.has_memory(rows):
        products.save(movement.memory(rows, of.machine), folder / "memory.svg")
    if movement.has_copies(rows):
        products.save(movement.transfers(rows), folder / "transfers.svg")
    for name, figure in training.figures(of.trainings).items():
        products.save(figure, folder / name)


def several(runs: "list[Material]", folder: pathlib.Path) -> None:
    """Draws what several runs have over each other, and each one's layers by themselves. Needs matplotlib."""
    from analysis.report.pictures import chart_views, products

    who = ", ".join(of.label for of in runs)
    for heading in (_CROSSOVER, *_HEADINGS):
        for name, title, view in _views(heading, runs):
            products.save(chart_views.figure(view, title, who), folder / name)
    for of in runs:
        _layers(of, folder)


def images(heading: str, runs: "list[Material]", shown: bool) -> list[str]:
    """The Markdown lines of the pictures of several runs that belong to a section."""
    found = _views(heading, runs) if shown else ()
    return [line for name, title, view in found for line in image(name, view.says or title)]


def _views(heading: str, runs: "list[Material]") -> "Iterator[tuple[str, str, View]]":
    """(file name, title, view) of each picture: of a chart's views the one that most runs are in."""
    if heading == _CROSSOVER and (view := crossover.view(runs)):
        yield "crossover.svg", crossover.TITLE, view
    for chosen in _HEADINGS.get(heading, ()):
        for one in overlay.several((of.letter, CHARTS[chosen](of)) for of in runs):
            drawn = [view for view in one.views if not view.bars]
            if one.picture and drawn:
                view = max(drawn, key=lambda v: len({t.name.partition(" ")[0] for t in v.traces}))
                yield one.picture, ": ".join(filter(None, (one.title, view.label))), view


def _layers(of: "Material", folder: pathlib.Path) -> None:
    from analysis.report.pictures import layers as layers_svg
    from analysis.report.pictures import products

    for found in of.layers.values():
        for name, _ in layers.pictures_of(found):
            products.save(layers_svg.figure(found, name), folder / f"{of.prefix}{name}.svg")
