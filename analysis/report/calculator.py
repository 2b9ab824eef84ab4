"""Predicted times for a size of the reader's: tables that the report embeds, and the look-up that its page repeats."""

# A table holds seconds on a grid of sizes. In between, the logarithm of the seconds is interpolated in the logarithms of the
# sizes, axis by axis; beyond its ends the last two of an axis go on, and that is said. Two laws stand on the tables: a copy that
# is
# used k times costs a k-th of it each time, and a job is what happens once plus its epochs.

import itertools
import math
from collections.abc import Iterable

import msgspec

from analysis.crossover import reuse
from analysis.crossover.crossover import LATENCY, Answer, fastest
from analysis.crossover.families import comparable, precision_of, square_rows
from analysis.predict import curves
from analysis.predict.prediction import predict
from analysis.predict.profile import Lacking, Profile
from analysis.stats import middle
from analysis.training.costs import whole_training
from kernels.problems import Matmul, Training
from kernels.problems.arrays import precision
from workloads.records import Measurement, Settings

_FEWEST = 3  # sizes of a table
_GRID = 2  # of a product's axes, from size to size
_NEAR = math.log(4)  # a product with no measured one within this much of all its three sizes is extrapolated
_BATCHES = (1, 4, 16, 64, 256, 1024)


class Axis(msgspec.Struct, frozen=True):
    """A size and its values on the grid, rising."""

    name: str
    values: tuple[float, ...]


class Table(msgspec.Struct, frozen=True):
    """Seconds at each point of the grid, the last axis running fastest. `known`: 1 where rows stand near, 0 where a
    point of the grid is extrapolated itself; empty: known everywhere."""

    axes: tuple[Axis, ...]
    seconds: tuple[float, ...]
    known: tuple[int, ...] = ()


class Tool(msgspec.Struct, frozen=True):
    """What one can ask for by its sizes: the tables of each side, of what copying adds by way of copying, and the constants that
    are shown with every answer. `kind`: call, or training (then once and epoch are tables too)."""

    name: str
    kind: str
    sides: dict[str, Table]
    copies: dict[str, Table] = {}
    once: dict[str, Table] = {}
    epoch: dict[str, Table] = {}
    constants: tuple[tuple[str, str], ...] = ()


class Looked(msgspec.Struct, frozen=True):
    """Seconds, and whether they are beyond what was measured."""

    seconds: float
    extrapolated: bool


def look_up(table: Table, at: Iterable[float]) -> Looked:
    """Seconds at the sizes of the table's axes, which must be positive."""
    at, corners, outside = list(at), [], False
    for axis, value in zip(table.axes, at, strict=True):
        low, part = _between(axis.values, value)
        outside |= not axis.values[0] <= value <= axis.values[-1]
        corners.append(((low, 1 - part), (low + 1, part)) if len(axis.values) > 1 else ((0, 1.0),))
    total, known = 0.0, True
    for corner in itertools.product(*corners):
        index = 0
        for (i, _), axis in zip(corner, table.axes, strict=True):
            index = index * len(axis.values) + i
        weight = math.prod(w for _, w in corner)
        if weight:
            total += weight * math.log(table.seconds[index])
            known &= not table.known or table.known[index] == 1
    return Looked(math.exp(total), outside or not known)


def _between(values: tuple[float, ...], value: float) -> tuple[int, float]:
    """(index of the grid point before, part of the way to the next) in the logarithm; the end pieces go on beyond the ends."""
    last = len(values) - 2
    i = max(0, min(last, next((j for j, v in enumerate(values) if v > value), len(values)) - 1)) if last >= 0 else 0
    return i, math.log(value / values[i]) / math.log(values[i + 1] / values[i]) if last >= 0 else 0.0


def squares(answers: Iterable[Answer]) -> list[Tool]:
    """A tool for each precision with square products on both sides: n, and what each way of copying adds."""
    answers = tuple(answers)
    made = []
    for a in (a for a in answers if a.form == LATENCY and len(a.points) >= _FEWEST):
        axis = Axis("n", tuple(float(p.n) for p in a.points))
        sides = {
            "cpu": Table((axis,), tuple(p.cpu.seconds.value for p in a.points)),
            "gpu": Table((axis,), tuple(p.gpu.seconds.value for p in a.points)),
        }
        copies = {}
        for resident, copied in reuse.pairs(answers, a.precision):
            calls = {p.n: p.gpu.seconds.value for p in resident.points}
            more = [(float(p.n), p.gpu.seconds.value - calls[p.n]) for p in copied.points if p.n in calls]
            more = [(n, s) for n, s in more if s > 0]
            if len(more) >= _FEWEST:
                n, seconds = zip(*more, strict=True)
                copies[copied.form.mode] = Table((Axis("n", n),), seconds)
        made.append(Tool(f"{a.precision}, n x n x n", "call", sides, copies))
    return made


def squares_alone(measurements: "Iterable[Measurement]") -> list[Tool]:
    """The same of a machine without a GPU: the CPU's best."""
    made = []
    for name, sizes in square_rows(measurements).items():
        best = {n: fastest((m for m in rows if not m.on_gpu), "host-latency") for n, rows in sizes.items()}
        found = sorted((n, side.seconds.value) for n, side in best.items() if side)
        if len(found) >= _FEWEST:
            n, seconds = zip(*found, strict=True)
            made.append(Tool(f"{name}, n x n x n", "call", {"cpu": Table((Axis("n", tuple(map(float, n))),), seconds)}))
    return made


