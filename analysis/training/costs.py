"""Seconds of a training's parts from measured rows (start-up, build, compilation, data-set setup, epoch, step), the whole
training, and the break-even."""

# A warm fit of E epochs of S steps takes setup + E (epoch + S step) seconds. A row has stamped later epochs of its own samples
# and of another number of steps (`fits`), so neither setup nor compilation is in its step. Of a row of several processes each
# tells its own costs; the row's are their medians.

from collections.abc import Iterable, Sequence
from statistics import stdev
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from analysis import noise, stats
from analysis.stats import NOTHING, Estimate
from kernels.problems import Training
from workloads.records import Fits, Measurement, Samples, Settings

FIT = "training/keras/fit"
_STARTS = ("import", "device_start")
_COMPILED = ("compile", "compile_last")
_WARM = ("dataset_setup", "epoch", "step", "setup_step")  # costs that each process of a row has of its own
FEW = 5  # processes, from which on their median has an interval of its own


class TrainingCost(msgspec.Struct, frozen=True):
    """Seconds of each part of a training; None where nothing is known. What is small may be negative by its noise.

    start: importing the library and starting the device. build: building the model. compile: all distinct batch shapes.
    dataset_setup: a first fit's seconds beyond its epochs, for `steps` steps' samples; setup_step: what each further step's add.
    epoch: of an epoch beyond its steps. whole_epoch: one of `steps` steps as it was measured, better known than its parts.
    last_step_saves: by how much an epoch's incomplete last batch is quicker than a whole one.
    """

    dataset_setup: Estimate
    epoch: Estimate
    step: Estimate
    start: Estimate | None = None
    build: Estimate | None = None
    compile: Estimate | None = None
    setup_step: Estimate = NOTHING
    whole_epoch: Estimate | None = None
    steps: int = 1
    last_step_saves: Estimate = NOTHING
    source: Literal["measured", "predicted"] = "measured"

    def epoch_seconds(self, steps: int) -> Estimate:
        """Seconds of a warm epoch of so many steps: from a measured epoch if there is one, plus the further steps."""
        if self.whole_epoch is None:
            return self.epoch + self.step * steps - self.last_step_saves
        return self.whole_epoch + self.step * (steps - self.steps)


def parts(cost: TrainingCost, epochs: int, steps: int) -> dict[str, Estimate]:
    """Part -> seconds of a whole training in a process of its own, in order; an unknown part counts as 0 s."""
    return {
        "start-up": cost.start or NOTHING,
        "build and compile": stats.total((cost.build, cost.compile)),
        "data-set setup": cost.dataset_setup + cost.setup_step * (steps - cost.steps),
        "between epochs": cost.epoch * epochs,
        "steps": cost.step * (epochs * steps) - cost.last_step_saves * epochs,
    }


def whole_training(cost: TrainingCost, epochs: int, steps: int) -> Estimate:
    """Seconds of a whole training of so many epochs of so many steps, start-up and compilation included; with 0 epochs, the
    time before the first."""
    return stats.total((*parts(cost, 0, steps).values(), cost.epoch_seconds(steps) * epochs))


def break_even(cpu: TrainingCost, gpu: TrainingCost, steps: int = 0, epochs: int = 0) -> Estimate | None:
    """Break-even in epochs of so many steps, or in steps an epoch for so many epochs: the count after which the GPU has made up
    for its longer start. 0 if its start is no longer; None if its epochs (steps) are surely no shorter. The upper end is
    infinite if they may be no shorter. If they are only possibly shorter, only the lower end is finite."""

    def one(cost: TrainingCost) -> Estimate:
        return cost.epoch_seconds(steps) if steps else cost.setup_step + cost.step * epochs

    later = whole_training(gpu, epochs, steps) - whole_training(cpu, epochs, steps)
    gain = one(cpu) - one(gpu)
    return later / gain if gain.high > 0 else None


def compiles(settings: Settings) -> bool:
    """Whether Keras compiles a step by XLA, by its jit_compile option; `auto` does where TensorFlow sees a GPU."""
    jit = settings.keras.jit_compile
    if jit == "auto":
        return settings.on_gpu or settings.keras.gpu == "visible"
    return jit == "on"


def left_over(training: Training, settings: Settings) -> int:
    """Samples in the smaller last batch for which XLA compiles the step once more; 0 where it does not."""
    if training.samples <= training.batch or not compiles(settings):
        return 0
    return training.samples % training.batch


