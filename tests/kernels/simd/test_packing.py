"""Panels in their order in memory."""

import numpy as np
import pytest
from whole_numbers import whole

from kernels.simd import packing


@pytest.mark.parametrize("across", [1, 40])  # side by side in memory across the panel, or along it
@pytest.mark.parametrize("valid", [8, 5])
def test_a_panel_has_the_steps_in_their_order(across, valid):
    source = whole((40, 40))
    target = np.full(8 * 39 + 16, 7, np.float32)
    along = 41 - across
    packing.pack((0,) * 16, (0,) * 8, target, 0, 8, packing.origin(source), across, along, 0, valid, 1, 39, 39)
    expected = (source if across == 40 else source.T)[:valid, 1:]
    np.testing.assert_array_equal(target[: 8 * 39].reshape(39, 8)[:, :valid].T, expected)


def test_panels_lie_apart_on_one_huge_page():
    left, right = packing.room(np.dtype(np.float32), (3, 1000), (5,))
    starts = [x.__array_interface__["data"][0] for x in (left, right)]
    # 12,000 bytes take three pages of 4096, and the next begins a KiB into its own
    assert starts[0] % (1 << 21) == 0 and starts[1] - starts[0] == 3 * 4096 + 1024
    assert (left.shape, right.shape, left.dtype) == ((3, 1000), (5,), np.float32)
