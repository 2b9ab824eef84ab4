"""What an explanation shows, as findings: the verdict, its reasons, where it changes, what would help, and what it rests on.

The rank of a finding says which of them an answer of a few lines has.
"""

import shlex
from collections.abc import Iterable

from analysis.explain.doubts import Assumption
from analysis.explain.explanation import Explanation
from analysis.explain.narrowing import narrowest
from analysis.explain.request import GPU
from analysis.explain.sides import Side
from analysis.finding import ALWAYS, IN_DETAIL, Finding
from analysis.stats import NOTHING, Estimate, faster

# Changes that are sure to save have the ranks 1, 3, 5 ...; between them stand what a step's time goes to, and the stored
# GPU's host.
_RANK_OF_SHARES = 2
_RANK_OF_HOST = 4

_WAITING = 1.25  # times a batch of the data alone: a step of less is mostly waiting for it

_STARTING = ("start-up", "build and compile", "data-set setup")  # parts before the first epoch
_WORKING = ("steps", "start-up", "build and compile")  # parts that a training itself takes, whatever its data


def findings(explanation: Explanation) -> tuple[Finding, ...]:
    """Everything that an explanation can show, in the order of the answer; the first finding is the verdict, or why there
    is none.
    """
    both = explanation.both
    verdict = with_winner(explanation, *both) if both else without_winner(explanation)
    return (
        *verdict,
        *host(explanation),
        *data_alone(explanation),
        *changes(explanation),
        *doubts(explanation),
        *widest_part(explanation),
        *crossovers(explanation),
        *gaps(explanation),
    )


def with_winner(explanation: Explanation, cpu: Side, gpu: Side) -> list[Finding]:
    """The findings of a training with seconds on both devices: who wins, why, where that changes, and what it costs."""
    return [
        winner(explanation, cpu, gpu),
        steps(cpu, gpu),
        *step_shares(explanation),
        question(explanation.assumed) or turning_point(explanation),
        price(explanation, cpu.whole, gpu.whole),
    ]


# ---------------------------------------------------------------- the verdict


def winner(explanation: Explanation, cpu: Side, gpu: Side) -> Finding:
    """The device that finishes first, both times, and whether it is sure."""
    is_predicted = "predicted" in (cpu.cost.source, gpu.cost.source)
    return Finding(
        kind="winner",
        subject=explanation.likely_winner or "",
        numbers={
            "cpu": cpu.whole,
            "gpu": gpu.whole,
            "source": "predicted" if is_predicted else "measured",
            "sure": explanation.winner != "neither",
        },
        doubts=explanation.disturbances,
    )


def without_winner(explanation: Explanation) -> list[Finding]:
    """The findings of a training without seconds on one device or on both: why there is no winner, then the time where
    there is one.
    """
    reasons = [
        Finding(
            kind="too-big",
            subject=need.device,
            numbers={"peak": need.peak, "capacity": need.capacity, "copied": need.copied},
        )
        for need in explanation.memory
        if need.too_big
    ]
    unknown = explanation.request.unknown_share
    if explanation.request.untraced:
        has_only_cpu = [side.device for side in explanation.sides] == ["cpu"]
        untraced = Finding(
            kind="untraced",
            subject=GPU if has_only_cpu else "cpu",
            numbers={"reason": explanation.request.untraced},
        )
        reasons = [untraced]
    if not reasons and explanation.withheld and unknown:
        numbers = {"names": unknown.names, "share": unknown.arithmetic}
        reasons = [Finding(kind="withheld", numbers=numbers)]
    if not reasons:
        has_only_cpu = [side.device for side in explanation.sides] == ["cpu"]
        reasons = [Finding(kind="not-measured", subject=GPU if has_only_cpu else "cpu")]
    times = [
        Finding(kind="time", subject=side.device, numbers={"whole": side.whole, "source": side.cost.source})
        for side in explanation.sides
    ]
    return [*reasons, *times]


# ---------------------------------------------------------------- why, and where it changes


