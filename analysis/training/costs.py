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
        """Seconds of an epoch of so many steps, after the first: a measured epoch, if there is one, plus or minus the steps that
        it had fewer or more; else its parts."""
        if self.whole_epoch is None:
            return self.epoch + self.step * steps - self.last_step_saves
        return self.whole_epoch + self.step * (steps - self.steps)


def parts(cost: TrainingCost, epochs: int, steps: int) -> dict[str, Estimate]:
    """Part -> seconds of a whole training of so many epochs of so many steps, in the order in which they happen. It has a process
    of its own. An unknown part counts as 0 s."""
    return {
        "start-up": cost.start or NOTHING,
        "build and compile": stats.total((cost.build, cost.compile)),
        "data-set setup": cost.dataset_setup + cost.setup_step * (steps - cost.steps),
        "between epochs": cost.epoch * epochs,
        "steps": cost.step * (epochs * steps) - cost.last_step_saves * epochs,
    }


def whole_training(cost: TrainingCost, epochs: int, steps: int) -> Estimate:
    """Seconds of a whole training of so many epochs of so many steps each, start-up and compilation included. With 0 epochs it is
    the time before the first epoch."""
    return stats.total((*parts(cost, 0, steps).values(), cost.epoch_seconds(steps) * epochs))


def break_even(cpu: TrainingCost, gpu: TrainingCost, *, steps: int = 0, epochs: int = 0) -> Estimate | None:
    """The length of a training from which the GPU finishes first, although it starts later: with `steps`, in epochs of so many
    steps; with `epochs`, in steps of each of so many epochs.

        length = (time before the GPU's first epoch - the CPU's) / (the CPU's time of an epoch - the GPU's)

    0 if the GPU starts no later. None if its epochs (steps) are surely no shorter. The upper end is infinite if they may be no
    shorter; if they are only possibly shorter, only the lower end is finite.
    """

    def unit_seconds(cost: TrainingCost) -> Estimate:
        """Seconds by which a training grows with one more epoch, or one more step in each epoch."""
        return cost.epoch_seconds(steps) if steps else cost.setup_step + cost.step * epochs

    later_s = whole_training(gpu, epochs, steps) - whole_training(cpu, epochs, steps)
    gain_s = unit_seconds(cpu) - unit_seconds(gpu)
    return later_s / gain_s if gain_s.high > 0 else None


def compiles(settings: Settings) -> bool:
    """Whether Keras compiles the training step by XLA: by its option jit_compile, which if "auto" is on where TensorFlow sees a
    GPU."""
    jit = settings.keras.jit_compile
    if jit == "auto":
        return settings.on_gpu or settings.keras.gpu == "visible"
    return jit == "on"


def left_over(training: Training, settings: Settings) -> int:
    """The number of samples in an epoch's smaller last batch, for which XLA compiles the step a second time; 0 if all batches are
    whole or XLA does not compile."""
    if training.samples <= training.batch or not compiles(settings):
        return 0
    return training.samples % training.batch


def measured(row: Measurement, measurements: Iterable[Measurement] = ()) -> TrainingCost | None:
    """The costs of a measured training; None if its step is not known. Only the first training of a process has a start-up, so
    the time of that is taken from all `measurements` of the same library and device."""
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
    """The median over processes of one of the _WARM costs."""
    return stats.median([getattr(cost, name).value for cost in by_process])


def _compilations(row: Measurement) -> Estimate | None:
    """Seconds of all compilations of a training; None if none was measured."""
    compilations = [phase(row, name) for name in _COMPILED]
    if not any(compilations):
        return None
    return stats.total(compilations)


def _warm(row: Measurement) -> TrainingCost | None:
    """The costs of training in one process once everything is compiled; None unless epochs of two lengths were timed, which
    separates a step from the rest of an epoch."""
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
    """The costs from epochs of two lengths: those of `samples`, and those of `other`, both timed after the first epoch.

    step = (longer epoch - shorter epoch) / (its steps - the shorter one's);  epoch = shorter epoch - its steps * step
    """
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


def _setup_of_a_step(setup_s: dict[int, Estimate], steps: int, other_steps: int) -> Estimate:
    """Seconds that the samples of each further step add to the data-set setup, from fits of two lengths; never below 0.

    setup_s: steps of an epoch -> seconds of the setup.
    """
    if steps not in setup_s or other_steps not in setup_s:
        return NOTHING
    added = ((setup_s[steps] - setup_s[other_steps]) / (steps - other_steps)).at_least(0.0)
    # The noise of a fit would be a minute after 1,500 steps: an addition that may be nothing counts as nothing.
    if min(added.low, setup_s[other_steps].value) <= 0:
        return msgspec.structs.replace(added, value=0.0, low=0.0)
    return added


