"""All products or convolutions of a training step together: seconds on each device, and the crossover along the batch. A row
belongs to every layer whose problem it equals; steps with unmeasured layers are left out."""

import functools
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from analysis.crossover import crossover
from analysis.crossover.crossover import LATENCY, Answer, CrossoverPoint, FastestRow, fastest
from analysis.crossover.families import Family, batch_family, comparable, precision_of
from analysis.crossover.layers import NOUNS, is_square, size_of
from analysis.stats import group_by, total
from analysis.units import count, join
from kernels import networks
from kernels.networks.layers import Network
from kernels.networks.training_step import Work
from kernels.problems import Problem
from kernels.registry import FRAMEWORKS
from workloads.records import Machine, Measurements

_ALL = {"fprop", "dgrad", "wgrad"}
MANY = "the fastest kernel each"


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
        return f"a step of {self.model} ({count(len(group), NOUNS[self.op])}{which})"


def complete_steps(measurements: Measurements, op: str) -> list[Step]:
    """The steps of the measured networks, at the batches and arithmetics with rows of every direction that any of them has."""
    made: dict[str, dict] = {}
    for model, works in steps(measurements, op):
        problem = works[0].problem
        made.setdefault(model, {}).setdefault((size_of(problem), precision_of(problem)), works)
    whole = {model: max(map(len, found.values())) for model, found in made.items()}
    return [
        Step(model, op, {at: works for at, works in found.items() if len(works) == whole[model]})
        for model, found in made.items()
    ]


def answers(step: Step, measurements: Measurements, machine: "Machine | None" = None) -> list[Answer]:
    """The crossover of the step along the batch, for each way of calling and arithmetic with times of both devices at some
    batch. A way is libraries called directly or one framework, the same on both devices. A side is its fastest kernels, each
    call waited for, data resident. Lower precisions are compared with the CPU's float32. Order: most batches, libraries,
    float32."""
    family = Family(step.op, "batch", ("batch",), (("network", step.model),))
    made = []
    for framework in ("", *FRAMEWORKS):
        best = best_rows(measurements, step.op, framework, machine)
        points: dict[str, list[CrossoverPoint]] = {}
        for (batch, math), works in sorted(step.works.items()):
            problems = [w.problem for w in works]
            gpu, cpu = (step_side(best, problems, is_gpu) for is_gpu in (True, False))
            cpu = cpu or step_side(best, list(map(_plain, problems)), False)
            if cpu and gpu:
                points.setdefault(math, []).append(CrossoverPoint(n=batch, cpu=cpu, gpu=gpu))
        form = replace(LATENCY, framework=framework)
        made += [crossover.classify(math, form, found, family=family) for math, found in points.items()]
    return sorted(made, key=lambda a: (-len(a.points), a.form.framework, a.precision != "float32", a.precision))


def best_rows(
    measurements: Measurements, op: str, framework: str, machine: "Machine | None" = None
) -> "dict[tuple[Problem, bool], FastestRow]":
    """(problem, on the GPU) -> the fastest row of that framework with resident data, each call waited for."""
    there = (m for m in comparable(measurements, op, framework) if m.mode == "resident")
    groups = group_by(there, lambda m: (m.problem, m.on_gpu))
    return {key: side for key, rows in groups.items() if (side := fastest(rows, "host-latency", machine))}


def step_side(
    best: "dict[tuple[Problem, bool], FastestRow]", problems: "list[Problem]", gpu: bool
) -> FastestRow | None:
    """Seconds of all problems on one side, added up; None if one of them has no time."""
    sides = [side for p in problems if (side := best.get((p, gpu)))]
    if len(sides) < len(problems):
        return None
    alike = len({(s.kernel, s.threads) for s in sides}) == 1
    return FastestRow(
        kernel=sides[0].kernel if alike else MANY,
        device=sides[0].device,
        threads=sides[0].threads if alike else None,
        math=sides[0].math,
        seconds=total(side.seconds for side in sides),
    )


def _plain(problem: Problem) -> Problem:
    """The problem in float32, which CPUs have."""
    return batch_family(problem).at(size_of(problem), "float32")


class Total(msgspec.Struct, frozen=True):
    """All products of a step in an arithmetic, each as often as it occurs: their FLOPs, and side (`CPU`, `GPU`, `tensorflow
    CPU`) -> seconds of its fastest rows by host latency. A side without a time of each product is left out."""

    batch: int
    math: str
    works: int
    directions: tuple[str, ...]
    flops: int
    seconds: dict[str, float]


def totals(works: Iterable[Work], measurements: Measurements, op: str) -> list[Total]:
    """A Total for each batch and precision of the works: the CPU's over kernels and threads, the GPU's with the data there."""
    best = {way: best_rows(measurements, op, way) for way in ("", *FRAMEWORKS)}
    made = []
    for (batch, math), group in group_by(works, lambda w: (size_of(w.problem), w.problem.math)).items():
        sums = {
            f"{way} {device}".strip(): side.seconds.value
            for way, rows in best.items()
            for device, gpu in (("CPU", False), ("GPU", True))
            if (side := step_side(rows, [w.problem for w in group], gpu))
        }
        directions, flops = tuple(dict.fromkeys(w.direction for w in group)), sum(w.flops for w in group)
        made.append(Total(batch, math, len(group), directions, flops, sums))
    return made


