"""Flags that a row gets from its visits."""

import pytest

from kernels.problems import Matmul
from workloads.records import Measurement, Samples, Settings, row_flags


@pytest.mark.parametrize(
    ("visits", "words"),
    [
        ((2e-3, 2e-3, 50e-3), "one of 3 visits took 25x their median (host-latency)"),
        ((2e-3, 3e-3, 2e-3, 50e-3), "one of 4 visits took 20x their median (host-latency)"),
        ((2e-3, 2e-3, 20e-3), ""),
        ((2e-3, 50e-3), ""),
    ],
)
def test_a_visit_of_ten_medians_is_noted(visits, words):
    taken = Samples("host-latency", visits, 1, (1,) * len(visits), "visits")
    m = Measurement("matmul/numpy/blas", Matmul(8, 8, 8), Settings(threads=1), "ok", samples=(taken,))
    assert row_flags.long_visit(m) == words
