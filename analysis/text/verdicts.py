"""What rows of both devices say about a training by themselves: who wins and which part of the step is the largest. Everything
here is measured; no prediction is asked."""

import math
from collections.abc import Callable, Iterable

import msgspec

from analysis.roofline import links, overheads
from analysis.stats import Estimate, faster, middle
from analysis.training import break_even
from analysis.training.break_even import BY_STEP, Pair, Trained
from analysis.units import bytes_rate, percent, seconds, size, times
from kernels import networks
from workloads.records import Measurement
from workloads.records.published_cases import Complaint, Reported

WINNER = {"gpu": "the GPU is faster", "cpu": "the CPU is faster", "neither": "neither is faster"}
FIT = "training/keras/fit"
NEAR = 4.0  # a row of so many times the batch may still stand for a complaint
STARTING, COPYING, WORKING = "starting the step", "the bytes of the batch", "launching and running its kernels"
_COPIERS = ("transfer/cupy/array", "transfer/tensorflow/dataset", "transfer/tensorflow/constant")
_LEAST = 4
_FLOAT32 = 4
_GPU = "gpu:0"


class Measured(msgspec.Struct, frozen=True):
    """Seconds of a step on both sides, measured at `batch`, and the parts of the GPU's: what a step of a model with almost no
    work takes, the batch's bytes on the link, and the rest."""

    reported: "Reported"
    batch: int
    cpu: Estimate
    gpu: Estimate
    parts: dict[str, float]

    @property
    def faster(self) -> str:
        """gpu, cpu, or neither where the interval of the ratio holds 1."""
        return faster(self.cpu, self.gpu)

    @property
    def largest(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def comes_back(self) -> bool:
        """Whether the reporter's finding shows here too."""
        return self.faster == self.reported.faster


def measured(reported: "Reported", measurements: "Iterable[Measurement]") -> Measured | None:
    """The verdict on a reported training by rows of its model at the nearest batch, of each device the one that tells its step
    best; None without both devices."""
    every = list(measurements)
    wanted = reported.training
    own = [m for m in every if m.problem.op == "training" and m.problem.model == wanted.model]
    near = [p for p in break_even.pairs(own) if _like(p, wanted.model) and _distance(p, wanted.batch) <= math.log(NEAR)]
    if not near:
        return None
    batch = min(near, key=lambda p: _distance(p, wanted.batch)).setup.batch
    there = [p for p in near if p.setup.batch == batch]
    pair = min(there, key=lambda p: _trust(p.gpu, wanted.dtype))
    cpu = min((p.cpu(BY_STEP) for p in there), key=lambda side: _trust(side, wanted.dtype))
    step = pair.gpu.cost.step
    return Measured(reported, batch, cpu.cost.step, step, _parts(pair, every, step.value))


def _like(pair: Pair, model: str) -> bool:
    return pair.setup.model == model and pair.setup.kernel == FIT and not pair.setup.switches


def _trust(side: Trained, dtype: str) -> tuple[bool, float, bool]:
    return *side.cost.doubt, side.row.problem.dtype != dtype


def _distance(pair: Pair, batch: int) -> float:
    return abs(math.log(pair.setup.batch / batch))


def _parts(pair: Pair, measurements: "list[Measurement]", step: float) -> dict[str, float]:
    """The GPU's step: the constant of a Keras step, the bytes by the copies' law beyond a few bytes' copy, the rest."""
    s = pair.setup
    constant = step_constant(overheads.constants(measurements), pair.gpu.device)
    parts = {STARTING: constant.seconds.value} if constant else {}
    network, law = networks.known(s.model), _law(measurements, pair.gpu.device)
    if network and law:
        nbytes = min(s.batch, s.samples) * networks.sample_bytes(
            network, "float32" if s.dtype == "float64" else s.dtype
        )
        parts[COPYING] = max(0.0, law.seconds(nbytes).value - law.seconds(_LEAST).value)
    return parts | {WORKING: max(0.0, step - sum(parts.values()))}


def step_constant(constants: tuple[overheads.Constant, ...], device: str) -> overheads.Constant | None:
    """What a Keras step takes on a GPU whatever its work: compiled by XLA, where that was measured."""
    return overheads.find(constants, "keras-step", device, jit="on") or overheads.find(constants, "keras-step", device)


def _law(measurements: "Iterable[Measurement]", device: str) -> links.Link | None:
    """The law of pageable copies to the device: a batch is a tensor in host memory already, so plain ones before TensorFlow's."""
    rows = [m for m in measurements if m.problem.op == "transfer" and m.device == device and m.kernel in _COPIERS]
    fitted = links.fits(rows)
    return next((x for kernel in _COPIERS if (x := links.find(fitted, "h2d", "pageable", kernel))), None)


def sentence(reported: "Reported", found: Measured | None) -> str:
    """What rows say about a reported training: who wins here, whether that is what the reporter saw, and why."""
    t = reported.training
    name = f"{t.model} at batch {t.batch}"
    if found is None:
        return f"{name}: no rows of both devices here; measure them with: {command(reported)}"
    at = "" if found.batch == t.batch else f" (at batch {found.batch}, the nearest measured)"
    who = WINNER[found.faster]
    steps = f"a step takes {_interval(found.gpu)} on the GPU and {_interval(found.cpu)} on the CPU"
    # a noisy step may be shorter than the constant of one
    most = min(1.0, found.parts[found.largest] / found.gpu.value)
    share = f"the largest part of the GPU's step is {found.largest}: {percent(most)}"
    if found.comes_back:
        return f"{name}{at}, measured here: {who}, as reported ({reported.words}): {steps}; {share}."
    return f"{name}{at}, measured here: {who}, unlike what was reported ({reported.words}): {steps}; {share}. {_why_not(found)}"


def _interval(e: Estimate) -> str:
    return seconds(e.value) + (f" ({seconds(e.low)} to {seconds(e.high)})" if e.low < e.high else "")


def _why_not(found: Measured) -> str:
    """Why a finding does not come back, from the numbers that are there."""
    floor = found.parts.get(STARTING)
    if found.faster == "cpu":
        least = (
            f"its GPU's step cannot be shorter than the {seconds(floor)} that starting it takes, and " if floor else ""
        )
        return f"It does not come back: here {least}this CPU is done in {seconds(found.cpu.value)}."
    if found.faster == "gpu":
        least = f"starting a step on the GPU takes only {seconds(floor)}, and " if floor else ""
        others = "other devices and libraries than the reporter's"
        return f"It does not come back: here {least}this CPU needs {seconds(found.cpu.value)}: {others}."
    return "It does not come back clearly: the two are too close here to tell."


def command(reported: "Reported") -> str:
    """The command that measures a reported training, short."""
    t = reported.training
    return f"python -m workloads.training --model {t.model} --batch {t.batch} --samples {min(t.samples, 64 * t.batch)} --fast"


# ---------------------------------------------------------------- complaints about no training

NO_COPIES = "No copies between host and GPU were measured here: python -m workloads.transfer --sizes 4KiB:256MiB:x4"


def _transfer_bound(case: "Complaint", measurements: "Iterable[Measurement]") -> list[str]:
    """tensorflow-44836: the copy that took most of their step, by this machine's laws: pageable, pinned, and overlapped."""
    fitted = links.fits(m for m in measurements if m.problem.op == "transfer")
    fed = ("transfer/tensorflow/dataset", *_COPIERS)
    pageable = next((x for kernel in fed if (x := links.find(fitted, "h2d", "pageable", kernel))), None)
    pinned = links.find(fitted, "h2d", "pinned")
    if pageable is None or pinned is None:
        return [NO_COPIES]
    step, copied = case.numbers["step_s"], case.numbers["copy_s"]
    rest = step - copied
    last = pageable.pieces[-1]
    nbytes = (copied - last.latency_s) / last.s_per_byte
    quick = pinned.seconds(nbytes).value
    own = copied / step
    bound = max(rest, quick)
    pinned_rest = "the computing, once the memory is pinned; pageable, the copy"
    largest = "the copy, also from pinned memory" if quick > rest else pinned_rest
    return [
        f"It is truly bound by the transfer: {percent(own)} of their step is the copy, {seconds(rest)} the rest; the "
        f"CPU, which copies nothing, wins if it needs less than {seconds(step)}.",
        f"Here {seconds(copied)} carry {size(nbytes)} from pageable memory ({bytes_rate(pageable.bandwidth.value)}, "
        f"{pageable.kernel.partition('/')[2]}).",
        f"From pinned memory the same bytes take {seconds(quick)} ({bytes_rate(pinned.bandwidth.value)}): "
        f"{times(copied / quick)} faster, a step of {seconds(rest + quick)} and not {seconds(step)}.",
        "With full overlap (the next batch is copied while this one is computed) a step is bounded by the longer of "
        f"both: {seconds(max(rest, copied))} from pageable memory, {seconds(bound)} from pinned, so at most "
        f"{times(step / bound)} faster than theirs.",
        f"Largest part as measured here: {largest}.",
    ]


def _drained(case: "Complaint", measurements: "Iterable[Measurement]") -> list[str]:
    """cupy-2902: what 100 passes and the copy really take, and what the clock saw without a synchronization."""
    elements, passes = case.numbers["elements"], int(case.numbers["passes"])
    nbytes = 2 * _FLOAT32 * elements
    every = list(measurements)
    passing = [m for m in every if m.problem.op == "stream" and m.problem.operation in ("scale", "copy")]
    rows = [m for m in passing if m.device == _GPU and m.ok and m.on("device")]
    law = links.find(links.fits(m for m in every if m.problem.op == "transfer"), "d2h", "pageable")
    constants = overheads.constants(every)
    clocks = ("host-issue", "host-throughput")
    issue = next((c for clock in clocks if (c := overheads.find(constants, "cupy-launch", _GPU, clock=clock))), None)
    if not rows or law is None or issue is None:
        return [
            NO_COPIES,
            "and: python -m workloads.stream --backends cupy; python -m workloads.launch --backends cupy",
        ]
    near = min(rows, key=lambda m: abs(m.problem.bytes_moved - nbytes))
    ran = passes * nbytes * middle(near.on("device")) / near.problem.bytes_moved
    issued, copy_ = passes * issue.seconds.value, law.seconds(_FLOAT32 * elements).value
    claimed = passes * nbytes / case.numbers["passes_s"]
    waits = max(0.0, ran - issued)
    return [
        f"It is an artifact of the clock: without a synchronization {passes} calls are only issued, and the copy, "
        "which must wait for them, drains the queue.",
        f"Their {seconds(case.numbers['passes_s'])} would mean {bytes_rate(claimed)} of memory traffic; their "
        f"{seconds(case.numbers['copy_s'])} hold the passes and the copy.",
        f"Here issuing {passes} calls takes {seconds(issued)}, running them {seconds(ran)} and the copy of "
        f"{size(_FLOAT32 * elements)} alone {seconds(copy_)}: a clock stopped too early says {seconds(issued)} for "
        f"the passes and {seconds(waits + copy_)} for the copy.",
        f"Largest part as measured here: {'the copy' if copy_ > ran else 'the passes'}; put "
        "cupy.cuda.Device().synchronize() before each reading of the clock.",
    ]


APART: dict[str, Callable] = {"tensorflow-44836": _transfer_bound, "cupy-2902": _drained}
