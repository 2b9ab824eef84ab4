"""The pictures of a page."""

from types import SimpleNamespace

import fake_measurements as fake
import pytest
from legible import legible

from analysis.analysis import Analysis
from analysis.report import material, pictures
from analysis.report.charts import svg
from analysis.table import Table


def test_each_chart_with_rows_has_its_table(monkeypatch):
    charts = [
        SimpleNamespace(title="Rates", numbers=Table("n", [("8",)]), note="* a note"),
        SimpleNamespace(title="Empty", numbers=Table("n"), note=""),
        SimpleNamespace(title="Copies", numbers=Table("way", [("h2d",)]), note=""),
    ]
    monkeypatch.setattr(pictures, "merged_charts", lambda names, runs: charts)
    assert pictures.numbers((), []) == [
        *("Rates:", "", "| n |", "| --- |", "| 8 |", "", "\\* a note", ""),
        *("Copies:", "", "| way |", "| --- |", "| h2d |", ""),
    ]


@pytest.mark.parametrize("run", [fake.whole_run, fake.gpu_run, fake.cpu_run])
def test_picture_labels_neither_overlap_nor_leave(run):
    of = material.Material(Analysis.from_loaded(run()))
    for (chart,) in filter(None, (pictures.CHARTS[name](of) for name in ("roofline", "memory", "transfers"))):
        legible(svg.figure(chart.views[0], chart.title))
