"""What would help: the changes that save most, as a table, and what is said under it."""

from collections.abc import Sequence

from analysis import numbers
from analysis.finding import Finding
from analysis.stats import Estimate
from analysis.table import Table
from analysis.text.explanation.lines import fits
from analysis.text.sentences import say

_HEADS = "do | saving | note"
_TEMPLATES = {
    "saves": "saves {saved:timed}",
    "overlap": "Savings overlap: do not add them.",
    "more": "{count} more{unsure} {where}.",
    "code": "--how 1 shows the code.",
    "no-savings": "No change is sure to save 1 % of the time.",
}


def table(changes: Sequence[Finding]) -> Table:
    """The table of these changes: numbered, with what each saves and a note."""
    rows = []
    for number, change in enumerate(changes, 1):
        notes = [change.numbers["note"], "then the GPU wins" if change.numbers["gpu_wins"] else ""]
        saving = say(_TEMPLATES["saves"], saved=change.numbers["saved"])
        rows.append((f"{number}. {change.subject}", saving, ", ".join(note for note in notes if note)))
    return Table(_HEADS, rows, left=3)


def footer(shown: Sequence[Finding], hidden: Sequence[Finding], *, most: int, complete: bool) -> list[str]:
    """The lines under the table of changes: that savings overlap, how many more changes there are, and where the code is.

    Args:
        shown: the changes in the table.
        hidden: those that it has no room for, or that are not sure to save.
        most: how many lines there is room for.
        complete: whether the table of all changes follows.
    """
    if most < 1 or not shown:
        return []
    first = [_TEMPLATES["overlap"]] if len(shown) > 1 else []
    code = _TEMPLATES["code"]
    if not hidden:
        return [" ".join([*first, code])]
    where = "below" if complete else "(--all)"
    is_unsure = not any(change.numbers["sure"] for change in hidden)
    short = say(_TEMPLATES["more"], count=len(hidden), unsure="", where=where)
    long = say(
        _TEMPLATES["more"],
        count=len(hidden),
        unsure=", not sure to save 1 %" if is_unsure else "",
        where=where,
    )
    line = " ".join([*first, long, code])
    if fits(line):
        return [line]
    if most > 1:
        return [" ".join([*first, long]), code]
    return [" ".join([*first, short, code])]


def no_savings(finding: Finding) -> str:
    return _TEMPLATES["no-savings"]


def all_changes(changes: Sequence[Finding]) -> Table:
    """Every change with what it saves of the whole training."""
    rows = [(one.subject, saved(one.numbers["saved"]), one.numbers["note"] or "-") for one in changes]
    return Table("change | saves of the whole | besides", rows, last=True)


def saved(seconds: Estimate | None) -> str:
    """What a change saves, in words: `1.5 s [0.9, 2.1]`, `perhaps 2.00 s` where it may save nothing, `costs 2.00 s`, `nothing`;
    None: `not known`.
    """
    if seconds is None:
        return "not known"
    if seconds.low > 0:
        return numbers.timed(seconds)
    value = round(seconds.value, 9)
    if not value:
        return "nothing"
    perhaps = "perhaps " if seconds.high > 0 else ""
    costs = "costs " if value < 0 else ""
    return f"{perhaps}{costs}{numbers.time(abs(value))}"


SENTENCES = {"no-savings": no_savings}
