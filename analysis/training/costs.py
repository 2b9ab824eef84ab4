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

from analysis import noise, stats
from analysis.stats import NOTHING, Estimate
from kernels.problems import Training
from workloads.records import Fits, Measurement, Samples, Settings

FIT = "training/keras/fit"
# Phases that compile.
_COMPILED = ("compile", "compile_last")
# Costs that every process of a row has for itself.
_WARM = ("dataset_setup", "epoch", "step", "setup_step")
#: Processes from which on their median has an interval by itself.
FEW = 5


class TrainingCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each part of a training; None where nothing is known. What is small may be negative by its noise."""

    #: A first fit beyond its epochs, for the samples of `steps` steps.
    dataset_setup: Estimate
    #: An epoch beyond its steps.
    epoch: Estimate
    step: Estimate
    #: Importing the library and starting the device.
    start: Estimate | None = None
    #: Building the model.
    build: Estimate | None = None
    #: All distinct batch shapes.
    compile: Estimate | None = None
    #: What the samples of each further step add to the data-set setup.
    setup_step: Estimate = NOTHING
    #: An epoch of `steps` steps as it was measured, better known than its parts.
    whole_epoch: Estimate | None = None
    steps: int = 1
    #: By how much an epoch's incomplete last batch is quicker than a whole one.
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


def measured(row: Measurement, measurements: Iterable[Measurement] = ()) -> TrainingCost | None:
    """The costs of a training row; None if none is known. Only the first row of a process has a start-up, so that is taken from
    all `measurements`."""
    if not row.ok:
        return None
    by_process = []
    for part in processes(row):
        warm = _warm(part)
        if warm is not None:
            by_process.append(warm)
    if not by_process:
        return None
    cost = by_process[0]
    if len(by_process) > 1:
        medians = {name: _median_part(by_process, name) for name in _WARM}
        cost = msgspec.structs.replace(cost, whole_epoch=None, **medians)
    return msgspec.structs.replace(
        cost, start=start(row, measurements), build=phase(row, "build"), compile=_compilations(row)
    )


def _median_part(by_process: list[TrainingCost], name: str) -> Estimate:
    """The median over processes of a part of their costs."""
    return stats.median([getattr(cost, name).value for cost in by_process])


def _compilations(row: Measurement) -> Estimate | None:
    """Seconds of all compilations of a row; None where it has none."""
    compilations = [phase(row, name) for name in _COMPILED]
    if not any(compilations):
        return None
    return stats.total(compilations)


def _warm(row: Measurement) -> TrainingCost | None:
    """Costs of the warm fits in one process; None without what separates a step from an epoch."""
    samples = row.on("host-latency")
    if samples is None:
        return None
    for fits in row.fits:
        if fits.later_epoch_s:
            return _by_later_epochs(row, samples, fits)
    if row.variant.endswith("loop") and row.problem.batch >= row.problem.samples:
        # A bare loop over one batch has no epochs: its samples are steps.
        return TrainingCost(dataset_setup=NOTHING, epoch=NOTHING, step=stats.median_of(samples))
    return None


def _by_later_epochs(row: Measurement, samples: Samples, other: Fits) -> TrainingCost:
    """The costs by later epochs of the row's own steps, its samples, and of another number of them."""
    steps = samples.calls
    epoch_s = stats.median_of(samples) * steps
    other_epoch_s = stats.median(other.later_epoch_s)
    if steps <= other.steps:
        step = (other_epoch_s - epoch_s) / (other.steps - steps)
        epoch = epoch_s - step * steps
    else:
        step = (epoch_s - other_epoch_s) / (steps - other.steps)
        epoch = other_epoch_s - step * other.steps
    return TrainingCost(
        dataset_setup=_first_setup(row, samples).at_least(0.0),
        epoch=epoch,
        step=step,
        setup_step=_setup_of_a_step(setups(row), steps, other.steps),
        whole_epoch=epoch_s,
        steps=steps,
    )


def _setup_of_a_step(setup: dict[int, Estimate], steps: int, fewer: int) -> Estimate:
    """What the samples of each further step add to the data-set setup, by fits of two numbers of steps; at least nothing."""
    if steps not in setup or fewer not in setup:
        return NOTHING
    added = ((setup[steps] - setup[fewer]) / (steps - fewer)).at_least(0.0)
    # The noise of a fit would be a minute after 1,500 steps: an addition that may be nothing counts as nothing.
    if min(added.low, setup[fewer].value) <= 0:
        return msgspec.structs.replace(added, value=0.0, low=0.0)
    return added


def _first_setup(row: Measurement, samples: Samples) -> Estimate:
    """Seconds of the data-set setup in the first fit, which also finds memory for all samples: 0.3 s more for 500 MB on an H200's
    host. A training has one fit."""
    for fits in row.fits:
        if fits.steps == samples.calls and fits.setup_s:
            return _single(fits.setup_s[0], [seconds * samples.calls for seconds in samples.seconds])
    return NOTHING


