"""The articles' results beside ours: the gain of the GPU as they published it and as it was measured here, and each
difference put down to what the rows can tell - or said to be not measured; and what newcomers believe (FLOPS decide, it is the
PCIe copy, bigger batches fix it, inference is the same), checked with numbers of one training."""

import math
from collections.abc import Callable, Iterable
from math import log

import msgspec

from analysis.explain.explanation import Explanation
from analysis.predict.profile import Profile
from analysis.roofline.roofs import roofs
from analysis.stats import Estimate
from analysis.text import training
from analysis.text.verdicts import WINNER
from analysis.training import break_even, inference
from analysis.training.break_even import BY_EPOCH, BY_STEP, Pair
from analysis.units import bytes_rate, digits, flops_rate, join, percent, seconds, times
from kernels import networks
from workloads.records import Measurement
from workloads.records.published_cases import CASES, Case, Claim

NOT_MEASURED = "not measured"
_RESIDENT, _FED = ("residence", "resident"), ("residence", "fed")
_NEAR = 1.1  # gains so near are the same in the articles' round numbers


class Comparison(msgspec.Struct, frozen=True):
    """One claim beside our rows. `here`: how many times as fast as the CPU the GPU was, None without both sides. `way`: which
    of our ways of training it was. `why`: the difference in sentences, numbers of the rows alone."""

    case: Case
    claim: Claim
    way: str
    here: Estimate | None
    why: tuple[str, ...]

    @property
    def faster(self) -> str:
        """The device that is faster here: cpu, gpu, or neither where the interval holds 1; empty without rows."""
        if self.here is None:
            return ""
        return "gpu" if self.here.low > 1 else "cpu" if self.here.high < 1 else "neither"


def comparisons(measurements: "Iterable[Measurement]", cases: Iterable[Case] = CASES) -> list[Comparison]:
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
                    Comparison(case, claim, "", None, (f"{NOT_MEASURED}: no rows of both devices at its settings",))
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


def _compared(case: Case, claim: Claim, pair: Pair, found: list[Pair]) -> Comparison:
    by = BY_STEP if pair.setup.kernel.endswith("loop") else BY_EPOCH
    cpu = break_even.seconds_by(pair.cpu(by).cost, by, pair.steps)
    gpu = break_even.seconds_by(pair.gpu.cost, by, pair.steps)
    here = cpu / gpu
    told = [
        *_speeds(case, claim, pair, here, (cpu, gpu)),
        *_floor(pair, found),
        *_growth(case, claim, pair, found),
        *_traps(pair, by, gpu),
    ]
    return Comparison(
        case, claim, training.way_word(pair.gpu.row), here, tuple(told) or (f"{NOT_MEASURED}: {case.unknown}",)
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
    ours = [side.cost.epoch_seconds(pair.steps) for side in (pair.cpu(BY_EPOCH), pair.gpu)]
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
        key=lambda p: (*p.gpu.cost.doubt, p.setup.dtype != s.dtype),
    )
    small, large = (other, pair) if smaller else (pair, other)
    gpu, cpu = (
        [side.cost.step.value for side in sides]
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
        f"its data is on the GPU here as there, so transfers are not in its step of {seconds(home.gpu.cost.step.value)}; "
        f"fed each step it takes {seconds(fed.gpu.cost.step.value)}{at}"
    ]


def _way(s: break_even.Setup) -> tuple[str, str, str]:
    return s.model, s.kernel, s.dtype


