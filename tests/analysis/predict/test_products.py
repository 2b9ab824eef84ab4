"""Seconds of products between measured ones."""

import pytest
from fake_measurements import GPU_MACHINE, row
from made_profile import BYTES

from analysis.predict import products, profile
from analysis.stats import Estimate
from kernels.problems import Conv, Matmul


def test_what_is_alike_bounds_what_few_rows_tell(whole):
    """A convolution of 8 x 30 x 30 patches of 3 x 3 x 16 values; a product that is transposed; one that is plain."""
    conv = Conv(8, 32, 32, 16, 64, 3, 3)
    as_product = Matmul(8 * conv.p * conv.q, 64, 144)
    assert products.similar_product(conv) == as_product
    turned = Matmul(5, 6, 7, layout="nt")
    plain = Matmul(5, 6, 7)
    assert products.similar_product(turned) == plain and products.similar_product(plain) is None
    known = Estimate(2.0, 1.0, 8.0)
    assert known.within(Estimate(3.0, 1.5, 4.0)) == Estimate(2.0, 1.5, 4.0)
    assert known.within(Estimate(5.0, 4.0, 9.0)) == Estimate(2.0, 2.0, 8.0)  # never past the number itself
    rest = [m for m in whole.measurements if m.problem.op not in ("conv", "matmul")]
    (one, *_) = [m for m in whole.measurements if m.problem.op == "conv" and m.problem.direction == "fprop"]
    similar = [row("matmul/numpy/blas", as_product, 1.3e-3)]
    given = ([*rest, *similar], [*rest, one], [*rest, one, *similar])
    none, wide, narrow = (products.product(profile.Profile(g, GPU_MACHINE), conv, "cpu", "op by op") for g in given)
    assert none is None and wide.seconds.value == narrow.seconds.value  # they stand for nothing
    assert wide.seconds.low < narrow.seconds.low < narrow.seconds.high < wide.seconds.high
    given = (Conv(8, 32, 32, 16, 16, 3, 3, groups=groups) for groups in (16, 4))
    read, none = (products.product(whole, conv, "cpu", "op by op") for conv in given)
    copied = 4 * 16 * (8 * 32 * 32 + 9 + 8 * 30 * 30) / BYTES["cpu"]
    told = none, "by their bytes" in read.instead, read.seconds.low, read.seconds.value, read.seconds.high
    assert told == (None, True, *(pytest.approx(times * copied, rel=0.02) for times in (1.25, 2.5, 5)))
