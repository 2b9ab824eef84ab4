"""Charts of several runs as one: views with the same axes are merged, bars keep views of their own. A name keeps its color from
run to run; each run has its own markers and dashes."""

import itertools
import math
from collections.abc import Iterable

from msgspec.structs import replace

from analysis.report.charts.chart import Axis, Chart, Trace, View, rounded
from analysis.stats import group_by
from analysis.table import Table

# Markers and dashes that replace the first run's, for each further run.
_MARKERS = (
    {"circle": "x", "square": "cross", "triangle-up": "star", "diamond": "bowtie", "triangle-down": "hourglass"},
    {"circle": "pentagon", "square": "hexagon", "triangle-up": "star-triangle-up", "diamond": "star-diamond"},
)
_OTHER = ("hash", "octagon")
_DASHES = ("longdash", "longdashdot")
_GAP = 0.034  # of the plot's height, from name to name


def several(made: Iterable[tuple[str, list[Chart]]]) -> list[Chart]:
    """One chart of each name out of (a run's letter, its charts); a single run's, whose letter is empty, as they are."""
    made = list(made)
    if len(made) == 1:
        return made[0][1]
    parts = ((i, letter, chart) for i, (letter, charts) in enumerate(made) for chart in charts)
    return [_one(own) for own in group_by(parts, lambda part: part[2].name).values()]


def _one(parts: list[tuple[int, str, Chart]]) -> Chart:
    first, rows = parts[0][2], []
    views: dict[str, View] = {}
    colors: dict[str, dict[str, str]] = {}  # of a view's label, then a trace's name: the color that it has in every run
    heads = list(dict.fromkeys(head for *_, chart in parts for head in chart.numbers.heads))
    for i, letter, chart in parts:
        for view in chart.views:
            if not view.bars:
                earlier = colors.setdefault(view.label, {})
                traces = [replace(t, color=earlier.get(t.name, t.color)) for t in view.traces]
                earlier.update({t.name: t.color for t in traces})
                view = replace(view, traces=traces)
            own = _lettered(view, i, letter)
            views[own.label] = over(views[own.label], own) if own.label in views else own
        for row in chart.numbers.rows:
            at = dict(zip(chart.numbers.heads, row, strict=True))
            rows.append((letter, *(at.get(head, "-") for head in heads)))
    shown = list(views.values())
    numbers = Table(["run", *heads], rows, 3)
    notes = [chart.note for *_, chart in parts if chart.note]
    note = notes[0] if notes else ""
    return replace(first, views=shown, numbers=numbers, chooses=first.chooses or "View", note=note)


def _lettered(view: View, i: int, letter: str) -> View:
    return replace(
        view,
        label=": ".join(filter(None, (letter, view.label))) if view.bars else view.label,
        y=replace(view.y, lines=tuple(f"{letter} {line}" for line in view.y.lines)),
        traces=[_styled(t, i, letter, view) for t in view.traces],
        says=view.says and f"{letter}: {view.says}",
        lines=[(at, words and f"{letter}: {words}") for at, words in view.lines],
        bands=[(low, high, f"{letter}: {words}") for low, high, words in view.bands],
    )


def _styled(t: Trace, i: int, letter: str, view: View) -> Trace:
    """The trace with its run's letter. A further run gets its own marker and dash; charts with a line a thing keep theirs, as
    each run has its own lines."""
    named = replace(
        t,
        name=t.name if view.bars else f"{letter} {t.name}",
        y=[f"{letter} {line}" for line in t.y] if view.y.lines else t.y,
        label=f"{letter} {t.label}" if t.label else "",
        says=[f"{letter}, {words}" for words in t.says],
    )
    if not i or view.bars or view.y.lines:
        return named
    of = (i - 1) % len(_MARKERS)
    marker = _MARKERS[of].get(t.marker, _OTHER[of]) if t.marker else ""
    return replace(named, marker=marker, dash=_DASHES[of])


def over(a: View, b: View) -> View:
    """Both views merged; names beside lines are moved apart again."""
    traces = [*a.traces, *b.traces]
    x, y = _both(a.x, b.x), _both(a.y, b.y)
    if x.limits and y.limits:
        reached = [_reaching(t, x.limits, y.limits[0]) if t.label else t for t in traces]
        traces = named(reached, *map(math.log, y.limits))
    says = " ".join(filter(None, (a.says, b.says)))
    return View(
        label=a.label,
        x=x,
        y=y,
        traces=traces,
        says=says,
        bars=a.bars,
        lines=[*a.lines, *b.lines],
        bands=[*a.bands, *b.bands],
    )


def _both(a: Axis, b: Axis) -> Axis:
    ends = (min(a.limits[0], b.limits[0]), max(a.limits[1], b.limits[1])) if a.limits and b.limits else None
    return replace(a, limits=ends, lines=(*a.lines, *b.lines))


def _reaching(t: Trace, x: tuple[float, float], bottom: float) -> Trace:
    """A roof extended to the edge where its name stands: straight in log-log, a slope not below `bottom`."""
    xs, ys = list(t.x), list(t.y)
    slope = math.log(ys[-1] / ys[0]) / math.log(xs[-1] / xs[0])
    if not t.label_left:
        xs[-1] = x[1]
    elif slope:
        start = max(x[0], xs[0] * (bottom / ys[0]) ** (1 / slope))
        xs[0], ys[0] = rounded(start), rounded(ys[0] * (start / xs[0]) ** slope)
    return replace(t, x=xs, y=ys)


def named(lines: list[Trace], bottom: float, top: float) -> list[Trace]:
    """Names beside the lines, moved apart where they would overlap; `bottom`, `top`: the logarithms of the axis's ends."""
    made = list(lines)
    for left in (True, False):
        at = {i: math.log(t.y[-(not left)]) for i, t in enumerate(lines) if t.label and t.label_left == left}
        order = sorted(at, key=at.__getitem__)
        heights = [(at[i] - bottom) / (top - bottom) for i in order]
        for i, height in zip(order, _spread(heights, min(_GAP, 1 / max(1, len(at))), 0.0, 1.0), strict=True):
            made[i] = replace(lines[i], label_at=round(height, 4))
    return made


def _spread(heights: list[float], gap: float, least: float, most: float) -> list[float]:
    """Rising heights moved at least `gap` apart, half up and half down, and kept between `least` and `most` if they fit."""
    up = itertools.accumulate(heights, lambda below, h: max(h, below + gap))
    down = itertools.accumulate(reversed(heights), lambda above, h: min(h, above - gap))
    middles = [(a + b) / 2 for a, b in zip(up, reversed(list(down)), strict=True)]
    last = len(heights) - 1
    return [min(max(h, least + i * gap), most - (last - i) * gap) for i, h in enumerate(middles)]
