"""The sentences and tables of answers to articles and complaints: a template for each kind of question.

A template is filled with the numbers of a finding of analysis.explain.evidence; one with a number that is not known is left out.
"""

import msgspec


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an answer's table, filled for each item of a list as `one`."""

    #: What the row is about.
    what: str
    #: What the article or the report says of it.
    published: str = "{one.words}"
    #: What is so here.
    measured: str


class CaseWords(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one kind of question."""

    #: What is so here of a claim, without a full stop.
    claim: str
    #: The row of the answer's table for each claim.
    row: TableRow
    #: Further sentences, a line each.
    more: str = ""


#: The answer, by the words of the first claim.
ANSWER = "{claim}. Published: {first.words}."
#: The row of an answer's table for each time that explains it.
TIME_ROW = TableRow(what="{one.label}", measured="{one.seconds:timed}")

#: Kind of question -> its words.
CASE_WORDS = {
    "faster": CaseWords(
        claim="{one.label}: {one:faster}",
        row=TableRow(what="{one.label}", measured="CPU {one.cpu:time}, GPU {one.gpu:time}"),
        more="By the step, {wins:crossing}.\nGPU step: {shares:part_shares} ({source}).",
    ),
    "gain": CaseWords(
        claim="{one.label}: {one.gain:speed}",
        row=TableRow(what="{one.label}", measured="{one.gain:gain}"),
    ),
    "copy": CaseWords(
        claim="copy {one.label}: {one.share:share} of the time",
        row=TableRow(what="copy {one.label}", measured="{one.copy_s:time} of {one.whole_s:time}"),
    ),
}
