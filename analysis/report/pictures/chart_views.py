"""A chart's view as a picture: what the page draws by JavaScript, drawn by matplotlib for paper, Markdown and browsers without
JavaScript."""

import math
import re
from typing import TYPE_CHECKING

from analysis.report.pictures.style import BANDS, COLORS, label_left, label_right, picture
from analysis.units import bytes_rate, digits, flops_rate, seconds, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analysis.report.charts.chart import Axis, Trace, View

_MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle-up": "^",
    "diamond": "D",
    "triangle-down": "v",
    "cross": "P",
    "x": "x",
    "star": "*",
    "bowtie": "d",
    "hourglass": "<",
    "pentagon": "p",
    "hexagon": "h",
    "star-triangle-up": ">",
    "star-diamond": "H",
    "hash": "+",
    "octagon": "8",
}
_DASHES = {
    "solid": (),
    "dash": (5, 2),
    "dot": (1, 1.5),
    "dashdot": (6, 2, 1, 2),
    "longdash": (9, 2.5),
    "longdashdot": (9, 2, 1, 2),
}
_WORDS = {
    "seconds": seconds,
    "flops": flops_rate,
    "rate": bytes_rate,
    "bytes": size,
    "count": lambda n: f"{n:,.0f}",
    "times": digits,
}
_COLUMN = 0.4  # of the axes' width: the names of slopes stand left of where these start
_FONT, _MOST = 8.5, 40  # of a legend


def figure(view: "View", title: str, who: str = "") -> "Figure":
    """The view with its lines, their intervals, the names beside them and a legend; not for bars. `who`: the letters."""
    legend = [t for t in view.traces if t.legend and not t.label][:_MOST]
    rows = math.ceil(len(legend) / 2) + bool(who)
    below = 0.2 + 0.175 * rows
    named = any(t.label and not t.label_left for t in view.traces)
    right = 0.7 if named and view.y.ends else 0.95
    with picture(title, view.x.title, (9.0, 6.0 + below), right, 0.16, below) as (made, axes):
        handles = {t.name: _draw(axes, t) for t in view.traces}
        start = _limits(axes, view)
        least = (axes.get_xlim()[1] / start) ** 0.07  # a narrower band of who wins has no room for its words
        for low, high, words in view.bands:
            axes.axvspan(low, high, color=BANDS.get(words, COLORS["gray"]), alpha=0.15, lw=0)
        wide = [(low, 0.99, words) for low, high, words in view.bands if words not in BANDS or high > least * low]
        for at, up, words in (*((at, 0.94, words) for at, words in view.lines), *wide):
            if words:
                across = axes.get_xaxis_transform()
                axes.annotate(words, (at, up), (3, 0), across, "offset points", va="top", fontsize=_FONT)
        for at, _ in view.lines:
            axes.axvline(at, color=COLORS["gray"], lw=1, dashes=(2, 2))
        _ticks(axes.xaxis, view.x, start, axes.get_xlim()[1])
        _ticks(axes.yaxis, view.y, *axes.get_ylim())
        if view.y.ends:
            _names(axes, view, start)
        if legend:
            made.legend(
                handles=[handles[t.name] for t in legend],
                loc="lower left",
                bbox_to_anchor=(0.02, 0.004),
                ncols=2,
                fontsize=_FONT,
                title=who,
                alignment="left",
                title_fontsize=_FONT,
            )
    return made


def _draw(axes, t: "Trace"):
    """The trace with its interval; what stands for it in a legend."""
    color = COLORS[t.color]
    (drawn,) = axes.plot(
        t.x,
        t.y,
        color=color,
        label=t.name,
        marker=_MARKERS[t.marker] if t.marker else "",
        ms=4.5,
        lw=1.3 if t.line else 0,
        dashes=_DASHES[t.dash] if t.line else (),
        mfc="white" if t.hollow else color,
        zorder=3 if t.marker else 2,
    )
    if t.label and not t.label_left and not t.label_at:  # a level's, beside it
        end = (t.x[-1], t.y[-1])
        axes.annotate(t.label, end, (0, 5), textcoords="offset points", ha="right", fontsize=_FONT)
    if t.low:
        axes.fill_between(t.x, t.low, t.high, color=color, alpha=0.18, lw=0)
    return drawn


def _limits(axes, view: "View") -> float:
    """Sets the axes' ends; where the lines start: left of it there is room for the names of slopes."""
    low, high = view.x.ends or axes.get_xlim()
    names = any(t.label and t.label_left for t in view.traces)
    axes.set_xlim(low * (low / high) ** (_COLUMN / (1 - _COLUMN)) if names else low, high)
    axes.set_ylim(*(view.y.ends or _room([y for t in view.traces for y in t.y])))
    return low


def _room(values: list[float]) -> tuple[float, float]:
    """The ends of an axis for these values: a torn interval must not flatten the rest."""
    return min(values) / 1.8, max(values) * 1.8


def _ticks(axis, of: "Axis", low: float, high: float) -> None:
    """Powers of ten (of two for bytes), fewer where there are many, in the axis's unit."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    base = 2.0 if of.unit == "bytes" else 10.0
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    parts = (1, 2, 5) if base == 10 and last - first < 2 else (1,)
    step = max(1, math.ceil((last - first) / 9))
    at = [part * base**p for p in range(first - 1, last + 1, step) for part in parts]
    axis.set_major_locator(FixedLocator([v for v in at if low <= v <= high]))
    axis.set_minor_locator(NullLocator())
    words = _WORDS[of.unit]
    axis.set_major_formatter(FuncFormatter(lambda value, _: re.sub(r"\.0+(?!\d)", "", words(value))))


def _names(axes, view: "View", start: float) -> None:
    """The names of slopes left of them, of level lines right of them."""
    shown = [t for t in view.traces if t.label]
    low, high = axes.get_xlim()
    column = math.log(start / low) / math.log(high / low)
    label_left(axes, [(t.y[0], t.label, t.color) for t in shown if t.label_left], column, _FONT)
    label_right(axes, [(t.y[-1], t.label, t.color) for t in shown if not t.label_left], _FONT)
