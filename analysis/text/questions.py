"""Questions that newcomers ask, answered with one machine's numbers; a question without numbers is left out.

An answer is what one reads at once, the answer itself first and fewer than 40 words, and what more there is to say.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable

from analysis.crossover import families
from analysis.crossover.crossover import COPIES, LATENCY, Answer, Point
from analysis.crossover.families import square_rows
from analysis.crossover.time_split import why
from analysis.roofline import links
from analysis.roofline.bounds import Roof, judge, pick
from analysis.roofline.roofs import WAITED
from analysis.stats import faster, quick_seconds
from analysis.text import crossings, rates, sentences, training
from analysis.training import break_even
from analysis.training.break_even import BY_STEP, Pair
from analysis.units import bytes_rate, count, digits, flops_rate, join, percent, seconds, times
from workloads.records import Machine, Measurement

Answered = tuple[str, str]
NOTHING: Answered = ("", "")
_LOWER, _HELPS = ("tf32", "float16", "bfloat16"), 1.1
_BATCHES = {
    "gpu-from": "the GPU wins from some batch on",
    "gpu-at-smallest": "the GPU wins at every batch",
    "several": "the winner changes more than once",
    "cpu-throughout": "the CPU wins at every batch",
    "cant-tell": "one can't tell",
}
# What a row did to be right, by its check.
_CHECKED = {
    "exact": "gave exactly the right answer on whole numbers",
    "bound": "came within a stated error of the right answer",
    "weights": "had the model's weights, layer by layer",
    "first loss": "had NumPy's first loss and gradient",
}
_PLAIN = "transfer/cupy/array"  # what people write: ndarray.set and get


class Evidence:
    """What the answers are made of."""

    def __init__(
        self,
        measurements: "Iterable[Measurement]",
        answers: Iterable[Answer],
        roofs: tuple[Roof, ...],
        pairs: "list[Pair]",
        machine: "Machine | None",
    ):
        self.rows, self.roofs, self.pairs, self.machine = list(measurements), roofs, pairs, machine
        self.answers = [a for a in answers if a.points]
        self.first = [a for a in self.answers if a.precision == self.answers[0].precision]

    def form(self, form) -> Answer | None:
        """The first precision's answer in a form."""
        return next((a for a in self.first if a.form == form), None)


def _always(q: Evidence) -> Answered:
    a = q.form(LATENCY)
    if not a:
        return NOTHING
    most = max(a.points, key=lambda p: p.ratio.value)
    least = min(a.points, key=lambda p: p.ratio.value)
    first = {"gpu-at-smallest": "At these sizes, yes", "cpu-throughout": "At these sizes, never"}.get(a.kind, "No")
    return (
        f"{first}: with its data there {_short(a)}. At n = {most.n} {_faster(most)}, at n = {least.n} {_faster(least)}.",
        crossings.crossing_sentence(a),
    )


def _faster(p: "Point") -> str:
    ratio = p.ratio.value
    return (
        f"it is {times(ratio)} as fast as the CPU's best"
        if ratio >= 1
        else f"the CPU's best is {times(1 / ratio)} as fast"
    )


def _short(a: Answer) -> str:
    """The verdict without bands: `the GPU wins from n = 103`."""
    return sentences.crossing(a)


def _small(q: Evidence) -> Answered:
    waited = next((r for r in q.roofs if r.kind == "launch" and r.name == WAITED), None)
    a = q.form(LATENCY)
    parts = [w for w in why(q.rows, a) if w.overhead is not None][:1] if a else []
    told = [f"a call that computes nothing takes {seconds(1 / waited.rate.value)}"] if waited else []
    told += [
        f"at n = {w.n}, {seconds(w.overhead)} of a call's {seconds(w.gpu.seconds.value)} are launch and Python"
        for w in parts
        if w.overhead is not None
    ]
    if not told:
        return NOTHING
    more = [crossings.why_sentence(w, a.form, "With a little work") for w in parts if a]
    return f"Every call costs its launch, however little there is to do: {join(told)}.", " ".join(more)


