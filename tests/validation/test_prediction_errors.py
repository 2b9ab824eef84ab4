"""The error table's arithmetic, on trainings whose steps are known; saved predictions; crossovers."""

import math
from types import SimpleNamespace

import made_profile
import pytest
from fake_measurements import GPU_MACHINE, by_later_epochs, tensor_peaks
from made_profile import training
from msgspec.structs import replace

from analysis import table
from analysis.predict import calibration, prediction, profile
from analysis.predict.saved_predictions import CheckedPrediction
from analysis.predict.step_time import Calibration
from analysis.stats import Estimate
from analysis.text import checked_predictions
from kernels.problems import Matmul, Training
from tests.validation import error_tables, predicted_crossovers, prediction_errors
from workloads.records import Settings

CPU, GPU = Settings("cpu"), Settings("gpu:0")
PLAIN = Calibration()
WIDE = [f"mlp-784-{w}x2-10" for w in (32, 128, 512, 2048)]


@pytest.fixture(scope="module")
def base():
    return profile.Profile([*made_profile.everything(), *tensor_peaks()], GPU_MACHINE)


def measured(base, steps, device="cpu", **fields):
    """The profile with trainings of models (name, batch) whose steps took `steps` times as long as a plain prediction says."""
    rows = []
    for (model, batch), times in steps.items():
        made = prediction.predict(Training(model, batch, 2048), Settings(device), base, fitted=PLAIN)
        rows.append(training(model, batch, made.step_s.value * times, device, **fields))
    return profile.Profile([*base.measurements, *rows], GPU_MACHINE)


def uncalibrated(of):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "_with_factors", lambda trainings: Calibration())
        return prediction_errors.leave_one_out(of)


def test_errors_are_split_by_what_bounds_the_step(base):
    of = measured(base, {("mlp-784-100x2-10", 8): 1.0, ("fashion-mlp", 128): 1 / 1.2, ("cifar10-cnn", 128): 1 / 1.1})
    cases = {c.model: c for c in uncalibrated(of)}
    assert cases["mlp-784-100x2-10"].error == pytest.approx(0, abs=1e-6)
    assert cases["fashion-mlp"].error == pytest.approx(0.2) and cases["cifar10-cnn"].error == pytest.approx(0.1)
    expected = {"mlp-784-100x2-10": "overhead-bound", "fashion-mlp": "work-bound", "cifar10-cnn": "work-bound"}
    assert {m: c.bound for m, c in cases.items()} == expected
    overhead, work, every = prediction_errors.summaries(cases.values())
    assert (overhead.steps, work.steps, every.steps, every.models) == (1, 2, 3, 3)
    assert work.median == pytest.approx(0.15)
    assert every.mean == pytest.approx(0.1)


def test_strictly_unseen_layers_exclude_any_batch(base):
    """Of S0's layers at any batch no row is left, a product of another shape is; fashion-mlp-5 is fashion-mlp."""
    shapes = prediction_errors.layer_shapes("cifar10-cnn")
    dense, other = Matmul(77, 512, 3136), Matmul(77, 513, 3136)
    assert prediction_errors.has_a_shape_of(dense, shapes) and not prediction_errors.has_a_shape_of(other, shapes)
    conv = next(p for p in prediction_errors.layer_products("cifar10-cnn", 3) if p.op == "conv")
    assert prediction_errors.has_a_shape_of(replace(conv, n=999, layout="NCHW"), shapes)
    assert not prediction_errors.has_a_shape_of(replace(conv, r=5), shapes)
    rows = {("fashion-mlp", 32): 1.0, ("lenet", 32): 1.0, ("mnist-cnn", 32): 1.0}
    of = measured(base, rows)
    far = [training("fashion-mlp-5", 32, 0.5), *(training("fashion-mlp-5", b, 0.5) for b in (64, 128))]
    twins = profile.Profile([*of.measurements, *far], GPU_MACHINE)
    (ours,) = (c for c in prediction_errors.leave_one_out(of) if c.model == "fashion-mlp")
    (loose,) = (c for c in prediction_errors.leave_one_out(twins) if c.model == "fashion-mlp")
    assert loose.predicted.step_s.value > 1.05 * ours.predicted.step_s.value
    (alone,) = prediction_errors.strictly([loose], twins)
    assert (
        alone.predicted.step_s == prediction_errors.strictly([ours], of)[0].predicted.step_s
        and alone.bound == loose.bound
    )


