"""Pictures of charts: every line within its frame."""

import math

from analysis.report.charts import svg
from analysis.report.charts.chart import Axis, Trace, View


def test_a_still_draws_every_line_in_its_frame():
    traces = [
        Trace(name=f"line {i}", x=[1.0, 10.0, 100.0], y=[1e9 * (i + 1)] * 3, color="blue", marker="circle")
        for i in range(4)
    ]
    view = View(
        label="",
        x=Axis(title="n", unit="count"),
        y=Axis(title="rate", unit="flops"),
        traces=traces,
        lines=[(30.0, "here")],
    )
    (axes,) = svg.figure(view, "Title", "A: one").axes
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert [line.get_ydata()[0] for line in drawn] == [1e9, 2e9, 3e9, 4e9]
    low, high = axes.get_ylim()
    assert low < 1e9 and high > 4e9 and math.log10(high / low) < 2


def test_a_picture_is_shortened_but_for_its_words():
    path = b'<path d="M 254.382898 390.96 \nL -0.001 30 \nz\n"/>'
    words = b'<text style="font-size: 8.555px" x="1.239">0.00123 s</text>'
    short = svg.shortened(
        b'<svg xmlns="http://www.w3.org/2000/svg">\n ' + path + b"\n  " + words + b"\n</svg>"
    ).decode()
    assert 'd="M 254.38 390.96 L -0 30 z"' in short and 'style="font-size: 8.555px" x="1.24">0.00123 s</text>' in short
