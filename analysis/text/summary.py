"""The verdict on a run in at most five sentences, and a machine's findings for README."""

import itertools
from collections.abc import Iterable

from analysis.analysis import Analysis
from analysis.crossover.crossover import COPIES, LATENCY, Answer
from analysis.crossover.families import rows_of
from analysis.crossover.time_split import why
from analysis.explain.request import Request, settings_of
from analysis.predict import held_out
from analysis.predict.prediction import predict
from analysis.predict.profile import Lacking, Profile
from analysis.text import answers as layers
from analysis.text import feeding, inference, rates, sentences, several_gpus, training
from analysis.text.crossings import copies_sentence, crossing_sentence, no_gpu_sentence, why_sentence
from analysis.training import break_even
from analysis.training.break_even import BY_JOB
from kernels import networks
from kernels.problems import Training
from workloads.records import Measurements

MOST, TRAININGS = 5, 2
_FIRST = "cifar10-cnn"
FOUND = """
**Small data sets.** {small}
**Why.** Of a GPU step of {model:title}: {parts} (predicted).
**Bare products.** {product}
**Copies.** {copies}
**Batches.** {batches}
**How far to believe it.** Median errors of models outside the fit: GPU {gpu:share}, CPU {cpu:share}. \
[Predicted beforehand](docs/results.md): {saved_gpu.median:share}, {saved_cpu.median:share}. \
A straight line: {saved_gpu.line_median:share}, {saved_cpu.line_median:share}. \
Intervals held {saved_gpu.covered:share}, {saved_cpu.covered:share}. Brackets: where it can't be told."""


def answer(analysis: Analysis, *, why_no_crossover: bool = True) -> list[str]:
    """At most five sentences: who wins a training, from which size and why, the effect of copies, how near the hardware's
    limits.

    Rows that failed, gave a wrong answer or lie above their roof always have the last sentence. why_no_crossover: whether a
    sentence says so where a device has no times.
    """
    rows, machine = analysis.rows, analysis.machine
    answers, ceilings = analysis.crossovers, analysis.roofs
    has_gpu = any(a.kind != "no-gpu" for a in answers)
    trained = several_gpus.training_lines(rows) or training.training_sentences(rows)
    others = () if has_gpu else (training.side_by_side, training.start_sentences, several_gpus.lines, inference.lines)
    if answers:
        told, many = products(analysis, why_no_crossover), [m for m in rows if getattr(m.problem, "count", 1) > 1]
        beside = [layers.story(own, op, ceilings, machine)[:1] for own, op in ((rows, "conv"), (many, "matmul"))]
        told = [*told[:2], *itertools.chain(*beside), *told[2:]]
    else:
        told = [said for op in ("conv", "matmul") for said in layers.steps(rows, op, machine)[:1]]
        told += [said for op in ("conv", "matmul") for said in layers.story(rows, op, ceilings, machine)]
    told += rates.rate_sentences(rows, ceilings) if told else []
    told = [*trained[:TRAININGS], *(s for lines in others for s in lines(rows)), *told, *trained[TRAININGS:]]
    told += training.change_sentences(rows) + rates.roof_sentences(ceilings)
    told += feeding.sentences(rows) if len(told) < MOST else []
    trouble = [*filter(None, [rates.trouble_sentence(rows, ceilings, machine)])]
    return [*dict.fromkeys(told)][: MOST - len(trouble)] + trouble


def _forms(answers: Iterable[Answer]) -> tuple[list[Answer], list[Answer]]:
    """(resident, the ways of copying) of the first precision, where both devices were timed."""
    there = [a for a in answers if a.points]
    first = [a for a in there if a.precision == there[0].precision]
    return [a for a in first if a.form == LATENCY], [a for a in first if a.form in COPIES]


def products(analysis: Analysis, why_no_crossover: bool = True) -> list[str]:
    """Sentences on square products. First precision: the winner resident and copied, and why; other precisions: resident only.
    Without both devices: why, and how fast the measured one is."""
    rows, ceilings = analysis.rows, analysis.roofs
    answers = analysis.crossovers
    resident, copied = _forms(answers)
    told = [said for a in resident for said in (crossing_sentence(a), *_reason(rows, a))]
    told += [said for a in copied[:1] for said in (copies_sentence(copied), *_reason(rows, a))]
    told += [crossing_sentence(a) for a in answers if a.points and a.form == LATENCY and a not in resident]
    timed, near = any(m.on_gpu and m.ok for m in rows), rates.rate_sentences(rows, ceilings)[:1]
    alone = []
    if why_no_crossover and not (timed and all(a.kind == "no-gpu" for a in answers)):
        alone.append(no_gpu_sentence(rows, analysis.machine))
    return told or (near + alone if timed else alone + near) + rates.bound_sentences(rows, ceilings)


def _reason(rows: Measurements, a: Answer) -> list[str]:
    return [why_sentence(w, a.form) for w in why(rows_of(rows, a.family), a) if len(w.known) > 1][:1]


# ---------------------------------------------------------------- findings, for README


def findings(analysis: Analysis) -> list[str]:
    """The findings of a machine's rows: bare products, copies, small data sets, batches, and how far predictions were off."""
    resident, copied = _forms(analysis.crossovers)
    small = next((training.answer_sentence(a) for a in analysis.training_crossovers if _is_small(a)), None)
    errors = {s.device: s.median for s in held_out.summaries(analysis.predicted) if s.bound == "all"}
    words: dict[str, object] = {
        "small": small,
        "model": _FIRST,
        "parts": _parts(analysis.profile),
        "cpu": errors.get("cpu"),
        "gpu": errors.get("gpu:0"),
    }
    by_device = {s.device: s for s in analysis.saved if s.line}
    words |= {"saved_cpu": by_device.get("cpu"), "saved_gpu": by_device.get("gpu:0")}
    words |= {"product": next(map(crossing_sentence, resident), None)}
    words |= {"copies": copies_sentence(copied) if copied else None}
    words |= {"batches": " ".join(feeding.sentences(analysis.rows)[:2]) or None}
    return [f"- {line}" for line in sentences.lines(FOUND, **words)]


def _is_small(a: Answer) -> bool:
    """Whether an answer gives the number of samples from which the GPU wins the first article's whole training."""
    setup = break_even.setup_in(a.family)
    same = (setup.model, setup.switches, a.family.varies, a.form.mode) == (_FIRST, (), "samples", BY_JOB)
    return same and any(not c.wide for c in a.crossings[:1])


def _parts(profile: Profile) -> str | None:
    """The largest parts of a GPU step of the first article's training, as an explanation has them; None where it lacks rows."""
    network = networks.find(_FIRST)
    request = Request(Training(network.name, network.batch, network.samples, network.epochs))
    try:
        return sentences.shares(predict(request.training, settings_of(request, "gpu:0"), profile))
    except Lacking:
        return None
