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

# The forward pass, the gradient of a layer's inputs, and that of its weights.
_ALL_DIRECTIONS = {"fprop", "dgrad", "wgrad"}
MANY = "the fastest kernel each"


class NetworkStep(msgspec.Struct, frozen=True, kw_only=True):
    """The matrix products or convolutions of a network's training step, at every batch and arithmetic that was measured."""

    #: Name of the network.
    model: str
    #: matmul or conv.
    op: str
    #: (batch, arithmetic) -> the products or convolutions of one step.
    works: "dict[tuple[int, str], list[Work]]"

    @property
    def words(self) -> str:
        """`a step of cifar10-mlp (8 products)`, or `(4 products, fprop alone)`."""
        works = next(iter(self.works.values()))
        directions = {work.direction for work in works}
        only = "" if directions == _ALL_DIRECTIONS else f", {join(sorted(directions))} alone"
        return f"a step of {self.model} ({count(len(works), NOUNS[self.op])}{only})"


def complete_steps(measurements: Measurements, op: str) -> list[NetworkStep]:
    """The training steps of known networks whose matrix products ("matmul") or convolutions ("conv") were measured, at the
    batches and in the arithmetics with most of them: if the gradients were measured at some batch, one with the forward pass
    alone is left out."""
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
    """From which batch the GPU computes the products or convolutions of a training step faster: an answer for libraries called
    directly and for each framework, in each arithmetic with times of both devices at some batch.

    A device's time is the sum over its fastest kernels, with data on the device, each call waited for. Arithmetics that CPUs
    lack are compared with the CPU's float32. Answers with most batches come first, then libraries, then float32.
    """
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
    """Arithmetic -> the summed times of both devices at each batch where every call of the step has a time on both.

    best: (problem, on a GPU?) -> its fastest row.
    """
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
    """(problem, on a GPU?) -> the fastest row, with data on the device, each call waited for. `framework`: the one that ran it,
    "" for libraries called directly. With the machine, intervals include the noise between its runs."""
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
    """The summed seconds of all problems on a GPU, or if not `gpu` on the CPU; None if one of them has no time there.

    best: (problem, on a GPU?) -> its fastest row. The sum is named after the kernel, if one kernel is the fastest at all of them.
    """
    rows = [best[problem, gpu] for problem in problems if (problem, gpu) in best]
    if len(rows) < len(problems):
        return None
    first = rows[0]
    seconds = total(row.seconds for row in rows)
    kernels = {(row.kernel, row.threads) for row in rows}
    if len(kernels) == 1:
        return replace(first, seconds=seconds)
    return FastestRow(kernel=MANY, device=first.device, threads=None, math=first.math, seconds=seconds)


def _in_float32(problem: Problem) -> Problem:
    """The same problem in float32, for CPUs, which lack its arithmetic."""
    return batch_family(problem).at(size_of(problem), "float32")


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """All products or convolutions of a training step in one arithmetic; one that occurs twice counts twice."""

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
    """The summed times of a step's works (products or convolutions), for each batch and arithmetic among them. A device's time
    is the sum over the fastest kernels, with data on the device."""
    best_by_framework = {framework: best_rows(measurements, op, framework) for framework in ("", *FRAMEWORKS)}
    step_totals = []
    for (batch, math), group in group_by(works, lambda work: (size_of(work.problem), work.problem.math)).items():
        problems = [work.problem for work in group]
        seconds = {}
        for framework, best in best_by_framework.items():
            for device in ("CPU", "GPU"):
                summed = step_side(best, problems, gpu=device == "GPU")
                if summed is not None:
                    seconds[f"{framework} {device}".strip()] = summed.seconds.value
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
    """Problem of a measurement -> the layers' products or convolutions (`operations`) that it measures: those of the same problem
    at any batch and, of convolutions, in any memory layout. Problems that belong to none of them are left out."""
    by_family: dict[Family, list[Work]] = {}
    for work in operations:
        by_family.setdefault(_any_layout(work.problem), []).append(work)
    works = {}
    for problem in dict.fromkeys(m.problem for m in rows if m.problem.products):
        family = _any_layout(problem)
        if family in by_family:
            works[problem] = by_family[family]
    return works


def layers(network: Network, op: str) -> "tuple[Work, ...]":
    """The matrix products ("matmul") or convolutions ("conv") of a training step with one sample, with those of the gradients."""
    return _step(network, batch=1, dtype="float32", math="", op=op)


