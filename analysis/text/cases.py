"""Answers to articles and complaints: the finding on a case (analysis.explain.evidence) as one sentence, one table and further
lines."""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from analysis.explain import case_verdict, evidence
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.table import Table, line, text
from analysis.text import sentences
from analysis.text.sentences import say
from workloads import options
from workloads.records.published_cases import Case, Complaint, Question

_REPEATED = re.compile(
    r"\[(\w+)\] (.*)"
)  # in front of a template's line: a value, each `one` of which fills the line once
_BETWEEN_CELLS = " | "  # in a template's line that is a row of its table
# A template for each kind of finding: first the answer, then rows (what | published | measured) and further lines.
# `[name] ` repeats its line for each `one` of that value; a line with an unknown value (None) is left out.
TOLD = {
    "winner": """
{verdict} the article, by the epoch: {first:faster} (published: {first.claim.words}).
[claims] {one.claim.samples:,} samples | {one.claim.words} | {one:faster} ({one.row.variant})
[epochs] an epoch on the {one[0]} | {one[1]:time} | {one[2]:timed}
GPU step: {gpu:shares} (predicted).""",
    "pair": """
{hits} of 2 as reported: {first[0]:title}, {first[1]:faster}; {second[0]:title}, {second[1]:faster}.
[reported] {one[0]:title} | {one[1].reported.words} | CPU {one[1].cpu:time}, GPU {one[1].gpu:time}
{second[0]:title} has {ratio:factor} the arithmetic for each operation; starting one costs the same.""",
    "flip": """
By the step, {wins:crossing}.
[reported] {one[0]:title} | {one[1].reported.words} | CPU {one[1].cpu:time}, GPU {one[1].gpu:time}
copying a batch | - | {copied:share} of the GPU's step
A GPU step of fit takes at least {floor.seconds:timed}, whatever the model (measured).""",
    "cause": """
It is {part}, {share:share} of the GPU's step; copied bytes are {copied:share}.
[reported] a step, {one[0]} | {one[1].reported.words} | CPU {one[1].cpu:time}, GPU {one[1].gpu:time}
[parts] the GPU's {one[0]} | - | {one[1]:time}
batch {larger.change.training.batch:,} saves | - | {larger.job_saved:timed} (predicted)""",
    "home": """
Keeping the data set on the GPU saves {resident.job_saved:timed} of {gpu.whole:time} (predicted).
batch {larger.change.training.batch:,} saves | - | {larger.job_saved:timed} (predicted)
the data set | 316 MB | {bytes:size}
sent once | - | {sent:time}
copying a batch | - | {copied:share} of the GPU's step
batch {gpu.training.batch} against {other.training.batch} | 35 min against 12 | {gpu.whole:time} against {other.whole:time}""",
    "bound": """
Yes, the copy decides: pinned memory would make a step {gains[0]:factor} faster, full overlap {gains[1]:factor}.
a step | {theirs[step_s]:time} | -
copy, pageable | {theirs[copy_s]:time} | the same for {bytes:size}
copy, pinned | - | {pinned:time}
a step, pinned | - | {step:time}
a step, copy and work at once | - | at least {least:time}""",
    "clock": """
No, the copy takes {copy:time}: the clock was stopped before {theirs[passes]} passes had run.
{theirs[passes]} passes, not synchronized | {theirs[passes_s]:time} | {issued:time}
the copy with what it waits for | {theirs[copy_s]:time} | {waited:time}
{theirs[passes]} passes, synchronized | - | {ran:time}
the copy alone | - | {copy:time}
Put cupy.cuda.Device().synchronize() before each reading of the clock.""",
    "inference": """
The GPU against the CPU: {one[gain]:speed} at batch {one[n]}, {many[gain]:speed} at batch {many[n]}.
frames a second, batch {one[n]} | about 5 on both | CPU {one[cpu]:number}, GPU {one[gpu]:number}
frames a second, batch {many[n]} | - | CPU {many[cpu]:number}, GPU {many[gpu]:number}""",
    "gpus": """
{first[0]} GPUs against one: {first[2]:speed} at batch {first[1]:,}, {last[2]:speed} at batch {last[1]:,}.
[gains] {one[0]} GPUs, batch {one[1]:,} in all | no faster | {one[2]:gain}
twice the layers | out of memory | each GPU holds the whole model""",
    "teacher": """
Both at once instead of one after the other: {pair.gain:speed}.
student's step on the GPU | slower? | slowdown {pair.slower[0]:gain}
teacher's answer on the CPU | - | slowdown {pair.slower[1]:gain}
both, one after the other | - | {pair.after:time}
both at once | - | {pair.at_once:time}""",
    "peaks": """
No: by measured peaks the GPU is {ratio:factor} faster, its step {step:factor}.
by counting lanes | {theirs[low]} to {theirs[high]}x | -
in practice | {theirs[practice]}x | a step {step:factor}
by measured peaks | - | {ratio:factor}
the step's arithmetic at that peak | - | {busy:share} of the step""",
}
# Why a claim holds or does not, in the same fields; lines become parts of a table's cell.
WHY = {
    "winner": "[claims] {one.claim.samples:,} samples: {one:faster}",
    "pair": "[reported] {one[0]:title}: {one[1]:faster}",
    "flip": """
[reported] {one[0]:title}: {one[1]:faster}
copying a batch is {copied:share} of a GPU step""",
    "cause": """
[reported] {one[0]}: {one[1]:faster}
{part} is {share:share} of a GPU step""",
    "home": "{other.whole:time} against {gpu.whole:time} (predicted)",
    "bound": "from pinned memory it would be {pinned:time} of {step:time}",
    "clock": "it takes {copy:time}, the rest is {theirs[passes]} passes that still ran",
    "inference": "GPU at batch {one[n]}: {one[gain]:speed}",
    "gpus": "[gains] {one[0]} GPUs at batch {one[1]:,}: {one[2]:speed}",
    "teacher": "both at once: {pair.gain:speed}",
    "peaks": "a step is {step:factor} faster, measured peaks {ratio:factor}",
}
OVERVIEW = """
Of {claims} claims in articles and bug reports, {hold} hold on {machine} and {partly} hold partly. {fail} do not.
{unknown} can't be told.
The verdict is on the faster device or the cause, not on how much faster it is."""
SAID = {
    "none": "Not known: these rows do not tell it.",
    "apart": "Not as reported: {apart}.",
    "run": "To know it: {command}",
    "all": "All of it: {command} --all",
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


def reply(case: Case | Complaint | Question, sources: Sources, request: Request | None) -> Reply:
    """The answer to the case's question. Where the rows do not give it, a stored GPU's own machine does; where neither does,
    the reply has the command that measures it."""
    finding = evidence.evidence(case, sources, request)
    machine = (sources.gpu or sources.cpu).key
    if finding is None and sources.borrowed:
        finding = evidence.evidence(case, replace(sources, cpu=sources.borrowed), request)
    if finding is None:
        command = COMMANDS.get(case.kind) or COMMANDS.get(case.name, "python -m workloads.training --study complaints")
        unanswered = Reply(case.name, case.title, SAID["none"], machine)
        return replace(unanswered, command=command, claim=case.claim, url=case.url)
    numbers = finding.numbers
    answer, rows, more = _filled_answer(TOLD[finding.kind], numbers)
    if isinstance(case, Complaint):
        more += sentences.lines(SAID["apart"], apart=case.apart or None)
    return Reply(
        name=case.name,
        title=case.title,
        answer=answer,
        machine=numbers.get("where") or machine,
        rows=tuple(rows),
        more=tuple(more),
        claim=case.claim,
        verdict=case_verdict.verdict(finding),
        why="; ".join(_filled(WHY[finding.kind], numbers)),
        url=case.url,
    )


def _filled_answer(template: str, numbers: dict) -> tuple[str, list[tuple[str, ...]], list[str]]:
    """A template of TOLD, filled: (the answer, the rows of its table, further lines)."""
    first, *others = template.strip().splitlines()
    answer = " ".join(_filled_line(first, numbers)) or SAID["none"]
    rows: list[tuple[str, ...]] = []
    more: list[str] = []
    for line_template in others:
        cells = line_template.split(_BETWEEN_CELLS)
        if len(cells) == 1:
            more += _filled_line(line_template, numbers)
        else:
            rows += _filled_rows(cells, numbers)
    return answer, rows, more


def _filled(template: str, numbers: dict) -> list[str]:
    """The lines of a template, filled."""
    return [line for line_template in template.strip().splitlines() for line in _filled_line(line_template, numbers)]


def _filled_line(line_template: str, numbers: dict) -> list[str]:
    """A line of a template, filled: once, or once for each `one` of a value; none where a value is not known."""
    repeated = _REPEATED.fullmatch(line_template)
    if repeated is None:
        return sentences.lines(line_template, **numbers)
    name, once = repeated.groups()
    return [say(once, one=one) for one in numbers[name]]


def _filled_rows(cells: list[str], numbers: dict) -> list[tuple[str, ...]]:
    """A row of a template's table, filled: once, or once for each `one` of a value; none where a value is not known."""
    repeated = _REPEATED.fullmatch(cells[0])
    if repeated is None:
        row = sentences.lines("\n".join(cells), **numbers)
        return [tuple(row)] if len(row) == len(cells) else []
    name, first_cell = repeated.groups()
    templates = [first_cell, *cells[1:]]
    return [tuple(say(cell, one=one) for cell in templates) for one in numbers[name]]


def lines(r: Reply, again: str = "", markdown: bool = False) -> list[str]:
    """The reply for a terminal or as Markdown: at most 18 lines of 80 columns."""
    table = Table(f"what | published | {r.machine}", r.rows)
    shown = (["", *table.md()] if markdown else table.text()) if r.rows else []
    kind, command = ("run", options.typed(r.command)) if r.command else ("all", again)
    head = ["## " * markdown + f"{r.name}: {r.title}", *[""] * markdown]
    source = _source(r.url, markdown)
    return [*head, r.answer, *shown, *r.more, *source, *[say(SAID[kind], command=command)] * bool(command)]


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
