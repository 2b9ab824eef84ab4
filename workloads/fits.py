"""Times the fits of a Trainer so that what a fit, an epoch and a step cost can be told apart: each varied alone.

A warm fit of E epochs of S steps takes fit + E (epoch + S step) seconds. Series "fit_s ExS" keep the raw seconds.
"""

import math
import time
from collections.abc import Callable

import numpy as np

from analysis import estimate
from kernels.problems import Training
from workloads.results import Samples
from workloads.timing import Limits, rounded
from workloads.trainers import Fitted, Trainer

FEWEST_FITS, MOST_FITS = 3, 20
REPEATS = 5
EPOCHS = 3  # of the fits that tell an epoch's cost
MOST_STEPS, MOST_BYTES = 200, 256 << 20  # of the fits that tell a step's cost, and of the samples held for them
LOSS_EPOCHS, LOSS_BATCHES = 3, 20


def series(epochs: int, steps: int) -> str:
    """The name of the series of fits of so many epochs of so many steps."""
    return f"fit_s {epochs}x{steps}"


def samples_held(problem: Training, sample_bytes: int) -> int:
    """Samples to have ready: the problem's own, and enough whole batches for fits of several steps."""
    steps = max(2, min(MOST_STEPS, MOST_BYTES // max(1, problem.batch * sample_bytes)))
    return max(problem.samples, steps * problem.batch)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return rounded(time.perf_counter() - begin)


def compiled(trainer: Trainer, problem: Training, phases: dict[str, float]) -> None:
    """Fills phases_s compile (the first fit of one whole batch less a warm one) and compile_last (the same for the smaller
    last batch, where there is one)."""
    whole, last = min(problem.batch, problem.samples), problem.samples % problem.batch
    for name, samples in (("compile", whole), ("compile_last", last if problem.samples > problem.batch else 0)):
        if samples:
            first = seconds(lambda samples=samples: trainer.fit(samples, 1))
            phases[name] = first - min(seconds(lambda samples=samples: trainer.fit(samples, 1)) for _ in range(2))


def apart(trainer: Trainer, problem: Training, held: int, limits: Limits) -> dict[str, tuple[float, ...]]:
    """Seconds of warm fits that vary one thing each: of one step, of more steps, and of more epochs of one step.

    More steps are as many as take a third of `limits.max_time`, up to what samples are held for. The forms take turns.
    """
    batch, most = min(problem.batch, held), held // min(problem.batch, held)
    one = seconds(lambda: trainer.fit(batch, 1))
    forms = {(1, 1): one}
    if most > 1:
        few = min(most, 8)
        step = max((seconds(lambda: trainer.fit(few * batch, 1)) - one) / (few - 1), 1e-6)
        forms[1, max(2, min(most, math.ceil(limits.max_time / 3 / step)))] = 0.0
    forms[EPOCHS, 1] = 0.0
    taken: dict[tuple[int, int], list[float]] = {form: [] for form in forms}
    begin = time.perf_counter()
    for round_ in range(REPEATS):
        for epochs, steps in forms if round_ % 2 else reversed(forms):
            taken[epochs, steps].append(seconds(lambda e=epochs, s=steps: trainer.fit(s * batch, e)))
        if round_ + 1 >= FEWEST_FITS and time.perf_counter() - begin > 2 * limits.max_time:
            break
    return {series(*form): tuple(found) for form, found in taken.items()}


def repeated(trainer: Trainer, problem: Training, first: Fitted, first_s: float, limits: Limits, before: Callable) -> Samples:
    """Seconds a step of warm fits of the problem's own samples and epochs, a sample a fit. A fit that is longer than the time
    for all, of three epochs or more, is not repeated: its epochs after the first are the samples."""
    steps = problem.steps
    if first_s > limits.max_time and len(first.epochs_s) >= 3:
        taken = tuple(rounded(s / steps) for s in first.epochs_s[1:])
        return Samples("host-latency", taken, steps, tuple(range(len(taken))), "epochs of one fit")
    taken_, begin, reason = [], time.perf_counter(), ""
    while not reason:
        before()
        taken_.append(rounded(seconds(lambda: trainer.fit(problem.samples, problem.epochs)) / (steps * problem.epochs)))
        reason = _enough(taken_, time.perf_counter() - begin, limits)
    return Samples("host-latency", tuple(taken_), steps * problem.epochs, tuple(range(len(taken_))), reason)


def _enough(taken: list[float], spent: float, limits: Limits) -> str:
    """Why to stop after these fits: the time is up, or the interval is narrow enough; empty to go on."""
    if len(taken) < FEWEST_FITS:
        return ""
    if spent > limits.max_time:
        return "max-time"
    if len(taken) > FEWEST_FITS and estimate.median(taken).noise <= limits.max_noise:
        return "steady"
    return "max-blocks" if len(taken) == MOST_FITS else ""


def learned(trainer: Trainer, problem: Training) -> Fitted:
    """A run of its own from the first weights: few samples in whole batches, so that nothing is compiled anew."""
    trainer.restore()
    samples = min(problem.samples // problem.batch, LOSS_BATCHES) * problem.batch or problem.samples
    return trainer.fit(samples, LOSS_EPOCHS)


def resized(x: np.ndarray, y: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` samples: those that there are, again and again, where they are fewer."""
    if len(x) >= count:
        return x, y
    again = np.arange(count) % len(x)
    return x[again], y[again]
