"""Charts of trainings: which point lies where, which trace is whose, what its table says."""

from types import SimpleNamespace

import pytest

from analysis.report.charts import break_even, chart, training
from analysis.stats import Estimate, exact


def case(device: str, model: str, predicted_ms: float, measured_ms: float):
    return SimpleNamespace(
        device=device,
        bound="work-bound",
        error=abs(predicted_ms / measured_ms - 1),
        seen=SimpleNamespace(step=Estimate(measured_ms / 1e3, 0.0, 1.0)),
        predicted=SimpleNamespace(
            training=SimpleNamespace(model=model, batch=8), step_s=Estimate(predicted_ms / 1e3, 0.0, 1.0)
        ),
    )


def test_predicted_steps_lie_above_their_measured_ones():
    """3 ms for 2 ms is 50 % off, 1.1 for 1 is 10 %, 40 for 50 is 20 %: one of three within 15 %."""
    cases = [case("cpu", "a", 3.0, 2.0), case("gpu:0", "b", 1.1, 1.0), case("cpu", "c", 40.0, 50.0)]
    (made,) = training.predicted_steps(cases)
    cpu, gpu, diagonal = made.views[0].traces
    assert (cpu.name, cpu.x, cpu.y, cpu.hollow) == ("CPU", [0.002, 0.05], [0.003, 0.04], True)
    assert (gpu.name, gpu.x, gpu.y, gpu.hollow) == ("GPU", [0.001], [0.0011], False)
    assert diagonal.x == diagonal.y == [0.001, 0.05]
    assert cpu.says == [
        "a, batch 8: predicted 3.00 ms, measured 2.00 ms",
        "c, batch 8: predicted 40.0 ms, measured 50.0 ms",
    ]
    assert made.numbers.rows[0] == ["a, batch 8", "cpu", "work-bound", "3.00 ms", "2.00 ms", "50.0 %"]
    assert made.says.startswith("1 of 3 trainings lie within 15 %")
    assert training.predicted_steps(cases[:1]) == [] != training.predicted_steps(cases[:2])


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (None, "never"),
        (Estimate(float("inf"), 3.0, float("inf")), "can't tell (3.00 at the earliest)"),
        (Estimate(float("inf"), 0.0, float("inf")), "can't tell"),
        (Estimate(5.0, 3.0, float("inf")), "5.00 (3.00 or more)"),
        (Estimate(5.0, 3.0, 9.0), "5.00 (3.00..9.00)"),
        (Estimate(0.0, 0.0, 1.0), "0: ahead from the first"),
    ],
)
def test_epochs_to_the_break_even_in_a_chart(epochs, words):
    assert break_even._words(epochs) == words


def test_a_wide_interval_is_a_band_and_a_narrow_one_a_line():
    places = [(150.0, 100.0, 200.0, "wide"), (None, 10.0, 20.0, "somewhere"), (50.0, 50.0, 50.5, "narrow")]
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


def test_stacked_bars_keep_the_order_of_values_and_the_rest_is_gray():
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
    low, unsure, gpu, last = chart.spans(answer)
    assert (low, unsure) == ((8.0, 10.0, -1), (10.0, 20.0, 0))
    half = pytest.approx(4000**0.5)
    assert (gpu, last) == ((20.0, half, 1), (half, 100, 0))
    assert chart.place(SimpleNamespace(below=8, above=40, wide=True, at=crossing.at)) == (8, 40)
    assert chart.spans(SimpleNamespace(points=[], crossings=[])) == []
