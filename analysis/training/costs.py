"""Seconds of a training's parts from measured rows (start-up, build, compilation, data-set setup, epoch, step), the whole
training, and the break-even."""

# A warm fit of E epochs of S steps takes setup + E (epoch + S step) seconds. A row has stamped later epochs of its own samples
# and of another number of steps (series "later_epoch_s S"), so neither setup nor compilation is in its step. Rows from before
# have whole short fits (series "fit_s ExS") of other numbers of samples, so what a fit does with each sample is in their step.
# A row of several processes has each one's series, "fit_s ExS process I": each tells its own costs; the row's are their medians.

from collections.abc import Iterable, Sequence
from math import inf
from statistics import stdev
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from analysis import noise, stats
from analysis.stats import NOTHING, Estimate
from kernels import networks
from kernels.problems import Training
from workloads.records import FITS, LATER, OF_PROCESS, SETUP, Measurement, Settings, by_epochs

FIT = "training/keras/fit"
_STARTS = ("import", "device_start")
_COMPILED = ("compile", "compile_last")
_WARM = ("dataset_setup", "epoch", "step", "setup_step")  # costs that each process of a row has of its own
SLOWEST = "setup_s_per_byte"  # value of short-fit rows, taken from other runs
LEAST_BYTES = 784  # of the smallest samples whose setups were measured, with what a sample takes beside its bytes
FEW = 5  # processes, from which on their median has an interval of its own


class TrainingCost(msgspec.Struct, frozen=True):
    """Seconds of each part of a training; None where nothing is known. What is small may be negative by its noise.

    start: importing the library and starting the device. build: building the model. compile: all distinct batch shapes.
    dataset_setup: a first fit's seconds beyond its epochs, for `steps` steps' samples; setup_step: what each further step's add.
    epoch: of an epoch beyond its steps. whole_epoch: one of `steps` steps as it was measured, better known than its parts.
    bound: the step is an upper bound, as short fits have setup_step in it.
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
    source: Literal["measured", "predicted"] = "measured"
    bound: bool = False

    def epoch_seconds(self, steps: int) -> Estimate:
        """Seconds of a warm epoch of so many steps: from a measured epoch if there is one, plus the further steps."""
        if self.whole_epoch is None:
            return self.epoch + self.step * steps
        return self.whole_epoch + self.step * (steps - self.steps)


def parts(cost: TrainingCost, epochs: int, steps: int) -> dict[str, Estimate]:
    """Part -> seconds of a whole training in a process of its own, in order; an unknown part counts as 0 s."""
    return {
        "start-up": cost.start or NOTHING,
        "build and compile": stats.total((cost.build, cost.compile)),
        "data-set setup": cost.dataset_setup + cost.setup_step * (steps - cost.steps),
        "between epochs": cost.epoch * epochs,
        "steps": cost.step * (epochs * steps),
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
        cost = replace(cost, whole_epoch=None, bound=any(one.bound for one in each), **several)
    compiled = [seconds for name in _COMPILED if (seconds := phase(m, name))]
    built = {"build": phase(m, "build"), "compile": stats.total(compiled) if compiled else None}
    return replace(cost, start=start(m, measurements), **built)


def _warm(m: "Measurement") -> TrainingCost | None:
    """Costs of the warm fits in one process; None without fits that separate a step from an epoch."""
    later = {int(match[1]): taken for name, taken in m.series.items() if (match := LATER.fullmatch(name)) and taken}
    if later and m.on("host-latency"):
        return _of_later_epochs(m, *later.popitem())
    if not (law := short_fits(forms(m))):
        return None
    cost, samples = TrainingCost(*law, steps=min(forms(m))[1], bound=m.variant == "fit"), m.on("host-latency")
    if m.variant.endswith("loop") and m.problem.batch >= m.problem.samples and samples:
        # A bare loop over one batch has no epochs: its step is that of its own fit of thousands, not of a few short ones.
        return replace(cost, dataset_setup=NOTHING, epoch=NOTHING, step=stats.of(samples))
    if not by_epochs(m):
        return _of_own_fits(m, cost)
    own = stats.of(samples)  # an epoch's share of a step is a bound too
    step = min(cost.step, own, key=lambda e: e.value)
    n = m.problem.steps
    return replace(cost, step=step, epoch=(own - step) * n, whole_epoch=own * n, steps=n)


def _of_later_epochs(m: "Measurement", few: int, taken: tuple[float, ...]) -> TrainingCost:
    """The costs by later epochs of the row's own steps and of another number of them."""
    samples, setup = m.on("host-latency"), setups(m)
    assert samples is not None
    own = stats.of(samples) * samples.calls
    (fewer, brief), (more, long) = sorted([(samples.calls, own), (few, stats.median(taken))], key=lambda e: e[0])
    step = (long - brief) / (more - fewer)
    whole, each = setup.get(samples.calls), NOTHING
    if whole and few in setup:
        each = ((whole - setup[few]) / (samples.calls - few)).at_least(0.0)
        # not told from nothing, or less than nothing seen: 1,500 steps make a minute of a fit's noise
        if min(each.low, setup[few].value) <= 0:
            each = replace(each, value=0.0, low=0.0)
    # a training has one fit, and the first one also finds memory for all samples: 0.3 s more for 500 MB on an H200's host
    first = _single(m.series[SETUP][0], [s * samples.calls for s in samples.seconds]) if whole else NOTHING
    return TrainingCost(
        first.at_least(0.0), brief - step * fewer, step, setup_step=each, whole_epoch=own, steps=samples.calls
    )


