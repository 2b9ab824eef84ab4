"""The hierarchical roofline as a chart: levels of memory, arithmetic, the link and the launch of both devices; square matmuls as
n grows, and layers as their batch does."""

import math
from typing import Any

import msgspec
import numpy as np

from analysis import labels
from analysis.crossover import layers
from analysis.crossover.families import batch_family, best_resident, precision_of
from analysis.report.charts import overlay
from analysis.report.charts.chart import DASHES, PRECISIONS, Axis, Chart, Trace, View, marks, rounded
from analysis.roofline.bounds import Judged, Roof, Roofs, judge, mark_note
from analysis.roofline.roofs import WAITED
from analysis.stats import best_by, call_s, group_by, is_gpu, quick_seconds
from analysis.table import Table
from analysis.text import answers
from analysis.text.rows import rate
from analysis.units import digits, flops_rate, join, seconds
from workloads.records import Measurement, Measurements

#: Marker and dash of the CPU's and of the GPU's points.
_CPU_LOOK = ("circle", "dot")
_GPU_LOOK = ("square", "solid")
#: Operation -> marker of its layers, and what a layer is called.
_LAYERS = {"conv": ("triangle-up", "convolution"), "matmul": ("triangle-down", "layer's product")}
#: FLOP per byte: where the slopes of a device without an arithmetic roof end.
_RIGHT = 30_000.0
#: Layers drawn as walks at most: the ones with most work.
_WALKS = 12
#: Batches that make a walk.
_LEAST = 3
_WALK_MARKERS = ("triangle-up", "diamond", "square", "circle", "cross", "x")
_WALK_SENTENCE = "Layers walk up and to the right as their batch grows; a small batch comes nowhere near a roof."
PRODUCTS = "device | product | at | fastest kernel | threads | FLOP per byte | rate | of its roof | the roof | flag"
#: (device, precision) -> n -> the fastest row.
Paths = dict[tuple[str, str], dict[int, Measurement]]
#: (layer, device) -> rows by rising batch.
Walks = dict[tuple[str, str], list[Measurement]]


def chart(measurements: Measurements, roofs: Roofs) -> list[Chart]:
    """The roofline: a view of square products and one of layers whose batch grows, where these were measured; [] without roofs
    and rows.
    """
    paths = best_resident(measurements)
    walks = _walks(measurements)
    points = layer_points(measurements)
    has_roofs = any(roof.measured and roof.kind in ("compute", "memory", "cache") for roof in roofs)
    if not (has_roofs or paths or points):
        return []
    views = []
    if paths or points or not walks:
        traces = _squares(paths) + _layers(points)
        views.append(_view("square matmuls, n growing", roofs, traces, _largest_sentence(paths)))
    if walks:
        traces = [_walk(layer, path, i) for i, ((layer, _), path) in enumerate(walks.items())]
        views.append(_view("layers, their batch growing", roofs, traces, _WALK_SENTENCE))
    rows = products(measurements, roofs)
    for path in walks.values():
        rows += layer_rows(path, roofs)
    return [
        Chart(
            name="roofline",
            title="Roofline: how far from the hardware's limit",
            views=views,
            numbers=Table(PRODUCTS, [row.cells for row in rows], left=3, optional="threads | flag"),
            picture="roofline.svg",
            chooses="Points",
            note=mark_note(row.judged for row in rows),
        )
    ]


class JudgedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of products or of a layer, against its roof."""

    #: Device, product or layer, and its size: the first cells under PRODUCTS.
    name: tuple[str, str, str]
    #: The row.
    measurement: Measurement
    #: The row against its roof.
    judged: Judged

    @property
    def flag(self) -> str:
        """What is wrong or doubtful with it; "" for nothing."""
        return self.judged.flag or self.judged.doubt

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells under PRODUCTS."""
        row = self.measurement
        return (
            *self.name,
            row.label,
            labels.threads(row),
            digits(_intensity(row)),
            rate(row),
            self.judged.share,
            self.judged.roof.label if self.judged.roof else "-",
            self.flag,
        )


