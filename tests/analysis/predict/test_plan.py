"""Flags of predict as fields of a record."""

import pytest

from analysis.predict.__main__ import parser as predict_parser
from analysis.predict.plan import CheckPlan, PredictPlan, plan_of
from workloads import options
from workloads.records import Settings


def test_predict_is_one_of_two_plans(stored_run):
    words = (
        "--model lenet cifar10-cnn --batch 1:4 --samples 100 --epochs 3 --dtype uint8 --device gpu --save new.ndjson"
    )
    words += f" --switch tf32=off steps_per_execution=4 --profile {stored_run}"
    plan = plan_of(predict_parser().parse_args(words.split()))
    assert isinstance(plan, PredictPlan)
    assert (plan.models, plan.batches, plan.samples) == (("lenet", "cifar10-cnn"), (1, 2, 4), (100,))
    assert (plan.epochs, plan.dtype, plan.save) == (3, "uint8", "new.ndjson")
    switches = {"data": "synthetic", "tf32": "off", "steps_per_execution": "4"}
    assert plan.settings == (Settings("gpu:0", switches=switches),)
    assert plan.profile.machine.key == "nvidia-h200"
    assert plan_of(
        predict_parser().parse_args(["--check", "reports/nvidia-h200/predictions-2026-11-21.ndjson", stored_run])
    ) == CheckPlan(file="reports/nvidia-h200/predictions-2026-11-21.ndjson", runs=(stored_run,))


@pytest.mark.parametrize(
    ("switch", "right"),
    [("jit=on", "jit_compile=on"), ("jit_compile=onn", "jit_compile=on"), ("colour=red", "")],
)
def test_an_unknown_switch_of_predict_is_corrected(stored_run, switch, right):
    flags = predict_parser().parse_args(["--model", "lenet", "--profile", stored_run, "--switch", switch])
    with pytest.raises(options.Usage) as stop:
        plan_of(flags)
    assert (stop.value.wrong, stop.value.right) == (switch, right)
