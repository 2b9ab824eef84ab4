"""Charts of layers, a line each: every backend's rate under its roof, and the winner along the batch or another size."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from analysis import labels
from analysis.crossover import layers
from analysis.crossover.answer import Answer
from analysis.crossover.forms import LATENCY
from analysis.report.charts.chart import WINNER, Axis, Chart, Trace, View, WinnerBand, rounded, winner_bands
from analysis.report.charts.crossover import answered, wins
from analysis.report.layers import Layers
from analysis.roofline.bounds import Judged, judge, mark_note
from analysis.stats import call_s, quick_seconds
from analysis.table import Table
from analysis.text import answers
from analysis.text.crossings import form_name, verdict_words
from analysis.text.rows import rate
from analysis.units import flops_rate, seconds
from kernels.problems import Problem
from workloads.records import Measurement

#: Side -> color and marker.
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
_OTHER_SIDE = ("green", "triangle-up")
#: Device -> color of its roofs.
_ROOFS = {"CPU": "blue", "GPU": "vermillion"}
#: Lines of a chart at most.
_MOST = 40
Item = TypeVar("Item")


def charts(study: Layers) -> list[Chart]:
    """The chart of rates, and a chart of winners for each size that varies; [] without rows."""
    return [*_rates(study), *(_winners(study, varies) for varies in study.drawn)]


def _points_trace(name: str, color: str, marker: str) -> Trace:
    """A trace of points, still without any."""
    return Trace(name=name, x=[], y=[], color=color, marker=marker, line=False, says=[], hollow=True)


def _add(trace: Trace, x: float, line: str, says: str) -> None:
    """Adds a point on a line of the chart."""
    trace.x.append(rounded(x))
    trace.y.append(line)
    trace.says.append(says)


def _rates(study: Layers) -> list[Chart]:
    """FLOP/s of the fastest kernel of every backend at each layer's largest batch, in the first precision, and the roofs."""
    rows = layers.largest(study.rows, study.op)
    precisions = list(dict.fromkeys(layers.precision_of(row.problem) for row in rows))
    if not precisions:
        return []
    precision = "float32" if "float32" in precisions else precisions[0]
    rows = [row for row in rows if layers.precision_of(row.problem) == precision]
    best = layers.best_by_side(rows, study.op)
    problems = _largest(list(best), lambda problem: problem.flops)
    traces = _rate_traces(study, {problem: best[problem] for problem in problems})
    drawn: list[Measurement] = []
    for problem in problems:
        drawn += best[problem].values()
    # Roofs come last and name no line that has no point.
    lines: dict[str, None] = {}
    for trace in traces:
        lines.update(dict.fromkeys(trace.y))
    noun = layers.NOUNS[study.op]
    view = View(
        label="",
        x=Axis(title="rate", unit="FLOP/s"),
        y=Axis(title="", unit="text", log=False, lines=tuple(lines)),
        traces=traces,
        says=_fastest_sentence(study, drawn),
    )
    numbers, note = _numbers(study)
    return [
        Chart(
            name=f"{noun}s",
            title=f"Rate of {noun}s; drawn: the largest batch, {precision}{_left_out(list(best))}",
            views=[view],
            numbers=numbers,
            picture=f"{noun}s.svg",
            note=note,
        )
    ]


def _line(study: Layers, problem: Problem) -> str:
    """The line of the chart for a problem: its layer and batch."""
    return f"{study.label(problem)}, {layers.size_of(problem)}"


