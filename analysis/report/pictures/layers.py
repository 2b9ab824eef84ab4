"""Pictures of layers: every backend's rate at each of them, and who wins where along the batch, the channels or the image."""

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.crossover import layers
from analysis.crossover.crossover import COPIES, LATENCY, THROUGHPUT, Answer
from analysis.report.charts.choose import WINNER, spans
from analysis.report.pictures.style import BANDS, COLORS, picture, rates_axis, sizes_axis
from analysis.report.sections.layers import SECTIONS, Layers
from analysis.roofline.bounds import judge
from analysis.stats import call_s, quick_seconds
from analysis.text.crossings import form_name
from analysis.units import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDES = {
    "numpy": ("blue", "o"),
    "mkl": ("sky", "D"),
    "numba": ("green", "v"),
    "cupy": ("orange", "s"),
    "cudnn": ("vermillion", "P"),
    "cublaslt": ("vermillion", "P"),
    "tensorflow CPU": ("ink", "x"),
    "tensorflow GPU": ("purple", "+"),
}
_OTHER = ("green", "^")
_MARKS = {
    THROUGHPUT: ("queued calls", "purple", "D"),
    COPIES[0]: ("copies as written", "orange", "s"),
    COPIES[1]: ("copies, pinned", "green", "^"),
    COPIES[2]: ("copies, pageable", "ink", "v"),
}
_MOST = 40  # lines of a picture
_ROOFS = {"CPU": "blue", "GPU": "vermillion"}
_FONT = 9


def figure(of: Layers, name: str) -> "Figure":
    """The picture of that name (analysis.report.sections.layers.pictures_of)."""
    _, _, varies = name.partition("-")
    return crossings(of, varies) if varies else rates(of)


