"""Predicted times for a size of the reader's: the tables that the report embeds and that web/calculator.js looks up."""

# A table holds seconds on a grid of sizes. Between them log(seconds) is interpolated in log(size), axis by axis. Beyond an
# axis's ends it is extrapolated from the last two sizes, and the page says so. A copy used k times costs 1/k each time. Copies
# of a product that is not square are taken from the square product with as many elements.

import itertools
import math
from collections.abc import Iterable

import msgspec

from analysis.crossover import reuse
from analysis.crossover.answer import Answer
from analysis.crossover.families import comparable, precision_of
from analysis.crossover.fastest_row import best_of_cpu
from analysis.crossover.forms import LATENCY
from analysis.predict import curves, profile
from analysis.predict.prediction import predict
from analysis.predict.profile import Profile
from analysis.stats import Estimate, best_by, group_by, quick_median
from analysis.training.costs import whole_training
from kernels import networks
from kernels.networks import Network
from kernels.problems import Matmul, Training
from kernels.problems.arrays import precision
from workloads.records import Measurement, Measurements, Settings

#: Sizes of a table, at least.
_FEWEST = 3
#: Every so-many-th power of two is on the grid of a product's axis.
_GRID = 2
#: A product is extrapolated where no measured one has all three sizes within this factor; its logarithm.
_NEAR = math.log(4)
_BATCHES = (1, 4, 16, 64, 256, 1024)


