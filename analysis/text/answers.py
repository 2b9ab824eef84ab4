"""An Answer of any family in one sentence: convolutions in batch, channels or image size, a dense layer in its batch; the
square products in n, whose words are those of analysis.text.summary, in a framework or from cold caches."""

from collections.abc import Iterable

from analysis import labels
from analysis.crossover import crossover, layers, network_steps
from analysis.crossover.crossover import COPIES, LATENCY, SQUARES, THROUGHPUT, Answer, Family, Form, Point
from analysis.roofline.bounds import Roof
from analysis.stats import group_by
from analysis.text import crossings, sentences
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
_SAID = {
    "together": "{works} {what} ({directions}), {math}, batch {batch}: {sums}.",
    "summary": "Of {count} {what} ({how}): {parts}.",
    "missing": "Who wins {step} is not known here: {lacks}. Measure it: {command}",
    "alone": "{step}: at batch {batches} the {there} alone was timed. Measure the {lacks}: {command}",
}


def sentence(answer: Answer) -> str:
    """Who wins where in one form, with the measured range: `float32, 3x3 convolution ... in its batch, data already on the
    GPU, one call at a time: the GPU wins from batch = 12 ...`."""
    what = f"{about(answer)}, {crossings.precision_name(answer)}"
    return f"{what[0].upper()}{what[1:]}, {crossings.crossing_words(answer)}"


def about(answer: Answer) -> str:
    """What was called, and how: the family, the framework, the caches."""
    return ", ".join([family_name(answer.family), *_how(answer.form)])


def family_name(family: Family) -> str:
    """`3x3 convolution (fprop) of 32x32x64 images with 64 filters` with a word in the place of what varies."""
    if family == SQUARES:
        return "square products"
    of = dict(family.fixed) | dict.fromkeys(family.fields, {"batch": "N", "channels": "C", "size": "H"}[family.varies])
    if family.op == "matmul":
        layout = "" if of["layout"] == _UNTRANSPOSED else f" ({of['layout']})"
        return f"product {of['m']}x{of['n']}x{of['k']}{layout}"
    return f"convolution {labels.conv_words(of)}"


def every(
    measurements: "Iterable[Measurement]",
    op: str,
    varies: Iterable[str] = crossover.VARIES,
    least=None,
    forms=(LATENCY, THROUGHPUT, *COPIES),
    machine: "Machine | None" = None,
) -> list[Answer]:
    """The answers of all families of an operation but the square products of libraries from warm caches."""
    measurements = list(measurements)
    found: list[Answer] = []
    for framework, cache in crossover.forms_of([m for m in measurements if m.problem.op == op]):
        if op == "conv":
            found += crossover.conv_crossovers(measurements, forms, framework, cache, varies, least, machine)
        else:
            found += crossover.dense_crossovers(measurements, forms, framework, cache, machine)
            if framework or cache != "warm":
                found += crossover.crossovers(measurements, forms, framework, cache, machine)
    return found


def together(works: "Iterable[Work]", measurements: "Iterable[Measurement]", what: str) -> list[str]:
    """The totals as sentences; `what` is many of them in words: convolutions of vgg-16. Without any time there is no sentence."""
    works, said = list(works), []
    op = next((w.problem.op for w in works if w.problem), "")
    for t in network_steps.totals(works, measurements, op):
        sums = [f"{sentences.time(e)} on the {name}" for e, name in ((t.gpu, "GPU"), (t.cpu, "CPU")) if e is not None]
        if sums:
            ratio = sentences.speed(t.cpu / t.gpu) if t.cpu and t.gpu else ""
            words = {"what": what, "directions": join(t.directions), "batch": t.batch, "math": t.math}
            each = f"All {t.works}" if t.works > 1 else "One of the"
            said.append(_SAID["together"].format(works=each, sums=", ".join(filter(None, [*sums, ratio])), **words))
    return said


def lines(
    answers: Iterable[Answer], measurements: "Iterable[Measurement]", machine: "Machine | None" = None, most: int = 12
) -> list[str]:
    """A sentence for each answer, `most` of them, and how many more there are; without a GPU the one that says so."""
    answers = list(answers)
    if answers and all(a.kind == "no-gpu" for a in answers):
        return [crossings.no_gpu_sentence(measurements, machine)]
    said = list(dict.fromkeys(sentence(a) for a in answers))
    more = len(said) - most
    rest = f"... and {count(more, 'more answer')}. Ask for fewer layers or modes to see them."
    return said if more <= 0 else [*said[:most], rest]


def summaries(answers: Iterable[Answer]) -> list[str]:
    """How all families of an operation fare together, a sentence for each of what varies, precision and form: how many have
    the GPU win from where."""

    def alike(a: Answer) -> tuple:
        return a.family.op, a.family.varies, crossings.precision_name(a), a.form

    groups = group_by((a for a in answers if a.points and a.family != SQUARES), alike)
    return [_summary(group) for group in groups.values() if len(group) > 1]


def _how(form: Form) -> list[str]:
    return [f"by {form.framework}"] * bool(form.framework) + [f"{form.cache} caches"] * (form.cache != "warm")


