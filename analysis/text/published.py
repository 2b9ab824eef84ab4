"""The articles' results beside ours: the gain of the GPU as they published it and as it was measured here, and each
difference put down to what the rows can tell - or said to be not measured."""

from collections.abc import Iterable
from math import log

import msgspec

from analysis.stats import Estimate
from analysis.text import training
from analysis.training import break_even
from analysis.training.break_even import BY_EPOCH, BY_STEP, Pair
from analysis.units import digits, join, percent, seconds, times
from workloads.records import Measurement
from workloads.records.cases import CASES, Case, Claim

NOT_MEASURED = "not measured"
_RESIDENT, _FED = ("residence", "resident"), ("residence", "fed")
_NEAR = 1.1  # gains so near are the same in the articles' round numbers


class Beside(msgspec.Struct, frozen=True):
    """One claim beside our rows. `here`: how many times as fast as the CPU the GPU was, None without both sides. `way`: which
    of our ways of training it was. `why`: the difference in sentences, numbers of the rows alone."""

    case: Case
    claim: Claim
    way: str
    pair: Pair | None
    here: Estimate | None
    why: tuple[str, ...]

    @property
    def faster(self) -> str:
        """The device that is faster here: cpu, gpu, or neither where the interval holds 1; empty without rows."""
        if self.here is None:
            return ""
        return "gpu" if self.here.low > 1 else "cpu" if self.here.high < 1 else "neither"


def beside(measurements: "Iterable[Measurement]", cases: Iterable[Case] = CASES) -> list[Beside]:
    """Every claim with each way of training that it may be compared with; those without rows once, as not measured."""
    every = list(measurements)
    found = break_even.pairs(every)
    made = []
    for case in cases:
        for claim in case.claims:
            own = [p for p in found if _is(p, case, claim)]
            made += [_compared(case, claim, pair, found) for pair in own]
            if not own:
                made.append(
                    Beside(case, claim, "", None, None, (f"{NOT_MEASURED}: no rows of both devices at its settings",))
                )
    return made


def _is(pair: Pair, case: Case, claim: Claim) -> bool:
    """Whether a pair is the claim's training: the article's model, type, batch and samples, with no switch but where a
    bare loop keeps its data."""
    s = pair.setup
    batch = claim.samples if case.loop else case.batch
    if (s.model, s.batch, s.samples) != (case.model, batch, claim.samples) or s.dtype != case.dtype:
        return False
    loop = s.kernel.endswith("loop")
    return not s.switches or (case.loop and loop and s.switches == (_RESIDENT,))


def _compared(case: Case, claim: Claim, pair: Pair, found: list[Pair]) -> Beside:
    by = BY_STEP if pair.setup.kernel.endswith("loop") else BY_EPOCH
    cpu = break_even.seconds_by(pair.cpu(by), by, pair.steps)
    gpu = break_even.seconds_by(pair.gpu, by, pair.steps)
    here = cpu / gpu
    told = [
        *_speeds(case, claim, pair, here, (cpu, gpu)),
        *_floor(pair, found),
        *_growth(case, claim, pair, found),
        *_traps(pair, by, gpu),
    ]
    return Beside(
        case,
        claim,
        training.way_word(pair.gpu.row),
        pair,
        here,
        tuple(told) or (f"{NOT_MEASURED}: {case.unknown}",),
    )


def _speeds(case: Case, claim: Claim, pair: Pair, here: Estimate, sides: tuple[Estimate, Estimate]) -> list[str]:
    """How many times faster than the article's each of our devices is: the two ratios turn its gain into ours. Where the article
    gives no seconds, what its gain would take of our CPU."""
    theirs = [p.epoch_s for where in ("cpu", "gpu") if (p := case.of(where)) and p.epoch_s]
    if len(theirs) < 2:
        said = [f"the article does not give {case.unknown}, so which device moved cannot be told"]
        if claim.gain and claim.faster == "gpu" and not _agrees(claim.gain, here):
            cpu, gpu = sides
            what = "a step" if pair.setup.kernel.endswith("loop") else "an epoch"
            said.append(
                f"beside our GPU's {seconds(gpu.value)} {what}, {digits(claim.gain)}x would take a CPU of "
                f"{seconds(claim.gain * gpu.value)}; ours takes {seconds(cpu.value)}"
            )
        return said
    ours = [pair.cpu(BY_EPOCH).epoch(pair.steps), pair.gpu.epoch(pair.steps)]
    slower, quicker = (p.value / o.value for p, o in zip(theirs, ours, strict=True))
    samples = pair.setup.samples
    each = [
        f"{seconds(o.value / samples)} a sample against its {seconds(p.value / samples)}"
        for p, o in zip(theirs, ours, strict=True)
    ]
    gain = theirs[0].value / theirs[1].value
    return [
        f"our CPU takes {each[0]} ({times(slower)} faster), our GPU {each[1]} ({times(quicker)} faster): "
        f"its {digits(gain)} x {digits(quicker)} / {digits(slower)} is our {digits(here.value)}"
    ]


