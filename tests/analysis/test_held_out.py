"""The error table's arithmetic, on trainings whose steps are known; saved predictions; crossovers."""

import math

import made_profile
import pytest
from fake_measurements import GPU_MACHINE, tensor_peaks
from made_profile import training
from msgspec.structs import replace

from analysis.predict import calibration, held_out, predicted_crossover, prediction, profile
from analysis.predict.combine import HOST, Calibration
from analysis.stats import Estimate
from analysis.text import prediction_errors
from kernels.problems import Training
from workloads.records import Settings, visits

CPU, GPU = Settings("cpu"), Settings("gpu:0")
PLAIN = Calibration()
WIDE = [f"mlp-784-{w}x2-10" for w in (32, 128, 512, 2048)]


@pytest.fixture(scope="module")
def base():
    return profile.profile([*made_profile.everything(), *tensor_peaks()], GPU_MACHINE)


def measured(base, steps, device="cpu", **fields):
    """The profile with trainings of models (name, batch) whose steps, with their share of what a fit does for its samples, took
    `steps` times as long as a plain prediction says."""
    rows = []
    for (model, batch), times in steps.items():
        made = prediction.predict(Training(model, batch, 2048), Settings(device), base, fitted=PLAIN)
        step = made.step_s.value + (made.fit_s.value - made_profile.FIT) / made.training.steps
        rows.append(training(model, batch, step * times, device, **fields))
    return profile.profile([*base.measurements, *rows], GPU_MACHINE)


def uncalibrated(of):
    return held_out.leave_one_out(of, held_out.RULES - {"calibrated"})


def test_errors_are_of_the_step_and_told_apart_by_what_it_is_bound_by(base, monkeypatch):
    of = measured(base, {("mlp-784-100x2-10", 8): 1.0, ("fashion-mlp", 128): 1 / 1.2, ("cifar10-cnn", 128): 1 / 1.1})
    cases = {c.seen.row.problem.model: c for c in uncalibrated(of)}
    assert cases["mlp-784-100x2-10"].error == pytest.approx(0, abs=1e-6)
    assert cases["fashion-mlp"].error == pytest.approx(0.2) and cases["cifar10-cnn"].error == pytest.approx(0.1)
    expected = {"mlp-784-100x2-10": "overhead-bound", "fashion-mlp": "work-bound", "cifar10-cnn": "work-bound"}
    assert {m: c.bound for m, c in cases.items()} == expected
    overhead, work, every = held_out.summaries(cases.values(), of)
    assert (overhead.cases, work.cases, every.cases, every.models) == (1, 2, 3, 3)
    assert work.median == pytest.approx(0.15)
    assert every.mean == pytest.approx(0.1) and every.floor is None
    # A step of which so much is the fit's that its floor is two thirds of the rest
    of = measured(base, {("fashion-mlp", 128): 1 / 1.2, ("cifar10-cnn", 128): 1 / 1.1})
    case = next(c for c in uncalibrated(of) if c.seen.row.problem.model == "fashion-mlp")
    floor = sum(case.predicted.parts[n].value for n in HOST if n in case.predicted.parts and n != "transfer bytes")
    work = case.seen.step.value - 1.5 * floor
    assert case.bound == "work-bound" and work > 0
    monkeypatch.setattr(calibration.Seen, "feed", lambda self, fitted: Estimate(work, work, work))
    again = next(c for c in uncalibrated(of) if c.seen.row.problem.model == "fashion-mlp")
    assert again.bound == "overhead-bound" and again.predicted == case.predicted


