"""Charts of several runs as one: views with the same axes are merged, bars keep views of their own. A name keeps its color from
run to run; each run has its own markers and dashes."""

import itertools
import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from analysis.report.charts.chart import Axis, Chart, Trace, View, rounded
from analysis.stats import group_by
from analysis.table import Table

#: Markers and dashes that replace the first run's, for each further run.
_MARKERS = (
    {"circle": "x", "square": "cross", "triangle-up": "star", "diamond": "bowtie", "triangle-down": "hourglass"},
    {"circle": "pentagon", "square": "hexagon", "triangle-up": "star-triangle-up", "diamond": "star-diamond"},
)
#: The marker of a further run for one that _MARKERS lacks.
_OTHER = ("hash", "octagon")
_DASHES = ("longdash", "longdashdot")
#: From name to name beside lines, as a part of the plot's height.
_GAP = 0.034


class RunChart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of one of several runs."""

    #: Number of its run, from 0.
    number: int
    #: Letter of its run.
    letter: str
    #: The chart.
    chart: Chart


def several(runs: Iterable[tuple[str, list[Chart]]]) -> list[Chart]:
    """The charts of several runs, those of one name merged into one. runs: (letter of a run, its charts). The charts of a
    single run, whose letter is empty, stay as they are.
    """
    runs = list(runs)
    if len(runs) == 1:
        _, charts = runs[0]
        return charts
    parts = []
    for number, (letter, charts) in enumerate(runs):
        parts += [RunChart(number=number, letter=letter, chart=chart) for chart in charts]
    by_name = group_by(parts, lambda part: part.chart.name)
    return [_merged(same_name) for same_name in by_name.values()]


def _merged(parts: list[RunChart]) -> Chart:
    """The charts of several runs as one."""
    first = parts[0].chart
    notes = [part.chart.note for part in parts if part.chart.note]
    return replace(
        first,
        views=_merged_views(parts),
        numbers=_merged_numbers(parts),
        chooses=first.chooses or "View",
        note=notes[0] if notes else "",
    )


def _merged_views(parts: list[RunChart]) -> list[View]:
    """The views of all runs. Those with the same label are drawn over each other, and a trace of one name has one color in
    all.
    """
    views: dict[str, View] = {}
    # Label of a view -> name of a trace -> the color that it has in every run.
    colors: dict[str, dict[str, str]] = {}
    for part in parts:
        for view in part.chart.views:
            if not view.bars:
                view = _colored(view, colors.setdefault(view.label, {}))
            view = _lettered(view, part.number, part.letter)
            if view.label in views:
                view = over(views[view.label], view)
            views[view.label] = view
    return list(views.values())


def _colored(view: View, colors: dict[str, str]) -> View:
    """The view with the colors that its traces have in the views of earlier runs. colors: name of a trace -> its color; names
    that it lacks are added.
    """
    traces = []
    for trace in view.traces:
        colored = replace(trace, color=colors.get(trace.name, trace.color))
        traces.append(colored)
    colors.update({trace.name: trace.color for trace in traces})
    return replace(view, traces=traces)


def _merged_numbers(parts: list[RunChart]) -> Table:
    """The tables of several runs as one: each row after its run's letter, with a dash in columns that its run does not have."""
    heads: dict[str, None] = {}
    for part in parts:
        heads.update(dict.fromkeys(part.chart.numbers.heads))
    rows = []
    for part in parts:
        numbers = part.chart.numbers
        for row in numbers.rows:
            cells = dict(zip(numbers.heads, row, strict=True))
            rows.append((part.letter, *(cells.get(head, "-") for head in heads)))
    return Table(["run", *heads], rows, left=3)


def _lettered(view: View, number: int, letter: str) -> View:
    """A run's view with the run's letter before all its words, and with markers and dashes of this run. number: which run,
    from 0.
    """
    label = view.label
    if view.bars:
        label = ": ".join(filter(None, (letter, view.label)))
    categories = tuple(f"{letter} {line}" for line in view.y.lines)
    lines = []
    for at, words in view.lines:
        lines.append((at, words and f"{letter}: {words}"))
    bands = []
    for low, high, words in view.bands:
        bands.append((low, high, f"{letter}: {words}"))
    return replace(
        view,
        label=label,
        y=replace(view.y, lines=categories),
        traces=[_styled(trace, number, letter, view) for trace in view.traces],
        says=view.says and f"{letter}: {view.says}",
        lines=lines,
        bands=bands,
    )


