"""Chart of a ladder: a bar a rung, with its share of the library and of the peak, and its idea as a caption."""

from collections.abc import Sequence

from analysis.crossover import ladder
from analysis.crossover.ladder import Ladder, RungStep
from analysis.labels import short
from analysis.report.charts.chart import Axis, Chart, Trace, View, rounded
from analysis.stats import call_s, is_gpu
from analysis.table import Table
from analysis.units import flops_rate, percent
from kernels.problems import Problem

_TITLES = {
    "matmul": "Matrix products, from three loops to the library",
    "conv": "Convolutions, from seven loops to the library",
}


def ladder_chart(ladders: Sequence[Ladder], op: str) -> list[Chart]:
    """The chart of an operation's ladder: our kernels from the simplest to the fastest, one bar each. It has a view for each
    device, arithmetic and thread count, those with most kernels first; [] without ladders.
    """
    if not ladders:
        return []
    views = [_view(one, ladder.shown_problem(one)) for one in ladders]
    views.sort(key=lambda view: len(view.y.lines), reverse=True)
    rows = []
    for one in ladders:
        rows += [(ladder.title(one), *cells) for cells in ladder.numbers(one)]
    name = f"ladder-{op}"
    return [
        Chart(
            name=name,
            title=_TITLES[op],
            views=views,
            numbers=Table(f"ladder | problem | {ladder.HEADS}", rows, left=3, optional=ladder.SHARES),
            picture=f"{name}.svg",
            chooses="Device and arithmetic",
        )
    ]


def _view(one: Ladder, problem: Problem) -> View:
    """The bars of a ladder at one problem, the simplest kernel at the top, each with its idea as a caption."""
    steps = one.at(problem)
    rungs = [short(step.kernel) for step in steps]
    rates = [rounded(problem.flops / step.seconds.value) for step in steps]
    ideas = [one.ideas[step.kernel] for step in steps]
    bars = Trace(
        name="our kernels",
        x=rates,
        y=rungs,
        color="vermillion" if is_gpu(one.device) else "blue",
        legend=False,
        says=[_shares(step) for step in steps],
        captions=ideas,
    )
    lines = Axis(title="", unit="text", log=False, lines=tuple(rungs))
    return View(
        label=f"{ladder.title(one)}, {ladder.problem_name(problem)}",
        x=Axis(title="rate", unit="FLOP/s", log=False),
        y=lines,
        traces=[bars],
        says=ladder.best_sentence(one, problem),
        bars=True,
        lines=_marks(one, problem),
    )


def _shares(step: RungStep) -> str:
    """What stands at the end of a kernel's bar: `104 GFLOP/s, 103 % of the library, 90 % of the peak`."""
    words = [flops_rate(step.problem.flops / step.seconds.value)]
    if step.library_share:
        words.append(f"{percent(step.library_share.value)} of the library")
    if step.peak_share:
        words.append(f"{percent(step.peak_share.value)} of the peak")
    return ", ".join(words)


def _marks(one: Ladder, problem: Problem) -> list[tuple[float, str]]:
    """(FLOP/s, words) of the lines across the bars: the library's rate at the problem, and the measured peak."""
    marks = []
    library = one.library.get(problem)
    if library:
        marks.append((rounded(problem.flops / call_s(library)), f"library, {library.label}"))
    if one.peak:
        marks.append((rounded(one.peak.rate.value), "measured peak"))
    return marks
