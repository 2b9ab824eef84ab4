"""The page that people open: one HTML file with everything in it, the answer first. Charts by plotly's own JavaScript, inlined;
without JavaScript the pictures and the tables stay."""

import importlib.util
import pathlib
from collections.abc import Iterable

from analysis.report import (
    charts_crossover,
    html_answer,
    html_movement,
    html_products,
    html_rows,
    html_training,
    inference,
    rows,
    several_gpus,
)
from analysis.report.html_page import Page
from analysis.report.material import Material

NAME = "report.html"
INSTALL = "python -m pip install jinja2 markdown-it-py plotly"


def has_libraries() -> bool:
    """Whether the template engine, the Markdown parser and plotly, which brings the charts' JavaScript, are installed."""
    return all(importlib.util.find_spec(name) for name in ("jinja2", "markdown_it", "plotly"))


def write(
    of: Material, path: pathlib.Path, pictures: pathlib.Path | None, others: Iterable[Material] = ()
) -> pathlib.Path:
    """Writes the page. pictures: the folder of the SVGs that show without JavaScript. others: the runs shown beside it."""
    page = Page([of, *others], pictures)
    html_answer.answer(page)
    for build in (
        html_products.crossover,
        html_products.roofline,
        html_products.kernels,
        html_products.by_layer,
        html_movement.memory,
        html_movement.transfers,
        html_movement.launches,
        several_gpus.page_part,
        html_training.trainings,
        html_training.small,
        inference.page_part,
    ):
        build(page)
    tools = html_rows.calculate(page)
    html_rows.list_rows(page)
    html_rows.how_measured(page)
    html_answer.ask(page)
    data = {"tools": tools, "crossover": charts_crossover.data(page.runs), "rows": rows.embedded(page.runs)}
    path.write_text(page.render(data, **html_answer.head(page)), encoding="utf-8")
    return path
