"""Further lines of an answer."""

from types import SimpleNamespace

import pytest

from analysis.stats import Estimate
from analysis.text.explanation import details


@pytest.mark.parametrize(
    ("batch", "said"),
    [(None, "-"), (Estimate(1200.0, 600.0, 2400.0), "about 1,200"), (Estimate(0.5, 0.2, 9.0), "none fits")],
)
def test_the_largest_batch_that_fits_is_the_likeliest(batch, said):
    assert details._largest_batch(SimpleNamespace(largest_batch=batch)) == said
