"""Sentences that terminal, page, JSON and README share: the winner, the size or epoch from which it wins, and how sure it
is."""

import math
import string
from collections.abc import Callable
from typing import ClassVar

from analysis.crossover.crossover import Answer, Crossing
from analysis.numbers import factor, gain, interval, number, share, time, timed
from analysis.predict.combine import WORDS
from analysis.predict.prediction import Prediction
from analysis.stats import Estimate, exact, faster, likely
from analysis.units import bytes_rate, flops_rate, join, size
from kernels.networks import title

MEASURED, PREDICTED = "measured", "predicted"
CANT_TELL = "can't tell"
NAMES = {"cpu": "CPU", "gpu": "GPU", "gpu:0": "GPU"}
_LITTLE = 0.01  # of a step: a part of less is not named


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def speed(ratio: Estimate | float, than: str = "") -> str:
    """`3.2x faster than one`, `1.4x slower than one`; `not told from one` where the interval holds 1."""
    e = exact(ratio)
    if e.low <= 1 <= e.high:
        return f"not told from {than}" if than else CANT_TELL
    if factor(e) == "1.0x":
        return f"as fast as {than}" if than else "as fast"
    return (f"{factor(e)} faster" if e.value >= 1 else f"{factor(1 / e)} slower") + (f" than {than}" if than else "")


def shares(p: Prediction) -> str:
    """`72 % dispatch and 26 % kernel launches`: the two largest parts of a predicted step, as shares of all of them."""
    parts = {name: e.value / p.parts_s for name, e in p.parts.items()}
    ranked = sorted(parts, key=lambda name: -parts[name])[:2]
    return join(f"{share(parts[n])} {WORDS.get(n, n)}" for n in ranked if parts[n] > _LITTLE)


def digits(size: float) -> str:
    """A size in digits. Whole numbers with thousands apart; computed ones rounded up below 100, else in three digits."""
    return f"{size:,}" if isinstance(size, int) else f"{math.ceil(size - 1e-9):,}" if size < 100 else number(size)


def counted(size: float | str, name: str) -> str:
    """A size, or sizes in digits, in words: `n = 115`, `batch 32`, `9,200 samples`, `n = 100 and 40,000`."""
    words = size if isinstance(size, str) else digits(size)
    if name in ("samples", "epochs", "channels"):
        return f"{words} {name.removesuffix('s') if words == '1' else name}"
    return f"{name} {words}" if name in ("batch", "width", "depth") else f"{name} = {words}"


class _Words(string.Formatter):
    """Templates whose fields say how their numbers are written: `{step:timed}`, `{gain:factor}`, `{part:share}`. Other formats
    are Python's own."""

    WRITTEN: ClassVar[dict[str, Callable]] = {
        **{f.__name__: f for f in (time, timed, factor, gain, speed, number, interval, share, shares, title, size)},
        "faster": lambda both: faster_by(both.cpu, both.gpu),
        "crossing": lambda answer: crossing(answer),
        "bytes/s": lambda rate: bytes_rate(exact(rate).value),
        "flops/s": lambda rate: flops_rate(exact(rate).value),
    }

    def format_field(self, value, format_spec: str) -> str:
        written = self.WRITTEN.get(format_spec)
        return written(value) if written else super().format_field(value, format_spec)


say = _Words().format


def lines(template: str, **values) -> list[str]:
    """The lines of a template, filled; lines with an unknown value (None) are left out."""
    unknown = [f"{{{name}" for name, value in values.items() if value is None]
    return [say(line, **values) for line in template.strip().splitlines() if not any(name in line for name in unknown)]


# ---------------------------------------------------------------- who wins


def winner(cpu: Estimate, gpu: Estimate, source: str = MEASURED, of: str = "", *, disturbed: bool = False) -> str:
    """The winner with both times: `The GPU: 61 s against 126 s on the CPU, 2.1x faster.`; in a list with the subject `of`:
    `CIFAR-10 CNN: 61 s on the GPU, 126 s on the CPU, 2.1x faster.` Of an upper bound: `at most 3 ms .. at least 1.9x faster`.
    From rows that were disturbed: `Probably the GPU: ...`, in a list `..., probably 2.1x faster.`"""
    sides = sorted((("CPU", cpu), ("GPU", gpu)), key=lambda side: side[1].value)
    (best, quick), (_, slow) = sides
    told = [timed(e) if e.low <= 0 else time(e) for _, e in sides]
    named = [f"{seconds} on the {name}" for seconds, (name, _) in zip(told, sides, strict=True)]
    speedup, predicted = slow / quick, source == PREDICTED
    mark = " (predicted; the ranges overlap)" if predicted else "; the intervals overlap"
    if faster(cpu, gpu) != "neither":
        gained = factor(speedup) if quick.low > 0 else f"at least {factor(speedup.low)}"
        if of:
            first = f"{named[0]}, {named[1]}"
            gained = f"probably {gained}" if disturbed else gained
        else:
            sure = f"Probably the {best}" if disturbed else f"The {best}"
            first = f"{sure}: {told[0]} against {named[1]}"
        said, mark = f"{first}, {gained} faster", " (predicted)" * predicted
    elif likely(cpu, gpu, predicted=predicted) != "neither":
        said = f"Probably the {best}: {_with_bound(quick)} against {_with_bound(slow)} on the {sides[1][0]}"
    else:
        said = f"Can't tell: {named[0]}, {named[1]}"
    said = f"{of}: {said[0].lower()}{said[1:].replace(':', ',')}" if of else said
    return f"{said}{mark}."


