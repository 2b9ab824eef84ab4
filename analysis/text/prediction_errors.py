"""Errors of predictions in tables and words: of every training with its model left out, of predictions that were saved before
they were measured, and without each rule in turn.
"""

import statistics
from collections.abc import Iterable, Iterator

import msgspec

from analysis.predict import calibration, predicted_crossover
from analysis.predict.calibration import Seen
from analysis.predict.held_out import (
    BASELINES,
    TARGETS,
    Case,
    Summary,
    apart,
    first_measured,
    leave_one_out,
    off,
    strictly,
    summaries,
    training_of,
    unseen,
)
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.step_work import RULE_WORDS, RULES, RULES_CHANGED
from analysis.stats import Estimate
from analysis.table import line
from analysis.units import count, percent

DEVICES = {"cpu": "CPU", "gpu:0": "GPU"}
_ERRORS = ("device", "steps", "models", "trainings", "median error", "mean error")
_APART = ("between", "within")
STRICTLY = (
    "The same without rows of products and convolutions of its own layers' shapes at any batch, and without trainings of its "
    "twins (the same layers and optimizer under another name):"
)
_SAID = {
    "reached": "{steps} steps: median error {median}, mean {mean}, both within the targets.",
    "missed": "{steps} steps: median error {median}, mean {mean}, not within the targets.",
    "simpler": "The best simpler prediction ({best}) has a median error of {error}.",
    "crossings": "{near} of {all} crossovers of trainings were predicted within {within}.",
    "unseen": "First measured after trainings last shaped a rule ({since}), {device}: median error {errors} of {count} steps.",
    "saved": "Saved before they were measured, on the {device}: median error {errors} of {count} steps.",
    "floor": "On the {device} steps differ by {between} (standard deviation) between processes, {within} within one.",
    "counts": "All {steps} steps of {trainings} trainings count in full. {wide} are noisier than {noisy} and fit nothing.",
    "fitted": "{numbers} numbers are fitted on other models' trainings.",
    "bounds": "{bounds} steps are of short fits, with data-set setup in them.",
}
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
        "in the interval",
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
            percent(s.covered),
            *(percent(s.baselines[n]) if n in s.baselines else "-" for n in BASELINES),
        )
        for s in found
    ]
    return _table(heads, rows)


def case_table(cases: Iterable[Case]) -> list[str]:
    """Every training: predicted (with the samples' share where the measured step has it), measured, error and what its step is
    bound by."""
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
    """The signed error."""
    return f"{100 * (predicted / seen.step.value - 1):+.0f} %"


def _ms(e: Estimate) -> str:
    return f"{1e3 * e.value:.3g} ({1e3 * e.low:.3g} to {1e3 * e.high:.3g})"


def ablations(of: "Profile", cases: list[Case]) -> list[str]:
    """A line a rule: the median and mean error of each device without it."""
    devices = list(dict.fromkeys(c.device for c in cases))
    without = {"(all rules)": cases} | {w: leave_one_out(of, RULES - {rule}) for rule, w in RULE_WORDS.items()}
    rows = [(words, *(_errors(found, d) for d in devices)) for words, found in without.items()]
    return _table(("without", *(f"{d}: median, mean error" for d in devices)), rows)


def _errors(cases: Iterable[Case], device: str) -> str:
    return median_mean(c.error for c in cases if c.device == device)


def median_mean(errors: Iterable[float]) -> str:
    """`8.43 %, 13.5 %`; `-` of none."""
    errors = list(errors)
    return f"{percent(statistics.median(errors))}, {percent(statistics.fmean(errors))}" if errors else "-"


def verdicts(found: Iterable[Summary]) -> list[str]:
    """Whether each device's errors are within the targets, and half of the best baseline's: a sentence a line."""
    said = []
    for s in found:
        best = min(s.baselines.items(), key=lambda item: item[1], default=None)
        reached = s.median <= TARGETS["median"] and s.mean <= TARGETS["mean"]
        words = {
            "steps": f"{DEVICES.get(s.device, s.device)}, {s.bound}",
            "median": percent(s.median),
            "mean": percent(s.mean),
        }
        said.append(_SAID["reached" if reached else "missed"].format(**words))
        if best:
            said.append(_SAID["simpler"].format(best=best[0], error=percent(best[1])))
    return said


