"""The answer for one training in at most twelve lines: the winner, why, from which size, what helps, how to check it."""

from collections.abc import Iterable, Sequence

import msgspec

from analysis import numbers
from analysis.explain.explanation import Explanation
from analysis.explain.findings import findings
from analysis.finding import ALWAYS, IN_DETAIL, Finding
from analysis.table import Table, text
from analysis.text.explanation import changes, subject, verdict
from analysis.text.explanation.lines import INDENT, WIDTH, labeled, line_count
from analysis.text.explanation.sentence import sentence
from workloads import terminal

MOST, CHANGES = 12, 3
# Name of a point -> the kinds of finding that it has, in the order of the answer.
POINTS = {
    "Why": ("steps", "most-elsewhere", "step-shares", "host", "data-alone"),
    "But": ("question",),
    "From": ("turning-point",),
    "Cost": ("price", "worth"),
    "And": ("too-big",),
    "Do": ("no-savings",),
    "Rows": ("widest-part",),
    "Note": ("disturbed", "estimated-layers", "rough-work", "no-row", "not-compiled"),
}
# Kind of a further command -> what it is for, and the flags that the typed command goes on with.
FOLLOW_UPS = {
    "measure": ("Measure it here, about {seconds:.0f} s", "--measure"),
    "verify": ("Check it (1 min)", "--verify 1"),
    "stored": ("With a stored GPU", "--gpu-profile nvidia-h200"),
    "all": ("More", "--all"),
}


