"""Charts as data: the page draws them by JavaScript, with a table under each. Colors by Okabe and Ito, each line with a
marker or a dash of its own."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from analysis.crossover.crossover import FINE, Answer, Crossing
from analysis.predict.budget import REST
from analysis.stats import Estimate
from analysis.table import Table
from analysis.text.sentences import crossing_size
from analysis.units import seconds

Points = Sequence[tuple[float, Estimate]]


SIX = 6  # significant digits of drawn values
COLORS = ("blue", "vermillion", "green", "purple", "orange", "sky", "ink")
MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PRECISIONS = {"float32": "blue", "float64": "vermillion", "tf32": "green", "float16": "purple", "bfloat16": "orange"}
WINNER = {-1: ("CPU wins", "cpu-band"), 0: ("can't tell", "none-band"), 1: ("GPU wins", "gpu-band")}  # and a color
_BARS = ("blue", "orange", "sky", "vermillion", "green", "purple", "ink")
_PATTERNS = ("", "/", "", "x", ".", "-")  # not as many as colors: no two parts are alike


class Axis(msgspec.Struct, frozen=True):
    """`unit` says how its values are written: as in METRICS, `text` for categories."""

    title: str
    unit: str
    log: bool = True
    ends: tuple[float, float] | None = None  # the range shown; None: that of all values
    lines: tuple[str, ...] = ()  # of words: these from the top, a line each


class Trace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line or the bars of one part. `low`, `high`: the interval, shaded along a line, else a whisker; `says`: a point in
    words."""

    name: str
    x: list
    y: list
    color: str
    marker: str = ""
    dash: str = "solid"
    line: bool = True
    low: list = []
    high: list = []
    says: list[str] = []
    captions: list[str] = []  # of bars: a sentence under each
    hollow: bool = False
    band: bool = False  # a broad, pale line
    pattern: str = ""
    legend: bool = True
    label: str = ""  # its name where there is room for it beside the line, instead of in the legend
    label_at: float = 0.0  # the height of that, in parts of the plot's
    label_left: bool = False


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """One state of a chart. `lines`: (value, words) drawn across at an x; `bands`: (from x, to x, words) shaded across."""

    label: str
    x: Axis
    y: Axis
    traces: list[Trace]
    says: str = ""
    bars: bool = False
    lines: list[tuple[float, str]] = []
    bands: list[tuple[float, float, str]] = []
    band_colors: list[str] = []  # of the bands that say who wins, one each


class Chart(msgspec.Struct, frozen=True):
    """A chart of one or several views that a list chooses from, and all its numbers as a table, which no section repeats.

    `picture`: its SVG file, shown without JavaScript; "" without one. `chooses`: the title of the list of views. `note`: the
    meaning of the mark behind some numbers; "" where no number has it.
    """

    name: str
    title: str
    views: list[View]
    numbers: Table
    picture: str = ""
    chooses: str = ""
    note: str = ""

    @property
    def says(self) -> str:
        """The sentence of the first view, which shows until another is chosen."""
        return self.views[0].says


def rounded(value: float) -> float:
    """The number in SIX significant digits, short enough to embed."""
    return float(f"{value:.{SIX - 1}e}")


def line(name: str, points: "Iterable[tuple[float, Estimate]]", color: str, says: Iterable[str] = (), **how) -> Trace:
    """A trace through (x, Estimate) with its interval."""
    points = list(points)
    ys = [[rounded(getattr(e, end)) for _, e in points] for end in ("value", "low", "high")]
    return Trace(name, [rounded(x) for x, _ in points], ys[0], color, low=ys[1], high=ys[2], says=list(says), **how)


def sides(cpu: "Points", gpu: "Points", words: Callable[[float], str]) -> list[Trace]:
    """Seconds on the CPU and on the GPU; `words`: an x in words."""
    looks = (("CPU", cpu, "blue", "circle", "dot"), ("GPU", gpu, "vermillion", "square", "solid"))
    return [
        line(
            name,
            points,
            color,
            [f"{name}, {words(x)}: {seconds(e.value)}" for x, e in points],
            marker=marker,
            dash=dash,
            hollow=name == "CPU",
        )
        for name, points, color, marker, dash in looks
    ]


def stacked(parts: dict[str, list[float]], where: list[str], words: Callable[[str, int, float], str]) -> list[Trace]:
    """Bars in parts. parts: name -> its values, one for each bar; `words`: (part, index of the bar, value) -> its text."""
    return [
        Trace(
            part,
            [rounded(v) for v in values],
            where,
            "gray" if part == REST else _BARS[i % len(_BARS)],
            says=[words(part, j, v) for j, v in enumerate(values)],
            pattern="/" if part == REST else _PATTERNS[i % len(_PATTERNS)],
        )
        for i, (part, values) in enumerate(parts.items())
    ]


def crossed(crossings: "Iterable[Crossing]", name: str, before: str = "") -> dict[str, Any]:
    """The lines and bands of a View that mark each change of the winner: a line at a known size, else a band over the possible
    sizes. `before`: words before the size; {} is the device that wins from there."""
    return marked(
        (
            None if c.wide else c.at.value,
            *place(c),
            f"{before.format(c.to.upper())}{'somewhere here' if c.wide else crossing_size(c, name)}",
        )
        for c in crossings
    )


def marked(places: Iterable[tuple[float | None, float, float, str]]) -> dict[str, Any]:
    """The lines and bands of a View that mark (x where it is known, from, to, words): a band if that is wide enough to see,
    else a line with the words."""
    lines, bands = [], []
    for at, low, high, words in places:
        wide = high > FINE * low
        bands += [(rounded(low), rounded(high), words)] * wide
        lines += [] if at is None else [(rounded(at), "" if wide else words)]
    return {"lines": lines, "bands": bands}


def marks(i: int) -> dict:
    """The color, marker and dash of the i-th line: no two of the first 42 are alike in both."""
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "dash": DASHES[i % len(DASHES)]}


def place(c: Crossing) -> tuple[float, float]:
    """The interval of a picture's crossing; where measured sizes lie far apart, the whole gap between them."""
    return (c.below, c.above) if c.wide else (c.at.low, c.at.high)


def spans(a: Answer) -> list[tuple[float, float, int]]:
    """(from n, to n, sign) of the bands of a picture: 1 the GPU wins, -1 the CPU wins, 0 can't tell; they touch."""
    if not a.points:
        return []
    between = {(c.below, c.above): place(c) for c in a.crossings}
    made, start, last = [], float(a.points[0].n), a.points[-1]
    for p, q in itertools.pairwise(a.points):
        if p.sign != q.sign:
            low, high = between.get((p.n, q.n), ((p.n * q.n) ** 0.5,) * 2)
            made += [(start, low, p.sign), (low, high, 0)]
            start = high
    return [(low, high, sign) for low, high, sign in (*made, (start, last.n, last.sign)) if high > low]
