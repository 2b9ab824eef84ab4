"""What trainings and inference say last: how much of a plan is here, and errors with a command that works."""

import pathlib

import pytest
from fake_measurements import CPU_MACHINE, row

from kernels.problems import Inference, Training
from workloads import ends, inference, options, training
from workloads.harness import sweep
from workloads.records import SCHEMA, Run

RUN = Run(SCHEMA, CPU_MACHINE, {}, "python -m workloads.training", 1, "a", "b", "2026-01-01T00:00:00Z")


def outcome(*rows, left=0, stopped="", workload="training"):
    return sweep.Outcome(RUN, pathlib.Path(f"{workload}.jsonl"), list(rows), stopped, left)


def trained(model="cifar10-cnn", status="failed", reason="no luck", samples=320, device="cpu"):
    seconds = 0.1 if status == "ok" else None
    return row("training/keras/fit", Training(model, 32, samples), seconds, device=device, status=status, reason=reason)


def test_a_model_that_failed_is_one_error_however_many_rows_it_had(capsys):
    rows = [
        trained("mine:build", reason="mine:build() gives an int"),
        trained("mine:build", samples=640),
        trained("lenet", "ok"),
        trained("lenet", device="gpu:0", reason="TensorFlow finds no GPU"),
    ]
    ends.said(outcome(*rows), "training", training.EXAMPLE)
    other, doctor, error, tip = capsys.readouterr().err.splitlines()
    assert error == "error: mine:build on cpu: mine:build() gives an int"
    assert tip == f"  try: {options.typed(training.EXAMPLE)}"
    assert other == "error: lenet on gpu:0: TensorFlow finds no GPU"
    assert doctor.endswith("-m workloads.doctor")
    ends.said(outcome(trained(status="ok")), "training", training.EXAMPLE)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("m", "names", "tip"),
    [
        (
            trained(status="skipped", reason="needs 526 GiB of host memory, 20 GiB are free", samples=10**8),
            [],
            "python -m workloads.training --model cifar10-cnn --samples 1000",
        ),
        (
            trained(status="skipped", reason="no GPU here: no driver; --device cpu runs all of it on the CPU"),
            ["seeds", "together"],
            "python -m workloads.training --study together --device cpu",
        ),
        (
            trained(status="skipped", reason="torch is not installed; install it with: pip install torch"),
            [],
            "pip install torch",
        ),
        (trained(status="skipped", reason="only the targets of a regression can be float64"), [], training.EXAMPLE),
    ],
)
def test_where_all_was_skipped_the_reason_ends_the_command_with_one_that_works(m, names, tip):
    with pytest.raises(options.Missing, match="nothing could be measured: ") as nothing:
        ends.said(outcome(m), "training", training.EXAMPLE, names)
    assert (m.reason in str(nothing.value), nothing.value.tip, nothing.value.code) == (True, tip, 3)
    ends.said(outcome(m, trained(status="ok")), "training", training.EXAMPLE, names)


def test_an_answer_that_does_not_fit_is_tried_with_one_sample():
    reason = "needs 9e3 GiB of host memory"
    big = row("inference/keras/call", Inference("lenet", 10**9), None, status="skipped", reason=reason)
    with pytest.raises(options.Missing) as nothing:
        ends.said(outcome(big, workload="inference"), "inference", inference.EXAMPLE)
    assert nothing.value.tip == "python -m workloads.inference --model lenet --batch 1"


def test_a_plan_that_was_stopped_says_how_much_of_it_is_here():
    expected = ["2 of 5 rows are here, and what follows is said of these."]
    assert ends.part(outcome(trained(), trained(), left=3, stopped="stop-after")) == expected
    assert ends.part(outcome(trained())) == []
