"""Charts of several runs over each other: marks, roofs and names."""

import itertools

import pytest

from analysis.report.charts import overlay
from analysis.report.charts.chart import Axis, Chart, Trace, View
from analysis.table import Table


def test_names_beside_lines_are_moved_apart():
    assert overlay._spread([0.1, 0.1, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.05, 0.15, 0.5])
    assert overlay._spread([0.98, 0.99], 0.1, 0.0, 1.0) == pytest.approx([0.9, 1.0])
    assert overlay._spread([0.0, 0.01], 0.1, 0.0, 1.0) == pytest.approx([0.0, 0.1])


def chart(name: str, color: str, marker: str, x: tuple[float, float], **view) -> Chart:
    traces = [Trace(name=name, x=list(x), y=[1.0, 10.0], color=color, marker=marker, dash="solid", says=["a", "b"])]
    one = View(
        label="float32",
        x=Axis(title="n", unit="count", limits=x),
        y=Axis(title="rate", unit="flops", limits=(1.0, 10.0)),
        traces=traces,
        says="It is.",
        **view,
    )
    return Chart(
        name="rates", title="Rates", views=[one], numbers=Table(f"kernel | {name}", [("k", "1")]), picture="rates.svg"
    )


def test_merged_charts_keep_each_runs_marks():
    (made,) = overlay.several(
        [
            ("A", [chart("GPU x", "blue", "square", (1.0, 2.0), lines=[(1.5, "here")])]),
            ("B", [chart("GPU x", "green", "square", (2.0, 8.0))]),
            ("C", [chart("CPU y", "green", "circle", (2.0, 4.0))]),
        ]
    )
    (view,) = made.views
    assert [t.name for t in view.traces] == ["A GPU x", "B GPU x", "C CPU y"]
    assert [t.color for t in view.traces] == ["blue", "blue", "green"]  # the same thing has the same color
    assert len({(t.marker, t.dash) for t in view.traces}) == 3
    assert view.x.limits == (1.0, 8.0) and view.lines == [(1.5, "A: here")]
    assert view.says == "A: It is. B: It is. C: It is." and view.traces[1].says == ["B, a", "B, b"]
    assert made.numbers.heads == ["run", "kernel", "GPU x", "CPU y"]
    assert made.numbers.rows == [["A", "k", "1", "-"], ["B", "k", "1", "-"], ["C", "k", "-", "1"]]
    alone = chart("GPU x", "blue", "square", (1.0, 2.0))
    assert overlay.several([("", [alone])]) == [alone]
    bars = [[chart("work", "blue", "", (1.0, 2.0), bars=True)] for _ in range(2)]
    (made,) = overlay.several([("A", bars[0]), ("B", bars[1])])
    assert [v.label for v in made.views] == ["A: float32", "B: float32"] and made.chooses == "View"
    assert [t.name for v in made.views for t in v.traces] == ["work", "work"]


def test_roofs_reach_the_edge_their_names_stand_at():
    def roof(letter: str, rate: float, x: tuple[float, float]) -> tuple[str, list[Chart]]:
        slope = Trace(name="DRAM", x=list(x), y=[rate * v for v in x], color="blue", label="DRAM", label_left=True)
        level = Trace(name="peak", x=list(x), y=[rate, rate], color="blue", label="peak")
        axes = Axis(title="intensity", unit="1", limits=x), Axis(title="rate", unit="FLOP/s", limits=(0.1, 100.0))
        return letter, [
            Chart(
                name="roofline",
                title="",
                views=[View(label="", x=axes[0], y=axes[1], traces=[slope, level])],
                numbers=Table(""),
            )
        ]

    (made,) = overlay.several([roof("A", 1.0, (1.0, 10.0)), roof("B", 1.01, (0.5, 40.0))])
    traces = {t.name: t for t in made.views[0].traces}
    slope, level = traces["A DRAM"], traces["A peak"]
    assert (slope.x[0], slope.y[0]) == (0.5, pytest.approx(0.5)) and slope.x[-1] == 10.0
    assert (level.x[0], level.x[-1]) == (1.0, 40.0)
    heights = sorted(t.label_at for t in traces.values() if t.label_left)
    assert heights[1] - heights[0] >= 0.0339  # though the roofs are 1 % apart
    assert slope.label == "A DRAM"


def test_labels_move_apart_in_order_within_bounds():
    heights = [0.1, 0.11, 0.12, 0.5, 0.9, 0.91]
    moved = overlay._spread(heights, 0.04, -1.0, 2.0)
    assert moved == sorted(moved) and min(b - a for a, b in itertools.pairwise(moved)) >= 0.04 - 1e-9
    assert moved[3] == 0.5 and sum(moved[:3]) == pytest.approx(sum(heights[:3]))
    assert overlay._spread([0.95, 0.96, 0.97], 0.1, 0.0, 1.0) == pytest.approx([0.8, 0.9, 1.0])
    assert overlay._spread([0.01, 0.02], 0.1, 0.0, 1.0) == pytest.approx([0.0, 0.1])
