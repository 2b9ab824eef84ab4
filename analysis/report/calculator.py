"""Predicted times for a size of the reader's: the tables that the report embeds and that web/calculator.js looks up."""

# A table holds seconds on a grid of sizes. Between them log(seconds) is interpolated in log(size), axis by axis. Beyond an
# axis's ends it is extrapolated from the last two sizes, and the page says so. A copy used k times costs 1/k each time. Copies
# of a product that is not square are taken from the square product with as many elements.

import itertools
import math
from collections.abc import Callable, Iterable

import msgspec

from analysis.crossover import reuse
from analysis.crossover.crossover import LATENCY, Answer, best_of_cpu
from analysis.crossover.families import comparable, precision_of
from analysis.predict import curves, profile
from analysis.predict.prediction import Prediction, predict
from analysis.predict.profile import Profile
from analysis.stats import Estimate, best_by, group_by, middle
from analysis.training.costs import whole_training
from kernels import networks
from kernels.problems import Matmul, Training
from kernels.problems.arrays import precision
from workloads.records import Measurements, Settings

_FEWEST = 3  # sizes of a table
_GRID = 2  # of a product's axes, from size to size
_NEAR = math.log(4)  # a product is extrapolated where no measured one has all three sizes within this factor
_BATCHES = (1, 4, 16, 64, 256, 1024)


class Axis(msgspec.Struct, frozen=True):
    """A size and its values on the grid, rising."""

    name: str
    values: tuple[float, ...]


class Table(msgspec.Struct, frozen=True):
    """Seconds at each point of the grid, the last axis running fastest. `known`: 1 where a measured row is near, 0 where the
    point is extrapolated; empty: known everywhere."""

    axes: tuple[Axis, ...]
    seconds: tuple[float, ...]
    known: tuple[int, ...] = ()


class Tool(msgspec.Struct, frozen=True):
    """One calculator: tables of seconds on each side, and of the seconds that each way of copying adds. kind: call, or training
    (then once and epoch have tables too). constants: (name, value) shown with every answer. precision: of a call's products."""

    name: str
    kind: str
    sides: dict[str, Table]
    copies: dict[str, Table] = {}
    once: dict[str, Table] = {}
    epoch: dict[str, Table] = {}
    constants: tuple[tuple[str, str], ...] = ()
    precision: str = ""


def squares(measurements: Measurements, answers: tuple[Answer, ...]) -> list[Tool]:
    """A tool for each precision of square products: seconds along n on both sides, or on the CPU alone without a GPU, and the
    seconds that each way of copying adds."""
    found = {
        a.precision: {side: {p.n: getattr(p, side).seconds.value for p in a.points} for side in ("cpu", "gpu")}
        for a in answers
        if a.form == LATENCY and len(a.points) >= _FEWEST
    } or {
        name: {"cpu": {n: side.seconds.value for n, side in best.items()}}
        for name, best in best_of_cpu(measurements).items()
    }
    made = []
    for name, sides in found.items():
        added = {}
        for resident, copied in reuse.pairs(answers, name):
            calls = {p.n: p.gpu.seconds.value for p in resident.points}
            more = {p.n: p.gpu.seconds.value - calls[p.n] for p in copied.points if p.n in calls}
            added[copied.form.mode] = {n: s for n, s in more.items() if s > 0}
        tables, copies = ({at: _line(own) for at, own in by.items() if len(own) >= _FEWEST} for by in (sides, added))
        made += [Tool(f"{name}, n x n x n", "call", tables, copies, precision=name)] if tables else []
    return made


def _line(seconds: dict[int, float]) -> Table:
    return Table((Axis("n", tuple(map(float, seconds))),), tuple(seconds.values()))


