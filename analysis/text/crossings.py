"""Who wins from where, in words: answers of crossovers, where the time of a GPU call goes, and verdicts."""

import math
from collections.abc import Iterable

from analysis.crossover.crossover import FINE, SQUARES, Answer, Crossing, Form, Side
from analysis.crossover.time_split import REMAINDER, Why
from analysis.stats import Verdict
from analysis.text.rates import machine_words
from analysis.units import count, digits, join, percent, seconds
from workloads.records import Machine, Measurement

_MANY = 3.0  # from so many times on nobody thinks in percent
_RESIDENT = "data already on the GPU"
_WAYS = {
    "roundtrip": "by cp.asarray and cp.asnumpy",
    "roundtrip-pinned": "through pinned buffers",
    "roundtrip-pageable": "through pageable memory",
}
_COPYING = "copying in and out every call"


def no_gpu_sentence(measurements: "Iterable[Measurement]", machine: "Machine | None") -> str:
    """Why there is no crossover: no GPU, none that gave a time, or no CPU beside it."""
    measurements = list(measurements)
    tried = [m for m in measurements if m.on_gpu]
    if any(m.ok for m in tried):
        if any(m.ok and not m.on_gpu for m in measurements):
            return "Nothing was timed on both the CPU and the GPU here, so there is no crossover."
        return "Only the GPU was timed here, so there is no crossover; leave out --device to time the CPU too."
    what = f" ({machine_words(machine)})" if machine else ""
    if tried:
        reasons = join(dict.fromkeys(m.reason or m.status for m in tried))
        return f"No GPU time was measured on this machine{what}: {reasons}; so there is no crossover here."
    return f"No GPU was measured on this machine{what}, so there is no crossover here."


def form_name(form: Form) -> str:
    """What a call includes, in words."""
    words = ["as written (a @ b)"] if form.as_written else []
    if form.mode == "resident":
        words.append(_RESIDENT)
    elif form.as_written:
        words.append(_COPYING)
    else:
        words.append(f"{_COPYING} {way_name(form)}")
    if form.mode == "resident" and not form.as_written:
        words.append("one call at a time" if form.clock == "host-latency" else "many calls queued")
    if form.reuse > 1:
        words.append(f"each copy used {form.reuse} times")
    return ", ".join(words)


def way_name(form: Form) -> str:
    """How the copy is made."""
    return _WAYS.get(form.mode, form.mode)


def precision_name(a: Answer) -> str:
    """The precision, and the CPU's own arithmetic where it is another."""
    return f"{a.precision} (against the CPU in {join(a.cpu_maths)})" if a.cpu_maths else a.precision


def crossing_sentence(a: Answer) -> str:
    """Who wins where, for one precision and form, with the measured range and the answer for default threads."""
    return f"{precision_name(a)}, {crossing_words(a)}"


def crossing_words(a: Answer) -> str:
    """The same without the precision: the form, the verdict, its range, what default threads change."""
    return f"{form_name(a.form)}: {verdict_words(a)}{range_words(a)}{default_words(a)}."


def default_words(a: Answer) -> str:
    """What changes if the CPU library chooses its threads itself; "" where it is the same within the intervals."""
    if a.default is None or same_answer(a, a.default):
        return ""
    return f"; against the CPU with its library's default threads, {verdict_words(a.default)}"


def same_answer(a: Answer, b: Answer) -> bool:
    """The same kind, and every crossing within the other's interval."""
    pairs = list(zip(a.crossings, b.crossings, strict=False))
    return (
        a.kind == b.kind
        and len(a.crossings) == len(b.crossings)
        and all(x.at.low <= y.at.high and y.at.low <= x.at.high for x, y in pairs)
    )


def range_words(a: Answer) -> str:
    """` (measured range 64..128)`."""
    return (
        f" (at {a.family.size_name} = {a.low_n}, the only size measured)"
        if a.low_n == a.high_n
        else (f" (measured range {a.low_n}..{a.high_n})")
    )


def verdict_words(a: Answer) -> str:
    """The answer without its range: `the GPU wins from n = 131 (128..136)`, the family's own size named."""
    name = a.family.size_name
    match a.kind:
        case "gpu-from":
            return f"the GPU wins from {n_words(a.crossings[0], name)}{band_words(a)}"
        case "gpu-at-smallest":
            return f"the GPU wins already at {a.family.smallest}{band_words(a)}"
        case "cpu-throughout":
            return f"the CPU wins throughout{band_words(a)}"
        case "several":
            turns = [f"the {c.to.upper()} from {n_words(c, name)}" for c in a.crossings]
            changes = "once" if len(turns) == 1 else f"{len(turns)} times"
            start = a.points[0].n if a.points[0].sign else a.crossings[0].below
            first = "CPU" if a.crossings[0].to == "gpu" else "GPU"
            return f"the winner changes {changes}: at {name} = {start} the {first} wins, {join(turns)}{band_words(a)}"
        case "cant-tell":
            return _cant_tell_words(a)
        case "no-gpu":
            return "the GPU has no time of this form, so there is no crossover"
    return "the CPU has no time, so there is no crossover"


