"""Sentences that terminal, page, JSON and README share: the winner, the size or epoch from which it wins, and how sure it
is."""

import contextlib
import math
import string
from collections.abc import Callable
from typing import ClassVar

from analysis.crossover.answer import Answer, Crossing
from analysis.numbers import factor, gain, interval, number, share, time, timed
from analysis.predict.prediction import Prediction
from analysis.predict.step_parts import WORDS
from analysis.stats import Estimate, exact, faster, likely
from analysis.units import bytes_rate, flops_rate, join, size
from kernels.networks import title
from workloads import terminal

MEASURED, PREDICTED = "measured", "predicted"
CANT_TELL = "can't tell"
_MOST_SPANS = 3  # ranges of sizes in a sentence
NAMES = {"cpu": "CPU", "gpu": "GPU", "gpu:0": "GPU"}
_SINGULAR = {"samples": "sample", "epochs": "epoch", "channels": "channel"}  # counts that stand before their names


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def speed(ratio: Estimate | float, than: str = "") -> str:
    """A speedup in words: `3.2x faster`, `1.4x slower`; `can't tell` where the interval holds 1. With `than`, such as `NCCL`:
    `3.2x faster than NCCL`, and `not told from NCCL`.
    """
    e = exact(ratio)
    if e.low <= 1 <= e.high:
        return f"not told from {than}" if than else CANT_TELL
    gain = e if e.value >= 1 else 1 / e
    if factor(gain) == "1.0x":
        return f"as fast as {than}" if than else "as fast"
    direction = "faster" if gain is e else "slower"
    words = f"{factor(gain)} {direction}"
    return f"{words} than {than}" if than else words


def shares(p: Prediction) -> str:
    """`72 % dispatch and 26 % kernel launches`: the two largest parts of a predicted step, as shares of all of them."""
    return part_shares(p.largest_shares)


def part_shares(shares: dict[str, float]) -> str:
    """`72 % dispatch and 26 % kernel launches`. shares: part of a step -> its share; the keys are those of WORDS."""
    return join(f"{share(part)} {WORDS.get(name, name)}" for name, part in shares.items())


def digits(size: float) -> str:
    """A size in digits: `40,000`. A size that was computed, which is a float, is rounded up to a whole number below 100, else
    to three digits.
    """
    if isinstance(size, int):
        return f"{size:,}"
    if size < 100:
        return f"{math.ceil(size - 1e-9):,}"  # what is whole but for rounding errors stays
    return number(size)


def counted(size: float | str, name: str) -> str:
    """A size with its name: `n = 115`, `batch 32`, `9,200 samples`. size: a number, or numbers in digits such as `100 and
    40,000`.
    """
    words = size if isinstance(size, str) else digits(size)
    if name in _SINGULAR:
        return f"{words} {_SINGULAR[name] if words == '1' else name}"
    return f"{name} {words}" if name in ("batch", "width", "depth") else f"{name} = {words}"


class _Words(string.Formatter):
    """Templates whose fields say how their numbers are written: `{step:timed}`, `{gain:factor}`, `{part:share}`. Other formats
    are Python's own."""

    WRITTEN: ClassVar[dict[str, Callable]] = {
        **{
            f.__name__: f
            for f in (time, timed, factor, gain, speed, number, interval, share, shares, part_shares, title, size)
        },
        "faster": lambda both: faster_by(both.cpu, both.gpu),
        "crossing": lambda answer: crossing(answer),
        "bytes/s": lambda rate: bytes_rate(exact(rate).value),
        "flops/s": lambda rate: flops_rate(exact(rate).value),
    }

    def format_field(self, value, format_spec: str) -> str:
        written = self.WRITTEN.get(format_spec)
        if isinstance(value, str):  # a name may have ends of lines
            value = terminal.on_one_line(value)
        return written(value) if written else super().format_field(value, format_spec)


say = _Words().format


class _UnknownValue(Exception):
    """A field of a template has no value."""


class _KnownWords(_Words):
    """Fills templates, and refuses a field whose value is not known (None)."""

    def get_value(self, key, args, kwargs):
        value = super().get_value(key, args, kwargs)
        if value is None:
            raise _UnknownValue
        return value


_say_if_known = _KnownWords().format


def lines(template: str, **values) -> list[str]:
    """The lines of a template with the values in its fields, such as {step:timed}: see _Words. A line with a value that is not
    known (None) is left out.
    """
    filled_lines = []
    for line in template.strip().splitlines():
        with contextlib.suppress(_UnknownValue):
            filled_lines.append(_say_if_known(line, **values))
    return filled_lines