def test_errors_below_twice_the_floor_of_five_processes_count_as_none(base):
    of = measured(base, {("mlp-784-100x2-10", 8): 1 / 1.05, ("fashion-mlp", 128): 1 / 1.2})
    row = of.trainings[0]

    def times(factor: float):
        """The same training in a process in which all took so many times as long."""
        samples = tuple(replace(s, seconds=tuple(factor * x for x in s.seconds)) for s in row.samples)
        series = {name: tuple(factor * x for x in taken) for name, taken in row.series.items()}
        return replace(row, samples=samples, series=series)

    fresh = visits.merged([times(factor) for factor in (0.94, 0.96, 1.0, 1.03, 1.05)])
    whole = profile.profile([*base.measurements, fresh, of.trainings[1]], GPU_MACHINE)
    # from their mean, 0.996: 0.056, 0.036, 0.004, 0.034 and 0.054, squared 0.00852 in all, over 4; each one's fits agree
    assert held_out.noise_floor(whole, "cpu") == pytest.approx(0.00852**0.5 / 2)
    assert [one.within for one in held_out.apart(whole, "cpu")] == [pytest.approx(0, abs=1e-9)]
    assert held_out.noise_floor(whole, "gpu:0") is None
    every = held_out.summaries(uncalibrated(whole), whole)[-1]
    assert every.mean == pytest.approx(0.125) and every.counted == (pytest.approx(0.1), pytest.approx(0.1))
    told = prediction_errors.verdicts(held_out.summaries(uncalibrated(whole), whole))[-1]
    assert "as none 10.0 % and 10.0 %: within;" in told and "below twice the floor of five processes, 4.62 %" in told


def test_processes_that_differ_by_no_more_than_each_ones_own_noise_tell_no_floor(base, monkeypatch):
    of = measured(base, {("mlp-784-100x2-10", 8): 1 / 1.05, ("fashion-mlp", 128): 1 / 1.2})

    def told(*each):
        monkeypatch.setattr(held_out, "apart", lambda of, device: list(each))
        monkeypatch.setattr(prediction_errors, "apart", held_out.apart)
        found = held_out.summaries(uncalibrated(of), of)
        return held_out.noise_floor(of, "cpu"), prediction_errors.floors(found, of)

    floor, said = told(held_out.Apart(0.10, 0.12))
    assert floor is None and said[0] == (
        "On the CPU the steps of five processes of a training have a standard deviation of 10.0 % (1 training), no more than "
        "each one's own noise, 12.0 %, makes: no error counts as none for it."
    )
    floor, said = told(held_out.Apart(0.13, 0.12))
    assert floor == pytest.approx(0.05) and "5.00 % of it beyond each one's own noise: with errors below" in said[0]


def test_the_simpler_predictions_know_the_other_models_alone(base):
    """Steps of 1 ms + 1 ms for 100 MFLOP: the line finds them from the others; the constant is the others' middle."""
    of = profile.profile([*base.measurements, *(training(m, 32, 1e-3 + _flops(m) / 1e11) for m in WIDE)], GPU_MACHINE)
    for case in held_out.leave_one_out(of):
        model = case.seen.row.problem.model
        others = sorted(1e-3 + _flops(m) / 1e11 for m in WIDE if m != model)
        assert case.baselines[held_out.CONSTANT] == pytest.approx(others[1])
        assert case.baselines[held_out.LINE] == pytest.approx(case.seen.step.value, rel=0.05)
    (one,) = held_out.leave_one_out(profile.profile([*base.measurements, training(WIDE[0], 32, 1e-3)], GPU_MACHINE))
    assert not {held_out.CONSTANT, held_out.LINE} & set(one.baselines)
    of = measured(base, {("cifar10-cnn", 128): 1.0}, "gpu:0")
    (case,) = uncalibrated(of)
    sheet, own = case.baselines[held_out.SPEC], case.predicted.step_s.value
    assert 0 < sheet < 0.2 * own and sheet >= 128 * _flops("cifar10-cnn") / 32 / 494.7e12


def _flops(model):
    from kernels import networks

    return 32 * networks.training_flops(networks.find(model))