def _styled(trace: Trace, number: int, letter: str, view: View) -> Trace:
    """The trace with its run's letter before its words. From the second run on (number 1) it gets a marker and a dash of that
    run. Bars and traces over categories keep theirs: each run has bars or categories of its own.
    """
    name = trace.name if view.bars else f"{letter} {trace.name}"
    y = trace.y
    if view.y.lines:
        y = [f"{letter} {line}" for line in trace.y]
    label = f"{letter} {trace.label}" if trace.label else ""
    says = [f"{letter}, {words}" for words in trace.says]
    lettered = replace(trace, name=name, y=y, label=label, says=says)
    is_first = number == 0
    if is_first or view.bars or view.y.lines:
        return lettered
    style = (number - 1) % len(_MARKERS)
    marker = trace.marker
    if marker:
        marker = _MARKERS[style].get(marker, _OTHER[style])
    return replace(lettered, marker=marker, dash=_DASHES[style])


def over(a: View, b: View) -> View:
    """Two views as one: the traces of both over the union of their axes. Where both axes are limited, lines with names are
    extended to the new edges, and their names are moved so that they do not overlap.
    """
    traces = [*a.traces, *b.traces]
    x = _both(a.x, b.x)
    y = _both(a.y, b.y)
    if x.limits and y.limits:
        bottom, top = y.limits
        traces = [_reaching(trace, x.limits, bottom) if trace.label else trace for trace in traces]
        traces = named(traces, math.log(bottom), math.log(top))
    return View(
        label=a.label,
        x=x,
        y=y,
        traces=traces,
        says=" ".join(filter(None, (a.says, b.says))),
        bars=a.bars,
        lines=[*a.lines, *b.lines],
        bands=[*a.bands, *b.bands],
    )


def _both(a: Axis, b: Axis) -> Axis:
    """The union of two axes: from the smaller lower limit to the larger upper one, with the categories of both."""
    limits = None
    if a.limits and b.limits:
        limits = (min(a.limits[0], b.limits[0]), max(a.limits[1], b.limits[1]))
    return replace(a, limits=limits, lines=(*a.lines, *b.lines))


def _reaching(trace: Trace, x: tuple[float, float], bottom: float) -> Trace:
    """A named line extended to the edge of the plot at which its name stands.

    It is straight with both axes logarithmic. x: the left and the right edge; bottom: the lowest y, below which a slope does
    not go.
    """
    xs = list(trace.x)
    ys = list(trace.y)
    slope = math.log(ys[-1] / ys[0]) / math.log(xs[-1] / xs[0])
    left, right = x
    if not trace.label_left:
        xs[-1] = right
    elif slope:
        at_bottom = xs[0] * (bottom / ys[0]) ** (1 / slope)
        start = max(left, at_bottom)
        ys[0] = rounded(ys[0] * (start / xs[0]) ** slope)
        xs[0] = rounded(start)
    return replace(trace, x=xs, y=ys)


def named(lines: list[Trace], bottom: float, top: float) -> list[Trace]:
    """The traces with the heights of their names (label_at) set, so that names on one side do not overlap. bottom, top: the
    logarithms of the y axis's limits.
    """
    placed = list(lines)
    for is_left in (True, False):
        # Index of a line -> the logarithm of its height where its name stands.
        heights = {}
        for i, line in enumerate(lines):
            if line.label and line.label_left == is_left:
                heights[i] = math.log(line.y[0 if is_left else -1])
        if not heights:
            continue
        rising = sorted(heights, key=heights.__getitem__)
        parts = [(heights[i] - bottom) / (top - bottom) for i in rising]
        gap = min(_GAP, 1 / len(heights))
        for i, part in zip(rising, _spread(parts, gap, 0.0, 1.0), strict=True):
            placed[i] = replace(lines[i], label_at=round(part, 4))
    return placed


def _spread(heights: list[float], gap: float, least: float, most: float) -> list[float]:
    """Rising heights, moved until they are at least `gap` from each other. Each moves half way between the result of pushing
    all up and that of pushing all down, then into least..most if all fit there.
    """
    up = list(itertools.accumulate(heights, lambda below, height: max(height, below + gap)))
    down = list(itertools.accumulate(reversed(heights), lambda above, height: min(height, above - gap)))
    down.reverse()
    last = len(heights) - 1
    spread = []
    for i, (highest, lowest) in enumerate(zip(up, down, strict=True)):
        middle = (highest + lowest) / 2
        spread.append(min(max(middle, least + i * gap), most - (last - i) * gap))
    return spread
