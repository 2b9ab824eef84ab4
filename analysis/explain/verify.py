"""`explain --verify`: the training and its best what-ifs measured by python -m workloads.training, predicted beside measured."""

import functools
import pathlib
import tempfile
from collections.abc import Callable, Iterator

from analysis.explain import measure
from analysis.explain.explanation import Explanation
from analysis.explain.measuring import Child, TimeBudget
from analysis.numbers import timed
from analysis.predict.what_if import Change
from analysis.stats import Estimate, exact
from analysis.training import break_even, costs
from analysis.units import percent
from workloads import options, records

_BUDGET_S = 900


def plan(explanation: Explanation, most: int) -> list[tuple[Change, Estimate]]:
    """(change, predicted seconds that it saves of a step) for the `most` changes that save most of the whole training."""
    saving = [one for one in explanation.what_ifs if one.job_saved and one.job_saved.value > 0]
    return [(one.change, one.step_saved) for one in saving if one.step_saved][:most]


def step(child: Child, change: Change, folder: pathlib.Path) -> Estimate | str:
    """Seconds of a step after a change, measured in the child into a folder; the reason in words where it has none."""
    words = (*measure.command(change), "-q", "-o", str(folder))
    failure = child.measure(change.words, words, TimeBudget(seconds=_BUDGET_S), lambda doing, taken_s: None)
    if failure:
        return failure.reason
    rows = records.read(folder).measurements
    for row in break_even.trainings(rows):
        cost = costs.measured(row) if row.problem.batch == change.training.batch else None
        if cost:
            return cost.step
    reasons = [row.reason for row in rows if row.reason]
    return reasons[0] if reasons else "no row with a time"


def lines(
    explanation: Explanation, most: int, measured: Callable[[Change, pathlib.Path], Estimate | str] | None = None
) -> Iterator[str]:
    """Measures a training's step as it is, then after each of its `most` best changes, and gives a line as each is done: what was
    predicted, and what was measured.

    `measured` replaces the measurement in tests: it takes a change and a folder, and returns seconds or why there are none.

    Raises: Missing without a prediction, as no change can be set against it.
    """
    base = explanation.main
    if base is None:
        raise options.Missing("there is no prediction to verify; --measure measures what one needs")
    yield from ("", "Measured now, each by a command of its own")
    with tempfile.TemporaryDirectory() as folder, Child() as child:
        measured = measured or functools.partial(step, child)
        first = measured(
            Change(words="as it is", training=base.training, settings=base.settings), pathlib.Path(folder, "0")
        )
        predicted = "" if explanation.withheld else f"predicted {timed(base.step_s)}, "
        if isinstance(first, str):
            yield f"  a step as it is: not measured: {first}"
            return
        yield f"  a step as it is: {predicted}measured {timed(first)}"
        for i, (change, saved) in enumerate(plan(explanation, most), 1):
            step_s = measured(change, pathlib.Path(folder, str(i)))
            if isinstance(step_s, str):
                yield f"  {change.words}: not measured: {step_s}"
                continue
            same_samples_s = step_s.value * base.training.batch / change.training.batch
            measured_saving_s = first.value - same_samples_s
            off = percent(abs(saved.value - measured_saving_s) / base.step_s.value)
            both = f"predicted {timed(saved)}, measured {timed(exact(measured_saving_s))}"
            yield f"  {change.words}: saves {both} of a step's work (off by {off} of the step)"
