"""An Answer of any family in one sentence: convolutions in batch, channels or image size, a dense layer in its batch; the
square products in n, whose words are those of analysis.text.summary, in a framework or from cold caches."""

import functools
from collections.abc import Callable, Iterable

from analysis import labels
from analysis.crossover import crossover, layers, network_steps
from analysis.crossover.crossover import COPIES, LATENCY, SQUARES, THROUGHPUT, Answer, Family, Form
from analysis.crossover.families import VARIES, conv_rows, dense_rows, squares
from analysis.roofline.bounds import Roof
from analysis.stats import group_by
from analysis.text import crossings, sentences
from analysis.text.sentences import capital, say
from analysis.units import count, join
from kernels.networks import Work
from kernels.registry import FRAMEWORKS
from workloads.records import Machine, Measurement, Run

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
    "alone": "{step}: at batch {batches} the {there} alone was timed. Measure the {lacks}: {command}",
    "more": "... and {more}. Ask for fewer layers or modes to see them.",
}


def sentence(answer: Answer) -> str:
    """Who wins where in one form: `Convolution ..., float32, resident on the GPU: the GPU wins from batch 12.`."""
    named = [family_name(answer.family), *_how(answer.form), crossings.precision_name(answer)]
    return f"{capital(', '.join(named))}, {crossings.crossing_words(answer)}"


def _how(form: Form) -> list[str]:
    return [f"by {form.framework}"] * bool(form.framework) + [f"{form.cache} caches"] * (form.cache != "warm")


def family_name(family: Family) -> str:
    """`3x3 convolution (fprop) of 32x32x64 images with 64 filters` with a word in the place of what varies."""
    if family.fields == SQUARES.fields:
        return "square products" + crossings.at_once(family)
    of = dict(family.fixed) | dict.fromkeys(family.fields, {"batch": "N", "channels": "C", "size": "H"}[family.varies])
    if family.op == "matmul":
        return f"product {of['m']}x{of['n']}x{of['k']}" + f" ({of['layout']})" * (of["layout"] != _UNTRANSPOSED)
    return f"convolution {labels.conv_words(of)}"


def every(
    measurements: Iterable[Measurement],
    op: str,
    varies: Iterable[str] = VARIES,
    least=None,
    forms=(LATENCY, THROUGHPUT, *COPIES),
    machine: Machine | None = None,
) -> list[Answer]:
    """The answers of all families of an operation but the single square products of libraries from warm caches."""
    measurements = list(measurements)
    found: list[Answer] = []
    for framework, cache in crossover.forms_of([m for m in measurements if m.problem.op == op]):
        if op == "conv":
            kinds: list[Callable] = [functools.partial(conv_rows, varies=varies, least=least)]
        else:
            kinds = [dense_rows, squares] if framework or cache != "warm" else [dense_rows]
        for families in kinds:
            found += crossover.crossovers(measurements, forms, framework, cache, machine, families)
    return found


def together(works: Iterable[Work], measurements: Iterable[Measurement], what: str) -> list[str]:
    """The totals as sentences; `what` is many of them in words: convolutions of vgg-16. Without any time there is no sentence."""
    works, said = list(works), []
    op = next((w.problem.op for w in works if w.problem), "")
    for t in network_steps.totals(works, measurements, op):
        sums = [f"{sentences.time(e)} on the {name}" for name, e in (("GPU", t.gpu), ("CPU", t.cpu)) if e is not None]
        sums += [sentences.speed(t.cpu / t.gpu)] if t.cpu and t.gpu else []
        each = f"All {t.works}" if t.works > 1 else "One of the"
        words = {"directions": join(t.directions), "batch": t.batch, "math": t.math, "what": what}
        said += [say(SAID["together"], works=each, sums=", ".join(sums), **words)] if sums else []
    return said


def lines(
    answers: Iterable[Answer], measurements: Iterable[Measurement], machine: Machine | None = None, most: int = 12
) -> list[str]:
    """A sentence for each answer, `most` of them, and how many more there are; without a GPU the one that says so."""
    answers = list(answers)
    if answers and all(a.kind == "no-gpu" for a in answers):
        return [crossings.no_gpu_sentence(measurements, machine)]
    said = list(dict.fromkeys(map(sentence, answers)))
    more = len(said) - most
    return said[:most] + [say(SAID["more"], more=count(more, "more answer"))] * (more > 0)


def summaries(answers: Iterable[Answer]) -> list[str]:
    """How all families of an operation fare together, a sentence for each of what varies, precision and form: how many have
    the GPU win from where."""
    found = [a for a in answers if a.points and a.family != SQUARES]
    groups = group_by(found, lambda a: (a.family.op, a.family.varies, crossings.precision_name(a), a.form))
    return [_summary(group) for group in groups.values() if len(group) > 1]


