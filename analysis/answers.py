"""An Answer of any family in one sentence: convolutions in batch, channels or image size, a dense layer in its batch; the
square products in n, whose words are those of analysis.sentences, in a framework or from cold caches."""

import re
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from analysis import crossover, sentences
from analysis.crossover import COPIES, LATENCY, SQUARES, THROUGHPUT, Answer, Family, fastest, framework_of
from analysis.families import batch_family
from analysis.roofline import is_gpu
from analysis.units import count, digits, join, seconds

if TYPE_CHECKING:
    from kernels.networks import Work
    from workloads.results import Machine, Measurement

_UNTRANSPOSED = "nn"
_SMALLEST = {"batch": "the smallest batch", "channels": "the fewest channels"}


def sentence(answer: Answer) -> str:
    """Who wins where in one form, with the measured range: `float32, 3x3 convolution ... in its batch, data already on the
    GPU, one call at a time: the GPU wins from batch = 12 ...`."""
    said = sentences.crossing_sentence(answer)
    name, colon, rest = said.partition(": ")
    rest = re.sub(r"\bn = ", f"{answer.family.varies} = ", rest)
    rest = rest.replace("the smallest size", _SMALLEST.get(answer.family.varies, "the smallest size"))
    return f"{name.replace(', ', f', {about(answer)}, ', 1)}{colon}{rest}"


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
    more = [f"stride {of['stride']}"] * (of["stride"] != 1) + [f"{of['groups']} groups"] * (of["groups"] != 1)
    more += [of["layout"]] * (of["layout"] != "NHWC") + [f"pad {of['pad']}"]
    image = f"{of['n']}x{of['h']}x{of['w']}x{of['c_in']}:{of['c_out']}x{of['r']}x{of['s']}"
    return f"convolution {image} {of['direction']} ({', '.join(more)})"


def every(measurements: "Iterable[Measurement]", op: str, varies: Iterable[str] = crossover.VARIES, least=None,
          forms=(LATENCY, THROUGHPUT, *COPIES)) -> list[Answer]:  # fmt: skip
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


def together(works: "Iterable[Work]", measurements: "Iterable[Measurement]", what: str) -> list[str]:
    """What all layers' problems of a step come to, each as often as it occurs: a sentence for each batch and precision.

    Sums of the fastest rows, waited for one by one: the CPU's over kernels and threads, the GPU's with the data there.
    Where a problem has no time there is no sum.
    """
    best: dict = {}
    for m in measurements:
        if framework_of(m) or (m.settings.mode, m.settings.cache, m.settings.process) != ("resident", "warm", "warm"):
            continue
        if side := fastest([m], "host-latency"):
            best.setdefault((m.problem, is_gpu(m.settings.device)), []).append(side.seconds.value)
    groups: dict = {}
    for work in works:
        batch = getattr(work.problem, batch_family(work.problem).fields[0])
        groups.setdefault((batch, work.problem.math), []).append(work)
    said = []
    for (batch, math), group in groups.items():
        sums = []
        for gpu, name in ((False, "CPU"), (True, "GPU, data already there")):
            times = [min(best.get((w.problem, gpu), [inf])) for w in group]
            sums += [f"{seconds(sum(times))} on the {name}"] * (sum(times) < inf)
        ways = join(dict.fromkeys(w.direction for w in group))
        if sums:
            flops = sum(w.flops for w in group)
            said.append(f"{math}, batch {batch}: all {len(group)} {what} ({ways}, {digits(flops / 1e9)} GFLOP) take "
                        f"{join(sums)}, the fastest kernel each, one call at a time.")  # fmt: skip
    return said


def lines(answers: Iterable[Answer], measurements: "Iterable[Measurement]", machine: "Machine | None" = None,
          most: int = 12) -> list[str]:  # fmt: skip
    """A sentence for each answer, `most` of them, and how many more there are; without a GPU the one that says so."""
    answers = list(answers)
    if answers and all(a.kind == "no-gpu" for a in answers):
        return [sentences.no_gpu_sentence(measurements, machine)]
    said = list(dict.fromkeys(sentence(a) for a in answers))
    more = len(said) - most
    rest = f"... and {count(more, 'more answer')}; fewer layers or modes at a time show theirs"
    return said if more <= 0 else [*said[:most], rest]
