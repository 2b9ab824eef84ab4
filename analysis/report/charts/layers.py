"""Charts of layers, a line each: every backend's rate under its roof, and the winner along the batch or another size."""

from collections.abc import Callable, Iterable

from analysis import labels
from analysis.crossover import layers
from analysis.crossover.crossover import LATENCY
from analysis.report.charts.chart import WINNER, Axis, Chart, Trace, View, rounded, spans
from analysis.report.charts.crossover import answered, wins
from analysis.report.layers import Layers
from analysis.roofline.bounds import Judged, judge, mark_note
from analysis.stats import call_s, quick_seconds
from analysis.table import Table
from analysis.text import answers as words
from analysis.text import rows as row_words
from analysis.text.crossings import form_name, verdict_words
from analysis.units import flops_rate, seconds
from workloads.records import Measurement

_SIDES = {
    "numpy": ("blue", "circle"),
    "mkl": ("sky", "diamond"),
    "numba": ("green", "triangle-down"),
    "cupy": ("orange", "square"),
    "cudnn": ("vermillion", "cross"),
    "cublaslt": ("vermillion", "cross"),
    "tensorflow CPU": ("ink", "x"),
    "tensorflow GPU": ("purple", "cross-thin"),
}
_ROOFS = {"CPU": "blue", "GPU": "vermillion"}
_MOST = 40  # lines of a chart


def charts(of: Layers) -> list[Chart]:
    """The chart of rates, and a chart of winners for each size that varies; [] without rows."""
    return [*_rates(of), *(_crossings(of, varies) for varies in of.drawn)]


def _add(traces: dict[str, Trace], name: str, look: tuple[str, str], x: float, line: str, says: str) -> None:
    trace = traces.setdefault(
        name, Trace(name=name, x=[], y=[], color=look[0], marker=look[1], line=False, says=[], hollow=True)
    )
    trace.x.append(rounded(x))
    trace.y.append(line)
    trace.says.append(says)


def _rates(of: Layers) -> list[Chart]:
    """FLOP/s of the fastest kernel of every backend at each layer's largest batch, in the first precision, and the roofs."""
    rows = layers.largest(of.rows, of.op)
    maths = dict.fromkeys(layers.precision_of(m.problem) for m in rows)
    if not maths:
        return []
    shown = "float32" if "float32" in maths else next(iter(maths))
    best = layers.best_by_side([m for m in rows if layers.precision_of(m.problem) == shown], of.op)
    problems, left_out = _most(list(best), lambda p: p.flops)
    most = 0.0, ""
    points: dict[str, Trace] = {}
    roofs: dict[str, Trace] = {}
    for p in problems:
        line = f"{of.label(p)}, {layers.size_of(p)}"
        for side, m in best[p].items():
            rate = p.flops / quick_seconds(m)
            told, most = flops_rate(rate), max(most, (rate, f"{m.label}, {line}"))
            _add(points, side, _SIDES.get(side, ("green", "triangle-up")), rate, line, f"{line}: {told}, {m.label}")
        for place, rate in _roofs_over(best[p].values(), of).items():
            look = (_ROOFS.get(place, "gray"), "line-ns")
            _add(roofs, f"roof, {place}", look, rate, line, f"{line}: roof of the {place} {flops_rate(rate)}")
    one = layers.NOUNS[of.op]
    title = f"Rate of {one}s; drawn: the largest batch, {shown}{left_out}"
    says = f"At its largest batch a {one} reaches at most {flops_rate(most[0])} ({most[1]})."
    traces = [*points.values(), *roofs.values()]
    lines = tuple(dict.fromkeys(y for t in points.values() for y in t.y))
    view = View(
        label="",
        x=Axis(title="rate", unit="FLOP/s"),
        y=Axis(title="", unit="text", log=False, lines=lines),
        traces=traces,
        says=says,
    )
    numbers, note = _numbers(of)
    return [
        Chart(name=f"{one}s", title=title, views=[view], numbers=numbers, picture=f"{one}s.svg", note=note),
    ]


