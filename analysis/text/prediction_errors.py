"""Errors of predictions in tables and words: of every training with its model left out, of predictions that were saved before
they were measured, and without each rule in turn."""

import statistics
from collections.abc import Iterable

from analysis.predict import calibration, held_out, predicted_crossover
from analysis.predict.calibration import Seen
from analysis.predict.held_out import BASELINES, Case
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.step_work import RULES, RULES_CHANGED
from analysis.stats import Estimate, group_by
from analysis.table import table
from analysis.text.sentences import NAMES, say, share
from analysis.units import count

SAID = {
    "head": "Every training is predicted with all trainings of its model left out of the calibration. Strictly: also without "
    "rows of its layers' shapes and trainings of its twins. Twins have the same layers and optimizer under another name.",
    "nothing": "No training in this profile tells its step: measure some with: python -m workloads.training --study seeds",
    "crossings": "{near} of {all} crossovers of trainings were predicted within {within:share}.",
    "unseen": "{device}, first measured after trainings last shaped a rule ({since}): {errors} of {count} steps.",
    "saved": "{device}, saved before they were measured: {errors} of {count} steps.",
    "before": "{count} that had been measured before do not count.",
    "checked": "{device}: {errors} of {count} steps.",
    "floor": "On the {device} steps differ by {between:share} (standard deviation) between processes, {within:share} within one.",
    "counts": "All {steps} steps of {trainings} trainings count in full. {wide} are noisier than {noisy:share} and fit nothing. "
    "{numbers} numbers are fitted on other models' trainings. {bounds} steps are of short fits, with data-set setup in them.",
    "left out": "Not in it: {reasons}.",
    "elsewhere": "Rows of {trainings} are here, but not the microbenchmarks of their machine. Give its whole folder, such as "
    "reports/nvidia-h200.",
    "none": "None of them was measured in these runs.",
    "short": "A step of short fits has data-set setup in it, and so has its prediction where that was saved.",
}
_STEP = "model | batch | device | execution"
_NUMBERS = " | predicted ms | measured ms | error"


def _both(errors: Iterable[float]) -> str:
    """`8.4 %, 13 %`: median and mean; `-` of none."""
    errors = list(errors)
    return f"{share(statistics.median(errors))}, {share(statistics.fmean(errors))}" if errors else "-"


def _said(name: str, found: Iterable[tuple[str, float]], **words: object) -> list[str]:
    """A sentence a device on the errors found: (device, error)."""
    groups = group_by(found, lambda one: one[0])
    each = {NAMES[device]: [error for _, error in own] for device, own in sorted(groups.items())}
    told = {device: f"median error {_both(own).replace(', ', ', mean ')}" for device, own in each.items()}
    return [say(SAID[name], device=d, errors=words_, count=len(each[d]), **words) for d, words_ in told.items()]


def errors(cases: list[Case], strict: Iterable[Case]) -> list[str]:
    """The error table as Markdown, a line a device and bound, and what simpler predictions come to."""
    alone = {(s.device, s.bound): s for s in held_out.summaries(strict)}
    rows = []
    for s in held_out.summaries(cases):
        less = alone.get((s.device, s.bound))
        means = [f"{share(one.median)}, {share(one.mean)}" if one else "-" for one in (s, less)]
        simpler = [share(s.baselines[name]) if name in s.baselines else "-" for name in BASELINES]
        rows.append((NAMES[s.device], s.bound, s.models, s.cases, *means, share(s.covered), *simpler))
    heads = "device | steps | models | trainings | median, mean error | strictly | in the interval"
    return table([*heads.split(" | "), *BASELINES], rows, 2, "strictly")


def lines(of: Profile, ablated: bool = True) -> list[str]:
    """The whole page: what docs have, how far processes lie apart, every training, and what each rule is worth."""
    cases = held_out.leave_one_out(of)
    if not cases:
        return [SAID["nothing"]]
    reasons = "; ".join(f"{n} ({why})" for why, n in calibration.left_out(of).items())
    said = [*brief(of, cases), "", say(SAID["left out"], reasons=reasons), *floors(of), "", *_cases(cases)]
    return [*said, *(["Without one rule at a time:", "", *_ablations(of, cases)] if ablated else [])][:-1]


def brief(of: Profile, cases: list[Case], saved: dict[str, list[Prediction]] | None = None) -> list[str]:
    """The error table, what is in it, and the errors of saved predictions: what docs have."""
    told = [[counts(cases, of)], unseen(cases, of), saved_lines(saved or {}, of), crossings(of)]
    shown = errors(cases, held_out.strictly(cases, of))
    return [SAID["head"], "", *shown, *(line for found in told if found for line in (" ".join(found), ""))][:-1]


