"""What data sheets say of links."""

import pytest

from analysis.roofline import data_sheets


@pytest.mark.parametrize(
    ("generation", "lanes", "gigabytes"),
    [(1, 16, 4.0), (2, 8, 4.0), (3, 4, 3.9385), (4, 8, 15.754), (5, 16, 63.015), (6, 4, 30.25)],
)
def test_the_bytes_of_a_pcie_link(generation, lanes, gigabytes):
    """2.5, 5, 8, 16, 32 and 64 gigatransfers a second and lane; 8 of 10 bits, 128 of 130 and 242 of 256 bytes are data."""
    assert data_sheets.pcie_bytes_per_s(generation, lanes) == pytest.approx(gigabytes * 1e9, rel=1e-4)
