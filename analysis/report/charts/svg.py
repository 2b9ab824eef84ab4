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

import msgspec

from analysis import units
from analysis.report import replacing
from analysis.report.charts.chart import Axis, Trace, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as MatplotlibAxis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

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


# Plotly's name -> matplotlib's.
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
    "line-ns": "|",
    "cross-thin": "+",
}
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
#: Part of the axes' width: the names of slopes stand left of where these start.
_COLUMN = 0.4
#: Inches.
_WIDTH = 9.0
_BAR_HEIGHT = 0.24
_CAPTION_LINE_HEIGHT = 0.15
#: Letters of a caption an inch.
_LETTERS = 17
#: Points.
_FONT = 8.5
_CAPTION_FONT = 7.5
_TITLE_FONT = 11.5
#: Lines of a legend at most.
_MOST = 40


class Margins(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a picture, and where its axes lie in it."""

    #: Inches.
    height: float
    #: Parts of the picture's width.
    left: float
    right: float
    #: Part of the picture's height.
    bottom: float
    #: Part of the picture's height.
    top: float

    @property
    def rectangle(self) -> tuple[float, float, float, float]:
        """Left, bottom, width and height, as matplotlib takes them."""
        return (self.left, self.bottom, self.right - self.left, self.top - self.bottom)


def figure(view: View, title: str, runs: str = "") -> "Figure":
    """A picture of a view: its lines with their intervals, names beside the lines, and a legend. runs: the legend's title, which
    says which run each letter is; "" for a single run.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if view.bars:
        return _bar_figure(view, title)
    legend = [trace for trace in view.traces if trace.legend and not trace.label][:_MOST]
    legend_lines = math.ceil(len(legend) / 2) + bool(runs)
    margins = _margins(view, legend_lines)
    with matplotlib.rc_context(SETTINGS):
        picture = Figure(figsize=(_WIDTH, margins.height))
        axes = picture.add_axes(margins.rectangle)
        axes.set(xscale="log", yscale="linear" if view.y.lines else "log", xlabel=view.x.title)
        axes.set_title(title, loc="left", fontsize=_title_font(title, margins.left))
        handles = {trace.name: _draw(axes, trace, view.y.lines) for trace in view.traces}
        start = _limit_x(axes, view)
        _across(axes, view, start)
        _ticks(axes.xaxis, view.x, start, axes.get_xlim()[1])
        _set_y(axes, view)
        if view.y.limits:
            _names(axes, view, start)
        if legend:
            picture.legend(
                handles=[handles[trace.name] for trace in legend],
                loc="lower left",
                bbox_to_anchor=(0.02, 0.004),
                ncols=2,
                fontsize=_FONT,
                title=runs,
                alignment="left",
                title_fontsize=_FONT,
            )
    return picture


def _margins(view: View, legend_lines: int) -> Margins:
    """The size of a picture and the place of its axes, with room for categories on the left, for the names of lines on the right,
    and for the legend below. The numbers are inches by letters and lines of text.
    """
    below = 0.2 + 0.175 * legend_lines
    categories = view.y.lines
    if categories:
        height = 1.15 + 0.235 * max(len(categories), 3) + below
        left = (0.3 + 0.078 * max(map(len, categories))) / _WIDTH
    else:
        height = 6.0 + below
        left = 0.16
    longest = max((len(trace.label) for trace in view.traces if not trace.label_left), default=0)
    right = 0.95
    if longest and view.y.limits:
        right = min(0.7, 1 - (0.3 + 0.068 * longest) / _WIDTH)
    return Margins(height=height, left=left, right=right, bottom=(0.57 + below) / height, top=1 - 0.42 / height)


def _title_font(title: str, left: float) -> float:
    """Font size in points of a title that has to end inside the picture. left: where it begins, as a part of the width."""
    fits = 950 * (1 - left) / 0.84 / max(1, len(title))
    return min(_TITLE_FONT, fits)


def _set_y(axes: "Axes", view: View) -> None:
    """Sets the limits and ticks of the y axis: one tick a category, or values in the axis's unit."""
    categories = view.y.lines
    if categories:
        axes.set_ylim(len(categories) - 0.5, -0.5)
        axes.set_yticks(range(len(categories)), categories, fontsize=9)
        axes.tick_params(axis="y", length=0)
        return
    limits = view.y.limits
    if not limits:
        # By the values, not by their intervals: a very wide one would flatten the rest.
        least = min(min(trace.y) for trace in view.traces if trace.y)
        most = max(max(trace.y) for trace in view.traces if trace.y)
        limits = (least / 1.8, most * 1.8)
    axes.set_ylim(*limits)
    _ticks(axes.yaxis, view.y, *axes.get_ylim())


def _bar_figure(view: View, title: str) -> "Figure":
    """A picture of a view of bars: its only trace, with words at the ends of the bars and captions under them."""
    import matplotlib
    from matplotlib.figure import Figure

    (bars,) = view.traces
    names_width = 0.3 + 0.085 * max(map(len, view.y.lines))
    letters = round((_WIDTH - names_width) * _LETTERS)
    captions = [textwrap.wrap(caption, letters) for caption in bars.captions]
    row_height = _BAR_HEIGHT + _CAPTION_LINE_HEIGHT * max(map(len, captions))
    height = 1.5 + row_height * len(bars.y)
    most = max([*bars.x, *(at for at, _ in view.lines)])
    left = names_width / _WIDTH
    margins = Margins(height=height, left=left, right=0.97, bottom=0.6 / height, top=1 - 0.9 / height)
    with matplotlib.rc_context(SETTINGS):
        picture = Figure(figsize=(_WIDTH, height))
        axes = picture.add_axes(margins.rectangle)
        axes.set_title(title, loc="left", fontsize=_title_font(title, left), pad=13 + 12 * len(view.lines))
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
            caption.set(color=COLORS["gray"], fontsize=_CAPTION_FONT)
        x_data_y_axes = axes.get_xaxis_transform()
        for i, (at, words) in enumerate(view.lines):
            axes.axvline(at, color=COLORS["gray"], lw=1, dashes=(2, 2))
            above = axes.annotate(words, (at, 1), (0, 3 + 12 * i), x_data_y_axes, "offset points")
            above.set(ha="right", va="bottom", fontsize=_FONT)
    return picture


def _end(axes: "Axes", end: tuple[float, int], words: str, inside: bool) -> None:
    """Writes words at the end of a bar. end: its length and its row; inside: left of the end, in white, as for a long bar."""
    side = "right" if inside else "left"
    room = -4 if inside else 4
    drawn = axes.annotate(words, end, (room, 0), textcoords="offset points", ha=side, va="center", fontsize=_FONT)
    drawn.set_color("white" if inside else COLORS["ink"])


def _across(axes: "Axes", view: View, start: float) -> None:
    """Draws the view's bands and lines from top to bottom, with their words at the top. start: the smallest x that traces have,
    which lies right of the room for names.
    """
    least = (axes.get_xlim()[1] / start) ** 0.07  # a narrower band has no room for its words
    words_at = [(at, 0.94, words) for at, words in view.lines]
    for (low, high, words), color in itertools.zip_longest(view.bands, view.band_colors):
        axes.axvspan(low, high, color=COLORS[color or "gray"], alpha=0.15, lw=0)
        if color is None or high > least * low:
            words_at.append((low, 0.99, words))
    for at, height, words in words_at:
        if words:
            x_data_y_axes = axes.get_xaxis_transform()
            axes.annotate(words, (at, height), (3, 0), x_data_y_axes, "offset points", va="top", fontsize=_FONT)
    for at, _ in view.lines:
        axes.axvline(at, color=COLORS["gray"], lw=1, dashes=(2, 2))


def _draw(axes: "Axes", trace: Trace, categories: tuple[str, ...]) -> "Line2D":
    """Draws a trace with its interval. Returns matplotlib's line, which the legend shows. categories: the names of the lines of
    the y axis; () where that has values.
    """
    xs = [math.nan if x is None else x for x in trace.x]
    ys = [categories.index(y) for y in trace.y] if categories else trace.y
    (drawn,) = axes.plot(xs, ys, label=trace.name, **_line_style(trace), **_marker_style(trace, bool(categories)))
    is_level = (
        trace.label and not trace.label_left and not trace.label_at
    )  # its name stands on the line, not beside the plot
    if is_level:
        end = (trace.x[-1], trace.y[-1])
        axes.annotate(trace.label, end, (0, 5), textcoords="offset points", ha="right", fontsize=_FONT)
    color = COLORS[trace.color]
    if trace.low and trace.line:
        axes.fill_between(trace.x, trace.low, trace.high, color=color, alpha=0.18, lw=0)
    elif trace.low:  # points that no line joins: whiskers
        axes.vlines(trace.x, trace.low, trace.high, color=color, alpha=0.5, lw=1)
    return drawn


def _line_style(trace: Trace) -> dict[str, Any]:
    """The options of matplotlib's plot for the line of a trace: color, width and dashes."""
    style: dict[str, Any] = {"color": COLORS[trace.color], "lw": 0, "dashes": ()}
    if trace.line:
        style |= {"lw": 1.3, "dashes": _DASHES[trace.dash]}
    if trace.band:
        style |= {"lw": 12, "alpha": 0.45, "solid_capstyle": "butt"}
    return style


def _marker_style(trace: Trace, has_categories: bool) -> dict[str, Any]:
    """The options of matplotlib's plot for the marker of a trace. It is larger where the y axis has categories."""
    style: dict[str, Any] = {"marker": "", "zorder": 2}
    if trace.marker:
        style = {"marker": _MARKERS[trace.marker], "zorder": 3}
    style["ms"] = 6 if has_categories else 4.5
    style["mfc"] = "white" if trace.hollow else COLORS[trace.color]
    return style


def _limit_x(axes: "Axes", view: View) -> float:
    """Sets the limits of the x axis. Returns the smallest x of the traces; left of it there is room for names, if slopes have
    any.
    """
    low, high = view.x.limits or axes.get_xlim()
    has_names = any(trace.label and trace.label_left for trace in view.traces)
    left = low
    if has_names:
        left = low * (low / high) ** (_COLUMN / (1 - _COLUMN))
    axes.set_xlim(left, high)
    return low


def _ticks(axis: "MatplotlibAxis", described: Axis, low: float, high: float) -> None:
    """Sets the ticks of a logarithmic axis from `low` to `high`: powers of ten, or of two for bytes. Where there are few, also
    two and five times (three times for FLOP/s) each power of ten.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    base = 2 if described.unit == "byte" else 10
    parts: tuple[int, ...] = (1,)
    if base == 10 and high < 100 * low:
        parts = (1, 3) if described.unit == "FLOP/s" else (1, 2, 5)
    values = LogLocator(base, parts, numticks=9).tick_values(low, high)
    axis.set_major_locator(FixedLocator([value for value in values if low <= value <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: units.tick(value, described.unit)))


def _names(axes: "Axes", view: View, start: float) -> None:
    """Writes the names of lines beside them, with a thin line to each: of slopes on the left, of level lines on the right. Their
    heights (label_at) are such that they do not overlap. start: the smallest x of the traces.
    """
    low, high = axes.get_xlim()
    slopes_start = math.log(start / low) / math.log(high / low)
    for trace in view.traces:
        if not trace.label:
            continue
        if trace.label_left:
            x = slopes_start
            label_x = slopes_start - 0.035
            y = trace.y[0]
        else:
            x = 1.0
            label_x = 1.025
            y = trace.y[-1]
        bottom, top = axes.get_ylim()
        height = (math.log(y) - math.log(bottom)) / (math.log(top) - math.log(bottom))
        arrow = {
            "arrowstyle": "-",
            "color": COLORS[trace.color],
            "lw": 0.6,
            "shrinkA": 1,
            "shrinkB": 0,
            "relpos": (float(trace.label_left), 0.5),
        }
        axes.annotate(
            trace.label,
            (x, height),
            (label_x, trace.label_at),
            "axes fraction",
            "axes fraction",
            arrow,
            annotation_clip=False,
            color=_INK.get(trace.color, COLORS[trace.color]),
            va="center",
            ha="right" if trace.label_left else "left",
            fontsize=_FONT,
        )


def save(figure: "Figure", path: "str | os.PathLike") -> pathlib.Path:
    """Writes a figure as SVG, without a date: the same input gives the same bytes. Returns the path.

    Raises: Usage where a file of that name was not written by this project.
    """
    import matplotlib

    path = pathlib.Path(path)
    content = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": replacing.PICTURE_CREATOR})
    replacing.write(path, shortened(content.getvalue()))
    return path


def shortened(svg: bytes) -> bytes:
    """The SVG with coordinates rounded to hundredths of a point and without indentation, which makes it a sixth smaller."""
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
    """A word of a coordinate list: a number rounded to hundredths, a letter that begins a piece of a path as it is."""
    return word if word.isalpha() else f"{round(float(word), 2):.8g}"