def products(measurements: "Iterable[Measurement]", squared: Iterable[Tool]) -> list[Tool]:
    """A tool for each precision with products of M, N and K on both sides: a curve through the fastest row of each shape
    (analysis.predict.curves), read off on a grid. Copies are those of the square product of as many bytes."""
    rows = [
        m
        for m in comparable(measurements, "matmul")
        if m.ok and m.problem.layout == "nn" and (m.mode, m.settings.reuse) == ("resident", 1) and m.on("host-latency")
    ]
    made = []
    for tool in squared:
        name = tool.name.partition(",")[0]
        sides = {"gpu": [m for m in rows if m.on_gpu and precision_of(m.problem) == name]}
        own = [m for m in rows if not m.on_gpu and precision_of(m.problem) == name]
        instead = [m for m in rows if not m.on_gpu and precision_of(m.problem) == "float32"]
        sides["cpu"] = own or instead
        tables = {side: _grid(found, *precision(name)) for side, found in sides.items() if len(found) >= _FEWEST}
        if tables.keys() == tool.sides.keys():
            copies = {way: _as_square(table, tables["gpu"].axes) for way, table in tool.copies.items()}
            made.append(Tool(f"{name}, M x N x K", "call", tables, copies))
    return made


def _as_square(copies: Table, axes: tuple[Axis, ...]) -> Table:
    """What copying adds to products of the grid: as to the square one whose three matrices have as many elements together."""
    found = [
        look_up(copies, [math.sqrt((m * n + m * k + k * n) / 3)])
        for m, n, k in itertools.product(*(axis.values for axis in axes))
    ]
    return Table(axes, tuple(x.seconds for x in found), tuple(int(not x.extrapolated) for x in found))


def _grid(rows: "list[Measurement]", dtype: str, math_: str) -> Table:
    best: dict[tuple[int, int, int], float] = {}
    for m in rows:
        at = (m.problem.m, m.problem.n, m.problem.k)
        best[at] = min(best.get(at, math.inf), middle(m.on("host-latency")))
    problems = {Matmul(*at, dtype, math_): seconds for at, seconds in best.items()}
    made = curves.curve(curves.Point(_at(p), s, p.flops, p.bytes_moved) for p, s in problems.items())
    if made is None:
        raise ValueError("no rows, no curve")
    axes = tuple(Axis(name, _powers([at[i] for at in best])) for i, name in enumerate("MNK"))
    logs = [tuple(map(math.log, at)) for at in best]
    seconds, known = [], []
    for corner in itertools.product(*(axis.values for axis in axes)):
        p = Matmul(int(corner[0]), int(corner[1]), int(corner[2]), dtype, math_)
        seconds.append(float(made.seconds(_at(p), p.flops, p.bytes_moved).value))
        here = tuple(map(math.log, corner))
        known.append(int(any(max(abs(a - b) for a, b in zip(here, other, strict=True)) <= _NEAR for other in logs)))
    return Table(axes, tuple(seconds), tuple(known))


def _powers(values: list[int]) -> tuple[float, ...]:
    """Powers of two (every _GRID-th) over the values' range."""
    first, last = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    found = list(range(first, last + 1, _GRID))
    return tuple(2.0**p for p in (found if found[-1] >= last else [*found, last]))


def _at(p: Matmul) -> tuple[float, ...]:
    return (math.log(p.m), math.log(p.n), math.log(p.k))


def trainings(of: "Profile", models: Iterable[str]) -> list[Tool]:
    """A tool for each model that the profile predicts on both devices: the step by batch, and what a job costs once and an epoch
    at the model's own samples."""
    from kernels import networks

    if not {"cpu", "gpu:0"} <= set(of.devices):
        return []
    made = []
    for model in models:
        network = networks.known(model)
        if network is None:
            continue
        batches = [b for b in _BATCHES if b <= network.samples]
        try:
            found = {
                device: [
                    predict(Training(model, b, network.samples, network.epochs), Settings(device), of) for b in batches
                ]
                for device in ("cpu", "gpu:0")
            }
        except (Lacking, ValueError):
            continue
        axis = (Axis("batch", tuple(map(float, batches))),)
        tables: dict[str, dict[str, Table]] = {"sides": {}, "once": {}, "epoch": {}}
        for device, side in (("cpu", "cpu"), ("gpu:0", "gpu")):
            for name, of_ in (
                ("sides", lambda p: p.step_s),
                ("epoch", lambda p: p.epoch_total_s),
                ("once", lambda p: whole_training(p.cost, 0, p.training.steps)),
            ):
                tables[name][side] = Table(axis, tuple(max(1e-9, float(of_(p).value)) for p in found[device]))
        made.append(
            Tool(
                f"training {model}",
                "training",
                tables["sides"],
                {},
                tables["once"],
                tables["epoch"],
                (("samples an epoch", f"{network.samples:,}"), ("epochs", str(network.epochs))),
            )
        )
    return made


def tools(measurements: "Iterable[Measurement]", answers: Iterable[Answer], of: "Profile") -> list[Tool]:
    """All that a machine's rows have an answer for: square products, products, trainings; without a GPU the CPU's side."""
    measurements = list(measurements)
    squared = squares(answers) or squares_alone(measurements)
    models = dict.fromkeys(m.problem.model for m in of.trainings)
    return [*squared, *products(measurements, squared), *trainings(of, models)]
