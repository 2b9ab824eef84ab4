"""`explain --verify`: the training and its best what-ifs measured by python -m workloads.training, predicted beside measured."""

import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from analysis.explain.explanation import Explanation
from analysis.predict import what_if
from analysis.predict.prediction import Prediction
from analysis.predict.what_if import Change
from analysis.stats import Estimate, exact
from analysis.training import break_even, costs
from analysis.units import about, percent
from workloads import options, records

MOST = 3
_SAMPLES, _STEPS = 2048, 64  # a verification shows steps; a whole job would take as long as the job
_PATIENCE_S = 900


def plan(e: Explanation, most: int = MOST) -> "list[tuple[Change, Estimate | None]]":
    """(what to measure, the predicted saving of a step): the training as it is, then the changes that save most of it."""
    base = _main(e)
    own = what_if.Change("as it is", base.training, base.settings)
    best = [
        w for w in e.told().what_ifs if w.step_saved is not None and w.job_saved is not None and w.job_saved.value > 0
    ][:most]
    return [(own, None), *((w.change, w.step_saved) for w in best)]


def _main(e: Explanation) -> Prediction:
    """The prediction that changes are set against.

    Raises: Missing without one, as no change can be predicted then.
    """
    if e.main is None:
        raise options.Missing("there is no prediction to verify; --measure measures what one needs")
    return e.main


def short(samples: int, batch: int) -> int:
    """Samples of a verification: enough steps to show one, whole batches, never more than the training has."""
    return min(samples, max(_SAMPLES // batch, 8) * batch if batch < _SAMPLES else 8 * batch)


def measure(change: "Change", samples: int, folder: pathlib.Path) -> Estimate | str:
    """Seconds of a step of a change, measured by a command of its own; the reason where there is none."""
    asked = what_if.command(change, epochs=1, samples=samples)
    command = [sys.executable, "-m", *asked, "--fast", "-q", "-o", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"not done after {_PATIENCE_S} s"
    try:
        rows = records.read(folder).measurements
    except FileNotFoundError:
        return (done.stderr.strip().splitlines() or ["no result"])[0]
    for m in break_even.trainings(rows):
        if m.problem.batch == change.training.batch and (cost := costs.measured(m)):
            return cost.step
    return next((m.reason for m in rows if m.reason), "no row with a time")


def lines(e: Explanation, most: int = MOST, measured: Callable = measure) -> Iterator[str]:
    """A line as each measurement comes: a step predicted beside measured, then what each change saved."""
    base = _main(e)
    yield ""
    yield "Measured now, each by a command of its own"
    with tempfile.TemporaryDirectory() as folder:
        first: Estimate | None = None
        for i, (change, saved) in enumerate(plan(e, most)):
            batch = change.training.batch
            found = measured(change, short(base.training.samples, batch), pathlib.Path(folder) / str(i))
            if isinstance(found, str):
                yield f"  {change.words}: not measured: {found}"
                continue
            if saved is None:
                first = found
                predicted = "" if e.withheld else f"predicted {about(base.step_s)}, "
                yield f"  a step as it is: {predicted}measured {about(found)}"
                continue
            if first is None:
                lone = "as it is was not measured, so nothing can be set against it"
                yield f"  {change.words}: a step takes {about(found)}; {lone}"
                continue
            share = base.training.batch / batch
            real = first.value - found.value * share
            beside = f"predicted {about(saved)}, measured {about(exact(real))} of a step's work"
            yield f"  {change.words}: saves {beside} ({_error(saved, real, base)})"


def _error(saved: Estimate, real: float, base: "Prediction") -> str:
    """How far the saving was off: by its own size, and by the step."""
    off = abs(saved.value - real)
    own = f"{percent(off / abs(real))} of the saving, " if real else ""
    return f"off by {own}{percent(off / base.step_s.value)} of the step"
