"""Charts as data: the page draws them by JavaScript, with a table under each. Colors by Okabe and Ito, each line with a
marker or a dash of its own."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from analysis.crossover.answer import FINE, Answer, Crossing
from analysis.predict.budget import REST
from analysis.stats import Estimate
from analysis.table import Table
from analysis.text.sentences import crossing_size
from analysis.units import seconds

Points = Sequence[tuple[float, Estimate]]

#: Significant digits of drawn values.
SIX = 6
COLORS = ("blue", "vermillion", "green", "purple", "orange", "sky", "ink")
MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PRECISIONS = {"float32": "blue", "float64": "vermillion", "tf32": "green", "float16": "purple", "bfloat16": "orange"}
#: Sign of a comparison -> words and the color of its band.
WINNER = {-1: ("CPU wins", "cpu-band"), 0: ("can't tell", "none-band"), 1: ("GPU wins", "gpu-band")}
_BAR_COLORS = ("blue", "orange", "sky", "vermillion", "green", "purple", "ink")
#: Not as many as colors: no two parts look alike.
_BAR_PATTERNS = ("", "/", "", "x", ".", "-")


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis of a view."""

    #: What it shows, in words.
    title: str
    #: How its values are written: a unit of METRICS, or `text` for categories.
    unit: str
    #: Whether it is logarithmic.
    log: bool = True
    #: The first and last value shown; None: the range of all values. The page reads it as `ends`.
    limits: tuple[float, float] | None = msgspec.field(default=None, name="ends")
    #: Categories that have a line each, from the top.
    lines: tuple[str, ...] = ()


