"""Crossovers in words: the winner by size, the parts of a GPU call's time, and verdicts for table cells."""

from collections.abc import Iterable

import msgspec

from analysis import labels, noise, numbers
from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import Family
from analysis.crossover.fastest_row import FastestRow
from analysis.crossover.forms import Form
from analysis.crossover.time_split import REMAINDER, Why
from analysis.text import sentences
from analysis.text.rates import machine_words
from analysis.text.sentences import say
from analysis.units import count, join
from workloads import options, terminal
from workloads.records import Machine, Measurements

_COPIES = {"roundtrip": "asarray and asnumpy", "roundtrip-pinned": "pinned", "roundtrip-pageable": "pageable"}
_NO_CROSSOVER = {  # why there is none
    "separate": "Nothing was timed on both the CPU and the GPU here, so there is no crossover.",
    "gpu": "Only the GPU was timed here, so there is no crossover; leave out --device to time the CPU too.",
    "failed": "No GPU time was measured on {machine}, so there is no crossover. Why: {reasons}.",
    "none": "No GPU was measured on {machine}, so there is no crossover here.",
}
_WITHIN = "The intervals are within this run: what runs differ by is not known, as no line names the machine."
_NOISE = "What runs differ by, in these intervals: {source}. Measure it here: "
_WHY = "at {n} a GPU {call} takes {gpu:time}, the CPU {cpu:time}. {share} of the GPU's is {part}."


class NoCrossover(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no crossover. Two of them that are equal say the same."""

    #: A key of _NO_CROSSOVER.
    kind: str
    #: Why the rows of the GPU gave no time.
    reasons: tuple[str, ...] = ()


def no_crossover(measurements: Measurements) -> NoCrossover:
    """Why rows have no crossover: no GPU was tried, none gave a time, the CPU was not timed, or nothing was timed on both."""
    tried = [m for m in measurements if m.on_gpu]
    if any(m.ok for m in tried):
        has_cpu = any(m.ok and not m.on_gpu for m in measurements)
        return NoCrossover(kind="separate" if has_cpu else "gpu")
    if not tried:
        return NoCrossover(kind="none")
    reasons = dict.fromkeys(m.reason or m.status for m in tried)
    return NoCrossover(kind="failed", reasons=tuple(reasons))


def no_crossover_sentence(why_none: NoCrossover, machine: Machine | None) -> str:
    """The sentence that says why there is no crossover."""
    what = f"this machine, {machine_words(machine)}" if machine else "this machine"
    return say(_NO_CROSSOVER[why_none.kind], machine=what, reasons=join(why_none.reasons))


def no_gpu_sentence(measurements: Measurements, machine: Machine | None) -> str:
    """Why these rows have no crossover, in a sentence."""
    return no_crossover_sentence(no_crossover(measurements), machine)


def form_name(form: Form) -> str:
    """How the GPU is called in a form: `resident on the GPU, calls queued`, `copied in and out on every call, pinned`."""
    words = []
    if form.as_written:
        words.append("as written, a @ b")
    if form.mode == "resident":
        words.append("resident on the GPU")
        if form.clock != "host-latency":
            words.append("calls queued")
    else:
        words.append("copied in and out on every call")
        if not form.as_written:
            words.append(copy_name(form))
    if form.reuse > 1:
        words.append(f"each copy used {form.reuse} times")
    return ", ".join(words)


def copy_name(form: Form) -> str:
    """How a form copies: `asarray and asnumpy`, `pinned`."""
    return _COPIES.get(form.mode, form.mode)


def precision_name(a: Answer) -> str:
    """The precision, and the CPU's own arithmetic where it is another: `tf32, CPU in float32`."""
    return a.precision + _cpu_arithmetic(a)


def _cpu_arithmetic(a: Answer) -> str:
    return f", CPU in {join(a.cpu_maths)}" if a.cpu_maths else ""


def crossing_sentence(a: Answer) -> str:
    """The winner by size, for the square products of one precision and form."""
    subject = f"Square {a.precision} products{_cpu_arithmetic(a)}, {form_name(a.form)}"
    return " ".join(sentences.crossover(a, subject))


def verdict_words(a: Answer) -> str:
    """Who wins at which size, for a cell: `the GPU wins from about n = 131 (128 to 135); can't tell at 512`."""
    unsure = sentences.unsure(a)
    if not unsure or sentences.has_no_sure_size(a):
        return sentences.crossing(a)
    return f"{sentences.crossing(a)}; can't tell at {join(unsure)}"


def copies_sentence(answers: list[Answer]) -> str:
    """Who wins at which size for each way of copying, a sentence each. After the first sentence `the GPU wins` is left out
    where it wins from some size in both. answers: one a way of copying.
    """
    first, *others = answers
    parts = [f"{sentences.capital(form_name(first.form))}: {sentences.crossing(first)}."]
    for answer in others:
        words = sentences.crossing(answer)
        if first.kind == answer.kind == "gpu-from" and not answer.crossings[0].wide:
            words = f"from {sentences.crossing_size(answer.crossings[0], answer.family.size_name, answer.predicted)}"
        parts.append(f"{sentences.capital(copy_name(answer.form))}: {words}.")
    return " ".join(parts)


def noise_sentences(answers: Iterable[Answer], machine: Machine | None) -> list[str]:
    """A sentence on the noise between runs that the answers' intervals contain: where it was measured, and how to measure it
    here; [] where it was measured on this machine, or nothing was compared.
    """
    points: list[CrossoverPoint] = []
    for a in answers:
        if not a.predicted:
            points += a.points
    if not points:
        return []
    if machine is None:
        return [_WITHIN]
    clocks = {noise.CPU: points[0].cpu.seconds.value, noise.CALLS: points[0].gpu.seconds.value}
    sources = [noise.between_runs(machine, clock, seconds).source for clock, seconds in clocks.items()]
    others = [source for source in dict.fromkeys(sources) if source != noise.THIS_MACHINE]
    if not others:
        return []
    command = options.typed("python -m workloads.doctor --noise")
    return [terminal.Line(_NOISE.format(source=join(others)), command=command)]


def at_once(family: Family) -> str:
    """What is special about the products of a family: `, 256 in one launch`, or `, bias-relu` for one with an epilogue; "" for
    plain ones.
    """
    fixed = dict(family.fixed)
    if "batch" in fixed:
        return f", {fixed['batch']:,} in one launch"
    epilogue = fixed.get("epilogue")
    return f", {epilogue}" if epilogue else ""


def side_name(side: FastestRow) -> str:
    """`numpy/blas, 2 threads`."""
    threads = f", {count(side.threads, 'thread')}" if side.threads else ""
    return labels.short(side.kernel) + threads


def why_sentence(w: Why, form: Form) -> str:
    """A sentence on the times of both devices at one size, and the largest part of the GPU's. w: the GPU's time in parts; a
    remainder below half a percent does not count as one.
    """
    total = w.gpu.seconds.value
    parts = {name: s for name, s in w.known.items() if name != REMAINDER or abs(s) >= 0.005 * total}
    part = max(parts, key=parts.__getitem__)
    words = {"call": "call" if form.mode == "resident" else "call with its copies", "part": part}
    words["share"] = "All" if len(parts) == 1 else numbers.share(min(1.0, parts[part] / total))
    n = sentences.counted(w.n, w.family.size_name)
    return terminal.Line(say(_WHY, n=n, gpu=w.gpu.seconds, cpu=w.cpu.seconds, **words), label="Why: ")
