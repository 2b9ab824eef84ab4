"""Answers to articles and complaints: the finding on a case (analysis.explain.evidence) as one sentence, one table and further
lines."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from analysis.explain import case_verdict, evidence
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.table import Table, line, text
from analysis.text import sentences
from analysis.text.case_words import ANSWER, CASE_WORDS, TIME_ROW, TableRow
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


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a case's question."""

    #: The case's id, such as S0 or keras-249.
    name: str
    #: The case in a line.
    title: str
    #: The answer in a sentence.
    answer: str
    #: The machine whose rows give it.
    machine: str
    #: The rows of a table: what, published, measured.
    rows: tuple[tuple[str, ...], ...] = ()
    #: Further sentences.
    more: tuple[str, ...] = ()
    #: The command that measures it, where no row does; else "".
    command: str = ""
    #: The claim of the source in a few words.
    claim: str = ""
    #: holds, partly, does not hold, or can't tell.
    verdict: str = case_verdict.CANT_TELL
    #: Why, in a few words.
    why: str = ""
    #: The address of the source; "" where it is not known.
    url: str = ""


def reply(case: ArticleTraining | Complaint | Question, sources: Sources, request: Request | None) -> Reply:
    """The answer to the case's question, by the rows of the sources. Where these do not give it and the GPU is borrowed, by the
    rows of the GPU's machine alone; where neither do, the reply has the command that measures it.
    """
    finding = evidence.evidence(case, sources, request)
    machine = (sources.gpu or sources.cpu).key
    if finding is None and sources.borrowed:
        finding = evidence.evidence(case, replace(sources, cpu=sources.borrowed), request)
    if finding is None:
        return Reply(
            name=case.name,
            title=case.title,
            answer=_TEMPLATES["none"],
            machine=machine,
            command=f"python -m {case.measured_by}",
            claim=case.claim,
            url=case.url,
        )
    numbers = finding.numbers
    words = CASE_WORDS[finding.kind]
    claims = numbers["claims"]
    (first,) = _filled(words.claim, claims[:1])
    answer = sentences.say(ANSWER, claim=sentences.capital(first), first=claims[0])
    more = sentences.lines(words.more, **numbers)
    if case.note:
        more.append(case.note)
    if isinstance(case, Complaint):
        more += sentences.lines(_TEMPLATES["apart"], apart=case.differences or None)
    rows = _rows(words.row, claims) + _rows(TIME_ROW, numbers.get("times", ()))
    claimed = [one for one in claims if one.is_claimed]
    return Reply(
        name=case.name,
        title=case.title,
        answer=answer,
        machine=numbers.get("where") or machine,
        rows=tuple(rows),
        more=tuple(more),
        claim=case.claim,
        verdict=case_verdict.verdict(finding),
        why="; ".join(_filled(words.claim, claimed)),
        url=case.url,
    )


def _rows(template: TableRow, items: Iterable[object]) -> list[tuple[str, ...]]:
    """The rows of a table, one for each item; without those that are not known here."""
    cells = "\n".join([template.what, template.published, template.measured])
    rows = []
    for item in items:
        row = sentences.lines(cells, one=item)
        if len(row) == len(_CELLS):
            rows.append(tuple(row))
    return rows


def _filled(template: str, items: Iterable[object]) -> list[str]:
    """A template filled with each item, as `one`."""
    filled = []
    for item in items:
        filled += sentences.lines(template, one=item)
    return filled


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
    """The lines before the answers to all cases: how many claims hold, then a table of the claims with their verdicts."""
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