class SizeAxis(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a calculator's table."""

    #: Its name: n, M, N, K or batch.
    name: str
    #: The sizes that the table has, rising.
    values: tuple[float, ...]


class SecondsTable(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds at each point of a grid."""

    #: The sizes. Their points are in row-major order: the last size runs fastest.
    axes: tuple[SizeAxis, ...]
    #: Seconds at each point.
    seconds: tuple[float, ...]
    #: For each point 1 where a measured row is near, 0 where the seconds are extrapolated; empty where all are measured.
    known: tuple[int, ...] = ()


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One calculator."""

    #: What it calculates, for the page's list.
    name: str
    #: "call" or "training".
    kind: str
    #: Side (cpu, gpu) -> seconds of a call, or of a step.
    sides: dict[str, SecondsTable]
    #: Mode of copying -> the seconds that it adds to the GPU's call.
    copies: dict[str, SecondsTable] = {}
    #: Side -> seconds of a training before its first epoch.
    once: dict[str, SecondsTable] = {}
    #: Side -> seconds of an epoch.
    epoch: dict[str, SecondsTable] = {}
    #: (name, value) shown with every answer.
    constants: tuple[tuple[str, str], ...] = ()
    #: Of a call's products.
    precision: str = ""


def squares(measurements: Measurements, answers: tuple[Answer, ...]) -> list[Tool]:
    """A calculator for each precision of square products: the seconds of a call against n on both devices, or on the CPU alone
    without a GPU, and the seconds that each way of copying adds.
    """
    by_precision = _square_seconds(answers) or _square_seconds_of_cpu(measurements)
    tools = []
    for name, sides in by_precision.items():
        tables = _lines(sides)
        if tables:
            copies = _lines(_copy_seconds(answers, name))
            tools.append(Tool(name=f"{name}, n x n x n", kind="call", sides=tables, copies=copies, precision=name))
    return tools


#: Side or mode of copying -> n -> seconds.
_Seconds = dict[str, dict[int, float]]


def _square_seconds(answers: tuple[Answer, ...]) -> dict[str, _Seconds]:
    """Precision -> side (cpu, gpu) -> n -> seconds of a resident call of the fastest square product, for precisions that were
    measured on both sides at _FEWEST sizes or more.
    """
    by_precision = {}
    for a in answers:
        if a.form == LATENCY and len(a.points) >= _FEWEST:
            cpu = {point.n: point.cpu.seconds.value for point in a.points}
            gpu = {point.n: point.gpu.seconds.value for point in a.points}
            by_precision[a.precision] = {"cpu": cpu, "gpu": gpu}
    return by_precision


def _square_seconds_of_cpu(measurements: Measurements) -> dict[str, _Seconds]:
    """The same for a machine without a GPU: precision -> cpu -> n -> seconds of the fastest square product."""
    by_precision = {}
    for name, best in best_of_cpu(measurements).items():
        by_precision[name] = {"cpu": {n: side.seconds.value for n, side in best.items()}}
    return by_precision


def _copy_seconds(answers: tuple[Answer, ...], precision_name: str) -> _Seconds:
    """Mode of copying (Form.mode) -> n -> the seconds that copies in and out add to a GPU's call with resident data, where they
    add any. answers: the crossovers of square products; precision_name: such as float32.
    """
    by_mode = {}
    for resident, copied in reuse.pairs(answers, precision_name):
        calls = {point.n: point.gpu.seconds.value for point in resident.points}
        added = {}
        for point in copied.points:
            if point.n in calls and point.gpu.seconds.value > calls[point.n]:
                added[point.n] = point.gpu.seconds.value - calls[point.n]
        by_mode[copied.form.mode] = added
    return by_mode


def _lines(seconds: _Seconds) -> dict[str, SecondsTable]:
    """The tables along n for the sides (or modes of copying) that have _FEWEST sizes or more."""
    tables = {}
    for name, by_size in seconds.items():
        if len(by_size) >= _FEWEST:
            axis = SizeAxis(name="n", values=tuple(map(float, by_size)))
            tables[name] = SecondsTable(axes=(axis,), seconds=tuple(by_size.values()))
    return tables


def products(measurements: Measurements, squared: Iterable[Tool]) -> list[Tool]:
    """A calculator of products of any shape M x N x K, for each precision whose square products have one (`squared`). A curve
    is laid through the fastest row of each shape (analysis.predict.curves) and read off on a grid. The CPU computes precisions
    that it has no rows of in float32.
    """
    by_side = group_by(
        filter(_is_plain_product, comparable(measurements, "matmul")),
        lambda m: (m.on_gpu, precision_of(m.problem)),
    )
    tools = []
    for square in squared:
        name = square.precision
        cpu = by_side.get((False, name)) or by_side.get((False, "float32"), [])
        gpu = by_side.get((True, name), [])
        tables = {}
        for side, rows in (("gpu", gpu), ("cpu", cpu)):
            if len(rows) >= _FEWEST:
                tables[side] = _grid(rows, *precision(name))
        if tables.keys() == square.sides.keys():
            copies = square.copies
            tools.append(Tool(name=f"{name}, M x N x K", kind="call", sides=tables, copies=copies, precision=name))
    return tools


def _is_plain_product(m: Measurement) -> bool:
    """Whether a row is a single product of operands that lie on the device, timed one call at a time."""
    return m.ok and profile.kind(m.problem) == "nn" and m.mode == "resident" and bool(m.on("host-latency"))


def _grid(rows: Measurements, dtype: str, math_: str) -> SecondsTable:
    """Seconds of a product at every point of a grid over the sizes of the rows, by a curve through the fastest row of each shape.
    dtype, math_: type and arithmetic of the products, such as float32 and tf32.
    """
    best = best_by(
        rows, lambda m: (m.problem.m, m.problem.n, m.problem.k), lambda m: quick_median(m.on("host-latency"))
    )
    shapes = []
    near: list[tuple[float, ...]] = []
    for (m, n, k), row in best.items():
        problem = Matmul(m, n, k, dtype=dtype, math=math_)
        coordinates = _logarithms(problem)
        near.append(coordinates)
        shapes.append(
            curves.MeasuredShape(
                coordinates=coordinates,
                seconds=quick_median(row.on("host-latency")),
                flops=problem.flops,
                nbytes=problem.bytes_moved,
            )
        )
    curve = curves.curve(shapes)
    assert curve is not None
    axes = []
    for name, sizes in zip("MNK", zip(*best, strict=True), strict=True):
        axes.append(SizeAxis(name=name, values=_powers(sizes)))
    seconds = []
    known = []
    for m, n, k in itertools.product(*(axis.values for axis in axes)):
        corner = Matmul(int(m), int(n), int(k), dtype=dtype, math=math_)
        coordinates = _logarithms(corner)
        seconds.append(float(curve.seconds(coordinates, corner.flops, corner.bytes_moved).value))
        known.append(int(any(_distance(coordinates, shape) <= _NEAR for shape in near)))
    return SecondsTable(axes=tuple(axes), seconds=tuple(seconds), known=tuple(known))


def _powers(values: tuple[int, ...]) -> tuple[float, ...]:
    """Every _GRID-th power of two from below the smallest of these values to above the largest."""
    first = math.floor(math.log2(min(values)))
    last = math.ceil(math.log2(max(values)))
    powers = list(range(first, last + 1, _GRID))
    if powers[-1] < last:
        powers.append(last)
    return tuple(2.0**power for power in powers)


def _logarithms(problem: Matmul) -> tuple[float, ...]:
    """The logarithms of a product's three sizes."""
    return (math.log(problem.m), math.log(problem.n), math.log(problem.k))


def _distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """The largest difference of two points' coordinates."""
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def trainings(profile_: Profile, models: Iterable[str]) -> list[Tool]:
    """A calculator for each named model that the profile predicts on both devices: predicted seconds of a step, of an epoch, and
    before the first epoch, along the batch. The number of samples is the model's own.
    """
    if not set(_DEVICES.values()) <= set(profile_.devices):
        return []
    tools = []
    for model in models:
        network = networks.known(model)
        if network is None:
            continue
        try:
            tools.append(_training(profile_, model, network))
        except ValueError:
            continue
    return tools


#: Side -> the device that it is predicted on.
_DEVICES = {"cpu": "cpu", "gpu": "gpu:0"}


def _training(profile_: Profile, model: str, network: Network) -> Tool:
    """The calculator of a model.

    Raises: ValueError where the profile lacks rows to predict it.
    """
    batches = [batch for batch in _BATCHES if batch <= network.samples]
    axis = SizeAxis(name="batch", values=tuple(map(float, batches)))
    step = {}
    epoch = {}
    once = {}
    for side, device in _DEVICES.items():
        predictions = []
        for batch in batches:
            job = Training(model, batch, samples=network.samples, epochs=network.epochs)
            predictions.append(predict(job, Settings(device), profile_))
        step[side] = _along(axis, [p.step_s for p in predictions])
        epoch[side] = _along(axis, [p.epoch_total_s for p in predictions])
        once[side] = _along(axis, [whole_training(p.cost, 0, p.training.steps) for p in predictions])
    constants = (("samples an epoch", f"{network.samples:,}"), ("epochs", str(network.epochs)))
    return Tool(
        name=f"training {model}",
        kind="training",
        sides=step,
        once=once,
        epoch=epoch,
        constants=constants,
    )


def _along(axis: SizeAxis, estimates: list[Estimate]) -> SecondsTable:
    """A table of predicted seconds along one size. They are at least a nanosecond, because the page takes their logarithms."""
    return SecondsTable(axes=(axis,), seconds=tuple(max(1e-9, float(estimate.value)) for estimate in estimates))


def tools(measurements: Measurements, answers: tuple[Answer, ...], profile_: Profile) -> list[Tool]:
    """All calculators that a machine's rows allow: square products, products of any shape, trainings. answers: the crossovers
    of its square products; profile_: the rows that predictions read.
    """
    squared = squares(measurements, answers)
    models = dict.fromkeys(m.problem.model for m in profile_.trainings)
    return [*squared, *products(measurements, squared), *trainings(profile_, models)]
