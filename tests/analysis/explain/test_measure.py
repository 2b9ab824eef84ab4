"""What is measured for an explanation, within its budget."""

import msgspec
import pytest
from explain_commands import explained, said, written
from fake_measurements import CPU_MACHINE
from fake_predictions import sources

from analysis.explain import measure, profiles
from analysis.explain.measure import KnownCosts
from analysis.explain.measuring import Failure
from analysis.explain.request import Request
from analysis.explain.sides import Side
from analysis.explain.sources import Sources
from analysis.predict import profile
from analysis.stats import NOTHING, exact
from analysis.training.costs import TrainingCost
from kernels.problems import Training
from workloads import options
from workloads.machine import facts

pytestmark = pytest.mark.usefixtures("laws")


def test_what_is_measured_first_is_the_real_step(tmp_path):
    e = explained()
    parts = measure.parts(KnownCosts.from_explanation(e), e.request, sources(), ["cpu", "gpu:0"])
    assert [part.name for part in parts] == ["its own step on the CPU", "its own step on the GPU"]
    bare = Sources(cpu=profile.Profile((), CPU_MACHINE), gpu=None)
    names = ["its own step on the CPU", "dispatch on the CPU"]
    parts = measure.parts(KnownCosts(), e.request, bare, ["cpu"])
    assert [part.name for part in parts] == names
    assert parts[0].command[:3] == ("workloads.training", "--model", "cifar10-cnn")
    parts = measure.parts(KnownCosts(), e.request, bare, ["cpu"], everything=True)
    names += ["its convolutions on the CPU", "its dense layers on the CPU", "passes over memory on the CPU"]
    assert [part.name for part in parts] == names and {part.process for part in parts} == {"cpu"}
    on_gpu = measure.parts(KnownCosts(), e.request, bare, ["gpu:0"])
    assert [part.process for part in on_gpu] == ["training on gpu:0", *["gpu:0"] * 5]
    assert on_gpu[-2].name == "copies to the GPU"


@pytest.mark.parametrize(
    ("batch", "samples", "measured"),
    [
        (32, 100, 100),  # never more than there are
        (32, 3200, 2048),
        (32, 50_000, 2048 + 16),  # 1,562 whole batches and one of 16, for which XLA compiles once more
        (256, 50_000, 64 * 256 + 80),
        (4, 50_000, 2048),
    ],
)
def test_a_step_is_measured_with_its_smaller_batch(batch, samples, measured):
    """64 steps or 2,048 samples, whichever are more."""
    request = Request(Training("cifar10-cnn", batch, samples, 10))
    words = measure.step(request, "cpu").command
    told = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    assert (told["--batch"], told["--samples"], told["--epochs"]) == (str(batch), str(measured), "1")


def test_the_estimate_is_of_what_was_just_timed():
    """Starting took 20 s. Predicted: 3 s of compilation and steps of 1.2 s, 17 of them; without it 8 layers of 80 a start."""
    request = msgspec.structs.replace(explained().request, starting_s=20.0)
    cost = TrainingCost(dataset_setup=NOTHING, epoch=NOTHING, step=exact(1.2), compile=exact(3.0), source="predicted")
    side = Side(device="cpu", training=request.training, cost=cost)
    part = measure.step(request, "cpu", side)
    assert part.seconds == pytest.approx(3 + 17 * 1.2)
    layers = len(request.model.layers)
    part = measure.step(request, "cpu")
    assert part.seconds == pytest.approx(20 * layers / 80 + 12)
    assert measure.seconds([part, part], request) == pytest.approx(20 + 2 * part.seconds)
    assert measure.seconds([part], explained().request) == pytest.approx(10 + part.seconds)


def test_what_was_measured_before_a_signal_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(profiles, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(facts, "describe", lambda: CPU_MACHINE)

    def stopped(parts, folder, budget, say):
        written(folder.with_name(f"{folder.name}-1"), CPU_MACHINE)
        raise options.Terminated

    monkeypatch.setattr(measure, "run", stopped)
    stored = written(tmp_path / "stored")
    asked = "--model", "lenet", "--measure", "--gpu-profile", stored
    code, _, err = said(capsys, *asked)
    assert code == options.TERMINATED and err[-1].startswith("stopped with rows that the next answer takes: ")
    assert err[-1].endswith("-1/launch.jsonl")
    noisy = Failure(part="its own step on the CPU", reason="too noisy to tell")
    broken = Failure(part="its own step on the CPU", reason="no memory")
    slow = Failure(part="its convolutions on the CPU", reason="the time was spent", budget_s=300)
    typed = f"analysis.explain --model lenet --gpu-profile {stored} --measure"
    for failures, shown, retry in (
        ([], [noisy], [f"{typed} --wait-quiet"]),
        ([broken], [broken], []),
        ([slow, broken], [slow, broken], [f"{typed} --budget 300"]),
    ):
        monkeypatch.setattr(measure, "run", lambda *given, failures=tuple(failures): [*failures])
        _, *reasons = said(capsys, *asked)[2]
        hints = reasons[len(shown) :]
        assert reasons[: len(shown)] == [f"not measured: {failure.part}: {failure.reason}" for failure in shown]
        assert [line.partition(" -m ")[2] for line in hints] == retry