def _first_setup(row: Measurement, samples: Samples) -> Estimate:
    """Seconds of the data-set setup (copying and casting the samples before epoch 1) in the process's first fit of the row's own
    length. A training has just one fit, and the first also has memory to find: 0.3 s for 500 MB on an H200's host."""
    for fits in row.fits:
        if fits.steps == samples.calls and fits.setup_s:
            epochs_s = [seconds * samples.calls for seconds in samples.seconds]
            return _single_setup(fits.setup_s[0], epochs_s)
    return NOTHING


def setups(row: Measurement) -> dict[int, Estimate]:
    """Steps of an epoch -> seconds of the data-set setup, the median over the fits of that length."""
    samples = row.on("host-latency")
    assert samples is not None
    by_steps = {}
    for fits in row.fits:
        later_epochs_s = fits.later_epoch_s or tuple(seconds * samples.calls for seconds in samples.seconds)
        if len(fits.setup_s) == 1:
            by_steps[fits.steps] = _single_setup(fits.setup_s[0], later_epochs_s)
        elif fits.setup_s:
            by_steps[fits.steps] = stats.median(fits.setup_s)
    return by_steps


def _single_setup(setup_s: float, later_epochs_s: Sequence[float]) -> Estimate:
    """Seconds of the data-set setup, known from one fit alone. It is what the first epoch took longer than a later one, so its
    error is that of a single epoch: the deviation among the later ones."""
    if len(later_epochs_s) < 2:
        return stats.plus_minus(setup_s, 0.0)
    return stats.plus_minus(setup_s, stats.t_quantile(len(later_epochs_s) - 1) * stdev(later_epochs_s))


def processes(row: Measurement) -> list[Measurement]:
    """A measurement split into one for each process that it was timed in, with the samples, fits and phases of that process;
    [row] if it was one process."""
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
    """The samples that were taken in one process: of a training, the block of a sample is its process. Each becomes a block."""
    pairs = zip(samples.seconds, samples.block, strict=True)
    seconds = tuple(taken for taken, block in pairs if block == process)
    return msgspec.structs.replace(samples, seconds=seconds, block_sizes=(1,) * len(seconds))


def phase(row: Measurement, name: str) -> Estimate | None:
    """Seconds of a phase (import, build, compile ...); the median if the row was timed in several processes, None without any."""
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
    """Seconds of importing the library and starting the device in a process of its own; None if no row of the same library and
    device has them. `measurements`: where else to look than in the row itself."""
    parts_of_start = start_parts(row, measurements)
    return stats.total(parts_of_start) if parts_of_start else None


def start_parts(row: Measurement, measurements: Iterable[Measurement] = ()) -> tuple[Estimate, Estimate] | None:
    """(seconds of the import, seconds of the device's start); None if no row of the same library and device has them.

    The import is the same work for every device, so its seconds are taken from all processes that imported the library. Those of
    the device's start are from processes that started it, if possible with the GPU hidden or visible as in the row.
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
    """(library, device, "hidden" or "visible" for the GPU on the CPU): trainings that share it start up alike."""
    return (row.library, row.device, row.keras.gpu)


def _device_starts(rows: Iterable[Measurement]) -> list[float]:
    """Seconds of starting the device in each process, from the first row of each."""
    seconds = []
    for row in rows:
        seconds += [device_s for _, device_s in _starts(row)]
    return seconds


def _imports_from_memory(rows: Iterable[Measurement]) -> list[float]:
    """Seconds of the import in each process, in the order of time. The first is left out if it is the longest of several, as it
    read the library from disk."""
    seconds = []
    for row in sorted(rows, key=lambda row: row.at):
        seconds += [import_s for import_s, _ in _starts(row)]
    if len(seconds) > 1 and seconds[0] > max(seconds[1:]):
        return seconds[1:]
    return seconds


def _over_processes(seconds: list[float]) -> Estimate:
    """The median over processes. Of FEW or more it has its own interval; of fewer, the relative error by which whole models
    usually differ from run to run, and of two it also covers both, as either may be the outlier."""
    if len(seconds) >= FEW:
        return stats.median(seconds)
    value = float(np.median(seconds))
    share = noise.DEFAULT[noise.MODELS]
    bounds = [value * (1 - share), value * (1 + share)]
    if len(seconds) == 2:
        bounds += seconds
    return stats.covering(value, *bounds)


def _starts(row: Measurement) -> list[tuple[float, float]]:
    """(seconds of the import, seconds of starting the device) for each process whose first training is this row."""
    return list(zip(_phases(row, "import"), _phases(row, "device_start"), strict=False))