def _intensity(row: Measurement) -> float:
    """FLOP per byte."""
    return row.problem.flops / row.problem.bytes_moved


def products(measurements: Measurements, roofs: Roofs) -> list[JudgedRow]:
    """The fastest square product with resident data of each device, precision and size, against its roof."""
    rows = []
    for (device, precision), path in best_resident(measurements).items():
        for n, m in path.items():
            name = (device, precision, f"n = {n:,}")
            rows.append(JudgedRow(name=name, measurement=m, judged=judge(m, roofs)))
    return rows


def layer_rows(measurements: Measurements, roofs: Roofs) -> list[JudgedRow]:
    """Rows of convolutions and dense layers with their layers' names, against their roofs."""
    rows = []
    for m in measurements:
        name = (m.device, answers.family_name(batch_family(m.problem)), f"batch {layers.size_of(m.problem)}")
        rows.append(JudgedRow(name=name, measurement=m, judged=judge(m, roofs)))
    return rows


def layer_points(measurements: Measurements) -> "list[Measurement]":
    """The fastest library row of every convolution and dense layer at its largest batch, one for each device and arithmetic."""
    rows = []
    for op in _LAYERS:
        rows += [row for row in layers.largest(measurements, op) if not layers.framework_of(row)]
    return list(best_by(rows, lambda row: (row.problem, row.device), call_s).values())


def _view(label: str, roofs: Roofs, points: list[Trace], says: str) -> View:
    """A view of traces of points under the roofs of the machine. The axes hold all points and level roofs. says: the view's
    sentence.
    """
    xs: list[float] = []
    ys: list[float] = []
    for trace in points:
        xs += trace.x
        ys += trace.y
    left = min([1.0, *xs]) / 3
    right = max([100.0, *xs]) * 2
    levels = [roof.rate.value for roof in roofs if roof.kind == "compute"]
    slopes_start = [left * roof.rate.value for roof in roofs if roof.kind in ("memory", "cache")]
    lowest = [*ys, *slopes_start]
    if levels:
        lowest.append(levels[0])
    bottom = min(lowest, default=1e9) / 2
    top = max([*levels, *ys], default=1e12) * 2
    # GPUs of one model have equal roofs.
    lines = {(trace.name, trace.label): trace for trace in _roofs(roofs, left, right, bottom)}
    drawn = overlay.named(list(lines.values()), math.log(bottom), math.log(top))
    return View(
        label=label,
        x=Axis(title="arithmetic intensity, FLOP per byte", unit="1", limits=(rounded(left), rounded(right))),
        y=Axis(title="rate", unit="FLOP/s", limits=(rounded(bottom), rounded(top))),
        traces=[*drawn, *points],
        says=says,
    )


def _largest_sentence(paths: Paths) -> str:
    """The rate of the largest float32 product of each device."""
    largest = []
    for (_, precision), path in paths.items():
        if precision == "float32":
            n = max(path)
            largest.append(f"{rate(path[n])} on the {path[n].side} at n = {n:,}")
    subject = f"float32 products reach {join(largest)}," if largest else "Kernels"
    return f"{subject} under the roofs measured on this machine."


def _roofs(roofs: Roofs, low: float, high: float, bottom: float) -> list[Trace]:
    """The roofs as traces: slopes for memory and links, level lines for arithmetic, steep lines for empty calls.

    low, high: FLOP per byte at the left and the right edge of the plot; bottom: FLOP/s at its lower edge.
    """
    traces = []
    for same in group_by(roofs, lambda roof: (roof.device, roof.measured)).values():
        traces += _slope_traces(same, low, high, bottom)
        traces += _level_traces(same, low, high)
        for roof in _by_rate(same, "launch"):
            traces.append(_launch_trace(roof, low, high, bottom))
    return traces


def _by_rate(roofs: list[Roof], *kinds: str) -> list[Roof]:
    """The roofs of these kinds, the lowest first."""
    return sorted((roof for roof in roofs if roof.kind in kinds), key=lambda roof: roof.rate.value)


def _device(roof: Roof) -> str:
    return "GPU" if is_gpu(roof.device) else "CPU"


