"""The crossover on the page: data for every run, precision, form of a call and reuse of a copy, which the page's slider
selects, and the parts of the time at each size."""

from collections.abc import Callable, Iterable, Sequence

from analysis.crossover import reuse
from analysis.crossover.crossover import COPIES, LATENCY, THROUGHPUT, Answer, FastestRow, best_of_cpu
from analysis.crossover.families import SQUARES, Rows, rows_of
from analysis.crossover.time_split import ARITHMETIC, OVERHEAD, REMAINDER, why
from analysis.crossover.time_split import COPIES as COPYING
from analysis.report.charts.chart import WINNER, Axis, Chart, View, crossed, line, marks, rounded, spans
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
PARTS = (ARITHMETIC, OVERHEAD, COPYING, REMAINDER)


def shown(answers: Iterable[Answer]) -> list[Answer]:
    """The answers of the chart: those with points in a form that it draws."""
    return [a for a in answers if a.points and a.form in _FORMS]


def data(runs: Sequence[Material]) -> dict:
    """All that the chart and its controls show, run by run; empty if there are no two sides to compare."""
    if not is_drawn(runs):
        return {}
    found = [{"letter": of.letter, "name": of.name, "precisions": _precisions(of)} for of in runs]
    return {"runs": [one for one in found if one["precisions"]], "parts": list(PARTS)}


def is_drawn(runs: Sequence[Material]) -> bool:
    """Whether there are two lines to see: a GPU's points, or the CPUs of two runs."""
    with_gpu = [run for run in runs if shown(run.analysis.crossovers)]
    with_cpu = [run for run in runs if _cpu(run)]
    return bool(with_gpu) or len(with_cpu) > 1


def _precisions(of: Material) -> list[dict]:
    """The CPU's best and the GPU's forms at every size, by precision; without a GPU the CPU's alone."""
    told, squares = shown(of.analysis.crossovers), rows_of(of.rows, SQUARES)
    found = []
    for precision, best in _cpu(of).items():
        forms = [
            {
                "form": _SHORT[a.form],
                "words": crossings.form_name(a.form),
                "uses": _uses(of.analysis.crossovers, a),
                "parts": _parts(squares, a),
            }
            for a in told
            if a.precision == precision
        ]
        cpu = list(best.values())
        sides = {"side": [crossings.side_name(s) for s in cpu]}
        found.append({"precision": precision, "n": list(best), "cpu": _curve(cpu) | sides, "forms": forms})
    return found


def _cpu(of: Material) -> "dict[str, dict[int, FastestRow]]":
    """precision -> n -> the CPU's best side: from the answers if there are any, else from the fastest rows."""
    found: dict[str, dict[int, FastestRow]] = {}
    for a in shown(of.analysis.crossovers):
        found.setdefault(a.precision, {}).update({p.n: p.cpu for p in a.points})
    return {precision: dict(sorted(at.items())) for precision, at in found.items()} or best_of_cpu(of.rows)


def chart(of: Material) -> list[Chart]:
    """The first precision: the CPU's best beside one GPU call with resident data, and the bands of who wins; for a single run
    every form of a call. A single run without a GPU has no chart."""
    named, answers, alone = _cpu(of), shown(of.analysis.crossovers), not of.letter
    if not named or (alone and not answers):
        return []
    told = next((a for a in answers if a.form == LATENCY), None)
    precision = told.precision if told else next(iter(named))
    points = [(n, s.seconds) for n, s in named[precision].items()]
    traces = [line(f"CPU, best, {precision}", points, "blue", marker="circle", dash="dot", hollow=True)]
    for a in (a for a in answers if a.precision == precision and (a is told or alone)):
        how = marks(1 + _FORMS.index(a.form)) | {"dash": "solid"}
        traces.append(line(f"GPU, {_SHORT[a.form]}, {precision}", [(p.n, p.gpu.seconds) for p in a.points], **how))
    label, marked = "", crossed(told.crossings, told.family.size_name) if told else {}
    if told and alone:
        marked["bands"] = [(low, high, WINNER[sign][0]) for low, high, sign in spans(told)]
        marked["band_colors"] = [WINNER[sign][1] for _, _, sign in spans(told)]
        label = f"{precision}; shaded: {crossings.form_name(told.form)}"
    says = verdict(told) if told else crossings.no_gpu_sentence(of.rows, of.analysis.machine)
    axes = Axis(title="n of an n x n x n product", unit="count"), Axis(title="time of a call", unit="s")
    view = View(label=label, x=axes[0], y=axes[1], traces=traces, says=says, **marked)
    return [
        Chart(
            name="crossover",
            title="Time of one square matmul",
            views=[view],
            numbers=_numbers(of),
            picture="crossover.svg",
        )
    ]


