"""The crossover on the page: data for every run, precision, form of a call and reuse of a copy, which the page's slider
selects, and the parts of the time at each size."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from analysis.crossover import reuse, time_split
from analysis.crossover.answer import Answer
from analysis.crossover.families import SQUARES, RowsByPrecision, rows_of
from analysis.crossover.fastest_row import FastestRow, best_of_cpu
from analysis.crossover.forms import COPIES, LATENCY, THROUGHPUT
from analysis.report.charts.chart import WINNER, Axis, Chart, Trace, View, crossed, line, marks, rounded, winner_bands
from analysis.report.material import Material
from analysis.table import Table, named
from analysis.text import crossings, sentences
from analysis.units import seconds

_FORMS = (LATENCY, THROUGHPUT, *COPIES)
_SHORT = {
    LATENCY: "resident, one call",
    THROUGHPUT: "resident, calls queued",
    **{form: f"copied, {crossings.copy_name(form)}" for form in COPIES},
}
_ANSWERS = "precision | by | caches | a call | answer | measured"
PARTS = (time_split.ARITHMETIC, time_split.OVERHEAD, time_split.COPIES, time_split.REMAINDER)


def shown(answers: Iterable[Answer]) -> list[Answer]:
    """The answers of the chart: those with points in a form that it draws."""
    return [answer for answer in answers if answer.points and answer.form in _FORMS]


def data(runs: Sequence[Material]) -> dict:
    """The data of the crossover's chart for web/crossover.js: run -> precision -> size -> seconds; {} if there are no two lines
    to compare.
    """
    if not is_drawn(runs):
        return {}
    drawn = []
    for run in runs:
        precisions = _precisions(run)
        if precisions:
            drawn.append({"letter": run.letter, "name": run.name, "precisions": precisions})
    return {"runs": drawn, "parts": list(PARTS)}


def is_drawn(runs: Sequence[Material]) -> bool:
    """Whether there are two lines to see: a GPU's points, or the CPUs of two runs."""
    with_gpu = [run for run in runs if shown(run.analysis.crossovers)]
    with_cpu = [run for run in runs if _cpu(run)]
    return bool(with_gpu) or len(with_cpu) > 1


def _precisions(material: Material) -> list[dict[str, Any]]:
    """For each precision: the sizes n, the CPU's fastest seconds at them, and the GPU's by form of a call; without a GPU only the
    CPU's.
    """
    answers = shown(material.analysis.crossovers)
    precisions = []
    for precision, best in _cpu(material).items():
        cpu = _curve(best.values())
        cpu["side"] = [crossings.side_name(side) for side in best.values()]
        forms = [_form(material, answer) for answer in answers if answer.precision == precision]
        precisions.append({"precision": precision, "n": list(best), "cpu": cpu, "forms": forms})
    return precisions


def _form(material: Material, answer: Answer) -> dict[str, Any]:
    """The data of one form of a GPU call (resident or copied, waited for or queued): its answer for each number of uses of a
    copy, and the parts of its time.
    """
    return {
        "form": _SHORT[answer.form],
        "words": crossings.form_name(answer.form),
        "uses": _uses(material.analysis.crossovers, answer),
        "parts": _parts(rows_of(material.rows, SQUARES), answer),
    }


def _cpu(material: Material) -> "dict[str, dict[int, FastestRow]]":
    """Precision -> n -> the CPU's fastest row: the one that the answers compare the GPU with; without answers the fastest of
    all.
    """
    by_precision: dict[str, dict[int, FastestRow]] = {}
    for answer in shown(material.analysis.crossovers):
        by_size = by_precision.setdefault(answer.precision, {})
        by_size.update({point.n: point.cpu for point in answer.points})
    if not by_precision:
        return best_of_cpu(material.rows)
    return {precision: dict(sorted(by_size.items())) for precision, by_size in by_precision.items()}


def chart(material: Material) -> list[Chart]:
    """The first precision: the CPU's best beside one GPU call with resident data, and the bands of who wins; for a single run
    every form of a call. A single run without a GPU has no chart."""
    cpu = _cpu(material)
    answers = shown(material.analysis.crossovers)
    is_single = not material.letter
    if not cpu or (is_single and not answers):
        return []
    resident = next((answer for answer in answers if answer.form == LATENCY), None)
    precision = resident.precision if resident else next(iter(cpu))
    points = [(n, side.seconds) for n, side in cpu[precision].items()]
    traces = [line(f"CPU, best, {precision}", points, "blue", marker="circle", dash="dot", hollow=True)]
    for answer in answers:
        if answer.precision == precision and (answer is resident or is_single):
            traces.append(_gpu_trace(answer))
    label = ""
    marked: dict[str, Any] = {}
    if resident:
        says = verdict(resident)
        marked = crossed(resident.crossings, resident.family.size_name)
        if is_single:
            label = f"{precision}; shaded: {crossings.form_name(resident.form)}"
            bands = winner_bands(resident)
            marked["bands"] = [(band.low, band.high, WINNER[band.sign].words) for band in bands]
            marked["band_colors"] = [WINNER[band.sign].color for band in bands]
    else:
        says = crossings.no_gpu_sentence(material.rows, material.analysis.machine)
    view = View(
        label=label,
        x=Axis(title="n of an n x n x n product", unit="count"),
        y=Axis(title="time of a call", unit="s"),
        traces=traces,
        says=says,
        **marked,
    )
    return [
        Chart(
            name="crossover",
            title="Time of one square matmul",
            views=[view],
            numbers=_numbers(material),
            picture="crossover.svg",
        )
    ]