def layers_of(operations: Iterable[Work], rows: Measurements) -> "dict[Problem, list[Work]]":
    """Problem of a row -> the operations, products or convolutions, whose problem it equals, whatever the batch and the layout;
    without the problems that none of them has."""
    by_kind: dict[Family, list[Work]] = {}
    for work in operations:
        by_kind.setdefault(_any_layout(work.problem), []).append(work)
    found = {}
    for problem in dict.fromkeys(m.problem for m in rows if m.problem.products):
        kind = _any_layout(problem)
        if kind in by_kind:
            found[problem] = by_kind[kind]
    return found


def layers(network: Network, op: str) -> "tuple[Work, ...]":
    """The works of an operation in the layers of a network, at batch 1."""
    return _step(network, batch=1, dtype="float32", math="", op=op)


def measured_networks(measurements: Measurements, op: str) -> list[str]:
    """The networks of the zoo with rows of every layer of an operation in some direction, that with the earliest row first. Of
    networks with the same layers it is the first of the zoo."""
    first_row: dict[Family, int] = {}
    for problem in dict.fromkeys(m.problem for m in measurements if m.problem.op == op):
        first_row.setdefault(_any_layout(problem), len(first_row))
    earliest: dict[str, int] = {}
    known: set[frozenset[Family]] = set()
    for network in networks.NETWORKS.values():
        by_direction: dict[str, set[Family]] = {}
        for work in layers(network, op):
            by_direction.setdefault(work.direction, set()).add(_any_layout(work.problem))
        kinds = frozenset().union(*by_direction.values())
        if kinds in known:
            continue
        known.add(kinds)
        if any(direction <= first_row.keys() for direction in by_direction.values()):
            earliest[network.name] = min(first_row[kind] for kind in kinds & first_row.keys())
    return sorted(earliest, key=earliest.__getitem__)


def steps(measurements: Measurements, op: str) -> "list[tuple[str, list[Work]]]":
    """(network, the works of one step) for each batch and arithmetic. Only directions count in which every layer of the network
    was measured, so that the times may be added up."""
    problems = {m.problem: None for m in measurements if m.problem.op == op}
    there: dict[tuple, set[Family]] = {}  # which kinds of layers were measured at each batch, arithmetic and layout
    for p in problems:
        at = (size_of(p), p.dtype, p.math, p.layout if op == "conv" else "")
        there.setdefault(at, set()).add(_any_layout(p))
    maths = list(dict.fromkeys((dtype, math) for _, dtype, math, _ in there))
    layouts = list(dict.fromkeys(layout for *_, layout in there))
    wanted = sorted(there, key=lambda at: (at[0], maths.index(at[1:3]), layouts.index(at[3])))
    found = []
    for model in measured_networks(measurements, op):
        network = networks.NETWORKS[model]
        own = {_any_layout(w.problem) for w in layers(network, op)}
        for batch, dtype, math, layout in (at for at in wanted if there[at] & own):
            works = list(_step(network, batch, dtype, math, op))
            if layout:
                works = [replace(w, problem=replace(w.problem, layout=layout)) for w in works if w.problem]
            lacking = {w.direction for w in works if w.problem not in problems}
            if kept := [w for w in works if w.direction not in lacking]:
                found.append((model, kept))
    return found


@functools.lru_cache(maxsize=1024)
def _step(network: Network, batch: int, dtype: str, math: str, op: str) -> "tuple[Work, ...]":
    """The works of an operation in the layers of a step."""
    works = (w for w in networks.step(network, batch, dtype, math) if w.kind in ("conv", "dense"))
    return tuple(w for w in works if w.problem and w.problem.op == op)


def names(measurements: Measurements, op: str) -> "dict[Problem, str]":
    """Problem -> the layers of the measured networks that have it, whatever its batch: `conv2`, `conv2 +3` (as many more); with
    the network where there are several."""
    models = measured_networks(measurements, op)
    names_of: dict[Problem, dict[str, None]] = {}
    for model in models:
        works = layers(networks.NETWORKS[model], op)
        for problem, alike in layers_of(works, measurements).items():
            for work in alike:
                layer = work.product if len(models) == 1 else f"{model} {work.product}"
                names_of.setdefault(problem, {})[layer] = None
    made = {}
    for problem, named in names_of.items():
        if is_square(problem):
            continue
        first, *more = named
        made[problem] = f"{first} +{len(more)}" if more else first
    return made


def _any_layout(problem: Problem) -> Family:
    return batch_family(replace(problem, layout="NHWC") if problem.op == "conv" else problem)