def measured_networks(measurements: Measurements, op: str) -> list[str]:
    """The names of the known networks whose matrix products or convolutions (`op`) were measured in every layer, in the forward
    pass or in one of the gradients. The network whose layers were measured first comes first; of networks with the same
    layers only the first known one is named."""
    order_measured: dict[Family, int] = {}
    for problem in dict.fromkeys(m.problem for m in measurements if m.problem.op == op):
        order_measured.setdefault(_any_layout(problem), len(order_measured))
    network_order: dict[str, int] = {}
    known: set[frozenset[Family]] = set()
    for network in networks.NETWORKS.values():
        by_direction: dict[str, set[Family]] = {}
        for work in layers(network, op):
            by_direction.setdefault(work.direction, set()).add(_any_layout(work.problem))
        families = frozenset().union(*by_direction.values())
        if families in known:
            continue
        known.add(families)
        if any(direction <= order_measured.keys() for direction in by_direction.values()):
            measured = families & order_measured.keys()
            network_order[network.name] = min(order_measured[family] for family in measured)
    return sorted(network_order, key=network_order.__getitem__)


def steps(measurements: Measurements, op: str) -> "list[tuple[str, list[Work]]]":
    """(name of a known network, its products or convolutions of one training step), for each batch and arithmetic in which they
    were measured. A direction (fprop, dgrad, wgrad) is left out unless every layer was measured in it, so that the times of
    the others may be added up."""
    problems = dict.fromkeys(m.problem for m in measurements if m.problem.op == op)
    measured_families = _measured_families(problems)
    network_steps = []
    for model in measured_networks(measurements, op):
        network = networks.NETWORKS[model]
        network_families = {_any_layout(work.problem) for work in layers(network, op)}
        for form, families in measured_families.items():
            if not families & network_families:
                continue
            works = _works_in_form(network, op, form)
            unmeasured = {work.direction for work in works if work.problem not in problems}
            measured = [work for work in works if work.direction not in unmeasured]
            if measured:
                network_steps.append((model, measured))
    return network_steps


class _Form(msgspec.Struct, frozen=True):
    """In which batch, arithmetic and layout the layers of a step were measured."""

    #: Samples of a step.
    batch: int
    #: Type of the operands.
    dtype: str
    #: The arithmetic.
    math: str
    #: Layout of a convolution's tensors; empty for products.
    layout: str


def _measured_families(problems: Iterable[Problem]) -> dict[_Form, set[Family]]:
    """(batch, arithmetic, layout) -> the problems that were measured in it, each as the family of problems that differ from it in
    the batch alone. Small batches come first, then arithmetics and layouts in the order of the problems."""
    families: dict[_Form, set[Family]] = {}
    for problem in problems:
        layout = problem.layout if problem.op == "conv" else ""
        form = _Form(size_of(problem), problem.dtype, problem.math, layout)
        families.setdefault(form, set()).add(_any_layout(problem))
    arithmetics = list(dict.fromkeys((form.dtype, form.math) for form in families))
    layouts = list(dict.fromkeys(form.layout for form in families))

    def order(form: _Form) -> tuple[int, int, int]:
        return form.batch, arithmetics.index((form.dtype, form.math)), layouts.index(form.layout)

    return {form: families[form] for form in sorted(families, key=order)}


def _works_in_form(network: Network, op: str, form: _Form) -> "list[Work]":
    """The products or convolutions of a training step of the network in that batch, arithmetic and layout."""
    works = list(_step(network, batch=form.batch, dtype=form.dtype, math=form.math, op=op))
    if not form.layout:
        return works
    return [replace(work, problem=replace(work.problem, layout=form.layout)) for work in works if work.problem]


@functools.lru_cache(maxsize=1024)
def _step(network: Network, batch: int, dtype: str, math: str, op: str) -> "tuple[Work, ...]":
    """The matrix products ("matmul") or convolutions ("conv") of the dense and convolutional layers in a training step."""
    works = (work for work in networks.step(network, batch, dtype, math) if work.kind in ("conv", "dense"))
    return tuple(work for work in works if work.problem and work.problem.op == op)


def names(measurements: Measurements, op: str) -> "dict[Problem, str]":
    """Measured problem -> the name of a layer that computes it, at whatever batch: `conv2`, or `conv2 +3` if three more layers
    do. The name of the network stands before it if layers of several networks were measured."""
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
    """The family of all problems that differ in batch, arithmetic and, of convolutions, memory layout alone."""
    return batch_family(replace(problem, layout="NHWC") if problem.op == "conv" else problem)
