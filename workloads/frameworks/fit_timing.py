"""Times a Trainer's fits by their later epochs, so that data-set setup, an epoch and a step can be told from each other."""

# A warm fit of E epochs of S steps takes setup + E (epoch + S step) seconds. What it does once is in its first epoch or around
# its epochs; the later ones have none of it.

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from analysis import units
from kernels.problems import Training
from workloads.frameworks.trainers import Fitted, Trainer
from workloads.harness import announce
from workloads.harness.timing import FEWEST_LATER, Limits, rounded, seconds
from workloads.records import Fits, Samples

LATER_EPOCHS = 5  # epochs after a fit's first, if the problem has no more; FEWEST_LATER of long ones
LONG_EPOCH_S = 3.0
FITS = 5  # fits of a row
FURTHER_EPOCHS = 3  # epochs of the fits after the first
FITS_MOST_TIMES = 6  # a row's fits take at most so many times limits.max_time
LOOK_EPOCHS = 3  # epochs of the two short fits before
LOOK_STEPS = 8  # steps that tell an epoch from another
ENOUGH_STEPS = 32  # an epoch of so many steps is long enough to measure a step by
LEAST_S = 0.6  # of later epochs of more steps, even with --fast: 60 of a GPU's 2 ms, as its epochs differ by 10 ms
#: Most steps and bytes of the longer epochs that are fitted where the problem's own are shorter.
MOST_STEPS = 200
MOST_BYTES = 512 << 20
LOSS_BATCHES = 20
MOST_OF_A_SERIES = 200  # numbers of a series that a row stores
LONG_FIT_S = 10.0  # a first fit of so many seconds, compilation included, may have slow steps
LONG_LOOK_S = 1.0  # one warm epoch of so many seconds is enough of a look
SLOW_EPOCHS = 4  # fewest of each fit that times slow steps, the first included: two later ones bound a step by 15x
SLOW_STEPS = 3  # fewest steps of an epoch of slow steps
SLOW_FIT_S = 15.0  # seconds that a fit of slow steps takes if it can have more epochs or steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmEpoch:
    """An epoch of a short warm fit."""

    #: Its steps.
    steps: int
    #: Its seconds, the least of all later epochs.
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedFit:
    """A fit and its times."""

    #: Its losses and accuracies.
    fitted: Fitted
    #: Seconds of its epochs but the first.
    later_s: tuple[float, ...]
    #: Data-set setup in seconds: the time of the fit beyond its epochs, plus that of its first epoch beyond the median of the
    #: later ones.
    setup_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitPlan:
    """The fits of a row. Those over the problem's own samples alternate with fits of another number of steps."""

    #: Epochs of the first fit over the problem's samples.
    epochs: int
    #: Whole batches of an epoch of the other fits.
    steps: int
    #: Epochs of further fits over the problem's samples.
    further_epochs: int = FURTHER_EPOCHS
    #: Epochs of the first of the other fits.
    other_epochs: int = LATER_EPOCHS + 1
    #: Whole batches of an epoch of slow steps; 0: all of the problem's samples.
    slow_steps: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedRow:
    """The timed fits of a row."""

    #: The first fit of the problem's own samples.
    first: Fitted
    #: Seconds per step of the later epochs of all fits of the problem's own samples.
    samples: Samples
    #: The fits of both numbers of steps.
    fits: tuple[Fits, Fits]


# ---------------------------------------------------------------- short fits