def _slope_traces(roofs: list[Roof], low: float, high: float, bottom: float) -> list[Trace]:
    """The slopes of memory and link roofs: rate = bytes per second times FLOP per byte. Each ends at the device's highest
    arithmetic roof. `roofs` are of one device, all measured or all of its data sheet; the edges are those of `_roofs`.
    """
    levels = _by_rate(roofs, "compute")
    traces = []
    for roof in _slopes(roofs):
        bytes_per_s = roof.rate.value
        top = levels[-1].rate.value if levels else bytes_per_s * _RIGHT
        start = max(low, bottom / bytes_per_s)
        end = min(high, top / bytes_per_s)
        before = "" if roof.kind == "link" else f"{_device(roof)} "
        if not roof.measured:
            before = f"sheet {before}"
        color, dash = _slope_look(roof)
        slope = _line(
            f"{before}{roof.label}",
            roof.speed,
            [(start, start * bytes_per_s), (end, end * bytes_per_s)],
            color=color,
            dash=dash,
            label=f"{before}{roof.short} {roof.speed}",
            left=True,
        )
        traces.append(slope)
    return traces


def _slope_look(roof: Roof) -> tuple[str, str]:
    """(color, dash) of a slope: dotted black for a data sheet, else by device, with caches dashed."""
    if not roof.measured:
        return "ink", "dot"
    if roof.kind == "link":
        return "sky", "dashdot"
    color = "vermillion" if is_gpu(roof.device) else "blue"
    return color, "solid" if roof.kind == "memory" else "dash"


def _level_traces(roofs: list[Roof], low: float, high: float) -> list[Trace]:
    """The level lines of arithmetic roofs. Each begins where it meets the slope of the device's fastest memory. Equal roofs of
    a data sheet are one line with both names. `roofs` and the edges are those of `_slope_traces`.
    """
    fastest = _by_rate(roofs, "memory", "cache")[-1:]
    levels = _by_rate(roofs, "compute")
    by_name = group_by(levels, lambda roof: roof.name if roof.measured else roof.rate.value)
    traces = []
    for same in by_name.values():
        highest = same[-1]
        flops = highest.rate.value
        start = max(low, flops / fastest[0].rate.value) if fastest else low
        points = [(start, flops), (high, flops)]
        if highest.measured:
            name = f"{_device(highest)} {highest.name}"
            if highest.note:
                name += f", {highest.note}"
            speed = highest.speed
            words = speed + _ridge(roofs, flops)
            color = PRECISIONS.get(highest.math, "ink")
            dash = "solid"
        else:
            name = f"sheet {', '.join(roof.name for roof in same)}"
            speed = flops_rate(flops)
            words = speed
            color = "gray"
            dash = "dot"
        traces.append(_line(name, words, points, color=color, dash=dash, label=f"{name} {speed}"))
    return traces


def _ridge(roofs: list[Roof], flops: float) -> str:
    """`, ridge at 12 FLOP per byte`: where an arithmetic roof of so many FLOP/s meets the slope of the fastest memory; ""
    without one.
    """
    memory = _by_rate(roofs, "memory")
    if not memory:
        return ""
    return f", ridge at {digits(flops / memory[-1].rate.value)} FLOP per byte"


def _launch_trace(roof: Roof, low: float, high: float, bottom: float) -> Trace:
    """The highest rate of a float32 product whose call takes as long as an empty one, along the product's intensity.

    A product of n has 2 n^3 FLOP and moves 3 n^2 numbers of 4 bytes, so its intensity is x = n / 6: the line is 2 (6 x)^3 FLOP
    over the time of the empty call. The roof's rate is empty calls per second.
    """
    start = max(low, _launch_at(roof, bottom))
    end = min(high, _launch_at(roof, 1e15))
    points = [(x, 2 * (6 * x) ** 3 * roof.rate.value) for x in (start, end)]
    name = f"empty {roof.name}, {seconds(1 / roof.rate.value)}"
    dash = "dash" if roof.name == WAITED else "dot"
    return _line(name, "what it leaves of float32 matmuls", points, color="purple", dash=dash)


