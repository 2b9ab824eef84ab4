"""The hierarchical roofline of both devices: levels of memory, arithmetic, the link, the launch, and matmuls under them."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis.crossover import layers
from analysis.crossover.families import precision_of
from analysis.report.charts.choose import best_resident
from analysis.report.pictures.style import (
    BLACK,
    GRAY,
    PRECISIONS,
    PURPLE,
    SKY,
    ink,
    label_left,
    label_right,
    note,
    picture,
    unit_axis,
)
from analysis.roofline.bounds import Roof, pick, ridge
from analysis.roofline.roofs import WAITED
from analysis.stats import call_s, is_gpu, quick_seconds
from analysis.units import bytes_rate, flops_rate, join, seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workloads.records import Measurement

_SHEET = {"color": GRAY, "lw": 0.9, "dashes": (4, 3)}
_LINK = {"color": SKY, "lw": 1.1, "dashes": (7, 2, 1.5, 2)}
_LAUNCH = {WAITED: (PURPLE, (3, 1.5)), "": (PURPLE, (1, 1.2))}
_FONT = 9
_COLUMN = 0.36  # of the axes' width: the names of the slopes stand left of where these start
_FEWEST_POWERS = 3
_MARKS = {"conv": ("^", "convolution"), "matmul": ("v", "layer's product")}
_BESIDE = ((8, -10), (0, -13), (-8, -10), (8, 10), (0, 13), (-8, 10), (10, 0), (-10, 0), (0, -24), (0, 24))


def figure(measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]") -> "Figure":
    """Slopes: every level of memory, and the link; level lines: arithmetic; data-sheet peaks dashed; curves: what a call
    that computes nothing leaves of the rate of small float32 matmuls; points: square matmuls, n growing to the right, and
    each convolution and dense layer at its largest batch."""
    paths = {key: _powers(path) for key, path in best_resident(measurements).items()}
    others = layer_points(measurements)
    points = [_point(m) for m in (*(m for path in paths.values() for m in path.values()), *others)]
    corners = [ridge(c, m) for c, m in _pairs(roofs)]
    left, right = min([1.0, *(x for x, _ in points), *corners]) / 2, max([100.0, *(x for x, _ in points), *corners]) * 3
    slopes, tops = slopes_of(roofs), [r.rate.value for r in roofs if r.kind == "compute"] + [y for _, y in points]
    kinds = ["square matmuls"] * bool(paths or not others) + ["layers"] * bool(others)
    title = f"Roofline: {join(kinds)}, data resident"
    with picture(title, "FLOP per byte that must move", "FLOP/s", (8.0, 8.8), 0.685, 0.15, 0.95) as (made, axes):
        edge = left * (left / right) ** (_COLUMN / (1 - _COLUMN)) if slopes else left
        axes.set_xlim(edge, right)
        if tops:
            low = min([y for _, y in points] or tops) / 2.5
            axes.set_ylim(min([low, *(0.8 * left * r.rate.value for r, _ in slopes)]), max(tops) * 2)
        bottom, top = axes.get_ylim()
        labels = _draw_compute(axes, roofs, left, right)
        for roof, style in slopes:
            end = min(_slope_end(roof, roofs, right), top / roof.rate.value)
            axes.plot([left, end], [left * roof.rate.value, end * roof.rate.value], **style)
        _draw_launches(axes, roofs, left, right, (bottom, top))
        for (device, precision), path in paths.items():
            _draw_path(axes, device, precision, path)
        for m in others:
            gpu, color = m.on_gpu, PRECISIONS.get(precision_of(m.problem), BLACK)
            axes.plot(
                *([at] for at in _point(m)),
                color=color,
                marker=_MARKS[m.problem.op][0],
                ms=5,
                ls="",
                alpha=0.8,
                mew=0.9,
                mfc=color if gpu else "white",
                zorder=3,
            )
        axes.set_xlim(edge, right)
        axes.set_ylim(bottom, top)
        unit_axis(axes, flops_rate)
        _ticks(axes, left, right)
        label_left(
            axes,
            [(left * r.rate.value, _slope_name(r, roofs), s["color"]) for r, s in slopes],
            math.log(left / edge) / math.log(right / edge),
            _FONT,
        )
        label_right(axes, labels, _FONT)
        for (device, precision), path in paths.items():
            if precision == "float32":
                _name_ends(axes, device, path)
        _legend(made, roofs, paths, others)
    return made


def has_any(measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]") -> bool:
    """Whether there is anything to draw: a measured ceiling of arithmetic or memory, or a point."""
    measurements = list(measurements)
    drawn = any(r.measured and r.kind in ("compute", "memory", "cache") for r in roofs)
    return drawn or bool(best_resident(measurements) or layer_points(measurements))


def layer_points(measurements: "Iterable[Measurement]") -> "list[Measurement]":
    """The fastest library row of every convolution and dense layer at its largest batch, a device and arithmetic."""
    best: dict = {}
    for m in (m for op in _MARKS for m in layers.largest(measurements, op)):
        if not layers.framework_of(m):
            key = (m.problem, m.device)
            best[key] = min(best.get(key, m), m, key=call_s)
    return list(best.values())


def _point(m: "Measurement") -> tuple[float, float]:
    return _intensity(m), m.problem.flops / call_s(m)


def _powers(path: "dict[int, Measurement]") -> "dict[int, Measurement]":
    """The sizes that are powers of two, where there are enough of them: those added around a crossing crowd the picture."""
    powers = {n: m for n, m in path.items() if n & (n - 1) == 0}
    return powers if len(powers) >= _FEWEST_POWERS else path


def _intensity(m: "Measurement") -> float:
    return m.problem.flops / m.problem.bytes_moved


def _pairs(roofs: "tuple[Roof, ...]") -> "Iterable[tuple[Roof, Roof]]":
    """Each device's best compute roofs with its memory roof, its highest one with every level."""
    for device in dict.fromkeys(r.device for r in roofs if r.measured):
        names = dict.fromkeys(r.name for r in roofs if r.measured and (r.device, r.kind) == (device, "compute"))
        peaks = [peak for name in names if (peak := pick(roofs, device, "compute", name))]
        memory = pick(roofs, device, "memory")
        yield from ((peak, memory) for peak in peaks if memory)
        highest = max(peaks, key=lambda r: r.rate.value, default=None)
        yield from ((highest, cache) for cache in _caches(roofs, device) if highest)