def steps(cpu: Side, gpu: Side) -> Finding:
    """Why a device wins: the speedup of the GPU's steps, and the seconds that it starts later, as far as they are more than
    noise. Where both devices spend most of their time in the same part, and that is not one of _WORKING, that part instead.
    """
    largest = cpu.largest
    if largest == gpu.largest and largest not in _WORKING:
        return Finding(
            kind="most-elsewhere",
            subject=largest,
            numbers={"cpu": cpu.parts[largest], "gpu": gpu.parts[largest]},
        )
    later_by_part = {}
    for part in _STARTING:
        later = gpu.parts[part] - cpu.parts[part]
        later_by_part[part] = 0.0 if later.low < 0 < later.high else later.value
    later_s = sum(later_by_part.values())
    part = max(later_by_part, key=lambda name: later_by_part[name])
    speedup = cpu.cost.step / gpu.cost.step
    return Finding(
        kind="steps",
        numbers={
            "speedup": speedup,
            "is_bound": gpu.cost.step.low <= 0 and speedup.low > 1,  # only the least of the speedup is known
            "later_s": later_s,
            "mostly": part if later_by_part[part] > later_s / 2 > 0 else "",
        },
    )


def step_shares(explanation: Explanation) -> list[Finding]:
    """What the time of a predicted step goes to, on the GPU if there is one; [] without a prediction that may be shown."""
    prediction = explanation.main
    if prediction is None or explanation.withheld:
        return []
    device = prediction.settings.device
    sources = [side.cost.source for side in explanation.sides if side.device == device]
    numbers = {"shares": prediction.largest_shares, "time": sources[0] if sources else ""}
    return [Finding(kind="step-shares", subject=device, numbers=numbers, rank=_RANK_OF_SHARES)]


def host(explanation: Explanation) -> list[Finding]:
    """By which factor this machine's CPU dispatches more slowly than the CPU with which a borrowed GPU was measured; []
    without one.
    """
    if not explanation.borrowed:
        return []
    numbers = {"factor": explanation.host_factor}
    return [Finding(kind="host", subject=explanation.borrowed, numbers=numbers, rank=_RANK_OF_HOST)]


def data_alone(explanation: Explanation) -> list[Finding]:
    """The samples a second that the user's data give without training, and the devices whose steps wait for them: those whose
    step takes less than _WAITING times as long as a batch of the data. [] where that was not measured.
    """
    alone_s = explanation.data_alone_s
    if alone_s is None:
        return []
    batch = min(explanation.request.training.batch, explanation.request.training.samples)
    waiting = tuple(side.device for side in explanation.sides if side.cost.step.value < _WAITING * alone_s)
    numbers = {"samples_per_s": batch / alone_s, "waiting": waiting}
    return [Finding(kind="data-alone", numbers=numbers, rank=ALWAYS)]


def turning_point(explanation: Explanation) -> Finding:
    """The samples or epochs from which a device wins. It is sure where rows of fewer and of more samples were measured, or
    where the winner of the training itself is sure.
    """
    point = explanation.turning_point
    is_sure = bool(explanation.swept_turning_points) or explanation.winner != "neither"
    return Finding(kind="turning-point", subject=point.device, numbers={"counts": point.counts, "sure": is_sure})


def question(assumed: Iterable[Assumption]) -> Finding | None:
    """The question about numbers that were assumed: which device wins below (or, if the assumed ones are smaller, from) the
    counts at which the winner changes; None where it changes near none of them.
    """
    near = [one for one in assumed if one.changes_at is not None]
    below = [one for one in near if one.changes_at is not None and one.changes_at <= one.value]
    shown = below or near
    if not shown:
        return None
    device = shown[0].wins_above
    if below:
        device = "cpu" if device == "gpu" else "gpu"
    counts = {one.name: one.changes_at for one in shown}
    return Finding(kind="question", subject=device, numbers={"counts": counts, "below": bool(below)})


