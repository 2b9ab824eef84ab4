"""Times a Trainer's fits by their later epochs, so that data-set setup, an epoch and a step can be told apart."""

# A warm fit of E epochs of S steps takes setup + E (epoch + S step) seconds. What it does once is in its first epoch or around
# its epochs; the later ones have none of it.

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
FITS, BRIEF_EPOCHS = 5, 3  # fits of a row, and epochs of those after the first
FITS_MOST_TIMES = 6  # a row's fits take at most so many times limits.max_time
LOOK_EPOCHS, LOOK_STEPS = 3, 8  # epochs of the two short fits before; steps that tell an epoch from another
ENOUGH_STEPS = 32  # an epoch of so many steps is long enough to measure a step by
LEAST_S = 0.6  # of later epochs of more steps, even with --fast: 60 of a GPU's 2 ms, as its epochs differ by 10 ms
MOST_STEPS, MOST_BYTES = 200, 512 << 20  # of the longer epochs that are fitted where the problem's own are shorter
LOSS_BATCHES = 20
MOST_KEPT = 200  # numbers that a row keeps of a series
LONG_FIT_S = 10.0  # a first fit of so many seconds, compilation included, may have slow steps
LONG_LOOK_S = 1.0  # one warm epoch of so many seconds is enough of a look
SLOW_EPOCHS = 4  # fewest of each fit that times slow steps, the first included: two later ones bound a step by 15x
SLOW_STEPS, SLOW_FIT_S = 3, 15.0  # fewest steps of such an epoch; seconds that a fit takes of more epochs or steps


