"""The rows that stand for a user's own training: those of unchanged files, and the rate of its data."""

import pytest
from fake_predictions import sources
from fake_trainings import trained
from msgspec.structs import replace

from analysis.explain import explanation, findings, sides
from analysis.explain.request import Request
from analysis.stats import NOTHING, exact
from analysis.text.explanation.sentence import sentence
from analysis.training.break_even import Trained
from analysis.training.costs import TrainingCost
from kernels.networks import find
from kernels.networks.operations import TracedStep
from kernels.problems import Training

T = Training("cifar10-cnn", 32, 3200, 10)
STEP_S = 5e-3


def row_of(**fields):
    """A row of T on the CPU: 0.1 s of setup, 0.05 s an epoch, STEP_S a step."""
    row = trained("cifar10-cnn", 32, 3200, (0.1, 0.05, STEP_S))
    return replace(row, **{name: getattr(row, name) | added for name, added in fields.items()})


@pytest.mark.parametrize(
    ("notes", "is_taken"),
    [({"source": "of these files"}, True), ({"source": "of others"}, False), ({}, True)],
)
def test_rows_of_changed_files_are_left_out(notes, is_taken):
    step = TracedStep(model="mine.py:build", batch=32, operations=(), source="of these files")
    request = Request(T, network=replace(find("cifar10-cnn"), traced=step))
    rows = sides.measured_rows(request, sources(row_of(notes=notes)))
    assert ("cpu" in rows) == is_taken


@pytest.mark.parametrize(
    ("alone_s", "gpu_step_s", "waiting", "words"),
    [
        # The GPU's step is predicted: 2 ms of dispatch, 0.1 ms of copies, 0.064 ms of work.
        (1e-3, 2.164e-3, (), "Your data alone give 32,000 samples/s."),
        (3.5e-3, 3.5e-3, ("gpu:0",), "Your data alone give 9,140 samples/s: the GPU waits for them."),
        (4.5e-3, 4.5e-3, ("cpu", "gpu:0"), "Your data alone give 7,110 samples/s: the CPU and the GPU wait for them."),
    ],
)
def test_no_predicted_step_is_faster_than_the_data(alone_s, gpu_step_s, waiting, words):
    rows = sources(row_of(values={"input_step_s": alone_s}))
    explained = explanation.explain(Request(T), rows)
    cpu, gpu = explained.both
    assert (cpu.cost.step.value, gpu.cost.step.value) == (pytest.approx(STEP_S), pytest.approx(gpu_step_s))
    (finding,) = findings.data_alone(explained)
    assert finding.numbers == {"samples_per_s": pytest.approx(32 / alone_s), "waiting": waiting}
    assert sentence(finding) == words


def test_the_data_rate_is_the_fastest_rows():
    rows = {}
    for device, alone_s in (("cpu", 5e-3), ("gpu:0", 3e-3)):
        cost = TrainingCost(dataset_setup=NOTHING, epoch=NOTHING, step=exact(STEP_S))
        rows[device] = Trained(row=row_of(values={"input_step_s": alone_s}), cost=cost)
    assert sides.data_alone_s(rows) == 3e-3


def test_untimed_data_are_not_mentioned():
    assert findings.data_alone(explanation.explain(Request(T), sources(row_of()))) == []
