"""A training step's products or convolutions together: what all of a network come to on each device, along the batch who wins,
and what is missing where that cannot be said."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from analysis import crossover, networks, sentences
from analysis.crossover import LATENCY, Answer, Family, Point, Side, fastest
from analysis.estimate import is_gpu, total
from analysis.families import batch_family, comparable, precision_of
from analysis.units import count, join, seconds, times
from kernels.registry import FRAMEWORKS

if TYPE_CHECKING:
    from kernels.networks.training_step import Work
    from kernels.problems import Problem
    from workloads.records import Machine, Measurement, Run

_NOUNS = {"conv": "convolution", "matmul": "product"}
_ALL = {"fprop", "dgrad", "wgrad"}
_MANY = "the fastest kernel each"


class Step(msgspec.Struct, frozen=True):
    """One network's works of an operation at every batch and arithmetic that was measured: (batch, arithmetic) -> works."""

    model: str
    op: str
    works: "dict[tuple[int, str], list[Work]]"

    @property
    def words(self) -> str:
        """`a step of cifar10-mlp (8 products)`."""
        group = next(iter(self.works.values()))
        directions = {w.direction for w in group}
        which = "" if directions == _ALL else f", {join(sorted(directions))} alone"
        return f"a step of {self.model} ({count(len(group), _NOUNS[self.op])}{which})"

    def command(self, batches: "Iterable[int]", device: str, way: str, math: str = "float32") -> str:
        """What measures it at these batches on a device (cpu, gpu), by a framework or (way "") by the libraries."""
        at = " ".join(map(str, sorted(set(batches))))
        made = f"python -m workloads.{self.op} --model {self.model} --direction all --batch {at} --device {device}"
        return made + (f" --backends {way}" if way else "") + (f" --dtypes {math}" if math != "float32" else "")


def found(runs: "Iterable[Run]", measurements: "Iterable[Measurement]", op: str) -> list[Step]:
    """The steps of the networks whose layers the runs measured, at the batches and arithmetics that have all of the directions
    which any of them has."""
    made: dict[str, dict] = {}
    for model, works in networks.steps(runs, measurements, op):
        problem = works[0].problem
        made.setdefault(model, {}).setdefault((batch_family(problem).size(problem), precision_of(problem)), works)
    whole = {model: max(map(len, found.values())) for model, found in made.items()}
    return [
        Step(model, op, {at: works for at, works in found.items() if len(works) == whole[model]})
        for model, found in made.items()
    ]


def answers(step: Step, measurements: "Iterable[Measurement]") -> list[Answer]:
    """Who wins the step along the batch, an answer for each way of calling and arithmetic that both devices have a time of at
    some batch: those with most batches first, then libraries, then float32. A way is the libraries called by themselves or one
    framework, the same on both devices; a side is its fastest kernels, one waited call after another with the data there.
    Lower precisions are compared with the CPU's float32."""
    family = Family(step.op, "batch", ("batch",), (("network", step.model),))
    made = []
    for framework in ("", *FRAMEWORKS):
        best = _best(measurements, step.op, framework)
        points: dict[str, list[Point]] = {}
        for (batch, math), works in sorted(step.works.items()):
            gpu = _side(best, [w.problem for w in works], True)
            cpu = _side(best, [w.problem for w in works], False) or _side(
                best, [_plain(w.problem) for w in works], False
            )
            if cpu and gpu:
                points.setdefault(math, []).append(Point(batch, cpu, gpu))
        form = msgspec.structs.replace(LATENCY, framework=framework)
        made += [crossover.classify(math, form, found, family=family) for math, found in points.items()]
    return sorted(made, key=lambda a: (-len(a.points), a.form.framework, a.precision != "float32", a.precision))


def _best(measurements: "Iterable[Measurement]", op: str, framework: str) -> "dict[tuple[Problem, bool], Side]":
    """(problem, on the GPU) -> the fastest row of that way whose data are there."""
    groups: dict = {}
    for m in comparable(measurements, op, framework):
        if m.settings.mode == "resident" and m.settings.reuse == 1:
            groups.setdefault((m.problem, is_gpu(m.settings.device)), []).append(m)
    return {key: side for key, rows in groups.items() if (side := fastest(rows, "host-latency"))}


def _side(best: "dict[tuple[Problem, bool], Side]", problems: "list[Problem]", gpu: bool) -> Side | None:
    """The sum over the problems; None where one of them has no time."""
    sides = [side for p in problems if (side := best.get((p, gpu)))]
    if len(sides) < len(problems):
        return None
    alike = len({(s.kernel, s.threads) for s in sides}) == 1
    return Side(
        sides[0].kernel if alike else _MANY,
        sides[0].device,
        sides[0].threads if alike else None,
        sides[0].math,
        total(s.seconds for s in sides),
    )


