"""Why a device finishes first: its steps and its start, what a step's time goes to, and the host of a stored GPU."""

from analysis.finding import Finding
from analysis.stats import exact
from analysis.text.sentences import CANT_TELL, MEASURED, NAMES, digits, part_shares, say, speed

_TEMPLATES = {
    "steps": "The GPU's steps are {at_least}{speedup:speed}{start}.",
    "start": "; it starts {seconds:time} {when}{mostly}",
    "most-elsewhere": "Most time is {what}: {cpu:time} on the CPU, {gpu:time} on the GPU.",
    "step-shares": "{name} step: {shares}{predicted}.",
    "host": "Dispatch is {dispatch:speed} than with {gpu}'s own CPU.",
    "same host": "Dispatch is as fast as with {gpu}'s own CPU, or can't be told from it.",
    "data-alone": "Your data alone give {samples_per_s} samples/s.",
    "waiting": "Your data alone give {samples_per_s} samples/s: the {devices} waits for them.",
    "both wait": "Your data alone give {samples_per_s} samples/s: the {devices} wait for them.",
    "unknown host": "Dispatch is taken as with {gpu}'s own CPU: no call was measured on both.",
}
_PARTS = {"start-up": "start-up", "build and compile": "compilation", "data-set setup": "data-set setup"}


def steps(finding: Finding) -> str:
    """The sentence on the steps of both devices and their start: `The GPU's steps are 3.1x faster; it starts 14 s later.`

    Its numbers: the speedup of a step (is_bound: only its least is known), and later_s, the seconds that the GPU starts later,
    which are below 0 if it starts earlier (mostly: the part of the start that takes most of them).
    """
    numbers = finding.numbers
    later_s = numbers["later_s"]
    start = ""
    if later_s:
        mostly = f" ({_PARTS[numbers['mostly']]})" if numbers["mostly"] else ""
        when = "later" if later_s > 0 else "earlier"
        start = say(_TEMPLATES["start"], seconds=abs(later_s), when=when, mostly=mostly)
    speedup = numbers["speedup"]
    if numbers["is_bound"]:
        return say(_TEMPLATES["steps"], at_least="at least ", speedup=speedup.low, start=start)
    return say(_TEMPLATES["steps"], at_least="", speedup=speedup.value, start=start)


def most_elsewhere(finding: Finding) -> str:
    return say(_TEMPLATES["most-elsewhere"], what=finding.subject, **finding.numbers)


def step_shares(finding: Finding) -> str:
    """The sentence on what a step's time goes to: `GPU step: 72 % dispatch and 26 % kernel launches (predicted).` The shares are
    always predicted; that is said where the time itself is measured.
    """
    predicted = " (predicted)" if finding.numbers["time"] == MEASURED else ""
    shares = part_shares(finding.numbers["shares"])
    return say(_TEMPLATES["step-shares"], name=NAMES[finding.subject], shares=shares, predicted=predicted)


def host(finding: Finding) -> str:
    """The sentence on this CPU beside that of the machine of a borrowed GPU, which is the subject: `Dispatch is 1.4x slower
    than with nvidia-h200's own CPU.` Its number: the factor by which dispatch takes longer here; None where it is not known.
    """
    factor = finding.numbers["factor"]
    if factor is None:
        return say(_TEMPLATES["unknown host"], gpu=finding.subject)
    dispatch = 1 / exact(factor)
    comparable = speed(dispatch) not in (CANT_TELL, "as fast")
    return say(_TEMPLATES["host" if comparable else "same host"], dispatch=dispatch, gpu=finding.subject)


def data_alone(finding: Finding) -> str:
    """The sentence on the user's data: `Your data alone give 9,000 samples/s: the GPU waits for them.` Its numbers: samples_per_s
    without training, and the devices that wait.
    """
    rate = digits(finding.numbers["samples_per_s"])
    waiting = finding.numbers["waiting"]
    if not waiting:
        return say(_TEMPLATES["data-alone"], samples_per_s=rate)
    devices = " and the ".join(NAMES[device] for device in waiting)
    template = _TEMPLATES["waiting"] if len(waiting) == 1 else _TEMPLATES["both wait"]
    return say(template, samples_per_s=rate, devices=devices)


SENTENCES = {
    "steps": steps,
    "most-elsewhere": most_elsewhere,
    "step-shares": step_shares,
    "host": host,
    "data-alone": data_alone,
}
