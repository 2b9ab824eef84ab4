"""Answers to articles and complaints: the finding on a case (analysis.explain.evidence) as one sentence, one table and further
lines."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.explain import case_verdict, evidence
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.table import Table, line, text
from analysis.text import sentences
from analysis.text.case_words import CASE_WORDS, TableRow, Words
from workloads import options, terminal
from workloads.records.published_cases import ArticleTraining, Complaint, Question

_CELLS = ("what", "published", "measured")
OVERVIEW = """
Of {claims} claims in articles and bug reports, {hold} hold on {machine} and {partly} hold partly. {fail} do not.
{unknown} can't be told.
The verdict is on the faster device or the cause, not on how much faster it is."""
_TEMPLATES = {
    "none": "Not known: these rows do not tell it.",
    "apart": "Not as reported: {apart}.",
    "run": "To know it: ",
    "all": "All of it: ",
}
COMMANDS = {
    "home": "python -m workloads.transfer --sizes 4KiB:256MiB:x4",
    "copies": "python -m workloads.transfer --sizes 4KiB:256MiB:x4",
    "inference": "python -m workloads.inference --model inception-v3 --batch 1 8 32",
    "S3c": "python -m workloads.training --study data-parallel",
    "S3d": "python -m workloads.training --study teacher",
    "peaks": "python -m workloads.peak",
}


class Reply(msgspec.Struct, frozen=True):
    """A case's answer: first sentence, rows (what, published, on `machine`) and further lines. `verdict` on its `claim`, and
    `why` in a few words. `command`: the one that measures it, where no row does. `url` of the source. Both may be empty."""

    name: str
    title: str
    answer: str
    machine: str
    rows: tuple[tuple[str, ...], ...] = ()
    more: tuple[str, ...] = ()
    command: str = ""
    claim: str = ""
    verdict: str = case_verdict.CANT_TELL
    why: str = ""
    url: str = ""


def reply(case: ArticleTraining | Complaint | Question, sources: Sources, request: Request | None) -> Reply:
    """The answer to the case's question. Where the rows do not give it, a stored GPU's own machine does; where neither does,
    the reply has the command that measures it."""
    finding = evidence.evidence(case, sources, request)
    machine = (sources.gpu or sources.cpu).key
    if finding is None and sources.borrowed:
        finding = evidence.evidence(case, replace(sources, cpu=sources.borrowed), request)
    if finding is None:
        command = COMMANDS.get(case.kind) or COMMANDS.get(case.name, "python -m workloads.training --study complaints")
        unanswered = Reply(case.name, case.title, _TEMPLATES["none"], machine)
        return replace(unanswered, command=command, claim=case.claim, url=case.url)
    numbers = finding.numbers
    words = CASE_WORDS[finding.kind]
    answer = sentences.lines(words.answer, **numbers)
    more = sentences.lines(words.more, **numbers)
    if isinstance(case, Complaint):
        more += sentences.lines(_TEMPLATES["apart"], apart=case.differences or None)
    return Reply(
        name=case.name,
        title=case.title,
        answer=" ".join(answer) or _TEMPLATES["none"],
        machine=numbers.get("where") or machine,
        rows=tuple(_rows(words.rows, numbers)),
        more=tuple(more),
        claim=case.claim,
        verdict=case_verdict.verdict(finding),
        why="; ".join(_filled(words.why, numbers)),
        url=case.url,
    )


def _rows(templates: Iterable[TableRow], numbers: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of a table, filled; without those of a number that is not known."""
    rows = []
    for template in templates:
        cells = "\n".join([template.what, template.published, template.measured])
        for values in _values(template.repeat_over, numbers):
            row = sentences.lines(cells, **values)
            if len(row) == len(_CELLS):
                rows.append(tuple(row))
    return rows


def _filled(templates: Iterable[Words], numbers: dict[str, Any]) -> list[str]:
    """Sentences, filled; without those of a number that is not known."""
    filled = []
    for template in templates:
        for values in _values(template.repeat_over, numbers):
            filled += sentences.lines(template.text, **values)
    return filled


def _values(list_name: str, numbers: dict[str, Any]) -> list[dict[str, Any]]:
    """The numbers that a template is filled with: once with all, or for each of a list."""
    if not list_name:
        return [numbers]
    return [{"one": one} for one in numbers[list_name]]


def lines(reply: Reply, *, training_command: str = "", markdown: bool = False) -> list[str]:
    """The reply for a terminal or as Markdown: at most 18 lines of 80 columns. training_command: the command that explains the
    case's training too, which its last line shows; "" for no such line.
    """
    title = f"{reply.name}: {reply.title}"
    source = _source(reply.url, markdown)
    shown = [f"## {title}", ""] if markdown else [title]
    shown.append(reply.answer)
    table = Table(f"what | published | {reply.machine}", reply.rows)
    if reply.rows:
        shown += ["", *table.md()] if markdown else table.text()
    shown += [*reply.more, *source]
    if reply.command:
        shown.append(terminal.Line(_TEMPLATES["run"], command=options.typed(reply.command)))
    elif training_command:
        shown.append(terminal.Line(_TEMPLATES["all"], command=f"{training_command} --all"))
    return shown


def _source(url: str, markdown: bool) -> list[str]:
    """The line with the address of an article or report; none where it is not known."""
    if not url:
        return []
    return ["", f"Source: <{url}>"] if markdown else [f"Source: {url}"]


def overview(replies: Sequence[Reply], markdown: bool = False) -> list[str]:
    """How many claims hold, and each with its verdict: what stands before the answers to all cases."""
    verdicts = Counter(one.verdict for one in replies)
    counts = sentences.lines(
        OVERVIEW,
        claims=len(replies),
        machine=replies[0].machine,
        hold=verdicts[case_verdict.HOLDS],
        partly=verdicts[case_verdict.PARTLY],
        fail=verdicts[case_verdict.FAILS],
        unknown=verdicts[case_verdict.CANT_TELL] or None,
    )
    table = Table("case | claim | verdict | why", [_overview_row(one) for one in replies], left=4)
    if not markdown:
        return [*counts, "", *table.text()]
    rows = [line([_linked(one), *map(text, _overview_row(one)[1:])]) for one in replies]
    return [*counts, "", *table.md_head(), *rows]


def _overview_row(one: Reply) -> list[str]:
    return [one.name, one.claim, one.verdict, one.why or "-"]


def _linked(one: Reply) -> str:
    return f"[{one.name}]({one.url})" if one.url else one.name
