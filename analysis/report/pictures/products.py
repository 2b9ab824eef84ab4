"""The pictures: figures from records, saved as SVG that is the same for the same input. Needs matplotlib."""

import math
import os
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis.crossover.crossover import Answer
from analysis.report.charts.choose import by_kernel, lines, spans
from analysis.report.pictures.style import (
    BLACK,
    BLUE,
    COLORS,
    DASHES,
    GREEN,
    MARKERS,
    ORANGE,
    PRECISIONS,
    PURPLE,
    RED,
    SETTINGS,
    SKY,
    label_right,
    picture,
    shaded,
    sizes_axis,
    unit_axis,
)
from analysis.stats import quick_seconds
from analysis.text.crossings import form_name, short_n_words
from analysis.units import flops_rate, seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workloads.records import Measurement

_LINES = {
    "CPU, best": BLUE,
    "GPU, one call": RED,
    "GPU, queued calls": PURPLE,
    "GPU, copies as written": ORANGE,
    "GPU, copies, pinned": GREEN,
    "GPU, copies, pageable": BLACK,
    "CPU, default threads": SKY,
}
BANDS = {-1: (SKY, "CPU wins"), 0: ("#BBBBBB", "can't tell"), 1: (ORANGE, "GPU wins")}


def save(figure: "Figure", path: "str | os.PathLike") -> pathlib.Path:
    """Writes the figure (format by suffix) without a date, so that the same input gives the same bytes."""
    import matplotlib

    path = pathlib.Path(path)
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


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
            x, y = zip(*line, strict=True)
            shaded(axes, x, y, color, 0.25, marker=MARKERS[style], dashes=DASHES[style], ms=4.5, lw=1.5)
            labels.append((y[-1].value, label, color))
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
        color, words = BANDS[sign]
        left, right = (low if first == a.points[0].n else first), (high if last == a.points[-1].n else last)
        axes.axvspan(left, right, color=color, alpha=0.16, lw=0)
        if math.log(right / left) > 0.13 * math.log(high / low):
            axes.text(math.sqrt(left * right), 0.985, words, transform=across, ha="center", va="top", fontsize=10)
    for c in (c for c in a.crossings if not c.wide):
        axes.axvline(c.at.value, color=BLACK, lw=1, dashes=(2, 2))
        axes.annotate(
            short_n_words(c, a.family.size_name),
            (c.at.value, 0.93),
            xycoords=across,
            xytext=(4, 0),
            va="top",
            textcoords="offset points",
            fontsize=10,
        )


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
