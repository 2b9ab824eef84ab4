"""The pictures: figures from records, saved as SVG that is the same for the same input. Needs matplotlib."""

import math
import os
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis.crossover import Answer
from analysis.report.choose import best_resident, by_kernel, lines, spans
from analysis.report.style import (
    BLACK,
    BLUE,
    COLORS,
    DASHES,
    GRAY,
    GREEN,
    MARKERS,
    ORANGE,
    PRECISIONS,
    PURPLE,
    RED,
    SETTINGS,
    SKY,
    ink,
    label_right,
    picture,
    sizes_axis,
    unit_axis,
)
from analysis.roofline import Roof, is_gpu, pick, quick_seconds, ridge
from analysis.sentences import form_name
from analysis.units import bytes_rate, digits, flops_rate, seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workloads.results import Measurement

_LINES = {"CPU, best": BLUE, "GPU, one call": RED, "GPU, queued calls": PURPLE, "GPU, copies as written": ORANGE,
          "GPU, copies, pinned": GREEN, "GPU, copies, pageable": BLACK, "CPU, default threads": SKY}  # fmt: skip
_BANDS = {-1: (SKY, "CPU wins"), 0: ("#BBBBBB", "can't tell"), 1: (ORANGE, "GPU wins")}


def save(figure: "Figure", path: "str | os.PathLike") -> pathlib.Path:
    """Writes the figure (format by suffix) without a date, so that the same input gives the same bytes."""
    import matplotlib

    path = pathlib.Path(path)
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def roofline(measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]") -> "Figure":
    """Both devices: compute and memory roofs, ridge points, data-sheet peaks dashed, square matmuls walking right."""
    paths = best_resident(measurements)
    intensities = [m.problem.flops / m.problem.bytes_moved for path in paths.values() for m in path.values()]
    intensities += [ridge(c, m) for c, m in _pairs(roofs)]
    left, right = min([1.0, *intensities]) / 2, max([100.0, *intensities]) * 1.6
    title = "Roofline: square matmuls, data resident, n growing to the right"
    with picture(title, "arithmetic intensity (FLOP per byte that must move)", "FLOP/s", right=0.70) as (figure, axes):
        axes.set_xlim(left, right)
        labels = _draw_roofs(axes, roofs, left, right)
        for (device, precision), path in paths.items():
            _draw_path(axes, device, precision, path)
        rates = [m.problem.flops / quick_seconds(m) for path in paths.values() for m in path.values()]
        top = [r.rate.value for r in roofs if r.kind == "compute"] + rates
        if top:
            axes.set_ylim(min(rates or top) / 3, max(top) * 2.2)
        unit_axis(axes, flops_rate)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        _slope_labels(axes, roofs)
        label_right(axes, labels)
        _legend(axes, paths)
    return figure


def _pairs(roofs: "tuple[Roof, ...]") -> "Iterable[tuple[Roof, Roof]]":
    """Each device's best compute roofs with its memory roof."""
    for device in dict.fromkeys(r.device for r in roofs if r.measured):
        memory = pick(roofs, device, "memory")
        for name in dict.fromkeys(r.name for r in roofs if r.measured and (r.device, r.kind) == (device, "compute")):
            if memory:
                yield pick(roofs, device, "compute", name), memory


