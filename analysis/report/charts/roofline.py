"""The hierarchical roofline as a chart: levels of memory, arithmetic, the link and the launch of both devices; square matmuls as
n grows, and layers as their batch does."""

import math

from analysis.crossover import layers
from analysis.crossover.families import batch_family, precision_of
from analysis.report.charts import overlay
from analysis.report.charts.chart import DASHES, PRECISIONS, Axis, Chart, Trace, View, rounded
from analysis.report.charts.choose import best_resident
from analysis.report.pictures import roofline
from analysis.report.terminal import fraction_words, roof_name, roof_rate
from analysis.roofline.bounds import Roof, judge, pick
from analysis.roofline.roofs import WAITED
from analysis.stats import call_s, is_gpu, quick_seconds
from analysis.text import training as row_words
from analysis.units import digits, flops_rate, join, seconds
from workloads.records import Measurement

_LEVELS = {"cpu": "blue", "gpu": "vermillion"}
_RIGHT = 30_000.0
_WALKS = 12  # layers that are drawn as walks, those with most work
_LEAST = 3  # batches that make a walk


def chart(measurements: "list[Measurement]", roofs: tuple[Roof, ...]) -> list[Chart]:
    """One view of the square matmuls and one of the layers, as far as there are any; none without roofs and rows."""
    if not roofline.has_any(measurements, roofs):
        return []
    paths, walks = best_resident(measurements), _walks(measurements)
    rows, views = [], []
    if paths or not walks:
        found = [_path(device, precision, path) for (device, precision), path in paths.items()]
        views.append(_view("square matmuls, n growing", roofs, found, _said(paths)))
    if walks:
        found = [_walk(label, device, path, i) for i, ((label, device), path) in enumerate(walks.items())]
        says = (
            f"{len({label for label, _ in walks})} layers walk up and to the right as their batch grows; small batches do too "
            "little for each call and each byte to come near a roof."
        )
        views.append(_view("layers, their batch growing", roofs, found, says))
    for (device, precision), path in paths.items():
        rows += [(f"matmul {precision}", device, f"n = {n}", *_cells(m, roofs)) for n, m in path.items()]
    for (label, device), walk in walks.items():
        rows += [(label, device, f"batch {layers.size_of(m.problem)}", *_cells(m, roofs)) for m in walk]
    rows += [(roof_name(r), r.device, "a roof", "-", roof_rate(r), "-") for r in roofs if r.measured]
    heads = ("what", "device", "at", "FLOP per byte", "rate", "of its roof")
    title = "Roofline: how far from the hardware's limit"
    return [Chart("roofline", title, views, heads, rows, "roofline.svg", "Points")]


def _cells(m: "Measurement", roofs: tuple[Roof, ...]) -> tuple[str, str, str]:
    return digits(_intensity(m)), row_words.rate(m), fraction_words(judge(m, roofs))


def _intensity(m: "Measurement") -> float:
    return m.problem.flops / m.problem.bytes_moved


def _view(label: str, roofs: tuple[Roof, ...], points: list[Trace], says: str) -> View:
    """The points under the roofs, whose names stand beside them: slopes' on the left, level lines' on the right."""
    xs, ys = [x for t in points for x in t.x], [y for t in points for y in t.y]
    left, right = min([1.0, *xs]) / 3, max([100.0, *xs]) * 2
    tops = [r.rate.value for r in roofs if r.kind == "compute"] + ys
    memory = [left * r.rate.value for r in roofs if r.kind in ("memory", "cache")]
    bottom, top = min([*ys, *memory, *(tops[:1])], default=1e9) / 2, max(tops, default=1e12) * 2
    drawn = overlay.named(_roofs(roofs, left, right, bottom), math.log(bottom), math.log(top))
    return View(
        label,
        Axis("FLOP per byte that must move", "times", ends=(rounded(left), rounded(right))),
        Axis("rate", "flops", ends=(rounded(bottom), rounded(top))),
        [*drawn, *points],
        says,
    )


def _said(paths: dict) -> str:
    told = []
    for (device, precision), path in paths.items():
        m = path[max(path)]
        if precision == "float32":
            told.append(f"the {'GPU' if is_gpu(device) else 'CPU'} {row_words.rate(m)} at n = {max(path)}")
    return (
        f"float32 products reach {join(told)}, under the roofs measured on this machine."
        if told
        else ("Square matmuls under the roofs measured on this machine.")
    )