def _copy(q: Evidence) -> Answered:
    resident, copied = q.form(LATENCY), [a for a in q.first if a.form in COPIES]
    if not resident or not copied:
        return NOTHING
    said = [f"{crossings.way_name(a.form)}, {crossings.verdict_words(a)}" for a in copied]
    last = why(q.rows, copied[0], everywhere=True)[-1]
    share = (
        f"At n = {last.n}, {percent((last.copies or 0.0) / last.gpu.seconds.value)} of a call copied so is the copies."
    )
    short = f"with its data there {_short(resident)}, copied {crossings.way_name(copied[0].form)} {_short(copied[0])}"
    return (
        f"Copying moves the answer: {short}.",
        f"{share} With the data there {crossings.verdict_words(resident)}; {'; '.join(said)}.",
    )


def _pinned(q: Evidence) -> Answered:
    found = links.fits(m for m in q.rows if m.problem.op == "transfer")
    short, told = [], []
    for way, words in (("h2d", "to the GPU"), ("d2h", "back")):
        pinned = links.find(found, way, "pinned")
        pageable = links.find(found, way, "pageable", _PLAIN) or links.find(found, way, "pageable")
        if pinned and pageable:
            short.append(f"{times(pinned.bandwidth.value / pageable.bandwidth.value)} {words}")
            told.append(
                f"{words} {bytes_rate(pinned.bandwidth.value)} with pinned memory and "
                f"{bytes_rate(pageable.bandwidth.value)} with pageable"
            )
    if not told:
        return NOTHING
    return (
        f"Large copies are as fast as with pageable memory {join(short)}; a small copy costs its call, whatever the memory.",
        f"Large copies: {join(told)}.",
    )


def _precision(q: Evidence) -> Answered:
    best: dict[str, tuple[float, int]] = {}
    for name, sizes in square_rows(q.rows).items():
        rows = [m for at in sizes.values() for m in at if m.on_gpu and m.mode == "resident" and quick_seconds(m)]
        if rows:
            m = max(rows, key=lambda m: m.problem.flops / quick_seconds(m))
            best[name] = (m.problem.flops / quick_seconds(m), m.problem.n)
    lower = {
        name: rate / best["float32"][0] for name, (rate, _) in best.items() if name in _LOWER and "float32" in best
    }
    if not lower:
        return NOTHING
    short = join(f"{name} {digits(factor)}" for name, factor in lower.items())
    told = [f"{name} reaches {flops_rate(rate)} at n = {n}" for name, (rate, n) in best.items()]
    helps = "yes" if max(lower.values()) > _HELPS else "hardly"
    return (
        f"For large products, {helps}: the best rate on this GPU, over float32's, is {short} times. Small ones are bound by the "
        "call, not by the arithmetic.",
        f"On this GPU {join(told)}.",
    )


def _first(q: Evidence) -> Answered:
    firsts = [
        (m.phases_s["first_call"], later)
        for m in q.rows
        if m.on_gpu and "first_call" in m.phases_s and (later := quick_seconds(m))
    ]
    if not firsts:
        return NOTHING
    middle = statistics.median(first for first, _ in firsts)
    factor = statistics.median(first / later for first, later in firsts)
    return (
        f"It loads libraries, compiles and chooses kernels: {seconds(middle)}, {times(factor)} a later call, in the middle of "
        f"{count(len(firsts), 'GPU row')}.",
        "Every time on this page is of later calls, unless it says otherwise.",
    )


def _batch(q: Evidence) -> Answered:
    found = [a for a in break_even.answers(q.rows, ("batch",)) if a.form.mode == BY_STEP]
    if not found:
        return NOTHING
    told = join(f"in {n} {_BATCHES.get(kind, kind)}" for kind, n in Counter(a.kind for a in found).items())
    return (
        f"It gives the GPU more work for each call: of {count(len(found), 'training')} measured over batches, {told}.",
        " ".join(training.answer_sentence(a) for a in found[:3]),
    )


