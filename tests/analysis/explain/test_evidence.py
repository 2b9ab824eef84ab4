"""Numbers that answer a reported complaint or a question, worked out by hand on rows that follow known laws."""

from types import SimpleNamespace

import fake_measurements as fake
import pytest
from fake_measurements import GPU_MACHINE, row

from analysis.explain import evidence
from analysis.predict.profile import Profile
from analysis.roofline.roofs import Roof
from analysis.stats import Estimate
from kernels.problems import Peak


def test_a_copying_step_with_pinned_memory_and_overlap():
    """11.02 ms are 121 MB from pageable memory (20 µs and 11 GB/s); from pinned (10 µs and 55 GB/s) 2.21 ms. The rest of a step
    of 20 ms takes 8.98 ms, which hides such a copy."""
    bound = evidence.bound_by_copies(11.02e-3, 20e-3, fake.transfer_rows(0.0))
    assert (bound.nbytes, bound.pinned_s) == pytest.approx((121e6, 2.21e-3), rel=1e-3)
    assert (bound.pinned_step_s, bound.overlapped_step_s) == pytest.approx((11.19e-3, 8.98e-3), rel=1e-3)
    pinned = [m for m in fake.transfer_rows(0.0) if m.problem.host_memory == "pinned"]
    assert evidence.bound_by_copies(11.02e-3, 20e-3, pinned) is None


def test_the_best_peak_in_the_first_arithmetic():
    peaks = [
        row("peak/numba/fma", Peak("float32", 10**9), 10**9 / 50e9, threads=1),
        row("peak/numba/fma", Peak("float32", 10**9), 10**9 / 90e9, threads=2),
        row("peak/numba/fma", Peak("float64", 10**9), 10**9 / 40e9, threads=2),
        row("peak/cupy/fma", Peak("float32", 10**13), {"device": 0.2, "host-latency": 1.0}),
        row("peak/cupy/tensor", Peak("tf32", 10**13), {"device": 0.05, "host-latency": 1.0}),
    ]
    of = Profile(peaks, GPU_MACHINE)
    assert evidence._peak(of, False, ("float32",)) == pytest.approx(90e9)
    assert evidence._peak(of, True, ("tf32", "float32")) == pytest.approx(200e12)
    assert evidence._peak(of, True, ("float32",)) == pytest.approx(50e12)
    assert evidence._peak(of, True, ("bfloat16",)) is None


def test_a_peak_is_its_roofs_likeliest_rate(monkeypatch):
    """90 GFLOP/s [80, 99] of two threads, 50 of one; a data sheet's does not count."""
    roofs = [
        Roof(device="cpu", kind="compute", name="float32", rate=Estimate(90e9, 80e9, 99e9), source="a row", threads=2),
        Roof(device="cpu", kind="compute", name="float32", rate=Estimate(50e9, 50e9, 999e9), source="a row", threads=1),
        Roof(
            device="cpu",
            kind="compute",
            name="float32",
            rate=Estimate(1e15, 1e15, 1e15),
            source="a sheet",
            measured=False,
        ),
        Roof(device="cpu", kind="memory", name="DRAM", rate=Estimate(1e12, 1e12, 1e12), source="a row"),
    ]
    monkeypatch.setattr(evidence.Analysis, "from_rows", lambda rows, machine: SimpleNamespace(roofs=roofs))
    of = SimpleNamespace(measurements=(), machine=None)
    assert evidence._peak(of, False, ("float32",)) == 90e9