def batch_bytes(m: "Measurement") -> int:
    """Bytes of the samples of a row's batch, of each at least LEAST_BYTES; 0 of a user's own model."""
    p = m.problem
    if not isinstance(p, Training):
        return p.nbytes
    network = networks.known(p.model)
    return min(p.batch, p.samples) * max(LEAST_BYTES, networks.sample_bytes(network, p.dtype)) if network else 0


def slowest_setups(measurements: "Iterable[Measurement]") -> dict[str, float]:
    """Device -> the most seconds a byte of any data-set setup, from the rows that measured it by later epochs."""
    found: dict[str, float] = {}
    for m in measurements:
        cost = measured(m) if SETUP in m.series else None
        taken = cost.setup_step.value / (batch_bytes(m) or inf) if cost else m.values.get(SLOWEST, 0.0)
        if taken > 0:
            found[m.device] = max(found.get(m.device, 0.0), taken)
    return found


def setups(m: "Measurement") -> dict[int, Estimate]:
    """Steps of an epoch -> seconds of the data-set setup, over fits."""
    samples, found = m.on("host-latency"), {}
    assert samples is not None
    fits = [(SETUP, samples.calls, tuple(s * samples.calls for s in samples.seconds))]
    fits += [
        (f"{SETUP} {match[1]}", int(match[1]), t) for name, t in m.series.items() if (match := LATER.fullmatch(name))
    ]
    for name, steps, later in fits:
        if taken := m.series.get(name):
            found[steps] = _single(taken[0], later) if len(taken) == 1 else stats.median(taken)
    return found


def _single(setup: float, later: Sequence[float]) -> Estimate:
    """The setup of a single fit; its uncertainty is that of its first epoch, estimated from the epochs after it."""
    return stats.plus_minus(setup, stats.t_quantile(len(later) - 1) * stdev(later) if len(later) > 1 else 0.0)


def _of_own_fits(m: "Measurement", short: TrainingCost) -> TrainingCost:
    """The costs of an older row, improved by its own whole fits of one epoch: such a fit less a short fit gives the seconds of
    the further steps. Both estimates of a step are averaged, weighted by the square of their precision."""
    samples, few = m.on("host-latency"), min(forms(m))
    whole = m.problem.epochs == few[0] == 1 and m.problem.samples % m.problem.batch == 0 and m.problem.steps > few[1]
    if not samples or len(samples.seconds) < 2 or not whole:
        return short
    long = (stats.of(samples) * m.problem.steps - stats.median(forms(m)[few])) / (m.problem.steps - few[1])
    step = _together(short.step, long)
    moved = few[1] * (short.step.value - step.value)  # fits of few steps take what they took
    return replace(short, step=step, epoch=short.epoch + moved)