def measured(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> TrainingCost | None:
    """The costs of a training row; None if none is known. Only the first row of a process has a start-up, so that is taken from
    all `measurements`."""
    if not m.ok:
        return None
    each = [cost for part in processes(m) if (cost := _warm(part))]
    if not each:
        return None
    cost = each[0]
    if len(each) > 1:
        several = {part: stats.median([getattr(one, part).value for one in each]) for part in _WARM}
        cost = replace(cost, whole_epoch=None, **several)
    compiled = [seconds for name in _COMPILED if (seconds := phase(m, name))]
    built = {"build": phase(m, "build"), "compile": stats.total(compiled) if compiled else None}
    return replace(cost, start=start(m, measurements), **built)


def _warm(m: "Measurement") -> TrainingCost | None:
    """Costs of the warm fits in one process; None without what separates a step from an epoch."""
    samples = m.on("host-latency")
    if samples is None:
        return None
    for fits in m.fits:
        if fits.later_epoch_s:
            return _of_later_epochs(m, samples, fits)
    if m.variant.endswith("loop") and m.problem.batch >= m.problem.samples:
        # A bare loop over one batch has no epochs: its samples are steps.
        return TrainingCost(dataset_setup=NOTHING, epoch=NOTHING, step=stats.median_of(samples))
    return None


def _of_later_epochs(m: "Measurement", samples: Samples, other: Fits) -> TrainingCost:
    """The costs by later epochs of the row's own steps, its samples, and of another number of them."""
    setup = setups(m)
    few = other.steps
    taken = other.later_epoch_s
    own = stats.median_of(samples) * samples.calls
    (fewer, brief), (more, long) = sorted([(samples.calls, own), (few, stats.median(taken))], key=lambda e: e[0])
    step = (long - brief) / (more - fewer)
    whole, each = setup.get(samples.calls), NOTHING
    if whole and few in setup:
        each = ((whole - setup[few]) / (samples.calls - few)).at_least(0.0)
        # not told from nothing, or less than nothing seen: 1,500 steps make a minute of a fit's noise
        if min(each.low, setup[few].value) <= 0:
            each = replace(each, value=0.0, low=0.0)
    # a training has one fit, and the first one also finds memory for all samples: 0.3 s more for 500 MB on an H200's host
    own_setup_s = next((fits.setup_s for fits in m.fits if fits.steps == samples.calls), ())
    first = _single(own_setup_s[0], [s * samples.calls for s in samples.seconds]) if whole else NOTHING
    return TrainingCost(
        first.at_least(0.0), brief - step * fewer, step, setup_step=each, whole_epoch=own, steps=samples.calls
    )


def setups(m: "Measurement") -> dict[int, Estimate]:
    """Steps of an epoch -> seconds of the data-set setup, over fits."""
    samples = m.on("host-latency")
    assert samples is not None
    found = {}
    for fits in m.fits:
        later = fits.later_epoch_s or tuple(s * samples.calls for s in samples.seconds)
        if len(fits.setup_s) == 1:
            found[fits.steps] = _single(fits.setup_s[0], later)
        elif fits.setup_s:
            found[fits.steps] = stats.median(fits.setup_s)
    return found


def _single(setup: float, later: Sequence[float]) -> Estimate:
    """The setup of a single fit; its uncertainty is that of its first epoch, estimated from the epochs after it."""
    return stats.plus_minus(setup, stats.t_quantile(len(later) - 1) * stdev(later) if len(later) > 1 else 0.0)


def processes(m: "Measurement") -> "list[Measurement]":
    """A row for each process that it was timed in, with that one's samples, fits and phases; the row itself if there was one
    process."""
    each = stats.group_by(m.fits, lambda fits: fits.process)
    if len(each) < 2:
        return [m]
    found = []
    for i, fits in sorted(each.items()):
        once = {name: m.series.get(f"{name}_s", ())[i : i + 1] for name in m.phases_s}  # else the last process's
        own = [tuple(t for t, b in zip(s.seconds, s.block, strict=True) if b == i) for s in m.samples]
        samples = zip(m.samples, own, strict=True)
        found.append(
            replace(
                m,
                fits=tuple(fits),
                samples=tuple(replace(s, seconds=t, block_sizes=(1,) * len(t)) for s, t in samples),
                phases_s=m.phases_s | {name: taken[0] for name, taken in once.items() if taken},
            )
        )
    return found


def phase(m: "Measurement", name: str) -> Estimate | None:
    """Seconds of a phase, over processes where the row was taken in several."""
    each = _phases(m, name)
    return stats.median(each) if each else None


def _phases(m: "Measurement", name: str) -> tuple[float, ...]:
    """Seconds of a phase in each process of the row."""
    return m.series.get(f"{name}_s") or ((m.phases_s[name],) if name in m.phases_s else ())


def start(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> Estimate | None:
    """Seconds of importing the library and starting the device in a process of its own; None where no row has them."""
    found = begun(m, measurements)
    return found and stats.total(found)


def begun(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> tuple[Estimate, Estimate] | None:
    """(the import, the device's start) in seconds; None where no row of the device and library has them.

    The import is the same work for every device, so all processes that imported the library count. The device's start is taken
    from its own processes, in the row's form (the GPU hidden or visible) before others.
    """
    library, device, _ = how_begun(m)
    rows = [row for row in measurements if isinstance(row.problem, Training) and row.library == library]
    rows += [] if any(row is m for row in rows) else [m]
    own = [row for row in rows if row.device == device]
    same = [row for row in own if how_begun(row) == how_begun(m)]
    for group in (same, own):
        if devices := [taken for row in group for _, taken in _began(row)]:
            return _taken(_without_first(rows)), _taken(devices)
    return None


def how_begun(m: "Measurement") -> tuple[str, str, str | None]:
    """(library, device, GPU hidden or visible): rows with the same key have the same start-up."""
    return m.library, m.device, m.keras.gpu


def _without_first(rows: "Iterable[Measurement]") -> list[float]:
    """Seconds of each process's import, without the first process if that was the slowest of several: it read the library from
    disk."""
    found = [taken for row in sorted(rows, key=lambda row: row.at) for taken, _ in _began(row)]
    return found[1:] if len(found) > 1 and found[0] > max(found[1:]) else found


def _taken(seconds: list[float]) -> Estimate:
    """The median over processes. With fewer than FEW the interval cannot be resampled: it is the usual difference of whole
    models, and with two processes it reaches both, as either may be the outlier."""
    if len(seconds) >= FEW:
        return stats.median(seconds)
    value, apart = float(np.median(seconds)), noise.DEFAULT[noise.MODELS]
    return stats.covering(value, value * (1 - apart), value * (1 + apart), *(seconds if len(seconds) == 2 else ()))


def _began(m: "Measurement") -> list[tuple[float, float]]:
    """(import, device start) in seconds for each process whose first row this is."""
    return list(zip(*(_phases(m, name) for name in _STARTS), strict=False))