def samples_needed(problem: Training, sample_bytes: int, unit: int = 1) -> int:
    """How many samples a trainer needs: those of the problem, or more where its epochs are too short to time a step.

    An epoch and a step can be told from each other only by fits of different numbers of steps, in whole batches. sample_bytes: of
    one sample. unit: how many steps Keras runs in one call, of which an epoch's steps are a multiple.
    """
    batch = min(problem.batch, problem.samples)
    whole_batches = problem.samples // problem.batch
    if whole_batches < ENOUGH_STEPS * unit:
        most_steps = MOST_STEPS
    else:
        most_steps = unit * max(2, LOOK_STEPS // unit)
    affordable = min(most_steps, MOST_BYTES // max(1, batch * sample_bytes)) // unit * unit
    steps = affordable if affordable >= 2 * whole_batches else 0
    if whole_batches < 4 * unit:
        # Too few for fits of fewer steps: fits of twice as many are needed, rounded up to a multiple of `unit`.
        rounded_up = unit * math.ceil(problem.steps / unit)
        steps = max(steps, 2 * rounded_up)
    return max(problem.samples, steps * batch)


def timed_fit(trainer: Trainer, samples: int, epochs: int) -> TimedFit:
    """Runs and times a fit of at least two epochs. samples: of an epoch."""
    begin = time.perf_counter()
    fitted = trainer.fit(samples, epochs, stamped=True)
    later_s = fitted.epochs_s[1:]
    setup_s = time.perf_counter() - begin - sum(later_s) - statistics.median(later_s)
    return TimedFit(fitted=fitted, later_s=tuple(map(rounded, later_s)), setup_s=rounded(setup_s))


def compiled(trainer: Trainer, problem: Training, phases: dict[str, float], unit: int = 1) -> WarmEpoch:
    """Compiles a trainer's step by a first short fit, and times an epoch of a second one.

    phases: gets `compile`, the seconds of the first fit less those of the second. unit: how many steps Keras runs in one call;
    the fits have as many.
    Where the problem's epochs end in a smaller batch, so do those of the first fit: then TensorFlow traces the step for batches
    of any size at once, and all later fits use that. What such a last batch costs, `compile_last`, is the time of a fit with a
    last batch of yet another size, less that of a warm one, and is taken off `compile`: at most half of it, since some trainers
    compile both as one. It is not timed where epochs are long, unless XLA compiles the step: nothing else compiles for each size
    of a batch.
    """
    missing = -problem.samples % problem.batch  # how many samples the last batch lacks
    steps = max(unit, 2) if missing else unit
    samples = steps * problem.batch - missing
    first_s = seconds(lambda: trainer.fit(samples, epochs=1))
    announce.timing("timing a step")
    warm = timed_fit(trainer, samples, LOOK_EPOCHS if first_s < LONG_FIT_S else 2)
    is_long = first_s >= LONG_FIT_S and warm.later_s[0] >= LONG_LOOK_S
    if len(warm.later_s) == 1 and not is_long:
        warm = timed_fit(trainer, samples, LOOK_EPOCHS)
    warm_s = warm.setup_s + statistics.median(warm.later_s)
    compile_s = max(0.0, first_s - warm_s)
    phases["compile"] = compile_s
    change = -1 if missing + 1 < problem.batch else 1  # by how much the last batch of yet another size is larger
    if missing and missing > change and (trainer.values.get("jit_compile") or not is_long):
        another_s = seconds(lambda: trainer.fit(samples + change, epochs=1)) - warm_s
        phases["compile_last"] = max(0.0, min(another_s, compile_s / 2))
        phases["compile"] -= phases["compile_last"]
    return WarmEpoch(steps=steps, seconds=min(warm.later_s))


# ---------------------------------------------------------------- planning


def plan(
    trainer: Trainer, problem: Training, available: int, limits: Limits, *, look: WarmEpoch, unit: int = 1
) -> tuple[FitPlan, Fitted | None]:
    """Plans the fits of a row by the seconds of an epoch and of a step, and returns also the fit that it was planned by.

    look: a first short fit's epoch. A second short fit has more steps, so that both tell an epoch from a step; it begins with the
    first weights, so that its losses can be stored. It has whole batches, so that nothing is compiled again. Setting the seeds
    anew has TensorFlow optimize its graphs again, in the fit's first epoch, which is not timed. Slow steps are planned without
    it: then None is returned in its place. available: how many samples the trainer has. unit: how many steps Keras runs in one
    call.
    """
    slow = slow_plan(problem, look.seconds / look.steps, limits, unit)
    if slow is not None:
        return slow, None
    steps = max(problem.samples // problem.batch, 2 * look.steps)
    steps = min(steps, available // problem.batch, LOSS_BATCHES)
    steps = steps // unit * unit or steps
    trainer.restore()
    second = timed_fit(trainer, steps * problem.batch or problem.samples, LOOK_EPOCHS)
    if steps > look.steps:
        step_s = max((min(second.later_s) - look.seconds) / (steps - look.steps), 1e-6)
    else:
        step_s = look.seconds / look.steps
    step_s = rounded(step_s)
    epoch_s = max(look.seconds - look.steps * step_s, 1e-6)
    usual = usual_plan(problem, available, epoch_s=epoch_s, step_s=step_s, max_time=limits.max_time, unit=unit)
    return usual, second.fitted


def usual_plan(
    problem: Training, available: int, *, epoch_s: float, step_s: float, max_time: float, unit: int = 1
) -> FitPlan:
    """The fits of a row whose epoch takes `epoch_s` seconds without its steps, and whose step takes `step_s` seconds.

    Fits of the problem's own samples have its epochs, or enough for LATER_EPOCHS after the first, fewer where epochs are long.
    The other fits have fewer steps where the problem has many; else as many more as there are samples and time for.
    max_time: seconds for the row. available: how many samples the trainer has. unit: how many steps Keras runs in one call.
    """
    is_long = epoch_s + problem.steps * step_s > LONG_EPOCH_S
    epochs = 1 + (FEWEST_LATER if is_long else LATER_EPOCHS)
    whole_batches = problem.samples // problem.batch
    later_s = max(max_time / 2, LEAST_S) / LATER_EPOCHS
    most = min(available // problem.batch, int(later_s / step_s))
    has_twice_as_many = most >= 2 * whole_batches
    if whole_batches < 4 * unit or (whole_batches < ENOUGH_STEPS * unit and has_twice_as_many):
        rounded_up = unit * math.ceil(problem.steps / unit)
        steps = max(most // unit * unit, 2 * rounded_up)
    else:
        fewer = min(whole_batches // 4, max(LOOK_STEPS, whole_batches // 16))
        steps = max(unit, fewer // unit * unit)
    return FitPlan(epochs=max(problem.epochs, epochs), steps=steps, further_epochs=max(problem.epochs, FURTHER_EPOCHS))


def slow_plan(problem: Training, step_s: float, limits: Limits, unit: int = 1) -> FitPlan | None:
    """The fits of a row whose step is slow and takes `step_s` seconds: one fit of a few steps an epoch, one of a single step.

    None for steps that are not slow (limits.slow_step_s), for trainings of several epochs and for those of fewer than SLOW_STEPS
    steps. As far as SLOW_FIT_S seconds allow, a fit has more epochs, up to LATER_EPOCHS after the first one, then more steps in
    each. unit: how many steps Keras runs in one call.
    """
    calls = problem.samples // problem.batch // unit
    if limits.slow_step_s is None or step_s <= limits.slow_step_s or problem.epochs > 1 or calls < SLOW_STEPS:
        return None
    affordable_calls = int(SLOW_FIT_S / (step_s * unit))
    epochs = min(1 + LATER_EPOCHS, max(SLOW_EPOCHS, affordable_calls // SLOW_STEPS))
    steps = unit * min(calls, max(SLOW_STEPS, affordable_calls // epochs))
    return FitPlan(epochs=epochs, steps=unit, further_epochs=epochs, other_epochs=epochs, slow_steps=steps)


def number_of_fits(first_s: float, planned: FitPlan, max_time: float) -> int:
    """How many fits a row has: FITS, or 1 where these would take longer than FITS_MOST_TIMES x max_time. Two to four would say
    too little about their spread.

    first_s: seconds of the first fit of the problem's samples with the other fit before it. max_time: seconds for the row.
    """
    all_s = first_s * (1 + (FITS - 1) * planned.further_epochs / planned.epochs)
    return FITS if all_s <= FITS_MOST_TIMES * max_time else 1


# ---------------------------------------------------------------- long fits


def long_fits(
    trainer: Trainer,
    problem: Training,
    planned: FitPlan,
    limits: Limits,
    *,
    before_pair: Callable[[], None],
    further_other_epochs: int = FURTHER_EPOCHS,
) -> TimedRow:
    """Runs and times the planned fits, in pairs: a fit of another number of steps, then one of the problem's own samples.

    before_pair: called between the two. further_other_epochs: epochs of the fits of another number of steps, from the second pair
    on.
    """
    samples = planned.slow_steps * problem.batch or problem.samples
    steps = -(-samples // problem.batch)
    fits: list[TimedFit] = []
    other_fits: list[TimedFit] = []

    def time_pair(epochs: int, other_epochs: int) -> None:
        """Times a pair of fits; other_epochs: of the one of another number of steps."""
        other = timed_fit(trainer, planned.steps * problem.batch, other_epochs)
        before_pair()
        expected_s = epochs * steps * statistics.median(other.later_s) / planned.steps
        announce.timing(f"timing {epochs} epochs of {units.count(steps, 'step')}", expected_s)
        fits.append(timed_fit(trainer, samples, epochs))
        other_fits.append(other)

    begin = time.perf_counter()
    time_pair(planned.epochs, planned.other_epochs)
    count = number_of_fits(time.perf_counter() - begin, planned, limits.max_time)
    for _ in range(count - 1):
        time_pair(planned.further_epochs, further_other_epochs)
    words = f"epochs of {units.count(count, 'fit')}"
    if samples < problem.samples:
        words = f"{steps} of {problem.steps} steps, {units.count(count, 'fit')}"
    return TimedRow(
        first=fits[0].fitted,
        samples=_step_samples(fits, steps, words),
        fits=(
            Fits(steps=steps, setup_s=thinned([fit.setup_s for fit in fits])),
            _other_fits(other_fits, planned),
        ),
    )


def _step_samples(fits: list[TimedFit], steps: int, words: str) -> Samples:
    """Seconds a step of all epochs but the first of these fits, as Samples with a block for each fit. steps: of an epoch. words:
    what was timed, for the reader of the row."""
    most = max(2, MOST_OF_A_SERIES // len(fits))
    blocks = [thinned(fit.later_s, most) for fit in fits]
    step_s = [rounded(epoch_s / steps) for epoch_s in itertools.chain(*blocks)]
    return Samples(
        clock="host-latency",
        seconds=tuple(step_s),
        calls=steps,
        block_sizes=tuple(map(len, blocks)),
        stop_reason=words,
    )


def _other_fits(fits: list[TimedFit], planned: FitPlan) -> Fits:
    """The stored record of the fits of another number of steps. The setup of slow steps is left out, as it is lost in their
    noise."""
    later_s = thinned(list(itertools.chain(*(fit.later_s for fit in fits))))
    stored = Fits(steps=planned.steps, later_epoch_s=later_s)
    if planned.slow_steps:
        return stored
    return msgspec.structs.replace(stored, setup_s=thinned([fit.setup_s for fit in fits]))


def thinned(series: Sequence[float], most: int = MOST_OF_A_SERIES) -> tuple[float, ...]:
    """The numbers of a series that a row stores: all, or `most` of them at even distances, the first and the last included."""
    if len(series) <= most:
        return tuple(series)
    last = len(series) - 1
    return tuple(series[round(i * last / (most - 1))] for i in range(most))


def resized(x: np.ndarray, y: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """At least `count` samples and targets: the arrays as they are where they have as many, else repeated up to `count`."""
    if len(x) >= count:
        return x, y
    again = np.arange(count) % len(x)
    return x[again], y[again]