class Trace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line, points, or the bars of one part."""

    #: Its name in the legend.
    name: str
    #: Where its points are across.
    x: list
    #: Where its points are up; categories where the axis has lines.
    y: list
    #: A name of the page's colors.
    color: str
    #: A name of the page's markers; "" without one.
    marker: str = ""
    #: A name of the page's dashes.
    dash: str = "solid"
    #: Whether its points are joined.
    line: bool = True
    #: Lower ends of the points' intervals, shaded along a line, else whiskers.
    low: list = []
    #: Upper ends of the points' intervals.
    high: list = []
    #: A point in words.
    says: list[str] = []
    #: Of bars: a sentence under each.
    captions: list[str] = []
    #: Whether its markers are white inside.
    hollow: bool = False
    #: Whether it is a broad, pale line.
    band: bool = False
    #: Hatching of bars; "" for none.
    pattern: str = ""
    #: Whether it is in the legend.
    legend: bool = True
    #: Its name where there is room for it beside the line, instead of in the legend.
    label: str = ""
    #: Height of the label, as a part of the plot's height.
    label_at: float = 0.0
    #: Whether the label is at the left end.
    label_left: bool = False


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One state of a chart."""

    #: Its name in the list that a reader chooses from; "" in a chart of one view.
    label: str
    x: Axis
    y: Axis
    #: Drawn in this order.
    traces: list[Trace]
    #: What it shows, in a sentence.
    says: str = ""
    #: Whether its traces are bars.
    bars: bool = False
    #: Lines from top to bottom: (x, words).
    lines: list[tuple[float, str]] = []
    #: Shaded from top to bottom: (from x, to x, words).
    bands: list[tuple[float, float, str]] = []
    #: Colors of the bands that say who wins; [] where all are gray.
    band_colors: list[str] = []


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of one or several views that a list chooses from."""

    #: Its name inside the program and the page.
    name: str
    title: str
    #: The first is shown until another is chosen.
    views: list[View]
    #: All its numbers, which no section repeats.
    numbers: Table
    #: Its SVG file, shown without JavaScript; "" without one.
    picture: str = ""
    #: Title of the list of views.
    chooses: str = ""
    #: Meaning of the mark behind some numbers; "" where no number has it.
    note: str = ""

    @property
    def says(self) -> str:
        """The sentence of the first view."""
        return self.views[0].says


def rounded(value: float) -> float:
    """The number in SIX significant digits, short enough to embed."""
    return float(f"{value:.{SIX - 1}e}")


def line(name: str, points: "Iterable[tuple[float, Estimate]]", color: str, says: Iterable[str] = (), **style) -> Trace:
    """A trace through (x, Estimate) with its interval. `style`: other fields of Trace."""
    xs = []
    values = []
    low = []
    high = []
    for x, estimate in points:
        xs.append(rounded(x))
        values.append(rounded(estimate.value))
        low.append(rounded(estimate.low))
        high.append(rounded(estimate.high))
    return Trace(
        name=name,
        x=xs,
        y=values,
        color=color,
        low=low,
        high=high,
        says=list(says),
        **style,
    )


def sides(cpu: "Points", gpu: "Points", words: Callable[[float], str]) -> list[Trace]:
    """Seconds on the CPU and on the GPU; `words`: an x in words."""
    cpu_says = [f"CPU, {words(x)}: {seconds(time.value)}" for x, time in cpu]
    gpu_says = [f"GPU, {words(x)}: {seconds(time.value)}" for x, time in gpu]
    return [
        line("CPU", cpu, "blue", cpu_says, marker="circle", dash="dot", hollow=True),
        line("GPU", gpu, "vermillion", gpu_says, marker="square", dash="solid"),
    ]


def stacked(parts: dict[str, list[float]], bars: list[str], words: Callable[[str, int, float], str]) -> list[Trace]:
    """Bars in parts. `parts`: name -> its values, one for each bar; `words`: (part, index of the bar, value) -> its text."""
    traces = []
    for i, (part, values) in enumerate(parts.items()):
        color = _BAR_COLORS[i % len(_BAR_COLORS)]
        pattern = _BAR_PATTERNS[i % len(_BAR_PATTERNS)]
        if part == REST:
            color = "gray"
            pattern = "/"
        traces.append(
            Trace(
                name=part,
                x=[rounded(value) for value in values],
                y=bars,
                color=color,
                says=[words(part, bar, value) for bar, value in enumerate(values)],
                pattern=pattern,
            )
        )
    return traces


def crossed(crossings: "Iterable[Crossing]", name: str, before: str = "") -> dict[str, Any]:
    """The lines and bands of a View that mark each change of the winner: a line at a known size, else a band over the possible
    sizes. `name`: of the size; `before`: words before it; {} is the device that wins from there."""
    places: list[tuple[float | None, float, float, str]] = []
    for crossing in crossings:
        low, high = place(crossing)
        winner = before.format(crossing.to.upper())
        if crossing.wide:
            places.append((None, low, high, f"{winner}somewhere here"))
        else:
            places.append((crossing.at.value, low, high, f"{winner}{crossing_size(crossing, name)}"))
    return marked(places)


def marked(places: Iterable[tuple[float | None, float, float, str]]) -> dict[str, Any]:
    """The lines and bands of a View that mark (x where it is known, from, to, words): a band if that is wide enough to see,
    else a line with the words."""
    lines = []
    bands = []
    for at, low, high, words in places:
        is_wide = high > FINE * low
        if is_wide:
            bands.append((rounded(low), rounded(high), words))
        if at is not None:
            lines.append((rounded(at), "" if is_wide else words))
    return {"lines": lines, "bands": bands}


def marks(i: int) -> dict:
    """The color, marker and dash of the i-th line: no two of the first 42 are alike in both."""
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "dash": DASHES[i % len(DASHES)]}


def place(crossing: Crossing) -> tuple[float, float]:
    """The interval of a crossing; where measured sizes lie far from each other, the whole gap between them."""
    if crossing.wide:
        return crossing.below, crossing.above
    return crossing.at.low, crossing.at.high


def spans(answer: Answer) -> list[tuple[float, float, int]]:
    """(from n, to n, sign) of the bands of a picture: 1 the GPU wins, -1 the CPU wins, 0 can't tell; they touch."""
    if not answer.points:
        return []
    intervals = {(crossing.below, crossing.above): place(crossing) for crossing in answer.crossings}
    bands: list[tuple[float, float, int]] = []
    start = float(answer.points[0].n)
    for point, after in itertools.pairwise(answer.points):
        if point.sign == after.sign:
            continue
        middle = (point.n * after.n) ** 0.5
        low, high = intervals.get((point.n, after.n), (middle, middle))
        bands += [(start, low, point.sign), (low, high, 0)]
        start = high
    last = answer.points[-1]
    bands.append((start, last.n, last.sign))
    return [band for band in bands if band[1] > band[0]]
