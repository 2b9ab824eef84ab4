"""What the flags of commands on result files become: each flag is a field of a frozen record."""

import argparse

import pytest
from fake_measurements import gpu_run, write

from analysis import export
from analysis.export import ExportPlan
from analysis.predict.__main__ import parser as predict_parser
from analysis.predict.plan import CheckPlan, PredictPlan, plan_of
from analysis.report.plan import ReportPlan, RooflinePlan
from workloads import options
from workloads.records import Settings


@pytest.fixture
def run(tmp_path) -> str:
    """A folder with a run of a machine with a GPU."""
    loaded = gpu_run(sizes=(64,))
    (tmp_path / "run").mkdir()
    write(tmp_path / "run" / "matmul.jsonl", loaded.runs[0], loaded.measurements)
    return str(tmp_path / "run")


def test_export(run, tmp_path):
    flags = export.parser().parse_args([run, "--to", "csv", "-o", "rows.csv"])
    assert ExportPlan.from_flags(flags) == ExportPlan(runs=(run,), to="csv", output="rows.csv")
    folder = export.parser().parse_args([run, "--to", "bencher", "-o", str(tmp_path)])
    with pytest.raises(options.Usage) as stop:
        ExportPlan.from_flags(folder)
    assert stop.value.right == f"-o {tmp_path}/rows.json"


def test_report_and_roofline(run, tmp_path):
    page = tmp_path / "page.md"
    flags = argparse.Namespace(runs=[run], out="out", open=True, readme=str(page))
    with pytest.raises(options.Usage) as stop:
        ReportPlan.from_flags(flags)
    assert stop.value.wrong == "--readme"
    page.write_text(f"<!-- answer: python -m analysis.report {run} -->\n<!-- /answer -->\n")
    assert ReportPlan.from_flags(flags) == ReportPlan(runs=(run,), out="out", opens=True, readme=page)
    flags = argparse.Namespace(runs=[run], out=None)
    assert RooflinePlan.from_flags(flags) == RooflinePlan(runs=(run,), out="")


def test_predict_is_one_of_two_plans(run):
    words = (
        "--model lenet cifar10-cnn --batch 1:4 --samples 100 --epochs 3 --dtype uint8 --device gpu --save new.ndjson"
    )
    words += f" --switch tf32=off steps_per_execution=4 --profile {run}"
    plan = plan_of(predict_parser().parse_args(words.split()))
    assert isinstance(plan, PredictPlan)
    assert (plan.models, plan.batches, plan.samples) == (("lenet", "cifar10-cnn"), (1, 2, 4), (100,))
    assert (plan.epochs, plan.dtype, plan.save) == (3, "uint8", "new.ndjson")
    switches = {"data": "synthetic", "tf32": "off", "steps_per_execution": "4"}
    assert plan.settings == (Settings("gpu:0", switches=switches),)
    assert plan.profile.machine.key == "nvidia-h200"
    assert plan_of(
        predict_parser().parse_args(["--check", "reports/nvidia-h200/predictions-2026-11-21.ndjson", run])
    ) == CheckPlan(file="reports/nvidia-h200/predictions-2026-11-21.ndjson", runs=(run,))


@pytest.mark.parametrize(
    ("switch", "right"),
    [("jit=on", "jit_compile=on"), ("jit_compile=onn", "jit_compile=on"), ("colour=red", "")],
)
def test_an_unknown_switch_of_predict_is_corrected(run, switch, right):
    flags = predict_parser().parse_args(["--model", "lenet", "--profile", run, "--switch", switch])
    with pytest.raises(options.Usage) as stop:
        plan_of(flags)
    assert (stop.value.wrong, stop.value.right) == (switch, right)
