"""What the pictures share: colors that color-blind people tell apart, marks, text as text, output that never varies."""

import contextlib
import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito (2008), without the yellow that is hard to see on white; as the page's style sheet has them.
COLORS = {
    "ink": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
    "gray": "#666666",
}
BANDS = {"CPU wins": COLORS["sky"], "can't tell": "#BBBBBB", "GPU wins": COLORS["orange"]}  # any other is gray
# The same hues, dark enough to read as text on white.
_INK = {"orange": "#8F6000", "sky": "#20749F", "green": "#00704F", "purple": "#9C4475", "vermillion": "#B34E00"}
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


@contextlib.contextmanager
def picture(
    title: str, x: str, size: tuple[float, float], right: float = 0.74, left: float = 0.115, below: float = 0.0
) -> Iterator:
    """A log-log figure of `size` inches and its axes, with room for labels right of `right` and `below` inches under the axes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=size)
        bottom, top = (0.57 + below) / size[1], 1 - 0.42 / size[1]
        axes = figure.add_axes((left, bottom, right - left, top - bottom))
        axes.set(xscale="log", yscale="log", xlabel=x)
        axes.set_title(title, loc="left", fontsize=min(11.5, 950 / max(1, len(title))))  # a long one fits
        yield figure, axes


def save(figure: "Figure", path: "str | os.PathLike") -> pathlib.Path:
    """Writes the figure (format by suffix) without a date, so that the same input gives the same bytes."""
    import matplotlib

    path = pathlib.Path(path)
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


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


def rates_axis(axes) -> None:
    """Labels the x axis with rates of arithmetic, at the powers of ten, or 1 2 5 where there are few of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from analysis.units import flops_rate

    low, high = axes.get_xlim()
    few = math.log10(high / low) <= 2
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: re.sub(r"\.0+(?!\d)", "", flops_rate(value))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("")


def label_right(axes, labels: Iterable[tuple[float, str, str]], fontsize: float = 9.5) -> None:
    """Writes (y, text, a color's name) right of the axes at the height of y, moved apart where they would overlap.

    The axes' limits must be final: heights are worked out in their logarithm.
    """
    _label(axes, labels, fontsize, 1.0, 1.025, "left")


def label_left(axes, labels: Iterable[tuple[float, str, str]], start: float, fontsize: float = 9.5) -> None:
    """Writes (y, text, a color's name) inside the axes, left of where the lines start (a fraction of the width)."""
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
            color=_INK.get(color, COLORS[color]),
            va="center",
            ha=side,
            fontsize=fontsize,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": COLORS[color], "lw": 0.6, **ends},
        )


def _heights(axes, labels, fontsize: float) -> list[tuple[float, float, str, str]]:
    """(height, height of its label, text, color) in fractions of the axes' height, from the bottom up."""
    low, high = (math.log(y) for y in axes.get_ylim())
    inches = axes.figure.get_size_inches()[1] * axes.get_position().height
    gap = 1.33 * fontsize / 72 / inches
    wanted = sorted(((math.log(y) - low) / (high - low), text, color) for y, text, color in labels)
    moved = spread([w[0] for w in wanted], gap, 0.0, 1.0)
    return [(at, y, text, color) for (at, text, color), y in zip(wanted, moved, strict=True)]


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