def _caches(roofs: "tuple[Roof, ...]", device: str) -> list[Roof]:
    """The levels before the memory, measured with as many threads as its best roof: one of fewer threads may lie below it."""
    memory = pick(roofs, device, "memory")
    found = [r for r in roofs if r.measured and (r.device, r.kind) == (device, "cache")]
    most = memory.threads if memory else max((r.threads or 0 for r in found), default=0) or None
    return [r for r in found if r.threads == most]


def slopes_of(roofs: "tuple[Roof, ...]") -> list[tuple[Roof, dict]]:
    """Every level's best roof, the link's slower direction, the data sheet's memory, with how they are drawn."""
    found = []
    for device in dict.fromkeys(r.device for r in roofs):
        found += [(r, {"color": BLACK, "lw": 0.9}) for r in _caches(roofs, device)]
        if memory := pick(roofs, device, "memory"):
            found.append((memory, {"color": BLACK, "lw": 1.6}))
        links = [r for r in roofs if r.measured and (r.device, r.kind) == (device, "link")]
        if links:
            found.append((min(links, key=lambda r: r.rate.value), _LINK))
        found += [(r, _SHEET) for r in roofs if not r.measured and (r.device, r.kind) == (device, "memory")]
    return found


def _slope_end(roof: Roof, roofs, right: float) -> float:
    """Where the slope meets the device's highest compute roof of its sort (measured, or the data sheet's)."""
    peaks = [r.rate.value for r in roofs if (r.device, r.kind, r.measured) == (roof.device, "compute", roof.measured)]
    return min(right, max(peaks) / roof.rate.value) if peaks else right


def _slope_name(roof: Roof, roofs) -> str:
    what = f"link {roof.name}" if roof.kind == "link" else f"{_side(roof.device, roofs)} {roof.name}"
    return f"{what if roof.measured else f'sheet {roof.name}'} {bytes_rate(roof.rate.value)}"


def _draw_compute(axes, roofs, left: float, right: float) -> list[tuple[float, str, str]]:
    """Draws every device's best compute roofs; their labels."""
    labels = []
    for device in dict.fromkeys(r.device for r in roofs):
        memory = pick(roofs, device, "memory")
        fastest = max((r.rate.value for r in (*_caches(roofs, device), memory) if r), default=0)
        for name in dict.fromkeys(r.name for r in roofs if r.measured and (r.device, r.kind) == (device, "compute")):
            roof, color = pick(roofs, device, "compute", name), PRECISIONS.get(name.partition(" ")[0], BLACK)
            if roof is None:
                continue
            start = max(left, roof.rate.value / fastest) if fastest else left
            axes.plot([start, right], [roof.rate.value] * 2, color=color, lw=1.6)
            if memory:
                axes.plot([ridge(roof, memory)], [roof.rate.value], marker="D", ms=5, color=color, mfc="white", ls="")
            labels.append((roof.rate.value, f"{_side(device, roofs)} {name} {flops_rate(roof.rate.value)}", color))
        labels += _draw_sheet(axes, roofs, device, left, right)
    return labels