def _gpu_trace(answer: Answer) -> Trace:
    """The GPU's seconds by n of one form of a call, in the same look for the same form on all charts."""
    look = marks(1 + _FORMS.index(answer.form))
    points = [(point.n, point.gpu.seconds) for point in answer.points]
    name = f"GPU, {_SHORT[answer.form]}, {answer.precision}"
    return line(name, points, look["color"], marker=look["marker"], dash="solid")


def _curve(sides: Iterable[FastestRow]) -> dict[str, list]:
    """Three lists for the page's script: medians of seconds (s), and the ends of their intervals (low, high)."""
    curve: dict[str, list] = {"s": [], "low": [], "high": []}
    for side in sides:
        curve["s"].append(rounded(side.seconds.value))
        curve["low"].append(rounded(side.seconds.low))
        curve["high"].append(rounded(side.seconds.high))
    return curve


def _uses(answers: tuple[Answer, ...], answer: Answer) -> list[dict[str, Any]]:
    """The data of an answer for each number of uses that share a copy (reuse.USES), which the page's slider selects; for one use
    only where nothing is copied. answers: all of the run, in which the resident one is looked up.
    """
    by_uses = {1: answer}
    for resident, copied in reuse.pairs(answers, answer.precision):
        if copied is answer:
            more = [uses for uses in reuse.USES if uses > 1]
            by_uses |= {uses: reuse.amortized(resident, copied, uses) for uses in more}
            break
    return [_use(uses, amortized) for uses, amortized in by_uses.items()]


def _use(uses: int, answer: Answer) -> dict[str, Any]:
    """The data of an answer for the page's script: the GPU's seconds by n, the verdict in words, the bands of the winner, and
    where it changes. uses: how many calls share a copy.
    """
    known = []
    for crossing in answer.crossings:
        if not crossing.wide:
            words = sentences.crossing_size(crossing, answer.family.size_name)
            known.append({"at": rounded(crossing.at.value), "words": words, "to": crossing.to})
    bands = [[rounded(band.low), rounded(band.high), band.sign] for band in winner_bands(answer)]
    return {
        "k": uses,
        "n": [point.n for point in answer.points],
        **_curve(point.gpu for point in answer.points),
        "verdict": verdict(answer),
        "spans": bands,
        "crossings": known,
    }


def verdict(answer: Answer) -> str:
    """A sentence: the precision, the form of a call, and who wins at which size."""
    which = f"{crossings.precision_name(answer)}, {crossings.form_name(answer.form)}"
    return f"{which}: {crossings.verdict_words(answer)}."


def _parts(squares: RowsByPrecision, answer: Answer) -> list[list[float | None]]:
    """For each size a list for the page's script: n, the CPU's seconds, then the GPU's seconds of each part in the order of
    PARTS, None where a part was not measured. squares: the rows of square products.
    """
    rows = []
    for split in time_split.why(squares, answer, True):
        parts = [None if time is None else rounded(time) for time in split.parts.values()]
        rows.append([split.n, rounded(split.cpu.seconds.value), *parts])
    return rows


def _numbers(material: Material) -> Table:
    """The table of the chart: a line a precision and size, with the seconds of the CPU and of each form of a GPU call."""
    gpu = {}
    for answer in shown(material.analysis.crossovers):
        for point in answer.points:
            gpu[answer.precision, answer.form, point.n] = seconds(point.gpu.seconds.value)
    rows = []
    for precision, by_size in _cpu(material).items():
        for n, side in by_size.items():
            times = [gpu.get((precision, form, n), "-") for form in _FORMS]
            rows.append((precision, n, crossings.side_name(side), seconds(side.seconds.value), *times))
    forms = [f"GPU, {_SHORT[form]}" for form in _FORMS]
    return Table(("precision", "n", "fastest on the CPU", "CPU", *forms), rows, left=3, optional=forms)


def answered(answers: Iterable[Answer]) -> list[Answer]:
    """The answers with a GPU time, or with sizes at which the GPU was tried."""
    return [answer for answer in answers if answer.kind != "no-gpu" or answer.gaps]


def wins(
    answers: Iterable[Answer], heads: Sequence[str] = (), which: Callable[[Answer], tuple] = lambda answer: ()
) -> Table:
    """The table of who wins, a line an answer. It begins with columns that name an answer's problem: `heads` are their heads, and
    `which` is called with each answer and gives their cells.
    """
    rows = []
    for answer in answers:
        cells = (
            *which(answer),
            crossings.precision_name(answer),
            answer.form.framework or "-",
            "-" if answer.form.cache == "warm" else answer.form.cache,
            crossings.form_name(answer.form),
            crossings.verdict_words(answer),
            f"{answer.low_n}..{answer.high_n}",
        )
        rows.append(cells)
    return Table([*heads, *named(_ANSWERS)], rows, len(heads) + 6, "by | caches")
