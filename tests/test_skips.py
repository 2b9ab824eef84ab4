"""The suite's own rule: in CI a test skips for want of hardware only."""

from types import SimpleNamespace

import pytest
from conftest import allowed_skip, refuse_skip


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [
        *((reason, True) for reason in ("no GPU", "no AVX-512 on this CPU", "no AMX")),
        *((reason, False) for reason in ("no GPUs today", "TensorFlow is not installed", "")),
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