def test_the_table_says_what_is_reached(base):
    of = measured(base, {("mlp-784-100x2-10", 8): 1 / 1.05, ("fashion-mlp", 128): 1 / 1.4})
    found = held_out.summaries(uncalibrated(of), of)
    head, _, overhead, *_ = prediction_errors.table(found)
    assert head.startswith("| device | steps | models | trainings | median error |")
    assert overhead.startswith("| cpu | overhead-bound | 1 | 1 | 5.00 % | 5.00 % |")
    said = prediction_errors.verdicts(found)
    assert "cpu, overhead-bound: median 5.00 %, mean 5.00 %: within 10.0 % and 15.0 %" in said[0]
    assert "cpu, work-bound: median 40.0 %, mean 40.0 %: not within" in said[1]
    assert prediction_errors.lines(base) == [
        "No training in this profile tells its step: measure some with: python -m workloads.training --study seeds"
    ]


def test_noisy_steps_and_rows_under_other_conditions_are_left_out(base):
    odd = training("fashion-mlp", 32, 1e-3)
    noisy = {n: tuple(s * f for s, f in zip(v, (0.2, 1, 2, 3, 0.5), strict=True)) for n, v in odd.series.items()}
    left_out = [
        replace(odd, series=noisy),
        replace(odd, series={}),
        replace(odd, settings=Settings("cpu", 4)),
        replace(odd, settings=Settings("cpu", switches={"keras_backend": "jax"})),
        replace(odd, settings=Settings("cpu", switches={"at_once": "2"})),
    ]
    for m in left_out:
        assert held_out.leave_one_out(profile.profile([*base.measurements, m], GPU_MACHINE)) == []
    of = profile.profile([*base.measurements, odd, *left_out], GPU_MACHINE)
    assert len(held_out.leave_one_out(of)) == 1
    assert calibration.left_out(of) == {
        "its noise is more than its step": 1,
        "no fits beside it that tell a step from an epoch": 1,
        "not a warm training by itself with the usual threads": 2,
        "another backend, or TensorFlow with variables set": 1,
    }


def test_a_step_known_less_well_counts_from_the_end_of_its_interval(base):
    """Two steps foretold a tenth too long, one of them measured as 0.5 to 1.05 times its middle: that one is 1.1 / 1.05 - 1
    beyond its interval, fits nothing, and is in the figures of all alone."""
    of = measured(base, {("fashion-mlp", 128): 1 / 1.1, ("cifar10-cnn", 128): 1 / 1.1})
    first, second = uncalibrated(of)
    step = second.seen.step.value
    seen = replace(second.seen, step=Estimate(step, 0.5 * step, 1.05 * step))
    wide = replace(second, seen=seen)
    assert (seen.told, wide.error, wide.beyond) == (False, pytest.approx(0.1), pytest.approx(1.1 / 1.05 - 1))
    *_, every = held_out.summaries([first, wide], of)
    assert (every.cases, every.wide, every.mean) == (1, 1, pytest.approx(0.1))
    assert every.every[1] == pytest.approx((0.1 + 1.1 / 1.05 - 1) / 2)
    assert prediction_errors.case_table([wide])[-1].endswith("| +10 %, 5 % beyond |")
    inside = replace(wide, seen=replace(seen, step=Estimate(step, 0.5 * step, 1.5 * step)))
    assert prediction_errors.case_table([inside])[-1].endswith("| +10 %, inside |")
    assert held_out.beyond(0.8, Estimate(1.0, 0.9, 1.1)) == pytest.approx(1 - 0.8 / 0.9)


def test_a_step_of_an_interval_too_wide_is_in_no_calibration(base):
    """Rounds 0.8 to 1.2 times as long: the step is known to 32 %."""
    wide, factors = training("fashion-mlp", 128, 1e-3), (0.8, 1.1, 1.0, 0.9, 1.2)
    series = {n: tuple(s * f for s, f in zip(taken, factors, strict=True)) for n, taken in wide.series.items()}
    sure = measured(base, {("cifar10-cnn", 128): 1.0, ("lenet", 128): 1.0})
    of = profile.profile([*sure.measurements, replace(wide, series=series)], GPU_MACHINE)
    assert len(calibration.steps_seen(of, held_out.RULES)) == 3
    assert set(calibration.calibration(of, CPU).models) == {"cifar10-cnn", "lenet"}


