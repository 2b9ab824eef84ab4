"""Two runs compared, in words: how many rows changed, a table of these, the smallest slowdown that would have shown, and notes on
doubts and differences."""

import math

from analysis import labels, numbers
from analysis.compare.comparison import CHANGED, WORDS, Compared, RunComparison, disturbed
from analysis.noise import MODELS, THIS_MACHINE, side
from analysis.stats import MARGIN, group_by, quick_median
from analysis.table import Faster, Slower, Table
from analysis.units import change, count, digits, percent, seconds
from workloads import options, terminal

CANT_TELL = "can't tell"
_STYLES: dict[str, type[str]] = {"slower": Slower, "faster": Faster}
_MOST_ROWS = 0.9  # of the rows of a clock, to say what most of them would show


def rows(comparison: RunComparison, words: tuple[str, ...] = WORDS) -> Table:
    """The table of compared rows whose verdict is one of `words`, in that order; within a verdict the largest change comes
    first.
    """
    lines = []
    for word in words:
        lines += [_cells(row) for row in comparison.with_verdict(word)]
    return Table(
        "row | old | new | change | 95 % interval | flags",
        lines,
        optional="flags",
        least="flags | 95 % interval",
        last=any(line[-1] for line in lines),
    )


def _cells(row: Compared) -> tuple[str, ...]:
    """The cells of a compared row, in the order of the table's heads."""
    ratio = row.verdict.ratio
    style = _STYLES.get(row.word, str)
    verdict = f"{_change(ratio.value)} {row.word}" if row.word in CHANGED else row.word
    return (
        labels.brief(row.new),
        seconds(quick_median(row.old.on(row.clock))),
        seconds(quick_median(row.new.on(row.clock))),
        style(verdict),
        f"[{_change(ratio.low)}, {_change(ratio.high)}]",
        " ".join(row.flags),
    )


def _change(ratio: float) -> str:
    """A ratio of seconds as a change: `+7.0 %`; from 2 on as `2.3x`."""
    return change(ratio - 1) if ratio < 2 else f"{digits(ratio)}x"


def summary(comparison: RunComparison) -> str:
    """How many rows have each verdict, and how many are broken."""
    number = {word: len(comparison.with_verdict(word)) for word in WORDS}
    counts = f"{number['slower']} slower, {number['faster']} faster, {number['same']} the same within 5 %"
    counts += f", {number[CANT_TELL]} can't tell"
    if comparison.broken:
        counts += f", {len(comparison.broken)} broken"
    return f"{counts}: of {count(len(comparison.rows) + len(comparison.broken), 'row')}."


def smallest_slowdowns(comparison: RunComparison, share: float | None = None) -> list[str]:
    """For each clock a sentence on the smallest slowdown that would have been seen: in how many of its rows one by `share`
    would, and which would in nine of ten rows. No sentence for a clock whose rows would all have shown `share`; None stands for
    MARGIN.
    """
    share = MARGIN if share is None else share
    lines: list[str] = []
    for clock, rows in group_by(comparison.rows, lambda r: side(r.new, r.clock)).items():
        slowdowns = sorted(r.smallest_slowdown for r in rows)
        shown = sum(slowdown <= share for slowdown in slowdowns)
        if shown == len(rows):
            continue
        most = slowdowns[math.ceil(_MOST_ROWS * len(rows)) - 1]
        what = f"{numbers.share(share)} slower would"
        if not shown:
            line = f"{what} not have been seen"
        else:
            line = f"{what} have been seen in {shown} of {count(len(rows), 'row')}"
        if math.isfinite(most):
            line += f"; {numbers.share(most)} would, in nine of ten rows"
        lines.append(terminal.Line(f"{line}.", label=f"{clock}: "))
    return lines


def notes(comparison: RunComparison, verbose: bool = False) -> list[str]:
    """Lines under a comparison: rows that are broken now, disturbed rows, rows that only one run has, the noise between runs, and
    differences of machine and software. verbose: all differences, else the first two.
    """
    lines: list[str] = []
    for m in comparison.broken:
        status = f"{labels.row(m)}: {m.status} now ({terminal.on_one_line(m.reason)})"
        lines.append(terminal.Line(status, label="broken: "))
    lines += _disturbed_sentence(comparison)
    for run, alone in (("OLD", comparison.only_old), ("NEW", comparison.only_new)):
        if alone:
            lines.append(f"Only in {run}: {count(len(alone), 'row')}, such as {labels.brief(alone[0])}.")
    lines += _noise_sentences(comparison)
    most = len(comparison.differences) if verbose else 2
    lines += [terminal.Line(text, label="differs: ") for text in comparison.differences[:most]]
    hidden = len(comparison.differences) - most
    if hidden > 0:
        lines.append(f"... and {hidden} other differences (-v)")
    return lines


def _disturbed_sentence(comparison: RunComparison) -> list[str]:
    """How many rows of each run other programs disturbed; [] for none."""
    disturbed_rows = {
        "OLD": sum(disturbed(row.old, row.clock) for row in comparison.rows),
        "NEW": sum(disturbed(row.new, row.clock) for row in comparison.rows),
    }
    counts = [f"{count(rows, 'row')} of {run}" for run, rows in disturbed_rows.items() if rows]
    if not counts:
        return []
    return [f"Other programs ran beside {' and '.join(counts)}: no change is claimed there. Measure again."]


def _noise_sentences(comparison: RunComparison) -> list[str]:
    """The largest noise between runs that the intervals contain, and how to measure it where it is another machine's."""
    noisy = [row for row in comparison.rows if row.between.share]
    if not noisy:
        return []
    most = max(noisy, key=lambda row: row.between.share)
    between = most.between
    sentences = [f"Two equal runs differ by up to {percent(between.share)} ({between.source})."]
    if between.source != THIS_MACHINE and side(most.new, most.clock) != MODELS:
        command = options.typed("python -m workloads.doctor --noise")
        sentences.append(terminal.Line("Measure it here once (15 min): ", command=command))
    return sentences