def test_unseen_trainings_came_after_the_last_rule(base):
    old, new, again = "2026-11-21T00:00:00Z", "2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z"
    at = (("fashion-mlp", old), ("fashion-mlp", again), ("lenet", new))
    replaced, *rows = (replace(training(model, 32, 1e-3), at=when) for model, when in at)
    of = profile.Profile([*base.measurements, *rows], GPU_MACHINE, [replaced])
    cases = prediction_errors.leave_one_out(of)
    assert [c.model for c in prediction_errors.measured_since_rules_changed(cases, of)] == ["lenet"]
    noted = replace(rows[1], notes={"first_measured": old})  # its first row is in no file any more
    assert (
        prediction_errors.measured_since_rules_changed(
            cases, profile.Profile([*base.measurements, rows[0], noted], GPU_MACHINE, [replaced])
        )
        == []
    )
    (said,) = error_tables.late(cases, of)
    assert said.startswith("CPU, first measured after ") and said.endswith(" of 1 step.")


def test_the_simpler_predictions_know_the_other_models_alone(base):
    """Steps of 1 ms + 1 ms for 100 MFLOP: the line finds them from the others; the constant is the others' middle."""
    of = profile.Profile([*base.measurements, *(training(m, 32, 1e-3 + _flops(m) / 1e11) for m in WIDE)], GPU_MACHINE)
    for case in prediction_errors.leave_one_out(of):
        model = case.model
        others = sorted(1e-3 + _flops(m) / 1e11 for m in WIDE if m != model)
        assert case.baselines[prediction_errors.CONSTANT] == pytest.approx(others[1])
        assert case.baselines[prediction_errors.LINE] == pytest.approx(case.measured.step.value, rel=0.05)
        assert case.baselines[prediction_errors.BYTES] == pytest.approx(
            case.baselines[prediction_errors.LINE]
        )  # one input, one batch
    (one,) = prediction_errors.leave_one_out(
        profile.Profile([*base.measurements, training(WIDE[0], 32, 1e-3)], GPU_MACHINE)
    )
    assert one.baselines == {}


def _flops(model):
    from kernels import networks

    return 32 * networks.training_flops(networks.find(model))


def test_the_table_says_what_is_reached(base):
    of = measured(base, {("mlp-784-100x2-10", 8): 1 / 1.05, ("fashion-mlp", 128): 1 / 1.4})
    cases = uncalibrated(of)
    head, _, overhead, *_ = error_tables.errors(cases, [c for c in cases if c.bound != "overhead-bound"]).md()
    assert head.startswith("| device | steps | models | trainings | median, mean error | strictly |")
    assert overhead.startswith("| CPU | overhead-bound | 1 | 1 | 5.0 %, 5.0 % | - |")


def test_noisy_and_foreign_steps_are_left_out(base):
    odd = training("fashion-mlp", 32, 1e-3)
    noisy = by_later_epochs(odd, (made_profile.FIT, made_profile.EPOCH, 1e-3), noise=0.9)
    left_out = [
        noisy,
        replace(odd, fits=()),
        replace(odd, settings=Settings("cpu", 4)),
        replace(odd, settings=Settings("cpu", switches={"keras_backend": "jax"})),
        replace(odd, settings=Settings("cpu", switches={"at_once": "2"})),
    ]
    for m in left_out:
        assert prediction_errors.leave_one_out(profile.Profile([*base.measurements, m], GPU_MACHINE)) == []
    of = profile.Profile([*base.measurements, odd, *left_out], GPU_MACHINE)
    assert len(prediction_errors.leave_one_out(of)) == 1


def test_a_step_known_less_well_counts_in_full(base):
    of = measured(base, {("fashion-mlp", 128): 1 / 1.1, ("cifar10-cnn", 128): 1 / 1.3})
    cases = [replace(c, measured=replace(c.measured, step=replace(c.measured.step, low=0.0))) for c in uncalibrated(of)]
    *_, every = prediction_errors.summaries(cases)
    assert not any(c.measured.is_fittable for c in cases) and (every.steps, every.mean) == (2, pytest.approx(0.2))
    assert error_tables.counts(cases, of).startswith("All 2 steps of 2 trainings count in full. 2 are ")


