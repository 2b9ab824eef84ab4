"""The verdict on a run in at most five sentences, and a machine's findings for README."""

import itertools
from collections.abc import Callable, Iterable

import msgspec

from analysis.analysis import Analysis
from analysis.crossover.answer import Answer
from analysis.crossover.families import rows_of
from analysis.crossover.forms import COPIES, LATENCY
from analysis.crossover.time_split import why
from analysis.explain.request import Request, settings_of
from analysis.predict.prediction import predict
from analysis.predict.profile import Lacking, Profile
from analysis.text import answers, inference, input_pipeline, rates, sentences, several_gpus, training
from analysis.text.crossings import (
    NoCrossover,
    copies_sentence,
    crossing_sentence,
    no_crossover,
    no_crossover_sentence,
    why_sentence,
)
from analysis.training import break_even
from analysis.training.break_even import BY_WHOLE_TRAINING
from kernels import networks
from kernels.problems import Training
from workloads.records import Measurements

MOST, TRAININGS = 5, 2
#: Topic -> its sentences, of the topics that have a section of the page.
SECTIONS: dict[str, Callable[[Measurements], list[str]]] = {
    "side by side": training.side_by_side,
    "starts": training.start_sentences,
    "inference": inference.lines,
    "feeding": input_pipeline.sentences,
}
_FIRST = "cifar10-cnn"
FINDINGS = """
**Small data sets.** {small}
**Why.** Of a GPU step of {model:title}: {parts} (predicted).
**Bare products.** {product}
**Copies.** {copies}
**Batches.** {batches}"""


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence on a run, for its answer or for a section of its page."""

    #: What it is about. The topics of SECTIONS have a section of their own.
    topic: str
    #: The sentence.
    text: str
    #: What it puts into words, where other sentences do so too: the key of the row whose rate it gives, or why there is no
    #: crossover.
    statement: str | NoCrossover | None = None


class RunSentences(msgspec.Struct, frozen=True, kw_only=True):
    """The sentences on a run: those of its answer, and those that are left for the sections of its page."""

    answer: tuple[Sentence, ...]
    others: tuple[Sentence, ...]

    @property
    def lines(self) -> list[str]:
        """The sentences of the answer."""
        return [sentence.text for sentence in self.answer]

    def left(self, topic: str) -> list[str]:
        """The sentences of a topic that the answer does not have."""
        return [sentence.text for sentence in self.others if sentence.topic == topic]


def answer(analysis: Analysis) -> list[str]:
    """The sentences of a run's answer."""
    return summary(analysis).lines


def summary(analysis: Analysis, *, why_no_crossover: bool = True) -> RunSentences:
    """The answer in at most five sentences: who wins a training, from which size and why, the effect of copies, how near the
    hardware's limits.

    Rows that failed, gave a wrong answer or lie above their roof always have the last sentence. why_no_crossover: whether a
    sentence says so where a device has no times.
    """
    rows, ceilings = analysis.rows, analysis.roofs
    sections = {topic: _about(topic, sentences_of(rows)) for topic, sentences_of in SECTIONS.items()}
    trainings = _about("trainings", several_gpus.training_lines(rows) or training.training_sentences(rows))
    candidates = trainings[:TRAININGS]
    has_gpu = any(a.kind != "no-gpu" for a in analysis.crossovers)
    if not has_gpu:
        candidates += sections.pop("side by side") + sections.pop("starts")
        candidates += _about("several GPUs", several_gpus.lines(rows))
        candidates += sections.pop("inference")
    candidates += _kernels(analysis, why_no_crossover)
    candidates += trainings[TRAININGS:]
    candidates += _about("options", training.change_sentences(rows))
    candidates += _about("roofs", rates.roof_sentences(ceilings))
    if len(candidates) < MOST:
        candidates += sections.pop("feeding")
    trouble = rates.trouble_sentence(rows, ceilings, analysis.machine)
    last = _about("trouble", [trouble] if trouble else [])
    ranked = _without_repeats(candidates)
    room = MOST - len(last)
    not_candidates = itertools.chain.from_iterable(sections.values())
    return RunSentences(answer=(*ranked[:room], *last), others=(*ranked[room:], *not_candidates))


def _without_repeats(sentences: Iterable[Sentence]) -> list[Sentence]:
    """The sentences without those that repeat the statement of an earlier one. Sentences without a statement all stay."""
    statements: set[str | NoCrossover] = set()
    first = []
    for sentence in sentences:
        if sentence.statement is not None:
            if sentence.statement in statements:
                continue
            statements.add(sentence.statement)
        first.append(sentence)
    return first


def _about(topic: str, texts: Iterable[str]) -> list[Sentence]:
    """These texts as sentences on a topic, without a statement."""
    return [Sentence(topic=topic, text=text) for text in texts]


def _kernels(analysis: Analysis, why_no_crossover: bool) -> list[Sentence]:
    """Sentences on square products and on layers, the most interesting first, then how fast each device is. why_no_crossover:
    whether they say why where nothing can be compared.
    """
    rows = analysis.rows
    candidates = []
    if analysis.crossovers:
        squares = _products(analysis, why_no_crossover)
        batched = [m for m in rows if getattr(m.problem, "count", 1) > 1]
        candidates += squares[:2]
        candidates += _layers(analysis, rows, "conv")[:1]
        candidates += _layers(analysis, batched, "matmul")[:1]
        candidates += squares[2:]
    else:
        for op in ("conv", "matmul"):
            candidates += _about("kernels", answers.steps(rows, op, analysis.machine)[:1])
        for op in ("conv", "matmul"):
            candidates += _layers(analysis, rows, op)
    if candidates:
        candidates += _rates(analysis)
    return candidates


