"""An analysis computes each of its results once, whoever reads them."""

import fake_measurements as fake
import pytest

from analysis import analysis, export
from analysis.analysis import Analysis
from analysis.report import page
from analysis.report.material import Material
from analysis.roofline import roofs
from analysis.text import questions, summary
from kernels.problems import Peak
from workloads import matmul, session
from workloads.harness import sweep


@pytest.fixture
def roof_calls(monkeypatch) -> list[int]:
    """The number of rows of every call of roofs_of by an analysis."""
    calls = []

    def counted(rows, machine=None):
        calls.append(len(rows))
        return roofs.roofs_of(rows, machine)

    monkeypatch.setattr(analysis, "roofs_of", counted)
    return calls


def test_page_answer_and_questions_share_one_analysis(roof_calls):
    loaded = fake.whole_run()
    run = Material(Analysis.from_loaded(loaded))
    assert roof_calls == []
    assert page.markdown([run], False) and questions.answered(run.analysis)
    assert summary.answer(run.analysis) == run.answer
    assert roof_calls == [len(loaded.measurements)]
    assert run.analysis.roofs == roofs.roofs_of(loaded.measurements, fake.GPU_MACHINE)


def test_answer_ladder_and_doubts_share_their_roofs(roof_calls, tmp_path, capsys):
    loaded = fake.cpu_run()
    outcome = sweep.Outcome(run=loaded.last, path=tmp_path / "matmul.jsonl", measurements=list(loaded.measurements))
    results = session.analyzed(outcome)
    matmul.parse(["--ladder"]).answer(outcome, results)
    session.sum_up(outcome, results)
    assert roof_calls == [len(loaded.measurements)]
    assert "of its measured roof" in capsys.readouterr().out


def test_an_export_takes_its_roofs_from_an_analysis(roof_calls):
    loaded = fake.cpu_run()
    assert export.text(loaded, "csv")
    assert roof_calls == [len(loaded.measurements)]


def test_roofs_but_not_shares_count_replaced_rows():
    """A peak of 200 GFLOP/s that was measured again with 100: a rung of 10 GFLOP/s reaches 10 % of the newer one."""
    flops = 10**9
    peaks = [fake.row("peak/numba/fma", Peak("float32", flops), flops / rate, threads=1) for rate in (200e9, 100e9)]
    product = fake.square(64)
    rung = fake.row("matmul/numba/packed", product, product.flops / 10e9, threads=1)
    loaded = fake.Loaded((fake.run(fake.CPU_MACHINE),), (peaks[1], rung), 0, (), (peaks[0],))
    results = Analysis.from_loaded(loaded)
    (roof,) = [roof for roof in results.roofs if roof.kind == "compute"]
    (ladder,) = results.ladders["matmul"]
    assert roof.rate.value == pytest.approx(200e9)
    assert ladder.steps[0].peak_share.value == pytest.approx(0.1)