def price(explanation: Explanation, cpu: Estimate, gpu: Estimate) -> Finding:
    """What the training costs on each device, the cheapest device and the fastest, if both prices are known; else how many
    times the CPU's price an hour the GPU's may be for the GPU to pay. cpu, gpu: seconds of the whole training.
    """
    rank = ALWAYS if explanation.request.prices else IN_DETAIL
    money = [cost.money for cost in explanation.costs if cost.money]
    if len(money) < 2:
        return Finding(kind="worth", numbers={"ratio": cpu / gpu}, rank=rank)
    cpu_money, gpu_money = money
    numbers = {
        "cpu": cpu_money,
        "gpu": gpu_money,
        "cheapest": faster(cpu_money, gpu_money),
        "fastest": faster(cpu, gpu),
    }
    return Finding(kind="price", numbers=numbers, rank=rank)


# ---------------------------------------------------------------- what would help


def changes(explanation: Explanation) -> list[Finding]:
    """Every change that may help, with the time that it saves. Those that are sure to save have ranks below IN_DETAIL, the
    surest the lowest; without any, a finding says so.
    """
    actions = explanation.actions
    every = []
    for what_if in explanation.what_ifs:
        numbers = {
            "saved": what_if.job_saved,
            "sure": explanation.surely_saves(what_if),
            "note": what_if.change.note,
            "gpu_wins": gpu_wins_with(what_if.job_saved, explanation.both),
        }
        rank = 1 + 2 * actions.index(what_if) if what_if in actions else IN_DETAIL
        every.append(Finding(kind="change", subject=what_if.change.words, numbers=numbers, rank=rank))
    if explanation.both and not actions:
        every.append(Finding(kind="no-savings", rank=1))
    return every


def gpu_wins_with(saved: Estimate | None, both: tuple[Side, Side] | tuple[()]) -> bool:
    """Whether a change makes the GPU the sure winner, which it is not without. saved: seconds that the change saves on the GPU;
    both: the CPU's and the GPU's side, () where one is unknown.
    """
    if not both:
        return False
    cpu, gpu = (side.whole for side in both)
    return faster(cpu, gpu) != "gpu" and faster(cpu, gpu - (saved or NOTHING)) == "gpu"


# ---------------------------------------------------------------- what it rests on


def doubts(explanation: Explanation) -> list[Finding]:
    """Reasons to believe the answer less: one finding for all disturbed rows, then one for each other warning (layers that are
    only estimated, parts without a row, a loss that was chosen here). [] where no seconds are shown.
    """
    if explanation.withheld and not explanation.both:
        return []
    notes = []
    if explanation.disturbances:
        notes.append(Finding(kind="disturbed", doubts=explanation.disturbances))
    for warning in explanation.warnings:
        if warning.disturbs:
            continue
        numbers = {}
        unknown = explanation.request.unknown_share
        if warning.kind == "estimated-layers" and unknown:
            numbers = {"names": unknown.names, "share": unknown.arithmetic}
        notes.append(Finding(kind=warning.kind, subject=warning.device, numbers=numbers, doubts=(warning,)))
    return notes


def widest_part(explanation: Explanation) -> list[Finding]:
    """Where a predicted time is too uncertain to tell a winner: the part of it with the widest interval, and the command that
    measures that part; [] elsewhere.
    """
    narrowing = narrowest(explanation)
    if narrowing is None:
        return []
    numbers = {
        "factor": narrowing.factor,
        "part": narrowing.widest,
        "command": shlex.join(("python", "-m", *narrowing.measurement.command)),
    }
    return [Finding(kind="widest-part", subject=narrowing.device, numbers=numbers)]


def crossovers(explanation: Explanation) -> list[Finding]:
    """The winner along each size."""
    if explanation.withheld:
        return []
    return [
        Finding(kind="crossover", subject=answer.family.varies, numbers={"answer": answer}, rank=IN_DETAIL)
        for answer in explanation.crossovers
    ]


def gaps(explanation: Explanation) -> list[Finding]:
    """What the predictions leave out or estimate, and for each device without a prediction the rows that it lacks."""
    unknown = [Finding(kind="not-known", subject=text, rank=IN_DETAIL) for text in explanation.partial]
    missing = []
    for device, error in explanation.lacking.items():
        numbers = {"what": error.what, "commands": error.commands}
        missing.append(Finding(kind="missing", subject=device, numbers=numbers, rank=IN_DETAIL))
    return [*unknown, *missing]
