"""The two formulas of a step, by hand."""

import math

import pytest
from msgspec.structs import replace

from analysis.predict.step_time import Calibration, UncalibratedStep, cpu_step, gpu_step, stacked, step_seconds

CPU = UncalibratedStep(
    on_gpu=False,
    dispatch=1.0,
    launches=2.0,
    copy_calls=0.0,
    copied_bytes=0.0,
    work=4.0,
    critical_path=3.0,
    busy=1.0,
    input_pipeline=0.0,
    host_waits=False,
)
GPU = replace(CPU, on_gpu=True, copy_calls=0.5, copied_bytes=0.25, input_pipeline=3.0, host_waits=True)
UNFITTED = Calibration()


@pytest.mark.parametrize(
    ("parts", "fitted", "seconds"),
    [
        (CPU, UNFITTED, 1 + 2 + 3),  # the critical path
        (replace(CPU, busy=5.5), UNFITTED, 1 + 5.5),  # cores or memory are busy for longer
        (replace(CPU, busy=9.0), UNFITTED, 1 + 2 + 4),  # never more than one after the other
        (replace(CPU, critical_path=math.inf), UNFITTED, 1 + 2 + 4),
        (CPU, Calibration(dispatch=2.0, launches=0.5, work=1.5), 2 + 1 + 4.5),
    ],
)
def test_operations_on_a_cpu_follow_the_dispatch(parts, fitted, seconds):
    assert cpu_step(parts, fitted) == step_seconds(parts, fitted) == seconds


@pytest.mark.parametrize(
    ("parts", "fitted", "seconds"),
    [
        (GPU, UNFITTED, 0.25 + 3 + 4),  # kernels take longer than the host's 3.5
        (replace(GPU, work=1.0), UNFITTED, 0.25 + 3 + 3.5),
        (replace(GPU, host_waits=False), UNFITTED, 0.25 + 4),
        (replace(GPU, host_waits=False, input_pipeline=9.0), UNFITTED, 9.0),  # one batch a step
        (GPU, Calibration(dispatch=2.0, launches=2.0, work=0.5), 0.25 + 3 + 2 + 0.5 + 4),
    ],
)
def test_a_gpu_works_while_the_host_dispatches(parts, fitted, seconds):
    assert gpu_step(parts, fitted) == step_seconds(parts, fitted) == seconds


def test_several_steps_are_computed_at_once():
    steps = stacked([GPU, replace(GPU, host_waits=False)])
    assert step_seconds(steps, UNFITTED).tolist() == [7.25, 4.25]