def _slopes(roofs: list[Roof]) -> list[Roof]:
    """The roofs that are drawn as slopes: the best of memory, the caches at the same thread count, and the slower direction of
    the link. With fewer threads a cache's roof may lie below the memory's.
    """
    memory = _by_rate(roofs, "memory")[-1:]
    caches = [roof for roof in roofs if roof.kind == "cache"]
    if memory:
        threads = memory[0].threads
    else:
        threads = max((roof.threads or 0 for roof in caches), default=0) or None
    return [*(roof for roof in caches if roof.threads == threads), *memory, *_by_rate(roofs, "link")[:1]]


def _launch_at(roof: Roof, flops: float) -> float:
    """FLOP per byte of the float32 product that reaches so many FLOP/s if it takes as long as an empty call: `_launch_trace`
    solved for x. roof: of empty calls.
    """
    return (flops / (2 * roof.rate.value)) ** (1 / 3) / 6


def _line(
    name: str,
    words: str,
    points: list[tuple[float, float]],
    *,
    color: str,
    dash: str,
    label: str = "",
    left: bool = False,
) -> Trace:
    """A straight line, on logarithmic axes, between two points. It has points in between, so that the page's pointer finds it
    anywhere.

    Args:
        words: what the pointer shows after the name.
        label: what stands beside the line, at its right or, with `left`, its left end; "" to name it in the legend.
    """
    (x0, y0), (x1, y1) = points
    if x1 <= x0:  # it would begin beyond its end: draw a dot
        x1 = x0 * 1.01
        y1 = y0
    xs = np.geomspace(x0, x1, 9)
    ys = np.geomspace(y0, y1, 9)
    return Trace(
        name=name,
        x=[rounded(x) for x in xs],
        y=[rounded(y) for y in ys],
        color=color,
        dash=dash,
        says=[f"{name}: {words}"] * len(xs),
        legend=color != "gray",  # a phone's legend has no room for the data sheet too
        label_left=left,
        label=label,
    )


def _points(name: str, rows: Measurements, size_name: str, **style: Any) -> Trace:
    """Rows of one device as points at their intensity and rate. size_name: what stands before a row's size, `n =` or `batch`;
    style: other fields of Trace.
    """
    name = f"{rows[0].side} {name}"
    xs = []
    ys = []
    says = []
    for row in rows:
        xs.append(rounded(_intensity(row)))
        ys.append(rounded(row.problem.flops / call_s(row)))
        says.append(f"{name}, {size_name} {layers.size_of(row.problem)}: {rate(row)}, {row.label}")
    return Trace(name=name, x=xs, y=ys, says=says, hollow=not rows[0].on_gpu, **style)


def _squares(paths: Paths) -> list[Trace]:
    """Square products as n grows, a trace a device and arithmetic."""
    traces = []
    for (device, precision), path in paths.items():
        rows = [path[n] for n in sorted(path)]
        color = PRECISIONS.get(precision, "ink")
        marker, dash = _GPU_LOOK if is_gpu(device) else _CPU_LOOK
        traces.append(_points(f"{precision} matmul", rows, "n =", color=color, marker=marker, dash=dash))
    return traces


def _layers(points: Measurements) -> list[Trace]:
    """Layers at their largest batch, a trace an operation, device and arithmetic."""
    grouped = group_by(points, lambda row: (row.problem.op, precision_of(row.problem), row.side))
    traces = []
    for (op, precision, _), rows in grouped.items():
        marker, noun = _LAYERS[op]
        color = PRECISIONS.get(precision, "ink")
        traces.append(_points(f"{precision} {noun}", rows, "batch", color=color, marker=marker, line=False))
    return traces