def setups(row: Measurement) -> dict[int, Estimate]:
    """Steps of an epoch -> seconds of the data-set setup, over fits."""
    samples = row.on("host-latency")
    assert samples is not None
    by_steps = {}
    for fits in row.fits:
        later_s = fits.later_epoch_s or tuple(seconds * samples.calls for seconds in samples.seconds)
        if len(fits.setup_s) == 1:
            by_steps[fits.steps] = _single(fits.setup_s[0], later_s)
        elif fits.setup_s:
            by_steps[fits.steps] = stats.median(fits.setup_s)
    return by_steps


def _single(setup: float, later: Sequence[float]) -> Estimate:
    """The setup of a single fit; its uncertainty is that of its first epoch, estimated from the epochs after it."""
    if len(later) < 2:
        return stats.plus_minus(setup, 0.0)
    return stats.plus_minus(setup, stats.t_quantile(len(later) - 1) * stdev(later))


def processes(row: Measurement) -> list[Measurement]:
    """A row for each process that it was timed in, with that one's samples, fits and phases; the row itself if there was one
    process."""
    by_process = stats.group_by(row.fits, lambda fits: fits.process)
    if len(by_process) < 2:
        return [row]
    rows = []
    for process, fits in sorted(by_process.items()):
        phases_s = dict(row.phases_s)
        for name in row.phases_s:
            seconds = row.series.get(f"{name}_s", ())
            if process < len(seconds):  # else the last process's
                phases_s[name] = seconds[process]
        samples = tuple(_samples_of_process(one, process) for one in row.samples)
        rows.append(msgspec.structs.replace(row, fits=tuple(fits), samples=samples, phases_s=phases_s))
    return rows


def _samples_of_process(samples: Samples, process: int) -> Samples:
    """The samples of one process, whose visits are blocks."""
    pairs = zip(samples.seconds, samples.block, strict=True)
    seconds = tuple(taken for taken, block in pairs if block == process)
    return msgspec.structs.replace(samples, seconds=seconds, block_sizes=(1,) * len(seconds))


def phase(row: Measurement, name: str) -> Estimate | None:
    """Seconds of a phase, over processes where the row was taken in several."""
    by_process = _phases(row, name)
    return stats.median(by_process) if by_process else None


def _phases(row: Measurement, name: str) -> tuple[float, ...]:
    """Seconds of a phase in each process of the row."""
    series = row.series.get(f"{name}_s")
    if series:
        return series
    return (row.phases_s[name],) if name in row.phases_s else ()


# ---------------------------------------------------------------- start-up


def start(row: Measurement, measurements: Iterable[Measurement] = ()) -> Estimate | None:
    """Seconds of importing the library and starting the device in a process of its own; None where no row has them."""
    parts_of_start = start_parts(row, measurements)
    return stats.total(parts_of_start) if parts_of_start else None


def start_parts(row: Measurement, measurements: Iterable[Measurement] = ()) -> tuple[Estimate, Estimate] | None:
    """(the import, the device's start) in seconds; None where no row of the device and library has them.

    The import is the same work for every device, so all processes that imported the library count. The device's start is taken
    from its own processes, in the row's form (the GPU hidden or visible) before others.
    """
    rows = [one for one in measurements if isinstance(one.problem, Training) and one.library == row.library]
    if not any(one is row for one in rows):
        rows.append(row)
    on_device = [one for one in rows if one.device == row.device]
    same_form = [one for one in on_device if start_form(one) == start_form(row)]
    for group in (same_form, on_device):
        device_starts = _device_starts(group)
        if device_starts:
            return (_over_processes(_imports_from_memory(rows)), _over_processes(device_starts))
    return None


def start_form(row: Measurement) -> tuple[str, str, str | None]:
    """(library, device, GPU hidden or visible): rows of the same form have the same start-up."""
    return (row.library, row.device, row.keras.gpu)


def _device_starts(rows: Iterable[Measurement]) -> list[float]:
    """Seconds of the device's start in each process."""
    seconds = []
    for row in rows:
        seconds += [device_s for _, device_s in _starts(row)]
    return seconds


def _imports_from_memory(rows: Iterable[Measurement]) -> list[float]:
    """Seconds of each process's import, without the first process if that was the slowest of several: it read the library from
    disk."""
    seconds = []
    for row in sorted(rows, key=lambda row: row.at):
        seconds += [import_s for import_s, _ in _starts(row)]
    if len(seconds) > 1 and seconds[0] > max(seconds[1:]):
        return seconds[1:]
    return seconds


def _over_processes(seconds: list[float]) -> Estimate:
    """The median over processes. With fewer than FEW the interval cannot be resampled: it is the usual difference of whole
    models, and with two processes it reaches both, as either may be the outlier."""
    if len(seconds) >= FEW:
        return stats.median(seconds)
    value = float(np.median(seconds))
    share = noise.DEFAULT[noise.MODELS]
    bounds = [value * (1 - share), value * (1 + share)]
    if len(seconds) == 2:
        bounds += seconds
    return stats.covering(value, *bounds)


def _starts(row: Measurement) -> list[tuple[float, float]]:
    """(import, device start) in seconds for each process whose first row this is."""
    return list(zip(_phases(row, "import"), _phases(row, "device_start"), strict=False))
