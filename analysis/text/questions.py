"""Questions that newcomers ask, answered with one machine's numbers: a question without numbers is left out."""

import math
import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from analysis.crossover.crossover import COPIES, LATENCY, Answer
from analysis.crossover.families import square_rows
from analysis.crossover.time_split import why
from analysis.roofline import links
from analysis.roofline.bounds import Roof, pick
from analysis.roofline.roofs import WAITED
from analysis.stats import faster, quick_seconds
from analysis.text import crossings, rates, sentences
from analysis.training import break_even
from analysis.training.break_even import BY_STEP, Pair
from analysis.units import bytes_rate, count, join
from workloads.records import Measurement

_LOWER, _HELPS = ("tf32", "float16", "bfloat16"), 1.1
_BATCHES = {
    "gpu-from": "the GPU wins from some batch on",
    "gpu-at-smallest": "the GPU wins at every batch",
    "several": "the winner changes more than once",
    "cpu-throughout": "the CPU wins at every batch",
    "cant-tell": "one can't tell",
}
_FIRST = {"gpu-at-smallest": "At these sizes, yes", "cpu-throughout": "At these sizes, never"}
# What a row did to be right, by its check.
_CHECKED = {
    "exact": "were exactly right",
    "bound": "within a stated error",
    "weights": "had the model's weights",
    "first loss": "had NumPy's first loss",
}
_PLAIN = "transfer/cupy/array"  # what people write: ndarray.set and get


class Evidence(msgspec.Struct, frozen=True):
    """What the answers are made of."""

    rows: list[Measurement]
    answers: tuple[Answer, ...]
    roofs: tuple[Roof, ...]
    pairs: list[Pair]

    def form(self, *forms) -> Answer | None:
        """The first precision's answer in one of these forms."""
        found = [a for a in self.answers if a.points]
        return next((a for a in found if a.form in forms and a.precision == found[0].precision), None)


Values = dict[str, Any] | None


def _always(q: Evidence) -> Values:
    if not (a := q.form(LATENCY)):
        return None
    least, most = (pick_(a.points, key=lambda p: p.ratio.value) for pick_ in (min, max))
    speeds = {"quick": sentences.speed(most.ratio.value), "slow": sentences.speed(least.ratio.value)}
    return {
        "first": _FIRST.get(a.kind, "No"),
        "wins": sentences.crossing(a),
        "most": most.n,
        "least": least.n,
        **speeds,
    }


def _small(q: Evidence) -> Values:
    waited = [1 / r.rate.value for r in q.roofs if r.kind == "launch" and r.name == WAITED]
    a = q.form(LATENCY)
    parts = [(w.n, w.overhead / w.gpu.seconds.value) for w in (why(q.rows, a) if a else ()) if w.overhead is not None]
    n, share = parts[0] if parts else (None, None)
    return {"waited": waited[0] if waited else None, "n": n, "share": share} if waited or parts else None


def _copy(q: Evidence) -> Values:
    resident, copied = q.form(LATENCY), q.form(*COPIES)
    if not resident or not copied:
        return None
    last = why(q.rows, copied, everywhere=True)[-1]
    words = {
        "way": crossings.way_name(copied.form),
        "n": last.n,
        "share": (last.copies or 0.0) / last.gpu.seconds.value,
    }
    return {"resident": sentences.crossing(resident), "copied": sentences.crossing(copied), **words}


def _pinned(q: Evidence) -> Values:
    found = links.fits(m for m in q.rows if m.problem.op == "transfer")
    said = []
    for way, words in (("h2d", "to the GPU"), ("d2h", "back")):
        pinned = links.find(found, way, "pinned")
        pageable = links.find(found, way, "pageable", _PLAIN) or links.find(found, way, "pageable")
        if pinned and pageable:
            said.append(f"{sentences.speed(pinned.bandwidth.value / pageable.bandwidth.value)} {words}")
    return {"gains": join(said)} if said else None


def _precision(q: Evidence) -> Values:
    best: dict[str, float] = {}
    for name, sizes in square_rows(q.rows).items():
        rows = [m for at in sizes.values() for m in at if m.on_gpu and m.mode == "resident"]
        best[name] = max((m.problem.flops / s for m in rows if (s := quick_seconds(m))), default=0.0)
    lower = {name: best[name] / best["float32"] for name in _LOWER if best.get(name) and best.get("float32")}
    if not lower:
        return None
    gains = join(f"{sentences.speed(gain)} in {name}" for name, gain in lower.items())
    return {"helps": "yes" if max(lower.values()) > _HELPS else "hardly", "gains": gains}


def _first(q: Evidence) -> Values:
    firsts = [
        (m.phases_s["first_call"], s)
        for m in q.rows
        if m.on_gpu and "first_call" in m.phases_s and (s := quick_seconds(m))
    ]
    if not firsts:
        return None
    gain = statistics.median(first / later for first, later in firsts)
    middle = statistics.median(first for first, _ in firsts)
    return {"median": middle, "gain": gain, "rows": count(len(firsts), "GPU row")}