def test_short_fits_cannot_tell_the_samples_from_the_step(base):
    """What a fit does for each step's samples is in a step told by short fits, not in one told by the epochs of a fit."""
    of = measured(base, {("cifar10-cnn", 128): 1.0})
    (case,) = uncalibrated(of)
    # priced as the copy that they are, where nothing else is known
    feed = 2048 * 3072 * 4 * 2 / made_profile.BYTES["cpu"] / 16
    assert case.seconds.value - case.predicted.step_s.value == pytest.approx(feed, rel=0.05)
    row = of.trainings[0]
    stop_reason = "epochs of one fit"
    epochs = replace(row.samples[0], seconds=(1e-3,) * 3, block=(0, 1, 2), stop_reason=stop_reason)
    (long,) = uncalibrated(profile.profile([*base.measurements, replace(row, samples=(epochs,))], GPU_MACHINE))
    assert long.seconds == long.predicted.step_s


def test_a_foretold_crossover_beside_the_measured_one_with_its_regret(base):
    """CPU steps half as long as predicted: the GPU wins later than was foretold, and between both it is a loss to follow."""
    names = [f"mlp-784-{w}x2-10" for w in (16, 64, 256, 1024, 4096)]
    rows = []
    for name in names:
        for device, times in (("cpu", 0.5), ("gpu:0", 1.0)):
            step = prediction.predict(Training(name, 32, 2048), Settings(device), base, fitted=PLAIN).step_s.value
            rows.append(training(name, 32, step * times, device))
    of = profile.profile([*base.measurements, *rows], GPU_MACHINE)
    by_step = next(b for b in predicted_crossover.comparisons(of) if (b.varies, b.by) == ("width", "a step"))
    assert [p.n for p in by_step.measured.points] == [16, 64, 256, 1024, 4096]
    for point, said, regret in zip(by_step.measured.points, by_step.foretold.points, by_step.regrets, strict=True):
        right = (point.ratio.value > 1) == (said.ratio.value > 1)
        assert (regret == 0) == right
        if not right:
            assert regret == pytest.approx(max(point.ratio.value, 1 / point.ratio.value) - 1, rel=1e-6)
    told = predicted_crossover.lines([by_step])
    assert told[2].startswith("| mlp-784-Wx2-10 | width | a step |") or "| width | a step |" in told[2]
    assert "of 5 cases" in told[-1]


def test_a_crossing_that_only_one_of_both_has_is_infinitely_far_off():
    def answer(*ratios):
        from analysis.crossover import crossover
        from analysis.crossover.crossover import Form, Point, Side

        sides = [
            [Side("k", d, None, "float32", Estimate(t, t, t)) for d, t in (("cpu", r), ("gpu:0", 1.0))] for r in ratios
        ]
        points = [Point(2**i, *pair) for i, pair in enumerate(sides)]
        return crossover.classify("float32", Form("a step"), points)

    def named(a):
        from analysis.crossover.crossover import Family

        return replace(a, family=Family("training", "batch", ("batch",), (("model", "m"),)))

    up, always = answer(0.5, 0.5, 2.0), answer(2.0, 2.0, 2.0)
    assert predicted_crossover.Comparison("batch", "a step", up, up, ()).error == pytest.approx(0)
    assert math.isinf(predicted_crossover.Comparison("batch", "a step", up, always, ()).error)
    assert predicted_crossover.Comparison("batch", "a step", always, always, ()).error is None
    up_late, close = answer(0.5, 0.5, 2.0), answer(0.5, 0.5, 2.0)
    # half way from 2 to 4: a half and twice
    assert predicted_crossover.values_cross(up_late) == pytest.approx(2 * 2**0.5)
    assert predicted_crossover.values_cross(always) is None
    unsure = replace(close, crossings=())
    expected = pytest.approx(2 * 2**0.5 / up.crossings[0].at.value - 1)
    assert predicted_crossover.Comparison("batch", "a step", up, unsure, ()).error == expected
    shown = predicted_crossover.Comparison("batch", "a step", named(up), named(unsure), (0.0,))
    row = predicted_crossover.lines([shown])[2]
    assert " | cannot tell (values cross at 2.83) | " in row
    shifted = answer(0.25, 0.5, 0.5, 2.0)
    assert predicted_crossover.Comparison("batch", "a step", up, shifted, ()).error == pytest.approx(1.0)


