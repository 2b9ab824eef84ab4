"""Errors of predictions in tables and words: of every training with its model left out, of predictions that were saved before
they were measured, and without each rule in turn.
"""

import statistics
from collections.abc import Iterable, Iterator

from analysis.predict import calibration
from analysis.predict.calibration import Seen
from analysis.predict.held_out import (
    BASELINES,
    TARGETS,
    WORK,
    Case,
    Summary,
    apart,
    beyond,
    leave_one_out,
    off,
    summaries,
)
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.step_work import RULE_WORDS, RULES
from analysis.stats import NOTHING, Estimate
from analysis.table import line
from analysis.units import count, percent

DEVICES = {"cpu": "CPU", "gpu:0": "GPU"}
_ERRORS = ("device", "steps", "models", "trainings", "median error", "mean error")
_STEP = ("model", "batch", "device", "execution")
_WORDS = ("device", "steps", "model", "execution", "without")  # the columns that are not numbers


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    heads = list(heads)
    marks = ["---" if head in _WORDS else "---:" for head in heads]
    return [line(heads), line(marks), *(line(map(str, row)) for row in rows)]


def table(found: Iterable[Summary]) -> list[str]:
    """The error table as Markdown, a line a device and bound."""
    heads = (
        *_ERRORS,
        "known less well",
        "median, mean of all",
        "in the interval",
        "noise floor",
        "counted from the floor",
        *BASELINES,
    )
    rows = [
        (
            s.device,
            s.bound,
            s.models,
            s.cases,
            percent(s.median),
            percent(s.mean),
            s.wide,
            f"{percent(s.every[0])}, {percent(s.every[1])}",
            percent(s.covered),
            percent(s.floor) if s.floor is not None else "-",
            f"{percent(s.counted[0])}, {percent(s.counted[1])}" if s.floor is not None else "-",
            *(percent(s.baselines[n]) if n in s.baselines else "-" for n in BASELINES),
        )
        for s in found
    ]
    return _table(heads, rows)


def case_table(cases: Iterable[Case]) -> list[str]:
    """Every training: predicted (with the samples' share where the measured step has it), measured, error and what its step is
    bound by; where the step is known less well, how far the prediction lies beyond what was measured."""
    rows = []
    for c in sorted(
        cases, key=lambda c: (c.device, c.predicted.execution, c.seen.row.problem.model, c.seen.row.problem.batch)
    ):
        p = c.predicted
        given = {n: t for n, t in c.seen.row.settings.switches.items() if n not in ("data", "jit_compile")}
        name = p.training.model + "".join(f" {n}={t}" for n, t in given.items())
        told = _ms(c.seconds), _ms(c.seen.step), _off(c.seconds.value, c.seen)
        rows.append((name, p.training.batch, c.device, p.execution, c.bound, *told))
    return _table((*_STEP, "steps", "predicted ms", "measured ms", "error"), rows)


def _off(predicted: float, seen: "Seen") -> str:
    """The signed error; of a step that is known less well, what of it is beyond its interval."""
    signed = f"{100 * (predicted / seen.step.value - 1):+.0f} %"
    if seen.told:
        return signed
    outside = beyond(predicted, seen.step)
    return f"{signed}, {f'{100 * outside:.0f} % beyond' if outside else 'inside'}"


def _ms(e: Estimate) -> str:
    return f"{1e3 * e.value:.3g} ({1e3 * e.low:.3g} to {1e3 * e.high:.3g})"


def ablations(of: "Profile", cases: list[Case]) -> list[str]:
    """A line a rule: the median and mean error of each device without it."""
    devices = list(dict.fromkeys(c.device for c in cases))
    without = {"(all rules)": cases} | {w: leave_one_out(of, RULES - {rule}) for rule, w in RULE_WORDS.items()}
    rows = [(words, *(_errors(found, d) for d in devices)) for words, found in without.items()]
    return _table(("without", *(f"{d}: median, mean error" for d in devices)), rows)


def _errors(cases: Iterable[Case], device: str) -> str:
    errors = [c.error for c in cases if c.device == device and c.seen.told]
    return f"{percent(statistics.median(errors))}, {percent(statistics.fmean(errors))}" if errors else "-"


def verdicts(found: Iterable[Summary]) -> list[str]:
    """Whether each device's errors are within the targets, and half of the best baseline's: a sentence a line."""
    said = []
    for s in found:
        best = min(s.baselines.items(), key=lambda item: item[1], default=None)
        reached = s.median <= TARGETS["median"] and s.mean <= TARGETS["mean"]
        beside = f"; {best[0]}, the best simpler one, {percent(best[1])}" if best else ""
        half = " (more than half of that)" if best and s.median > best[1] / 2 else ""
        said.append(
            f"{s.device}, {s.bound}: median {percent(s.median)}, mean {percent(s.mean)}: "
            f"{'within' if reached else 'not within'} {percent(TARGETS['median'])} and {percent(TARGETS['mean'])}"
            f"{_from_the_floor(s)}{beside}{half}."
        )
    return said


