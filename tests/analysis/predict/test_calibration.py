"""Residuals of left-out models, and the intervals that they give, by hand."""

import math

import pytest

from analysis.predict import calibration, step_parts
from analysis.predict.calibration import Residual
from analysis.predict.step_parts import OVERHEAD, WORK
from analysis.predict.step_time import UNFITTED, Calibration
from analysis.stats import exact


def residual(error: float, model: str, bound: str = OVERHEAD) -> Residual:
    return Residual(model=model, bound=bound, error=error)


def test_the_error_that_nine_of_ten_models_keep():
    """Of 19 models it is the 18th: 0.9 x (19 + 1). Of 8 the largest, as 0.9 x 9 is beyond them."""
    assert calibration._quantile([residual(0.01 * n, f"m{n}") for n in range(1, 20)]) == pytest.approx(0.18)
    assert calibration._quantile([residual(0.01 * n, f"m{n}") for n in range(1, 9)]) == pytest.approx(0.08)


def test_the_trainings_of_a_model_weigh_as_one():
    """29 models: the error at the weight of 27. One model's four trainings, the worst of all, weigh 1 together: 26 others and
    half a model lie below 0.5, so the two larger ones of the four are beyond the place."""
    others = [residual(0.01 * n, f"m{n}") for n in range(1, 29)]
    many = [residual(error, "many") for error in (0.255, 0.265, 1.0, 2.0)]
    assert calibration._quantile([*others, *many]) == pytest.approx(0.27)
    assert calibration._quantile([*others, *[residual(2.0 + n, "many") for n in range(4)]]) == pytest.approx(0.27)


def test_twenty_models_of_a_bound_set_their_interval():
    overhead = [residual(0.1, f"m{n}") for n in range(20)]
    work = [residual(0.5, f"m{n}", WORK) for n in range(3)]
    spreads = calibration._spreads([*overhead, *work])
    assert spreads == pytest.approx({OVERHEAD: math.exp(0.1) - 1, WORK: math.exp(0.5) - 1})
    # the 19 overhead-bound models weigh 19 of 20, and the place is 0.9 x 21
    pooled = calibration._spreads([*overhead[:19], residual(0.5, "other", WORK)])
    assert pooled == pytest.approx({OVERHEAD: math.exp(0.1) - 1, WORK: math.exp(0.1) - 1})
    assert calibration._spreads([]) == {}


def test_under_nine_models_narrow_no_interval():
    """The worst of nine is at the place of 0.9 x (9 + 1) = 9; of eight none is at 0.9 x (8 + 1) = 8.1."""
    nine = [residual(0.01, f"m{n}") for n in range(9)]
    assert calibration._spreads(nine) == pytest.approx({OVERHEAD: math.exp(0.01) - 1, WORK: math.exp(0.01) - 1})
    assert calibration._spreads(nine[:8]) == {OVERHEAD: UNFITTED, WORK: UNFITTED}
    worse = [*nine[:7], residual(0.5, "other")]
    assert calibration._spreads(worse) == pytest.approx({OVERHEAD: math.exp(0.5) - 1, WORK: math.exp(0.5) - 1})


def test_a_step_is_bound_by_its_larger_half():
    parts = {"dispatch": exact(1.0), "launches": exact(0.6), "conv": exact(2.0), step_parts.HIDDEN: exact(-0.5)}
    assert step_parts.bound_of(parts) == OVERHEAD  # 1.6 of 3.1
    assert step_parts.bound_of({**parts, "conv": exact(2.2)}) == WORK  # of 3.3
    fitted = Calibration(spreads={OVERHEAD: 0.2})
    assert (fitted.spread(parts), fitted.spread({"conv": exact(1.0)})) == (0.2, UNFITTED)
