"""Who finishes first, as a sentence and as a bar a device; or why nobody can say."""

from collections.abc import Callable

from analysis import numbers
from analysis.finding import Finding
from analysis.stats import Estimate
from analysis.text import sentences
from analysis.text.explanation.lines import WIDTH
from analysis.text.sentences import NAMES, say
from workloads import terminal

_BAR = 36  # blocks of a bar, fewer where the terminal is narrow
_REACH = 2.5  # times the longer time, beyond which an interval runs off its bar
_TEMPLATES = {
    "too-big": "It needs {peak.value:size} of memory on the {name}, which has {capacity:size} (predicted).",
    "copied": "Keras's fit copies all samples there, {copied:size}; --input tf.data leaves them on the host.",
    "withheld": "No verdict: {names} not known, {share:share} of the arithmetic; --measure times it.",
    "not-measured": "No verdict yet: {who} for this model.",
    "untraced": "No verdict: {who}, and {reason}, so that it cannot be predicted.",
    "time": "On the {name} it takes {whole:timed} ({source}).",
}
#: The kinds of finding that an answer can begin with.
VERDICTS = ("winner", "too-big", "withheld", "not-measured", "untraced")


def winner(finding: Finding, subject: str = "") -> str:
    """The sentence on who finishes first, with both times. subject: what it begins with, as in a list of trainings; "" for
    none.
    """
    times = finding.numbers
    return sentences.winner(times["cpu"], times["gpu"], times["source"], subject, disturbed=bool(finding.doubts))


def too_big(finding: Finding) -> str:
    """The sentence on a training that needs more memory than a device has. Its numbers in bytes: peak, capacity, and copied, the
    samples that Keras's fit copies there; where these are at least half of the peak, how to leave them on the host is said too.
    """
    sentence = say(_TEMPLATES["too-big"], name=NAMES[finding.subject], **finding.numbers)
    copied = finding.numbers.get("copied", 0)
    if not copied or 2 * copied < finding.numbers["peak"].value:
        return sentence
    return f"{sentence} {say(_TEMPLATES['copied'], copied=copied)}"


def withheld(finding: Finding) -> str:
    return say(_TEMPLATES["withheld"], **finding.numbers)


def not_measured(finding: Finding) -> str:
    who = "the CPU was not measured" if finding.subject == "cpu" else "no GPU was measured"
    return say(_TEMPLATES[finding.kind], who=who, **finding.numbers)


def time(finding: Finding) -> str:
    return say(_TEMPLATES["time"], name=NAMES[finding.subject], **finding.numbers)


SENTENCES: dict[str, Callable[[Finding], str]] = {
    "winner": winner,
    "too-big": too_big,
    "withheld": withheld,
    "not-measured": not_measured,
    "untraced": not_measured,
    "time": time,
}


def _blocks(length: float, most: int) -> int:
    """A length rounded to whole blocks, from 0 to `most`."""
    return round(min(max(0.0, length), most))


def bars(cpu: Estimate, gpu: Estimate) -> list[str]:
    """A line with a bar for each device: dark up to the lower end of its time's interval, light up to the upper end, with a
    mark at the value. cpu, gpu: seconds of the whole training. Bars are shorter on narrow terminals.
    """
    longest = max(cpu.value, gpu.value)
    blocks = max(_BAR // 4, min(_BAR, (terminal.width() or WIDTH) - WIDTH + _BAR))
    scale = blocks / min(max(cpu.high, gpu.high), _REACH * longest)
    lines = []
    for name, whole in (("CPU", cpu), ("GPU", gpu)):
        full = _blocks(scale * whole.low, blocks)
        before_mark = _blocks(scale * whole.value, blocks) - full
        after_mark = _blocks(scale * whole.high, blocks) - before_mark - full
        bar = "█" * full + "░" * before_mark + "|" + "░" * after_mark
        lines.append(f"  {name}  {bar:<{blocks + 1}}  {numbers.timed(whole)}")
    return lines
