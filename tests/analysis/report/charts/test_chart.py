"""Charts: which point lies where, which trace is whose, what its table says."""

import math
from types import SimpleNamespace

import pytest
from msgspec.structs import astuple

from analysis.report.charts import chart, ladder, overlay
from analysis.report.charts.chart import Axis, Trace, View
from analysis.stats import Estimate, exact
from analysis.table import Table


def test_only_a_wide_interval_is_a_band():
    places = [
        chart.Mark(at=150.0, low=100.0, high=200.0, words="wide"),
        chart.Mark(at=None, low=10.0, high=20.0, words="somewhere"),
        chart.Mark(at=50.0, low=50.0, high=50.5, words="narrow"),
    ]
    made = chart.marked(places)
    assert made["bands"] == [(100.0, 200.0, "wide"), (10.0, 20.0, "somewhere")]
    assert made["lines"] == [(150.0, ""), (50.0, "narrow")]


def test_a_line_has_the_ends_of_its_intervals():
    made = chart.line("x", [(2, Estimate(5.0, 4.0, 7.0)), (3, Estimate(8.0, 6.0, 9.0))], "blue")
    assert (made.x, made.y, made.low, made.high) == ([2.0, 3.0], [5.0, 8.0], [4.0, 6.0], [7.0, 9.0])


def test_each_side_has_its_own_look():
    cpu, gpu = chart.sides([(1, exact(0.2))], [(1, exact(0.1)), (4, exact(0.3))], "batch {}".format)
    assert (cpu.name, cpu.y, cpu.color, cpu.hollow) == ("CPU", [0.2], "blue", True)
    assert (gpu.name, gpu.y, gpu.color, gpu.hollow) == ("GPU", [0.1, 0.3], "vermillion", False)
    assert gpu.says == ["GPU, batch 1: 100 ms", "GPU, batch 4: 300 ms"]


def test_stacked_bars_keep_their_order():
    made = chart.stacked({"copies": [1.0, 3.0], chart.REST: [0.5, 0.25]}, ["CPU", "GPU"], "{} {} {}".format)
    assert [(t.name, t.x, t.y, t.says) for t in made] == [
        ("copies", [1.0, 3.0], ["CPU", "GPU"], ["copies 0 1.0", "copies 1 3.0"]),
        (chart.REST, [0.5, 0.25], ["CPU", "GPU"], [f"{chart.REST} 0 0.5", f"{chart.REST} 1 0.25"]),
    ]
    assert (made[0].color == "gray", made[1].color) == (False, "gray")


def point(n: float, sign: int):
    return SimpleNamespace(n=n, sign=sign)


def test_bands_of_a_picture_touch_at_the_crossings():
    """The CPU up to 10, unsure to 20, the GPU from there; at 100 it can't be told: half way, 63.2, without a crossing."""
    crossing = SimpleNamespace(below=8, above=40, wide=False, at=Estimate(14.0, 10.0, 20.0))
    points = [point(8, -1), point(40, 1), point(100, 0)]
    answer = SimpleNamespace(points=points, crossings=[crossing])
    low, unsure, gpu, last = map(astuple, chart.winner_bands(answer))
    assert (low, unsure) == ((8.0, 10.0, -1), (10.0, 20.0, 0))
    half = pytest.approx(4000**0.5)
    assert (gpu, last) == ((20.0, half, 1), (half, 100, 0))
    assert chart.interval_of(SimpleNamespace(below=8, above=40, wide=True, at=crossing.at)) == (8, 40)
    assert chart.winner_bands(SimpleNamespace(points=[], crossings=[])) == []


def test_a_line_without_a_name_moves_no_name():
    """Two lines end at 10 of 1 to 100, half way up: one has a name, and it stays there; a third has its name on the left."""
    named, bare = (
        Trace(name="a", x=[1.0], y=[10.0], color="blue", label="a"),
        Trace(name="b", x=[1.0], y=[10.0], color="blue"),
    )
    left = Trace(name="c", x=[1.0], y=[10.0], color="blue", label="c", label_left=True)
    assert [t.label_at for t in overlay.named([named, bare, left], 0.0, math.log(100))] == [0.5, 0.0, 0.5]


