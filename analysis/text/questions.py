"""Questions that newcomers ask, answered with one machine's numbers: a question without numbers is left out."""

import statistics
from collections import Counter
from typing import Any

import msgspec

from analysis.analysis import Analysis
from analysis.crossover.answer import Answer
from analysis.crossover.families import SQUARES, rows_of
from analysis.crossover.forms import COPIES, LATENCY
from analysis.crossover.layers import is_square, timed
from analysis.roofline import links
from analysis.roofline.bounds import Roofs, measured_roof
from analysis.roofline.roofs import WAITED
from analysis.stats import best_by, call_s, faster, quick_seconds
from analysis.text import crossings, rates, sentences
from analysis.training.break_even import BY_STEP, Pair
from analysis.units import join
from workloads.records import Measurements

_LOWER = ("tf32", "float16", "bfloat16")
_PLAIN = "transfer/cupy/array"  # what people write: ndarray.set and get


class NewcomerQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that people ask, with its answer."""

    #: The name of the report page's section that says more.
    section: str
    #: As it is asked.
    question: str
    #: The answer; in QUESTIONS with fields for the numbers of a machine, such as {waited:time}.
    answer: str


QUESTIONS = (
    NewcomerQuestion(
        section="crossover",
        question="Is the GPU always faster?",
        answer="With resident data {resident}. The GPU is {last.ratio:speed} at n = {last.n:,}, "
        "{least.ratio:speed} at n = {least.n:,}.",
    ),
    NewcomerQuestion(
        section="launches",
        question="Why is a GPU slow at small sizes?",
        answer="Every call costs its launch, however little there is to do: an empty call takes {waited:time}.",
    ),
    NewcomerQuestion(
        section="crossover",
        question="Is it the copying?",
        answer="Copying moves the answer: resident, {resident}; copied ({copies}), {copied}.",
    ),
    NewcomerQuestion(
        section="transfers",
        question="What does pinned memory buy?",
        answer="Large copies are {pinned} than from pageable memory; a small copy costs its call, whatever the memory.",
    ),
    NewcomerQuestion(
        section="training",
        question="Is a GPU worth it for training?",
        answer="Of {trainings} trainings on both devices the GPU's step is shorter in {shorter[gpu]}, "
        "the CPU's in {shorter[cpu]}{others}.",
    ),
    NewcomerQuestion(
        section="kernels",
        question="Do TF32, float16 and bfloat16 help?",
        answer="Large products, beside float32: {lower}.",
    ),
    NewcomerQuestion(
        section="numbers",
        question="Why is the first call so slow?",
        answer="It loads libraries, compiles and chooses kernels: it takes {first:factor} a later call's time, "
        "the median of {calls:,} GPU rows.",
    ),
    NewcomerQuestion(
        section="method",
        question="Is the CPU given a fair chance?",
        answer="Yes: at each size its side is the fastest of up to {tried} kernels and thread counts.",
    ),
    NewcomerQuestion(
        section="roofline",
        question="How near is this to the hardware's limit?",
        answer="{reached}",
    ),
    NewcomerQuestion(
        section="memory",
        question="Is the GPU's memory faster too?",
        answer="At best {gpu.rate:bytes/s} against the CPU's {cpu.rate:bytes/s}.",
    ),
)


def answered(analysis: Analysis) -> list[NewcomerQuestion]:
    """The questions that the rows of a machine can answer, with its numbers in the answers."""
    products = _products(analysis.rows, analysis.crossovers, analysis.roofs)
    values = products | _trainings(analysis.pairs) | _first_calls(analysis.rows)
    questions = []
    for one in QUESTIONS:
        # No line where a number of the answer is unknown.
        for answer in sentences.lines(one.answer, **values):
            questions.append(NewcomerQuestion(section=one.section, question=one.question, answer=answer))
    return questions


def _products(rows: Measurements, answers: tuple[Answer, ...], roofs: Roofs) -> dict[str, Any]:
    """Values for the fields of QUESTIONS from square products in the first precision that was measured, from copies and from
    roofs: field -> an estimate, a record or words; None where nothing was measured.
    """
    complete = [a for a in answers if a.points]
    forms = {a.form: a for a in reversed(complete) if a.precision == complete[0].precision}
    resident = forms.get(LATENCY)
    copied = next((forms[form] for form in COPIES if form in forms), None)
    waited = measured_roof(roofs, "gpu:0", "launch", WAITED)
    tried = _kernels_tried(rows, complete[0].precision) if complete else None
    return {
        "resident": resident and sentences.crossing(resident),
        "last": resident and resident.points[-1],
        "least": resident and resident.points[0],
        "copied": copied and sentences.crossing(copied),
        "copies": copied and crossings.copy_name(copied.form),
        "waited": waited and 1 / waited.rate,
        "pinned": _pinned(rows),
        "lower": _lower(rows),
        "tried": tried,
        "reached": " ".join(rates.rate_sentences(rows, roofs)) or None,
        "gpu": measured_roof(roofs, "gpu:0", "memory"),
        "cpu": measured_roof(roofs, "cpu", "memory"),
    }


def _kernels_tried(rows: Measurements, precision: str) -> int | None:
    """The largest number of CPU rows (kernels times thread counts) that square products of one size have; None without rows."""
    counts = []
    for size_rows in rows_of(rows, SQUARES).get(precision, {}).values():
        counts.append(sum(m.ok and not m.on_gpu for m in size_rows))
    return max(counts, default=None)


def _pinned(rows: Measurements) -> str | None:
    """The speedup of large copies by pinned memory: `5.4x faster to the GPU and 2.9x faster back`; None where copies from both
    kinds of memory were not measured.
    """
    fits = links.fits(rows)
    gains = []
    for direction, words in (("h2d", "to the GPU"), ("d2h", "back")):
        pinned = links.find(fits, direction, "pinned")
        pageable = links.find(fits, direction, "pageable", _PLAIN)
        if pinned and pageable:
            gains.append(f"{sentences.speed(pinned.bandwidth.value / pageable.bandwidth.value)} {words}")
    return join(gains) or None


def _lower(rows: Measurements) -> str | None:
    """The speedup by fewer bits: `1.4x faster in bfloat16 on the CPU`; None without such rows. It is of square products at the
    largest n that float32 was measured at too, each by its fastest kernel.
    """
    squares = (m for m in timed(rows, "matmul") if is_square(m.problem))
    best = best_by(squares, lambda m: (m.device, m.problem.math, m.problem.n), call_s)
    gains = {}
    for (device, math, n), m in sorted(best.items(), key=lambda item: item[0]):
        base = best.get((device, "float32", n))
        if math in _LOWER and base is not None:
            gains[device, math] = sentences.speed(call_s(base) / call_s(m))  # larger n come later and replace it
    return join(f"{gain} in {math} on {rates.device_name(device)}" for (device, math), gain in gains.items()) or None


def _trainings(pairs: list[Pair]) -> dict[str, Any]:
    """Values for the fields of QUESTIONS: the number of trainings on both devices, and in how many of them the step of each
    device is certainly shorter.
    """
    plain = [p for p in pairs if not p.setup.switches]
    shorter = Counter(faster(p.cpu(BY_STEP).cost.step, p.gpu.cost.step) for p in plain)
    others = "; the others can't be told" if shorter["gpu"] + shorter["cpu"] < len(plain) else ""
    return {"trainings": len(plain) or None, "shorter": shorter, "others": others}


def _first_calls(rows: Measurements) -> dict[str, Any]:
    """Values for the fields of QUESTIONS: the first call of a GPU row over its later calls (the median of all rows), and the
    number of rows.
    """
    called = [m for m in rows if m.ok and m.on_gpu and "first_call" in m.phases_s and quick_seconds(m)]
    first = statistics.median(m.phases_s["first_call"] / call_s(m) for m in called) if called else None
    return {"calls": len(called), "first": first}
