"""Numbers that answer a newcomer's questions, worked out by hand."""

from types import SimpleNamespace

import pytest
from fake_measurements import row
from fake_trainings import both

from analysis.stats import Estimate
from analysis.text import questions
from analysis.training import break_even
from kernels.problems import Matmul


def test_unsure_trainings_are_listed_as_the_others():
    """Of three trainings the GPU's step is shorter in one, the CPU's in one; the noisy one can't be told."""
    sure = [*both("peaks", 100, 100, 2e-3, 1e-3), *both("lenet", 32, 3200, 1e-3, 2e-3)]
    noisy = both("mnist-cnn", 32, 3200, 1.1e-3, 1e-3, noise=0.9)
    for rows, others in ((sure, ""), ([*sure, *noisy], "; the others can't be told")):
        told = questions._trainings(break_even.pairs(rows))
        assert (told["shorter"]["gpu"], told["shorter"]["cpu"], told["others"]) == (1, 1, others)
        assert told["trainings"] == len(rows) // 2
    assert questions._trainings([])["trainings"] is None


def test_a_first_call_is_compared_with_later_ones():
    """200, 300 and 1000 times on the GPU: 300."""
    rows = [
        row("matmul/cupy/cublas", Matmul(n, n, n), {"device": 1e-3}, phases_s={"first_call": first})
        for n, first in ((8, 0.2), (16, 0.3), (32, 1.0))
    ]
    rows += [row("matmul/numpy/blas", Matmul(8, 8, 8), 1e-3, threads=1, phases_s={"first_call": 9.0})]
    assert questions._first_calls(rows) == {"calls": 3, "first": pytest.approx(300.0)}
    assert questions._first_calls(rows[3:]) == {"calls": 0, "first": None}


def test_pinned_memory_is_faster_by_the_likeliest_bandwidths(monkeypatch):
    """To the GPU 50 [40, 80] against 10 [5, 11] GB/s; back there is no pageable copy."""
    laws = {
        ("h2d", "pinned"): SimpleNamespace(bandwidth=Estimate(50e9, 40e9, 80e9)),
        ("h2d", "pageable"): SimpleNamespace(bandwidth=Estimate(10e9, 5e9, 11e9)),
        ("d2h", "pinned"): SimpleNamespace(bandwidth=Estimate(50e9, 40e9, 80e9)),
    }
    monkeypatch.setattr(questions.links, "fits", lambda rows: [])
    monkeypatch.setattr(questions.links, "find", lambda found, way, memory, kernel="": laws.get((way, memory)))
    assert questions._pinned([]) == "5.0x faster to the GPU"
    del laws["h2d", "pinned"]
    assert questions._pinned([]) is None
