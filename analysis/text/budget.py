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
SAID = {
    "step": "{training}, on {where}: a step takes {step:time}{doubt}.",
    "parts": "Its largest parts: {parts}.",
    "rest": "{rest:share} is not explained{missing}.",
    "noise": "The parts come to {over:time} more than the step, within their noise.",
    "high": "The parts come to {over:time} more than the step, so they are counted too high.",
    "busy": "The parts come to {over:time} more than the step: the machine was busy, so measure again.",
    "lost": "{training}: {status} on {where}, {reason}",
}


def where(training: Measurement) -> str:
    """The device of a row in words, with its threads when they were chosen."""
    return device_name(training.device) + f" ({count(training.threads or 0, 'thread')})" * bool(training.threads)


def subject(training: Measurement) -> str:
    return f"{title(training.problem.model)}, batch {training.problem.batch:,}"


def sentence(made: Budget) -> str:
    """The budget in two or three sentences: the step, its largest parts, and what is not explained."""
    step, over, sure = made.step.value, -made.remainder.value, made.remainder.high < 0
    parts = join(f"{share(seconds / step)} {name}" for seconds, name in made.largest[:_MOST])
    parts += " (they overlap)" * any(p.seconds and p.seconds.value < 0 for p in made.parts)
    kind = "rest" if over <= 0 else "noise" if not sure else "busy" if made.flags else "high"
    doubt, missing = f" (doubtful: {join(made.flags)})", f": {join(made.missing)} not measured yet"
    values = {"training": subject(made.training), "where": where(made.training), "step": made.step, "over": over}
    values |= {"doubt": doubt * bool(made.flags), "missing": missing * bool(made.missing), "rest": -over / step}
    return " ".join(say(SAID[key], parts=parts, **values) for key in ("step", *["parts"] * bool(parts), kind))


def lost(m: Measurement) -> str:
    """A sentence: why a row has no time. It names the options, as other rows of the model and batch may have a time."""
    replicas = m.experiment.replicas
    how = [f"{m.problem.dtype} inputs"] * (m.problem.dtype != "float32")
    how += option_words(m.settings.switches, ("replicas",))
    training = subject(m) + f" ({join(how)})" * bool(how)
    on = f"{replicas} GPUs" if replicas > 1 else where(m)
    return say(SAID["lost"], training=training, status=m.status, where=on, reason=m.reason)
