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
_BAR_COLORS = ("blue", "orange", "sky", "vermillion", "green", "purple", "ink")
#: Not as many as colors: no two parts look alike.
_BAR_PATTERNS = ("", "/", "", "x", ".", "-")


class BandLook(msgspec.Struct, frozen=True, kw_only=True):
    """The band over the sizes with one winner."""

    #: What it says.
    words: str
    #: A name of the page's colors.
    color: str


#: Sign of a comparison (see WinnerBand) -> its band.
WINNER = {
    -1: BandLook(words="CPU wins", color="cpu-band"),
    0: BandLook(words="can't tell", color="none-band"),
    1: BandLook(words="GPU wins", color="gpu-band"),
}


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


def line(
    name: str, points: Iterable[tuple[float, Estimate]], color: str, says: Iterable[str] = (), **style: Any
) -> Trace:
    """A trace through points (x, estimate of y), with their intervals.

    says: the words of each point, which the page shows under the pointer. style: other fields of Trace, such as marker.
    """
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


def sides(cpu: Points, gpu: Points, words: Callable[[float], str]) -> list[Trace]:
    """A line of seconds for the CPU and one for the GPU. cpu, gpu: points (x, seconds). words: puts an x into words."""
    cpu_says = [f"CPU, {words(x)}: {seconds(time.value)}" for x, time in cpu]
    gpu_says = [f"GPU, {words(x)}: {seconds(time.value)}" for x, time in gpu]
    return [
        line("CPU", cpu, "blue", cpu_says, marker="circle", dash="dot", hollow=True),
        line("GPU", gpu, "vermillion", gpu_says, marker="square", dash="solid"),
    ]


def stacked(parts: dict[str, list[float]], bars: list[str], words: Callable[[str, int, float], str]) -> list[Trace]:
    """Bars that are stacked of parts, a trace a part.

    Args:
        parts: name of a part -> its length in each bar.
        bars: the names of the bars.
        words: called with a part's name, the index of a bar and the length; gives the text that the page shows for it.
    """
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


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A place on the x axis that is marked from top to bottom."""

    #: Where it is; None where only the range is known.
    at: float | None
    #: The lower end of the range in which it is.
    low: float
    #: The upper end.
    high: float
    #: What stands beside it.
    words: str


class WinnerBand(msgspec.Struct, frozen=True, kw_only=True):
    """A range of sizes with one winner."""

    #: The smallest size.
    low: float
    #: The largest size.
    high: float
    #: 1: the GPU wins; -1: the CPU wins; 0: it can't be told. WINNER has the words.
    sign: int


def crossed(crossings: Iterable[Crossing], name: str, before: str = "") -> dict[str, Any]:
    """The fields `lines` and `bands` of a View, which mark each size at which the winner changes.

    Args:
        name: of the size, such as batch.
        before: words before each size, in which {} is the device that wins from there on.
    """
    places = []
    for crossing in crossings:
        low, high = interval_of(crossing)
        winner = before.format(crossing.to.upper())
        at = None if crossing.wide else crossing.at.value
        size = "somewhere here" if crossing.wide else crossing_size(crossing, name)
        places.append(Mark(at=at, low=low, high=high, words=f"{winner}{size}"))
    return marked(places)


def marked(places: Iterable[Mark]) -> dict[str, Any]:
    """The fields `lines` and `bands` of a View for these places: a line where the place is known, and a band over its range if
    that is wide enough to be seen. The words stand in the band, else at the line.
    """
    lines = []
    bands = []
    for place in places:
        is_wide = place.high > FINE * place.low
        if is_wide:
            bands.append((rounded(place.low), rounded(place.high), place.words))
        if place.at is not None:
            lines.append((rounded(place.at), "" if is_wide else place.words))
    return {"lines": lines, "bands": bands}


def marks(i: int) -> dict[str, Any]:
    """The fields color, marker and dash of the i-th trace of a chart, from 0: no two of the first 42 are alike in both."""
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "dash": DASHES[i % len(DASHES)]}


def interval_of(crossing: Crossing) -> tuple[float, float]:
    """The range of sizes in which the winner changes: the crossing's interval, or the whole gap between two measured sizes that
    lie far from each other.
    """
    if crossing.wide:
        return crossing.below, crossing.above
    return crossing.at.low, crossing.at.high


def winner_bands(answer: Answer) -> list[WinnerBand]:
    """The ranges of sizes of an answer by their winner, each beginning where the one before ends; [] without measured sizes.
    Between two sizes with different winners lies a range in which it can't be told: the interval of the crossing there.
    """
    if not answer.points:
        return []
    intervals = {(crossing.below, crossing.above): interval_of(crossing) for crossing in answer.crossings}
    bands: list[WinnerBand] = []
    start = float(answer.points[0].n)
    for point, after in itertools.pairwise(answer.points):
        if point.sign == after.sign:
            continue
        middle = (point.n * after.n) ** 0.5
        low, high = intervals.get((point.n, after.n), (middle, middle))
        bands.append(WinnerBand(low=start, high=low, sign=point.sign))
        bands.append(WinnerBand(low=low, high=high, sign=0))
        start = high
    last = answer.points[-1]
    bands.append(WinnerBand(low=start, high=last.n, sign=last.sign))
    return [band for band in bands if band.high > band.low]
