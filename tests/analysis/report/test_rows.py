"""Rows of a page as data."""

from analysis.report import rows as page_rows
from workloads.records import Samples


def test_a_rows_distribution_is_limited_rising_quantiles():
    """Five visits: their range. Of five samples three: the least, the third, the largest."""
    taken = Samples("device", (5e-3, 1e-3, 3e-3, 2e-3, 4e-3), 7, (1,) * 5, "5 visits")
    clock = page_rows._clock(taken, " in 9 s", 3)
    assert clock == {
        "median_s": 3e-3,
        "low_s": 1e-3,
        "high_s": 5e-3,
        "samples": 5,
        "calls": 7,
        "stopped": "5 visits in 9 s",
        "quantiles_s": [1e-3, 3e-3, 5e-3],
    }
