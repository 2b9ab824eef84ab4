"""Two runs compared, in words: how many rows changed, a table of these, the smallest slowdown that would have shown, and notes on
doubts and differences."""

import math

from analysis import labels, numbers
from analysis.compare.comparison import CHANGED, WORDS, Compared, Comparison, disturbed
from analysis.noise import MODELS, OWN, side
from analysis.stats import MARGIN, group_by, middle
from analysis.table import Faster, Slower, Table
from analysis.units import change, count, digits, percent, seconds
from workloads import options

_STYLES: dict[str, type[str]] = {"slower": Slower, "faster": Faster}
_MOST_ROWS = 0.9  # of the rows of a clock, to say what most of them would show


def rows(made: Comparison, words: tuple[str, ...] = WORDS) -> Table:
    """A table, a line for each compared row with one of these verdicts; within a verdict the largest change comes first."""
    found = [_cells(r) for word in words for r in made.of(word)]
    heads, least = "row | old | new | change | 95 % interval | flags", "flags | 95 % interval"
    return Table(heads, found, 1, "flags", least, last=any(row[-1] for row in found))


def _cells(r: Compared) -> tuple[str, ...]:
    ratio = r.verdict.ratio
    style = _STYLES.get(r.word, str)
    return (
        labels.brief(r.new),
        *(seconds(middle(m.on(r.clock))) for m in (r.old, r.new)),
        style(f"{_change(ratio.value)} {r.word}" if r.word in CHANGED else r.word),
        f"[{_change(ratio.low)}, {_change(ratio.high)}]",
        " ".join(r.flags),
    )


def _change(ratio: float) -> str:
    """A ratio of seconds as a change: `+7.0 %`; from 2 on as `2.3x`."""
    return change(ratio - 1) if ratio < 2 else f"{digits(ratio)}x"


def summary(made: Comparison) -> str:
    """How many rows have each verdict, and how many are broken."""
    slower, faster, same, open_ = (len(made.of(word)) for word in WORDS)
    counts = f"{slower} slower, {faster} faster, {same} the same within 5 %, {open_} can't tell"
    broken = f", {len(made.broken)} broken" * bool(made.broken)
    return f"{counts}{broken}: of {count(len(made.rows) + len(made.broken), 'row')}."


def smallest_slowdowns(comparison: Comparison, share: float | None = None) -> list[str]:
    """A sentence a clock: in how many of its rows a slowdown by `share` would have shown (None: MARGIN), and the slowdown that
    nine of ten rows would have shown. None for a clock whose rows all show `share`."""
    share = MARGIN if share is None else share
    lines = []
    for clock, rows in group_by(comparison.rows, lambda r: side(r.new, r.clock)).items():
        slowdowns = sorted(r.smallest_slowdown for r in rows)
        shown = sum(slowdown <= share for slowdown in slowdowns)
        if shown == len(rows):
            continue
        most = slowdowns[math.ceil(_MOST_ROWS * len(rows)) - 1]
        what = f"{clock}: {numbers.share(share)} slower would"
        if not shown:
            line = f"{what} not have been seen"
        else:
            line = f"{what} have been seen in {shown} of {count(len(rows), 'row')}"
        if math.isfinite(most):
            line += f"; {numbers.share(most)} would, in nine of ten rows"
        lines.append(f"{line}.")
    return lines


def notes(made: Comparison, verbose: bool = False) -> list[str]:
    """Notes on the comparison: broken and disturbed rows, rows of one run alone, noise between runs, other differences."""
    lines = [f"broken: {labels.row(m)}: {m.status} now ({m.reason})" for m in made.broken]
    loud = {
        "OLD": sum(disturbed(r.old, r.clock) for r in made.rows),
        "NEW": sum(disturbed(r.new, r.clock) for r in made.rows),
    }
    if told := [f"{count(rows, 'row')} of {where}" for where, rows in loud.items() if rows]:
        lines.append(f"Other programs ran beside {' and '.join(told)}: no change is claimed there. Measure again.")
    for where, alone in (("OLD", made.only_old), ("NEW", made.only_new)):
        if alone:
            lines.append(f"Only in {where}: {count(len(alone), 'row')}, such as {labels.brief(alone[0])}.")
    if taken := [r for r in made.rows if r.between.share]:
        most = max(taken, key=lambda r: r.between.share)
        between = most.between
        lines.append(f"Two equal runs differ by up to {percent(between.share)} ({between.source}).")
        if between.source != OWN and side(most.new, most.clock) != MODELS:
            lines.append(f"Measure it here once (15 min): {options.typed('python -m workloads.doctor --noise')}")
    shown = len(made.differences) if verbose else 2
    lines += [f"differs: {text}" for text in made.differences[:shown]]
    lines += [f"... and {len(made.differences) - shown} other differences (-v)"] * (len(made.differences) > shown)
    return lines
