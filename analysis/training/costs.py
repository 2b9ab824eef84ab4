"""What the parts of a training cost: a fit, an epoch, a step, compilation and a process's start.

Each is read from fits that vary it alone.
"""

# The law: a warm fit of E epochs of S steps takes fit + S feed + E (epoch + S step) seconds. A row keeps the raw seconds of
# short fits as series "fit_s ExS", a repeat each; repeat i of all of them was taken side by side. Where the row's own epochs
# are longer and each was timed, what a step takes is read off these: a second of noise is little in a thousand steps; of whole
# fits that were timed, they and the short ones tell it together. A row of several processes has each one's fits, "fit_s ExS
# process I": each tells its own costs, and the row's are the medians of these.

from collections.abc import Iterable

import msgspec
import numpy as np

from analysis import noise, stats
from analysis.stats import NOTHING, Estimate
from kernels.problems import Training
from workloads.records import EPOCHS, FITS, OF_PROCESS, Measurement, Samples, by_epochs

_STARTS = ("import", "device_start")
_MADE = ("build", "compile", "compile_last")
FEW = 5  # processes, from which on their median has an interval of its own


class Costs(msgspec.Struct, frozen=True):
    """Seconds of each part of a training. `fit` and `epoch` may be negative where they are smaller than their noise.

    feed: what a fit takes for each step's samples before its first epoch (casting and copying them), told by a long fit alone.
    build: building the model. compile: what the first fit of one whole batch takes beyond a warm one; compile_last: the same for
    the smaller batch that ends an epoch, None where there is none. start: importing and starting the device, in a process
    of its own. What no row told is None.
    """

    fit: Estimate
    epoch: Estimate
    step: Estimate
    build: Estimate | None = None
    compile: Estimate | None = None
    compile_last: Estimate | None = None
    start: Estimate | None = None
    feed: Estimate = NOTHING

    def fit_beyond(self, steps: int) -> Estimate:
        """Seconds of a warm fit of that many steps an epoch beyond its epochs."""
        return self.fit + self.feed * steps

    def fit_seconds(self, epochs: int, steps: int) -> Estimate:
        """Seconds of a warm fit of `epochs` epochs of `steps` steps; the ends add too, however the parts hang together."""
        return self.fit_beyond(steps) + self.epoch * epochs + self.step * (epochs * steps)


def job_seconds(costs: Costs, epochs: int, steps: int) -> Estimate:
    """Seconds of a whole job in a process of its own: start-up, build, every compilation, and one fit."""
    return stats.total((costs.start, costs.build, costs.compile, costs.compile_last, costs.fit_seconds(epochs, steps)))


def forms(m: "Measurement") -> dict[tuple[int, int], tuple[float, ...]]:
    """(epochs, steps) -> seconds of the row's short fits, fewest first."""
    found = {
        (int(match[1]), int(match[2])): values
        for name, values in m.series.items()
        if (match := FITS.fullmatch(name)) and values
    }
    return dict(sorted(found.items()))


def processes(m: "Measurement") -> "list[Measurement]":
    """The row once for each process that it was timed in, with that one's samples, fits and phases; itself where it is of one."""
    each: dict[int, dict[str, tuple[float, ...]]] = {}
    for name, taken in m.series.items():
        form, _, process = name.partition(OF_PROCESS)
        if process:
            each.setdefault(int(process), {})[form] = taken
    if len(each) < 2:
        return [m]
    return [
        msgspec.structs.replace(
            m, series=series, samples=tuple(_block(s, i) for s in m.samples), phases_s=_phases(m, i)
        )
        for i, series in sorted(each.items())
    ]


def _phases(m: "Measurement", process: int) -> dict[str, float]:
    """What happened once in a process; of phases that only some processes had, that of the last one."""
    every = {name: m.series.get(f"{name}_s", ()) for name in m.phases_s}
    return {name: taken[process] if len(taken) > process else m.phases_s[name] for name, taken in every.items()}


def _block(samples: "Samples", block: int) -> "Samples":
    """Those of one block, each a block of its own, as they were taken."""
    own = tuple(s for s, b in zip(samples.seconds, samples.block, strict=True) if b == block)
    return msgspec.structs.replace(samples, seconds=own, block=tuple(range(len(own))))


def law(taken: dict[tuple[int, int], tuple[float, ...]]) -> tuple[Estimate, Estimate, Estimate] | None:
    """(fit, epoch, step) of the law from fits by (epochs, steps), each from two that differ in it alone, as far apart as there
    are; None where nothing varied steps or epochs alone. Whole repeats are resampled, so what shifted all of them cancels."""
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