def _summary(group: list[Answer]) -> str:
    first, kinds = group[0], group_by(group, lambda a: a.kind)
    parts = []
    for kind, words in _KINDS.items():
        if of := kinds.get(kind, []):
            found = [a.crossings[0] for a in of] if kind == "gpu-from" else []
            ends = sorted(end for c in found for end in ((c.below, c.above) if c.wide else (c.at.high,)))
            between = " to ".join(dict.fromkeys(sentences.digits(end) for end in (ends[0], ends[-1]))) if ends else ""
            parts.append(f"{words.format(size=first.family.size_name, between=between)} in {len(of)}")
    what = {"conv": "convolutions", "matmul": "products"}[first.family.op]
    how = ", ".join([crossings.precision_name(first), *_how(first.form), crossings.form_name(first.form)])
    return _SAID["summary"].format(count=len(group), what=what, how=how, parts=", ".join(parts))


def story(
    measurements: "Iterable[Measurement]", op: str, ceilings: "tuple[Roof, ...]" = (), machine: "Machine | None" = None
) -> list[str]:
    """The layers of an operation in a few sentences: who wins with the data there and with copies as people write them, in
    the first precision, and how fast each device is; [] without any."""
    rows = [m for m in measurements if m.problem.op == op and not layers.is_square(m.problem)]
    found = [a for a in every(rows, op, forms=(LATENCY, COPIES[0])) if not a.form.framework and a.form.cache == "warm"]
    rates = layers.rate_sentences(rows, op, ceilings)
    if not any(m.on_gpu for m in rows) or (found and all(a.kind == "no-gpu" for a in found)):
        return [crossings.no_gpu_sentence(rows, machine), *rates] if rows else []
    first = [a for a in found if a.precision == found[0].precision]
    said = []
    for form in (LATENCY, COPIES[0]):
        own = [a for a in first if a.form == form and a.points]
        said += summaries(own) or [sentence(a) for a in own]
    return [*said, *rates]


def step_sentences(step: network_steps.Step, answer: Answer) -> tuple[str, str]:
    """Who wins the step from which batch; both times at the fewest and at the most."""
    first, last = answer.points[0], answer.points[-1]
    way = f", by {answer.form.framework}" if answer.form.framework else ""
    words = f"{step.words[:1].upper()}{step.words[1:]}"
    what = f"{words}, {crossings.precision_name(answer)}{way}, {crossings.form_name(answer.form)}"
    both = [_both_times(words, p) for p in ([first] if first is last else [first, last])]
    return " ".join(sentences.crossover(answer, what)), " ".join(both)


def _both_times(words: str, p: Point) -> str:
    return sentences.winner(p.cpu.seconds, p.gpu.seconds, of=f"{words}, batch {p.n:,}")


def missing_step(step: network_steps.Step, measurements: "Iterable[Measurement]", machine: "Machine | None") -> str:
    """Which device has no time of the whole step in a way that the other was called in, and the command that measures it; empty
    where both have one, and on a machine without a GPU."""
    measurements = list(measurements)
    if machine is None or not machine.gpus or network_steps.answers(step, measurements):
        return ""
    whole: dict[bool, set[str]] = {False: set(), True: set()}  # device -> the ways it has the whole step in
    for framework in ("", *FRAMEWORKS):
        best = network_steps.best_rows(measurements, step.op, framework)
        for gpu, ways in whole.items():
            if any(network_steps.step_side(best, [w.problem for w in works], gpu) for works in step.works.values()):
                ways.add(framework)
    gpu = not whole[True]  # what is missing: the GPU's side, or the CPU's in the GPU's way
    way = min(whole[not gpu], default="")
    lacks = f"the {'GPU' if gpu else 'CPU'} has no time of all of them" + (f" by {way}" if way else "")
    command = step.command((batch for batch, _ in step.works), "gpu" if gpu else "cpu", way)
    return _SAID["missing"].format(step=step.words, lacks=lacks, command=command)


def lacking_batches(step: network_steps.Step, answer: Answer, measurements: "Iterable[Measurement]") -> str:
    """At which further batches one device alone has a time of the step in the answer's way, and the command that measures the
    other's; empty where there is none."""
    way = answer.form.framework
    best, compared = network_steps.best_rows(measurements, step.op, way), {p.n for p in answer.points}
    alone: dict[bool, list[int]] = {False: [], True: []}
    for (batch, math), works in step.works.items():
        gpu = math == answer.precision and network_steps.step_side(best, [w.problem for w in works], True)
        cpu = math in (answer.precision, "float32") and network_steps.step_side(best, [w.problem for w in works], False)
        if batch not in compared and (gpu or cpu):
            alone[bool(gpu)].append(batch)
    told = []
    for there, batches in alone.items():
        if batches := sorted(set(batches) - set(alone[True] if not there else ())):
            command = step.command(batches, "cpu" if there else "gpu", way, "float32" if there else answer.precision)
            sides = dict(zip(("there", "lacks"), ("GPU", "CPU") if there else ("CPU", "GPU"), strict=True))
            name = f"{step.words[:1].upper()}{step.words[1:]}"
            told.append(_SAID["alone"].format(step=name, batches=join(map(str, batches)), command=command, **sides))
    return " ".join(told)


def step_story(
    runs: "Iterable[Run]", measurements: "Iterable[Measurement]", op: str, machine: "Machine | None"
) -> list[str]:
    """Of each network who wins its step in the way and arithmetic with most batches, with its times, or what is missing."""
    measurements = list(measurements)
    said: list[str] = []
    for step in network_steps.complete_steps(runs, measurements, op):
        told = network_steps.answers(step, measurements, machine)
        said += step_sentences(step, told[0]) if told else [missing_step(step, measurements, machine)]
    return [s for s in said if s]
