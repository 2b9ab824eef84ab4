"""How far to trust the page: what the referee found on this machine."""

from typing import TYPE_CHECKING

from analysis import trust
from analysis.report.cells import table, text
from analysis.units import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workloads.records import Measurement


def section(measurements: "list[Measurement]", said: "Iterable[str]" = ()) -> list[str]:
    """Our clocks beside outsiders', verdicts on known truths, and what single processes differ by: the sentences that the page
    has not `said` already, then tables; nothing without a referee."""
    told = [f"- {text(s)}" for s in trust.sentences(measurements) if s not in set(said)]
    beside, truths = trust.beside(measurements), trust.truths(measurements)
    if not (beside or truths):
        return []
    lines = ["## How far to trust this", "", *told, *[""] * bool(told)]
    if beside:
        heads: tuple[str, ...] = (
            "row",
            "outsider",
            "form",
            "theirs",
            "ours / theirs",
            "over the turns",
            "their own runs differ by",
            "allowed",
            "",
        )
        rows = [
            (
                b.name,
                b.outsider,
                b.form or "-",
                seconds(b.theirs),
                f"{b.ratio.value:.4f}",
                b.range,
                percent(b.own),
                percent(b.allowed),
                b.doubts,
            )
            for b in beside
        ]
        lines += table(heads, rows, 3, ("form", ""))
    if truths:
        heads = ("row", "match", "pairs alike", "called different", "planted", "found", "least effect claimed")
        lines += table(
            heads,
            [(t.name, t.match, t.pairs, t.false, percent(t.planted), t.found, percent(t.least)) for t in truths],
            2,
        )
    if known := trust.spreads(measurements):
        heads = ("row", "its processes ran", "two of them stay within", "processes")
        lines += table(heads, [(d.name, d.how, percent(d.limit), d.processes) for d in known], 2)
    return lines
