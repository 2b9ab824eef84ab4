"""What the pictures share: colors that color-blind people tell apart, marks, text as text, output that never varies."""

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from analysis.stats import Estimate

# Okabe and Ito (2008), without the yellow that is hard to see on white.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GRAY = "#666666"
COLORS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ((), (5, 2), (1, 1.5), (6, 2, 1, 2), (3, 1), (8, 3), (2, 2))
# The same hues, dark enough to read as text on white.
_INK = {ORANGE: "#8F6000", SKY: "#20749F", GREEN: "#00704F", PURPLE: "#9C4475", RED: "#B34E00"}
PRECISIONS = {"float32": BLUE, "float64": RED, "tf32": GREEN, "float16": PURPLE, "bfloat16": ORANGE}
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "crossover",
    "font.size": 10.5,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
}


def ink(color: str) -> str:
    """The color for text."""
    return _INK.get(color, color)


@contextlib.contextmanager
def picture(
    title: str,
    x: str,
    y: str,
    size: tuple[float, float] = (10.0, 6.0),
    right: float = 0.74,
    left: float = 0.115,
    below: float = 0.0,
) -> Iterator:
    """A log-log figure of `size` inches and its axes, with room for labels right of `right` and `below` inches under the axes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=size)
        bottom, top = (0.57 + below) / size[1], 1 - 0.42 / size[1]
        axes = figure.add_axes((left, bottom, right - left, top - bottom))
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axes.set_title(title, loc="left", fontsize=11.5)
        yield figure, axes


def shaded(axes, x, y: Sequence[Estimate], color: str, alpha: float, **how) -> None:
    """A line through estimates with their intervals shaded."""
    axes.plot(x, [e.value for e in y], color=color, **how)
    axes.fill_between(x, [e.low for e in y], [e.high for e in y], color=color, alpha=alpha, lw=0)


def sizes_axis(axes, sizes: Iterable[int]) -> None:
    """Puts the measured sizes on the x axis as whole numbers, as many as there is room for."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    sizes = sorted(set(sizes))
    if not sizes:
        return
    low, high = math.log(sizes[0]), math.log(sizes[-1])
    powers = [n for n in sizes if n & (n - 1) == 0] or sizes
    kept: list[int] = []
    for n in powers:
        if not kept or math.log(n) - math.log(kept[-1]) > 0.055 * (high - low):
            kept.append(n)
    axes.xaxis.set_major_locator(FixedLocator(kept))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:.0f}"))
    pad = 1.06 if high > low else 1.5
    axes.set_xlim(sizes[0] / pad, sizes[-1] * pad)


def unit_axis(axes, words) -> None:
    """Labels the y axis with `words(value)`, at the powers of ten, or 1 2 5 where there are few of them."""
    _in_words(axes.yaxis, axes.get_ylim(), words)
    axes.set_ylabel("")


def rates_axis(axes) -> None:
    """Labels the x axis with rates of arithmetic in the same way."""
    from analysis.units import flops_rate

    _in_words(axes.xaxis, axes.get_xlim(), flops_rate, 7)
    axes.set_xlabel("")


def _in_words(axis, limits: tuple[float, float], words, most: int = 20) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    few = math.log10(limits[1] / limits[0]) <= 2
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=most))
    axis.set_major_formatter(FuncFormatter(lambda value, _: re.sub(r"\.0+(?!\d)", "", words(value))))
    axis.set_minor_formatter(NullFormatter())


def label_right(axes, labels: Iterable[tuple[float, str, str]], fontsize: float = 9.5) -> None:
    """Writes (y, text, color) right of the axes at the height of y, moved apart where they would overlap.

    The axes' limits must be final: heights are worked out in their logarithm.
    """
    _label(axes, labels, fontsize, 1.0, 1.025, "left")


def label_left(axes, labels: Iterable[tuple[float, str, str]], start: float, fontsize: float = 9.5) -> None:
    """Writes (y, text, color) inside the axes, left of where the lines start (a fraction of the width)."""
    _label(axes, labels, fontsize, start, start - 0.035, "right")