def checked(held: float) -> dict[str, str]:
    """The cells of a training of 1 ms a step, foretold as 0.25 ms and `held` seconds of each step's samples, saved with it."""
    base = profile.profile(made_profile.everything(), GPU_MACHINE)
    made = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    share = held * made.training.steps
    step_s = Estimate(0.25e-3, 0.2e-3, 0.3e-3)
    saved = replace(made, step_s=step_s, held_s=Estimate(share, share, share))
    row = made_profile.training("fashion-mlp", 32, 1e-3)
    of = profile.profile([*made_profile.everything(), row], GPU_MACHINE)
    head, _, line, *_ = prediction_errors.check_lines([saved], of)
    return dict(zip(head.strip("| ").split(" | "), line.strip("| ").split(" | "), strict=True))


def test_a_saved_share_is_in_what_was_predicted_and_one_not_saved_is_to_be_added():
    """0.25 ms and 0.5 ms of samples against 1 ms: a quarter short of it, in the number and in both errors."""
    cells = checked(0.5e-3)
    assert (cells["predicted ms"], cells["samples' share ms"]) == ("0.75 (0.7 to 0.8)", "0.5 in it")
    assert (cells["error"], cells["with the samples' share"]) == ("-25 %", "-25 %")
    cells = checked(0.0)
    assert (cells["predicted ms"], cells["error"]) == ("0.25 (0.2 to 0.3)", "-75 %")
    number, _, words = cells["samples' share ms"].partition(" ")
    both = 0.25 + float(number)
    assert words == "to add" and cells["with the samples' share"] == f"{100 * (both - 1):+.0f} %"
    assert both > 0.25 and both == pytest.approx(0.25, abs=0.5)


def test_saved_predictions_are_told_in_a_sentence_or_with_what_to_give():
    """0.25 ms against 1 ms measured: 75 % off."""
    base = profile.profile(made_profile.everything(), GPU_MACHINE)
    made = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    saved = replace(made, step_s=Estimate(0.25e-3, 0.2e-3, 0.3e-3), held_s=Estimate(0.0, 0.0, 0.0))
    of = profile.profile([*made_profile.everything(), made_profile.training("fashion-mlp", 32, 1e-3)], GPU_MACHINE)
    told = prediction_errors.saved_line({"first": [saved, replace(saved, execution="compiled")]}, of)
    assert told.endswith("of its day: first (1 of 2 measured) CPU 75.0 % in the median, 75.0 % in the mean of 1.")
    assert prediction_errors.saved_line({"first": []}, of) == ""
    base = profile.profile(made_profile.everything(), GPU_MACHINE)
    saved = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    rows = [made_profile.training("fashion-mlp", 32, 1e-3)]
    assert prediction_errors.check_lines([saved], profile.profile(rows, GPU_MACHINE))[-1] == (
        "Rows of 1 training of these are here, but not the microbenchmarks that say how they run: give the machine's whole "
        "folder, such as reports/nvidia-h200."
    )
    none = prediction_errors.check_lines([saved], profile.profile([], GPU_MACHINE))[-1]
    assert none == "None of them was measured in these runs."
