"""Products of one row or column."""

import numpy as np
import pytest
from whole_numbers import whole

from kernels.simd.vector_product import vector_product


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("size", [33, 70])
def test_threads_share_a_thin_product(size, count):
    """Shares are multiples of 16: of 33 results or sums two threads have 32 and 1. Of B's rows as they lie, and transposed."""
    for m, n, k in ((1, size, 50), (1, 50, size), (size, 1, 50), (50, 1, size)):
        for a, b in (
            (whole((m, k)), whole((k, n))),
            (whole((m, k)), whole((n, k)).T),
            (whole((k, m)).T, whole((k, n))),
        ):
            c = np.full((m, n), 7, a.dtype)
            vector_product(a, b, c, count)()
            np.testing.assert_array_equal(c, a @ b)
