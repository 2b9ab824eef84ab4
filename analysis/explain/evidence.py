"""Numbers that answer a case's question: peaks against a step, copies against a clock, what several GPUs bring."""

import msgspec

from analysis.explain import published
from analysis.explain.explanation import GPU, Explanation, Sources
from analysis.predict.profile import Profile
from analysis.roofline import overheads
from analysis.roofline.roofs import roofs
from analysis.stats import Estimate, middle
from analysis.training import data_parallel
from kernels import networks
from workloads.records import Measurement
from workloads.records.published_cases import Complaint

_FLOAT32 = 4


class Peaks(msgspec.Struct, frozen=True):
    """The speedup by measured arithmetic peaks (GPU over CPU), that of a step, and the share of the step that its arithmetic
    takes at that peak."""

    ratio: float
    step: Estimate
    busy: float


def peaks(e: Explanation, of: Sources) -> Peaks | None:
    """None without both sides, or a peak of each."""
    if not (e.both and of.gpu):
        return None
    cpu, gpu = _peak(of.cpu, False, ("float32",)), _peak(of.gpu, True, ("tf32", "float32"))
    if not (cpu and gpu):
        return None
    t, (host, device) = e.asked.training, e.both
    work = min(t.batch, t.samples) * networks.training_flops(e.asked.of)
    return Peaks(gpu / cpu, host.cost.step / device.cost.step, work / gpu / device.cost.step.value)


def _peak(profile: Profile, on_gpu: bool, maths: tuple[str, ...]) -> float | None:
    """FLOP/s of the best measured roof of a side, in the first arithmetic that has one."""
    rows = [m for m in profile.measurements if m.problem.op in ("peak", "matmul")]
    found = [r for r in roofs(rows) if r.kind == "compute" and r.measured and (r.device != "cpu") == on_gpu]
    rates = [[r.rate.value for r in found if r.name == math] for math in maths]
    return next((max(some) for some in rates if some), None)


def copied(e: Explanation) -> float | None:
    """The share of the GPU's predicted step that copying a batch takes."""
    if not e.gpu:
        return None
    return (
        sum(e.gpu.parts[n].value for n in ("transfer calls", "transfer bytes") if n in e.gpu.parts) / e.gpu.step_s.value
    )


class Bound(msgspec.Struct, frozen=True):
    """A step whose copy takes most of it: the bytes that it carries by this machine's pageable law, seconds of the same copy
    from pinned memory, and of the step's rest."""

    nbytes: float
    pinned: float
    rest: float


def bound(case: Complaint, rows: tuple[Measurement, ...]) -> Bound | None:
    pageable, pinned = (published.copy_law(rows, GPU, memory=memory) for memory in ("pageable", "pinned"))
    if pageable is None or pinned is None:
        return None
    last, seconds = pageable.pieces[-1], case.numbers["copy_s"]
    nbytes = (seconds - last.latency_s) / last.s_per_byte
    return Bound(nbytes, pinned.seconds(nbytes).value, case.numbers["step_s"] - seconds)


class Clock(msgspec.Struct, frozen=True):
    """Seconds of passes over an array: to issue and to run them, and of the copy of the array to the host."""

    issued: float
    ran: float
    copy: float


def clock(case: Complaint, rows: tuple[Measurement, ...]) -> Clock | None:
    elements, passes = case.numbers["elements"], int(case.numbers["passes"])
    nbytes = 2 * _FLOAT32 * elements
    like = [m for m in rows if m.problem.op == "stream" and m.problem.operation in ("scale", "copy")]
    timed = [m for m in like if m.device == GPU and m.ok and m.on("device")]
    law, constants = published.copy_law(rows, GPU, "d2h"), overheads.constants(rows)
    clocks = ("host-issue", "host-throughput")
    issue = next((c for name in clocks if (c := overheads.find(constants, "cupy-launch", GPU, clock=name))), None)
    if not timed or law is None or issue is None:
        return None
    near = min(timed, key=lambda m: abs(m.problem.bytes_moved - nbytes))
    ran = passes * nbytes * middle(near.on("device")) / near.problem.bytes_moved
    return Clock(passes * issue.seconds.value, ran, law.seconds(_FLOAT32 * elements).value)


def several_gpus(rows: tuple[Measurement, ...], model: str) -> list[tuple[data_parallel.Case, Estimate]]:
    """The gains of the most GPUs for a model, by batch, with the library that has most of them."""
    every = [(c, gain) for c in data_parallel.cases(list(rows)) if c.several.on_gpu and (gain := c.gain)]
    own = [one for one in every if one[0].several.problem.model == model] or every
    most = max((c.count for c, _ in own), default=0)
    libraries = [c.several.library for c, _ in own if c.count == most]
    best = max(sorted(set(libraries)), key=libraries.count, default="")
    found = (one for one in own if (one[0].count, one[0].several.library) == (most, best))
    return sorted(found, key=lambda one: one[0].several.problem.batch)
