"""Answers to articles and complaints: the evidence of a case (analysis.explain.evidence) as one sentence, one table and further
lines."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from analysis.explain import evidence
from analysis.explain.explanation import Request, Sources
from analysis.table import Table, parsed
from analysis.text import sentences
from analysis.text.sentences import say
from workloads import options
from workloads.records.published_cases import Case, Complaint, Question

# A template for each kind of evidence: first the answer, then rows (what | published | measured) and further lines.
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
Keeping the data set on the GPU saves {kept.job_saved:timed} of {gpu.whole:time} (predicted).
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
Both at once instead of one after the other: {found.gain:speed}.
student's step on the GPU | slower? | slowdown {found.slower[0]:gain}
teacher's answer on the CPU | - | slowdown {found.slower[1]:gain}
both, one after the other | - | {found.after:time}
both at once | - | {found.at_once:time}""",
    "peaks": """
No: by measured peaks the GPU is {ratio:factor} faster, its step {step:factor}.
by counting lanes | 28 to 56x | -
in practice | 20x | a step {step:factor}
by measured peaks | - | {ratio:factor}
the step's arithmetic at that peak | - | {busy:share} of the step""",
}
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
    """A case's answer: first sentence, rows (what, published, on `machine`) and further lines. `command`: the one that measures
    it, where no row does; else empty."""

    name: str
    title: str
    answer: str
    machine: str
    rows: tuple[tuple[str, ...], ...] = ()
    more: tuple[str, ...] = ()
    command: str = ""


def reply(case: Case | Complaint | Question, of: Sources, request: Request | None) -> Reply:
    """The answer to the case's question. Where the rows do not give it, a stored GPU's own machine does; where neither does,
    the reply has the command that measures it."""
    found, machine = evidence.evidence(case, of, request), (of.gpu or of.cpu).key
    if found is None and of.borrowed:
        found = evidence.evidence(case, replace(of, cpu=of.borrowed), request)
    if found is None:
        command = COMMANDS.get(case.kind) or COMMANDS.get(case.name, "python -m workloads.training --study complaints")
        return Reply(case.name, case.title, SAID["none"], machine, command=command)
    answer, *rest = _filled(TOLD[found[0]], found[1])
    rows = parsed("\n".join(line for line in rest if " | " in line))
    more = [line for line in rest if " | " not in line]
    if isinstance(case, Complaint):
        more += sentences.lines(SAID["apart"], apart=case.apart or None)
    return Reply(case.name, case.title, answer, found[1].get("where") or machine, tuple(map(tuple, rows)), tuple(more))


def _filled(template: str, values: dict) -> Iterator[str]:
    """The lines of a template, filled; a `[name] ` line once for each item of that value."""
    for line in template.strip().splitlines():
        name, many, rest = line.removeprefix("[").partition("] ")
        yield from (say(rest, one=one) for one in values[name]) if many else sentences.lines(line, **values)


def lines(r: Reply, again: str = "", markdown: bool = False) -> list[str]:
    """The reply for a terminal or as Markdown: at most 18 lines of 80 columns."""
    table = Table(f"what | published | {r.machine}", r.rows)
    shown = (["", *table.md()] if markdown else table.text()) if r.rows else []
    kind, command = ("run", options.typed(r.command)) if r.command else ("all", again)
    head = ["## " * markdown + f"{r.name}: {r.title}", *[""] * markdown]
    return [*head, r.answer, *shown, *r.more, *[say(SAID[kind], command=command)] * bool(command)]
