"""The measurement that would narrow a predicted time most, on predictions whose intervals are known."""

import made_profile
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, tensor_peaks
from fake_predictions import FunctionPredictor
from msgspec.structs import replace

from analysis.explain import explanation, findings, narrowing
from analysis.explain.narrowing import WHOLE_STEP
from analysis.explain.request import GPU, Request
from analysis.explain.sources import Sources
from analysis.predict import prediction, profile
from analysis.predict.prediction import Prediction
from analysis.predict.step_work import RoughWork
from analysis.stats import Estimate, exact
from analysis.text.explanation.sentence import sentence
from kernels.problems import Conv, Stream, Training
from workloads.records import Settings

MS = 1e-3
TEN_STEPS = Training("cifar10-cnn", 32, 320, 2)  # an epoch, of two
PARTS = {
    "dispatch": Estimate(1 * MS, 1 * MS, 2 * MS),
    "conv": Estimate(4 * MS, 2 * MS, 9 * MS),
    "element-wise": Estimate(1 * MS, 0.5 * MS, 1.5 * MS),
}
STEP = Estimate(6 * MS, 3 * MS, 15 * MS)


def predicted(training, settings, of=None, network=None, *, kernel="") -> Prediction:
    """On the CPU a step of 6 ms, mostly convolutions; on the GPU one of 6.05 ms whose interval is as wide. All else is known."""
    cpu = settings.device == "cpu"
    return Prediction(
        training=training,
        settings=settings,
        parts=PARTS,
        step_s=STEP if cpu else STEP * 1.01,
        epoch_s=exact(0.0),
        fit_s=exact(0.0),
        compile_s=exact(1 * MS),
        start_s=Estimate(2 * MS, 2 * MS, 3 * MS),
        execution="op by op",
        partial=(),
        profile="",
    )


def explained(training=TEN_STEPS, sources=None, predict=predicted):
    here = profile.Profile((), GPU_MACHINE)
    return explanation.explain(
        Request(training), sources or Sources(cpu=here, gpu=here, predictor=FunctionPredictor(predict))
    )


def with_step(step_s: Estimate, **fields):
    """A predictor of that step on the GPU, and of the usual one on the CPU."""

    def predict(training, settings, *_, **__):
        one = predicted(training, settings)
        return replace(one, step_s=step_s, **fields) if settings.on_gpu else one

    return predict


def widths_of(made: Prediction) -> dict[str, float]:
    one = explained(predict=lambda *_, **__: made)
    return narrowing.part_widths(one.sides[0], made)


def test_parts_are_as_wide_as_in_steps():
    """20 steps: 20 x (2 - 1), 20 x (9 - 2) and 20 x (1.5 - 0.5) ms; start-up 1 ms once. The parts' errors add as squares, to
    2.06 ms below and 5.12 ms above: of a step's interval of 12 ms no part tells 4.8."""
    widths = widths_of(predicted(TEN_STEPS, Settings("cpu")))
    assert widths["dispatch"] == pytest.approx(20 * MS)
    assert widths["conv"] == pytest.approx(140 * MS)
    assert widths["element-wise"] == pytest.approx(20 * MS)
    assert widths["start-up"] == pytest.approx(1 * MS)
    by_rows = (0 + 4 + 0.25) ** 0.5 + (1 + 25 + 0.25) ** 0.5
    assert widths[WHOLE_STEP] == pytest.approx(20 * (12 - by_rows) * MS)


def test_unmeasured_work_is_within_a_factor_of_four():
    """80 % of 5 ms of work: 4 ms x (4 - 1 / 4), 20 times."""
    rough = RoughWork(share=0.8, kinds=("FFT",))
    widths = widths_of(replace(predicted(TEN_STEPS, Settings("cpu")), rough=rough))
    assert widths[WHOLE_STEP] == pytest.approx(20 * 4 * 3.75 * MS)


def test_the_widest_part_is_measured_next():
    """63 to 304 ms on the CPU; 23 to 323 ms on the GPU, whose step has an interval of 15 ms of which its rows tell 7.2."""
    one = explained(predict=with_step(Estimate(6.1 * MS, 1 * MS, 16 * MS)))
    found = narrowing.narrowest(one)
    assert (found.device, found.widest) == (GPU, WHOLE_STEP)
    assert found.measurement.command[:3] == ("workloads.training", "--model", "cifar10-cnn")
    assert found.factor == pytest.approx((320 + 3 + 1) / (20 + 2 + 1), rel=0.01)
    narrow = explained(predict=with_step(Estimate(6.1 * MS, 4 * MS, 8 * MS)))
    found = narrowing.narrowest(narrow)
    assert (found.device, found.widest, found.measurement.command[0]) == ("cpu", "conv", "workloads.conv")
    (finding,) = findings.widest_part(narrow)
    assert (finding.subject, finding.numbers["part"]) == ("cpu", "conv")
    assert finding.numbers["command"].startswith("python -m workloads.conv --model cifar10-cnn --batch 32 ")
    assert sentence(finding).startswith("Most uncertain on the CPU: convolutions; this measures it: ")


def test_a_sure_or_remote_answer_needs_no_narrowing():
    assert narrowing.narrowest(explained(predict=with_step(exact(0.1 * MS)))) is None  # the GPU surely wins
    narrow = replace(predicted(TEN_STEPS, Settings("cpu")), step_s=Estimate(6 * MS, 4 * MS, 8 * MS))
    assert narrowing.narrowest(explained(predict=lambda *_, **__: narrow)) is None

    def predict(training, settings, *_, **__):
        one = predicted(training, settings)
        return one if settings.on_gpu else replace(one, step_s=exact(6 * MS))

    here = profile.Profile((), CPU_MACHINE)
    stored = Sources(cpu=here, gpu=profile.Profile((), GPU_MACHINE), predictor=FunctionPredictor(predict))
    assert narrowing.narrowest(explained(sources=stored)) is None  # the GPU's range is wide, and no GPU is here
    assert narrowing.narrowest(explained(predict=predict)).device == GPU


def test_a_users_model_has_its_step_measured():
    one = explained(predict=with_step(Estimate(6.1 * MS, 4 * MS, 8 * MS)))
    request = replace(one.request, training=replace(TEN_STEPS, model="train.py:build"), network=one.request.model)
    own = explanation.explain(request, one.sources)
    found = narrowing.narrowest(own)
    assert (found.widest, found.measurement.command[:3]) == (
        "conv",
        ("workloads.training", "--model", "train.py:build"),
    )


def test_the_named_rows_narrow_it_most():
    """Of convolutions there are rows at a batch of 8 alone, of passes those of at most 4 MiB: a batch of 128 is far from both."""
    everything = [*made_profile.everything(), *tensor_peaks()]
    named = [m for m in everything if m.device == "cpu" and isinstance(m.problem, Conv) and m.problem.n > 8]
    others = [m for m in everything if m.device == "cpu" and isinstance(m.problem, Stream) and m.problem.nbytes > 2**22]
    few = [m for m in everything if m not in named and m not in others]
    bare = profile.Profile(few, GPU_MACHINE)
    one = explained(Training("cifar10-cnn", 128, 1280, 20), Sources(cpu=bare, gpu=bare))
    widths = narrowing.part_widths(one.sides[0], one.cpu)
    assert max(widths, key=widths.get) == "conv"
    left = []
    for more in ([], others, named):
        step = prediction.predict(
            one.request.training, Settings("cpu"), profile.Profile([*few, *more], GPU_MACHINE)
        ).step_s
        left.append(step.high - step.low)
    before, by_others, by_named = left
    assert by_named < 0.5 * before
    assert by_named < by_others