def _label(axes, labels, fontsize: float, start: float, x: float, side: str) -> None:
    ends = {"shrinkA": 1, "shrinkB": 0, "relpos": (float(side == "right"), 0.5)}
    for at, y, text, color in _heights(axes, labels, fontsize):
        axes.annotate(
            text,
            xy=(start, at),
            xytext=(x, y),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=ink(color),
            va="center",
            ha=side,
            fontsize=fontsize,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.6, **ends},
        )


def _heights(axes, labels, fontsize: float) -> list[tuple[float, float, str, str]]:
    """(height, height of its label, text, color) in fractions of the axes' height, from the bottom up."""
    low, high = (math.log(y) for y in axes.get_ylim())
    inches = axes.figure.get_size_inches()[1] * axes.get_position().height
    gap = 1.33 * fontsize / 72 / inches
    wanted = sorted(((math.log(y) - low) / (high - low), text, color) for y, text, color in labels)
    moved = spread([w[0] for w in wanted], gap, 0.0, 1.0)
    return [(at, y, text, color) for (at, text, color), y in zip(wanted, moved, strict=True)]


def note(
    axes, text: str, at: tuple[float, float], color: str, places: Iterable[tuple[float, float]], fontsize: float = 9
) -> bool:
    """Writes a text beside a point, or above or below it (0 right): at that of the places (points right and up of it) where
    it covers no other text, leaves the axes nowhere and covers few lines, the first ones preferred. False where there is
    none, and then nothing is written. The axes' limits must be final."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(axes.figure).get_renderer()
    taken = [t.get_window_extent(renderer) for t in axes.texts]
    inside, drawn = axes.get_window_extent(renderer), _drawn(axes)
    found = []
    for rank, (right, up) in enumerate(places):
        made = axes.annotate(
            text,
            at,
            xytext=(right, up),
            textcoords="offset points",
            fontsize=fontsize,
            color=ink(color),
            ha="center" if not right else "left" if right > 0 else "right",
            va="center",
            zorder=4,
            bbox={"fc": "white", "ec": "none", "alpha": 0.75, "pad": 0.4},
        )
        box = made.get_window_extent(renderer)
        within = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
        if within and not any(box.overlaps(other) for other in taken):
            covered = ((box.min <= drawn) & (drawn <= box.max)).all(axis=1).sum()
            found.append((rank + covered, rank, made))
        else:
            made.remove()
    found.sort(key=lambda candidate: candidate[:2])
    for _, _, made in found[1:]:
        made.remove()
    return bool(found)


def _drawn(axes) -> np.ndarray:
    """Points along all lines, in the figure's own units, a few pixels apart."""
    found = [np.empty((0, 2))]
    for line in axes.lines:
        for a, b in itertools.pairwise(axes.transData.transform(line.get_xydata())):
            steps = max(1, int(math.hypot(*(b - a)) / 4))
            found.append(a + (b - a) * np.arange(steps + 1)[:, None] / steps)
    return np.concatenate(found)


def spread(heights: list[float], gap: float, least: float = -math.inf, most: float = math.inf) -> list[float]:
    """Rising heights moved apart to at least `gap`, as near to where they were as can be (clusters keep their mean), and
    between `least` and `most` where they fit in there."""
    clusters = [[h] for h in heights]

    def bottom(cluster: list[float]) -> float:
        tall = gap * (len(cluster) - 1)
        return max(least, min(most - tall, sum(cluster) / len(cluster) - tall / 2))

    merged = True
    while merged:
        merged = False
        for i in range(len(clusters) - 1):
            top = bottom(clusters[i]) + gap * (len(clusters[i]) - 1)
            if bottom(clusters[i + 1]) - top < gap - 1e-12:
                clusters[i : i + 2] = [clusters[i] + clusters[i + 1]]
                merged = True
                break
    return [bottom(c) + k * gap for c in clusters for k in range(len(c))]
