"""A chart's view as an SVG, drawn by matplotlib: for paper, Markdown and browsers without JavaScript, text as text, the same
bytes for the same input."""

import io
import itertools
import math
import os
import pathlib
import textwrap
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING, Any

from analysis import units
from analysis.report import replacing
from analysis.report.charts.chart import Axis, Trace, View

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
    "cpu-band": "#56B4E9",
    "none-band": "#BBBBBB",
    "gpu-band": "#E69F00",
}
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


# Plotly's name and matplotlib's.
_MARKERS = dict(
    pair.split()
    for pair in """circle o
square s
triangle-up ^
diamond D
triangle-down v
cross P
x x
star *
bowtie d
hourglass <
pentagon p
hexagon h
star-triangle-up >
star-diamond H
hash +
octagon 8
line-ns |
cross-thin +""".splitlines()
)
_DASHES = {
    "solid": (),
    "dash": (5, 2),
    "dot": (1, 1.5),
    "dashdot": (6, 2, 1, 2),
    "longdash": (9, 2.5),
    "longdashdot": (9, 2, 1, 2),
}
# Attributes that hold coordinates, in points.
_COORDINATES = ("d", "x", "y")
_NAMESPACES = {
    "": "http://www.w3.org/2000/svg",
    "xlink": "http://www.w3.org/1999/xlink",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "cc": "http://creativecommons.org/ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
}
_COLUMN = 0.4  # of the axes' width: the names of slopes stand left of where these start
_BAR_HEIGHT = 0.24  # inches of a bar
_LINE_HEIGHT = 0.15  # inches of a line of its caption
_LETTERS = 17  # letters of a caption an inch
_CAPTION = 7.5  # points
_WIDE, _FONT, _MOST = 9.0, 8.5, 40  # inches, points, lines of a legend


def figure(view: "View", title: str, who: str = "") -> "Figure":
    """The view with its lines, their intervals, the names beside them and a legend. `who`: the letters."""
    import matplotlib
    from matplotlib.figure import Figure

    if view.bars:
        return _bar_figure(view, title)
    legend = [t for t in view.traces if t.legend and not t.label][:_MOST]
    below = 0.2 + 0.175 * (math.ceil(len(legend) / 2) + bool(who))
    longest = max((len(t.label) for t in view.traces if not t.label_left), default=0)
    lines = view.y.lines
    high = (1.15 + 0.235 * max(len(lines), 3) if lines else 6.0) + below
    left, right = (
        (0.3 + 0.078 * max(map(len, lines))) / _WIDE if lines else 0.16,
        min(0.7, 1 - (0.3 + 0.068 * longest) / _WIDE) if longest and view.y.limits else 0.95,
    )
    with matplotlib.rc_context(SETTINGS):
        made = Figure(figsize=(_WIDE, high))
        bottom = (0.57 + below) / high
        axes = made.add_axes((left, bottom, right - left, 1 - 0.42 / high - bottom))
        axes.set(xscale="log", yscale="linear" if lines else "log", xlabel=view.x.title)
        fits = 950 * (1 - left) / 0.84 / max(1, len(title))
        axes.set_title(title, loc="left", fontsize=min(11.5, fits))
        handles = {t.name: _draw(axes, t, lines) for t in view.traces}
        start = _limits(axes, view)
        _across(axes, view, start)
        _ticks(axes.xaxis, view.x, start, axes.get_xlim()[1])
        if lines:
            axes.set_ylim(len(lines) - 0.5, -0.5)
            axes.set_yticks(range(len(lines)), lines, fontsize=9)
            axes.tick_params(axis="y", length=0)
        else:
            ys = [y for t in view.traces for y in t.y]  # a torn interval must not flatten the rest
            axes.set_ylim(*(view.y.limits or (min(ys) / 1.8, max(ys) * 1.8)))
            _ticks(axes.yaxis, view.y, *axes.get_ylim())
        if view.y.limits:
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


