"""What the pictures share: colors that color-blind people tell apart, marks, text as text, output that never varies."""

import contextlib
import math
from collections.abc import Iterable, Iterator

# Okabe and Ito (2008), without the yellow that is hard to see on white.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")  # fmt: skip
GRAY = "#666666"
COLORS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ((), (5, 2), (1, 1.5), (6, 2, 1, 2), (3, 1), (8, 3), (2, 2))
# The same hues, dark enough to read as text on white.
_INK = {ORANGE: "#8F6000", SKY: "#20749F", GREEN: "#00704F", PURPLE: "#9C4475", RED: "#B34E00"}
PRECISIONS = {"float32": BLUE, "float64": RED, "tf32": GREEN, "float16": PURPLE, "bfloat16": ORANGE}
_LEFT = 0.115
SETTINGS = {
    "svg.fonttype": "none", "svg.hashsalt": "crossover", "font.size": 10.5, "axes.grid": True, "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False, "figure.facecolor": "white", "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
}  # fmt: skip


def ink(color: str) -> str:
    """The color for text."""
    return _INK.get(color, color)


@contextlib.contextmanager
def picture(title: str, x: str, y: str, width: float = 10.0, height: float = 6.0, right: float = 0.74) -> Iterator:
    """A log-log figure and its axes, with room for labels right of `right`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((_LEFT, 0.095, right - _LEFT, 0.835))
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axes.set_title(title, loc="left", fontsize=11.5)
        yield figure, axes


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
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    few = math.log10(high / low) <= 2
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: words(y).replace(".00", "").replace(".0", "")))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("")


def label_right(axes, labels: Iterable[tuple[float, str, str]], gap: float = 0.042) -> None:
    """Writes (y, text, color) right of the axes at the height of y, moved apart where they would overlap.

    The axes' limits must be final: heights are worked out in their logarithm.
    """
    low, high = (math.log(y) for y in axes.get_ylim())
    wanted = sorted(((math.log(y) - low) / (high - low), text, color) for y, text, color in labels)
    for (at, text, color), y in zip(wanted, spread([w[0] for w in wanted], gap), strict=True):
        axes.annotate(text, xy=(1.0, at), xytext=(1.025, y), xycoords="axes fraction", textcoords="axes fraction",
                      color=ink(color), va="center", fontsize=9.5, annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": color, "lw": 0.6, "shrinkA": 1, "shrinkB": 0,
                                  "relpos": (0, 0.5)})  # fmt: skip


def spread(heights: list[float], gap: float) -> list[float]:
    """Rising heights moved apart to at least `gap`, as near to where they were as can be (clusters keep their mean)."""
    clusters = [[h] for h in heights]
    merged = True
    while merged:
        merged = False
        for i in range(len(clusters) - 1):
            if _bottom(clusters[i + 1], gap) - _top(clusters[i], gap) < gap - 1e-12:
                clusters[i : i + 2] = [clusters[i] + clusters[i + 1]]
                merged = True
                break
    return [_bottom(c, gap) + k * gap for c in clusters for k in range(len(c))]


def _bottom(cluster: list[float], gap: float) -> float:
    return sum(cluster) / len(cluster) - gap * (len(cluster) - 1) / 2


def _top(cluster: list[float], gap: float) -> float:
    return _bottom(cluster, gap) + gap * (len(cluster) - 1)