def test_too_wide_a_step_is_in_no_calibration(base):
    """Epochs of 16 and of 8 steps of 1 ms and no more that are 10 % shorter and longer: their difference is known to 50 %."""
    wide = by_later_epochs(training("fashion-mlp", 128, 1e-3), (0.0, 0.0, 1e-3), noise=0.1)
    sure = measured(base, {("cifar10-cnn", 128): 1.0, ("lenet", 128): 1.0})
    of = profile.Profile([*sure.measurements, wide], GPU_MACHINE)
    assert len(calibration.timed_trainings(of)) == 3
    assert set(calibration.calibration(of, CPU).models) == {"cifar10-cnn", "lenet"}


def test_a_predicted_crossover_has_its_regret(base):
    """CPU steps half as long as predicted: the GPU wins later than was predicted, and between both it is a loss to follow."""
    names = [f"mlp-784-{w}x2-10" for w in (16, 64, 256, 1024, 4096)]
    rows = []
    for name in names:
        for device, times in (("cpu", 0.5), ("gpu:0", 1.0)):
            step = prediction.predict(Training(name, 32, 2048), Settings(device), base, fitted=PLAIN).step_s.value
            rows.append(training(name, 32, step * times, device, epoch=0.0))
    of = profile.Profile([*base.measurements, *rows], GPU_MACHINE)
    by_step = next(b for b in predicted_crossovers.comparisons(of) if (b.varies, b.by) == ("width", "a step"))
    assert [p.n for p in by_step.measured.points] == [16, 64, 256, 1024, 4096]
    for point, said, regret in zip(by_step.measured.points, by_step.predicted.points, by_step.regrets, strict=True):
        right = (point.ratio.value > 1) == (said.ratio.value > 1)
        assert (regret == 0) == right
        if not right:
            assert regret == pytest.approx(max(point.ratio.value, 1 / point.ratio.value) - 1, rel=1e-6)
    assert "| mlp-784-Wx2-10 | width | a step | GPU from " in error_tables.crossovers([by_step]).md()[2]


def comparison(measured, predicted, regrets=()) -> predicted_crossovers.Comparison:
    """A crossover of steps along the batch."""
    return predicted_crossovers.Comparison(
        varies="batch", by="a step", measured=measured, predicted=predicted, regrets=regrets
    )


def test_a_one_sided_crossing_is_infinitely_wrong():
    def answer(*ratios):
        from analysis.crossover import sign_changes
        from analysis.crossover.answer import CrossoverPoint
        from analysis.crossover.fastest_row import FastestRow
        from analysis.crossover.forms import Form

        def side(device, seconds):
            estimate = Estimate(seconds, seconds, seconds)
            return FastestRow(kernel="k", device=device, threads=None, math="float32", seconds=estimate)

        gpu = side("gpu:0", 1.0)
        points = [CrossoverPoint(n=2**i, cpu=side("cpu", ratio), gpu=gpu) for i, ratio in enumerate(ratios)]
        return sign_changes.classify("float32", Form("a step"), points)

    def named(a):
        from analysis.crossover.families import Family

        return replace(a, family=Family("training", "batch", ("batch",), (("model", "m"),)))

    up, always = answer(0.5, 0.5, 2.0), answer(2.0, 2.0, 2.0)
    assert comparison(up, up).error == pytest.approx(0)
    assert math.isinf(comparison(up, always).error)
    assert comparison(always, always).error is None
    up_late, close = answer(0.5, 0.5, 2.0), answer(0.5, 0.5, 2.0)
    # half way from 2 to 4: a half and twice
    assert predicted_crossovers.values_cross(up_late) == pytest.approx(2 * 2**0.5)
    assert predicted_crossovers.values_cross(always) is None
    unsure = replace(close, crossings=())
    expected = pytest.approx(2 * 2**0.5 / up.crossings[0].at.value - 1)
    assert comparison(up, unsure).error == expected
    shown = comparison(named(up), named(unsure), (0.0,))
    assert " | can't tell (values cross at 2.83) | " in error_tables.crossovers([shown]).md()[2]
    shifted = answer(0.25, 0.5, 0.5, 2.0)
    assert comparison(up, shifted).error == pytest.approx(1.0)


