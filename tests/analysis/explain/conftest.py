"""Fixtures of explain's tests: predictions that follow known laws, a model and a script of the user's."""

import msgspec
import pytest
from explain_commands import FIT, OWN
from fake_predictions import predict

from analysis.predict import described_model
from workloads.machine import facts
from workloads.records.script_fit import DescribedScript


@pytest.fixture
def laws(monkeypatch):
    """What predicts follows known laws; this machine has no GPU."""
    monkeypatch.setattr("analysis.predict.prediction.predict", predict)
    monkeypatch.setattr(facts, "gpu_problem", lambda: "no driver")


@pytest.fixture
def own_model(monkeypatch, tmp_path):
    """own:build is a model of OWN's layers; what describes it is not started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def build():\n    pass\n")
    monkeypatch.setattr(described_model, "described", lambda name, seconds: OWN)


@pytest.fixture
def own_script(monkeypatch, tmp_path):
    """train.py is there and calls FIT for a model of OWN's layers; it is not run. own_script(field=value) changes FIT."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    def calls(**fields):
        described = DescribedScript(fit=msgspec.structs.replace(FIT, **fields), network=OWN)
        monkeypatch.setattr(described_model, "described_script", lambda *words: described)

    calls()
    return calls