def _bar_figure(view: "View", title: str) -> "Figure":
    """The bars of the view's first trace, with its words at their ends and its captions under them."""
    import matplotlib
    from matplotlib.figure import Figure

    (bars,) = view.traces
    names_width = 0.3 + 0.085 * max(map(len, view.y.lines))
    captions = [textwrap.wrap(caption, round((_WIDE - names_width) * _LETTERS)) for caption in bars.captions]
    row_height = _BAR_HEIGHT + _LINE_HEIGHT * max(map(len, captions))
    height = 1.5 + row_height * len(bars.y)
    most = max([*bars.x, *(at for at, _ in view.lines)])
    with matplotlib.rc_context(SETTINGS):
        picture = Figure(figsize=(_WIDE, height))
        left = names_width / _WIDE
        bottom = 0.6 / height
        axes = picture.add_axes((left, bottom, 0.97 - left, 1 - 0.9 / height - bottom))
        fits = 950 * (1 - left) / 0.84 / len(title)
        axes.set_title(title, loc="left", fontsize=min(11.5, fits), pad=13 + 12 * len(view.lines))
        axes.grid(axis="y", visible=False)
        axes.set(xlim=(0, 1.02 * most), ylim=(len(bars.y) - 0.2, -0.4), xlabel=view.x.title)
        axes.barh(range(len(bars.y)), bars.x, height=_BAR_HEIGHT / row_height, color=COLORS[bars.color])
        axes.set_yticks(range(len(bars.y)), bars.y, fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(lambda value, _: units.written(value, view.x.unit) if value else "0")
        for row, words in enumerate(bars.says):
            _end(axes, (bars.x[row], row), words, inside=bars.x[row] > most / 2)
            under = (2, -72 * _BAR_HEIGHT / 2 - 1)
            caption = axes.annotate("\n".join(captions[row]), (0, row), under, textcoords="offset points", va="top")
            caption.set(color=COLORS["gray"], fontsize=_CAPTION)
        across = axes.get_xaxis_transform()
        for i, (at, words) in enumerate(view.lines):
            axes.axvline(at, color=COLORS["gray"], lw=1, dashes=(2, 2))
            above = axes.annotate(words, (at, 1), (0, 3 + 12 * i), across, "offset points")
            above.set(ha="right", va="bottom", fontsize=_FONT)
    return picture


def _end(axes, end: tuple[float, int], words: str, inside: bool) -> None:
    """A bar's words at its end, inside a long one."""
    side = "right" if inside else "left"
    room = -4 if inside else 4
    drawn = axes.annotate(words, end, (room, 0), textcoords="offset points", ha=side, va="center", fontsize=_FONT)
    drawn.set_color("white" if inside else COLORS["ink"])


def _across(axes, view: "View", start: float) -> None:
    """The bands and lines of the view, each with its words at the top."""
    least = (axes.get_xlim()[1] / start) ** 0.07  # a narrower band has no room for its words
    wide = []
    for (low, high, words), color in itertools.zip_longest(view.bands, view.band_colors):
        axes.axvspan(low, high, color=COLORS[color or "gray"], alpha=0.15, lw=0)
        if color is None or high > least * low:
            wide.append((low, 0.99, words))
    for at, up, words in (*((at, 0.94, words) for at, words in view.lines), *wide):
        if words:
            across = axes.get_xaxis_transform()
            axes.annotate(words, (at, up), (3, 0), across, "offset points", va="top", fontsize=_FONT)
    for at, _ in view.lines:
        axes.axvline(at, color=COLORS["gray"], lw=1, dashes=(2, 2))


def _draw(axes, t: "Trace", lines: tuple[str, ...]):
    """Draws the trace with its interval; returns its handle for the legend. lines: the words of the y axis, if any."""
    color = COLORS[t.color]
    (drawn,) = axes.plot(
        [math.nan if x is None else x for x in t.x],
        [lines.index(y) for y in t.y] if lines else t.y,
        color=color,
        label=t.name,
        marker=_MARKERS[t.marker] if t.marker else "",
        ms=6 if lines else 4.5,
        lw=12 if t.band else 1.3 if t.line else 0,
        alpha=0.45 if t.band else None,
        solid_capstyle="butt" if t.band else None,
        dashes=_DASHES[t.dash] if t.line else (),
        mfc="white" if t.hollow else color,
        zorder=3 if t.marker else 2,
    )
    if t.label and not t.label_left and not t.label_at:  # a level's, beside it
        end = (t.x[-1], t.y[-1])
        axes.annotate(t.label, end, (0, 5), textcoords="offset points", ha="right", fontsize=_FONT)
    if t.low and not t.line:  # points in no order
        axes.vlines(t.x, t.low, t.high, color=color, alpha=0.5, lw=1)
    elif t.low:
        axes.fill_between(t.x, t.low, t.high, color=color, alpha=0.18, lw=0)
    return drawn


def _limits(axes, view: "View") -> float:
    """Sets the ends of the x axis; where the lines start: left of it there is room for the names of slopes."""
    low, high = view.x.limits or axes.get_xlim()
    names = any(t.label and t.label_left for t in view.traces)
    axes.set_xlim(low * (low / high) ** (_COLUMN / (1 - _COLUMN)) if names else low, high)
    return low


def _ticks(axis, of: "Axis", low: float, high: float) -> None:
    """Powers of ten (of two for bytes) in the axis's unit, with their halves and fifths where they are few."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    few = (1, 3) if of.unit == "FLOP/s" else (1, 2, 5)
    base, parts = (2, (1,)) if of.unit == "byte" else (10, few if high < 100 * low else (1,))
    at = LogLocator(base, parts, numticks=9).tick_values(low, high)
    axis.set_major_locator(FixedLocator([v for v in at if low <= v <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: units.tick(value, of.unit)))


def _names(axes, view: "View", start: float) -> None:
    """The names of slopes left of them, of level lines right of them, at the heights where they keep apart."""
    low, high = axes.get_xlim()
    column, ends = math.log(start / low) / math.log(high / low), list(map(math.log, axes.get_ylim()))
    for t in (t for t in view.traces if t.label):
        x, away, side = (column, -0.035, "right") if t.label_left else (1.0, 0.025, "left")
        at = (math.log(t.y[0 if t.label_left else -1]) - ends[0]) / (ends[1] - ends[0])
        arrow = {"arrowstyle": "-", "color": COLORS[t.color], "lw": 0.6, "shrinkA": 1, "shrinkB": 0}
        axes.annotate(
            t.label,
            (x, at),
            (x + away, t.label_at),
            "axes fraction",
            "axes fraction",
            arrow | {"relpos": (float(t.label_left), 0.5)},
            annotation_clip=False,
            color=_INK.get(t.color, COLORS[t.color]),
            va="center",
            ha=side,
            fontsize=_FONT,
        )


def save(figure: "Figure", path: "str | os.PathLike") -> pathlib.Path:
    """Writes the figure as SVG without a date, so that the same input gives the same bytes."""
    import matplotlib

    path = pathlib.Path(path)
    content = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": replacing.PICTURE_CREATOR})
    replacing.write(path, shortened(content.getvalue()))
    return path


def shortened(svg: bytes) -> bytes:
    """The picture with coordinates to a hundredth of a point and without indentation, which is a sixth smaller."""
    for prefix, address in _NAMESPACES.items():
        ElementTree.register_namespace(prefix, address)
    picture = ElementTree.fromstring(svg)
    for element in picture.iter():
        for name in _COORDINATES:
            words = element.get(name, "").split()
            if words:
                element.set(name, " ".join(map(_to_hundredths, words)))
        if element.text and element.text.isspace():
            element.text = None
        if element.tail and element.tail.isspace():
            element.tail = "\n"
    return ElementTree.tostring(picture) + b"\n"


def _to_hundredths(word: str) -> str:
    """A number to two digits behind the point; a letter of a path as it is."""
    return word if word.isalpha() else f"{round(float(word), 2):.8g}"
