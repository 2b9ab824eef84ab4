"""Fixtures of the tests of comparisons."""

import pytest
from fake_comparisons import keep
from fake_measurements import GPU_MACHINE

from analysis import noise


@pytest.fixture(autouse=True)
def stored(tmp_path, monkeypatch):
    """Runs of the CPU differ by 1 %, device times of the GPU machine by 0.5 %."""
    keep(tmp_path / "kept", {(noise.CPU, 0): 0.01})
    keep(tmp_path / "kept", {(noise.GPU, 0): 0.005, (noise.CALLS, 0): 0.03}, GPU_MACHINE)
    monkeypatch.setattr(noise, "REPORTS", tmp_path / "kept")
