"""Times the fits of a Trainer, varying steps or epochs alone, so that the costs of a fit, an epoch and a step can be
separated.
"""

# A warm fit of E epochs of S steps takes fit + E (epoch + S step) seconds. Series "fit_s ExS" keep the raw seconds.

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from analysis import stats
from kernels.problems import Training
from workloads.frameworks.trainers import Fitted, Trainer
from workloads.harness.timing import Limits, rounded
from workloads.records import Samples

FEWEST_FITS, MOST_FITS = 3, 20
LONG_S = 10.0  # of fits that take so long two must do
REPEATS = 5
EPOCHS = 3  # of the fits that tell an epoch's cost
MOST_STEPS, MOST_BYTES = 200, 256 << 20  # of the fits that tell a step's cost, and of the samples held for them
LOSS_EPOCHS, LOSS_BATCHES = 3, 20
MOST_KEPT = 200  # numbers of a series that a row keeps


def series(epochs: int, steps: int) -> str:
    """The name of the series of fits of so many epochs of so many steps."""
    return f"fit_s {epochs}x{steps}"


def samples_held(problem: Training, sample_bytes: int, unit: int = 1) -> int:
    """Samples to have ready: the problem's own, and enough whole batches for fits of several times `unit` steps."""
    steps = max(2 * unit, min(MOST_STEPS, MOST_BYTES // max(1, problem.batch * sample_bytes)) // unit * unit)
    return max(problem.samples, steps * problem.batch)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return rounded(time.perf_counter() - begin)


def compiled(trainer: Trainer, problem: Training, phases: dict[str, float], unit: int = 1) -> None:
    """Fills phases_s compile: the first fit of `unit` whole batches less a warm one.

    Where an epoch ends in a smaller batch, the first fit has one too, as the problem's own has: its shape is open from the
    beginning, and what is compiled for it serves all later fits. compile_last is then what yet another last batch costs,
    of which everything else is known, and compile the rest of the two; at least half, as some trainers compile them as one.
    """
    batch, last = problem.batch, problem.samples % problem.batch if problem.samples > problem.batch else 0
    if not last:
        phases["compile"] = _first_less_warm(trainer, unit * batch)
        return
    before = (max(unit, 2) - 1) * batch
    both = _first_less_warm(trainer, before + last)
    other = last - 1 or last + 1
    phases["compile"] = both
    if other < batch:
        phases["compile_last"] = max(0.0, min(_first_less_warm(trainer, before + other), both / 2))
        phases["compile"] -= phases["compile_last"]


def _first_less_warm(trainer: Trainer, samples: int) -> float:
    first = seconds(lambda: trainer.fit(samples, 1))
    return first - min(seconds(lambda: trainer.fit(samples, 1)) for _ in range(2))


def apart(
    trainer: Trainer, problem: Training, held: int, limits: Limits, unit: int = 1
) -> dict[str, tuple[float, ...]]:
    """Seconds of warm fits that vary one thing each: of `unit` steps, of more steps, and of more epochs of `unit` steps.

    More steps are as many as take a third of `limits.max_time`, up to what samples are held for. The forms take turns, each
    after a fit of its own that is not counted.
    """
    batch, most = problem.batch, held // problem.batch // unit

    def fit(epochs: int, steps: int) -> float:
        return seconds(lambda: trainer.fit(steps * batch, epochs))

    fit(1, unit)
    one, few = fit(1, unit), unit * min(most, 8)
    fit(1, few)
    step = max((fit(1, few) - one) / (few - unit), 1e-6)
    more = unit * max(2, min(most, math.ceil(limits.max_time / 3 / step / unit)))
    forms = [(1, unit), (1, more), (EPOCHS, unit)]
    for form in forms[1:]:
        fit(*form)
    taken: dict[tuple[int, int], list[float]] = {form: [] for form in forms}
    begin = time.perf_counter()
    for round_ in range(REPEATS):
        for form in forms if round_ % 2 else reversed(forms):
            taken[form].append(fit(*form))
        if round_ + 1 >= FEWEST_FITS and time.perf_counter() - begin > 2 * limits.max_time:
            break
    return {series(*form): tuple(found) for form, found in taken.items()}


def repeated(
    trainer: Trainer, problem: Training, first: Fitted, first_s: float, limits: Limits, before: Callable
) -> Samples:
    """Seconds a step of warm fits of the problem's own samples and epochs, a sample a fit.

    Of a fit of several epochs that is longer than the time for all of them the epochs are the samples: those of `first` but
    its first one. Where it has but two, and takes very long, they are those of another fit too.
    """
    if first_s > limits.max_time and problem.epochs > (1 if first_s > LONG_S else 2):
        return _by_epochs(trainer, problem, first, before)
    steps, taken, begin, reason = problem.steps, [], time.perf_counter(), ""
    while not reason:
        before()
        taken.append(rounded(seconds(lambda: trainer.fit(problem.samples, problem.epochs)) / (steps * problem.epochs)))
        reason = _enough(taken, time.perf_counter() - begin, limits)
    return Samples("host-latency", tuple(taken), steps * problem.epochs, tuple(range(len(taken))), reason)


def kept(taken: Sequence[float]) -> tuple[float, ...]:
    """A series as a row keeps it: whole, or MOST_KEPT of it at even distances, the first and the last among them."""
    if len(taken) <= MOST_KEPT:
        return tuple(taken)
    return tuple(taken[round(i * (len(taken) - 1) / (MOST_KEPT - 1))] for i in range(MOST_KEPT))


def _by_epochs(trainer: Trainer, problem: Training, first: Fitted, before: Callable) -> Samples:
    """Seconds a step by the epochs of `first`, at least three with those of another fit."""
    taken, reason = first.epochs_s[1:], "epochs of one fit"
    if len(taken) < 2:
        before()
        taken, reason = (
            taken + trainer.fit(problem.samples, problem.epochs, stamped=True).epochs_s,
            "epochs of two fits",
        )
    seconds_ = tuple(rounded(s / problem.steps) for s in kept(taken))
    return Samples("host-latency", seconds_, problem.steps, tuple(range(len(seconds_))), reason)


def enough(seconds: list[float], spent: float, limits: Limits, fewest: int = 3, looked_at: int = 5) -> str:
    """Why to stop after these long samples: time is up, or the interval is narrow enough; empty to go on."""
    if len(seconds) < fewest:
        return ""
    if spent > limits.max_time:
        return "max-time"
    if len(seconds) >= looked_at and stats.median(seconds).noise <= limits.max_noise:
        return "steady"
    return "max-blocks" if len(seconds) == MOST_FITS else ""


def _enough(taken: list[float], spent: float, limits: Limits) -> str:
    """Why to stop after these fits; empty to go on."""
    return enough(taken, spent, limits, 2 if spent > LONG_S else FEWEST_FITS, FEWEST_FITS + 1)


def learned(trainer: Trainer, problem: Training, unit: int = 1) -> Fitted:
    """A run of its own from the first weights: few samples in whole batches (and `unit`s of them), so that nothing is
    compiled anew."""
    trainer.restore()
    steps = min(problem.samples // problem.batch, LOSS_BATCHES)
    return trainer.fit((steps // unit * unit or steps) * problem.batch or problem.samples, LOSS_EPOCHS)


def resized(x: np.ndarray, y: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` samples: those that there are, again and again, where they are fewer."""
    if len(x) >= count:
        return x, y
    again = np.arange(count) % len(x)
    return x[again], y[again]
