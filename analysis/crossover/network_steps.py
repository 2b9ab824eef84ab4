"""All products or convolutions of a training step together: seconds on each device, and the crossover along the batch. A row
belongs to every layer whose problem it equals; steps with unmeasured layers are left out."""

import functools
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from analysis.crossover import sign_changes
from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import Family, batch_family, comparable, precision_of
from analysis.crossover.fastest_row import FastestRow, fastest
from analysis.crossover.forms import LATENCY
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


class NetworkStep(msgspec.Struct, frozen=True, kw_only=True):
    """One network's products or convolutions at every batch and arithmetic that was measured."""

    #: Name of the network.
    model: str
    #: matmul or conv.
    op: str
    #: (batch, arithmetic) -> the works of one step.
    works: "dict[tuple[int, str], list[Work]]"

    @property
    def words(self) -> str:
        """`a step of cifar10-mlp (8 products)`."""
        group = next(iter(self.works.values()))
        directions = {w.direction for w in group}
        which = "" if directions == _ALL else f", {join(sorted(directions))} alone"
        return f"a step of {self.model} ({count(len(group), NOUNS[self.op])}{which})"


def complete_steps(measurements: Measurements, op: str) -> list[NetworkStep]:
    """The steps of the measured networks, at the batches and arithmetics with rows of every direction that any of them has."""
    by_model: dict[str, dict[tuple[int, str], list[Work]]] = {}
    for model, works in steps(measurements, op):
        problem = works[0].problem
        by_model.setdefault(model, {}).setdefault((size_of(problem), precision_of(problem)), works)
    complete = []
    for model, by_batch in by_model.items():
        most = max(len(works) for works in by_batch.values())
        whole = {batch: works for batch, works in by_batch.items() if len(works) == most}
        complete.append(NetworkStep(model=model, op=op, works=whole))
    return complete


def answers(step: NetworkStep, measurements: Measurements, machine: "Machine | None" = None) -> list[Answer]:
    """The crossover of the step along the batch, for each way of calling and arithmetic with times of both devices at some
    batch. A way is libraries called directly or one framework, the same on both devices. A side is its fastest kernels, each
    call waited for, data resident. Lower precisions are compared with the CPU's float32. Order: most batches, libraries,
    float32."""
    family = Family(step.op, "batch", ("batch",), (("network", step.model),))
    step_answers = []
    for framework in ("", *FRAMEWORKS):
        best = best_rows(measurements, step.op, framework, machine)
        form = replace(LATENCY, framework=framework)
        for math, points in _points(step, best).items():
            step_answers.append(sign_changes.classify(math, form, points, family=family))
    return sorted(
        step_answers,
        key=lambda answer: (
            -len(answer.points),
            answer.form.framework,
            answer.precision != "float32",
            answer.precision,
        ),
    )


def _points(step: NetworkStep, best: "dict[tuple[Problem, bool], FastestRow]") -> dict[str, list[CrossoverPoint]]:
    """Arithmetic -> both sides at each batch that has both."""
    points: dict[str, list[CrossoverPoint]] = {}
    for (batch, math), works in sorted(step.works.items()):
        problems = [work.problem for work in works]
        gpu = step_side(best, problems, gpu=True)
        cpu = step_side(best, problems, gpu=False)
        if cpu is None:
            cpu = step_side(best, [_in_float32(problem) for problem in problems], gpu=False)
        if cpu and gpu:
            points.setdefault(math, []).append(CrossoverPoint(n=batch, cpu=cpu, gpu=gpu))
    return points


def best_rows(
    measurements: Measurements, op: str, framework: str, machine: "Machine | None" = None
) -> "dict[tuple[Problem, bool], FastestRow]":
    """(problem, on the GPU) -> the fastest row of that framework with resident data, each call waited for."""
    resident = [m for m in comparable(measurements, op, framework) if m.mode == "resident"]
    best = {}
    for key, rows in group_by(resident, lambda m: (m.problem, m.on_gpu)).items():
        row = fastest(rows, "host-latency", machine)
        if row is not None:
            best[key] = row
    return best


def step_side(
    best: "dict[tuple[Problem, bool], FastestRow]", problems: "list[Problem]", gpu: bool
) -> FastestRow | None:
    """Seconds of all problems on one side, added up; None if one of them has no time."""
    sides = [best[problem, gpu] for problem in problems if (problem, gpu) in best]
    if len(sides) < len(problems):
        return None
    first = sides[0]
    seconds = total(side.seconds for side in sides)
    kernels = {(side.kernel, side.threads) for side in sides}
    if len(kernels) == 1:
        return replace(first, seconds=seconds)
    return FastestRow(kernel=MANY, device=first.device, threads=None, math=first.math, seconds=seconds)