def _draw_sheet(axes, roofs, device: str, left: float, right: float) -> list[tuple[float, str, str]]:
    """The data sheet's peaks, dashed: one label for those that are equal."""
    sheet = [r for r in roofs if r.device == device and not r.measured]
    memory = next((r for r in sheet if r.kind == "memory"), None)
    peaks: dict[float, list[str]] = {}
    for r in sheet:
        if r.kind == "compute":
            peaks.setdefault(r.rate.value, []).append(r.name)
    for rate in peaks:
        axes.plot([rate / memory.rate.value if memory else left, right], [rate] * 2, **_SHEET)
    return [(rate, f"sheet {', '.join(names)} {flops_rate(rate)}", GRAY) for rate, names in peaks.items()]


def _draw_launches(axes, roofs, left: float, right: float, limits: tuple[float, float]) -> None:
    """flops(n) over the seconds of an empty call, at the intensity of a float32 matmul of n: 2 n^3 FLOP, n / 6 a byte."""
    for roof in (r for r in roofs if r.kind == "launch"):
        color, dashes = _LAUNCH.get(roof.name, _LAUNCH[""])
        ends = [max(left, _launch_intensity(roof, limits[0])), min(right, _launch_intensity(roof, limits[1]))]
        axes.plot(ends, [2 * (6 * x) ** 3 * roof.rate.value for x in ends], color=color, lw=1.3, dashes=dashes)


def _launch_intensity(roof: Roof, rate: float) -> float:
    """The intensity of the float32 matmul that has that rate when it takes as long as an empty call."""
    return (rate / (2 * roof.rate.value)) ** (1 / 3) / 6


def _side(device: str, roofs) -> str:
    gpus = {r.device for r in roofs if is_gpu(r.device)}
    return "CPU" if not is_gpu(device) else "GPU" if len(gpus) == 1 else device.upper().replace(":", " ")


def _draw_path(axes, device: str, precision: str, path: "dict[int, Measurement]") -> None:
    ns, gpu, color = sorted(path), is_gpu(device), PRECISIONS.get(precision, BLACK)
    axes.plot(
        [_intensity(path[n]) for n in ns],
        [path[n].problem.flops / quick_seconds(path[n]) for n in ns],
        color=color,
        marker="s" if gpu else "o",
        ms=4.5,
        lw=0.9,
        dashes=() if gpu else (1, 1.5),
        mfc=color if gpu else "white",
        zorder=3,
    )


def _name_ends(axes, device: str, path: "dict[int, Measurement]") -> None:
    """n beside the first and the last point, where there is room."""
    for n in sorted({min(path), max(path)}):
        at, color = (_intensity(path[n]), path[n].problem.flops / quick_seconds(path[n])), PRECISIONS["float32"]
        note(axes, f"n = {n}", at, color, _BESIDE, _FONT)


def _ticks(axes, left: float, right: float) -> None:
    """Powers of ten from where the slopes start; left of it stand their names."""
    from matplotlib.ticker import FixedLocator, NullLocator

    powers = range(math.ceil(math.log10(left)), math.floor(math.log10(right)) + 1)
    axes.xaxis.set_major_locator(FixedLocator([10.0**p for p in powers]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")


def _legend(made, roofs, paths, others) -> None:
    from matplotlib.lines import Line2D

    compute = [r.name.partition(" ")[0] for r in roofs if r.kind == "compute" and r.measured]
    precisions = dict.fromkeys(
        [*(precision for _, precision in paths), *(precision_of(m.problem) for m in others), *compute]
    )
    handles = [Line2D([], [], color=PRECISIONS.get(p, BLACK), lw=3, label=p) for p in precisions]
    kinds = dict.fromkeys(is_gpu(device) for device, _ in paths)
    handles += [
        Line2D(
            [],
            [],
            color=BLACK,
            marker="s" if gpu else "o",
            mfc=BLACK if gpu else "white",
            lw=0.9,
            dashes=() if gpu else (1, 1.5),
            label="GPU, n growing" if gpu else "CPU, n growing",
        )
        for gpu in kinds
    ]
    for op, gpu in dict.fromkeys((m.problem.op, m.on_gpu) for m in others):
        (marker, words), where = _MARKS[op], "GPU" if gpu else "CPU"
        handles.append(
            Line2D([], [], color=BLACK, marker=marker, mfc=BLACK if gpu else "white", ls="", label=f"{where} {words}")
        )
    handles.append(Line2D([], [], color=BLACK, marker="D", mfc="white", ls="", label="ridge point"))
    for roof in (r for r in roofs if r.kind == "launch"):
        color, dashes = _LAUNCH.get(roof.name, _LAUNCH[""])
        name = f"empty {roof.name}, {seconds(1 / roof.rate.value)} (float32)"
        handles.append(Line2D([], [], color=ink(color), dashes=dashes, lw=1.3, label=name))
    made.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.02, 0.005), fontsize=_FONT, ncols=3)