class FollowUp(msgspec.Struct, frozen=True, kw_only=True):
    """A command that says or measures more than the answer."""

    #: What it is for.
    purpose: str
    #: The command as it can be typed.
    command: str

    @property
    def line(self) -> str:
        return terminal.Line(f"{self.purpose}: ", command=self.command)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of an answer, as many as there is room for."""

    #: The verdict, or why there is none.
    verdict: Finding
    #: The times on the devices that have one, where there is no winner.
    times: list[Finding]
    #: The findings of the points.
    others: list[Finding]
    #: The changes that help most, the surest first.
    changes: list[Finding]
    #: The lines under them.
    footer: list[str]

    def point(self, name: str) -> list[str]:
        """The sentences of a point; of Do those under its table."""
        sentences = [sentence(one) for one in self.others if one.kind in POINTS[name]]
        return [*sentences, *self.footer] if name == "Do" else sentences


def answer(
    explanation: Explanation,
    command: str = "",
    *,
    passed_on: str = "",
    measuring_s: float = 0.0,
    can_check: bool = False,
    complete: bool = False,
    markdown: bool = False,
) -> list[str]:
    """The lines of the answer for a terminal or as Markdown; a terminal's are at most MOST.

    Args:
        command: as it was typed, for the last line, which says what more it can do; "" leaves that line out.
        passed_on: the words of the command that are a script's own: `-- --lr 0.1`.
        measuring_s: seconds in which --measure would measure what the answer lacks; 0 where it would measure nothing.
        can_check: whether this machine can measure a change.
        complete: whether the details of --all follow, so that no line needs to name that flag.
    """
    every = findings(explanation)
    kind = _follow_up_kind(every, measuring_s, can_check)
    follow_up = _follow_up(kind, command, passed_on, measuring_s) if command else None
    head = [subject.heading(explanation)] if markdown else subject.head(explanation)
    room = MOST
    if not markdown:
        last_line = follow_up.line if follow_up else ""
        room -= line_count([*head, *_always(every), last_line])
    shown = _shown(every, room, complete=complete)
    if complete and kind == "all":
        follow_up = None
    return _markdown(head, shown, follow_up) if markdown else _lines(head, shown, follow_up)


# ---------------------------------------------------------------- what is shown


def _always(every: Iterable[Finding]) -> list[str]:
    """The lines of the findings that are shown in any case (rank ALWAYS), to count how much room they take."""
    lines = []
    for finding in every:
        if finding.rank != ALWAYS:
            continue
        label = "" if finding.kind in (*verdict.VERDICTS, "time") else " " * INDENT
        lines.append(label + sentence(finding))
        if finding.kind == "winner":
            lines += verdict.bars(finding.numbers["cpu"], finding.numbers["gpu"])
    return lines


def _shown(every: Sequence[Finding], room: int, *, complete: bool) -> Shown:
    """The findings to show: those of rank ALWAYS, and of the others those of the lowest rank.

    Args:
        every: all findings of the training, the verdict first.
        room: how many lines the others may take; one of them is for what is said under the changes.
        complete: as in `answer`.
    """
    first, *others = every
    ranked = sorted((one for one in others if ALWAYS < one.rank < IN_DETAIL), key=lambda one: one.rank)
    best_changes = [one for one in ranked if one.kind == "change"][:CHANGES]
    optional = [one for one in ranked if one.kind != "change" or one in best_changes]
    if first.kind != "winner":
        optional = []
    fitting = optional[: max(min(room, 1), room - 1)]
    shown_changes = [one for one in fitting if one.kind == "change"]
    hidden_changes = [one for one in every if one.kind == "change" and one not in shown_changes]
    footer = changes.footer(shown_changes, hidden_changes, most=room - len(fitting), complete=complete)
    always = [one for one in others if one.rank == ALWAYS]
    return Shown(
        verdict=first,
        times=[one for one in always if one.kind == "time"],
        others=[one for one in (*always, *fitting) if one.kind not in ("time", "change")],
        changes=shown_changes,
        footer=footer,
    )


# ---------------------------------------------------------------- what more there is


def _follow_up_kind(every: Sequence[Finding], measuring_s: float, can_check: bool) -> str:
    """What the last line of the answer proposes, a key of FOLLOW_UPS: to measure what is missing, to compare with a stored GPU,
    to verify a change, or to show everything.
    """
    kinds = [finding.kind for finding in every]
    if "too-big" in kinds or "untraced" in kinds:
        return "all"
    if measuring_s:
        return "measure"
    if [finding.subject for finding in every if finding.kind == "time"] == ["cpu"]:
        return "stored"
    has_sure_change = any(finding.kind == "change" and finding.rank < IN_DETAIL for finding in every)
    return "verify" if has_sure_change and can_check else "all"


def _follow_up(kind: str, command: str, passed_on: str, measuring_s: float) -> FollowUp:
    """The command for the last line of the answer: the typed one with the flags of its kind. The arguments are those of
    `answer`.
    """
    purpose, flags = FOLLOW_UPS[kind]
    words = [command, flags, passed_on] if passed_on else [command, flags]
    return FollowUp(purpose=purpose.format(seconds=measuring_s), command=" ".join(words))


# ---------------------------------------------------------------- on a terminal, and as Markdown


def _lines(head: list[str], shown: Shown, follow_up: FollowUp | None) -> list[str]:
    """The lines on a terminal: the head, the verdict with a bar for each device, then the points (Why, From, Do ...) with their
    names before them, and the command that says more.
    """
    lines = [*head, sentence(shown.verdict)]
    if shown.verdict.kind == "winner":
        lines += verdict.bars(shown.verdict.numbers["cpu"], shown.verdict.numbers["gpu"])
    lines += [sentence(time) for time in shown.times]
    for name in POINTS:
        rows = _change_rows(changes.table(shown.changes)) if name == "Do" else []
        lines += labeled(name, [*rows, *shown.point(name)])
    if follow_up:
        lines.append(follow_up.line)
    return lines


def _change_rows(table: Table) -> list[str]:
    """The rows of the table of changes as lines. Where they are too long for the terminal, the cells of each follow one
    another.
    """
    _, *rows = table.text(0)
    widest = max(map(len, rows), default=0)
    if widest <= (terminal.width() or WIDTH) - INDENT:
        return rows
    lines = []
    for row in table.rows:
        lines.append("; ".join(str(cell) for cell in row if cell))
    return lines


def _markdown(head: list[str], shown: Shown, follow_up: FollowUp | None) -> list[str]:
    """The answer as Markdown: a heading, the winner in bold, what the terminal's bars say as a table, a list of the points."""
    times = {time.subject: time.numbers["whole"] for time in shown.times}
    if shown.verdict.kind == "winner":
        times = {device: shown.verdict.numbers[device] for device in ("cpu", "gpu")}
    rows = [(verdict.NAMES[device], numbers.timed(whole)) for device, whole in times.items()]
    (heading,) = head
    lines = [f"## {text(heading)}", "", f"**{text(sentence(shown.verdict))}**", ""]
    lines += Table("on | whole training", rows).md()
    bullets = []
    for name in POINTS:
        sentences = shown.point(name)
        if sentences:
            bullets.append(f"- **{name}.** {text(' '.join(sentences))}")
    if bullets:
        lines += [*bullets, ""]
    lines += changes.table(shown.changes).md()
    if follow_up:
        lines.append(f"{follow_up.purpose}: `{follow_up.command}`")
    return lines
