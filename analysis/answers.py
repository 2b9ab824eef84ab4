"""An Answer of any family in one sentence: convolutions in batch, channels or image size, a dense layer in its batch; the
square products in n, whose words are those of analysis.sentences, in a framework or from cold caches."""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

import msgspec

from analysis import crossover, layers, sentences, shapes
from analysis.crossover import COPIES, LATENCY, SQUARES, THROUGHPUT, Answer, Family, fastest, framework_of
from analysis.estimate import is_gpu
from analysis.families import batch_family, comparable
from analysis.units import count, digits, join, seconds
from kernels.registry import FRAMEWORKS

if TYPE_CHECKING:
    from analysis.bounds import Roof
    from kernels.networks import Work
    from kernels.problems import Problem
    from workloads.records import Machine, Measurement

_UNTRANSPOSED = "nn"


def sentence(answer: Answer) -> str:
    """Who wins where in one form, with the measured range: `float32, 3x3 convolution ... in its batch, data already on the
    GPU, one call at a time: the GPU wins from batch = 12 ...`."""
    return f"{sentences.precision_name(answer)}, {about(answer)}, {sentences.crossing_words(answer)}"


def about(answer: Answer) -> str:
    """What was called, and how: the family, the framework, the caches."""
    form = answer.form
    how = [f"by {form.framework}"] * bool(form.framework) + [f"{form.cache} caches"] * (form.cache != "warm")
    return ", ".join([family_name(answer.family), *how])


def family_name(family: Family) -> str:
    """`3x3 convolution (fprop) of 32x32x64 images with 64 filters` with a word in the place of what varies."""
    if family == SQUARES:
        return "square products"
    of = dict(family.fixed) | dict.fromkeys(family.fields, {"batch": "N", "channels": "C", "size": "H"}[family.varies])
    if family.op == "matmul":
        layout = "" if of["layout"] == _UNTRANSPOSED else f" ({of['layout']})"
        return f"product {of['m']}x{of['n']}x{of['k']}{layout}"
    return f"convolution {shapes.conv_words(of)}"


def every(
    measurements: "Iterable[Measurement]",
    op: str,
    varies: Iterable[str] = crossover.VARIES,
    least=None,
    forms=(LATENCY, THROUGHPUT, *COPIES),
) -> list[Answer]:
    """The answers of all families of an operation but the square products of libraries from warm caches."""
    measurements = list(measurements)
    found: list[Answer] = []
    for framework, cache in crossover.forms_of([m for m in measurements if m.problem.op == op]):
        if op == "conv":
            found += crossover.conv_crossovers(measurements, forms, framework, cache, varies, least)
        else:
            found += crossover.dense_crossovers(measurements, forms, framework, cache)
            if framework or cache != "warm":
                found += crossover.crossovers(measurements, forms, framework, cache)
    return found


class Total(msgspec.Struct, frozen=True):
    """What all products of a step in an arithmetic come to, each as often as it occurs: FLOPs, and the seconds of the fastest
    rows of each side, waited for one by one (None where a problem has no time); libraries called by themselves, then each
    framework by the name of its side (`tensorflow CPU`)."""

    batch: int
    math: str
    works: int
    directions: tuple[str, ...]
    flops: int
    cpu: float | None
    gpu: float | None
    frameworks: tuple[tuple[str, float], ...] = ()


def totals(works: "Iterable[Work]", measurements: "Iterable[Measurement]") -> list[Total]:
    """A Total for each batch and precision of the works: the CPU's over kernels and threads, the GPU's with the data there."""
    measurements, works = list(measurements), list(works)
    best: dict[tuple, list[float]] = {}
    ways = [(op, way) for op in dict.fromkeys(w.problem.op for w in works if w.problem) for way in ("", *FRAMEWORKS)]
    for m in (m for op, way in ways for m in comparable(measurements, op, way) if m.settings.mode == "resident"):
        if side := fastest([m], "host-latency"):
            best.setdefault((m.problem, framework_of(m), is_gpu(m.settings.device)), []).append(side.seconds.value)
    groups: dict = {}
    for work in works:
        problem: Problem = work.problem
        batch = getattr(problem, batch_family(problem).fields[0])
        groups.setdefault((batch, problem.math), []).append(work)

    def sum_of(group: "list[Work]", framework: str, gpu: bool) -> float | None:
        whole = sum(min(best.get((w.problem, framework, gpu), [inf])) for w in group)
        return whole if whole < inf else None

    def in_frameworks(group: "list[Work]") -> tuple[tuple[str, float], ...]:
        sides = (
            (f"{name} {where}", sum_of(group, name, where == "GPU")) for name in FRAMEWORKS for where in ("CPU", "GPU")
        )
        return tuple((name, time) for name, time in sides if time is not None)

    return [
        Total(
            batch,
            math,
            len(group),
            tuple(dict.fromkeys(w.direction for w in group)),
            sum(w.flops for w in group),
            sum_of(group, "", False),
            sum_of(group, "", True),
            in_frameworks(group),
        )
        for (batch, math), group in groups.items()
    ]