def _training(q: Evidence) -> Answered:
    plain = [p for p in q.pairs if not p.setup.switches]
    if not plain:
        return NOTHING
    wins = Counter(faster(p.cpu(BY_STEP).cost.step, p.gpu.cost.step) for p in plain)
    pays = [e.value for p in plain if (e := p.break_even) is not None and e.value < math.inf]
    return (
        f"In {wins['gpu']} of the {count(len(plain), 'training')} measured on both devices its step is shorter, in {wins['cpu']} "
        f"the CPU's is; {wins['neither']} are too close to tell.",
        f"It has paid back its start after {digits(min(pays))} to {digits(max(pays))} epochs where it does."
        if pays
        else "",
    )


def _fair(q: Evidence) -> Answered:
    libraries, threads = rates.library_sentences(q.rows), rates.thread_sentences(q.rows)
    if not libraries and not threads:
        return NOTHING
    said, a = [*threads[1:], *libraries], q.form(LATENCY)
    if a and a.default and not crossings.same_answer(a, a.default):
        said.append(
            f"With its library's own choice of threads the CPU does less well: then {crossings.verdict_words(a.default)}."
        )
    first = threads[0] if threads else said.pop(0)
    return f"Yes: its side is the fastest library and thread count at each size. {first}", " ".join(said)


def _limit(q: Evidence) -> Answered:
    best = [m for gpu in (False, True) if (m := rates.best_at_largest(q.rows, gpu))]
    told = [
        f"the {m.side} reaches {percent(judged.fraction.value)} of its roof at n = {m.problem.n}"
        for m in best
        if (judged := judge(m, q.roofs)).fraction
    ]
    if not told:
        return NOTHING
    said = " ".join(rates.rate_sentences(q.rows, q.roofs))
    return (
        f"With large {families.precision_of(best[0].problem)} products {join(told)}.",
        f"A roof is the best rate that this machine was seen to reach at one thing alone. {said}",
    )


def _memory(q: Evidence) -> Answered:
    host, there = (pick(q.roofs, device, "memory") for device in ("cpu", "gpu:0"))
    if not (host and there):
        return NOTHING
    cpu, gpu = host.rate.value, there.rate.value
    return (
        f"{'Yes' if gpu > cpu else 'No'}: {bytes_rate(gpu)} against the CPU's {bytes_rate(cpu)}, {times(gpu / cpu)} as much.",
        "That is what additions, activations and optimizers wait for.",
    )


def _trust(q: Evidence) -> Answered:
    ok = [m for m in q.rows if m.ok]
    if not ok:
        return NOTHING
    checks = Counter(_CHECKED.get(m.check, "") for m in ok)
    told = [f"{checks[words]} {words}" for words in dict.fromkeys(_CHECKED.values()) if checks[words]]
    right = f"{join(told)}, before they were timed; " if told else ""
    flagged = sum(bool(set(m.flags) - {"cpu-clock"}) for m in ok)
    doubt = f"{flagged or 'none'} carr{'y' if flagged > 1 else 'ies'} a flag that makes a time doubtful"
    return (
        f"Of {count(len(ok), 'row')}, {right}{doubt}.",
        "The others were checked as the table of all numbers says; a CPU clock that moved is not counted as a flag here. A "
        "winner is named only where the 95 % intervals leave no doubt; otherwise it says can't tell.",
    )


QUESTIONS: tuple[tuple[str, str, Callable[[Evidence], Answered]], ...] = (
    ("Is the GPU always faster?", "crossover", _always),
    ("Why is a GPU slow at small sizes?", "launches", _small),
    ("Is it the copying?", "crossover", _copy),
    ("What does pinned memory buy?", "transfers", _pinned),
    ("Is a GPU worth it for training?", "training", _training),
    ("Does a bigger batch fix it?", "training", _batch),
    ("Do TF32, float16 and bfloat16 help?", "kernels", _precision),
    ("Why is the first call so slow?", "numbers", _first),
    ("Is the CPU given a fair chance?", "method", _fair),
    ("How near is this to the hardware's limit?", "roofline", _limit),
    ("Is the GPU's memory faster too?", "memory", _memory),
    ("Can these numbers be trusted?", "method", _trust),
)


def answered(q: Evidence) -> list[tuple[str, str, str, str]]:
    """(question, the section with more of it, the answer in a sentence or two, what more there is to say) of those that the
    rows answer."""
    return [(question, section, *said) for question, section, answer in QUESTIONS if (said := answer(q)) and said[0]]