def lines(of: "Profile", ablated: bool = True) -> list[str]:
    """The whole page: errors by device and bound, verdicts, every training, and what each rule is worth."""
    cases = leave_one_out(of)
    if not cases:
        return [
            "No training in this profile tells its step: measure some with: python -m workloads.training --study seeds"
        ]
    found, strict = summaries(cases), strictly(cases, of)
    said = [
        "Every training predicted with all trainings of its model left out of the calibration:",
        "",
        *table(found),
        "",
        STRICTLY,
        "",
        *table(summaries(strict)),
        "",
        *verdicts(found),
        "",
        *counts(cases, of),
        unseen_line(cases, of),
        *floors(of),
        "",
        *case_table(cases),
    ]
    return [*said, "", "Without one rule at a time:", "", *ablations(of, cases)] if ablated else said


def brief(of: "Profile", saved: dict[str, list[Prediction]] | None = None) -> list[str]:
    """The error table in a few columns, what is in it, and the errors of saved predictions: what a README has."""
    cases = leave_one_out(of)
    strict = {(s.device, s.bound): s for s in summaries(strictly(cases, of))}
    rows = []
    for s in summaries(cases):
        name, best = min(s.baselines.items(), key=lambda item: item[1], default=("", None))
        beside = "-" if best is None else f"{percent(best)} ({name})"
        alone = strict.get((s.device, s.bound))
        less = f"{percent(alone.median)}, {percent(alone.mean)}" if alone else "-"
        device = DEVICES.get(s.device, s.device)
        rows.append((device, s.bound, s.models, s.cases, f"{percent(s.median)}, {percent(s.mean)}", less, beside))
    heads = (*_ERRORS[:4], "median, mean error", "without its layers' shapes and twins", "best simpler one's median")
    said = [counts(cases, of)[0], unseen_line(cases, of), saved_line(saved or {}, of), crossing_line(of)]
    return [*_table(heads, rows), *(line for sentence in said if sentence for line in ("", sentence))]


def crossing_line(of: "Profile") -> str:
    """How many measured crossovers were predicted near enough; "" where none was measured."""
    errors = [b.error for b in predicted_crossover.comparisons(of) if b.error is not None]
    near, within = sum(e <= predicted_crossover.WITHIN for e in errors), percent(predicted_crossover.WITHIN)
    return _SAID["crossings"].format(near=near, all=len(errors), within=within) if errors else ""


def unseen_line(cases: list[Case], of: "Profile") -> str:
    """The errors of trainings that no rule was made on; "" without any."""
    late = unseen(cases, of)
    return " ".join(
        _SAID["unseen"].format(
            since=RULES_CHANGED[:10],
            device=DEVICES.get(d, d),
            errors=_errors(late, d).replace(", ", ", mean "),
            count=sum(c.device == d for c in late),
        )
        for d in dict.fromkeys(c.device for c in late)
    )


def floors(of: "Profile") -> list[str]:
    """How far single processes of a training lie apart, beside each one's own noise; a sentence a device."""
    said = []
    for device in of.devices:
        if each := apart(of, device):
            between, within = (percent(statistics.median(getattr(one, name) for one in each)) for name in _APART)
            said.append(_SAID["floor"].format(device=DEVICES.get(device, device), between=between, within=within))
    return said