def _layers(analysis: Analysis, measurements: Measurements, op: str) -> list[Sentence]:
    """Sentences on the layers of an operation (conv, matmul) among these rows; [] without them. Where none has a time on the
    GPU, the first sentence says why.
    """
    rows = answers.layer_rows(measurements, op)
    if not rows:
        return []
    story = _about("kernels", answers.story(rows, op, analysis.roofs, analysis.machine))
    if any(m.on_gpu and m.ok for m in rows):
        return story
    return [_no_crossover(rows, analysis), *story]


def _no_crossover(rows: Measurements, analysis: Analysis) -> Sentence:
    """The sentence that says why these rows have no crossover."""
    why_none = no_crossover(rows)
    text = no_crossover_sentence(why_none, analysis.machine)
    return Sentence(topic="kernels", text=text, statement=why_none)


def _rates(analysis: Analysis) -> list[Sentence]:
    """The best rate of each device, a sentence each."""
    sentences = []
    for m in rates.largest_products(analysis.rows):
        text = rates.rate_sentence(m, analysis.roofs)
        sentences.append(Sentence(topic="kernels", text=text, statement=m.key))
    return sentences


def _forms(answers: Iterable[Answer]) -> tuple[list[Answer], list[Answer]]:
    """(answers of calls with resident data, answers of calls with copies) among those of the first precision that was timed on
    both devices.
    """
    complete = [a for a in answers if a.points]
    first = [a for a in complete if a.precision == complete[0].precision]
    return [a for a in first if a.form == LATENCY], [a for a in first if a.form in COPIES]


def products(analysis: Analysis) -> list[str]:
    """The sentences on square products."""
    return [sentence.text for sentence in _products(analysis, why_no_crossover=True)]


def _products(analysis: Analysis, why_no_crossover: bool) -> list[Sentence]:
    """Sentences on square products: for the first precision who wins with resident data and with copies, and why; for others with
    resident data only. Where only one device was timed: how fast it is, and why nothing can be compared.
    """
    rows = analysis.rows
    resident, copied = _forms(analysis.crossovers)
    lines = []
    for a in resident:
        lines += [crossing_sentence(a), *_reason(rows, a)]
    if copied:
        lines += [copies_sentence(copied), *_reason(rows, copied[0])]
    for a in analysis.crossovers:
        if a.points and a.form == LATENCY and a not in resident:
            lines.append(crossing_sentence(a))
    if lines:
        return _about("kernels", lines)
    return _one_device(analysis, why_no_crossover)


def _one_device(analysis: Analysis, why_no_crossover: bool) -> list[Sentence]:
    """Sentences on square products that only one device has times of: how fast it is, what limits it, and with
    `why_no_crossover` why there is no crossover.
    """
    rows = analysis.rows
    has_gpu = any(m.on_gpu and m.ok for m in rows)
    rate = _rates(analysis)[:1]
    bound = _about("kernels", rates.bound_sentences(rows, analysis.roofs))
    all_without_gpu = all(a.kind == "no-gpu" for a in analysis.crossovers)
    if not why_no_crossover or (has_gpu and all_without_gpu):
        return [*rate, *bound]
    why_none = _no_crossover(rows, analysis)
    if has_gpu:
        return [*rate, why_none, *bound]
    return [why_none, *rate, *bound]


def _reason(rows: Measurements, a: Answer) -> list[str]:
    """One sentence on where the GPU's time goes near the crossing; [] where too little of it was measured."""
    for split in why(rows_of(rows, a.family), a):
        if len(split.known) > 1:
            return [why_sentence(split, a.form)]
    return []


# ---------------------------------------------------------------- findings, for README


def findings(analysis: Analysis) -> list[str]:
    """The findings of a machine for README, a Markdown list item each. A finding that the rows do not tell is left out."""
    resident, copied = _forms(analysis.crossovers)
    small = [training.answer_sentence(a) for a in analysis.training_crossovers if _is_small(a)]
    product = crossing_sentence(resident[0]) if resident else None
    copies = copies_sentence(copied) if copied else None
    batches = " ".join(input_pipeline.sentences(analysis.rows)[:2])
    lines = sentences.lines(
        FINDINGS,
        small=small[0] if small else None,
        model=_FIRST,
        parts=_parts(analysis.profile),
        product=product,
        copies=copies,
        batches=batches or None,
    )
    return [f"- {line}" for line in lines]


def _is_small(a: Answer) -> bool:
    """Whether an answer gives the number of samples from which the winner of the first article's whole training changes."""
    setup = break_even.setup_in(a.family)
    same = (setup.model, setup.switches, a.family.varies, a.form.mode) == (_FIRST, (), "samples", BY_WHOLE_TRAINING)
    return same and any(not c.wide for c in a.crossings[:1])


def _parts(profile: Profile) -> str | None:
    """The largest parts of the predicted GPU step of the first article's training, in words; None where rows for it are
    missing.
    """
    network = networks.find(_FIRST)
    request = Request(Training(network.name, network.batch, network.samples, network.epochs))
    try:
        return sentences.shares(predict(request.training, settings_of(request, "gpu:0"), profile))
    except Lacking:
        return None
