"""What an answer rests on: disturbed rows, estimated layers, parts without a row, and what predictions do not know."""

from collections.abc import Sequence

from analysis.explain.narrowing import WHOLE_STEP
from analysis.finding import Finding, Warning
from analysis.predict.step_parts import WORDS
from analysis.stats import best_by
from analysis.text.sentences import NAMES, capital, say
from analysis.units import join
from workloads import options, terminal

_TEMPLATES = {
    "disturbed": "{what}: measure again (--wait-quiet).",
    "estimated-layers": "Partial: of {names}, {share:share} of the arithmetic, there is only an estimate.",
    "rough-work": "Rough, within a factor of 4: {share:share} of a step's work on the {name} ({what}).",
    "widest-part": "Most uncertain on the {name}: {part}; this measures it: ",
    "no-row": "Left out of the {name}'s time, as no row tells it: {parts}.",
    "not-compiled": "The model is not compiled: {chosen} are assumed.",
    "not-known": "Not known: {text}.",
    "missing": "Missing of {device}: the profile has {what}; measure with: ",
}
# Parts of a training and of its step that have no words in WORDS.
_PARTS = {"build and compile": "compilation", WHOLE_STEP: "work that no row is of"}
# A flag of disturbed rows -> what happened.
_DISTURBED = {
    "other-load": "other programs used {share:share} of the CPU",
    "steal": "the hypervisor took {share:share} of the CPU time",
    "quota": "a CPU quota held the work back",
    "other-tenant": "another program computed on the GPU",
    "thermal": "heat lowered the GPU's clock",
}


def disturbed(finding: Finding) -> str:
    """The sentence on rows that were measured beside other work: `Other programs used 40 % of the CPU in 8 of 20 rows: measure
    again (--wait-quiet).`
    """
    return say(_TEMPLATES["disturbed"], what=capital(join(_clauses(finding.doubts))))


def _clauses(warnings: Sequence[Warning]) -> list[str]:
    """What happened, a clause for each kind of warning: `other programs used 40 % of the CPU in 8 of 20 rows`. Of a kind on both
    devices it is about the one with more such rows.
    """
    by_kind = best_by(warnings, lambda warning: warning.kind, lambda warning: -warning.rows).values()
    clauses = []
    for warning in by_kind:
        clause = say(_DISTURBED[warning.kind], share=warning.share or 0.0)
        if warning.rows < warning.rows_used:
            clause += f" in {warning.rows} of {warning.rows_used} rows"
        clauses.append(clause)
    return clauses


def estimated_layers(finding: Finding) -> str:
    return say(_TEMPLATES["estimated-layers"], **finding.numbers)


def rough_work(finding: Finding) -> str:
    (warning,) = finding.doubts
    name = NAMES[finding.subject]
    return say(_TEMPLATES["rough-work"], share=warning.share or 0.0, name=name, what=join(warning.names))


def widest_part(finding: Finding) -> str:
    part = finding.numbers["part"]
    words = _PARTS.get(part) or WORDS.get(part, part)
    text = say(_TEMPLATES["widest-part"], name=NAMES[finding.subject], part=words)
    return terminal.Line(text, command=options.typed(finding.numbers["command"]))


def no_row(finding: Finding) -> str:
    (warning,) = finding.doubts
    return say(_TEMPLATES["no-row"], name=NAMES[finding.subject], parts=join(warning.names))


def not_compiled(finding: Finding) -> str:
    (warning,) = finding.doubts
    return say(_TEMPLATES["not-compiled"], chosen=join(warning.names))


def not_known(finding: Finding) -> str:
    return say(_TEMPLATES["not-known"], text=finding.subject)


def missing(finding: Finding) -> str:
    text = say(_TEMPLATES["missing"], device=finding.subject, what=finding.numbers["what"])
    return terminal.Line(text, command=f"{'; '.join(finding.numbers['commands'])}.")


SENTENCES = {
    "disturbed": disturbed,
    "estimated-layers": estimated_layers,
    "rough-work": rough_work,
    "widest-part": widest_part,
    "no-row": no_row,
    "not-compiled": not_compiled,
    "not-known": not_known,
    "missing": missing,
}
