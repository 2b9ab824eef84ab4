"""From stored rows: how far predictions of training times are off, and what else they are to reach."""

import contextlib
import io
import pathlib
import statistics
import sys
import time

import msgspec
import numpy as np
from must_reach import REPORTS, Figure, exactly, printed, table

from analysis.explain import __main__, evidence, published
from analysis.explain.sources import Sources
from analysis.predict import budget, calibration, prediction, profile, saved_predictions, what_if
from analysis.stats import Estimate, group_by
from analysis.training import costs
from analysis.units import percent
from kernels import networks
from tests.validation import error_tables, predicted_crossovers, prediction_errors
from workloads.records import Settings, published_cases
from workloads.records import settings as switches

RUN = REPORTS / "nvidia-h200"
MEDIAN, MEAN = 0.10, 0.15  # targets of the errors
CROSSED = 0.80  # of crossovers are to be predicted near enough
LOST, FOLLOWED = 0.05, 0.95  # following the prediction may lose this much, in so many cases
REMAINDER, MODELS_SHARE = 0.10, 0.8
SAVING, OF_STEP, TOP = 0.25, 0.03, 3
EXPLAIN_S, TURNS = 3.0, 3
FEWEST_PREDICTED = 10
DRAWS = 1000
ALONE = ", without its layers' shapes and twins"
GPU = "gpu:0"


def resampled(numbers: list[float], groups: list, of_=statistics.median) -> Estimate:
    """A statistic with its 95 % interval: whole groups (models) are drawn, as the cases of one hang together."""
    each = [[n for n, g in zip(numbers, groups, strict=True) if g == group] for group in dict.fromkeys(groups)]
    picks = np.random.default_rng(1).integers(0, len(each), (DRAWS, len(each)))
    drawn = np.sort([of_([n for i in row for n in each[i]]) for row in picks])
    value = float(of_(numbers))
    return Estimate(value, float(drawn[int(0.025 * DRAWS)]), float(drawn[int(0.975 * DRAWS) - 1]))


def share(hits: int, of_: int, what: str, wanted: float) -> Figure:
    """So many of so many, of which a share is to be reached."""
    reached = hits >= wanted * of_
    return Figure(f"{what} ({of_} cases)", f">= {percent(wanted)}", exactly(100 * hits / of_), reached, "%")


def both(errors: list[float], models: list[str], what: str) -> list[Figure]:
    """The median and the mean of errors, with what is to be reached."""
    found = []
    for name, wanted, statistic in (("median", MEDIAN, statistics.median), ("mean", MEAN, statistics.fmean)):
        e = resampled(errors, models, statistic)
        found.append(Figure(f"{name} error, {what}", f"<= {percent(wanted)}", e * 100, e.value <= wanted, "%"))
    return found


def errors(every: list[prediction_errors.GradedStep], words: str = "") -> list[Figure]:
    """Median and mean error of each device and bound, beside the best simpler prediction; every step in full."""
    found = []
    for s in prediction_errors.summaries(every):
        here = [c for c in every if c.device == s.device and s.bound in ("all", c.bound)]
        models = [c.model for c in here]
        what = f"{s.device}, {s.bound} steps ({s.steps} trainings of {s.models} models){words}"
        found += both([c.error for c in here], models, what)
        if s.baselines and not words:
            name, best = min(s.baselines.items(), key=lambda item: item[1])
            what = f"median error / that of the best simpler one ({name}, {percent(best)}), {s.device}, {s.bound}"
            found.append(Figure(what, "<= 0.5", exactly(s.median / best), s.median <= best / 2))
    return found


def strict(every: list[prediction_errors.GradedStep], of: profile.Profile) -> list[Figure]:
    """The errors without what is known of the model's own layers, and those of trainings that no rule was made on."""
    alone = [f for f in errors(prediction_errors.strictly(every, of), ALONE) if " all steps" in f.what]
    late = prediction_errors.measured_since_rules_changed(every, of)
    groups = group_by(late, lambda c: c.device)
    for device, group in groups.items():
        models = [c.model for c in group]
        what = f"{device}, {len(group)} trainings measured since the rules changed"
        alone += both([c.error for c in group], models, what)
    return alone


def saved(of: profile.Profile, folder: pathlib.Path) -> list[Figure]:
    """The errors of predictions that were saved before they were measured."""
    found = []
    for file in sorted(folder.glob("predictions-*.ndjson")):
        one = prediction_errors.saved_set(saved_predictions.load(str(file)), of)
        since = sum(map(len, one.since.values()))
        what = f"{file.name}: predictions measured since they were saved ({one.before} more had been before)"
        found.append(Figure(what, f">= {FEWEST_PREDICTED}", exactly(since), since >= FEWEST_PREDICTED))
        for device, pairs in one.since.items():
            errors = [one.error for one in pairs]
            models = [one.prediction.training.model for one in pairs]
            found += both(errors, models, f"of these as they were saved, {device} ({len(pairs)})")
    return found