def _draw_roofs(axes, roofs, left: float, right: float) -> list[tuple[float, str, str]]:
    """Draws every device's best roofs; the labels for the compute roofs."""
    labels = []
    for device in dict.fromkeys(r.device for r in roofs):
        memory, side = pick(roofs, device, "memory"), _side(device, roofs)
        names = dict.fromkeys(r.name for r in roofs if (r.device, r.kind) == (device, "compute"))
        measured = {name: roof for name in names if (roof := pick(roofs, device, "compute", name))}
        if memory:
            highest = max((ridge(r, memory) for r in measured.values()), default=right)
            axes.plot([left, highest], [left * memory.rate.value, highest * memory.rate.value], color=BLACK, lw=1.4)
        for name, roof in measured.items():
            start = ridge(roof, memory) if memory else left
            color = PRECISIONS.get(name.partition(" ")[0], BLACK)
            axes.plot([start, right], [roof.rate.value] * 2, color=color, lw=1.6)
            if memory:
                axes.plot([start], [roof.rate.value], marker="D", ms=5, color=color, mfc="white", ls="")
            labels.append((roof.rate.value, f"{side} {name} {flops_rate(roof.rate.value)}", color))
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
    style = {"color": GRAY, "lw": 0.9, "dashes": (4, 3)}
    for rate in peaks:
        axes.plot([rate / memory.rate.value if memory else left, right], [rate] * 2, **style)
    if memory:
        end = max(peaks, default=memory.rate.value * right) / memory.rate.value
        axes.plot([left, end], [left * memory.rate.value, end * memory.rate.value], **style)
    return [(rate, f"sheet {', '.join(names)} {flops_rate(rate)}", GRAY) for rate, names in peaks.items()]


def _side(device: str, roofs) -> str:
    gpus = {r.device for r in roofs if is_gpu(r.device)}
    return "CPU" if not is_gpu(device) else "GPU" if len(gpus) == 1 else device.upper().replace(":", " ")


def _slope_labels(axes, roofs) -> None:
    """Names the memory roofs below their slopes, inside the axes' final limits."""
    (left, _), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for device in dict.fromkeys(r.device for r in roofs):
        if memory := pick(roofs, device, "memory"):
            at = max(left * 1.25, bottom * (top / bottom) ** 0.06 / memory.rate.value)
            text = f"{_side(device, roofs)} {memory.name} {bytes_rate(memory.rate.value)}"
            axes.annotate(text, (at, at * memory.rate.value), xytext=(8, -7), textcoords="offset points", fontsize=9.5)


def _draw_path(axes, device: str, precision: str, path: "dict[int, Measurement]") -> None:
    ns = sorted(path)
    x = [path[n].problem.flops / path[n].problem.bytes_moved for n in ns]
    y = [path[n].problem.flops / quick_seconds(path[n]) for n in ns]
    gpu = is_gpu(device)
    color = PRECISIONS.get(precision, BLACK)
    axes.plot(x, y, color=color, marker="s" if gpu else "o", ms=4.5, lw=0.9, dashes=() if gpu else (1, 1.5),
              mfc=color if gpu else "white", zorder=3)  # fmt: skip
    if precision == "float32":
        for i in sorted({0, len(ns) - 1}):
            axes.annotate(f"n = {ns[i]}", (x[i], y[i]), xytext=(7, -7) if gpu else (6, -13), textcoords="offset points",
                          fontsize=9, color=ink(color), zorder=4,
                          bbox={"fc": "white", "ec": "none", "alpha": 0.75, "pad": 0.4})  # fmt: skip


def _legend(axes, paths) -> None:
    from matplotlib.lines import Line2D

    precisions = dict.fromkeys(precision for _, precision in paths)
    handles = [Line2D([], [], color=PRECISIONS.get(p, BLACK), lw=3, label=p) for p in precisions]
    kinds = dict.fromkeys(is_gpu(device) for device, _ in paths)
    handles += [Line2D([], [], color=BLACK, marker="s" if gpu else "o", mfc=BLACK if gpu else "white", lw=0.9,
                       dashes=() if gpu else (1, 1.5), label="GPU" if gpu else "CPU") for gpu in kinds]  # fmt: skip
    handles.append(Line2D([], [], color=BLACK, marker="D", mfc="white", ls="", label="ridge point"))
    axes.legend(handles=handles, loc="upper left", fontsize=9, ncols=2)


