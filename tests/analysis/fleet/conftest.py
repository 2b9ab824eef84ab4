"""Fixtures of a fleet's tests."""

import pytest

from workloads.records import baselines


@pytest.fixture(autouse=True)
def no_baselines(monkeypatch, tmp_path):
    monkeypatch.setattr(baselines, "FOLDER", tmp_path / "saved")