def _together(a: Estimate, b: Estimate) -> Estimate:
    """Two estimates of one number, averaged with weights 1 / width^2 of their intervals; an exact one is taken as it is."""
    wide = [e.high - e.low for e in (a, b)]
    if min(wide) <= 0:
        return a if wide[0] <= wide[1] else b
    share = wide[1] ** 2 / (wide[0] ** 2 + wide[1] ** 2)
    value, half = share * a.value + (1 - share) * b.value, 0.5 / (wide[0] ** -2 + wide[1] ** -2) ** 0.5
    return stats.plus_minus(value, half)


def forms(m: "Measurement") -> dict[tuple[int, int], tuple[float, ...]]:
    """(epochs, steps) -> seconds of the row's short fits, fewest first."""
    found = ((FITS.fullmatch(name), values) for name, values in m.series.items())
    return dict(sorted(((int(fit[1]), int(fit[2])), values) for fit, values in found if fit and values))


def processes(m: "Measurement") -> "list[Measurement]":
    """A row for each process that it was timed in, with that one's samples, fits and phases; the row itself if there was one
    process."""
    each: dict[int, dict[str, tuple[float, ...]]] = {}
    for name, taken in m.series.items():
        form, _, process = name.partition(OF_PROCESS)
        if process:
            each.setdefault(int(process), {})[form] = taken
    if len(each) < 2:
        return [m]
    found = []
    for i, series in sorted(each.items()):
        once = {name: m.series.get(f"{name}_s", ())[i : i + 1] for name in m.phases_s}  # else the last process's
        own = [tuple(t for t, b in zip(s.seconds, s.block, strict=True) if b == i) for s in m.samples]
        samples = zip(m.samples, own, strict=True)
        found.append(
            replace(
                m,
                series=series,
                samples=tuple(replace(s, seconds=t, block=tuple(range(len(t)))) for s, t in samples),
                phases_s=m.phases_s | {name: taken[0] for name, taken in once.items() if taken},
            )
        )
    return found


def short_fits(taken: dict[tuple[int, int], tuple[float, ...]]) -> tuple[Estimate, Estimate, Estimate] | None:
    """(fit, epoch, step) of the law from fits by (epochs, steps). Epoch and step come from the two fits farthest apart that
    differ in it alone, fit from the shortest; None if steps or epochs never varied alone. Whole repeats are resampled, so what
    shifted all fits of one cancels."""
    steps, epochs = _apart(taken, 1), _apart(taken, 0)
    if not (steps and epochs):
        return None
    order, base = list(taken), min(taken)
    rounds = min(map(len, taken.values()))
    at = {form: i for i, form in enumerate(order)}

    def parts(t: np.ndarray) -> np.ndarray:
        few, many = steps
        step = (t[at[many]] - t[at[few]]) / (many[0] * (many[1] - few[1]))
        few, many = epochs
        epoch = (t[at[many]] - t[at[few]]) / (many[0] - few[0]) - few[1] * step
        return np.stack([t[at[base]] - base[0] * (epoch + base[1] * step), epoch, step])

    fit, epoch, step = stats.of_rounds(np.array([taken[form][:rounds] for form in order]), parts)
    return fit, epoch, step


def _apart(taken: Iterable[tuple[int, int]], which: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The two forms that differ in their epochs (0) or steps (1) alone, and most."""
    taken = list(taken)
    pairs = [(a, b) for a in taken for b in taken if a[which] < b[which] and a[1 - which] == b[1 - which]]
    return max(pairs, key=lambda pair: pair[0][1 - which] * (pair[1][which] - pair[0][which]), default=None)


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
    return stats.reaching(value, value * (1 - apart), value * (1 + apart), *(seconds if len(seconds) == 2 else ()))


def _began(m: "Measurement") -> list[tuple[float, float]]:
    """(import, device start) in seconds for each process whose first row this is."""
    return list(zip(*(_phases(m, name) for name in _STARTS), strict=False))