def saved_beside_a_line(of: profile.Profile, folder: pathlib.Path) -> list[Figure]:
    """Of all saved predictions together: how many of their intervals held, and their errors beside a straight line's."""
    figures = []
    for s in prediction_errors.saved_summaries(prediction_errors.saved_sets(folder).values(), of):
        all_of_them = f"all saved predictions, {s.device} ({s.steps})"
        figures.append(printed(f"{all_of_them}: measured steps in the predicted interval", 100 * s.covered, "%"))
        figures.append(printed(f"{all_of_them}: median error", 100 * s.median, "%"))
        figures.append(printed(f"{all_of_them}: mean error", 100 * s.mean, "%"))
        if s.line:
            figures.append(printed(f"a straight line ({s.line}), {s.device}: median error", 100 * s.line_median, "%"))
            figures.append(printed(f"a straight line ({s.line}), {s.device}: mean error", 100 * s.line_mean, "%"))
            figures.append(printed(f"{all_of_them}: nearer than the line", s.nearer))
    return figures


def remainders(of: profile.Profile) -> list[Figure]:
    """Of how many models the budget leaves little of a step unexplained: by the middle of each one's steps that are known."""
    found = []
    for device in ("cpu", GPU):
        each: dict[str, list[float]] = {}
        for m in of.trainings:
            known = networks.known(m.problem.model) and switches.ordinary(m) and m.settings.device == device
            if known and m.kernel == budget.FIT and (made := budget.budget(m, of)).step.noise <= calibration.NOISY:
                each.setdefault(m.problem.model, []).append(abs(made.remainder.value) / made.step.value)
        if each:
            hits = sum(statistics.median(shares) <= REMAINDER for shares in each.values())
            name = f"models whose remainder is within {percent(REMAINDER)} of the step, {device}"
            found.append(share(hits, len(each), name, MODELS_SHARE))
    return found


def crossovers(of: profile.Profile) -> list[Figure]:
    made = predicted_crossovers.comparisons(of)
    off, regrets = [b.error for b in made if b.error is not None], [r for b in made for r in b.regrets]
    near = sum(e <= predicted_crossovers.WITHIN for e in off)
    what = f"crossovers predicted within {percent(predicted_crossovers.WITHIN)}"
    found = [share(near, len(off), what, CROSSED)] if off else []
    if regrets:
        what = f"cases in which following the prediction loses at most {percent(LOST)}"
        hits = sum(r <= LOST for r in regrets)
        found.append(share(hits, len(regrets), what, FOLLOWED))
    return found


def complaints(of: profile.Profile) -> tuple[list[Figure], list[str]]:
    """The verdicts on the complaints by rows alone; of those on trainings, whether the predicted winner is the same."""
    told, notes, agreed, asked = 0, [], 0, 0
    for c in published_cases.COMPLAINTS:
        if not c.reported:
            found = evidence.evidence(c, Sources(cpu=of, gpu=of), None)
            told += found is not None
            notes.append(f"- {c.name}: {'answered by its rows' if found else 'rows are missing'}")
            continue
        seen = [published.measured(r, of.measurements) for r in c.reported]
        told += all(seen)
        for reported, found in zip(c.reported, seen, strict=True):
            said = f"{found.faster} faster, the largest part {found.largest}" if found else "not measured"
            notes.append(f"- {c.name}, {reported.training.model}: reported {reported.faster}, here {said}")
            if found and found.faster != "neither":
                asked += 1
                agreed += winner(of, reported, found) == found.faster
    every = len(published_cases.COMPLAINTS)
    what = "complaints with a winner and a largest part as measured, no prediction asked"
    figures = [Figure(what, f"= {every}", exactly(told), told == every)]
    if asked:
        what = "of their trainings with a clear winner those whose winner was predicted"
        figures.append(share(agreed, asked, what, 1.0))
    return figures, notes


def winner(of: profile.Profile, reported: published_cases.Reported, found: published.Measured) -> str:
    """The device whose step is predicted to be the shorter one, its model left out."""
    training, batch = reported.training, found.batch
    training = msgspec.structs.replace(training, batch=batch, samples=max(training.samples, batch))
    cpu, gpu = (prediction.predict(training, Settings(d), of).step_s.value for d in ("cpu", GPU))
    return "gpu" if gpu < cpu else "cpu"


