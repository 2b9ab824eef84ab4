"""Tables and sentences of prediction errors.

python -m tests.validation.error_tables RUN             prints them, with every training and every crossover
python -m tests.validation.error_tables RUN PAGE ...    writes the marked parts of pages (docs/results.md, README.md)
"""

import argparse
import math
import pathlib
from collections.abc import Iterable

from analysis import table
from analysis.crossover.answer import Answer
from analysis.numbers import number, share
from analysis.predict import calibration, profile
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Profile
from analysis.predict.saved_predictions import training_of
from analysis.stats import group_by
from analysis.table import Table
from analysis.text import checked_predictions
from analysis.text.sentences import CANT_TELL, NAMES, say
from analysis.text.sentences import lines as filled_lines
from analysis.units import count, percent
from tests.validation import predicted_crossovers, prediction_errors
from tests.validation.predicted_crossovers import WITHIN, Comparison
from tests.validation.prediction_errors import ALL, BASELINES, RULES_CHANGED, GradedStep, Summary

HEAD = (
    "Every training is predicted with all trainings of its model left out of the calibration. Strictly: also without "
    "rows of its layers' shapes and trainings of its twins. Twins have the same layers and optimizer under another name."
)
COUNTS = (
    "All {steps} steps of {trainings} trainings count in full. {wide} are noisier than {noisy:share} and fit nothing. "
    "{numbers} numbers are fitted on other models' trainings."
)
LATE = (
    "{device}, first measured after trainings last shaped a rule ({since}): "
    "median error {median:share}, mean {mean:share} of {count}."
)
NONE_LATE = "No training was first measured since trainings last shaped a rule ({since})."
SAVED = (
    "{device}, saved before they were measured: median error {median:share}, mean {mean:share} of {count}. "
    "{covered:share} of these steps lie in the predicted interval."
)
LINE = (
    "A straight line ({line}): median error {median:share}, mean {mean:share}; the prediction is nearer for {nearer} of "
    "{count}."
)
BEFORE = "{count} that had been measured before do not count."
CROSSINGS = "{near} of {all} crossovers of trainings were predicted within {within:share}."
#: README's line.
TRUST = """
**How far to believe it.** Median errors of models outside the fit: GPU {gpu:share}, CPU {cpu:share}. \
[Predicted beforehand](docs/results.md): {saved_gpu.median:share}, {saved_cpu.median:share}. \
A straight line: {saved_gpu.line_median:share}, {saved_cpu.line_median:share}. \
Intervals held {saved_gpu.covered:share}, {saved_cpu.covered:share}. Brackets: where it can't be told."""
#: The day from which trainings have not shaped a rule.
_SINCE = RULES_CHANGED[:10]


# ---------------------------------------------------------------- steps


def errors(steps: list[GradedStep], strict: Iterable[GradedStep]) -> Table:
    """The error table, a line for each device and bound, with the errors of simpler predictions."""
    strict_summaries = {(one.device, one.bound): one for one in prediction_errors.summaries(strict)}
    rows = []
    for summary in prediction_errors.summaries(steps):
        row = [
            NAMES[summary.device],
            summary.bound,
            summary.models,
            summary.steps,
            _median_and_mean(summary),
            _median_and_mean(strict_summaries.get((summary.device, summary.bound))),
            share(summary.covered),
        ]
        for name in BASELINES:
            row.append(share(summary.baselines[name]) if name in summary.baselines else "-")
        rows.append(row)
    heads = "device | steps | models | trainings | median, mean error | strictly | in the interval"
    return Table([*heads.split(" | "), *BASELINES], rows, left=2, optional="strictly", least="in the interval")


def _median_and_mean(summary: Summary | None) -> str:
    """`8.4 %, 13 %`: median and mean error; `-` for None."""
    if summary is None:
        return "-"
    return f"{share(summary.median)}, {share(summary.mean)}"


def counts(steps: list[GradedStep], profile: Profile) -> str:
    """How many steps are in the table, and how many of them are too noisy for the fit."""
    return say(
        COUNTS,
        steps=len(steps),
        trainings=len(profile.trainings),
        wide=sum(not step.measured.is_fittable for step in steps),
        noisy=calibration.NOISY,
        numbers=prediction_errors.fitted_numbers(profile),
    )


def late(steps: list[GradedStep], profile: Profile) -> list[str]:
    """The errors of trainings that were first measured after the last change of a rule, a sentence a device."""
    chosen = prediction_errors.measured_since_rules_changed(steps, profile)
    if not chosen:
        return [say(NONE_LATE, since=_SINCE)]
    sentences = []
    for device, of_device in sorted(group_by(chosen, lambda step: step.device).items()):
        device_errors = [step.error for step in of_device]
        sentences.append(checked_predictions.error_sentence(LATE, device, device_errors, since=_SINCE))
    return sentences


