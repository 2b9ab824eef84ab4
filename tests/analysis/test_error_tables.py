"""Predictions beside what was measured since: the printed numbers and the printed errors agree."""

import made_profile
import msgspec
import pytest
from fake_measurements import GPU_MACHINE

from analysis.predict import prediction, profile
from analysis.stats import Estimate
from analysis.text import prediction_errors
from kernels.problems import Training
from workloads.records import Settings


def checked(held: float) -> dict[str, str]:
    """The cells of a training of 1 ms a step, foretold as 0.25 ms and `held` seconds of each step's samples, saved with it."""
    base = profile.profile(made_profile.everything(), GPU_MACHINE)
    made = prediction.predict(Training("fashion-mlp", 32, 2048), Settings("cpu"), base)
    share = held * made.training.steps
    step_s = Estimate(0.25e-3, 0.2e-3, 0.3e-3)
    saved = msgspec.structs.replace(made, step_s=step_s, held_s=Estimate(share, share, share))
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
    saved = msgspec.structs.replace(made, step_s=Estimate(0.25e-3, 0.2e-3, 0.3e-3), held_s=Estimate(0.0, 0.0, 0.0))
    of = profile.profile([*made_profile.everything(), made_profile.training("fashion-mlp", 32, 1e-3)], GPU_MACHINE)
    told = prediction_errors.saved_line({"first": [saved, msgspec.structs.replace(saved, execution="compiled")]}, of)
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