# ---------------------------------------------------------------- who wins


def winner(cpu: Estimate, gpu: Estimate, source: str = MEASURED, subject: str = "", *, disturbed: bool = False) -> str:
    """A sentence on which device is faster: `The GPU: 61 s against 126 s on the CPU, 2.1x faster.`

    Where an interval reaches down to 0 only a bound is told: `at most 3 ms .. at least 1.9x faster`.

    Args:
        cpu, gpu: seconds on each device.
        source: measured or predicted.
        subject: what took these times; it begins the sentence: `CIFAR-10 CNN: 61 s on the GPU, 126 s on the CPU, 2.1x faster.`
        disturbed: whether rows were measured beside other work, so that the winner is only probable.
    """
    predicted = source == PREDICTED
    (best, quick), (other, slow) = sorted((("CPU", cpu), ("GPU", gpu)), key=lambda side: side[1].value)
    overlap = " (predicted; the ranges overlap)" if predicted else "; the intervals overlap"
    if faster(cpu, gpu) != "neither":
        speedup = slow / quick
        gain = times_faster(speedup) if quick.low > 0 else f"at least {factor(speedup.low)} faster"
        mark = " (predicted)" if predicted else ""
        if subject:
            probably = "probably " if disturbed else ""
            both = f"{_time_or_bound(quick)} on the {best}, {_time_or_bound(slow)} on the {other}"
            return f"{subject}: {both}, {probably}{gain}{mark}."
        name = f"Probably the {best}" if disturbed else f"The {best}"
        both = f"{_time_or_bound(quick)} against {_time_or_bound(slow)} on the {other}"
        return f"{name}: {both}, {gain}{mark}."
    if likely(cpu, gpu, predicted=predicted) != "neither":
        verdict = f"probably the {best}"
        both = f"{_with_bound(quick)} against {_with_bound(slow)} on the {other}"
    else:
        verdict = CANT_TELL
        both = f"{_time_or_bound(quick)} on the {best}, {_time_or_bound(slow)} on the {other}"
    if subject:
        return f"{subject}: {verdict}, {both}{overlap}."
    return f"{capital(verdict)}: {both}{overlap}."


def _time_or_bound(seconds: Estimate) -> str:
    """`61 s`; `at most 61 s` where the interval reaches down to nothing."""
    return timed(seconds) if seconds.low <= 0 else time(seconds)


def _with_bound(seconds: Estimate) -> str:
    """`61 s`; `61 s, at most 820 s,` where the interval reaches down to nothing, as a bound alone does not say who is ahead."""
    if seconds.low > 0:
        return time(seconds)
    return f"{time(seconds.value)}, {timed(seconds)},"


def times_faster(ratio: Estimate) -> str:
    """`3.2x faster`; `less than 5 % faster` where the factor rounds to 1."""
    return "less than 5 % faster" if factor(ratio) == "1.0x" else f"{factor(ratio)} faster"


def faster_by(cpu: Estimate, gpu: Estimate) -> str:
    """`GPU 3.2x faster`, or `can't tell`."""
    best = faster(cpu, gpu)
    ratio = cpu / gpu if best == "gpu" else gpu / cpu
    return CANT_TELL if best == "neither" else f"{NAMES[best]} {times_faster(ratio)}"


# ---------------------------------------------------------------- from which size


def crossing_size(c: Crossing, name: str, predicted: bool = False) -> str:
    """The size at which the winner changes, with its interval: `about n = 102 (94 to 129)`; `n = 300` where both ends are that
    size; `n = 100 to 40,000` where the measured sizes lie too far from each other to say more.

    name: of the size, such as n or batch. predicted: whether the bracket says so: `about n = 102 (94 to 129, predicted)`.
    """
    if c.wide:
        return counted(f"{c.below:,} to {c.above:,}", name)
    low, high = digits(c.at.low), digits(c.at.high)
    bracket = [] if low == high else [f"{low} to {high}"]
    if predicted:
        bracket.append("predicted")
    size = counted(c.at.value, name)
    return f"about {size} ({', '.join(bracket)})" if bracket else size