def _rate_traces(study: Layers, best: dict[Problem, dict[str, Measurement]]) -> list[Trace]:
    """The points of each side, then the marks of the roofs over them. best: problem -> side (a backend or framework on a
    device) -> its fastest row.
    """
    points: dict[str, Trace] = {}
    roofs: dict[str, Trace] = {}
    for problem, by_side in best.items():
        line = _line(study, problem)
        for side, row in by_side.items():
            if side not in points:
                points[side] = _points_trace(side, *_SIDES.get(side, _OTHER_SIDE))
            flops = problem.flops / quick_seconds(row)
            _add(points[side], flops, line, f"{line}: {flops_rate(flops)}, {row.label}")
        for device, flops in _roofs_over(by_side.values(), study).items():
            if device not in roofs:
                roofs[device] = _points_trace(f"roof, {device}", _ROOFS.get(device, "gray"), "line-ns")
            _add(roofs[device], flops, line, f"{line}: roof of the {device} {flops_rate(flops)}")
    return [*points.values(), *roofs.values()]


def _fastest_sentence(study: Layers, rows: list[Measurement]) -> str:
    """A sentence on the highest rate of these rows, with the kernel and layer that reach it."""
    fastest, name = 0.0, ""
    for row in rows:
        flops = row.problem.flops / quick_seconds(row)
        fastest, name = max((fastest, name), (flops, f"{row.label}, {_line(study, row.problem)}"))
    noun = layers.NOUNS[study.op]
    return f"At its largest batch a {noun} reaches at most {flops_rate(fastest)} ({name})."


def _numbers(study: Layers) -> tuple[Table, str]:
    """The table of the chart, a line a layer, direction and batch: the fastest kernel of each backend, with resident data and
    warm caches. Also the note under it: the meaning of the mark behind some shares, "" where no share has it.
    """
    best = layers.best_by_side(study.rows, study.op)
    sides = _sorted_sides(best)
    rows = []
    judgments: list[Judged] = []
    for problem in _sorted_problems(study, best):
        cells = []
        for side in sides:
            row = best[problem].get(side)
            if row is None:
                cells.append("-")
                continue
            judged = judge(row, study.roofs)
            judgments.append(judged)
            cells.append(_cell(row, judged))
        layer = (
            study.names.get(problem, "-"),
            study.shape(problem),
            study.direction(problem),
            layers.precision_of(problem),
            layers.size_of(problem),
            problem.alignment if problem.alignment > 1 else "-",
        )
        fastest = min(best[problem].values(), key=layers.waited)
        rows.append((*layer, *cells, _kernel_words(fastest)))
    shape = "HxWxC:KxRxS" if study.op == "conv" else "MxNxK"
    heads = ("layer", shape, "direction", "precision", "batch", "multiples of", *sides, "fastest")
    return Table(heads, rows, left=4, optional=("layer", "multiples of")), mark_note(judgments)


def _sorted_sides(best: dict[Problem, dict[str, Measurement]]) -> list[str]:
    """The sides (a backend or framework on a device) that any problem has a row of: libraries before frameworks, the CPU before
    the GPU. best: problem -> side -> its fastest row.
    """
    rows: dict[str, Measurement] = {}
    for by_side in best.values():
        rows.update(by_side)

    def place(side: str) -> tuple:
        row = rows[side]
        return (bool(layers.framework_of(row)), row.on_gpu, row.device, side)

    return sorted(rows, key=place)


def _sorted_problems(study: Layers, best: Iterable[Problem]) -> list[Problem]:
    """The problems by precision, float32 first, then by layer and batch."""
    order = list(dict.fromkeys(study.label(problem) for problem in best))

    def place(problem: Problem) -> tuple:
        precision = layers.precision_of(problem)
        return (precision != "float32", precision, order.index(study.label(problem)), layers.size_of(problem))

    return sorted(best, key=place)


def _kernel_words(row: Measurement) -> str:
    """`numba/tiled x2 on the CPU`."""
    threads = f" x{row.threads}" if row.threads else ""
    return f"{row.label}{threads} on the {labels.device(row.device)}"


def _cell(row: Measurement, judged: Judged) -> str:
    """A row in a cell: `3.22 ms, 144 GFLOP/s, 32.1 %`. These are the time until a call has ended for the host, the rate and its
    share of the roof, both on the device's clock if it has one. A framework's row begins with how it was executed (jit,
    function).
    """
    execution = f"{row.variant} " if layers.framework_of(row) else ""
    share = f", {judged.share}" if judged.fraction else ""
    return f"{execution}{seconds(layers.waited(row))}, {rate(row)}{share}"