def _walks(measurements: Measurements) -> Walks:
    """(layer, device) -> the fastest float32 row by a library at each batch, by rising batch. Only layers with at least _LEAST
    batches, and of these the _WALKS with most work.
    """
    rows = []
    for op in ("conv", "matmul"):
        for row in layers.warm(measurements, op):
            if precision_of(row.problem) == "float32" and not layers.framework_of(row):
                rows.append(row)
    best = best_by(rows, lambda row: (batch_family(row.problem), row.device, layers.size_of(row.problem)), call_s)
    paths = {}
    for (family, device), keys in group_by(best, lambda key: key[:2]).items():
        if len(keys) >= _LEAST:
            rising = sorted(keys, key=lambda key: key[2])
            paths[family, device] = [best[key] for key in rising]
    work = {family: path[-1].problem.flops for (family, _), path in paths.items()}
    ranked = sorted(work, key=lambda family: -work[family])[:_WALKS]
    walks = {}
    for (family, device), path in paths.items():
        if family in ranked:
            walks[answers.family_name(family), device] = path
    return walks


def _walk(layer: str, path: Measurements, number: int) -> Trace:
    """A layer's rows by rising batch, joined. number: which walk, from 0. The walks of a layer on the CPU and on the GPU have
    neighboring numbers and share marker and dash.
    """
    look = number // 2
    return _points(
        layer,
        path,
        "batch",
        color="vermillion" if path[0].on_gpu else "blue",
        marker=_WALK_MARKERS[look % len(_WALK_MARKERS)],
        dash=DASHES[look % len(DASHES)],
        legend=False,
    )


def rates(measurements: Measurements, roofs: Roofs) -> list[Chart]:
    """The chart of rates: FLOP/s of every kernel against n, at its fastest thread count, a view a precision; [] without square
    products.
    """
    square = [row for row in layers.timed(measurements, "matmul") if row.problem.side]
    by_precision = group_by(square, lambda row: row.problem.math)
    if not by_precision:
        return []
    views = []
    rows = []
    judgments: list[Judged] = []
    for precision in sorted(by_precision, key=lambda math_: (math_ != "float32", math_)):
        paths = _rate_paths(by_precision[precision])
        views.append(_rate_view(precision, paths))
        for path in paths:
            for n, row in path.items():
                judged = judge(row, roofs)
                judgments.append(judged)
                kernel = labels.short(row.kernel)
                rows.append((precision, kernel, row.side, n, labels.threads(row), rate(row), judged.share))
    return [
        Chart(
            name="rates",
            title="Rate of every kernel, by size",
            views=views,
            numbers=Table("precision | kernel | on the | n | threads | rate | of its roof", rows, left=3),
            picture="rates.svg",
            chooses="Precision",
            note=mark_note(judgments),
        )
    ]


def _rate_paths(rows: Measurements) -> list[dict[int, Measurement]]:
    """For each kernel: n -> its fastest row, by rising n. The CPU's kernels first."""
    kernels = group_by(rows, lambda row: (row.on_gpu, row.kernel))
    paths = []
    for key in sorted(kernels):
        best = best_by(kernels[key], lambda row: row.problem.n, call_s)
        paths.append(dict(sorted(best.items())))
    return paths


def _rate_view(precision: str, paths: list[dict[int, Measurement]]) -> View:
    """The view of one precision: a trace for each kernel, and a sentence on the highest rate of each device. paths: for each
    kernel n -> its fastest row.
    """
    traces = []
    best: dict[str, tuple[float, str]] = {}
    for i, path in enumerate(paths):
        first = next(iter(path.values()))
        kernel = labels.short(first.kernel)
        ys = []
        says = []
        for n, row in path.items():
            flops = row.problem.flops / quick_seconds(row)
            ys.append(rounded(flops))
            says.append(f"{kernel} on the {first.side}, n = {n:,}: {rate(row)}")
            best[first.side] = max((flops, f"{kernel} at n = {n:,}"), best.get(first.side, (0.0, "")))
        name = f"{first.side} {kernel}"
        traces.append(Trace(name=name, x=list(path), y=ys, says=says, hollow=not first.on_gpu, **marks(i)))
    tops = join(f"{flops_rate(flops)} on the {side} ({words})" for side, (flops, words) in best.items())
    return View(
        label=precision,
        x=Axis(title="n of an n x n x n product", unit="count"),
        y=Axis(title="rate", unit="FLOP/s"),
        traces=traces,
        says=f"{precision}: at best {tops}.",
    )
