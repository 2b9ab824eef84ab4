"""Errors of predictions in tables and words: every training predicted with its model left out, and predictions saved before the
measurement."""

import math
import statistics
from collections.abc import Iterable

from analysis.crossover.crossover import Answer
from analysis.numbers import number, share
from analysis.predict import calibration, held_out
from analysis.predict.calibration import Seen
from analysis.predict.held_out import BASELINES, Case, Summary
from analysis.predict.predicted_crossover import WITHIN, Comparison, comparisons, values_cross
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.step_work import RULES_CHANGED
from analysis.stats import Estimate, group_by
from analysis.table import Table
from analysis.text.sentences import CANT_TELL, NAMES, say
from analysis.units import change, count, percent

SENTENCES = {
    "head": "Every training is predicted with all trainings of its model left out of the calibration. Strictly: also without "
    "rows of its layers' shapes and trainings of its twins. Twins have the same layers and optimizer under another name.",
    "nothing": "no training in this profile tells its step",
    "crossings": "{near} of {all} crossovers of trainings were predicted within {within:share}.",
    "late": "{device}, first measured after trainings last shaped a rule ({since}): "
    "median error {median:share}, mean {mean:share} of {count}.",
    "none late": "No training was first measured since trainings last shaped a rule ({since}).",
    "saved": "{device}, saved before they were measured: median error {median:share}, mean {mean:share} of {count}. "
    "{covered:share} of these steps lie in the predicted interval.",
    "line": "A straight line ({line}): median error {median:share}, mean {mean:share}; the prediction is nearer for {nearer} of "
    "{count}.",
    "before": "{count} that had been measured before do not count.",
    "checked": "{device}: median error {median:share}, mean {mean:share} of {count}.",
    "counts": "All {steps} steps of {trainings} trainings count in full. {wide} are noisier than {noisy:share} and fit nothing. "
    "{numbers} numbers are fitted on other models' trainings.",
    "left out": "Not in it: {reasons}.",
    "none": "None of them was measured here. Give the whole folder of their machine, such as reports/nvidia-h200.",
}
#: The day from which trainings have not shaped a rule.
_SINCE = RULES_CHANGED[:10]
_STEP = "model | batch | device | execution"
_NUMBERS = " | predicted ms | measured ms | error"


def _both(s: Summary | None) -> str:
    """`8.4 %, 13 %`: median and mean error; `-` for None."""
    return f"{share(s.median)}, {share(s.mean)}" if s else "-"


def _error_sentences(template: str, errors: Iterable[tuple[str, float]]) -> list[str]:
    """A sentence a device: median and mean of its errors. errors: (device, error) pairs."""
    sentences = []
    for device, pairs in sorted(group_by(errors, lambda pair: pair[0]).items()):
        device_errors = [error for _, error in pairs]
        sentence = say(
            template,
            device=NAMES[device],
            median=statistics.median(device_errors),
            mean=statistics.fmean(device_errors),
            count=count(len(device_errors), "step"),
            since=_SINCE,
        )
        sentences.append(sentence)
    return sentences


def errors(cases: list[Case], strict: Iterable[Case]) -> Table:
    """The error table, a line a device and bound, with the errors of simpler predictions (BASELINES) beside."""
    strict_errors = {(s.device, s.bound): s for s in held_out.summaries(strict)}
    rows = []
    for summary in held_out.summaries(cases):
        row = [
            NAMES[summary.device],
            summary.bound,
            summary.models,
            summary.cases,
            _both(summary),
            _both(strict_errors.get((summary.device, summary.bound))),
            share(summary.covered),
        ]
        for name in BASELINES:
            row.append(share(summary.baselines[name]) if name in summary.baselines else "-")
        rows.append(row)
    heads = "device | steps | models | trainings | median, mean error | strictly | in the interval"
    return Table([*heads.split(" | "), *BASELINES], rows, left=2, optional="strictly", least="in the interval")


def lines(profile: Profile) -> list[str | Table]:
    """The whole page: the part that is in docs (`brief`), then every training and crossover."""
    cases = held_out.leave_one_out(profile)
    reasons = "; ".join(f"{number} ({why})" for why, number in calibration.left_out(profile).items())
    page = [*brief(profile, cases), "", say(SENTENCES["left out"], reasons=reasons), "", _cases(cases)]
    table = crossovers(comparisons(profile))
    return [*page, "", table] if table.rows else page


def brief(profile: Profile, cases: list[Case], saved: dict[str, list[Prediction]] | None = None) -> list[str | Table]:
    """The part that is in docs: the error table, what it counts, and the errors of saved predictions."""
    lines: list[str | Table] = [SENTENCES["head"], "", errors(cases, held_out.strictly(cases, profile))]
    paragraphs = [
        [counts(cases, profile)],
        unseen(cases, profile),
        saved_lines(saved or {}, profile),
        crossings(comparisons(profile)),
    ]
    for sentences in paragraphs:
        if sentences:
            lines += ["", " ".join(sentences)]
    return lines


