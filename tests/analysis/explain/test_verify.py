"""What a change saved beside what was predicted."""

from types import SimpleNamespace

import pytest
from explain_commands import explained
from fake_predictions import MS

from analysis.explain import verify
from analysis.predict import what_if
from analysis.stats import Estimate, exact
from kernels.problems import Training
from workloads import options
from workloads.records import Settings

pytestmark = pytest.mark.usefixtures("laws")


def test_what_is_verified_stands_beside_what_was_predicted():
    plan = verify.plan(explained(), 3)
    assert [change.words for change, _ in plan] == ["batch 512", "data on the GPU, own loop", "batch 128"]
    assert plan[0][1].value == pytest.approx(2.164 * MS - 3.124 * MS / 16)
    steps = {"as it is": 2.4 * MS, "batch 512": 3.2 * MS}

    def measured(change, folder):
        return exact(steps[change.words]) if change.words in steps else "no memory"

    lines = list(verify.lines(explained(), 3, measured))
    assert "  a step as it is: predicted 2.16 ms, measured 2.40 ms" in lines
    # 2.4 - 3.2 / 16 ms at batch 512, predicted 1.97: 0.231 of 2.164 ms
    expected = "batch 512: saves predicted 1.97 ms, measured 2.20 ms of a step's work (off by 10.7 % of the step)"
    assert any(expected in s for s in lines)
    assert any("not measured: no memory" in s for s in lines)


def test_a_verified_saving_compares_with_its_prediction(monkeypatch):
    """A step of 10 ms [5, 40], measured as 8 ms. At four times the batch 20 ms were measured: 8 - 20 / 4 = 3 ms saved, where 4
    [1, 7] were predicted: off by 10 % of the step."""
    base = SimpleNamespace(
        training=Training("lenet", 32, 320), settings=Settings("cpu"), step_s=Estimate(10e-3, 5e-3, 40e-3)
    )
    change = what_if.Change(words="batch 128", training=Training("lenet", 128, 320), settings=Settings("cpu"))
    monkeypatch.setattr(verify, "plan", lambda explanation, most: [(change, Estimate(4e-3, 1e-3, 7e-3))])
    seconds = {"as it is": Estimate(8e-3, 7e-3, 20e-3), "batch 128": Estimate(20e-3, 10e-3, 90e-3)}
    lines = list(
        verify.lines(SimpleNamespace(main=base, withheld=False), 3, lambda change, folder: seconds[change.words])
    )
    assert "measured 3.00 ms" in lines[-1] and lines[-1].endswith("(off by 10.0 % of the step)")
    with pytest.raises(options.Missing, match="no prediction to verify"):
        list(verify.lines(SimpleNamespace(main=None), 3))


def test_useless_and_unknown_changes_are_not_verified():
    def change(words: str, saves: float | None, step: float | None):
        return SimpleNamespace(
            change=words,
            job_saved=None if saves is None else Estimate(saves, saves - 9, saves + 9),
            step_saved=None if step is None else exact(step),
        )

    what_ifs = [
        change("a", 5.0, 1.0),
        change("b", -1.0, 1.0),
        change("c", None, 1.0),
        change("d", 4.0, None),
        change("e", 3.0, 2.0),
    ]
    found = [words for words, _ in verify.plan(SimpleNamespace(what_ifs=what_ifs), 9)]
    assert found == ["a", "e"] and len(verify.plan(SimpleNamespace(what_ifs=what_ifs), 1)) == 1