def n_words(c: Crossing, name: str = SQUARES.size_name) -> str:
    """`n = 131 (128..136)`, and the measured sizes that it is interpolated between where they are > 5 % apart; of sizes much
    farther apart these alone. `name` is what varies."""
    if c.wide:
        return f"somewhere between the measured {name} = {c.below:,} and {c.above:,}"
    low, high = whole(c.at.low), whole(c.at.high)
    interval = f" ({low}..{high})" if low != high else ""
    coarse = "" if c.fine else f", between the measured {c.below} and {c.above}"
    return f"{name} = {whole(c.at.value)}{interval}{coarse}"


def short_n_words(c: Crossing, name: str = SQUARES.size_name) -> str:
    """The same where there is little room: `n = 103`, with its interval where that is more than 5 % wide."""
    if c.wide:
        return n_words(c, name)
    low, high = whole(c.at.low), whole(c.at.high)
    return f"{name} = {whole(c.at.value)}" + (
        f" ({low}..{high})" if c.at.high > FINE * c.at.low and low != high else ""
    )


def whole(size: float) -> str:
    """A size where something begins: sizes are whole, so the next one of a few; three digits of many."""
    return str(math.ceil(size - 1e-9)) if size < 100 else digits(size)


def band_words(a: Answer) -> str:
    """The sizes at which nobody wins for certain, but those in a crossing's own interval."""
    apart = [band for band in a.bands if not any(c.at.low <= band[0] and band[1] <= c.at.high for c in a.crossings)]
    return f" (too close to tell {join(_span(a, *band) for band in apart)})" if apart else ""


def _span(a: Answer, first: int, last: int) -> str:
    name = a.family.size_name
    return f"at {name} = {first}" if first == last else f"between {name} = {first} and {last}"


def _cant_tell_words(a: Answer) -> str:
    winners = {p.sign for p in a.points} - {0}
    told = (
        f"can't tell {join(_span(a, *band) for band in a.bands)}, where the times differ by less than their intervals"
    )
    return f"{told}; elsewhere the {'GPU' if 1 in winners else 'CPU'} wins" if winners else told


def copies_sentence(answers: Iterable[Answer]) -> str:
    """How the way of copying moves the crossover, all ways in one sentence."""
    answers = list(answers)
    ways = [f"{way_name(a.form)}, {verdict_words(a)}" for a in answers]
    low, high = min(a.low_n for a in answers), max(a.high_n for a in answers)
    return f"{precision_name(answers[0])}, {_COPYING}: {'; '.join(ways)} (measured range {low}..{high})."


def side_name(side: Side) -> str:
    """`numpy/blas, 2 threads`."""
    threads = f", {count(side.threads, 'thread')}" if side.threads else ""
    return side.kernel.partition("/")[2] + threads


def why_sentence(w: Why, form: Form, lead: str = "Why") -> str:
    """Where a GPU call's time goes at the deciding size, its largest part first, beside the CPU's time."""
    total = w.gpu.seconds.value
    parts = dict(w.parts)
    if abs(w.remainder) >= 0.005 * total:
        parts[REMAINDER] = w.remainder
    ranked = sorted(parts, key=parts.__getitem__, reverse=True)
    first, rest = ranked[0], [f"{seconds(parts[name])} {name}" for name in ranked[1:]]
    share = "all of it" if not rest else "most of it" if parts[first] > total / 2 else "the largest part"
    split = f"{share} {first} ({seconds(parts[first])})" + (f", the rest {join(rest)}" if rest else "")
    call = "a GPU call" if form.mode == "resident" else "a GPU call with its copies"
    return (
        f"{lead}: at {w.family.size_name} = {w.n} {call} costs {seconds(total)}, {split}; "
        f"the CPU ({side_name(w.cpu)}) needs {seconds(w.cpu.seconds.value)}."
    )


def compare_sentence(verdict: "Verdict", a: str, b: str) -> str:
    """What a Verdict on `a` (old) and `b` (new) says, by how much, with its interval."""
    r = verdict.ratio
    if verdict.word == "same":
        return f"{b} takes as long as {a}: {digits(r.value)} times ({digits(r.low)}..{digits(r.high)})."
    if verdict.word == "can't tell":
        return (
            f"Can't tell whether {b} is faster or slower than {a}: it takes {digits(r.value)} times as long, "
            f"but anything from {digits(r.low)} to {digits(r.high)} fits what was measured."
        )
    if max(r.value, 1 / r.value) >= _MANY:
        told = (
            f"takes {digits(r.value)} times as long ({digits(r.low)}..{digits(r.high)})"
            if verdict.word == "slower"
            else (f"is {digits(1 / r.value)} times as fast ({digits(1 / r.high)}..{digits(1 / r.low)})")
        )
        return f"{b} is {verdict.word} than {a}: it {told}."
    more, sign = ("more", 1) if verdict.word == "slower" else ("less", -1)
    ends = sorted(sign * (end - 1) for end in (r.low, r.high))
    return (
        f"{b} is {verdict.word} than {a}: it takes {percent(sign * (r.value - 1))} {more} time "
        f"({digits(100 * ends[0])}..{digits(100 * ends[1])} %)."
    )