def what_ifs(of: profile.Profile) -> tuple[list[Figure], list[str]]:
    """What the best changes of each article's model save, predicted beside measured, where both ways were measured."""
    steps = measured_steps(of)
    hits, notes = [], []
    for (model, batch, device, given), (row, base) in steps.items():
        network = networks.known(model)
        if device != GPU or given or not (network and network.seed):
            continue
        made = prediction.predict(row.problem, row.settings, of)
        found = what_if.what_ifs(made, lambda t, s, kernel: prediction.predict(t, s, of, kernel=kernel))
        saving = [w for w in found if w.step_saved and w.step_saved.value and w.job_saved.value > 0]
        for change in saving[:TOP]:
            other = steps.get(key(change.change.training, change.change.settings))
            if other is None:
                continue
            real = base.value - other[1].value * batch / change.change.training.batch
            off = abs(change.step_saved.value - real)
            hits.append(off <= max(SAVING * abs(real), OF_STEP * base.value))
            notes.append(
                f"- {model} at batch {batch}, {change.change.words}: predicted to save "
                f"{1e3 * change.step_saved.value:.3g} ms of a step's work, measured {1e3 * real:.3g} of "
                f"{1e3 * base.value:.3g}."
            )
    what = "what-ifs whose saving is within 25 % or 3 % of the step"
    return ([share(sum(hits), len(hits), what, 1.0)] if hits else []), notes


def dropped(of: profile.Profile) -> tuple[list[Figure], list[str]]:
    """What dropping the smaller last batch saves, predicted beside measured: what its compilation took and a step an epoch."""
    hits, notes = [], []
    for m in of.trainings:
        last = m.phases_s.get("compile_last", 0)
        cost = costs.measured(m)
        own = m.settings.device == GPU and m.kernel == budget.FIT
        ours = networks.known(m.problem.model) and own and switches.ordinary(m)
        if not (ours and last and cost):
            continue
        made = prediction.predict(m.problem, m.settings, of)
        found = what_if.what_ifs(made, lambda t, s, kernel: prediction.predict(t, s, of, kernel=kernel))
        for change in (w for w in found if w.change.words.startswith("whole batches")):
            real, said = last + m.problem.epochs * cost.step.value, change.job_saved.value
            hits.append(abs(said - real) <= SAVING * real)
            notes.append(
                f"- {m.problem.model} at batch {m.problem.batch}, {m.problem.samples} samples, {change.change.words}: "
                f"predicted to save {said:.3g} s, measured {real:.3g} s."
            )
    what = "trainings whose smaller last batch, dropped, saves within 25 % of what was predicted"
    return ([share(sum(hits), len(hits), what, 1.0)] if hits else []), notes


def key(training, settings) -> tuple:
    """What two rows of the same step have in common."""
    given = {n: t for n, t in settings.switches.items() if n != "data"}
    return training.model, training.batch, settings.device, tuple(sorted(given.items()))


def measured_steps(of: profile.Profile) -> dict:
    """What rows have in common (`key`) -> (row, seconds of a step), of rows of the same the least noisy one."""
    found: dict = {}
    for m in of.trainings:
        cost = costs.measured(m) if switches.ordinary(m) else None
        if cost and cost.step.noise <= calibration.NOISY and "loop" not in m.kernel:
            at = key(m.problem, m.settings)
            found[at] = min(found.get(at, (m, cost.step)), (m, cost.step), key=lambda pair: pair[1].noise)
    return found


def explaining(run: pathlib.Path) -> Figure:
    """Seconds of an explanation on a stored profile, what it imports being there."""
    taken = []
    for _ in range(TURNS + 1):
        begin = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            __main__.main(["--case", "keras-249", str(run)])
        taken.append(time.perf_counter() - begin)
    e = Estimate(statistics.median(taken[1:]), min(taken[1:]), max(taken[1:]))
    what = "seconds of explain --case keras-249 on the stored rows, after its imports"
    return Figure(what, f"< {EXPLAIN_S:g} s", e, e.value < EXPLAIN_S, "s")


def main(argv: list[str]) -> int:
    run = pathlib.Path(argv[0]) if argv else RUN
    of = profile.read(str(run))
    every = prediction_errors.leave_one_out(of)
    verdicts_, said = complaints(of)
    changes, compared = what_ifs(of)
    whole, left = dropped(of)
    figures = errors(every) + strict(every, of) + saved(of, run) + saved_beside_a_line(of, run)
    figures += remainders(of) + crossovers(of)
    figures += [*verdicts_, *changes, *whole, explaining(run)]
    none = [] if changes else ["- what-ifs: python -m workloads.training --study residence; --study batches"]
    notes = [
        "Every training predicted with all trainings of its model left out; intervals by drawing whole models.",
        "",
        error_tables.counts(every, of),
        "",
        error_tables.HEAD,
        "",
        *error_tables.errors(every, prediction_errors.strictly(every, of)).md(),
        "Complaints:",
        "",
        *said,
        "",
        *(["What-ifs:", "", *compared, *left, ""] if compared or left else []),
        *(["Not measured:", "", *none] if none else []),
    ]
    return table("prediction", "Training times predicted from microbenchmarks", figures, notes, of=of.machine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