def _roofs_over(rows: Iterable[Measurement], study: Layers) -> dict[str, float]:
    """Device in words (CPU, GPU) -> the FLOP/s that the roofs allow for its fastest row by a library. rows: all of one
    problem.
    """
    roofs: dict[str, float] = {}
    for row in sorted(rows, key=call_s, reverse=True):  # the fastest comes last and stays
        judged = judge(row, study.roofs)
        if judged.fraction and not layers.framework_of(row):
            roofs[labels.device(row.device)] = row.problem.flops / quick_seconds(row) / judged.fraction.value
    return roofs


def _winners(study: Layers, varies: str) -> Chart:
    """The chart of who wins along one size (batch, channels or size): a line a layer, with bands by the winner of one call with
    resident data, in the first precision. All answers are in its table.
    """
    all_answers = [answer for answer in study.answers if answer.family.varies == varies]
    resident = [answer for answer in all_answers if answer.form == LATENCY and answer.points]
    precision = resident[0].precision
    same_precision = [answer for answer in resident if answer.precision == precision]
    drawn = _largest(same_precision, lambda answer: answer.points[-1].cpu.seconds.value)
    says = [*answers.summaries(all_answers), answers.sentence(drawn[0])]
    view = View(
        label="",
        x=Axis(title=drawn[0].family.size_name, unit="count", limits=_limits(drawn)),
        y=Axis(title="", unit="text", log=False, lines=tuple(dict.fromkeys(map(study.family_label, drawn)))),
        traces=_bands(study, drawn),
        says=says[0],
    )
    name = f"{layers.NOUNS[study.op]}s-{varies}"
    return Chart(
        name=name,
        title=f"Who wins, {precision}; shaded: {form_name(LATENCY)}{_left_out(same_precision)}",
        views=[view],
        numbers=wins(answered(all_answers), study.heads, study.which),
        picture=f"{name}.svg",
    )


def _bands(study: Layers, drawn: list[Answer]) -> list[Trace]:
    """Three traces of broad lines: the sizes at which the CPU wins, the GPU wins, and it can't be told. Each answer has a line of
    the chart.
    """
    bands = {}
    for sign, winner in WINNER.items():
        bands[sign] = Trace(name=winner.words, x=[], y=[], color=winner.color, band=True, says=[])
    for answer in drawn:
        line = study.family_label(answer)
        words = f"{line}: {verdict_words(answer)}"
        first = answer.points[0]
        single_size = WinnerBand(low=first.n, high=first.n * 1.05, sign=first.sign)  # wide enough to be seen
        for band in winner_bands(answer) or [single_size]:
            trace = bands[band.sign]
            trace.x.extend((rounded(band.low), rounded(band.high), None))  # None ends a piece of the trace
            trace.y.extend((line, line, line))
            trace.says.extend((words, words, words))
    return [band for band in bands.values() if band.x]


def _limits(drawn: list[Answer]) -> tuple[float, float]:
    """The ends of the x axis: the smallest and the largest size of the answers, with room beyond both."""
    sizes = []
    for answer in drawn:
        sizes += [point.n for point in answer.points]
    least = min(sizes)
    most = max(sizes)
    room = 1.06 if least < most else 1.5
    return (least / room, most * room)


def _largest(items: list[Item], work: Callable[[Item], float]) -> list[Item]:
    """The _MOST items with most work, in the order in which they are given."""
    by_work = sorted(range(len(items)), key=lambda i: work(items[i]), reverse=True)
    return [items[i] for i in sorted(by_work[:_MOST])]


def _left_out(items: list[Item]) -> str:
    """Words for a chart's title on the items that `_largest` leaves out; "" for none."""
    return f" (the {_MOST} of {len(items)} with most work)" if len(items) > _MOST else ""
