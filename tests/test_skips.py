"""The suite's own rule: in CI a test skips for want of hardware only."""

from types import SimpleNamespace

import pytest
from conftest import allowed_skip, refuse_skip


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [
        ("no GPU", True),
        ("no AVX-512 on this CPU", True),
        ("no AMX", True),
        ("no GPUs today", False),
        ("TensorFlow is not installed", False),
        ("", False),
    ],
)
def test_ci_allows_two_kinds_of_skips(reason, allowed, monkeypatch):
    assert allowed_skip(reason) is allowed
    report = SimpleNamespace(skipped=True, outcome="skipped", longrepr=("file", 1, f"Skipped: {reason}"))
    monkeypatch.delenv("CI", raising=False)
    refuse_skip(report)
    assert report.outcome == "skipped"
    monkeypatch.setenv("CI", "1")
    refuse_skip(report)
    assert report.outcome == ("skipped" if allowed else "failed")