def together(works: "Iterable[Work]", measurements: "Iterable[Measurement]", what: str) -> list[str]:
    """The totals as sentences; `what` is many of them in words: convolutions of vgg-16. Without any time there is no sentence."""
    said = []
    for t in totals(works, measurements):
        sides = ((t.cpu, "CPU"), (t.gpu, "GPU, data already there"))
        sums = [f"{seconds(time)} on the {name}" for time, name in sides if time is not None]
        if sums:
            many, _, of = what.partition(" ")
            every = f"all {t.works} {what}" if t.works > 1 else f"the one {many.removesuffix('s')} {of}"
            said.append(
                f"{t.math}, batch {t.batch}: {every} ({join(t.directions)}, {digits(t.flops / 1e9)} GFLOP) "
                f"take{'s' * (t.works == 1)} {join(sums)}, the fastest kernel each, one call at a time."
            )
    return said


def lines(
    answers: Iterable[Answer], measurements: "Iterable[Measurement]", machine: "Machine | None" = None, most: int = 12
) -> list[str]:
    """A sentence for each answer, `most` of them, and how many more there are; without a GPU the one that says so."""
    answers = list(answers)
    if answers and all(a.kind == "no-gpu" for a in answers):
        return [sentences.no_gpu_sentence(measurements, machine)]
    said = list(dict.fromkeys(sentence(a) for a in answers))
    more = len(said) - most
    rest = f"... and {count(more, 'more answer')}; fewer layers or modes at a time show theirs"
    return said if more <= 0 else [*said[:most], rest]


def summaries(answers: Iterable[Answer]) -> list[str]:
    """How all families of an operation fare together, a sentence for each of what varies, precision and form: how many have
    the GPU win from where."""
    groups: dict = {}
    for a in answers:
        if a.points and a.family != SQUARES:
            form = (a.family.op, a.family.varies, sentences.precision_name(a), sentences.form_name(a.form))
            groups.setdefault((*form, a.form.framework, a.form.cache), []).append(a)
    return [
        _summary(op, varies, precision, form, group)
        for (op, varies, precision, form, *_), group in groups.items()
        if len(group) > 1
    ]


def _summary(op: str, varies: str, precision: str, form: str, group: list[Answer]) -> str:
    first, family = group[0].form, group[0].family
    how = [f"by {first.framework}"] * bool(first.framework) + [f"{first.cache} caches"] * (first.cache != "warm")
    kinds = {kind: [a for a in group if a.kind == kind] for kind in dict.fromkeys(a.kind for a in group)}
    parts = []
    for kind in ("gpu-at-smallest", "gpu-from", "cpu-throughout", "several", "cant-tell"):
        if of := kinds.get(kind, []):
            found = [a.crossings[0] for a in of] if kind == "gpu-from" else []
            ends = sorted(end for c in found for end in ((c.below, c.above) if c.wide else (c.at.value,)))
            words = {
                "gpu-at-smallest": f"the GPU wins already at {family.smallest}",
                "cpu-throughout": "the CPU wins throughout",
                "several": "the GPU loses again somewhere",
                "cant-tell": "one can't tell",
            }
            between = " to ".join(dict.fromkeys(sentences.whole(end) for end in (ends[0], ends[-1]))) if ends else ""
            parts.append(f"{words.get(kind) or f'the GPU wins from {family.size_name} = {between}'} in {len(of)}")
    low, high = min(a.low_n for a in group), max(a.high_n for a in group)
    noun = {"conv": "convolutions", "matmul": "products"}[op]
    return (
        f"{', '.join([precision, *how, form])}: of {len(group)} {noun}, along the {family.size_name}, {', '.join(parts)} "
        f"(measured range {low}..{high})."
    )


def story(
    measurements: "Iterable[Measurement]", op: str, ceilings: "tuple[Roof, ...]" = (), machine: "Machine | None" = None
) -> list[str]:
    """The layers of an operation in a few sentences: who wins with the data there and with copies as people write them, in
    the first precision, and how fast each device is; [] without any."""
    rows = [m for m in measurements if m.problem.op == op and not layers.is_square(m.problem)]
    found = [a for a in every(rows, op, forms=(LATENCY, COPIES[0])) if not a.form.framework and a.form.cache == "warm"]
    rates = layers.rate_sentences(rows, op, ceilings)
    if not any(is_gpu(m.settings.device) for m in rows) or (found and all(a.kind == "no-gpu" for a in found)):
        return [sentences.no_gpu_sentence(rows, machine), *rates] if rows else []
    first = [a for a in found if a.precision == found[0].precision]
    said = []
    for form in (LATENCY, COPIES[0]):
        own = [a for a in first if a.form == form and a.points]
        said += summaries(own) or [sentence(a) for a in own]
    return [*said, *rates]