def _from_the_floor(s: Summary) -> str:
    """The same with errors below twice the floor as none, where one was measured."""
    if s.floor is None:
        return ""
    reached = s.counted[0] <= TARGETS["median"] and s.counted[1] <= TARGETS["mean"]
    return (
        f"; with those below twice the floor of five processes, {percent(s.floor)}, as none {percent(s.counted[0])} and "
        f"{percent(s.counted[1])}: {'within' if reached else 'not within'}"
    )


def lines(of: "Profile", ablated: bool = True) -> list[str]:
    """The whole page: errors by device and bound, verdicts, every training, and what each rule is worth."""
    cases = leave_one_out(of)
    if not cases:
        return [
            "No training in this profile tells its step: measure some with: python -m workloads.training --study seeds"
        ]
    found = summaries(cases, of)
    said = [
        "Every training predicted with all trainings of its model left out of the calibration:",
        "",
        *table(found),
        "",
        *verdicts(found),
        "",
        *counts(cases, of),
        "",
        *case_table(cases),
    ]
    return [*said, "", "Without one rule at a time:", "", *ablations(of, cases)] if ablated else said


def brief(of: "Profile", saved: dict[str, list[Prediction]] | None = None) -> list[str]:
    """The error table in a few columns, what is in it, and the errors of sets of saved predictions: what a README has."""
    cases = leave_one_out(of)
    found = summaries(cases, of)
    rows = []
    for s in found:
        name, best = min(s.baselines.items(), key=lambda item: item[1], default=("", None))
        beside = "-" if best is None else f"{percent(best)} ({name})"
        device = DEVICES.get(s.device, s.device)
        rows.append((device, s.bound, s.models, s.cases, percent(s.median), percent(s.mean), beside))
    bounds = {(s.device, s.bound) for s in found}
    alone = leave_one_out(of, RULES - {"calibrated"})
    by = [f"{DEVICES.get(d, d)} {_errors(alone, d)}" for d in dict.fromkeys(c.device for c in alone)]
    said = [
        f"No step on the {DEVICES.get(d, d)} that is known well enough is work-bound."
        for d, bound in sorted(bounds)
        if bound == "all" and (d, WORK) not in bounds
    ]
    said += [
        "Without the four numbers that are fitted on the other models' trainings, from microbenchmarks alone, median and "
        f"mean are {'; '.join(by)}.",
        *floors(found, of),
        saved_line(saved or {}, of),
        counts(cases, of)[0],
    ]
    lines = _table((*_ERRORS, "best simpler prediction's median"), rows)
    return [*lines, *(line for sentence in said if sentence for line in ("", sentence))]


def floors(found: Iterable[Summary], of: "Profile") -> list[str]:
    """How far single processes of a training lie apart, and the errors beyond twice that; a sentence a device."""
    said = []
    for s in (s for s in found if s.bound == "all"):
        if not (each := apart(of, s.device)):
            continue
        between = percent(statistics.median(one.between for one in each))
        beyond_ = (
            f"{percent(s.floor)} of it beyond each one's own noise: with errors below twice that as none, the median is "
            f"{percent(s.counted[0])} and the mean {percent(s.counted[1])}"
            if s.floor is not None
            else f"no more than each one's own noise, {percent(statistics.median(one.within for one in each))}, makes: no "
            "error counts as none for it"
        )
        said += [
            f"On the {DEVICES.get(s.device, s.device)} the steps of five processes of a training have a standard deviation "
            f"of {between} ({count(len(each), 'training')}), {beyond_}."
        ]
    return said


def counts(cases: list[Case], of: "Profile") -> list[str]:
    """How many trainings are in the table, which of them count in full, and why the others are not in it."""
    told = sum(c.seen.told for c in cases)
    fed = sum(c.seen.with_feed for c in cases)
    said = (
        f"{len(cases)} steps of {len(of.trainings)} trainings: {told} known to {percent(calibration.NOISY)} or better, whose "
        f"errors count in full; {len(cases) - told} known less well, whose errors count from the end of the measured "
        f"interval and which fit nothing. Of {fed}, told by short fits, what a fit does for each step's samples is in the "
        "step, measured and predicted; what bounds a step is told without it."
    )
    return [said, "Not in it: " + "; ".join(f"{n} ({why})" for why, n in calibration.left_out(of).items()) + "."]