def _cases(cases: Iterable[Case]) -> Table:
    """A table of every training: what bounds its step, predicted and measured seconds, and the error. The prediction contains
    data-set setup where the measured step does."""
    rows = []
    for case in sorted(cases, key=_case_order):
        model, *sizes = held_out.training_of(case.predicted)
        for name, text in case.seen.row.settings.switches.items():
            if name not in ("data", "jit_compile"):
                model += f" {name}={text}"
        rows.append((model, *sizes, case.bound, *_numbers(case.seconds, case.seen)))
    return Table(f"{_STEP} | steps{_NUMBERS}", rows, least="execution")


def _case_order(case: Case) -> tuple[str, str, str, int]:
    problem = case.seen.row.problem
    return case.device, case.predicted.execution, problem.model, problem.batch


def _numbers(predicted: Estimate, training: Seen) -> tuple[str, str, str]:
    """Predicted, measured, and the signed error."""
    return _ms(predicted), _ms(training.step), change(predicted.value / training.step.value - 1, places=0)


def _ms(e: Estimate) -> str:
    return f"{1e3 * e.value:.3g} ({1e3 * e.low:.3g} to {1e3 * e.high:.3g})"


def crossings(comparisons: list[Comparison]) -> list[str]:
    """A sentence: how many measured crossovers were predicted within WITHIN; [] where none was measured."""
    near = [comparison.error <= WITHIN for comparison in comparisons if comparison.error is not None]
    if not near:
        return []
    return [say(SENTENCES["crossings"], near=sum(near), all=len(near), within=WITHIN)]


def crossovers(comparisons: Iterable[Comparison]) -> Table:
    """A table of crossovers of trainings, measured and predicted. Where a prediction can't tell: where its likeliest times
    cross."""
    rows = []
    for comparison in comparisons:
        row = (
            dict(comparison.measured.family.fixed)["model"],
            comparison.varies,
            comparison.by,
            _place(comparison.measured),
            _predicted_place(comparison),
            _off_by(comparison.error),
            percent(max(comparison.regrets)),
        )
        rows.append(row)
    heads = "model | along | by | measured | predicted | off by | most lost by following it"
    return Table(heads, rows, 5)


def _off_by(error: float | None) -> str:
    """The error of a predicted crossover in words; infinite where only one of the two has a crossover."""
    if error is None:
        return "-"
    return "one has none" if math.isinf(error) else percent(error)


def _predicted_place(comparison: Comparison) -> str:
    """The predicted crossover; where it can't be told, where the likeliest times cross."""
    place = _place(comparison.predicted)
    if comparison.error is None or len(comparison.predicted.crossings) == 1:
        return place
    cross = values_cross(comparison.predicted)
    return f"{place} (values cross at {number(cross)})" if cross else place


def _place(a: Answer) -> str:
    """`GPU from 12.0`, by the likeliest times; `GPU throughout`, `can't tell`."""
    throughout = {"gpu-at-smallest": "GPU throughout", "cpu-throughout": "CPU throughout"}.get(a.kind, CANT_TELL)
    return ", ".join(f"{NAMES[c.to]} from {number(c.at.value)}" for c in a.crossings) or throughout


def unseen(cases: list[Case], profile: Profile) -> list[str]:
    """The errors of trainings first measured after the last change of a rule (RULES_CHANGED), a sentence a device."""
    late = held_out.unseen(cases, profile)
    sentences = _error_sentences(SENTENCES["late"], ((case.device, case.error) for case in late))
    return sentences or [say(SENTENCES["none late"], since=_SINCE)]


def counts(cases: list[Case], profile: Profile) -> str:
    """A sentence: how many steps are in the table, and how many of them are too noisy for the fit."""
    return say(
        SENTENCES["counts"],
        steps=len(cases),
        trainings=len(profile.trainings),
        wide=sum(not case.seen.told for case in cases),
        noisy=calibration.NOISY,
        numbers=calibration.fitted_numbers(profile),
    )


def check_lines(predictions: Iterable[Prediction], profile: Profile) -> list[str | Table]:
    """A table of predictions beside the steps measured since, then the errors of each device."""
    rows = []
    errors = []
    for prediction, training in held_out.with_measured(predictions, profile):
        numbers = (_ms(prediction.step_s), "not measured", "")
        if training:
            numbers = _numbers(prediction.step_s, training)
            errors.append((prediction.settings.device, held_out.saved_error(prediction, training)))
        rows.append((*held_out.training_of(prediction), *numbers))
    sentences = _error_sentences(SENTENCES["checked"], errors) if errors else [SENTENCES["none"]]
    return [Table(_STEP + _NUMBERS, rows, least="execution"), "", *sentences]


def saved_lines(sets: dict[str, list[Prediction]], profile: Profile) -> list[str]:
    """The errors of all predictions that were saved before they were measured, those of a straight line beside them, device by
    device; nothing where none was."""
    lines = []
    for summary in held_out.saved_summaries(sets.values(), profile):
        steps = count(summary.steps, "step")
        errors = {"median": summary.median, "mean": summary.mean, "covered": summary.covered}
        lines.append(say(SENTENCES["saved"], device=NAMES[summary.device], count=steps, **errors))
        if summary.line:
            errors = {"median": summary.line_median, "mean": summary.line_mean, "nearer": summary.nearer}
            lines.append(say(SENTENCES["line"], line=summary.line, count=steps, **errors))
    before = sum(held_out.saved_set(predictions, profile).before for predictions in sets.values())
    if before and lines:
        lines.append(say(SENTENCES["before"], count=before))
    return lines
