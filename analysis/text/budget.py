"""Budgets in words: the time of a step, its largest parts, and the share that no part explains."""

from analysis.numbers import share
from analysis.predict.budget import Budget
from analysis.text.rates import device_name
from analysis.text.rows import option_words
from analysis.text.sentences import say
from analysis.units import count, join
from kernels.networks import title
from workloads.records import Measurement

_MOST = 3  # parts in a sentence
SENTENCES = {
    "step": "{training}, on {where}: a step takes {step:time}{doubt}.",
    "parts": "Its largest parts: {parts}.",
    "rest": "{rest:share} is not explained{missing}.",
    "noise": "The parts come to {over:time} more than the step, within their noise.",
    "high": "The parts come to {over:time} more than the step, so they are counted too high.",
    "busy": "The parts come to {over:time} more than the step: the machine was busy, so measure again.",
    "lost": "{training}: {status} on {where}, {reason}",
}


def where(training: Measurement) -> str:
    """The device of a row in words, with its number of threads where that is not the library's own."""
    device = device_name(training.device)
    if not training.threads:
        return device
    return f"{device} ({count(training.threads, 'thread')})"


def subject(training: Measurement) -> str:
    return f"{title(training.problem.model)}, batch {training.problem.batch:,}"


def sentence(budget: Budget) -> str:
    """Two or three sentences on a training step: its time, its largest parts, and the share that no part explains."""
    step = budget.step.value
    doubt = f" (doubtful: {join(budget.flags)})" if budget.flags else ""
    device = where(budget.training)
    sentences = [say(SENTENCES["step"], training=subject(budget.training), where=device, step=budget.step, doubt=doubt)]
    parts = join(f"{share(seconds / step)} {name}" for seconds, name in budget.largest[:_MOST])
    if any(part.seconds and part.seconds.value < 0 for part in budget.parts):
        parts += " (they overlap)"
    if parts:
        sentences.append(say(SENTENCES["parts"], parts=parts))
    sentences.append(_remainder_sentence(budget))
    return " ".join(sentences)


def _remainder_sentence(budget: Budget) -> str:
    """The share of the step that no part explains, or why the parts come to more than the step."""
    remainder = budget.remainder
    if remainder.value >= 0:
        missing = f": {join(budget.missing)} not measured yet" if budget.missing else ""
        return say(SENTENCES["rest"], rest=remainder.value / budget.step.value, missing=missing)
    if remainder.high >= 0:
        reason = "noise"
    elif budget.flags:
        reason = "busy"
    else:
        reason = "high"
    return say(SENTENCES[reason], over=-remainder.value)


def lost(m: Measurement) -> str:
    """A sentence: why a row has no time. It names the options, as other rows of the model and batch may have a time."""
    options = []
    if m.problem.dtype != "float32":
        options.append(f"{m.problem.dtype} inputs")
    options += option_words(m.settings.switches, ("replicas",))
    training = subject(m)
    if options:
        training += f" ({join(options)})"
    replicas = m.experiment.replicas
    device = f"{replicas} GPUs" if replicas > 1 else where(m)
    return say(SENTENCES["lost"], training=training, status=m.status, where=device, reason=m.reason)
