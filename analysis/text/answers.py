"""One sentence for an Answer of any family: convolutions along batch, channels or image size, dense layers along the batch,
square products along n. Plain square products have their words in analysis.text.summary."""

from collections.abc import Iterable, Sequence

from analysis import labels, numbers
from analysis.crossover import crossover, layers, network_steps
from analysis.crossover.answer import Answer
from analysis.crossover.families import SQUARES, Family
from analysis.crossover.forms import COPIES, LATENCY, Form
from analysis.roofline.bounds import Roofs
from analysis.stats import group_by
from analysis.text import crossings, sentences
from analysis.text.sentences import capital, say
from analysis.units import count, join
from kernels.networks import Work
from workloads.records import Machine, Measurement, Measurements

_UNTRANSPOSED = "nn"
#: The size that varies -> the letter that stands for it.
_LETTERS = {"batch": "N", "channels": "C", "size": "H"}
_KINDS = {
    "gpu-at-smallest": "the GPU wins throughout",
    "gpu-from": "the GPU wins from {size} {between}",
    "cpu-throughout": "the CPU wins throughout",
    "several": "the winner changes back",
    "cant-tell": "can't tell",
}
SENTENCES = {
    "all works": "{works} {what} ({directions}), {math}, batch {batch}: {sums}.",
    "summary": "Of {count} {what} ({how}): {parts}.",
    "more": "... and {more}. Ask for fewer layers or modes to see them.",
}


def sentence(answer: Answer) -> str:
    """The winner by size in one form: `Convolution ..., float32, resident on the GPU: the GPU wins from batch 12.`."""
    how = [*_how(answer.form), crossings.precision_name(answer), crossings.form_name(answer.form)]
    return " ".join(sentences.crossover(answer, capital(", ".join([family_name(answer.family), *how]))))


def _how(form: Form) -> list[str]:
    """What is unusual in a form of a call: `by tensorflow` for a framework's, and caches that are not warm."""
    words = []
    if form.framework:
        words.append(f"by {form.framework}")
    if form.cache != "warm":
        words.append(f"{form.cache} caches")
    return words


def family_name(family: Family) -> str:
    """The problems of a family in words, with a letter (N, C or H) for the size in which they differ: `convolution 3x3 ...`,
    `product Nx512x128`, `square products`.
    """
    if family.fields == SQUARES.fields:
        return "square products" + crossings.at_once(family)
    letter = _LETTERS[family.varies]
    sizes = dict(family.fixed) | dict.fromkeys(family.fields, letter)
    if family.op != "matmul":
        return f"convolution {labels.conv_words(sizes)}"
    name = f"product {sizes['m']}x{sizes['n']}x{sizes['k']}"
    if sizes["layout"] != _UNTRANSPOSED:
        name += f" ({sizes['layout']})"
    return name + crossings.at_once(family)


def together(works: Iterable[Work], measurements: Measurements, what: str) -> list[str]:
    """A sentence for each precision and batch on the summed time of all these operations on each device; [] without a time.
    what: the operations in words, `convolutions of vgg-16`.
    """
    works = list(works)
    op = next((work.problem.op for work in works if work.problem), "")
    lines = []
    for total in network_steps.totals(works, measurements, op):
        sums = [
            f"{numbers.time(total.seconds[name])} on the {name}" for name in ("GPU", "CPU") if name in total.seconds
        ]
        if not sums:
            continue
        if len(sums) == 2:
            sums.append(sentences.speed(total.seconds["CPU"] / total.seconds["GPU"]))
        line = say(
            SENTENCES["all works"],
            works=f"All {total.works}" if total.works > 1 else "One of the",
            what=what,
            directions=join(total.directions),
            math=total.math,
            batch=total.batch,
            sums=", ".join(sums),
        )
        lines.append(line)
    return lines