def rates(of: Layers) -> "Figure":
    """FLOP/s of the fastest kernel of every backend, a line a layer and direction at its largest batch; bars are the roofs."""
    rows = layers.largest(of.rows, of.op)
    maths = dict.fromkeys(layers.precision_of(m.problem) for m in rows)
    shown = "float32" if "float32" in maths or not maths else next(iter(maths))
    best = layers.best_by_side((m for m in rows if layers.precision_of(m.problem) == shown), of.op)
    problems, left_out = _most(list(best), lambda p: p.flops)
    labels = [f"{of.label(p)}, {layers.size_of(p)}" for p in problems]
    title = f"Rate of {SECTIONS[of.op][2]} at their largest batch, {shown}" + left_out
    drawn = dict.fromkeys(side for p in problems for side in best[p])
    with _lines(title, "FLOP/s", labels, -(-(len(drawn) + 2) // 4)) as (figure, axes):
        every = []
        for y, p in enumerate(problems):
            for side, m in best[p].items():
                color, marker = _SIDES.get(side, _OTHER)
                every.append(p.flops / quick_seconds(m))
                axes.plot(
                    [every[-1]], [y], color=COLORS[color], marker=marker, ms=6, ls="", mfc="none", mew=1.4, zorder=3
                )
            for place, rate in _roofs_over(best[p].values(), of).items():
                every.append(rate)
                axes.plot(
                    [rate], [y], color=COLORS[_ROOFS.get(place, "gray")], marker="|", ms=13, mew=2, ls="", alpha=0.55
                )
        if every:
            axes.set_xlim(min(every) / 1.6, max(every) * 1.6)
        rates_axis(axes)
        places = dict.fromkeys(layers.place(m) for p in problems for m in best[p].values())
        _legend(
            figure,
            [(side, *_SIDES.get(side, _OTHER)) for side in drawn],
            [(f"roof, {place}", _ROOFS.get(place, "gray"), "|") for place in places],
        )
    return figure


def _roofs_over(rows, of: Layers) -> dict[str, float]:
    """CPU, GPU -> the rate that the roofs allow its fastest library row."""
    found: dict[str, float] = {}
    for m in sorted(rows, key=call_s, reverse=True):
        judged = judge(m, of.roofs)
        if judged.fraction and not layers.framework_of(m):
            found[layers.place(m)] = m.problem.flops / quick_seconds(m) / judged.fraction.value
    return found


def crossings(of: Layers, varies: str) -> "Figure":
    """A line a family of the first precision: bands say who wins one call with the data there; marks, from where the GPU wins
    in other forms."""
    answers = [a for a in of.answers if a.family.varies == varies and not a.form.framework and a.form.cache == "warm"]
    first = next((a.precision for a in answers if a.form == LATENCY and a.points), "")
    resident = [a for a in answers if a.precision == first and a.form == LATENCY and a.points]
    resident, left_out = _most(resident, lambda a: a.points[-1].cpu.seconds.value)
    name = resident[0].family.size_name if resident else varies
    title = f"Who wins, {first}; shaded: {form_name(LATENCY)}{left_out}"
    with _lines(title, name, [of.family_label(a) for a in resident], 2) as (figure, axes):
        sizes_axis(axes, [p.n for a in resident for p in a.points])
        low, high = axes.get_xlim()
        signs, marks = {}, {}
        for y, a in enumerate(resident):
            for start, end, sign in _widest(a, low, high):
                signs[sign] = WINNER[sign]
                axes.barh(y, end - start, left=start, height=0.72, color=BANDS[signs[sign]], alpha=0.45, lw=0)
            for other in (b for b in answers if (b.family, b.precision) == (a.family, first)):
                for c in (c for c in other.crossings if c.to == "gpu" and not c.wide):
                    words, color, marker = _MARKS.get(other.form, ("one call", "ink", "|"))
                    if other.form == LATENCY or other.form in _MARKS:
                        marks[words] = (words, color, marker)
                        axes.plot(
                            [c.at.value],
                            [y],
                            color=COLORS[color],
                            marker=marker,
                            ms=5.5,
                            ls="",
                            mfc="none",
                            mew=1.3,
                            zorder=3,
                        )
        axes.set_xlim(low, high)
        found = [(signs[sign], BANDS[signs[sign]], "bar") for sign in sorted(signs)]
        _legend(figure, found, [(f"from here: {words}", color, marker) for words, color, marker in marks.values()])
    return figure


def _widest(a: Answer, low: float, high: float) -> list[tuple[float, float, int]]:
    """The bands of an answer, the outer ones up to the edges of the axes where they begin or end at them; one for one size."""
    found = spans(a) or [(a.points[0].n, a.points[0].n, a.points[0].sign)]
    last, edges = len(found) - 1, (a.points[0].n <= low * 1.2, a.points[-1].n >= high / 1.2)
    found = [
        (low if i == 0 and edges[0] else start, high if i == last and edges[1] else end, sign)
        for i, (start, end, sign) in enumerate(found)
    ]
    return [(start, end if end > start else start * 1.05, sign) for start, end, sign in found]


def _most(found: list, by) -> tuple[list, str]:
    """The largest of many, in their order, and what a title says of the others."""
    if len(found) <= _MOST:
        return found, ""
    kept = sorted(range(len(found)), key=lambda i: by(found[i]), reverse=True)[:_MOST]
    return [found[i] for i in sorted(kept)], f" ({count(_MOST, 'line')} of {len(found)}, those with most work)"


@contextlib.contextmanager
def _lines(title: str, x: str, labels: list[str], legend_lines: int) -> Iterator:
    """A picture with a named line for each label, the first on top, and room for so many lines of legend."""
    widest = max(map(len, labels), default=4)
    width, below = 8.6, 0.12 + 0.2 * legend_lines
    height = 1.15 + below + 0.235 * max(len(labels), 3)
    with picture(title, x, (width, height), 0.94, (0.3 + 0.078 * widest) / width, below) as (figure, axes):
        axes.set_yscale("linear")
        axes.set_ylim(max(len(labels), 1) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), labels, fontsize=_FONT)
        axes.tick_params(axis="y", length=0)
        yield figure, axes


def _legend(figure, *groups) -> None:
    """What colors and marks stand for, under the axes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = []
    for words, color, marker in (one for group in groups for one in group):
        if marker == "bar":
            handles.append(Patch(facecolor=color, alpha=0.45, label=words))
        else:
            handles.append(
                Line2D([], [], color=COLORS[color], marker=marker, ls="", mfc="none", mew=1.4, ms=7, label=words)
            )
    columns = min(4, max(1, math.ceil(len(handles) / 2))) if len(handles) > 4 else 4
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.02, 0.0), fontsize=_FONT, ncols=columns)