def unsure_spans(a: Answer) -> list[tuple[float, float]]:
    """(first, last) of each range of sizes without a certain winner, from the smallest. The interval of the last crossing, which
    `crossing` prints, is not among them.
    """
    last = [(c.at.low, c.at.high) for c in a.crossings[-1:]]
    spans = [(c.at.low, c.at.high) for c in a.crossings[:-1] if not c.wide and digits(c.at.low) != digits(c.at.high)]
    for first, end in a.bands:
        if not any(low <= first and end <= high for low, high in last + spans):
            spans.append((first, end))
    return sorted(spans)


def unsure(a: Answer) -> list[str]:
    """The sizes without a certain winner (see unsure_spans) in digits: `103 to 115`, `512`; after three of them `2 more`."""
    words = []
    for first, last in unsure_spans(a):
        words.append(digits(first) if first == last else f"{digits(first)} to {digits(last)}")
    hidden = len(words) - _MOST_SPANS
    if hidden > 0:
        return [*words[:_MOST_SPANS], f"{hidden} more"]
    return words


def has_no_sure_size(a: Answer) -> bool:
    """Whether no measured size has a certain winner, which `crossing` says then."""
    return a.kind == "cant-tell" and not any(point.sign for point in a.points)


def crossing(a: Answer) -> str:
    """Who wins at which size, without a full stop: `the GPU wins from about n = 102 (94 to 129)`. Within the bracket it can't
    be told who does.
    """
    name = a.family.size_name
    mark = " (predicted)" if a.predicted else ""
    how = "looked at" if a.predicted else "measured"
    match a.kind:
        case "gpu-from" if a.crossings[0].wide:
            c = a.crossings[0]
            return f"the GPU starts to win between {counted(f'{c.below:,} and {c.above:,}', name)}{mark}"
        case "gpu-at-smallest":
            return f"the GPU wins from {counted(a.low_n, name)}, the smallest {how}{mark}"
        case "cpu-throughout":
            return f"the CPU wins up to {counted(a.high_n, name)}, the largest {how}{mark}"
        case "gpu-from" | "several":
            last, before = a.crossings[-1], len(a.crossings) - 1
            wins = f"the {NAMES[last.to]} wins from {crossing_size(last, name, a.predicted)}"
            if before == 0:
                return wins
            times = "once" if before == 1 else f"{before} times"
            return f"{wins}; below, the winner changes {times}"
        case "cant-tell":
            return f"{_sure_sizes(a)}{mark}"
    return f"the {'GPU' if a.kind == 'no-gpu' else 'CPU'} was not timed"


def _sure_sizes(a: Answer) -> str:
    """The sizes with a certain winner, of an answer that has sizes without one but no crossing: `the GPU surely wins from n
    = 512`.
    """
    name = a.family.size_name
    sure = [point for point in a.points if point.sign]
    if not sure:
        return f"can't tell which device wins at {counted(join(unsure(a)), name)}"
    if a.points[-1].sign:
        sizes = f"from {counted(sure[0].n, name)}"
    elif a.points[0].sign:
        sizes = f"up to {counted(sure[-1].n, name)}"
    else:
        sizes = f"around {counted(sure[0].n, name)}"
    device = "GPU" if sure[0].sign > 0 else "CPU"
    return f"the {device} surely wins {sizes}"


def crossover(a: Answer, subject: str) -> list[str]:
    """One or two sentences: who wins at which size, and further sizes at which it can't be told (`At 512 it can't be told.`).
    subject: what the first one begins with, such as `Square float32 products`.
    """
    sentences = [f"{subject}: {crossing(a)}."]
    spans = unsure_spans(a)
    if not spans or a.predicted or has_no_sure_size(a):
        return sentences
    first, last = spans[0]
    if len(spans) == 1 and first != last:
        sentences.append(f"Between {digits(first)} and {digits(last)} it can't be told.")
    else:
        sentences.append(f"At {join(unsure(a))} it can't be told.")
    return sentences


def break_even(epochs: Estimate | None) -> str:
    """A sentence on the break-even: the epochs after which the GPU is ahead although it begins later. None: it never is;
    infinite: it may never be.
    """
    if epochs is None:
        return "The GPU never catches up."
    if epochs.value <= 0:
        return "The GPU is ahead from the first epoch."
    if not math.isfinite(epochs.value):
        return f"Break-even after {counted(max(1.0, epochs.low), 'epochs')} at the earliest."
    perhaps = "" if math.isfinite(epochs.high) else ", if at all"
    return f"Break-even after {counted(max(1.0, epochs.value), 'epochs')}{perhaps}."