def _with_bound(seconds: Estimate) -> str:
    """`61 s`; `61 s, at most 820 s,` where the interval reaches down to nothing, as a bound alone does not say who is ahead."""
    if seconds.low > 0:
        return time(seconds)
    return f"{time(seconds.value)}, {timed(seconds)},"


def faster_by(cpu: Estimate, gpu: Estimate) -> str:
    """`GPU 3.2x faster`, or `can't tell`."""
    best = faster(cpu, gpu)
    ratio = cpu / gpu if best == "gpu" else gpu / cpu
    return CANT_TELL if best == "neither" else f"{NAMES[best]} {factor(ratio)} faster"


# ---------------------------------------------------------------- from which size


def crossing_size(c: Crossing, name: str, predicted: bool = False) -> str:
    """The size at which the winner changes, with its interval: `about n = 102 (94 to 129)`; `n = 300` where both ends are that
    size; `n = 100 to 40,000` where the measured sizes lie too far apart to say more. `predicted`: `about n = 102 (94 to 129,
    predicted)`."""
    if c.wide:
        return counted(f"{c.below:,} to {c.above:,}", name)
    low, high = digits(c.at.low), digits(c.at.high)
    bracket = [] if low == high else [f"{low} to {high}"]
    if predicted:
        bracket.append("predicted")
    size = counted(c.at.value, name)
    return f"about {size} ({', '.join(bracket)})" if bracket else size


def unsure(a: Answer) -> list[str]:
    """Sizes without a certain winner beyond those of the crossing that `crossing` prints, in digits: `103 to 115`, `512`; three
    at most, then how many more."""
    printed = a.crossings[-1:]
    inside = [(c.at.low, c.at.high) for c in printed]
    spans = [(c.at.low, c.at.high) for c in a.crossings[:-1] if not c.wide and digits(c.at.low) != digits(c.at.high)]
    for first, last in a.bands:
        if not any(low <= first and last <= high for low, high in inside + spans):
            spans.append((first, last))
    words = [digits(x) if x == y else f"{digits(x)} to {digits(y)}" for x, y in sorted(spans)]
    return words[:3] + ([f"{len(words) - 3} more"] if len(words) > 3 else [])


def crossing(a: Answer) -> str:
    """The winner by size, without a full stop: `the GPU wins from about n = 102 (94 to 129)`. Between the ends of the bracket
    it can't be told."""
    name, mark, seen = a.family.size_name, " (predicted)" * a.predicted, "looked at" if a.predicted else "measured"
    match a.kind:
        case "gpu-from" if a.crossings[0].wide:
            c = a.crossings[0]
            return f"the GPU starts to win between {counted(f'{c.below:,} and {c.above:,}', name)}{mark}"
        case "gpu-at-smallest":
            return f"the GPU wins from {counted(a.low_n, name)}, the smallest {seen}{mark}"
        case "cpu-throughout":
            return f"the CPU wins up to {counted(a.high_n, name)}, the largest {seen}{mark}"
        case "gpu-from" | "several":
            last, before = a.crossings[-1], len(a.crossings) - 1
            at = crossing_size(last, name, a.predicted)
            below = f"; below, the winner changes {'once' if before == 1 else f'{before} times'}" * bool(before)
            return f"the {NAMES[last.to]} wins from {at}{below}"
        case "cant-tell":
            if not (sure := [p for p in a.points if p.sign]):
                return f"can't tell which device wins at {counted(join(unsure(a)), name)}{mark}"
            low, high = (counted(p.n, name) for p in (sure[0], sure[-1]))
            where = f"from {low}" if a.points[-1].sign else f"up to {high}" if a.points[0].sign else f"around {low}"
            return f"the {'GPU' if sure[0].sign > 0 else 'CPU'} surely wins {where}{mark}"
    return f"the {'GPU' if a.kind == 'no-gpu' else 'CPU'} was not timed"


def crossover(a: Answer, subject: str) -> list[str]:
    """The winner by size, and further sizes at which it can't be told (`At 512 it can't be told.`): two sentences at most.
    `subject`: `Square float32 products`."""
    said, words = crossing(a), unsure(a)
    where = f"At {join(words)}"
    if len(words) == 1 and " to " in words[0]:
        where = f"Between {words[0].replace(' to ', ' and ')}"
    doubts = bool(words) and not a.predicted and CANT_TELL not in said
    return [f"{subject}: {said}."] + [f"{where} it can't be told."] * doubts


def break_even(epochs: Estimate | None) -> str:
    """A sentence on the break-even, in epochs; None: the GPU never makes up for its longer start."""
    if epochs is None:
        return "The GPU never catches up."
    if epochs.value <= 0:
        return "The GPU is ahead from the first epoch."
    if not math.isfinite(epochs.value):
        return f"Break-even after {counted(max(1.0, epochs.low), 'epochs')} at the earliest."
    perhaps = ", if at all" * (not math.isfinite(epochs.high))
    return f"Break-even after {counted(max(1.0, epochs.value), 'epochs')}{perhaps}."
