"""From how many samples or epochs another device finishes first."""

from analysis.finding import Finding
from analysis.text.explanation.lines import fits
from analysis.text.sentences import NAMES, counted, crossover, say
from analysis.training.break_even import BY_WHOLE_TRAINING

_TEMPLATES = {
    "from": "about {counts} on, the {device}{probably} finishes first.",
    "always": "the first epoch on, the {device}{probably} finishes first, and it stays so.",
    "question": "{where} about {counts} the {device} probably wins: how many {do}?",
}
_VERBS = {"samples": "have you"}


def turning_point(finding: Finding) -> str:
    """The sentence on where the winner changes: `about 24,600 samples or 39 epochs on, the GPU finishes first.` Its numbers:
    the counts of samples and epochs from which the device wins, and whether it is sure. Without a count it wins from the first
    epoch on.
    """
    probably = "" if finding.numbers["sure"] else " probably"
    counts = _counted(finding)
    template = _TEMPLATES["from" if counts else "always"]
    return say(template, counts=" or ".join(counts), device=NAMES[finding.subject], probably=probably)


def question(finding: Finding) -> str:
    """The question about numbers that were assumed: `Below about 7,200 samples the CPU probably wins: how many have you?` Its
    numbers: the counts at which the winner changes, and whether the device wins below them. Where a line is too short for all
    counts it has the first.
    """
    words = {
        "where": "Below" if finding.numbers["below"] else "From",
        "device": NAMES[finding.subject],
        "do": _VERBS.get(next(iter(finding.numbers["counts"])), "will you train"),
    }
    counts = _counted(finding)
    all_counts = say(_TEMPLATES["question"], counts=" or ".join(counts), **words)
    if fits(all_counts):
        return all_counts
    return say(_TEMPLATES["question"], counts=counts[0], **words)


def _counted(finding: Finding) -> list[str]:
    return [counted(max(1.0, size), name) for name, size in finding.numbers["counts"].items()]


def crossing(finding: Finding) -> str:
    """The winner along a size: `A step: the GPU wins from about batch 62.`"""
    answer = finding.numbers["answer"]
    return " ".join(crossover(answer, "Whole training" if answer.form.mode == BY_WHOLE_TRAINING else "A step"))


SENTENCES = {"turning-point": turning_point, "question": question, "crossover": crossing}
