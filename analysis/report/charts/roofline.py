"""The hierarchical roofline as a chart: levels of memory, arithmetic, the link and the launch of both devices; square matmuls as
n grows, and layers as their batch does."""

import math

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
from analysis.text import rows as row_words
from analysis.units import digits, flops_rate, join, seconds
from workloads.records import Measurement, Measurements

_LOOKS = (("circle", "dot"), ("square", "solid"))  # of the CPU's and the GPU's points
_POINTS = {"conv": ("triangle-up", "convolution"), "matmul": ("triangle-down", "layer's product")}
_RIGHT = 30_000.0
_WALKS = 12  # layers drawn as walks: those with most work
_LEAST = 3  # batches that make a walk
_WALKED = "Layers walk up and to the right as their batch grows; a small batch comes nowhere near a roof."
PRODUCTS = "device | product | at | fastest kernel | threads | FLOP per byte | rate | of its roof | the roof | flag"


def chart(measurements: Measurements, roofs: Roofs) -> list[Chart]:
    """One view of the square matmuls and one of the layers, as far as there are any; none without roofs and rows."""
    paths, walks, points = best_resident(measurements), _walks(measurements), layer_points(measurements)
    ceilings = any(r.measured and r.kind in ("compute", "memory", "cache") for r in roofs)
    if not (ceilings or paths or points):
        return []
    views = []
    if paths or points or not walks:
        views.append(_view("square matmuls, n growing", roofs, _squares(paths) + _layers(points), _said(paths)))
    if walks:
        found = [_walk(label, path, i) for i, ((label, _), path) in enumerate(walks.items())]
        views.append(_view("layers, their batch growing", roofs, found, _WALKED))
    rows = products(measurements, roofs)
    rows += layer_rows([m for walk in walks.values() for m in walk], roofs)
    numbers = Table(PRODUCTS, [row.cells for row in rows], 3, "threads | flag")
    return [
        Chart(
            name="roofline",
            title="Roofline: how far from the hardware's limit",
            views=views,
            numbers=numbers,
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
        m, judged = self.measurement, self.judged
        intensity = digits(m.problem.flops / m.problem.bytes_moved)
        roof = judged.roof.label if judged.roof else "-"
        rate = row_words.rate(m)
        return (*self.name, m.label, labels.threads(m), intensity, rate, judged.share, roof, self.flag)


def products(measurements: Measurements, roofs: Roofs) -> list[JudgedRow]:
    """The fastest resident square product of each device, precision and size."""
    rows = []
    for (device, precision), path in best_resident(measurements).items():
        for n, m in path.items():
            name = (device, precision, f"n = {n:,}")
            rows.append(JudgedRow(name=name, measurement=m, judged=judge(m, roofs)))
    return rows


def layer_rows(measurements: Measurements, roofs: Roofs) -> list[JudgedRow]:
    """Rows of convolutions and dense layers."""
    rows = []
    for m in measurements:
        name = (m.device, answers.family_name(batch_family(m.problem)), f"batch {layers.size_of(m.problem)}")
        rows.append(JudgedRow(name=name, measurement=m, judged=judge(m, roofs)))
    return rows


def layer_points(measurements: Measurements) -> "list[Measurement]":
    """The fastest library row of every convolution and dense layer at its largest batch, a device and arithmetic."""
    rows = (m for op in _POINTS for m in layers.largest(measurements, op) if not layers.framework_of(m))
    return list(best_by(rows, lambda m: (m.problem, m.device), call_s).values())


def _view(label: str, roofs: Roofs, points: list[Trace], says: str) -> View:
    """The points under the roofs, whose names stand beside them: slopes' on the left, level lines' on the right."""
    xs, ys = [x for t in points for x in t.x], [y for t in points for y in t.y]
    left, right = min([1.0, *xs]) / 3, max([100.0, *xs]) * 2
    tops = [r.rate.value for r in roofs if r.kind == "compute"] + ys
    memory = [left * r.rate.value for r in roofs if r.kind in ("memory", "cache")]
    bottom, top = min([*ys, *memory, *(tops[:1])], default=1e9) / 2, max(tops, default=1e12) * 2
    lines = {(t.name, t.label): t for t in _roofs(roofs, left, right, bottom)}  # GPUs of one model have equal roofs
    drawn = overlay.named(list(lines.values()), math.log(bottom), math.log(top))
    return View(
        label=label,
        x=Axis(title="arithmetic intensity, FLOP per byte", unit="1", limits=(rounded(left), rounded(right))),
        y=Axis(title="rate", unit="FLOP/s", limits=(rounded(bottom), rounded(top))),
        traces=[*drawn, *points],
        says=says,
    )


def _said(paths: dict) -> str:
    """The largest float32 product of each device."""
    told = [
        f"{row_words.rate(path[max(path)])} on the {path[max(path)].side} at n = {max(path):,}"
        for (_, precision), path in paths.items()
        if precision == "float32"
    ]
    what = f"float32 products reach {join(told)}," if told else "Kernels"
    return f"{what} under the roofs measured on this machine."


def _roofs(roofs: Roofs, low: float, high: float, bottom: float) -> list[Trace]:
    """Slopes for bytes, level lines for arithmetic, curves for an empty call. A slope ends at its device's highest arithmetic
    roof; a level line begins at the ridge point of the fastest memory. Equal ones of the data sheet are drawn once."""
    made = []
    for (device, measured), own in group_by(roofs, lambda r: (r.device, r.measured)).items():
        (side, hue), levels = ("GPU", "vermillion") if is_gpu(device) else ("CPU", "blue"), _of(own, "compute")
        for roof in _slopes(own):
            rate, link = roof.rate.value, roof.kind == "link"
            top = levels[-1].rate.value if levels else rate * _RIGHT
            start, end = max(low, bottom / rate), min(high, top / rate)
            before = "" if link else f"{side} "
            color, dash = ("sky", "dashdot") if link else (hue, "solid" if roof.kind == "memory" else "dash")
            if not measured:
                before = f"sheet {before}"
                color, dash = "ink", "dot"
            made.append(
                _line(
                    f"{before}{roof.label}",
                    roof.speed,
                    [(start, start * rate), (end, end * rate)],
                    color=color,
                    dash=dash,
                    label=f"{before}{roof.short} {roof.speed}",
                    left=True,
                )
            )
        memory, fastest = _of(own, "memory"), _of(own, "memory", "cache")
        for alike in group_by(levels, lambda r: r.name if r.measured else r.rate.value).values():
            rate, name, note = alike[-1].rate.value, alike[-1].name, alike[-1].note
            ends = [(max(low, rate / fastest[-1].rate.value) if fastest else low, rate), (high, rate)]
            if measured:
                ridge = f", ridge at {digits(rate / memory[-1].rate.value)} FLOP per byte" if memory else ""
                color = PRECISIONS.get(alike[-1].math, "ink")
                line = f"{side} {name}" + (f", {note}" if note else "")
                speed = alike[-1].speed
                made.append(_line(line, speed + ridge, ends, color=color, dash="solid", label=f"{line} {speed}"))
            else:
                line = f"sheet {', '.join(r.name for r in alike)}"
                speed = flops_rate(rate)
                made.append(_line(line, speed, ends, color="gray", dash="dot", label=f"{line} {speed}"))
        for roof in _of(own, "launch"):
            # a float32 matmul of n has intensity n / 6: the line is 2 n^3 FLOP over the time of an empty call
            xs = max(low, _launch_at(roof, bottom)), min(high, _launch_at(roof, 1e15))
            name, dash = f"empty {roof.name}, {seconds(1 / roof.rate.value)}", "dash" if roof.name == WAITED else "dot"
            ends = [(x, 2 * (6 * x) ** 3 * roof.rate.value) for x in xs]
            made.append(_line(name, "what it leaves of float32 matmuls", ends, color="purple", dash=dash))
    return made


def _of(roofs: list[Roof], *kinds: str) -> list[Roof]:
    """Those of these kinds, the lowest first."""
    return sorted((r for r in roofs if r.kind in kinds), key=lambda r: r.rate.value)


def _slopes(own: list[Roof]) -> list[Roof]:
    """A device's best roof of each memory level, and the link's slower direction. Caches are taken at the thread count of the
    memory's best roof, as with fewer threads they may lie below it."""
    memory, caches = _of(own, "memory")[-1:], [r for r in own if r.kind == "cache"]
    most = memory[0].threads if memory else max((r.threads or 0 for r in caches), default=0) or None
    return [*(r for r in caches if r.threads == most), *memory, *_of(own, "link")[:1]]


def _launch_at(roof: Roof, rate: float) -> float:
    """The intensity of the float32 matmul that has that rate when it takes as long as an empty call."""
    return (rate / (2 * roof.rate.value)) ** (1 / 3) / 6


def _line(
    name: str,
    rate: str,
    ends: list[tuple[float, float]],
    *,
    color: str,
    dash: str,
    label: str = "",
    left: bool = False,
) -> Trace:
    """A roof as a trace, with many points so that the pointer finds it anywhere. Its `label` stands at its left or right end;
    without one its name is in the legend."""
    (x0, y0), (x1, y1) = ends
    if x1 <= x0:
        x1, y1 = x0 * 1.01, y0
    xs, ys = (list(map(rounded, np.geomspace(*between, 9))) for between in ((x0, x1), (y0, y1)))
    return Trace(
        name=name,
        x=xs,
        y=ys,
        color=color,
        dash=dash,
        says=[f"{name}: {rate}"] * len(xs),
        legend=color != "gray",  # a phone's legend has no room for the data sheet too
        label_left=left,
        label=label,
    )


def _points(name: str, rows: Measurements, at: str, look: tuple[str, str, str], **how) -> Trace:
    """Rows by intensity and rate; `at`: `n =` or `batch`, `look`: color, marker and dash."""
    name = f"{rows[0].side} {name}"
    says = [f"{name}, {at} {layers.size_of(m.problem)}: {row_words.rate(m)}, {m.label}" for m in rows]
    xs = [rounded(m.problem.flops / m.problem.bytes_moved) for m in rows]
    ys = [rounded(m.problem.flops / call_s(m)) for m in rows]
    return Trace(
        name=name, x=xs, y=ys, color=look[0], marker=look[1], dash=look[2], says=says, hollow=not rows[0].on_gpu, **how
    )


def _squares(paths: "dict[tuple[str, str], dict[int, Measurement]]") -> list[Trace]:
    """Square products as n grows, a trace a device and arithmetic."""
    return [
        _points(
            f"{precision} matmul",
            [path[n] for n in sorted(path)],
            "n =",
            (PRECISIONS.get(precision, "ink"), *_LOOKS[is_gpu(device)]),
        )
        for (device, precision), path in paths.items()
    ]


def _layers(points: Measurements) -> list[Trace]:
    """Layers at their largest batch, a trace an operation, device and arithmetic."""
    grouped = group_by(points, lambda m: (m.problem.op, precision_of(m.problem), m.side))
    return [
        _points(
            f"{math_} {_POINTS[op][1]}",
            rows,
            "batch",
            (PRECISIONS.get(math_, "ink"), _POINTS[op][0], "solid"),
            line=False,
        )
        for (op, math_, _), rows in grouped.items()
    ]


def _walks(measurements: Measurements) -> "dict[tuple[str, str], list[Measurement]]":
    """(layer, device) -> the fastest library row of the first precision at each batch, rising. Only the layers with most work
    that have enough batches."""
    rows = [
        m
        for op in ("conv", "matmul")
        for m in layers.warm(measurements, op)
        if precision_of(m.problem) == "float32" and not layers.framework_of(m)
    ]
    best = best_by(rows, lambda m: (batch_family(m.problem), m.device, layers.size_of(m.problem)), call_s)
    paths = group_by(best, lambda key: key[:2])
    kept = {
        key: [best[at] for at in sorted(path, key=lambda at: at[2])]
        for key, path in paths.items()
        if len(path) >= _LEAST
    }
    work = {family: kept[family, device][-1].problem.flops for family, device in kept}
    ranked = sorted(work, key=lambda family: -work[family])[:_WALKS]
    return {(answers.family_name(family), device): path for (family, device), path in kept.items() if family in ranked}


def _walk(label: str, path: Measurements, i: int) -> Trace:
    marker = ("triangle-up", "diamond", "square", "circle", "cross", "x")[i // 2 % 6]
    look = ("vermillion" if path[0].on_gpu else "blue", marker, DASHES[i // 2 % len(DASHES)])
    return _points(label, path, "batch", look, legend=False)


def rates(measurements: Measurements, roofs: Roofs) -> list[Chart]:
    """FLOP/s against n of every kernel by its best thread count, rungs too, a view a precision; none without square matmuls."""
    square = (m for m in layers.timed(measurements, "matmul") if m.problem.side)
    grouped, views, rows = group_by(square, lambda m: m.problem.math), [], []
    judgments: list[Judged] = []
    for precision in sorted(grouped, key=lambda p: (p != "float32", p)):
        traces, best = [], dict[str, tuple[float, str]]()
        kernels = group_by(grouped[precision], lambda m: (m.on_gpu, m.kernel))
        for i, (on_gpu, kernel) in enumerate(sorted(kernels)):
            path = dict(sorted(best_by(kernels[on_gpu, kernel], lambda m: m.problem.n, call_s).items()))
            side, name = next(iter(path.values())).side, labels.short(kernel)
            found = [(m.problem.flops / quick_seconds(m), f"{name} at n = {n:,}") for n, m in path.items()]
            best[side] = max([*found, best.get(side, (0.0, ""))])
            said = [f"{name} on the {side}, n = {n:,}: {row_words.rate(m)}" for n, m in path.items()]
            ys, look = [rounded(rate) for rate, _ in found], marks(i)
            traces.append(Trace(name=f"{side} {name}", x=list(path), y=ys, says=said, hollow=side == "CPU", **look))
            for n, m in path.items():
                judged = judge(m, roofs)
                judgments.append(judged)
                rows.append((precision, name, side, n, labels.threads(m), row_words.rate(m), judged.share))
        tops = join(f"{flops_rate(rate)} on the {side} ({at})" for side, (rate, at) in best.items())
        axes = Axis(title="n of an n x n x n product", unit="count"), Axis(title="rate", unit="FLOP/s")
        views.append(View(label=precision, x=axes[0], y=axes[1], traces=traces, says=f"{precision}: at best {tops}."))
    heads = "precision | kernel | on the | n | threads | rate | of its roof"
    if not views:
        return []
    return [
        Chart(
            name="rates",
            title="Rate of every kernel, by size",
            views=views,
            numbers=Table(heads, rows, 3),
            picture="rates.svg",
            chooses="Precision",
            note=mark_note(judgments),
        )
    ]
