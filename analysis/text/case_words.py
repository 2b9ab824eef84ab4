"""The sentences and tables of answers to articles and complaints: templates for each kind of finding on a case.

A template is filled with the finding's numbers; one with a number that is not known is left out.
"""

import msgspec


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of an answer, or a part of one."""

    #: The template.
    text: str
    #: The name of a list of numbers; the template is filled for each of them, as `one`. "" to fill it once.
    repeat_over: str = ""


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an answer's table."""

    #: What the row is about.
    what: str
    #: What the article or the report says of it; "-" for nothing.
    published: str = "-"
    #: What is so here.
    measured: str = "-"
    #: As of Words.
    repeat_over: str = ""


class CaseWords(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one kind of finding."""

    #: The answer, in a sentence.
    answer: str
    #: The rows of its table.
    rows: tuple[TableRow, ...] = ()
    #: A further sentence; "" for none.
    more: str = ""
    #: Why the claim holds or does not: parts of a table's cell.
    why: tuple[Words, ...]


#: What the source reports of a model, and what is measured here.
REPORTED = TableRow(
    what="{one[0]:title}",
    published="{one[1].reported.words}",
    measured="CPU {one[1].cpu:time}, GPU {one[1].gpu:time}",
    repeat_over="reported",
)

#: Kind of a finding on a case -> its words.
CASE_WORDS = {
    "winner": CaseWords(
        answer="{verdict} the article, by the epoch: {first:faster} (published: {first.claim.words}).",
        rows=(
            TableRow(
                what="{one.claim.samples:,} samples",
                published="{one.claim.words}",
                measured="{one:faster} ({one.row.variant})",
                repeat_over="claims",
            ),
            TableRow(
                what="an epoch on the {one[0]}",
                published="{one[1]:time}",
                measured="{one[2]:timed}",
                repeat_over="epochs",
            ),
        ),
        more="GPU step: {gpu:shares} (predicted).",
        why=(Words(text="{one.claim.samples:,} samples: {one:faster}", repeat_over="claims"),),
    ),
    "pair": CaseWords(
        answer="{hits} of 2 as reported: {first[0]:title}, {first[1]:faster}; {second[0]:title}, {second[1]:faster}.",
        rows=(REPORTED,),
        more="{second[0]:title} has {ratio:factor} the arithmetic for each operation; starting one costs the same.",
        why=(Words(text="{one[0]:title}: {one[1]:faster}", repeat_over="reported"),),
    ),
    "flip": CaseWords(
        answer="By the step, {wins:crossing}.",
        rows=(
            REPORTED,
            TableRow(what="copying a batch", measured="{copied:share} of the GPU's step"),
        ),
        more="A GPU step of fit takes at least {floor.seconds:timed}, whatever the model (measured).",
        why=(
            Words(text="{one[0]:title}: {one[1]:faster}", repeat_over="reported"),
            Words(text="copying a batch is {copied:share} of a GPU step"),
        ),
    ),
    "cause": CaseWords(
        answer="It is {part}, {share:share} of the GPU's step; copied bytes are {copied:share}.",
        rows=(
            TableRow(
                what="a step, {one[0]}",
                published="{one[1].reported.words}",
                measured="CPU {one[1].cpu:time}, GPU {one[1].gpu:time}",
                repeat_over="reported",
            ),
            TableRow(what="the GPU's {one[0]}", measured="{one[1]:time}", repeat_over="parts"),
            TableRow(
                what="batch {larger.change.training.batch:,} saves", measured="{larger.job_saved:timed} (predicted)"
            ),
        ),
        why=(
            Words(text="{one[0]}: {one[1]:faster}", repeat_over="reported"),
            Words(text="{part} is {share:share} of a GPU step"),
        ),
    ),
    "home": CaseWords(
        answer="Keeping the data set on the GPU saves {resident.job_saved:timed} of {gpu.whole:time} (predicted).",
        rows=(
            TableRow(
                what="batch {larger.change.training.batch:,} saves", measured="{larger.job_saved:timed} (predicted)"
            ),
            TableRow(what="the data set", published="316 MB", measured="{bytes:size}"),
            TableRow(what="sent once", measured="{sent:time}"),
            TableRow(what="copying a batch", measured="{copied:share} of the GPU's step"),
            TableRow(
                what="batch {gpu.training.batch} against {other.training.batch}",
                published="35 min against 12",
                measured="{gpu.whole:time} against {other.whole:time}",
            ),
        ),
        why=(Words(text="{other.whole:time} against {gpu.whole:time} (predicted)"),),
    ),
    "bound": CaseWords(
        answer="Yes, the copy decides: pinned memory would make a step {gains[0]:factor} faster, full overlap {gains[1]:factor}.",
        rows=(
            TableRow(what="a step", published="{theirs[step_s]:time}"),
            TableRow(what="copy, pageable", published="{theirs[copy_s]:time}", measured="the same for {bytes:size}"),
            TableRow(what="copy, pinned", measured="{pinned:time}"),
            TableRow(what="a step, pinned", measured="{step:time}"),
            TableRow(what="a step, copy and work at once", measured="at least {least:time}"),
        ),
        why=(Words(text="from pinned memory it would be {pinned:time} of {step:time}"),),
    ),
    "clock": CaseWords(
        answer="No, the copy takes {copy:time}: the clock was stopped before {theirs[passes]} passes had run.",
        rows=(
            TableRow(
                what="{theirs[passes]} passes, not synchronized",
                published="{theirs[passes_s]:time}",
                measured="{issued:time}",
            ),
            TableRow(
                what="the copy with what it waits for", published="{theirs[copy_s]:time}", measured="{waited:time}"
            ),
            TableRow(what="{theirs[passes]} passes, synchronized", measured="{ran:time}"),
            TableRow(what="the copy alone", measured="{copy:time}"),
        ),
        more="Put cupy.cuda.Device().synchronize() before each reading of the clock.",
        why=(Words(text="it takes {copy:time}, the rest is {theirs[passes]} passes that still ran"),),
    ),
    "inference": CaseWords(
        answer="The GPU against the CPU: {one[gain]:speed} at batch {one[n]}, {many[gain]:speed} at batch {many[n]}.",
        rows=(
            TableRow(
                what="frames a second, batch {one[n]}",
                published="about 5 on both",
                measured="CPU {one[cpu]:number}, GPU {one[gpu]:number}",
            ),
            TableRow(
                what="frames a second, batch {many[n]}", measured="CPU {many[cpu]:number}, GPU {many[gpu]:number}"
            ),
        ),
        why=(Words(text="GPU at batch {one[n]}: {one[gain]:speed}"),),
    ),
    "gpus": CaseWords(
        answer="{first[0]} GPUs against one: {first[2]:speed} at batch {first[1]:,}, {last[2]:speed} at batch {last[1]:,}.",
        rows=(
            TableRow(
                what="{one[0]} GPUs, batch {one[1]:,} in all",
                published="no faster",
                measured="{one[2]:gain}",
                repeat_over="gains",
            ),
            TableRow(what="twice the layers", published="out of memory", measured="each GPU holds the whole model"),
        ),
        why=(Words(text="{one[0]} GPUs at batch {one[1]:,}: {one[2]:speed}", repeat_over="gains"),),
    ),
    "teacher": CaseWords(
        answer="Both at once instead of one after the other: {pair.gain:speed}.",
        rows=(
            TableRow(what="student's step on the GPU", published="slower?", measured="slowdown {pair.slower[0]:gain}"),
            TableRow(what="teacher's answer on the CPU", measured="slowdown {pair.slower[1]:gain}"),
            TableRow(what="both, one after the other", measured="{pair.after:time}"),
            TableRow(what="both at once", measured="{pair.at_once:time}"),
        ),
        why=(Words(text="both at once: {pair.gain:speed}"),),
    ),
    "peaks": CaseWords(
        answer="No: by measured peaks the GPU is {ratio:factor} faster, its step {step:factor}.",
        rows=(
            TableRow(what="by counting lanes", published="{theirs[low]} to {theirs[high]}x"),
            TableRow(what="in practice", published="{theirs[practice]}x", measured="a step {step:factor}"),
            TableRow(what="by measured peaks", measured="{ratio:factor}"),
            TableRow(what="the step's arithmetic at that peak", measured="{busy:share} of the step"),
        ),
        why=(Words(text="a step is {step:factor} faster, measured peaks {ratio:factor}"),),
    ),
}