def _batch(q: Evidence) -> Values:
    found = Counter(a.kind for a in break_even.answers(q.rows, ("batch",)) if a.form.mode == BY_STEP)
    told = join(f"in {n} {_BATCHES.get(kind, kind)}" for kind, n in found.items())
    return {"trainings": count(found.total(), "training"), "wins": told} if found else None


def _training(q: Evidence) -> Values:
    plain = [p for p in q.pairs if not p.setup.switches]
    wins = Counter(faster(p.cpu(BY_STEP).cost.step, p.gpu.cost.step) for p in plain)
    after = [e.value for p in plain if (e := p.break_even) is not None and e.value < math.inf]
    ends = [sentences.digits(max(1.0, x)) for x in (min(after), max(after))] if after else [None, None]
    words = {"gpu": wins["gpu"], "cpu": wins["cpu"], "neither": wins["neither"], "low": ends[0], "high": ends[1]}
    return {"trainings": count(len(plain), "training"), **words} if plain else None


def _fair(q: Evidence) -> Values:
    said = [*rates.thread_sentences(q.rows), *rates.library_sentences(q.rows)]
    return {"said": said[0]} if said else None


def _limit(q: Evidence) -> Values:
    said = rates.rate_sentences(q.rows, q.roofs)
    return {"said": " ".join(said[:2])} if said else None


def _memory(q: Evidence) -> Values:
    cpu, gpu = (roof.rate.value if (roof := pick(q.roofs, d, "memory")) else 0.0 for d in ("cpu", "gpu:0"))
    words = {"yes": "Yes" if gpu > cpu else "No", "gpu": bytes_rate(gpu), "cpu": bytes_rate(cpu)}
    return {**words, "gain": sentences.speed(gpu / cpu)} if cpu and gpu else None


def _trust(q: Evidence) -> Values:
    ok = [m for m in q.rows if m.ok]
    checks = Counter(_CHECKED.get(m.check, "") for m in ok)
    told = [f"{checks[words]:,} {words}" for words in dict.fromkeys(_CHECKED.values()) if checks[words]]
    flagged = sum(bool(set(m.flags) - {"cpu-clock"}) for m in ok)
    doubt = f"{flagged or 'none'} carr{'y' if flagged > 1 else 'ies'}"
    right = f"{join(told)}, before they were timed; " if told else ""
    return {"rows": count(len(ok), "row"), "right": right, "doubt": doubt} if ok else None


# By what answers it: the section with more of it, the question, the answer's lines (but for those of what is not known).
QUESTIONS: dict[Callable[[Evidence], Values], str] = {
    _always: """crossover: Is the GPU always faster?
{first}: {wins} where the data are resident.
The GPU is {quick} at n = {most:,}, {slow} at n = {least:,}.""",
    _small: """launches: Why is a GPU slow at small sizes?
Every call costs its launch, however little there is to do.
An empty call takes {waited:time}.
At n = {n:,}, {share:share} of a call is launch and Python.""",
    _copy: """crossover: Is it the copying?
Copying moves the answer: resident, {resident}; copied ({way}), {copied}.
At n = {n:,}, {share:share} of a call copied so is the copies.""",
    _pinned: """transfers: What does pinned memory buy?
Large copies are {gains} than from pageable memory; a small copy costs its call, whatever the memory.""",
    _training: """training: Is a GPU worth it for training?
Of {trainings} on both devices the GPU's step is shorter in {gpu}, the CPU's in {cpu}; {neither} can't be told.
Break-even, where there is one, is after {low} to {high} epochs.""",
    _batch: """training: Does a bigger batch fix it?
It gives the GPU more work for each call: of {trainings} measured over batches, {wins}.""",
    _precision: """kernels: Do TF32, float16 and bfloat16 help?
For large products, {helps}: than in float32 they are {gains}.
Small ones are bound by the call, not by the arithmetic.""",
    _first: """numbers: Why is the first call so slow?
It loads libraries, compiles and chooses kernels: the median of {rows} is {median:time}, {gain:factor} a later call.""",
    _fair: """method: Is the CPU given a fair chance?
Yes: its side is the fastest library and thread count at each size. {said}""",
    _limit: """roofline: How near is this to the hardware's limit?
{said}""",
    _memory: """memory: Is the GPU's memory faster too?
{yes}: {gpu} against the CPU's {cpu}, {gain}.""",
    _trust: """method: Can these numbers be trusted?
Of {rows}, {right}{doubt} a flag that makes it doubtful.""",
}


def answered(q: Evidence) -> list[tuple[str, str, str]]:
    """(question, the section with more of it, the answer) of those that the rows answer."""
    found = []
    for values, told in QUESTIONS.items():
        if given := values(q):
            head, _, said = told.partition("\n")
            section, _, question = head.partition(": ")
            found.append((question, section, " ".join(sentences.lines(said, **given))))
    return found