def _traps(pair: Pair, by: str, gpu: Estimate) -> list[str]:
    """What the gain would have been against a slower form of the CPU."""
    best = pair.cpu(by)
    own = break_even.seconds_by(best.cost, by, pair.steps)
    told = [
        f"{digits(took.value / gpu.value)} with the {side.form}"
        for side in pair.cpus
        if side is not best and (took := break_even.seconds_by(side.cost, by, pair.steps)).low > own.high
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


def sentence(b: Comparison) -> str:
    """A claim, ours beside it, and why they differ."""
    said = f"{b.case.name} ({b.case.title}), {b.claim.samples:,} samples: published {b.claim.words}"
    if b.here is None:
        return f"{said}; here {b.why[0]}."
    agrees = _agreement(b.claim, b.here) if b.faster == b.claim.faster else "unlike the article"
    return f"{said}; here {WINNER[b.faster]}, {agrees}: {gain_words(b.here)} ({b.way}); {'; '.join(b.why)}."


def lines(measurements: "Iterable[Measurement]") -> list[str]:
    """Every claim that rows have something to say about."""
    return [sentence(b) for b in comparisons(measurements) if b.here]


HOLDS, FALSE, PARTLY, UNKNOWN = "holds here", "does not hold here", "holds in part", "cannot be told here"
_RIGHT = 1.5  # a count within this factor of what is seen is right
_MUCH = 0.5  # a part of more than half of a step decides it
_LARGER = 16  # times the batch
_LANES = (28, 56)  # what an article counts for a GPU of 3584 lanes against 8 cores (S3e)


class Belief(msgspec.Struct, frozen=True):
    """A belief, whether it holds of this training, and the numbers that say so."""

    name: str
    words: str
    verdict: str
    why: str

    @property
    def sentence(self) -> str:
        return f'"{self.words}" {self.verdict}: {self.why}.'


def check(e: "Explanation", cpu: "Profile", gpu: "Profile | None", predict: Callable | None = None) -> list[Belief]:
    """Every belief that both sides' numbers can say something about. `predict(training, settings)` gives a Prediction."""
    if not (e.cpu and e.gpu and gpu):
        return []
    return [flops(e, cpu, gpu), copy(e), batch(e, predict), same_inference(e, gpu)]


def flops(e: "Explanation", cpu: "Profile", gpu: "Profile") -> Belief:
    """The ratio of measured arithmetic peaks beside that of the steps (S2, S3e)."""
    words, (cpu_side, gpu_side) = "FLOPS decide", e.sides
    tf32 = gpu_side.settings.keras.tf32 == "on"
    here, there = _peak(cpu, False, ("float32",)), _peak(gpu, True, ("tf32", "float32") if tf32 else ("float32",))
    if not (here and there):
        return Belief("flops", words, UNKNOWN, "no peak was measured on both devices (python -m workloads.peak)")
    ratio, step = there[1] / here[1], cpu_side.step_s.value / gpu_side.step_s.value
    work = min(e.asked.training.batch, e.asked.training.samples) * networks.training_flops(e.asked.of)
    busy = work / there[1] / gpu_side.step_s.value
    right = 1 / _RIGHT <= step / ratio <= _RIGHT
    faster = f"{times(step)} as fast" if step >= 1 else f"{times(1 / step)} slower"
    return Belief(
        "flops",
        words,
        HOLDS if right else FALSE,
        f"by their measured peaks ({flops_rate(there[1])} in {there[0]} and {flops_rate(here[1])}) the GPU "
        f"should be {times(ratio)} as fast, and an article's count of lanes gives {_LANES[0]} to "
        f"{_LANES[1]} times; its step is {faster}, because the step's {digits(work / 1e9)} GFLOP take "
        f"{percent(busy)} of it at that peak",
    )


def _peak(profile: "Profile", on_gpu: bool, maths: tuple[str, ...]) -> tuple[str, float] | None:
    """(arithmetic, FLOP/s) of the best measured roof on the side, in the first arithmetic that has one."""
    found = [
        r
        for r in roofs([m for m in profile.measurements if m.problem.op in ("peak", "matmul")])
        if r.kind == "compute" and r.measured
    ]
    for name in maths:
        rates = [r.rate.value for r in found if r.name == name and (r.device != "cpu") == on_gpu]
        if rates:
            return name, max(rates)
    return None


def copy(e: "Explanation") -> Belief:
    """What the copies of a batch take of the GPU's step (S4)."""
    cpu_side, gpu_side = e.sides
    parts, step = gpu_side.parts, gpu_side.step_s.value
    calls, moved = (parts[n].value if n in parts else 0.0 for n in ("transfer calls", "transfer bytes"))
    t = e.asked.training
    nbytes = min(t.batch, t.samples) * networks.sample_bytes(e.asked.of, t.dtype)
    share = (calls + moved) / step
    still = max(0.0, step - calls - moved)
    verdict = HOLDS if share > _MUCH else PARTLY if share > _MUCH / 2 else FALSE
    wins = cpu_side.step_s.value < still
    return Belief(
        "copy",
        "it is the PCIe copy",
        verdict,
        f"the batch's {digits(nbytes / 1e6)} MB take {seconds(moved)} on the link and their calls "
        f"{seconds(calls)}, {percent(share)} of a step; without any copy it would still take "
        f"{seconds(still)}"
        + (", more than the CPU's" if wins else "")
        + (f"; at {bytes_rate(nbytes / moved)} while they move" if moved > 0 else ""),
    )


def batch(e: "Explanation", predict: Callable | None) -> Belief:
    """What a sample costs in larger batches on both devices (S3a)."""
    words, t, (cpu_side, gpu_side) = "bigger batches fix it", e.asked.training, e.sides
    larger = min(_LARGER * t.batch, t.samples)
    if predict is None or larger <= t.batch:
        return Belief("batch", words, UNKNOWN, "all samples are in one batch already")
    grown = msgspec.structs.replace(t, batch=larger)
    try:
        made = [(p, predict(grown, p.settings)) for p in (gpu_side, cpu_side)]
    except ValueError as error:
        return Belief("batch", words, UNKNOWN, str(error))
    gains = [p.step_s.value / t.batch / (q.step_s.value / larger) for p, q in made]
    before, after = cpu_side.step_s.value / gpu_side.step_s.value, made[1][1].step_s.value / made[0][1].step_s.value
    verdict = HOLDS if before < 1 < after else PARTLY if gains[0] > _RIGHT else FALSE
    return Belief(
        "batch",
        words,
        verdict,
        f"at batch {larger:,} instead of {t.batch:,} a sample costs {digits(gains[0])} times less on the "
        f"GPU and {digits(gains[1])} times less on the CPU, so the GPU's step goes from {digits(before)} "
        f"to {digits(after)} times the CPU's speed; but the weights are then updated "
        f"{-(-t.samples // larger):,} times an epoch and not {t.steps:,}, which changes what is learned",
    )


def same_inference(e: "Explanation", gpu: "Profile") -> Belief:
    """Who wins at answering, beside who wins at training (S3b)."""
    words, model, (cpu_side, gpu_side) = "inference is the same", e.asked.training.model, e.sides
    found = [(case, way, a) for case, way, a in inference.crossovers(gpu.measurements) if way == inference.ROUNDTRIP]
    own = [one for one in found if one[0].model == model] or found
    if not own:
        forward = networks.inference_flops(e.asked.of) / max(1, networks.training_flops(e.asked.of))
        why = (
            f"answering does {percent(forward)} of a training step's FLOPs, but no answers were measured (python "
            f"-m workloads.inference --model {model})"
        )
        return Belief("inference", words, UNKNOWN, why)
    case, _, a = own[0]
    near = min(a.points, key=lambda p: abs(math.log(p.n / e.asked.training.batch)))
    step = cpu_side.step_s.value / gpu_side.step_s.value
    alike = (near.ratio.value > 1) == (step > 1) and 1 / _RIGHT < near.ratio.value / step < _RIGHT
    told = [f"{digits(p.ratio.value)} times at batch {p.n}" for p in dict.fromkeys((a.points[0], near, a.points[-1]))]
    return Belief(
        "inference",
        words,
        HOLDS if alike else FALSE,
        f"the GPU answers {case.name} {join(told)} as fast as the CPU, measured, and it is {digits(step)} "
        f"times as fast in this training at batch {e.asked.training.batch}",
    )