def check_lines(predictions: Iterable[Prediction], of: "Profile") -> list[str]:
    """Predictions beside the steps that were measured since, a line each, then the errors of each device. What is predicted has
    the samples' share in it where that was saved and the measured step has it."""
    predictions = list(predictions)
    rows: list[tuple] = []
    found: dict[str, list] = {}
    for p, seen in _measured(predictions, of):
        what = p.training.model, p.training.batch, p.settings.device, p.execution
        if seen is None:
            rows.append((*what, _ms(p.step_s), "", "not measured", "", ""))
            continue
        saved = p.told_by(seen.with_feed)
        both = saved, saved if p.held_s.value else saved + seen.feed().value
        held = p.held_s / p.training.steps if seen.with_feed else NOTHING
        inside, more = held.value, both[1] - saved
        share = f"{1e3 * inside:.3g} in it" if inside else f"{1e3 * more:.3g} to add" if more else "-"
        rows.append((*what, _ms(p.step_s + held), share, _ms(seen.step), *(_off(seconds, seen) for seconds in both)))
        found.setdefault(p.settings.device, []).append((*both, seen))
    heads = "predicted ms", "samples' share ms", "measured ms", "error", "with the samples' share"
    lines = _table((*_STEP, *heads), rows)
    if not found:
        here = {(m.problem.model, m.problem.batch, m.device) for m in of.trainings}
        known = sum((p.training.model, p.training.batch, p.settings.device) in here for p in predictions)
        why = "None of them was measured in these runs."
        if known:
            why = (
                f"Rows of {count(known, 'training')} of these are here, but not the microbenchmarks that say how they run: give "
                "the machine's whole folder, such as reports/nvidia-h200."
            )
        return [*lines, "", why]
    about = (
        "A step told by short fits has in it what a fit does for each step's samples before its first epoch; where that was "
        "not saved with the prediction, the last column adds what this profile says of it (to add)."
    )
    told = [_checked(device, [(e[i], e[2]) for e in each], i == 1) for device, each in found.items() for i in (0, 1)]
    return [*lines, "", about, "", *told]


def _measured(predictions: Iterable[Prediction], of: "Profile") -> "Iterator[tuple[Prediction, Seen | None]]":
    """Each prediction with the step that was measured of it, as it is by default where it was in several ways."""
    rows = {}
    for s in sorted(calibration.steps_seen(of, RULES), key=lambda s: len(s.made.given), reverse=True):
        rows[s.row.problem.model, s.row.problem.batch, s.row.device, s.made.execution] = s
    for p in predictions:
        yield p, rows.get((p.training.model, p.training.batch, p.settings.device, p.execution))


def saved_line(sets: dict[str, list[Prediction]], of: "Profile") -> str:
    """The errors of sets of predictions that were saved before they were measured, by their names, a sentence; "" where none was
    measured."""
    said = []
    for name, predictions in sets.items():
        found: dict[str, list[float]] = {}
        measured = [(p, seen) for p, seen in _measured(predictions, of) if seen is not None]
        for p, seen in measured:
            if seen.told:
                found.setdefault(p.settings.device, []).append(off(p.told_by(seen.with_feed), seen.step.value))
        each = [
            f"{DEVICES.get(d, d)} {percent(statistics.median(e))} in the median, {percent(statistics.fmean(e))} in the "
            f"mean of {len(e)}"
            for d, e in sorted(found.items())
        ]
        if each:
            said.append(f"{name} ({len(measured)} of {len(predictions)} measured) {' and '.join(each)}")
    about = (
        "Predictions written down before anything of their trainings was measured, each set by the predictor of its day"
    )
    return f"{about}: {'; '.join(said)}." if said else ""


def _checked(device: str, found: "list[tuple[float, Seen]]", shared: bool) -> str:
    """The errors of a device's predictions in words; `shared`: with the samples' share."""
    errors = [off(predicted, seen.step.value) for predicted, seen in found if seen.told]
    every = [off(p, s.step.value) if s.told else beyond(p, s.step) for p, s in found]
    wide = len(every) - len(errors)
    full = [
        f"median error {percent(statistics.median(errors))}, mean {percent(statistics.fmean(errors))} of {len(errors)}"
    ]
    less = (
        f"with {wide} known less well, counted from the end of what was measured: {percent(statistics.median(every))}, "
        f"{percent(statistics.fmean(every))} of {len(every)}"
    )
    said = "; ".join([*(full if errors else []), *([less] if wide else [])])
    return f"{device}" + (", with the samples' share" if shared else "") + f": {said}."
