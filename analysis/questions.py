"""Questions that newcomers ask, answered with one machine's numbers; a question without numbers is left out."""

import statistics
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from analysis import facts, job_words, jobs, links, sentences
from analysis.crossover import COPIES, LATENCY, Answer
from analysis.families import square_rows
from analysis.jobs import BY_STEP
from analysis.roofline import Roof, is_gpu, pick, quick_seconds
from analysis.roofs import WAITED
from analysis.units import bytes_rate, count, digits, flops_rate, join, percent, seconds, times
from analysis.why import why

if TYPE_CHECKING:
    from analysis.jobs import Pair
    from workloads.results import Machine, Measurement


_PLAIN = "transfer/cupy/array"  # what people write: ndarray.set and get


class Asked:
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


def _always(q: Asked) -> str:
    a = q.form(LATENCY)
    if not a:
        return ""
    most = max(a.points, key=lambda p: p.ratio.value)
    least = min(a.points, key=lambda p: p.ratio.value)
    first = {"gpu-at-smallest": "Here, at these sizes, yes.", "cpu-throughout": "Here never, at these sizes."}.get(
        a.kind, "No."
    )
    return (
        f"{first} {sentences.crossing_sentence(a)} At n = {most.n} the GPU is {times(most.ratio.value)} as fast as the CPU's "
        f"best; at n = {least.n} {times(least.ratio.value)} as fast."
    )


def _small(q: Asked) -> str:
    waited = next((r for r in q.roofs if r.kind == "launch" and r.name == WAITED), None)
    a = q.form(LATENCY)
    told = (
        [
            f"A GPU call that computes nothing takes {seconds(1 / waited.rate.value)} when the program waits for it, "
            "however little there is to do."
        ]
        if waited
        else []
    )
    parts = why(q.rows, a)[:1] if a else ()
    told += [sentences.why_sentence(w, a.form, "With a little work") for w in parts]
    return " ".join(told)


def _copy(q: Asked) -> str:
    resident, copied = q.form(LATENCY), [a for a in q.first if a.form in COPIES]
    if not resident or not copied:
        return ""
    said = [f"{sentences.way_name(a.form)}, {sentences.verdict_words(a)}" for a in copied]
    last = why(q.rows, copied[0], everywhere=True)[-1]
    share = (
        f" At n = {last.n}, {percent((last.copies or 0.0) / last.gpu.seconds.value)} of a call copied "
        f"{sentences.way_name(copied[0].form)} is the copies."
    )
    return f"It moves the answer: with the data there {sentences.verdict_words(resident)}; {'; '.join(said)}.{share}"


def _pinned(q: Asked) -> str:
    found = links.fits(m for m in q.rows if m.problem.op == "transfer")
    told = []
    for way, words in (("h2d", "to the GPU"), ("d2h", "back")):
        pinned = links.find(found, way, "pinned")
        pageable = links.find(found, way, "pageable", _PLAIN) or links.find(found, way, "pageable")
        if pinned and pageable:
            told.append(
                f"{words} {bytes_rate(pinned.bandwidth.value)} with pinned memory and "
                f"{bytes_rate(pageable.bandwidth.value)} with pageable "
                f"({times(pinned.bandwidth.value / pageable.bandwidth.value)})"
            )
    return f"For large copies: {join(told)}. A small copy costs its call, whatever the memory." if told else ""


def _precision(q: Asked) -> str:
    best: dict[str, tuple[float, int]] = {}
    for name, sizes in square_rows(q.rows).items():
        rows = [
            m
            for at in sizes.values()
            for m in at
            if is_gpu(m.settings.device) and m.settings.mode == "resident" and quick_seconds(m)
        ]
        if rows:
            m = max(rows, key=lambda m: m.problem.flops / quick_seconds(m))
            best[name] = (m.problem.flops / quick_seconds(m), m.problem.n)
    if "float32" not in best or len(best) < 2:
        return ""
    base = best["float32"][0]
    told = [
        f"{name} reaches {flops_rate(rate)} at n = {n}, {digits(rate / base)} times float32"
        for name, (rate, n) in best.items()
        if name != "float32"
    ]
    small = "Small ones are bound by the call, not by the arithmetic."
    return f"Large products do: on this GPU {join(told)} ({flops_rate(base)}). {small}"