def checked() -> dict[str, str]:
    """The cells of a training of 1 ms a step, predicted as 0.25 ms."""
    base = profile.Profile(made_profile.everything(), GPU_MACHINE)
    made = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    saved = replace(made, step_s=Estimate(0.25e-3, 0.2e-3, 0.3e-3))
    row = made_profile.training("fashion-mlp", 32, 1e-3)
    of = profile.Profile([*made_profile.everything(), row], GPU_MACHINE)
    head, _, line, *_ = table.shown(checked_predictions.lines([saved], of), True)
    return dict(zip(head.strip("| ").split(" | "), line.strip("| ").split(" | "), strict=True))


def test_a_saved_prediction_stands_beside_the_step():
    cells = checked()
    assert (cells["predicted ms"], cells["error"]) == ("0.25 (0.2 to 0.3)", "-75 %")


def test_saved_predictions_are_summed_in_a_sentence():
    """0.25 ms against 1 ms measured: 75 % off."""
    base = profile.Profile(made_profile.everything(), GPU_MACHINE)
    made = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    saved = replace(made, step_s=Estimate(0.25e-3, 0.2e-3, 0.3e-3))
    of = profile.Profile([*made_profile.everything(), made_profile.training("fashion-mlp", 32, 1e-3)], GPU_MACHINE)
    told = error_tables.saved({"first": [saved, replace(saved, execution="compiled")]}, of)
    assert told == [
        "CPU, saved before they were measured: median error 75 %, mean 75 % of 1 step. "
        "0 % of these steps lie in the predicted interval."
    ]
    late = replace(saved, saved_at="2099-01-01T00:00:00Z")
    found = prediction_errors.saved_set([late, saved], of)
    assert (found.before, {d: len(pairs) for d, pairs in found.since.items()}) == (0, {"cpu": 1})  # one, saved twice
    other = replace(saved, fit_s=Estimate(2.0, 1.0, 3.0))
    found = prediction_errors.saved_set([late, other, other], of)
    assert (found.before, {d: len(pairs) for d, pairs in found.since.items()}) == (1, {"cpu": 1})
    assert error_tables.saved({"first": [], "late": [late]}, of) == []
    both = error_tables.saved({"first": [saved], "late": [late]}, of)
    assert both[1:] == ["1 that had been measured before do not count."]
    base = profile.Profile(made_profile.everything(), GPU_MACHINE)
    saved = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    rows = [made_profile.training("fashion-mlp", 32, 1e-3)]  # without the microbenchmarks of their machine
    assert checked_predictions.lines([saved], profile.Profile(rows, GPU_MACHINE))[-1] == (
        "None of them was measured here. Give the whole folder of their machine, such as reports/nvidia-h200."
    )


def test_saved_predictions_compare_with_the_better_line(monkeypatch):
    """0.25 ms [0.2, 0.3] against 1 ms and 0.25 ms measured; lines of 0.5 and 0.9 ms: the second is nearer to 1 ms."""
    lines = {prediction_errors.LINE: 0.5e-3, prediction_errors.BYTES: 0.9e-3}
    monkeypatch.setattr(prediction_errors, "baselines", lambda step, others: lines)
    base = profile.Profile(made_profile.everything(), GPU_MACHINE)
    made = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    saved = replace(made, step_s=Estimate(0.25e-3, 0.2e-3, 0.3e-3))
    summaries = []
    for measured in (1e-3, 0.25e-3):
        rows = [*made_profile.everything(), made_profile.training("fashion-mlp", 32, measured)]
        summaries += prediction_errors.saved_summaries([[saved]], profile.Profile(rows, GPU_MACHINE))
    far, near = summaries
    assert (far.device, far.steps, far.covered, far.median) == ("cpu", 1, 0.0, pytest.approx(0.75))
    assert (far.line, far.line_median, far.nearer) == (prediction_errors.BYTES, pytest.approx(0.1), 0)
    assert (near.covered, near.line, near.nearer) == (1.0, prediction_errors.LINE, 1)


def test_a_saved_error_compares_the_likeliest_steps():
    """3 ms predicted [2, 9] against 2 ms measured [1, 6]."""
    predicted = SimpleNamespace(step_s=Estimate(3e-3, 2e-3, 9e-3))
    measured = SimpleNamespace(step=Estimate(2e-3, 1e-3, 6e-3))
    one = CheckedPrediction(prediction=predicted, measured=measured)
    assert one.error == pytest.approx(0.5)
    assert CheckedPrediction(prediction=predicted, measured=None).error is None


