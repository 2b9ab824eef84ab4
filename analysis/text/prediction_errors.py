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

SAID = {
    "head": "Every training is predicted with all trainings of its model left out of the calibration. Strictly: also without "
    "rows of its layers' shapes and trainings of its twins. Twins have the same layers and optimizer under another name.",
    "nothing": "no training in this profile tells its step",
    "crossings": "{near} of {all} crossovers of trainings were predicted within {within:share}.",
    "unseen": "{device}, first measured after trainings last shaped a rule ({since}): "
    "median error {median:share}, mean {mean:share} of {count}.",
    "all seen": "No training was first measured since trainings last shaped a rule ({since}).",
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
_STEP = "model | batch | device | execution"
_NUMBERS = " | predicted ms | measured ms | error"


def _both(s: Summary | None) -> str:
    """`8.4 %, 13 %`: median and mean error; `-` for None."""
    return f"{share(s.median)}, {share(s.mean)}" if s else "-"


def _said(name: str, found: Iterable[tuple[str, float]], **words: object) -> list[str]:
    """A sentence a device: median and mean of the errors found. found: (device, error) pairs."""
    told = []
    for device, own in sorted(group_by(found, lambda one: one[0]).items()):
        each = [error for _, error in own]
        middle = {"median": statistics.median(each), "mean": statistics.fmean(each), "count": count(len(each), "step")}
        told.append(say(SAID[name], device=NAMES[device], **middle, **words))
    return told


def errors(cases: list[Case], strict: Iterable[Case]) -> Table:
    """The error table, a line a device and bound, with the errors of simpler predictions (BASELINES) beside."""
    alone = {(s.device, s.bound): s for s in held_out.summaries(strict)}
    rows = []
    for s in held_out.summaries(cases):
        means = _both(s), _both(alone.get((s.device, s.bound)))
        simpler = [share(s.baselines[name]) if name in s.baselines else "-" for name in BASELINES]
        rows.append((NAMES[s.device], s.bound, s.models, s.cases, *means, share(s.covered), *simpler))
    heads = "device | steps | models | trainings | median, mean error | strictly | in the interval"
    return Table([*heads.split(" | "), *BASELINES], rows, 2, "strictly", "in the interval")


def lines(of: Profile) -> list[str | Table]:
    """The whole page: the part that is in docs (`brief`), then every training and crossover."""
    cases = held_out.leave_one_out(of)
    reasons = "; ".join(f"{n} ({why})" for why, n in calibration.left_out(of).items())
    told = [*brief(of, cases), "", say(SAID["left out"], reasons=reasons), "", _cases(cases)]
    return [*told, "", found] if (found := crossovers(comparisons(of))).rows else told


def brief(of: Profile, cases: list[Case], saved: dict[str, list[Prediction]] | None = None) -> list[str | Table]:
    """The part that is in docs: the error table, what it counts, and the errors of saved predictions."""
    told = [[counts(cases, of)], unseen(cases, of), saved_lines(saved or {}, of), crossings(comparisons(of))]
    shown = errors(cases, held_out.strictly(cases, of))
    return [SAID["head"], "", shown, *(line for found in told if found for line in ("", " ".join(found)))]


def _cases(cases: Iterable[Case]) -> Table:
    """A table of every training: what bounds its step, predicted and measured seconds, and the error. The prediction contains
    data-set setup where the measured step does."""
    rows = []
    for c in sorted(
        cases, key=lambda c: (c.device, c.predicted.execution, c.seen.row.problem.model, c.seen.row.problem.batch)
    ):
        model, *rest = held_out.training_of(c.predicted)
        given = {n: t for n, t in c.seen.row.settings.switches.items() if n not in ("data", "jit_compile")}
        name = model + "".join(f" {n}={t}" for n, t in given.items())
        rows.append((name, *rest, c.bound, *_numbers(c.seconds, c.seen)))
    return Table(f"{_STEP} | steps{_NUMBERS}", rows, least="execution")


def _numbers(predicted: Estimate, seen: Seen) -> tuple[str, str, str]:
    """Predicted, measured, and the signed error."""
    return _ms(predicted), _ms(seen.step), change(predicted.value / seen.step.value - 1, places=0)


def _ms(e: Estimate) -> str:
    return f"{1e3 * e.value:.3g} ({1e3 * e.low:.3g} to {1e3 * e.high:.3g})"


def crossings(found: list[Comparison]) -> list[str]:
    """A sentence: how many measured crossovers were predicted within WITHIN; [] where none was measured."""
    near = [b.error <= WITHIN for b in found if b.error is not None]
    return [say(SAID["crossings"], near=sum(near), all=len(near), within=WITHIN)] if near else []


def crossovers(found: Iterable[Comparison]) -> Table:
    """A table of crossovers of trainings, measured and predicted. Where a prediction can't tell: where its likeliest times
    cross."""
    rows = []
    for b in found:
        off = "-" if b.error is None else "one has none" if math.isinf(b.error) else percent(b.error)
        told = _place(b.predicted)
        if b.error is not None and len(b.predicted.crossings) != 1 and (cross := values_cross(b.predicted)):
            told += f" (values cross at {number(cross)})"
        model = dict(b.measured.family.fixed)["model"]
        rows.append((model, b.varies, b.by, _place(b.measured), told, off, percent(max(b.regrets))))
    heads = "model | along | by | measured | predicted | off by | most lost by following it"
    return Table(heads, rows, 5)


def _place(a: Answer) -> str:
    """`GPU from 12.0`, by the likeliest times; `GPU throughout`, `can't tell`."""
    throughout = {"gpu-at-smallest": "GPU throughout", "cpu-throughout": "CPU throughout"}.get(a.kind, CANT_TELL)
    return ", ".join(f"{NAMES[c.to]} from {number(c.at.value)}" for c in a.crossings) or throughout


def unseen(cases: list[Case], of: Profile) -> list[str]:
    """The errors of trainings first measured after the last change of a rule (RULES_CHANGED), a sentence a device."""
    late = held_out.unseen(cases, of)
    since = {"since": RULES_CHANGED[:10]}
    return _said("unseen", ((c.device, c.error) for c in late), **since) or [say(SAID["all seen"], **since)]


def counts(cases: list[Case], of: Profile) -> str:
    """A sentence: how many steps are in the table, and how many of them are too noisy for the fit."""
    wide = sum(not c.seen.told for c in cases)
    words = {"steps": len(cases), "trainings": len(of.trainings), "wide": wide, "noisy": calibration.NOISY}
    return say(SAID["counts"], numbers=calibration.fitted_numbers(of), **words)


def check_lines(predictions: Iterable[Prediction], of: Profile) -> list[str | Table]:
    """A table of predictions beside the steps measured since, then the errors of each device."""
    rows, found = [], []
    for p, seen in held_out.with_measured(predictions, of):
        told = _numbers(p.step_s, seen) if seen else (_ms(p.step_s), "not measured", "")
        rows.append((*held_out.training_of(p), *told))
        found += [(p.settings.device, held_out.saved_error(p, seen))] if seen else []
    said = _said("checked", found) if found else [SAID["none"]]
    return [Table(_STEP + _NUMBERS, rows, least="execution"), "", *said]


def saved_lines(sets: dict[str, list[Prediction]], of: Profile) -> list[str]:
    """The errors of all predictions that were saved before they were measured, those of a straight line beside them, device by
    device; nothing where none was."""
    lines = []
    for summary in held_out.saved_summaries(sets.values(), of):
        steps = count(summary.steps, "step")
        errors = {"median": summary.median, "mean": summary.mean, "covered": summary.covered}
        lines.append(say(SAID["saved"], device=NAMES[summary.device], count=steps, **errors))
        if summary.line:
            errors = {"median": summary.line_median, "mean": summary.line_mean, "nearer": summary.nearer}
            lines.append(say(SAID["line"], line=summary.line, count=steps, **errors))
    before = sum(held_out.saved_set(predictions, of).before for predictions in sets.values())
    if before and lines:
        lines.append(say(SAID["before"], count=before))
    return lines
