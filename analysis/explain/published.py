"""Published or reported times of trainings beside the rows of the same trainings here; all measured, nothing predicted."""

import math
from collections.abc import Iterable

import msgspec

from analysis.roofline import links, overheads
from analysis.stats import Estimate, faster, group_by
from analysis.training import break_even, costs
from analysis.training.break_even import BY_EPOCH, BY_STEP, Pair
from kernels import networks
from workloads.records import Measurement, Measurements
from workloads.records.published_cases import CASES, ArticleTraining, Claim, Reported

#: A row whose batch is at most so many times larger or smaller may stand for a complaint's training.
NEAR = 4.0
# The parts of a step on the GPU, in words.
STARTING = "dispatch"
COPYING = "copied bytes"
WORKING = "kernels"
#: The Keras option of a training whose samples are on the GPU.
_RESIDENT = ("residence", "resident")
_SMALLEST_COPY_BYTES = 4


class ClaimRow(msgspec.Struct, frozen=True):
    """An article's claim and the same training here."""

    #: The article's training.
    case: ArticleTraining
    #: The claim, about one number of samples.
    claim: Claim
    #: The row on the GPU; None where the training was not measured on both devices.
    row: Measurement | None = None
    #: Seconds of an epoch on the CPU, of a bare loop those of a step; None without rows.
    cpu: Estimate | None = None
    #: The same on the GPU.
    gpu: Estimate | None = None

    @property
    def here(self) -> Estimate | None:
        """The GPU's speedup over the CPU."""
        return self.cpu / self.gpu if self.cpu and self.gpu else None

    @property
    def faster(self) -> str:
        """cpu, gpu, or neither where the interval holds 1; empty without rows."""
        return faster(self.cpu, self.gpu) if self.cpu and self.gpu else ""


def comparisons(measurements: Measurements, cases: Iterable[ArticleTraining] = CASES) -> list[ClaimRow]:
    """Every claim of the articles with each measured training that is the same: a claim may have several, by Keras's fit and by
    bare loops. A claim without any is listed once, without seconds.
    """
    pairs = break_even.pairs(measurements)
    compared = []
    for case in cases:
        for claim in case.claims:
            alike = [_compared(case, claim, pair) for pair in pairs if _is_claimed(pair, case, claim)]
            compared += alike or [ClaimRow(case, claim)]
    return compared


def picked(measurements: Measurements, case: ArticleTraining) -> list[ClaimRow]:
    """The comparison for each claim of an article that was measured: of several a bare loop if the article trained by one, else
    Keras's fit, and of these the one with the fastest GPU.
    """
    with_rows = [one for one in comparisons(measurements, (case,)) if one.gpu]

    def rank(one: ClaimRow) -> tuple[bool, float]:
        is_loop = one.row is not None and one.row.kernel.endswith("loop")
        gpu_s = one.gpu.value if one.gpu else math.inf
        return is_loop == case.loop, -gpu_s

    return [max(alike, key=rank) for alike in group_by(with_rows, lambda one: one.claim).values()]


def _is_claimed(pair: Pair, case: ArticleTraining, claim: Claim) -> bool:
    """Whether a measured training is the one of a claim: the article's model, type, batch and samples, with default options. Bare
    loops may keep their samples on the GPU.
    """
    setup = pair.setup
    batch = claim.samples if case.loop else case.batch
    if (setup.model, setup.batch, setup.samples, setup.dtype) != (case.model, batch, claim.samples, case.dtype):
        return False
    if not setup.switches:
        return True
    return case.loop and setup.kernel.endswith("loop") and setup.switches == (_RESIDENT,)


def _compared(case: ArticleTraining, claim: Claim, pair: Pair) -> ClaimRow:
    """A claim with the seconds of a pair of rows: of an epoch, of a bare loop those of a step."""
    by = BY_STEP if pair.setup.kernel.endswith("loop") else BY_EPOCH
    cpu = break_even.seconds_by(pair.cpu(by).cost, by, pair.one_epoch)
    gpu = break_even.seconds_by(pair.gpu.cost, by, pair.one_epoch)
    return ClaimRow(case=case, claim=claim, row=pair.gpu.row, cpu=cpu, gpu=gpu)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A reported training and a similar one that was measured here."""

    #: What was reported.
    reported: Reported
    #: The batch that was measured, which may be another.
    batch: int
    #: Seconds of a step on the CPU.
    cpu: Estimate
    #: Seconds of a step on the GPU.
    gpu: Estimate
    #: Parts of the GPU's step (STARTING, COPYING, WORKING) -> their seconds.
    parts: dict[str, float]

    @property
    def faster(self) -> str:
        """gpu, cpu, or neither where the intervals overlap."""
        return faster(self.cpu, self.gpu)

    @property
    def largest(self) -> str:
        """The part that takes most of the GPU's step."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def shares(self) -> dict[str, float]:
        """Part -> its share of the GPU's step, the largest first."""
        names = sorted(self.parts, key=lambda name: -self.parts[name])
        return {name: min(1.0, self.parts[name] / self.gpu.value) for name in names}

    @property
    def comes_back(self) -> bool:
        """Whether the reported winner is the winner here too."""
        return self.faster == self.reported.faster


def measured(reported: Reported, measurements: Measurements) -> Measured | None:
    """The measured training that stands for a reported one: of the same model by Keras's fit with default options, at the nearest
    batch. None if none was measured on both devices at a batch within NEAR times the reported one.
    """
    wanted = reported.training
    rows = [m for m in measurements if m.problem.model == wanted.model or m.fits]
    near = []
    for pair in break_even.pairs(rows):
        is_plain = pair.setup.kernel == costs.FIT and not pair.setup.switches
        if is_plain and pair.setup.model == wanted.model and _distance(pair, wanted.batch) <= math.log(NEAR):
            near.append(pair)
    if not near:
        return None
    pair = min(near, key=lambda one: (_distance(one, wanted.batch), one.gpu.rank(wanted)))
    step = pair.gpu.cost.step
    return Measured(
        reported=reported,
        batch=pair.setup.batch,
        cpu=pair.cpu(BY_STEP).cost.step,
        gpu=step,
        parts=_parts(pair, measurements, step.value),
    )


def _distance(pair: Pair, batch: int) -> float:
    """How far a pair's batch is from another: the logarithm of their ratio."""
    return abs(math.log(pair.setup.batch / batch))


def _parts(pair: Pair, measurements: Measurements, step: float) -> dict[str, float]:
    """The parts of the GPU's step of `step` seconds: a Keras step with almost no work, the copy of a batch beyond that of a few
    bytes (whose cost is in the former), and the rest. Parts whose rows were not measured are in the rest.
    """
    setup = pair.setup
    parts = {}
    constant = step_constant(overheads.constants(measurements), pair.gpu.device)
    if constant:
        parts[STARTING] = min(step, constant.seconds.value)
    network = networks.known(setup.model)
    law = links.batch_copies(measurements, pair.gpu.device)
    if network and law:
        dtype = "float32" if setup.dtype == "float64" else setup.dtype
        nbytes = min(setup.batch, setup.samples) * networks.sample_bytes(network, dtype)
        parts[COPYING] = max(0.0, law.seconds(nbytes).value - law.seconds(_SMALLEST_COPY_BYTES).value)
    parts[WORKING] = max(0.0, step - sum(parts.values()))
    return parts


def step_constant(constants: tuple[overheads.Constant, ...], device: str) -> overheads.Constant | None:
    """Seconds of a Keras step with almost no work on a GPU: compiled by XLA if that was measured."""
    return overheads.find(constants, "keras-step", device, jit="on") or overheads.find(constants, "keras-step", device)