def _summary(group: list[Answer]) -> str:
    first, kinds, parts = group[0], group_by(group, lambda a: a.kind), []
    turns = [a.crossings[0] for a in kinds.get("gpu-from", [])]
    ends = sorted(end for c in turns for end in ((c.below, c.above) if c.wide else (c.at.high,)))
    between = " to ".join(dict.fromkeys(map(sentences.digits, ends[:1] + ends[-1:])))
    for kind, words in _KINDS.items():
        if of := kinds.get(kind):
            parts.append(f"{words.format(size=first.family.size_name, between=between)} in {len(of)}")
    what = {"conv": "convolutions", "matmul": "products"}[first.family.op]
    how = ", ".join([crossings.precision_name(first), *_how(first.form), crossings.form_name(first.form)])
    return say(SAID["summary"], count=len(group), what=what, how=how, parts=", ".join(parts))


def story(
    measurements: Iterable[Measurement], op: str, ceilings: tuple[Roof, ...] = (), machine: Machine | None = None
) -> list[str]:
    """The layers of an operation in a few sentences: who wins with the data there and with copies as people write them, in
    the first precision, and how fast each device is; [] without any."""
    rows = [m for m in measurements if m.problem.op == op and not layers.is_square(m.problem)]
    found = [a for a in every(rows, op, forms=(LATENCY, COPIES[0])) if not a.form.framework and a.form.cache == "warm"]
    rates = layers.rate_sentences(rows, op, ceilings)
    if not any(m.on_gpu for m in rows) or (found and all(a.kind == "no-gpu" for a in found)):
        return [crossings.no_gpu_sentence(rows, machine), *rates] if rows else []
    said = []
    for form in (LATENCY, COPIES[0]):
        own = [a for a in found if a.precision == found[0].precision and a.form == form and a.points]
        said += summaries(own) or [sentence(a) for a in own]
    return [*said, *rates]


def step_sentences(step: network_steps.Step, answer: Answer) -> tuple[str, str]:
    """Who wins the step from which batch; both times at the fewest and at the most."""
    name = capital(step.words)
    named = [name, crossings.precision_name(answer), *_how(answer.form), crossings.form_name(answer.form)]
    ends = dict.fromkeys((answer.points[0], answer.points[-1]))
    both = [sentences.winner(p.cpu.seconds, p.gpu.seconds, of=f"{name}, batch {p.n:,}") for p in ends]
    return " ".join(sentences.crossover(answer, ", ".join(named))), " ".join(both)


def lacking(
    step: network_steps.Step,
    measurements: Iterable[Measurement],
    machine: Machine | None = None,
    answer: Answer | None = None,
) -> list[str]:
    """At which batches one device alone has a time of the step, in the answer's way, without one in the first way that has any,
    and the command that measures the other's; nothing where there is none, and on a machine without a GPU."""
    compared = {p.n for p in answer.points} if answer else set()
    for way in [answer.form.framework] if answer else ["", *FRAMEWORKS] if machine and machine.gpus else []:
        best = network_steps.best_rows(measurements, step.op, way)
        alone: dict[bool, set[int]] = {True: set(), False: set()}
        for ((batch, math), works), gpu in ((one, gpu) for one in step.works.items() for gpu in alone):
            alike = answer is None or math == answer.precision or (not gpu and math == "float32")
            if alike and batch not in compared and network_steps.step_side(best, [w.problem for w in works], gpu):
                alone[gpu].add(batch)
        alone[False] -= alone[True]
        said = []
        for gpu, batches in ((gpu, sorted(found)) for gpu, found in alone.items() if found):
            there, lacks = ("GPU", "CPU") if gpu else ("CPU", "GPU")
            math = "float32" if gpu or answer is None else answer.precision
            words = {"batches": join(map(str, batches)), "command": step.command(batches, lacks.lower(), way, math)}
            said.append(say(SAID["alone"], step=capital(step.words), there=there, lacks=lacks, **words))
        if said:
            return said
    return []


def step_story(runs: Iterable[Run], measurements: Iterable[Measurement], op: str, machine: Machine | None) -> list[str]:
    """Of each network who wins its step in the way and arithmetic with most batches, with its times, or what is missing."""
    measurements = list(measurements)
    said: list[str] = []
    for step in network_steps.complete_steps(runs, measurements, op):
        told = network_steps.answers(step, measurements, machine)
        said += step_sentences(step, told[0]) if told else lacking(step, measurements, machine)
    return said