def counts(cases: list[Case], of: "Profile") -> list[str]:
    """How many trainings are in the table, how many of them fit nothing, and why others are not in it."""
    wide = sum(not c.seen.told for c in cases)
    bounds = sum(c.seen.bound for c in cases)
    counted = {"steps": len(cases), "trainings": len(of.trainings), "wide": wide, "noisy": percent(calibration.NOISY)}
    numbers = _SAID["fitted"].format(numbers=calibration.fitted_numbers(of))
    said = f"{_SAID['counts'].format(**counted)} {numbers} {_SAID['bounds'].format(bounds=bounds)}"
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
        step = seen.as_told(p.cost)
        both = step.value, step.value if p.setup_s.value else step.value + seen.setup().value
        inside, more = step.value - p.step_s.value, both[1] - both[0]
        share = f"{1e3 * inside:.3g} in it" if inside else f"{1e3 * more:.3g} to add" if more else "-"
        rows.append((*what, _ms(step), share, _ms(seen.step), *(_off(seconds, seen) for seconds in both)))
        found.setdefault(p.settings.device, []).append((*both, seen))
    heads = "predicted ms", "samples' share ms", "measured ms", "error", "with the samples' share"
    lines = _table((*_STEP, *heads), rows)
    if not found:
        here = {(m.problem.model, m.problem.batch, m.device) for m in of.trainings}
        known = sum((p.training.model, p.training.batch, p.settings.device) in here for p in predictions)
        why = "None of them was measured in these runs."
        if known:
            why = (
                f"Rows of {count(known, 'training')} are here, but not the microbenchmarks of their machine. Give its whole "
                "folder, such as reports/nvidia-h200."
            )
        return [*lines, "", why]
    about = "A step of short fits has data-set setup in it. Where the prediction has none, the last column adds it (to add)."
    told = [_checked(device, [(e[i], e[2]) for e in each], i == 1) for device, each in found.items() for i in (0, 1)]
    return [*lines, "", about, "", *told]


def _measured(predictions: Iterable[Prediction], of: "Profile") -> "Iterator[tuple[Prediction, Seen | None]]":
    """Each prediction with the step that was measured of it, as it is by default where it was in several ways."""
    rows = {}
    for s in sorted(calibration.steps_seen(of, RULES), key=lambda s: len(s.made.given), reverse=True):
        rows[s.row.problem.model, s.row.problem.batch, s.row.device, s.made.execution] = s
    for p in predictions:
        yield p, rows.get(training_of(p))


class Saved(msgspec.Struct, frozen=True):
    """A set of saved predictions beside what was measured: how many there are, how many had been measured before they were saved,
    and device -> the (prediction, measured step) of those measured since."""

    predictions: int
    before: int
    since: "dict[str, list[tuple[Prediction, Seen]]]"


def saved_set(predictions: list[Prediction], of: "Profile") -> Saved:
    """Saved predictions beside the steps that were measured since."""
    at, before = first_measured(of), 0
    since: dict[str, list[tuple[Prediction, Seen]]] = {}
    for p, seen in _measured(predictions, of):
        if seen is None:
            continue
        if p.saved_at and at[training_of(p)] < p.saved_at:
            before += 1
        else:
            since.setdefault(p.settings.device, []).append((p, seen))
    return Saved(len(predictions), before, since)


def saved_error(p: Prediction, seen: "Seen") -> float:
    """The relative error of a saved prediction."""
    return off(seen.as_told(p.cost).value, seen.step.value)


def saved_line(sets: dict[str, list[Prediction]], of: "Profile") -> str:
    """The errors of all predictions that were saved before they were measured, a sentence; "" where none was measured."""
    found = [saved_set(predictions, of) for predictions in sets.values()]
    errors = {d: [saved_error(*pair) for one in found for pair in one.since.get(d, [])] for d in of.devices}
    said = [
        _SAID["saved"].format(
            device=DEVICES.get(d, d), errors=median_mean(e).replace(", ", ", mean "), count=f"{len(e)}"
        )
        for d, e in sorted(errors.items())
        if e
    ]
    before = sum(one.before for one in found)
    less = [f"{before} that had been measured before do not count."] if before and said else []
    return " ".join([*said, *less])


def _checked(device: str, found: "list[tuple[float, Seen]]", shared: bool) -> str:
    """The errors of a device's predictions in words; `shared`: with the samples' share."""
    errors = [off(predicted, seen.step.value) for predicted, seen in found]
    said = (
        f"median error {percent(statistics.median(errors))}, mean {percent(statistics.fmean(errors))} of {len(errors)}"
    )
    return f"{device}" + (", with the samples' share" if shared else "") + f": {said}."
