"""One sentence for an Answer of any family: convolutions along batch, channels or image size, dense layers along the batch,
square products along n. Plain square products have their words in analysis.text.summary."""

from collections.abc import Iterable, Sequence

from analysis import labels, numbers
from analysis.crossover import crossover, layers, network_steps
from analysis.crossover.crossover import COPIES, LATENCY, Answer, Form
from analysis.crossover.families import SQUARES, Family
from analysis.roofline.bounds import Roofs
from analysis.stats import group_by
from analysis.text import crossings, sentences
from analysis.text.sentences import capital, say
from analysis.units import count, join
from kernels.networks import Work
from workloads.records import Machine, Measurements

_UNTRANSPOSED = "nn"
_KINDS = {
    "gpu-at-smallest": "the GPU wins throughout",
    "gpu-from": "the GPU wins from {size} {between}",
    "cpu-throughout": "the CPU wins throughout",
    "several": "the winner changes back",
    "cant-tell": "can't tell",
}
SAID = {
    "together": "{works} {what} ({directions}), {math}, batch {batch}: {sums}.",
    "summary": "Of {count} {what} ({how}): {parts}.",
    "more": "... and {more}. Ask for fewer layers or modes to see them.",
}


def sentence(answer: Answer) -> str:
    """The winner by size in one form: `Convolution ..., float32, resident on the GPU: the GPU wins from batch 12.`."""
    how = [*_how(answer.form), crossings.precision_name(answer), crossings.form_name(answer.form)]
    return " ".join(sentences.crossover(answer, capital(", ".join([family_name(answer.family), *how]))))


def _how(form: Form) -> list[str]:
    return [f"by {form.framework}"] * bool(form.framework) + [f"{form.cache} caches"] * (form.cache != "warm")


def family_name(family: Family) -> str:
    """`3x3 convolution (fprop) of 32x32x64 images with 64 filters` with a letter for the size that varies (N, C or H)."""
    if family.fields == SQUARES.fields:
        return "square products" + crossings.at_once(family)
    of = dict(family.fixed) | dict.fromkeys(family.fields, {"batch": "N", "channels": "C", "size": "H"}[family.varies])
    if family.op == "matmul":
        how = f" ({of['layout']})" * (of["layout"] != _UNTRANSPOSED) + crossings.at_once(family)
        return f"product {of['m']}x{of['n']}x{of['k']}{how}"
    return f"convolution {labels.conv_words(of)}"


def together(works: Iterable[Work], measurements: Measurements, what: str) -> list[str]:
    """Sentences on the time of all `works` together; [] without a time. what: the works in words, `convolutions of vgg-16`."""
    works, said = list(works), []
    op = next((w.problem.op for w in works if w.problem), "")
    for t in network_steps.totals(works, measurements, op):
        own = {name: t.seconds[name] for name in ("GPU", "CPU") if name in t.seconds}
        sums = [f"{numbers.time(e)} on the {name}" for name, e in own.items()]
        sums += [sentences.speed(own["CPU"] / own["GPU"])] if len(own) > 1 else []
        each = f"All {t.works}" if t.works > 1 else "One of the"
        words = {"directions": join(t.directions), "batch": t.batch, "math": t.math, "what": what}
        said += [say(SAID["together"], works=each, sums=", ".join(sums), **words)] if sums else []
    return said


def lines(
    answers: Sequence[Answer], measurements: Measurements, machine: Machine | None = None, most: int = 12
) -> list[str]:
    """At most `most` sentences, one an answer, then how many more there are. Without a GPU: the one sentence that says so."""
    if answers and all(a.kind == "no-gpu" for a in answers):
        return [crossings.no_gpu_sentence(measurements, machine)]
    said = list(dict.fromkeys(map(sentence, answers)))
    more = len(said) - most
    return said[:most] + [say(SAID["more"], more=count(more, "more answer"))] * (more > 0)


def summaries(answers: Iterable[Answer]) -> list[str]:
    """Counts of families by winner: a sentence for each operation, size that varies, precision and form with two families or
    more. The square products are not counted."""
    found = [a for a in answers if a.points and a.family != SQUARES]
    groups = group_by(found, lambda a: (a.family.op, a.family.varies, crossings.precision_name(a), a.form))
    return [_summary(group) for group in groups.values() if len(group) > 1]


def _summary(group: list[Answer]) -> str:
    first, kinds, parts = group[0], group_by(group, lambda a: a.kind), []
    to_gpu = [a.crossings[0] for a in kinds.get("gpu-from", [])]
    sizes: list[float] = []
    for crossing in to_gpu:
        sizes += [crossing.below, crossing.above] if crossing.wide else [crossing.at.value]
    sizes.sort()
    between = " to ".join(dict.fromkeys(map(sentences.digits, sizes[:1] + sizes[-1:])))
    for kind, words in _KINDS.items():
        if of := kinds.get(kind):
            parts.append(f"{words.format(size=first.family.size_name, between=between)} in {len(of)}")
    how = ", ".join([crossings.precision_name(first), *_how(first.form), crossings.form_name(first.form)])
    return say(
        SAID["summary"], count=len(group), what=f"{layers.NOUNS[first.family.op]}s", how=how, parts=", ".join(parts)
    )


def story(measurements: Measurements, op: str, ceilings: Roofs = (), machine: Machine | None = None) -> list[str]:
    """Sentences on the layers of an operation; [] without rows. They say who wins in the first precision, with resident data
    and with plain copies (the first of COPIES), then how fast each device is."""
    rows = [m for m in measurements if m.problem.op == op and not layers.is_square(m.problem)]
    rates = layers.rate_sentences(rows, op, ceilings)
    if not any(m.on_gpu and m.ok for m in rows):
        return [crossings.no_gpu_sentence(rows, machine), *rates] if rows else []
    found = crossover.layer_crossovers(rows, op, forms=(LATENCY, COPIES[0]), machine=machine)
    found = [a for a in found if a.points and not a.form.framework and a.form.cache == "warm"]
    first = group_by((a for a in found if a.precision == found[0].precision), lambda a: a.form).values()
    return [*(said for own in first for said in summaries(own) or map(sentence, own)), *rates]


def steps(measurements: Measurements, op: str, machine: Machine | None = None) -> list[str]:
    """A sentence for each network's step, form and precision: the winner by batch. It ends with both times at the smallest and
    at the largest batch."""
    said = []
    for step in network_steps.complete_steps(measurements, op):
        name = capital(step.words)
        for a in network_steps.answers(step, measurements, machine):
            named = [name, crossings.precision_name(a), *_how(a.form), crossings.form_name(a.form)]
            both = (
                sentences.winner(p.cpu.seconds, p.gpu.seconds, subject=f"{name}, batch {p.n:,}")
                for p in a.first_and_last
            )
            said.append(" ".join([*sentences.crossover(a, ", ".join(named)), *both]))
    return said