def products(measurements: Measurements, squared: Iterable[Tool]) -> list[Tool]:
    """A tool for each precision with products of M, N and K on both sides: a curve through the fastest row of each shape
    (analysis.predict.curves), read off on a grid."""
    rows = [
        m
        for m in comparable(measurements, "matmul")
        if m.ok and profile.kind(m.problem) == "nn" and m.mode == "resident" and m.on("host-latency")
    ]
    at, made = group_by(rows, lambda m: (m.on_gpu, precision_of(m.problem))), []
    for tool in squared:
        name = tool.precision
        sides = {"gpu": at.get((True, name), []), "cpu": at.get((False, name)) or at.get((False, "float32"), [])}
        tables = {side: _grid(found, *precision(name)) for side, found in sides.items() if len(found) >= _FEWEST}
        if tables.keys() == tool.sides.keys():
            made.append(Tool(f"{name}, M x N x K", "call", tables, tool.copies, precision=name))
    return made


def _grid(rows: Measurements, dtype: str, math_: str) -> Table:
    best = best_by(rows, lambda m: (m.problem.m, m.problem.n, m.problem.k), lambda m: middle(m.on("host-latency")))
    measured = {Matmul(m, n, k, dtype, math_): middle(row.on("host-latency")) for (m, n, k), row in best.items()}
    made = curves.curve(
        curves.MeasuredShape(coordinates=_at(p), seconds=s, flops=p.flops, nbytes=p.bytes_moved)
        for p, s in measured.items()
    )
    assert made is not None
    axes = tuple(Axis(name, _powers(sizes)) for name, sizes in zip("MNK", zip(*best, strict=True), strict=True))
    sizes = itertools.product(*(axis.values for axis in axes))
    corners = [Matmul(int(m), int(n), int(k), dtype, math_) for m, n, k in sizes]
    known = (
        any(max(abs(a - b) for a, b in zip(_at(p), _at(near), strict=True)) <= _NEAR for near in measured)
        for p in corners
    )
    seconds = (float(made.seconds(_at(p), p.flops, p.bytes_moved).value) for p in corners)
    return Table(axes, tuple(seconds), tuple(map(int, known)))


def _powers(values: tuple[int, ...]) -> tuple[float, ...]:
    """Powers of two (every _GRID-th) over the values' range."""
    first, last = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    found = list(range(first, last + 1, _GRID))
    return tuple(2.0**p for p in (found if found[-1] >= last else [*found, last]))


def _at(p: Matmul) -> tuple[float, ...]:
    return (math.log(p.m), math.log(p.n), math.log(p.k))


def trainings(of: Profile, models: Iterable[str]) -> list[Tool]:
    """A tool for each model that the profile predicts on both devices: predicted seconds of a step, of an epoch, and once a
    training, along the batch, at the model's own samples."""
    devices = {"cpu": "cpu", "gpu": "gpu:0"}
    if not set(devices.values()) <= set(of.devices):
        return []
    costs: tuple[Callable[[Prediction], Estimate], ...] = (
        lambda p: p.step_s,
        lambda p: p.epoch_total_s,
        lambda p: whole_training(p.cost, 0, p.training.steps),
    )
    made = []
    for model, network in ((model, networks.known(model)) for model in models):
        if network is None:
            continue
        batches = [b for b in _BATCHES if b <= network.samples]
        jobs = [Training(model, b, network.samples, network.epochs) for b in batches]
        try:
            found = {side: [predict(job, Settings(device), of) for job in jobs] for side, device in devices.items()}
        except ValueError:
            continue
        axis = (Axis("batch", tuple(map(float, batches))),)
        step, epoch, once = (
            {side: Table(axis, tuple(max(1e-9, float(cost(p).value)) for p in own)) for side, own in found.items()}
            for cost in costs
        )
        constants = ("samples an epoch", f"{network.samples:,}"), ("epochs", str(network.epochs))
        made.append(Tool(f"training {model}", "training", step, {}, once, epoch, constants))
    return made


def tools(measurements: Measurements, answers: tuple[Answer, ...], of: Profile) -> list[Tool]:
    """All calculators that a machine's rows allow: square products, products, trainings; without a GPU the CPU's side."""
    squared = squares(measurements, answers)
    models = dict.fromkeys(m.problem.model for m in of.trainings)
    return [*squared, *products(measurements, squared), *trainings(of, models)]