def crossover(answers: Iterable[Answer], measurements: "Iterable[Measurement]") -> "Figure":
    """Time of a call against n for the first precision; bands say who wins in the first form, crossings are marked."""
    answers = list(answers)
    named = answers[0] if answers else None
    title = "Time of one square matmul" + (f", {named.precision}" if named else "")
    title += f"; shaded: {form_name(named.form)}" if named and named.points else ""
    with picture(title, "n", "seconds", right=0.79) as (figure, axes):
        drawn = lines(answers, measurements)
        labels = []
        for i, (label, line) in enumerate(reversed(drawn.items())):
            style = list(_LINES).index(label) if label in _LINES else i % 7
            color = _LINES.get(label, COLORS[style])
            x, y = [n for n, _ in line], [e.value for _, e in line]
            axes.plot(x, y, color=color, marker=MARKERS[style], dashes=DASHES[style], ms=4.5, lw=1.5)
            axes.fill_between(x, [e.low for _, e in line], [e.high for _, e in line], color=color, alpha=0.25, lw=0)
            labels.append((y[-1], label, color))
        sizes_axis(axes, [n for line in drawn.values() for n, _ in line])
        axes.set_ylim(*_room_above(axes.get_ylim(), 0.12))
        unit_axis(axes, seconds)
        if named:
            _bands(axes, named)
        label_right(axes, labels)
    return figure


def _room_above(limits: tuple[float, float], part: float) -> tuple[float, float]:
    low, high = limits
    return low, high * (high / low) ** part


def _bands(axes, a: Answer) -> None:
    """Shades who wins in that form, and marks its crossings."""
    low, high = axes.get_xlim()
    across = axes.get_xaxis_transform()  # x in data, y in parts of the height
    for first, last, sign in spans(a):
        color, words = _BANDS[sign]
        left, right = (low if first == a.points[0].n else first), (high if last == a.points[-1].n else last)
        axes.axvspan(left, right, color=color, alpha=0.16, lw=0)
        if math.log(right / left) > 0.13 * math.log(high / low):
            axes.text(math.sqrt(left * right), 0.985, words, transform=across, ha="center", va="top", fontsize=10)
    for c in a.crossings:
        axes.axvline(c.at.value, color=BLACK, lw=1, dashes=(2, 2))
        axes.annotate(f"n = {digits(c.at.value)}", (c.at.value, 0.93), xycoords=across, xytext=(4, 0), va="top",
                      textcoords="offset points", fontsize=10)  # fmt: skip


def rates(measurements: "Iterable[Measurement]") -> "Figure":
    """GFLOP/s against n for every kernel (its best thread count; GPU on the device clock where there is one)."""
    paths = {key: path for key, path in by_kernel(measurements).items() if _shown(*key)}
    with picture("Rate of square matmuls, data resident", "n", "FLOP/s", right=0.70) as (figure, axes):
        labels = []
        for (kernel, precision), path in sorted(paths.items(), key=lambda item: _order(*item[0])):
            x, y = list(path), [m.problem.flops / quick_seconds(m) for m in path.values()]
            color = PRECISIONS.get(precision, BLACK)
            marker = MARKERS[_backend_index(kernel)]
            axes.plot(x, y, color=color, marker=marker, ms=4.5, lw=1.4, dashes=DASHES[_backend_index(kernel)])
            labels.append((y[-1], f"{kernel.partition('/')[2]} {precision}", color))
        sizes_axis(axes, [n for path in paths.values() for n in path])
        unit_axis(axes, flops_rate)
        label_right(axes, labels)
    return figure


def _backend_index(kernel: str) -> int:
    order = ("cupy", "numpy", "numba")
    backend = kernel.split("/")[1]
    return order.index(backend) if backend in order else 3


def _order(kernel: str, precision: str) -> tuple:
    return (_backend_index(kernel), precision != "float32", precision, kernel)


def _shown(kernel: str, precision: str) -> bool:
    """The operator's line would lie on the library's own."""
    return not kernel.endswith("/operator")
