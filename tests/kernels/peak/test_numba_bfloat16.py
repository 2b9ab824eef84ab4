"""Peaks of bfloat16: exact sums that carry over."""

import ml_dtypes
import numpy as np
import pytest
import tile_code

from kernels import registry
from kernels.peak import numba_bfloat16 as peaks
from kernels.problems import Peak


def test_float32_sums_carry_over_nonzero_operands():
    # 2^36 FLOPs in trips of 2^16 are 2^20 trips; each adds 32 to a sum, 2^25 in all: two rounds
    assert peaks._plan(Peak("bfloat16", 1 << 36), 1 << 16, 32) == (2, 1 << 19)
    assert peaks._plan(Peak("bfloat16", 1 << 35), 1 << 16, 32) == (1, 1 << 19)
    with pytest.raises(ValueError, match="65536 FLOPs are too few"):
        peaks._plan(Peak("bfloat16", 1 << 16), 98304, 32)
    assert (peaks._operands(np.ones(2), 512).view(ml_dtypes.bfloat16) == 1).all()
    drawn = peaks._operands(Peak("bfloat16", 1).inputs(1)[0], 512).view(ml_dtypes.bfloat16).astype(float)
    assert np.isfinite(drawn).all() and (drawn != 0).all() and len(set(drawn)) > 10


@pytest.mark.parametrize("variant", ["dot", "tiles"])
def test_random_operands_give_finite_sums(variant):
    tile_code.need_instructions(variant)
    problem = Peak("bfloat16", 1 << 30)
    assert np.isfinite(registry.find(f"peak/numba/{variant}").bind(problem, *problem.inputs(3))()).all()