def _cases(cases: Iterable[Case]) -> list[str]:
    """Every training: predicted (with the samples' share where the measured step has it), measured, error and what its step is
    bound by."""
    rows = []
    for c in cases:
        p, problem = c.predicted, c.seen.row.problem
        given = {n: t for n, t in c.seen.row.settings.switches.items() if n not in ("data", "jit_compile")}
        name = p.training.model + "".join(f" {n}={t}" for n, t in given.items())
        order = c.device, p.execution, problem.model, problem.batch
        rows.append((order, (name, p.training.batch, c.device, p.execution, c.bound, *_numbers(c.seconds, c.seen))))
    return table(f"{_STEP} | steps{_NUMBERS}", (row for _, row in sorted(rows, key=lambda one: one[0])), 1)


def _numbers(predicted: Estimate, seen: Seen) -> tuple[str, str, str]:
    """Predicted, measured, and the signed error."""
    return _ms(predicted), _ms(seen.step), f"{100 * (predicted.value / seen.step.value - 1):+.0f} %"


def _ms(e: Estimate) -> str:
    return f"{1e3 * e.value:.3g} ({1e3 * e.low:.3g} to {1e3 * e.high:.3g})"


def _ablations(of: Profile, cases: list[Case]) -> list[str]:
    """A line a rule: the median and mean error of each device without it."""
    devices = list(dict.fromkeys(c.device for c in cases))
    without = {"(all rules)": cases} | {w: held_out.leave_one_out(of.without(rule)) for rule, w in RULES.items()}
    rows = [
        (words, *(_both(c.error for c in found if c.device == d) for d in devices)) for words, found in without.items()
    ]
    return table(["without", *(f"{d}: median, mean error" for d in devices)], rows)


def crossings(of: Profile) -> list[str]:
    """How many measured crossovers were predicted near enough; nothing where none was measured."""
    found, within = predicted_crossover.comparisons(of), predicted_crossover.WITHIN
    near = [b.error <= within for b in found if b.error is not None]
    return [say(SAID["crossings"], near=sum(near), all=len(near), within=within)] if near else []


def unseen(cases: list[Case], of: Profile) -> list[str]:
    """The errors of trainings that no rule was made on, a sentence a device."""
    late = held_out.unseen(cases, of)
    return _said("unseen", ((c.device, c.error) for c in late), since=RULES_CHANGED[:10])


def floors(of: Profile) -> list[str]:
    """How far single processes of a training lie apart, beside each one's own noise; a sentence a device."""
    each = {device: held_out.apart(of, device) for device in of.devices}
    return [say(SAID["floor"], device=NAMES[d], between=e.between, within=e.within) for d, e in each.items() if e]


def counts(cases: list[Case], of: Profile) -> str:
    """How many trainings are in the table, and how many of them fit nothing."""
    wide, bounds = sum(not c.seen.told for c in cases), sum(c.seen.bound for c in cases)
    words = {"steps": len(cases), "trainings": len(of.trainings), "wide": wide, "noisy": calibration.NOISY}
    return say(SAID["counts"], numbers=calibration.fitted_numbers(of), bounds=bounds, **words)


def check_lines(predictions: Iterable[Prediction], of: Profile) -> list[str]:
    """Predictions beside the steps that were measured since, a line each, then the errors of each device."""
    rows, found = [], []
    for p, seen in held_out.with_measured(predictions, of):
        told = _numbers(seen.as_told(p.cost), seen) if seen else (_ms(p.step_s), "not measured", "")
        rows.append((*held_out.training_of(p), *told))
        found += [(p.settings.device, held_out.saved_error(p, seen))] if seen else []
    shown = table(_STEP + _NUMBERS, rows)
    if found:
        return [*shown, SAID["short"], "", *_said("checked", found)]
    here = {(m.problem.model, m.problem.batch, m.device) for m in of.trainings}
    known = sum((row[0], row[1], row[2]) in here for row in rows)
    return [*shown, say(SAID["elsewhere" if known else "none"], trainings=count(known, "training"))]


def saved_lines(sets: dict[str, list[Prediction]], of: Profile) -> list[str]:
    """The errors of all predictions that were saved before they were measured, a sentence a device; nothing where none was."""
    found = [held_out.saved_set(predictions, of) for predictions in sets.values()]
    since = ((d, held_out.saved_error(*pair)) for one in found for d, pairs in one.since.items() for pair in pairs)
    said = _said("saved", since)
    before = sum(one.before for one in found)
    return said + [say(SAID["before"], count=before)] * bool(before and said)