def trainings(steps: Iterable[GradedStep]) -> Table:
    """Every training: what bounds its step, predicted and measured seconds, and the error."""
    rows = []
    for step in sorted(steps, key=_order):
        model, *rest = training_of(step.predicted)
        for name, text in step.measured.row.settings.switches.items():
            if name not in ("data", "jit_compile"):
                model += f" {name}={text}"
        cells = checked_predictions.step_cells(step.seconds, step.measured)
        rows.append((model, *rest, step.bound, *cells))
    heads = "model | batch | device | execution | steps | predicted ms | measured ms | error"
    return Table(heads, rows, least="execution")


def _order(step: GradedStep) -> tuple[str, str, str, int]:
    return (step.device, step.predicted.execution, step.model, step.measured.row.problem.batch)


def saved(sets: dict[str, list[Prediction]], profile: Profile) -> list[str]:
    """The errors of all predictions that were saved before they were measured, and of a straight line, device by device; nothing
    where none was."""
    sentences = []
    for summary in prediction_errors.saved_summaries(sets.values(), profile):
        sentence = say(
            SAVED,
            device=NAMES[summary.device],
            count=count(summary.steps, "step"),
            median=summary.median,
            mean=summary.mean,
            covered=summary.covered,
        )
        sentences.append(sentence)
        if summary.line:
            sentence = say(
                LINE,
                line=summary.line,
                count=count(summary.steps, "step"),
                median=summary.line_median,
                mean=summary.line_mean,
                nearer=summary.nearer,
            )
            sentences.append(sentence)
    before = sum(prediction_errors.saved_set(predictions, profile).before for predictions in sets.values())
    if before and sentences:
        sentences.append(say(BEFORE, count=before))
    return sentences


# ---------------------------------------------------------------- crossovers


def crossings(comparisons: list[Comparison]) -> list[str]:
    """A sentence: how many measured crossovers were predicted within WITHIN; [] where none was measured."""
    are_near = [comparison.error <= WITHIN for comparison in comparisons if comparison.error is not None]
    if not are_near:
        return []
    return [say(CROSSINGS, near=sum(are_near), all=len(are_near), within=WITHIN)]


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
    cross = predicted_crossovers.values_cross(comparison.predicted)
    return f"{place} (values cross at {number(cross)})" if cross else place


def _place(answer: Answer) -> str:
    """`GPU from 12.0`, by the likeliest times; `GPU throughout`, `can't tell`."""
    if answer.crossings:
        return ", ".join(f"{NAMES[crossing.to]} from {number(crossing.at.value)}" for crossing in answer.crossings)
    throughout = {"gpu-at-smallest": "GPU throughout", "cpu-throughout": "CPU throughout"}
    return throughout.get(answer.kind, CANT_TELL)


# ---------------------------------------------------------------- pages


def brief(profile: Profile, steps: list[GradedStep], sets: dict[str, list[Prediction]]) -> list[str | Table]:
    """The part of docs/results.md: the error table, what it counts, and the errors of saved predictions."""
    lines: list[str | Table] = [HEAD, "", errors(steps, prediction_errors.strictly(steps, profile))]
    paragraphs = [
        [counts(steps, profile)],
        late(steps, profile),
        saved(sets, profile),
        crossings(predicted_crossovers.comparisons(profile)),
    ]
    for sentences in paragraphs:
        if sentences:
            lines += ["", " ".join(sentences)]
    return lines


def trust(profile: Profile, steps: list[GradedStep], sets: dict[str, list[Prediction]]) -> list[str]:
    """README's line: how far predictions were off."""
    medians = {one.device: one.median for one in prediction_errors.summaries(steps) if one.bound == ALL}
    with_a_line = {one.device: one for one in prediction_errors.saved_summaries(sets.values(), profile) if one.line}
    filled = filled_lines(
        TRUST,
        cpu=medians.get("cpu"),
        gpu=medians.get("gpu:0"),
        saved_cpu=with_a_line.get("cpu"),
        saved_gpu=with_a_line.get("gpu:0"),
    )
    return [f"- {line}" for line in filled]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the folder of a machine, with its saved predictions")
    parser.add_argument("pages", nargs="*", type=pathlib.Path, help="pages whose marked parts are written")
    arguments = parser.parse_args(argv)
    machine = profile.read(arguments.run)
    steps = prediction_errors.leave_one_out(machine)
    sets = prediction_errors.saved_sets(pathlib.Path(arguments.run))
    lines = brief(machine, steps, sets)
    if not arguments.pages:
        crossed = crossovers(predicted_crossovers.comparisons(machine))
        print(*table.shown([*lines, "", trainings(steps), "", crossed]), sep="\n")
    blocks = {"errors": table.shown(lines, markdown=True), "trust": trust(machine, steps, sets)}
    for page in arguments.pages:
        table.put_blocks(page, blocks, arguments.run, f"tests.validation.error_tables {arguments.run} {page}")


if __name__ == "__main__":
    main()