def _numbers(of: Layers) -> tuple[Table, str]:
    """A line a layer, direction and batch: the fastest kernel of each backend, with resident data and warm caches; then the
    meaning of the mark behind some shares, "" where none has it."""
    best = layers.best_by_side(of.rows, of.op)
    some = {side: m for at in best.values() for side, m in at.items()}
    sides = sorted(some, key=lambda s: (bool(layers.framework_of(some[s])), some[s].on_gpu, some[s].device, s))
    order = list(dict.fromkeys(map(of.label, best)))
    placed = {p: (layers.precision_of(p), order.index(of.label(p)), layers.size_of(p)) for p in best}
    rows = []
    judgments: list[Judged] = []
    for p in sorted(best, key=lambda p: (placed[p][0] != "float32", *placed[p])):
        wins = min(best[p].values(), key=layers.waited)
        fastest = f"{wins.label}{f' x{wins.threads}' if wins.threads else ''} on the {labels.device(wins.device)}"
        cells = []
        for side in sides:
            m = best[p].get(side)
            if m is None:
                cells.append("-")
                continue
            judged = judge(m, of.roofs)
            judgments.append(judged)
            cells.append(_cell(m, judged))
        which = of.names.get(p, "-"), of.shape(p), of.direction(p), layers.precision_of(p), layers.size_of(p)
        rows.append((*which, p.alignment if p.alignment > 1 else "-", *cells, fastest))
    shape = "HxWxC:KxRxS" if of.op == "conv" else "MxNxK"
    heads = "layer", shape, "direction", "precision", "batch", "multiples of", *sides, "fastest"
    return Table(heads, rows, 4, ("layer", "multiples of")), mark_note(judgments)


def _cell(m: Measurement, judged: Judged) -> str:
    """`3.22 ms, 144 GFLOP/s, 32.1 %`: the latency of a call, the rate and its share of the roof, both on the device's clock if
    it has one; of a framework with its execution."""
    execution = f"{m.variant} " if layers.framework_of(m) else ""
    share = f", {judged.share}" if judged.fraction else ""
    return f"{execution}{seconds(layers.waited(m))}, {row_words.rate(m)}{share}"


def _roofs_over(rows: Iterable, of: Layers) -> dict[str, float]:
    """CPU, GPU -> the FLOP/s that the roofs allow for the fastest library row on it."""
    found: dict[str, float] = {}
    for m in sorted(rows, key=call_s, reverse=True):
        judged = judge(m, of.roofs)
        if judged.fraction and not layers.framework_of(m):
            found[labels.device(m.device)] = m.problem.flops / quick_seconds(m) / judged.fraction.value
    return found


def _crossings(of: Layers, varies: str) -> Chart:
    """A line a family of the first precision, with bands of the winner of one resident call. All answers are in its table."""
    shown = [a for a in of.answers if a.family.varies == varies]
    resident = [a for a in shown if a.form == LATENCY and a.points]
    first = resident[0].precision
    resident, left_out = _most([a for a in resident if a.precision == first], lambda a: a.points[-1].cpu.seconds.value)
    bands = {
        sign: Trace(name=who, x=[], y=[], color=color, band=True, says=[]) for sign, (who, color) in WINNER.items()
    }
    for a in resident:
        line = of.family_label(a)
        for start, end, sign in spans(a) or [(a.points[0].n, a.points[0].n * 1.05, a.points[0].sign)]:
            bands[sign].x.extend((rounded(start), rounded(end), None))
            bands[sign].y.extend([line] * 3)
            bands[sign].says.extend([f"{line}: {verdict_words(a)}"] * 3)
    says = [*words.summaries(shown), words.sentence(resident[0])][0]
    sizes, lines = [p.n for a in resident for p in a.points], tuple(dict.fromkeys(map(of.family_label, resident)))
    room = 1.06 if min(sizes) < max(sizes) else 1.5
    x = Axis(title=resident[0].family.size_name, unit="count", limits=(min(sizes) / room, max(sizes) * room))
    axes = x, Axis(title="", unit="text", log=False, lines=lines)
    view = View(label="", x=axes[0], y=axes[1], traces=[b for b in bands.values() if b.x], says=says)
    title = f"Who wins, {first}; shaded: {form_name(LATENCY)}{left_out}"
    stem = f"{layers.NOUNS[of.op]}s-{varies}"
    numbers = wins(answered(shown), of.heads, of.which)
    return Chart(name=stem, title=title, views=[view], numbers=numbers, picture=f"{stem}.svg")


def _most(found: list, by: Callable) -> tuple[list, str]:
    """(the _MOST largest items in their order, words on the others for the title)."""
    if len(found) <= _MOST:
        return found, ""
    kept = sorted(range(len(found)), key=lambda i: by(found[i]), reverse=True)[:_MOST]
    return [found[i] for i in sorted(kept)], f" (the {_MOST} of {len(found)} with most work)"