def _curve(sides) -> dict:
    ends = {"s": "value", "low": "low", "high": "high"}
    return {end: [rounded(getattr(s.seconds, of)) for s in sides] for end, of in ends.items()}


def _uses(answers: tuple[Answer, ...], a: Answer) -> list[dict]:
    """The answer at each reuse of a copy: the curve, the verdict, the bands; at one use alone where nothing is copied."""
    pair = next((p for p in reuse.pairs(answers, a.precision) if p[1] is a), None)
    made = [(1, a)]
    if pair:
        made += [(k, reuse.amortized(*pair, k)) for k in reuse.USES if k > 1]
    return [
        {
            "k": k,
            "n": [p.n for p in one.points],
            **_curve([p.gpu for p in one.points]),
            "verdict": verdict(one),
            "spans": [[rounded(low), rounded(high), sign] for low, high, sign in spans(one)],
            "crossings": [
                {"at": rounded(c.at.value), "words": sentences.crossing_size(c, one.family.size_name), "to": c.to}
                for c in one.crossings
                if not c.wide
            ],
        }
        for k, one in made
    ]


def verdict(a: Answer) -> str:
    return f"{crossings.precision_name(a)}, {crossings.form_name(a.form)}: {crossings.verdict_words(a)}."


def _parts(squares: Rows, a: Answer) -> list[list]:
    """[n, CPU seconds, GPU seconds of each part (null: not measured)] at every size."""
    return [
        [w.n, rounded(w.cpu.seconds.value), *(None if s is None else rounded(s) for s in w.parts.values())]
        for w in why(squares, a, True)
    ]


def _numbers(of: Material) -> Table:
    """Every size of every precision, the CPU and each form of a GPU call beside each other."""
    at = {
        (a.precision, a.form, p.n): seconds(p.gpu.seconds.value)
        for a in shown(of.analysis.crossovers)
        for p in a.points
    }
    rows = [
        (
            precision,
            n,
            crossings.side_name(side),
            seconds(side.seconds.value),
            *(at.get((precision, f, n), "-") for f in _FORMS),
        )
        for precision, cpu in _cpu(of).items()
        for n, side in cpu.items()
    ]
    forms = [f"GPU, {_SHORT[f]}" for f in _FORMS]
    return Table(("precision", "n", "fastest on the CPU", "CPU", *forms), rows, 3, forms)


def answered(answers: Iterable[Answer]) -> list[Answer]:
    """The answers with a GPU time, or with sizes at which the GPU was tried."""
    return [a for a in answers if a.kind != "no-gpu" or a.gaps]


def wins(
    answers: Iterable[Answer], heads: Sequence[str] = (), which: Callable[[Answer], tuple] = lambda a: ()
) -> Table:
    """A table, a line an answer. which: the cells under `heads` that name the answer's problem."""
    rows = []
    for a in answers:
        cache = "-" if a.form.cache == "warm" else a.form.cache
        how = a.form.framework or "-", cache, crossings.form_name(a.form)
        verdict = crossings.verdict_words(a), f"{a.low_n}..{a.high_n}"
        rows.append((*which(a), crossings.precision_name(a), *how, *verdict))
    return Table([*heads, *named(_ANSWERS)], rows, len(heads) + 6, "by | caches")