def _plain(problem: "Problem") -> "Problem":
    """The same in the arithmetic that CPUs have."""
    family = batch_family(problem)
    return family.at(family.size(problem), "float32")


def sentences_of(step: Step, answer: Answer) -> tuple[str, str]:
    """Who wins the step from which batch; both times at the fewest and at the most."""
    first, last = answer.points[0], answer.points[-1]
    told = "; ".join(_times(p) for p in ([first] if first is last else [first, last]))
    way = f", by {answer.form.framework}" if answer.form.framework else ""
    words = f"{step.words[:1].upper()}{step.words[1:]}"
    return (
        f"{words}, {sentences.precision_name(answer)}{way}, {sentences.form_name(answer.form)}: "
        f"{sentences.verdict_words(answer)}{sentences.range_words(answer)}.",
        f"{words}: {told}.",
    )


def _times(p: Point) -> str:
    sides = {"GPU": p.gpu, "CPU": p.cpu}
    told = [f"{seconds(s.seconds.value)} on the {name} ({_name(s)})" for name, s in sides.items()]
    ratio = p.ratio.value
    who = {1: f", {times(ratio)} as fast on the GPU", -1: f", {times(1 / ratio)} as fast on the CPU"}.get(p.sign, "")
    return f"at batch {p.n} {join(told)}{who}"


def _name(side: Side) -> str:
    return _MANY if side.kernel == _MANY else sentences.side_name(side)


def missing(step: Step, measurements: "Iterable[Measurement]", machine: "Machine | None") -> str:
    """Which device has no time of the whole step in a way that the other was called in, and the command that measures it; empty
    where both have one, and on a machine without a GPU."""
    measurements = list(measurements)
    if machine is None or not machine.gpus or answers(step, measurements):
        return ""
    whole: dict[bool, set[str]] = {False: set(), True: set()}  # device -> the ways it has the whole step in
    for framework in ("", *FRAMEWORKS):
        best = _best(measurements, step.op, framework)
        for gpu, ways in whole.items():
            if any(_side(best, [w.problem for w in works], gpu) for works in step.works.values()):
                ways.add(framework)
    gpu = not whole[True]  # what is missing: the GPU's side, or the CPU's in the GPU's way
    way = min(whole[not gpu], default="")
    lacks = f"the {'GPU' if gpu else 'CPU'} has no time of all of them" + (f" by {way}" if way else "")
    command = step.command((batch for batch, _ in step.works), "gpu" if gpu else "cpu", way)
    return f"Who wins {step.words} is not known here: {lacks}. What is missing: {command}"


def lacking(step: Step, answer: Answer, measurements: "Iterable[Measurement]") -> str:
    """At which further batches one device alone has a time of the step in the answer's way, and the command that measures the
    other's; empty where there is none."""
    way = answer.form.framework
    best, compared = _best(measurements, step.op, way), {p.n for p in answer.points}
    alone: dict[bool, list[int]] = {False: [], True: []}
    for (batch, math), works in step.works.items():
        gpu = math == answer.precision and _side(best, [w.problem for w in works], True)
        cpu = math in (answer.precision, "float32") and _side(best, [w.problem for w in works], False)
        if batch not in compared and (gpu or cpu):
            alone[bool(gpu)].append(batch)
    told = []
    for there, batches in alone.items():
        if batches := sorted(set(batches) - set(alone[True] if not there else ())):
            command = step.command(batches, "cpu" if there else "gpu", way, "float32" if there else answer.precision)
            sides = ("GPU", "CPU") if there else ("CPU", "GPU")
            told.append(
                f"the {sides[0]} alone has a time at batch {join(map(str, batches))}; the {sides[1]}'s: {command}"
            )
    return f"{step.words[:1].upper()}{step.words[1:]}: {'; '.join(told)}" if told else ""


def story(
    runs: "Iterable[Run]", measurements: "Iterable[Measurement]", op: str, machine: "Machine | None"
) -> list[str]:
    """Of each network who wins its step in the way and arithmetic with most batches, with its times, or what is missing."""
    measurements = list(measurements)
    said: list[str] = []
    for step in found(runs, measurements, op):
        told = answers(step, measurements)
        said += sentences_of(step, told[0]) if told else [missing(step, measurements, machine)]
    return [s for s in said if s]