def _in_float32(problem: Problem) -> Problem:
    """The problem in float32, which CPUs have."""
    return batch_family(problem).at(size_of(problem), "float32")


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """All products of a step in an arithmetic, as often as they occur."""

    #: Samples of the step.
    batch: int
    #: The arithmetic.
    math: str
    #: Number of products or convolutions.
    works: int
    #: Forward and gradients that were measured: fprop, dgrad, wgrad.
    directions: tuple[str, ...]
    #: FLOPs of all of them.
    flops: int
    #: Side (`CPU`, `GPU`, `tensorflow CPU`) -> seconds of its fastest rows by host latency; no side that lacks a product.
    seconds: dict[str, float]


def totals(works: Iterable[Work], measurements: Measurements, op: str) -> list[Total]:
    """A Total for each batch and precision of the works: the CPU's over kernels and threads, the GPU's with resident data."""
    best = {framework: best_rows(measurements, op, framework) for framework in ("", *FRAMEWORKS)}
    step_totals = []
    for (batch, math), group in group_by(works, lambda work: (size_of(work.problem), work.problem.math)).items():
        problems = [work.problem for work in group]
        seconds = {}
        for framework, rows in best.items():
            for device in ("CPU", "GPU"):
                side = step_side(rows, problems, gpu=device == "GPU")
                if side is not None:
                    seconds[f"{framework} {device}".strip()] = side.seconds.value
        step_totals.append(
            Total(
                batch=batch,
                math=math,
                works=len(group),
                directions=tuple(dict.fromkeys(work.direction for work in group)),
                flops=sum(work.flops for work in group),
                seconds=seconds,
            )
        )
    return step_totals


def layers_of(operations: Iterable[Work], rows: Measurements) -> "dict[Problem, list[Work]]":
    """Problem of a row -> the operations, products or convolutions, whose problem it equals, whatever the batch and the layout;
    without the problems that none of them has."""
    by_kind: dict[Family, list[Work]] = {}
    for work in operations:
        by_kind.setdefault(_any_layout(work.problem), []).append(work)
    works = {}
    for problem in dict.fromkeys(m.problem for m in rows if m.problem.products):
        kind = _any_layout(problem)
        if kind in by_kind:
            works[problem] = by_kind[kind]
    return works


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
    problems = dict.fromkeys(m.problem for m in measurements if m.problem.op == op)
    kinds = _measured_kinds(problems)
    network_steps = []
    for model in measured_networks(measurements, op):
        network = networks.NETWORKS[model]
        network_kinds = {_any_layout(work.problem) for work in layers(network, op)}
        for form, measured_kinds in kinds.items():
            if not measured_kinds & network_kinds:
                continue
            works = _works_in_form(network, op, form)
            unmeasured = {work.direction for work in works if work.problem not in problems}
            measured = [work for work in works if work.direction not in unmeasured]
            if measured:
                network_steps.append((model, measured))
    return network_steps


class _Form(msgspec.Struct, frozen=True):
    """How the layers of a step were measured."""

    #: Samples of a step.
    batch: int
    #: Type of the operands.
    dtype: str
    #: The arithmetic.
    math: str
    #: Layout of a convolution's tensors; empty for products.
    layout: str


def _measured_kinds(problems: Iterable[Problem]) -> dict[_Form, set[Family]]:
    """Form -> the kinds of layers that were measured in it: small batches first, then in the order of the rows."""
    kinds: dict[_Form, set[Family]] = {}
    for problem in problems:
        layout = problem.layout if problem.op == "conv" else ""
        form = _Form(size_of(problem), problem.dtype, problem.math, layout)
        kinds.setdefault(form, set()).add(_any_layout(problem))
    arithmetics = list(dict.fromkeys((form.dtype, form.math) for form in kinds))
    layouts = list(dict.fromkeys(form.layout for form in kinds))

    def order(form: _Form) -> tuple[int, int, int]:
        return form.batch, arithmetics.index((form.dtype, form.math)), layouts.index(form.layout)

    return {form: kinds[form] for form in sorted(kinds, key=order)}


def _works_in_form(network: Network, op: str, form: _Form) -> "list[Work]":
    """The works of an operation in a step of the network, as they were measured."""
    works = list(_step(network, batch=form.batch, dtype=form.dtype, math=form.math, op=op))
    if not form.layout:
        return works
    return [replace(work, problem=replace(work.problem, layout=form.layout)) for work in works if work.problem]


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
    labels = {}
    for problem, layer_names in names_of.items():
        if is_square(problem):
            continue
        first, *more = layer_names
        labels[problem] = f"{first} +{len(more)}" if more else first
    return labels


def _any_layout(problem: Problem) -> Family:
    return batch_family(replace(problem, layout="NHWC") if problem.op == "conv" else problem)
