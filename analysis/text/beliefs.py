"""What newcomers believe about GPUs, checked with numbers of one training: FLOPS decide, it is the PCIe copy, bigger batches fix
it, inference is the same."""

import math
from collections.abc import Callable

import msgspec

from analysis.explain.explanation import Explanation
from analysis.predict.profile import Profile
from analysis.roofline.roofs import roofs
from analysis.training import inference
from analysis.units import bytes_rate, digits, flops_rate, join, percent, seconds, times
from kernels import networks
from workloads.records import settings

HOLDS, FALSE, PARTLY, UNKNOWN = "holds here", "does not hold here", "holds in part", "cannot be told here"
_NEAR = 1.5  # a count within this factor of what is seen is right
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
    tf32 = gpu_side.settings.switches.get("tf32", settings.default("tf32")) == "on"
    here, there = _peak(cpu, False, ("float32",)), _peak(gpu, True, ("tf32", "float32") if tf32 else ("float32",))
    if not (here and there):
        return Belief("flops", words, UNKNOWN, "no peak was measured on both devices (python -m workloads.peak)")
    ratio, step = there[1] / here[1], cpu_side.step_s.value / gpu_side.step_s.value
    work = min(e.asked.training.batch, e.asked.training.samples) * networks.training_flops(e.asked.of)
    busy = work / there[1] / gpu_side.step_s.value
    right = 1 / _NEAR <= step / ratio <= _NEAR
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
    verdict = HOLDS if before < 1 < after else PARTLY if gains[0] > _NEAR else FALSE
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
    alike = (near.ratio.value > 1) == (step > 1) and 1 / _NEAR < near.ratio.value / step < _NEAR
    told = [f"{digits(p.ratio.value)} times at batch {p.n}" for p in dict.fromkeys((a.points[0], near, a.points[-1]))]
    return Belief(
        "inference",
        words,
        HOLDS if alike else FALSE,
        f"the GPU answers {case.name} {join(told)} as fast as the CPU, measured, and it is {digits(step)} "
        f"times as fast in this training at batch {e.asked.training.batch}",
    )