def test_crossovers_within_15_percent_are_counted():
    found = [SimpleNamespace(error=error) for error in (0.15, 0.16, None, math.inf, 0.0)]
    assert error_tables.crossings(found) == ["2 of 4 crossovers of trainings were predicted within 15 %."]
    assert error_tables.crossings([SimpleNamespace(error=None)]) == []


def test_the_table_shows_each_crossovers_error():
    """Measured from 100, predicted from 120: 20 % off. Where one has none, or both, there is no number."""
    family = SimpleNamespace(fixed=(("model", "lenet"),))

    def answer(*at: float, kind: str = "several"):
        crossings = [SimpleNamespace(at=Estimate(n, 0.5 * n, 2 * n), to="gpu") for n in at]
        points = [SimpleNamespace(n=n, ratio=Estimate(r, r, r)) for n, r in ((10, 0.5), (1000, 2.0))]
        return SimpleNamespace(kind=kind, crossings=crossings, family=family, points=points)

    def cells(measured, predicted) -> list[str]:
        one = comparison(measured, predicted, (0.0, 0.3))
        return error_tables.crossovers([one]).rows[0]

    throughout = answer(kind="gpu-at-smallest")
    assert cells(answer(100.0), answer(120.0)) == [
        "lenet",
        "batch",
        "a step",
        "GPU from 100",
        "GPU from 120",
        "20.0 %",
        "30.0 %",
    ]
    assert cells(throughout, answer(100.0))[3:6] == ["GPU throughout", "GPU from 100", "one has none"]
    assert cells(throughout, throughout)[5] == "-"
    unsure = cells(answer(200.0), answer(kind="cant-tell"))
    assert unsure[4] == "can't tell (values cross at 100)" and unsure[5] == "50.0 %"


def test_error_tables_go_between_a_pages_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "read", lambda run: None)
    monkeypatch.setattr(prediction_errors, "leave_one_out", lambda machine: [])
    monkeypatch.setattr(error_tables, "brief", lambda *arguments: ["| a |", "| b |"])
    monkeypatch.setattr(error_tables, "trust", lambda *arguments: ["- c"])
    page, readme = tmp_path / "results.md", tmp_path / "README.md"
    begin = "<!-- errors: python -m tests.validation.error_tables reports/here results.md -->\n"
    page.write_text(f"before\n{begin}old\n<!-- /errors -->\nafter\n")
    begin_line = "<!-- trust: python -m tests.validation.error_tables reports/here README.md -->\n"
    readme.write_text(f"{begin_line}<!-- /trust -->\n")
    error_tables.main(["reports/here", str(page), str(readme)])
    assert page.read_text() == f"before\n{begin}| a |\n| b |\n<!-- /errors -->\nafter\n"
    assert readme.read_text() == f"{begin_line}- c\n<!-- /trust -->\n"
    with pytest.raises(ValueError, match=r"has no lines to write between: <!-- errors: .* reports/elsewhere "):
        error_tables.main(["reports/elsewhere", str(page)])


def test_the_line_for_readme_gives_errors_and_intervals(base):
    """0.25 ms [0.2, 0.3] against 1 ms measured on both devices: 75 % off; without a straight line nothing is said."""
    sets, rows = [], []
    for device in ("cpu", "gpu:0"):
        predicted = prediction.predict(Training("fashion-mlp", 32, 2048), Settings(device), base)
        sets.append(replace(predicted, step_s=Estimate(0.25e-3, 0.2e-3, 0.3e-3)))
        rows += [training(name, 32, 1e-3, device) for name in ("fashion-mlp", "lenet", "mnist-cnn")]
    few = profile.Profile([*base.measurements, *rows], GPU_MACHINE)
    assert error_tables.trust(few, prediction_errors.leave_one_out(few), {"first": sets}) == []
    rows += [training("cifar10-mlp", 32, 1e-3, device) for device in ("cpu", "gpu:0")]
    of = profile.Profile([*base.measurements, *rows], GPU_MACHINE)
    (line,) = error_tables.trust(of, prediction_errors.leave_one_out(of), {"first": sets})
    assert "[Predicted beforehand](docs/results.md): 75 %, 75 %. " in line
    assert "Intervals held 0 %, 0 %." in line
