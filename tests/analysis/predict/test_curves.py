"""Curves through measured shapes: the law that they follow, the plane through the nearest rows, and their intervals."""

import itertools
import math

import numpy as np
import pytest

from analysis.predict import curves
from analysis.predict.curves import MeasuredShape, curve

SIDES = (8, 32, 128, 512, 2048)


def law(m, n, k):
    """2 µs, 1e11 FLOP/s and 1e10 bytes/s."""
    return 2e-6 + 2 * m * n * k / 1e11 + 4 * (m * k + k * n + m * n) / 1e10


def point(m, n, k, seconds=None):
    nbytes = 4 * (m * k + k * n + m * n)
    sides = (math.log(m), math.log(n), math.log(k))
    return MeasuredShape(coordinates=sides, seconds=seconds or law(m, n, k), flops=2.0 * m * n * k, nbytes=nbytes)


def made(has_constant=True):
    return curve([point(*sides) for sides in itertools.product(SIDES, repeat=3)], has_constant)


def rough(factor):
    """The curve of rows that lie above and below the law by that factor in turn."""
    every = enumerate(itertools.product(SIDES, repeat=3))
    return curve([point(*sides, law(*sides) * (factor if i % 2 else 1 / factor)) for i, sides in every])


def test_of_rows_measured_again_the_fastest_stands():
    again = [point(64, 64, 64, s) for s in (5.0, 1.0, 3.0)]
    assert all(
        curve([*again, point(8, 8, 8)], has_constant).measured_s[again[0].coordinates] == 1.0
        for has_constant in (False, True)
    )


@pytest.mark.parametrize("sides", [(16, 256, 100), (64, 1000, 300), (1500, 20, 900), (300, 300, 300)])
def test_between_measured_shapes_it_follows_the_law(sides):
    p = point(*sides)
    read = made().seconds(p.coordinates, p.flops, p.nbytes)
    assert read.value == pytest.approx(law(*sides), rel=0.25) and read.low < law(*sides) < read.high


def test_the_error_leaves_out_one_row_at_once():
    usual = 4 * 0.8  # as four rows would; these are as many as SIDES to the third
    assert made().error == (pytest.approx(usual / (len(SIDES) ** 3 + 4), abs=1e-6), pytest.approx(math.log(4)))
    assert 0.1 < rough(1.1).error[0] < 0.5 and rough(1.5).error[0] > 2 * rough(1.1).error[0]
    assert curve([point(8, 8, 8), point(64, 64, 64)]).error == (0.8, 0.0)
    two, most = curve([point(8, 8, 8, 1e-6), point(64, 64, 64, 1e-4)]), point(4096, 4096, 4096)
    # 64 x 64 x 64 of the larger one, and four times that
    assert two.seconds(most.coordinates, most.flops, most.nbytes).high == pytest.approx(4 * 64**3 * 1e-4)
    near, far = point(36, 512, 128), point(32, 512, 500_000)
    widths = [
        math.log(r.high / r.low) for p in (near, far) for r in [rough(1.2).seconds(p.coordinates, p.flops, p.nbytes)]
    ]
    assert widths[1] > 2 * widths[0]


def measured(coordinates, seconds):
    """A row of a million FLOPs and bytes."""
    return MeasuredShape(coordinates=coordinates, seconds=seconds, flops=1e6, nbytes=1e6)


def test_lawless_rows_give_a_wide_interval():
    """Times that jump by 10^4 between shapes a hair apart: one unit of distance is worth an error of 10^300 and more."""
    points = [measured((1 + 1e-3 * i,), 1e-6 if i % 2 else 1e-2) for i in range(20)]
    far = curve(points).seconds((40.0,), 1e6, 1e6)
    assert 0 < far.low < far.value / 10 and 1e5 * far.value < far.high < math.inf


def test_the_nearest_rows_match_a_full_search():
    line = np.array([[float(i)] for i in range(20)])
    nearest = curves._nearest_of_others(line)
    assert nearest[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert nearest[10].tolist() == [9, 11, 8, 12, 7, 13, 6, 14]  # of two equally far the first row first
    assert [row.tolist() for row in curves._nearest_of_others(line[:3])] == [[1, 2], [0, 2], [1, 0]]


def test_many_rows_are_read_against_their_neighbors(monkeypatch):
    looked_at = []
    distances = curves._distances
    monkeypatch.setattr(curves, "_distances", lambda rows, at: looked_at.append(len(rows)) or distances(rows, at))
    made = curve([measured((float(i),), 1e-6) for i in range(1000)])
    assert made.error[1] == 1.0
    assert sum(looked_at) < 1000 * 20  # 1,000,000 where every row is read against all


def test_the_form_is_the_law_of_the_rows():
    form = made()
    fitted = form.model
    assert (fitted.constant_s, fitted.flop_s, fitted.byte_s) == (
        pytest.approx(2e-6),
        pytest.approx(1e-11),
        pytest.approx(1e-10),
    )
    assert made(False).model.constant_s == 0
    far = point(4000, 3000, 5000)
    assert form.seconds(far.coordinates, far.flops, far.nbytes).value == pytest.approx(law(4000, 3000, 5000), rel=0.01)
    flat = curve([point(n, n, n, 1e-5) for n in SIDES], False)
    p = point(16, 16, 16)
    assert 0 < flat.seconds(p.coordinates, p.flops, p.nbytes).value < 1
    p = point(32, 512, 128)
    assert made().seconds(p.coordinates, p.flops, p.nbytes).value == law(32, 512, 128)
    assert curve([]) is None


def test_a_plane_goes_through_the_8_nearest_rows():
    """Rows at 0, 1, 2, ...: those nearest to 10.4 lie 0.4, 0.6, 1.4, 1.6, ... away."""
    line = np.array([[float(i)] for i in range(20)])
    assert curves._nearest(line, np.array([10.4]), range(20)).tolist() == [10, 11, 9, 12, 8, 13, 7, 14]
    assert curves._nearest(line, np.array([10.4]), [0, 19, 5]).tolist() == [5, 19, 0]