def test_a_name_has_one_color_in_all_runs():
    def run(color: str) -> list[chart.Chart]:
        view = View(
            label="v",
            x=Axis(title="x", unit="1"),
            y=Axis(title="y", unit="1"),
            traces=[Trace(name="CPU", x=[1.0], y=[2.0], color=color)],
        )
        return [chart.Chart(name="rates", title="Rates", views=[view], numbers=Table("n", [("8",)]))]

    (made,) = overlay.several([("A", run("blue")), ("B", run("red"))])
    assert [(t.name, t.color) for t in made.views[0].traces] == [("A CPU", "blue"), ("B CPU", "blue")]
    assert (made.numbers.heads, made.numbers.rows) == (["run", "n"], [["A", "8"], ["B", "8"]])
    (alone,) = overlay.several([("", run("red"))])
    assert alone.views == run("red")[0].views


def test_two_runs_in_one_view_have_one_axis():
    def view(letter: str, color: str, ends: tuple[float, float]) -> View:
        trace = Trace(name=f"{letter} CPU", x=[1.0], y=[2.0], color=color)
        axis = Axis(title="x", unit="1", limits=ends, lines=(letter,))
        return View(
            label="v",
            x=axis,
            y=Axis(title="y", unit="1"),
            traces=[trace],
            says=f"{letter} says",
            lines=[(1.0, letter)],
            bands=[(1.0, 2.0, letter)],
        )

    made = overlay.over(view("A", "blue", (2.0, 5.0)), view("B", "red", (1.0, 4.0)))
    assert (made.x.limits, made.x.lines, made.y.limits) == ((1.0, 5.0), ("A", "B"), None)
    assert [t.name for t in made.traces] == ["A CPU", "B CPU"]
    assert (made.says, made.lines, made.bands) == (
        "A says B says",
        [(1.0, "A"), (1.0, "B")],
        [(1.0, 2.0, "A"), (1.0, 2.0, "B")],
    )


def test_a_range_shown_by_one_run_is_dropped():
    whole, part = Axis(title="x", unit="1"), Axis(title="x", unit="1", limits=(2.0, 5.0))
    for first, second in ((whole, part), (part, whole)):
        made = overlay.over(
            View(label="v", x=first, y=first, traces=[]), View(label="v", x=second, y=second, traces=[])
        )
        assert (made.x.limits, made.y.limits) == (None, None)


def test_a_roof_reaches_its_name():
    """A slope of 2 a unit down to 4, a level line on to 50."""
    slope = Trace(name="a", x=[10.0, 100.0], y=[20.0, 200.0], color="blue", label="a", label_left=True)
    level = Trace(name="b", x=[10.0, 20.0], y=[7.0, 7.0], color="blue", label="b", label_left=False)
    assert overlay._reaching(slope, (0.5, 50.0), 4.0).x[0] == pytest.approx(2.0)
    assert overlay._reaching(slope, (0.5, 50.0), 4.0).y[0] == pytest.approx(4.0)
    assert overlay._reaching(slope, (5.0, 50.0), 4.0).y[0] == pytest.approx(10.0)
    longer = overlay._reaching(level, (0.5, 50.0), 4.0)
    assert (longer.x, longer.y) == ([10.0, 50.0], [7.0, 7.0])


def test_a_further_run_has_markers_and_a_letter():
    trace = Trace(name="CPU", x=[1.0], y=[2.0], color="blue", marker="circle", dash="dot", label="peak", says=["1 s"])
    view = View(label="v", x=Axis(title="x", unit="1"), y=Axis(title="y", unit="1"), traces=[trace])
    first, second, third = (overlay._styled(trace, i, letter, view) for i, letter in enumerate("ABC"))
    assert (first.name, first.marker, first.dash, first.label, first.says) == (
        "A CPU",
        "circle",
        "dot",
        "A peak",
        ["A, 1 s"],
    )
    assert [(t.marker, t.dash) for t in (second, third)] == [("x", "longdash"), ("pentagon", "longdashdot")]


def test_the_ladder_with_most_rungs_is_first(monkeypatch):
    views = {
        rungs: View(
            label=str(rungs),
            x=Axis(title="x", unit="1", lines=("a",) * (9 - rungs)),
            y=Axis(title="y", unit="text", lines=("r",) * rungs),
            traces=[],
        )
        for rungs in (2, 5, 3)
    }
    monkeypatch.setattr(ladder, "_view", lambda one, problem: views[one])
    monkeypatch.setattr(ladder.ladder, "shown_problem", lambda one: None)
    monkeypatch.setattr(ladder.ladder, "title", str)
    monkeypatch.setattr(ladder.ladder, "numbers", lambda one: [])
    (made,) = ladder.ladder_chart((2, 5, 3), "matmul")
    assert [view.label for view in made.views] == ["5", "3", "2"]
    assert ladder.ladder_chart((), "matmul") == []