def costs(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> Costs | None:
    """The costs of a training row; None without the fits that tell them. Only a process's first row has a start-up: what one
    takes is read off all of them among `measurements`."""
    if not m.ok:
        return None
    each = [found for part in processes(m) if (found := _warm(part))]
    if not each:
        return None
    made = each[0]
    if len(each) > 1:
        several = {
            part: stats.median([getattr(one, part).value for one in each]) for part in ("fit", "epoch", "step", "feed")
        }
        made = msgspec.structs.replace(made, **several)
    build, compiled, last = (_phase(m, name) for name in _MADE)
    return msgspec.structs.replace(made, build=build, compile=compiled, compile_last=last, start=start(m, measurements))


def _warm(m: "Measurement") -> Costs | None:
    """What warm fits of one process cost."""
    if not (found := law(forms(m))):
        return None
    return _by_own_epochs(m, Costs(*found)) if by_epochs(m) else _by_own_fits(m, Costs(*found))


def _by_own_epochs(m: "Measurement", short: Costs) -> Costs:
    """The costs by the row's own epochs. Where they have more steps than its short fits they tell the step: an epoch less what
    one of few steps takes; and the feed, where all epochs of the first fit are known: that fit without them, its compilation
    and what a short one takes too. Where they have fewer, they tell the epoch."""
    taken, steps = forms(m), m.problem.steps
    long = stats.of(m.on("host-latency")) * steps
    if steps <= max(steps for _, steps in taken):
        return msgspec.structs.replace(short, epoch=long - short.step * steps)
    if (ends := _apart(taken, 0)) is None:
        return short
    fewer, more = ends
    few, rounds = fewer[1], min(len(taken[fewer]), len(taken[more]))
    pair = np.array([taken[fewer][:rounds], taken[more][:rounds]])
    (brief,) = stats.of_rounds(pair, lambda t: (t[1:] - t[:1]) / (more[0] - fewer[0]))
    step = (long - brief) / (steps - few)
    feed = short.feed
    epochs, once = m.series.get(EPOCHS, ()), m.phases_s.get("first_call")
    if once and len(epochs) == m.problem.epochs:
        whole = once - sum(m.phases_s.get(name, 0.0) for name in _MADE[1:]) - sum(epochs)
        feed = (whole - short.fit).at_least(0.0) / steps
    return msgspec.structs.replace(short, step=step, epoch=brief - step * few, feed=feed)


def _by_own_fits(m: "Measurement", short: Costs) -> Costs:
    """The costs with what the row's own fits of one epoch say too: one less a fit of few steps is so many steps more. Both
    ways of telling a step count by how well each knows it."""
    own, (epochs, steps) = m.on("host-latency"), (m.problem.epochs, m.problem.steps)
    few = min(forms(m))
    whole = m.problem.samples % m.problem.batch == 0
    if not own or len(own.seconds) < 2 or epochs != 1 or few[0] != 1 or not (whole and steps > few[1]):
        return short
    long = (stats.of(own) * steps - stats.median(forms(m)[few])) / (steps - few[1])
    step = _together(short.step, long)
    moved = few[1] * (short.step.value - step.value)  # fits of few steps take what they took
    return msgspec.structs.replace(short, step=step, epoch=short.epoch + moved)


def _together(a: Estimate, b: Estimate) -> Estimate:
    """One number of two that tell the same, each weighed by the square of its interval; the better one of both alone where
    nothing is known of an interval."""
    wide = [e.high - e.low for e in (a, b)]
    if min(wide) <= 0:
        return a if wide[0] <= wide[1] else b
    share = wide[1] ** 2 / (wide[0] ** 2 + wide[1] ** 2)
    value, half = share * a.value + (1 - share) * b.value, 0.5 / (wide[0] ** -2 + wide[1] ** -2) ** 0.5
    return stats.plus_minus(value, half)


def _phase(m: "Measurement", name: str) -> Estimate | None:
    """Seconds of a phase: over processes where the row was taken in several, else the one number."""
    if each := m.series.get(f"{name}_s"):
        return stats.median(each)
    return stats.exact(m.phases_s[name]) if name in m.phases_s else None


def start(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> Estimate | None:
    """Seconds of importing the library and starting the device in a process of its own; None where no row says."""
    found = begun(m, measurements)
    return found and stats.total(found)


def begun(m: "Measurement", measurements: "Iterable[Measurement]" = ()) -> tuple[Estimate, Estimate] | None:
    """(the import, the device's start) in seconds; None where no row of the device and library says.

    The import is the same work whatever device comes after it, so it is that of every process which imported the library;
    the device's start is that of the processes of the device, in the row's own form (the GPU hidden or visible) before others.
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
    """(library, device, whether the GPU is hidden or visible): the rows alike in these have begun alike."""
    return m.library, m.device, m.keras.gpu


def _without_first(rows: "Iterable[Measurement]") -> list[float]:
    """Seconds of each process's import, but that of the very first one where it took longest and there are others: it read the
    library from the disk."""
    found = [taken for row in sorted(rows, key=lambda row: row.at) for taken, _ in _began(row)]
    return found[1:] if len(found) > 1 and found[0] > max(found[1:]) else found


def _taken(seconds: list[float]) -> Estimate:
    """The median over processes. Of fewer than FEW no interval can be resampled: theirs is what whole models differ by about it,
    on any machine, and of two, that do not say which is the odd one, it reaches both."""
    if len(seconds) >= FEW:
        return stats.median(seconds)
    value = float(np.median(seconds))
    ends = seconds if len(seconds) == 2 else ()
    return Estimate(
        value,
        min(value * (1 - noise.DEFAULT[noise.MODELS]), *ends, value),
        max(value * (1 + noise.DEFAULT[noise.MODELS]), *ends, value),
    )


def _began(m: "Measurement") -> list[tuple[float, float]]:
    """(import, device start) of each process that the row was the first of."""
    every = [m.series.get(f"{name}_s") or ((m.phases_s[name],) if name in m.phases_s else ()) for name in _STARTS]
    return list(zip(*every, strict=False))