def _floor(pair: Pair, found: list[Pair]) -> list[str]:
    """What of the GPU's step does not shrink with its batch: the step of the smallest batch measured of the same model; that of
    the largest, where this one is the smallest."""
    s = pair.setup
    others = [
        p
        for p in found
        if p.setup.model == s.model
        and p.setup.kernel == s.kernel
        and p.setup.batch != s.batch
        and p.setup.switches == s.switches
    ]
    if not others:
        return ["no row of another batch tells what of the GPU's step is dispatch"]
    smaller = [p for p in others if p.setup.batch < s.batch]
    chosen = min(p.setup.batch for p in smaller) if smaller else max(p.setup.batch for p in others)
    other = min(
        (p for p in others if p.setup.batch == chosen),
        key=lambda p: break_even.trust(p.gpu.row, p.gpu.costs.step, s.dtype),
    )
    small, large = (other, pair) if smaller else (pair, other)
    gpu, cpu = (
        [side.costs.step.value for side in sides]
        for sides in ((large.gpu, small.gpu), (large.cpu(BY_STEP), small.cpu(BY_STEP)))
    )
    goes = "falls" if cpu[1] < cpu[0] else "goes"
    return [
        f"the GPU's step takes {seconds(gpu[0])} at batch {large.setup.batch:,} and still {seconds(gpu[1])} "
        f"({percent(gpu[1] / gpu[0])}) at batch {small.setup.batch:,}, where the CPU's {goes} from {seconds(cpu[0])} to "
        f"{seconds(cpu[1])}"
    ]


def _growth(case: Case, claim: Claim, pair: Pair, found: list[Pair]) -> list[str]:
    """What feeding a bare loop costs a step: the article's cause, by the rows of both whose samples are nearest."""
    s = pair.setup
    if not case.blames.startswith("frequent transfer") or _RESIDENT not in s.switches:
        return []
    like = {p.setup: p for p in found}
    both = []
    for fed in found:
        home = like.get(msgspec.structs.replace(fed.setup, switches=s.switches))
        if fed.setup.switches == (_FED,) and home and (fed.setup.model, fed.setup.kernel, fed.setup.dtype) == _way(s):
            both.append((home, fed))
    if not both:
        return [f"what transfers add at {claim.samples:,} samples is {NOT_MEASURED}: no row that is fed each step"]
    home, fed = min(both, key=lambda pair_: abs(log(pair_[0].setup.samples / s.samples)))
    at = "" if home.setup.samples == s.samples else f" (at {home.setup.samples:,} samples, the nearest measured)"
    return [
        f"its data is on the GPU here as there, so transfers are not in its step of {seconds(home.gpu.costs.step.value)}; "
        f"fed each step it takes {seconds(fed.gpu.costs.step.value)}{at}"
    ]


def _way(s: break_even.Setup) -> tuple[str, str, str]:
    return s.model, s.kernel, s.dtype


def _traps(pair: Pair, by: str, gpu: Estimate) -> list[str]:
    """What the gain would have been against a slower form of the CPU."""
    best = pair.cpu(by)
    own = break_even.seconds_by(best, by, pair.steps)
    told = [
        f"{digits(took.value / gpu.value)} with the {side.form}"
        for side in pair.cpus
        if side is not best and (took := break_even.seconds_by(side, by, pair.steps)).low > own.high
    ]
    return [f"against the CPU's other forms the gain would read {join(told)} (ours: {best.form})"] if told else []


def gain_words(e: Estimate) -> str:
    """`9.1x (8.8..9.4)`."""
    return f"{digits(e.value)}x" + (f" ({digits(e.low)}..{digits(e.high)})" if e.low < e.high else "")


def _agrees(gain: float, here: Estimate) -> bool:
    return here.low <= gain <= here.high or 1 / _NEAR <= gain / here.value <= _NEAR


def _agreement(claim: Claim, here: Estimate) -> str:
    """Of the same winner: whether by as much, where the article says how much."""
    if claim.gain is None or claim.faster == "neither" or _agrees(claim.gain, here):
        return "as published"
    ratio = claim.gain / here.value
    return f"the same winner, but {times(ratio)} less" if ratio > 1 else f"the same winner, and {times(1 / ratio)} more"


def sentence(b: Beside) -> str:
    """A claim, ours beside it, and why they differ."""
    said = f"{b.case.name} ({b.case.title}), {b.claim.samples:,} samples: published {b.claim.words}"
    if b.here is None:
        return f"{said}; here {b.why[0]}."
    agrees = _agreement(b.claim, b.here) if b.faster == b.claim.faster else "unlike the article"
    winner = {"cpu": "the CPU is faster", "gpu": "the GPU is faster", "neither": "neither is faster"}[b.faster]
    return f"{said}; here {winner}, {agrees}: {gain_words(b.here)} ({b.way}); {'; '.join(b.why)}."


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """Every claim that rows have something to say about."""
    return [sentence(b) for b in beside(measurements) if b.here]
