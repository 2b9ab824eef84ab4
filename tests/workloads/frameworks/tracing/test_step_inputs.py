"""What a step takes: data that give no batch in time end, and so do the waits of their generator."""

import signal
import time

import pytest

from workloads.frameworks.tracing import step_inputs
from workloads.frameworks.tracing.refusal import Refusal


def test_data_without_a_batch_in_time_are_refused(monkeypatch):
    monkeypatch.setattr(step_inputs, "BATCH_S", 1)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(Refusal, match="its data gave no batch within 1 s") as refusal, step_inputs._time_for_batch():
        time.sleep(60)
    assert refusal.value.change == "let its generator yield sooner"
    assert signal.getsignal(signal.SIGALRM) is before
    with step_inputs._time_for_batch():
        pass
    assert signal.alarm(0) == 0