def _first(q: Asked) -> str:
    firsts = [
        (m.phases_s["first_call"], quick_seconds(m))
        for m in q.rows
        if is_gpu(m.settings.device) and "first_call" in m.phases_s and quick_seconds(m)
    ]
    if not firsts:
        return ""
    middle = statistics.median(first for first, _ in firsts)
    factor = statistics.median(first / later for first, later in firsts)
    return (
        f"It loads libraries, compiles and chooses kernels: in the middle of {count(len(firsts), 'GPU row')} the first call took "
        f"{seconds(middle)}, {times(factor)} a later one. Every time on this page is of later calls, unless it says otherwise."
    )


def _batch(q: Asked) -> str:
    said = [job_words.answer_sentence(a) for a in jobs.answers(q.rows, ("batch",)) if a.form.mode == BY_STEP]
    return f"A larger batch gives the GPU more work for each call: {' '.join(said[:3])}" if said else ""


def _training(q: Asked) -> str:
    plain = [p for p in q.pairs if not p.setup.switches]
    wins = {"gpu": 0, "cpu": 0, "neither": 0}
    for p in plain:
        cpu, gpu = p.cpu(BY_STEP).costs.step, p.gpu.costs.step
        wins["gpu" if gpu.high < cpu.low else "cpu" if cpu.high < gpu.low else "neither"] += 1
    if not plain:
        return ""
    pays = [e.value for p in plain if (e := jobs.payback(p)) is not None]
    ends = (
        f" It has paid back its start after {digits(min(pays))} to {digits(max(pays))} epochs where it does."
        if pays
        else ""
    )
    return (
        f"Of {count(len(plain), 'training')} measured on both devices the GPU's step is shorter in {wins['gpu']}, the CPU's in "
        f"{wins['cpu']}, and {wins['neither']} are too close to tell.{ends}"
    )


def _fair(q: Asked) -> str:
    said = facts.library_sentences(q.rows) + facts.thread_sentences(q.rows)
    a = q.form(LATENCY)
    if a and a.default and not sentences.same_answer(a, a.default):
        said.append(
            f"With its library's own choice of threads the CPU does less well: then {sentences.verdict_words(a.default)}."
        )
    return f"The CPU's side is its fastest library and thread count at each size. {' '.join(said)}" if said else ""


def _limit(q: Asked) -> str:
    said = facts.rate_sentences(q.rows, q.roofs)
    return (
        f"A roof is the best rate that this machine was seen to reach at one thing alone. {' '.join(said)}"
        if said
        else ""
    )


def _memory(q: Asked) -> str:
    rates = {name: pick(q.roofs, device, "memory") for name, device in (("CPU", "cpu"), ("GPU", "gpu:0"))}
    if not all(rates.values()):
        return ""
    cpu, gpu = rates["CPU"].rate.value, rates["GPU"].rate.value
    return (
        f"Its memory gives {bytes_rate(gpu)}, the CPU's {bytes_rate(cpu)}: {times(gpu / cpu)} as much, and that is what "
        "additions, activations and optimizers wait for."
    )


def _trust(q: Asked) -> str:
    ok = [m for m in q.rows if m.status == "ok"]
    if not ok:
        return ""
    exact = sum(m.check == "exact" for m in ok)
    flagged = sum(bool(set(m.flags) - {"cpu-clock"}) for m in ok)
    return (
        f"Of {count(len(ok), 'row')}, {exact} gave exactly the right answer on whole numbers before they were timed, "
        f"the others were checked as the table of all numbers says; {flagged} carry a flag other than a CPU clock that moved. "
        "A winner is named only where the "
        "95 % intervals leave no doubt; otherwise it says can't tell."
    )


QUESTIONS: tuple[tuple[str, str, Callable[[Asked], str]], ...] = (
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


def answered(q: Asked) -> list[tuple[str, str, str]]:
    """(question, the section with more of it, answer) of those that the rows answer."""
    return [(question, section, said) for question, section, answer in QUESTIONS if (said := answer(q))]