def lines(
    answers: Sequence[Answer], measurements: Measurements, machine: Machine | None = None, most: int = 12
) -> list[str]:
    """A sentence for each of the first `most` answers, then how many more there are. Where no answer has a GPU, the one
    sentence that says why.
    """
    if answers and all(a.kind == "no-gpu" for a in answers):
        return [crossings.no_gpu_sentence(measurements, machine)]
    lines = [sentence(answer) for answer in answers[:most]]
    hidden = len(answers) - most
    if hidden > 0:
        lines.append(say(SENTENCES["more"], more=count(hidden, "more answer")))
    return lines


def summaries(answers: Iterable[Answer]) -> list[str]:
    """A sentence for each operation, size that varies, precision and form of a call on who wins in how many of its layers; none
    for a single layer. Square products are not counted.
    """
    complete = [a for a in answers if a.points and a.family != SQUARES]
    groups = group_by(complete, lambda a: (a.family.op, a.family.varies, crossings.precision_name(a), a.form))
    return [_summary(group) for group in groups.values() if len(group) > 1]


def _summary(group: list[Answer]) -> str:
    """`Of 12 convolutions (...): the GPU wins throughout in 9, ...`: how many of these answers have each kind of winner."""
    first = group[0]
    by_kind = group_by(group, lambda a: a.kind)
    sizes: list[float] = []
    for answer in by_kind.get("gpu-from", []):
        crossing = answer.crossings[0]
        sizes += [crossing.below, crossing.above] if crossing.wide else [crossing.at.value]
    sizes.sort()
    between = " to ".join(dict.fromkeys(map(sentences.digits, sizes[:1] + sizes[-1:])))
    parts = []
    for kind, words in _KINDS.items():
        if kind in by_kind:
            verdict = words.format(size=first.family.size_name, between=between)
            parts.append(f"{verdict} in {len(by_kind[kind])}")
    how = [crossings.precision_name(first), *_how(first.form), crossings.form_name(first.form)]
    return say(
        SENTENCES["summary"],
        count=len(group),
        what=f"{layers.NOUNS[first.family.op]}s",
        how=", ".join(how),
        parts=", ".join(parts),
    )


def layer_rows(measurements: Measurements, op: str) -> list[Measurement]:
    """The rows of an operation's layers: all but the square products."""
    return [m for m in measurements if m.problem.op == op and not layers.is_square(m.problem)]


def story(measurements: Measurements, op: str, ceilings: Roofs = (), machine: Machine | None = None) -> list[str]:
    """Sentences on the layers of an operation (conv, matmul); [] without rows. They say who wins in the first precision that was
    measured, with resident data and with plain copies, then how fast each device is. ceilings: the machine's roofs.
    """
    rows = layer_rows(measurements, op)
    rates = layers.rate_sentences(rows, op, ceilings)
    answers = crossover.layer_crossovers(rows, op, forms=(LATENCY, COPIES[0]), machine=machine)
    warm = [a for a in answers if a.points and not a.form.framework and a.form.cache == "warm"]
    first_precision = [a for a in warm if a.precision == warm[0].precision]
    lines = []
    for alike in group_by(first_precision, lambda a: a.form).values():
        lines += summaries(alike) or [sentence(a) for a in alike]
    return [*lines, *rates]


def steps(measurements: Measurements, op: str, machine: Machine | None = None) -> list[str]:
    """A sentence for each network whose layers were all measured, form of a call and precision: who wins their sum at which
    batch, and both times at the smallest and at the largest batch.
    """
    lines = []
    for step in network_steps.complete_steps(measurements, op):
        name = capital(step.words)
        for a in network_steps.answers(step, measurements, machine):
            subject = [name, crossings.precision_name(a), *_how(a.form), crossings.form_name(a.form)]
            parts = sentences.crossover(a, ", ".join(subject))
            for point in a.first_and_last:
                cpu, gpu = point.cpu.seconds, point.gpu.seconds
                parts.append(sentences.winner(cpu, gpu, subject=f"{name}, batch {point.n:,}"))
            lines.append(" ".join(parts))
    return lines
