"""Seconds of passes over memory, in graphs and in calls."""

import pytest

from analysis.predict import passes


def test_larger_passes_count_less_of_the_call():
    """3 s a call of 100 bytes, 1 s in a graph: of 5 s for 200 bytes 3 remain. 1.5 s for 400 are less than a call: left out."""
    points = list(passes.shapes_in_graph({50: 0.5, 100: 1.0}, {100: 3.0, 200: 5.0, 400: 1.5}))
    assert [point.nbytes for point in points] == [50, 100, 200]
    assert [point.seconds for point in points[:2]] == [0.5, 1.0] and points[2].seconds == pytest.approx(3.0, rel=0.1)
    assert [point.nbytes for point in passes.shapes_in_graph({100: 1.0}, {50: 2.0})] == [100]
