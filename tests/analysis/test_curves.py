"""Curves through measured shapes: exact where a shape was measured, near where the law between is smooth, and honest about it."""

import itertools
import math

import pytest

from analysis.predict.curves import Point, curve

SIDES = (8, 32, 128, 512, 2048)


def law(m, n, k):
    """2 us, 1e11 FLOP/s and 1e10 bytes/s."""
    return 2e-6 + 2 * m * n * k / 1e11 + 4 * (m * k + k * n + m * n) / 1e10


def point(m, n, k, seconds=None):
    nbytes = 4 * (m * k + k * n + m * n)
    return Point((math.log(m), math.log(n), math.log(k)), seconds or law(m, n, k), 2.0 * m * n * k, nbytes)


def made(floored=True):
    return curve([point(*sides) for sides in itertools.product(SIDES, repeat=3)], floored)


def rough(factor):
    """The curve of rows that lie above and below the law by that factor in turn."""
    every = enumerate(itertools.product(SIDES, repeat=3))
    return curve([point(*sides, law(*sides) * (factor if i % 2 else 1 / factor)) for i, sides in every])


def test_of_rows_measured_again_the_middle_one_stands_and_of_libraries_the_fastest():
    again = [point(64, 64, 64, s) for s in (5.0, 1.0, 3.0)]
    at = again[0].at
    assert curve([*again, point(8, 8, 8)], False).exact[at] == 3.0
    assert curve([*again, point(8, 8, 8)]).exact[at] == 1.0


@pytest.mark.parametrize("sides", [(16, 256, 100), (64, 1000, 300), (1500, 20, 900), (300, 300, 300)])
def test_between_measured_shapes_it_follows_the_law(sides):
    p = point(*sides)
    read = made().seconds(p.at, p.flops, p.nbytes)
    assert read.value == pytest.approx(law(*sides), rel=0.25) and read.low < law(*sides) < read.high


def test_the_error_is_that_of_rows_read_off_from_the_others():
    assert made().errors == (pytest.approx(0, abs=1e-6), pytest.approx(math.log(4)))
    assert 0.1 < rough(1.1).errors[0] < 0.5
    assert rough(1.5).errors[0] > 2 * rough(1.1).errors[0]
    near, far = point(36, 512, 128), point(32, 512, 500_000)
    widths = [math.log(r.high / r.low) for p in (near, far) for r in [rough(1.2).seconds(p.at, p.flops, p.nbytes)]]
    assert widths[1] > 2 * widths[0]


def test_the_form_is_the_law_where_the_rows_follow_one():
    form = made()
    assert (form.floor, form.a_flop, form.a_byte) == (pytest.approx(2e-6), pytest.approx(1e-11), pytest.approx(1e-10))
    assert made(False).floor == 0
    far = point(4000, 3000, 5000)
    assert form.seconds(far.at, far.flops, far.nbytes).value == pytest.approx(law(4000, 3000, 5000), rel=0.01)
    flat = curve([point(n, n, n, 1e-5) for n in SIDES], False)
    p = point(16, 16, 16)
    assert 0 < flat.seconds(p.at, p.flops, p.nbytes).value < 1
    p = point(32, 512, 128)
    assert made().seconds(p.at, p.flops, p.nbytes).value == law(32, 512, 128)
    both = curve([point(8, 8, 8, 5e-6), point(8, 8, 8, 3e-6)])
    assert both.seconds(point(8, 8, 8).at, 1024.0, 768.0).value == 3e-6
    assert curve([]) is None