def samples_held(problem: Training, sample_bytes: int, unit: int = 1) -> int:
    """Samples to have ready: the problem's own, or enough whole batches to vary the steps of an epoch by."""
    batch, whole = min(problem.batch, problem.samples), problem.samples // problem.batch
    most = MOST_STEPS if whole < ENOUGH_STEPS * unit else unit * max(2, LOOK_STEPS // unit)
    fit = min(most, MOST_BYTES // max(1, batch * sample_bytes)) // unit * unit
    more = fit if fit >= 2 * whole else 0
    if whole < 4 * unit:  # too few steps to vary them downward
        more = max(more, 2 * unit * -(-problem.steps // unit))
    return max(problem.samples, more * batch)


def compiled(trainer: Trainer, problem: Training, phases: dict[str, float], unit: int = 1) -> tuple[int, float]:
    """(the steps of a warm fit's epoch, its seconds). Fills phases_s compile: a first fit of `unit` batches less a warm one.

    Where an epoch ends in a smaller batch, the first fit has one too, as the problem's own has: its shape is open from the
    beginning, and what is compiled for it serves all later fits. compile_last is then the cost of a fit with yet another last
    batch, less a warm fit. compile is the rest, at least half, as some trainers compile both as one. Of long
    epochs it is left out, unless XLA compiles the step: nothing else compiles a shape that is open.
    """
    lacks = -problem.samples % problem.batch  # samples of the last batch
    steps = max(unit, 2) if lacks else unit
    samples = steps * problem.batch - lacks
    first = seconds(lambda: trainer.fit(samples, 1))
    announce.timing("timing a step")
    look = timed(trainer, samples, LOOK_EPOCHS if first < LONG_FIT_S else 2)
    long = first >= LONG_FIT_S and look.later[0] >= LONG_LOOK_S
    if len(look.later) == 1 and not long:
        look = timed(trainer, samples, LOOK_EPOCHS)
    warm = look.setup + statistics.median(look.later)
    phases["compile"] = both = max(0.0, first - warm)
    other = -1 if lacks + 1 < problem.batch else 1
    if lacks and lacks > other and (trainer.values.get("jit_compile") or not long):
        again = seconds(lambda: trainer.fit(samples + other, 1)) - warm
        phases["compile_last"] = max(0.0, min(again, both / 2))
        phases["compile"] -= phases["compile_last"]
    return steps, min(look.later)


@dataclasses.dataclass(frozen=True)
class Timed:
    """A fit, seconds of its epochs but the first, and its data-set setup in seconds: the time of the fit beyond its epochs,
    plus that of its first epoch beyond the median of the later ones."""

    fitted: Fitted
    later: tuple[float, ...]
    setup: float


def timed(trainer: Trainer, samples: int, epochs: int) -> Timed:
    """A fit of at least two epochs."""
    begin = time.perf_counter()
    fitted = trainer.fit(samples, epochs, stamped=True)
    later = fitted.epochs_s[1:]
    beyond = time.perf_counter() - begin - sum(later) - statistics.median(later)
    return Timed(fitted, tuple(map(rounded, later)), rounded(beyond))


class Plan(NamedTuple):
    """The fits of a row: `epochs` of the first one, `brief` epochs of further ones, all over the problem's own samples. They
    take turns with fits of `steps` whole batches an epoch, the first of `others` epochs. `slow_steps`: whole batches
    of an epoch of slow steps; 0: all of the problem's samples."""

    epochs: int
    steps: int
    brief: int = BRIEF_EPOCHS
    others: int = LATER_EPOCHS + 1
    slow_steps: int = 0


def planned(problem: Training, held: int, epoch: float, step: float, max_time: float, unit: int = 1) -> Plan:
    """The fits to run if an epoch takes `epoch` seconds beside its steps of `step` seconds each.

    Epochs: the problem's own, or one more than the later epochs wanted, fewer if they are long. Steps: fewer than the problem's
    if it has many; else as many more as there are samples and time for.
    """
    epochs = 1 + (LATER_EPOCHS if epoch + problem.steps * step <= LONG_EPOCH_S else FEWEST_LATER)
    later_s = max(max_time / 2, LEAST_S) / LATER_EPOCHS
    whole, most = problem.samples // problem.batch, min(held // problem.batch, int(later_s / step))
    if whole < 4 * unit or (whole < ENOUGH_STEPS * unit and most >= 2 * whole):
        steps = max(most // unit * unit, 2 * unit * -(-problem.steps // unit))
    else:
        steps = max(unit, min(whole // 4, max(LOOK_STEPS, whole // 16)) // unit * unit)
    return Plan(max(problem.epochs, epochs), steps, max(problem.epochs, BRIEF_EPOCHS))


def slow(problem: Training, step: float, limits: Limits, unit: int = 1) -> Plan | None:
    """The fits for slow steps, of `step` seconds: one of a few steps an epoch, one of single steps. None for steps that are not
    slow, for whole trainings of several epochs, and for problems of fewer steps than that.

    SLOW_FIT_S has time for more epochs first, up to LATER_EPOCHS after the first one, then for more steps in each.
    """
    calls = problem.samples // problem.batch // unit
    if limits.slow_step_s is None or step <= limits.slow_step_s or problem.epochs > 1 or calls < SLOW_STEPS:
        return None
    affordable_calls = int(SLOW_FIT_S / (step * unit))
    epochs = min(1 + LATER_EPOCHS, max(SLOW_EPOCHS, affordable_calls // SLOW_STEPS))
    steps = unit * min(calls, max(SLOW_STEPS, affordable_calls // epochs))
    return Plan(epochs=epochs, steps=unit, brief=epochs, others=epochs, slow_steps=steps)


def fits(first_s: float, wanted: Plan, max_time: float) -> int:
    """The number of fits of a row whose first pair took `first_s` seconds: FITS, or 1 if that takes too long. Two to four would
    say too little of their spread."""
    return FITS if first_s * (1 + (FITS - 1) * wanted.brief / wanted.epochs) <= FITS_MOST_TIMES * max_time else 1


def plan(
    trainer: Trainer, problem: Training, held: int, limits: Limits, look: tuple[int, float], unit: int = 1
) -> tuple[Plan, Fitted | None]:
    """(the plan, by the times of an epoch and a step in two short fits; the second of these fits). `look`: from `compiled`.

    The second, from the initial weights, is for its losses too; of whole batches (multiples of `unit`), so that nothing is
    compiled anew. A seed set anew makes TensorFlow optimize its graphs again: in its first epoch, which counts nowhere. Slow
    steps are planned without it.
    """
    few, one = look
    if few_steps := slow(problem, one / few, limits, unit):
        return few_steps, None
    steps = min(max(problem.samples // problem.batch, 2 * few), held // problem.batch, LOSS_BATCHES)
    steps = steps // unit * unit or steps
    trainer.restore()
    second = timed(trainer, steps * problem.batch or problem.samples, LOOK_EPOCHS)
    step = rounded(max((min(second.later) - one) / (steps - few), 1e-6) if steps > few else one / few)
    return planned(problem, held, max(one - few * step, 1e-6), step, limits.max_time, unit), second.fitted


def long_fits(
    trainer: Trainer, problem: Training, wanted: Plan, limits: Limits, before: Callable, brief: int = BRIEF_EPOCHS
) -> tuple[Fitted, Samples, tuple[Fits, ...]]:
    """(the first fit of the problem's own samples, seconds per step of the later epochs of all such fits, the fits of both
    numbers of steps).

    Such fits take turns with those of other steps, which have `brief` epochs after the first.
    """

    samples = wanted.slow_steps * problem.batch or problem.samples
    steps = -(-samples // problem.batch)

    def pair(epochs: int, others: int) -> tuple[Timed, Timed]:
        other = timed(trainer, wanted.steps * problem.batch, others)
        before()
        seconds = epochs * steps * statistics.median(other.later) / wanted.steps
        announce.timing(f"timing {epochs} epochs of {units.count(steps, 'step')}", seconds)
        return timed(trainer, samples, epochs), other

    begin = time.perf_counter()
    pairs = [pair(wanted.epochs, wanted.others)]
    count = fits(time.perf_counter() - begin, wanted, limits.max_time)
    pairs += [pair(wanted.brief, brief) for _ in range(count - 1)]
    each, others = zip(*pairs, strict=True)
    most = max(2, MOST_KEPT // count)
    later_epochs = [kept(fit.later, most) for fit in each]
    seconds_ = [epoch_s / steps for epoch_s in itertools.chain(*later_epochs)]
    fewer = f"{steps} of {problem.steps} steps, " if samples < problem.samples else "epochs of "
    said = f"{fewer}{units.count(count, 'fit')}"
    found = Samples("host-latency", tuple(map(rounded, seconds_)), steps, tuple(map(len, later_epochs)), said)
    problem_fits = Fits(steps=steps, setup_s=kept(tuple(fit.setup for fit in each)))
    later = kept(tuple(itertools.chain(*(fit.later for fit in others))))
    other_fits = Fits(steps=wanted.steps, later_epoch_s=later)
    if not wanted.slow_steps:  # what a further step adds to the setup is lost in the noise of a slow one
        other_fits = msgspec.structs.replace(other_fits, setup_s=kept(tuple(fit.setup for fit in others)))
    return each[0].fitted, found, (problem_fits, other_fits)


def kept(taken: Sequence[float], most: int = MOST_KEPT) -> tuple[float, ...]:
    """A series as a row keeps it: whole, or `most` of it at even distances, the first and the last among them."""
    if len(taken) <= most:
        return tuple(taken)
    return tuple(taken[round(i * (len(taken) - 1) / (most - 1))] for i in range(most))


def resized(x: np.ndarray, y: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` samples: those that there are, again and again, where they are fewer."""
    if len(x) >= count:
        return x, y
    again = np.arange(count) % len(x)
    return x[again], y[again]
