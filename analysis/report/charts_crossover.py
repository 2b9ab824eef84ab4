"""The crossover on the page: every precision, every form of a call and every reuse of a copy as tables that the page's slider
chooses from; where the time goes at each size."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis import reuse, sentences
from analysis.crossover import COPIES, LATENCY, THROUGHPUT, Answer, fastest, square_rows
from analysis.report.charts import rounded
from analysis.report.choose import spans
from analysis.roofline import is_gpu
from analysis.units import digits, join, seconds
from analysis.why import ARITHMETIC, OVERHEAD, REMAINDER, why
from analysis.why import COPIES as COPYING

if TYPE_CHECKING:
    from analysis.families import Rows
    from analysis.report.material import Material
    from workloads.results import Measurement

_FORMS = (LATENCY, THROUGHPUT, *COPIES)
_SHORT = {
    LATENCY: "data on the GPU, one call",
    THROUGHPUT: "data on the GPU, calls queued",
    COPIES[0]: "copied as written",
    COPIES[1]: "copied, pinned",
    COPIES[2]: "copied, pageable",
}
PARTS = (ARITHMETIC, OVERHEAD, COPYING, REMAINDER)


def shown(answers: Iterable[Answer]) -> list[Answer]:
    """The answers of the chart: those with points in a form that it draws."""
    return [a for a in answers if a.points and a.form in _FORMS]


def data(
    answers: tuple[Answer, ...], measurements: "list[Measurement]", others: "Iterable[tuple[str, Material]]" = ()
) -> dict:
    """All that the chart and its controls show; empty without a GPU's points. others: machines drawn over it."""
    told, squares = shown(answers), square_rows(measurements)
    found = []
    for precision in dict.fromkeys(a.precision for a in told):
        own = [a for a in told if a.precision == precision]
        best: dict[int, object] = {p.n: p.cpu for a in own for p in a.points}
        forms = [
            {
                "form": _SHORT[a.form],
                "words": sentences.form_name(a.form),
                "uses": _uses(answers, a),
                "parts": _parts(squares, a),
            }
            for a in own
        ]
        flops = {n: 2 * n**3 for n in best}
        cpu = [best[n] for n in sorted(best)]
        found.append(
            {
                "precision": precision,
                "n": sorted(best),
                "flops": [flops[n] for n in sorted(best)],
                "cpu": _curve(cpu) | {"side": [sentences.side_name(s) for s in cpu]},
                "forms": forms,
            }
        )
    return {"precisions": found, "parts": list(PARTS), "others": _others(others)} if found else {}


def _others(machines: "Iterable[tuple[str, Material]]") -> list[dict]:
    """The lines of other machines: the CPU's best and the GPU's waited calls, by precision."""
    made = []
    for name, of in machines:
        for precision, sizes in square_rows(of.rows).items():
            for words, gpu in (("CPU, best", False), ("GPU, data on the GPU, one call", True)):
                at = {
                    n: fastest(
                        [m for m in rows if is_gpu(m.settings.device) == gpu and m.settings.mode == "resident"],
                        "host-latency",
                    )
                    for n, rows in sorted(sizes.items())
                }
                points = [(n, side) for n, side in at.items() if side]
                if points:
                    made.append(
                        {
                            "precision": precision,
                            "name": f"{words}: {name}",
                            "n": [n for n, _ in points],
                            **_curve([side for _, side in points]),
                        }
                    )
    return made


def _curve(sides) -> dict:
    return {
        end: [rounded(getattr(s.seconds, of)) for s in sides]
        for end, of in (("s", "value"), ("low", "low"), ("high", "high"))
    }


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
            "verdict": verdict(one, k),
            "spans": [[rounded(low), rounded(high), sign] for low, high, sign in spans(one)],
            "crossings": [
                {"at": rounded(c.at.value), "low": rounded(c.at.low), "high": rounded(c.at.high), "to": c.to}
                for c in one.crossings
            ],
        }
        for k, one in made
    ]


def verdict(a: Answer, uses: int = 1) -> str:
    """One sentence for the state of the chart."""
    often = f", each copy used {uses} times" if uses > 1 else ""
    return (
        f"{sentences.precision_name(a)}, {sentences.form_name(a.form).partition(', each copy')[0]}{often}: "
        f"{sentences.verdict_words(a)}{sentences.range_words(a)}."
    )


def _parts(squares: "Rows", a: Answer) -> list[list]:
    """[n, CPU seconds, GPU seconds of each part (null: not measured)] at every size."""
    return [
        [
            w.n,
            rounded(w.cpu.seconds.value),
            *(None if s is None else rounded(s) for s in (w.arithmetic, w.overhead, w.copies, w.remainder)),
        ]
        for w in why((), a, True, squares)
    ]


def table(answers: tuple[Answer, ...]) -> tuple[tuple[str, ...], list[tuple]]:
    """(heads, rows): every size of every precision, the CPU and each form beside each other."""
    told = shown(answers)
    forms = [f for f in _FORMS if any(a.form == f for a in told)]
    rows = []
    for precision in dict.fromkeys(a.precision for a in told):
        at: dict[int, dict] = {}
        cpu = {}
        for a in (a for a in told if a.precision == precision):
            for p in a.points:
                at.setdefault(p.n, {})[a.form] = p.gpu.seconds
                cpu[p.n] = p.cpu
        rows += [
            (
                precision,
                n,
                sentences.side_name(cpu[n]),
                seconds(cpu[n].seconds.value),
                *(seconds(at[n][f].value) if f in at[n] else "-" for f in forms),
            )
            for n in sorted(at)
        ]
    return ("precision", "n", "fastest on the CPU", "CPU", *(f"GPU, {_SHORT[f]}" for f in forms)), rows


def says(answers: tuple[Answer, ...]) -> str:
    """How reuse moves the crossover, in a sentence; empty without copies."""
    moved = []
    for resident, copied in reuse.pairs(answers, answers[0].precision if answers else ""):
        ends = [(k, reuse.amortized(resident, copied, k)) for k in (1, reuse.USES[-1])]
        told = [
            f"n = {digits(a.crossings[0].at.value)} at {k} use{'s' * (k > 1)}" for k, a in ends if a.kind == "gpu-from"
        ]
        if len(told) == 2:
            moved.append(f"{_SHORT[copied.form]} from {' to '.join(told)}")
    return f"Using a copy more than once moves the size from which the GPU wins: {join(moved)}." if moved else ""
