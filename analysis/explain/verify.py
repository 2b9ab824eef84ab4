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
    """(what to measure, the predicted saving of a step) of the changes that save most of the whole training."""
    saving = [one for one in explanation.what_ifs if one.job_saved and one.job_saved.value > 0]
    return [(one.change, one.step_saved) for one in saving if one.step_saved][:most]


def step(child: Child, change: Change, folder: pathlib.Path) -> Estimate | str:
    """Seconds of a step of a change, measured by a command of its own; the reason where there is none."""
    words = (*measure.command(change), "-q", "-o", str(folder))
    failure = child.measure(change.words, words, TimeBudget(seconds=_BUDGET_S), lambda doing, taken_s: None)
    if failure:
        return failure.reason
    rows = records.read(folder).measurements
    alike = (costs.measured(m) for m in break_even.trainings(rows) if m.problem.batch == change.training.batch)
    cost = next(filter(None, alike), None)
    return cost.step if cost else next((m.reason for m in rows if m.reason), "no row with a time")


def lines(
    explanation: Explanation, most: int, measured: Callable[[Change, pathlib.Path], Estimate | str] | None = None
) -> Iterator[str]:
    """A line as each measurement comes: a step predicted beside measured, then what each change saved of it.

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
            real = first.value - step_s.value * base.training.batch / change.training.batch
            off = percent(abs(saved.value - real) / base.step_s.value)
            both = f"predicted {timed(saved)}, measured {timed(exact(real))}"
            yield f"  {change.words}: saves {both} of a step's work (off by {off} of the step)"