def _roofs(roofs: tuple[Roof, ...], low: float, high: float, bottom: float) -> list[Trace]:
    """Slopes for bytes, level lines for arithmetic, curves for a call that does nothing."""
    made = []
    for roof, _ in roofline.slopes_of(roofs):
        end = min(high, _top(roofs, roof) / roof.rate.value)
        side = "gpu" if is_gpu(roof.device) else "cpu"
        link, sheet = roof.kind == "link", not roof.measured
        name = f"{'data sheet: ' if sheet else ''}{'' if link else side.upper() + ' '}{roof_name(roof)}"
        start = max(low, bottom / roof.rate.value)
        made.append(
            _line(
                name,
                roof_rate(roof),
                [(start, start * roof.rate.value), (end, end * roof.rate.value)],
                "sky" if link else "ink" if sheet else _LEVELS[side],
                "dashdot" if link else "dot" if sheet else "solid" if roof.kind == "memory" else "dash",
                True,
            )
        )
    for device in dict.fromkeys(r.device for r in roofs):
        memory = pick(roofs, device, "memory")
        side = "GPU" if is_gpu(device) else "CPU"
        for name in dict.fromkeys(r.name for r in roofs if r.measured and (r.device, r.kind) == (device, "compute")):
            if (level := pick(roofs, device, "compute", name)) is None:
                continue
            start = max(
                low,
                level.rate.value
                / max(
                    (
                        r.rate.value
                        for r in roofs
                        if r.device == device and r.measured and r.kind in ("memory", "cache")
                    ),
                    default=level.rate.value / low,
                ),
            )
            color = PRECISIONS.get(name.partition(" ")[0], "ink")
            ridge = f", ridge at {digits(level.rate.value / memory.rate.value)} FLOP per byte" if memory else ""
            made.append(
                _line(
                    f"{side} {name}",
                    roof_rate(level) + ridge,
                    [(start, level.rate.value), (high, level.rate.value)],
                    color,
                    "solid",
                )
            )
    for roof in (r for r in roofs if r.kind == "launch"):
        # at the intensity of a float32 matmul of n, which is n / 6: 2 n^3 FLOP in the time of an empty call
        ends = [
            (x, 2 * (6 * x) ** 3 * roof.rate.value)
            for x in (max(low, _launch_at(roof, bottom)), min(high, _launch_at(roof, 1e15)))
        ]
        made.append(
            _line(
                f"empty {roof.name} (float32 matmuls)",
                f"{seconds(1 / roof.rate.value)} a call",
                ends,
                "purple",
                "dash" if roof.name == WAITED else "dot",
                None,
            )
        )
    return made


def _launch_at(roof: Roof, rate: float) -> float:
    """The intensity of the float32 matmul that has that rate when it takes as long as an empty call."""
    return (rate / (2 * roof.rate.value)) ** (1 / 3) / 6


def _top(roofs: tuple[Roof, ...], of: Roof) -> float:
    peaks = [r.rate.value for r in roofs if (r.device, r.kind, r.measured) == (of.device, "compute", of.measured)]
    return max(peaks, default=of.rate.value * _RIGHT)


def _line(
    name: str, rate: str, ends: list[tuple[float, float]], color: str, dash: str, left: bool | None = False
) -> Trace:
    """A roof; points along it, so that the pointer finds it anywhere. Its name stands at its left or right end, or (None) in the
    legend."""
    (x0, y0), (x1, y1) = ends
    if x1 <= x0:
        x1, y1 = x0 * 1.01, y0
    parts = [i / 8 for i in range(9)]
    xs = [rounded(x0 * (x1 / x0) ** p) for p in parts]
    ys = [rounded(y0 * (y1 / y0) ** p) for p in parts]
    return Trace(
        name,
        xs,
        ys,
        color,
        dash=dash,
        says=[f"{name}: {rate}"] * len(xs),
        label_left=bool(left),
        label="" if left is None else f"{name.replace(' bandwidth', '')} {rate.partition(',')[0]}",
    )


def _path(device: str, precision: str, path: "dict[int, Measurement]") -> Trace:
    where = "GPU" if is_gpu(device) else "CPU"
    ns = sorted(path)
    says = [f"{where} {precision}, n = {n}: {row_words.rate(path[n])}, {path[n].label}" for n in ns]
    return Trace(
        f"{where} {precision} matmul",
        [rounded(_intensity(path[n])) for n in ns],
        [rounded(path[n].problem.flops / quick_seconds(path[n])) for n in ns],
        PRECISIONS.get(precision, "ink"),
        "square" if is_gpu(device) else "circle",
        "solid" if is_gpu(device) else "dot",
        says=says,
        hollow=not is_gpu(device),
    )


def _walks(measurements: "list[Measurement]") -> "dict[tuple[str, str], list[Measurement]]":
    """(layer, device) -> the fastest library row of the first precision at each batch, by rising batch; the layers with most work
    and with enough batches."""
    best: dict = {}
    for op in ("conv", "matmul"):
        for m in layers.timed(measurements, op):
            p = m.problem
            if (
                layers.framework_of(m)
                or layers.is_square(p)
                or precision_of(p) != "float32"
                or m.settings.cache != "warm"
            ):
                continue
            at = best.setdefault((batch_family(p), m.device), {})
            size = layers.size_of(p)
            at[size] = min(at.get(size, m), m, key=call_s)
    kept = {key: [at[size] for size in sorted(at)] for key, at in best.items() if len(at) >= _LEAST}
    ranked = sorted(
        {family for family, _ in kept},
        key=lambda f: -max(path[-1].problem.flops for (g, _), path in kept.items() if g == f),
    )[:_WALKS]
    return {(_label(family), device): path for (family, device), path in kept.items() if family in ranked}


def _label(family) -> str:
    from analysis.text import answers

    return answers.family_name(family)


def _walk(label: str, device: str, path: "list[Measurement]", i: int) -> Trace:
    where = "GPU" if is_gpu(device) else "CPU"
    says = [
        f"{label} on the {where}, batch {layers.size_of(m.problem)}: {flops_rate(m.problem.flops / quick_seconds(m))}"
        for m in path
    ]
    return Trace(
        f"{where} {label}",
        [rounded(_intensity(m)) for m in path],
        [rounded(m.problem.flops / quick_seconds(m)) for m in path],
        "vermillion" if is_gpu(device) else "blue",
        ("triangle-up", "diamond", "square", "circle", "cross", "x")[i // 2 % 6],
        DASHES[i // 2 % len(DASHES)],
        says=says,
        hollow=not is_gpu(device),
        legend=False,
    )
