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

NEAR = 4.0  # a row of so many times the batch may still stand for a complaint
STARTING = "dispatch"
COPYING = "copied bytes"
WORKING = "kernels"
_RESIDENT = ("residence", "resident")
_SMALLEST_COPY = 4  # bytes


class ClaimRow(msgspec.Struct, frozen=True):
    """One claim beside our row on the GPU and both sides' seconds of an epoch, of a bare loop of a step; None without rows."""

    case: ArticleTraining
    claim: Claim
    row: Measurement | None = None
    cpu: Estimate | None = None
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
    """Every claim with each training that it may be compared with; those without rows once."""
    pairs = break_even.pairs(measurements)
    compared = []
    for case in cases:
        for claim in case.claims:
            alike = [_compared(case, claim, pair) for pair in pairs if _is_claimed(pair, case, claim)]
            compared += alike or [ClaimRow(case, claim)]
    return compared


def picked(measurements: Measurements, case: ArticleTraining) -> list[ClaimRow]:
    """One comparison for each of a case's claims that has rows: a bare loop if the article trained by one, and of these the
    fastest GPU."""
    with_rows = [one for one in comparisons(measurements, (case,)) if one.gpu]

    def rank(one: ClaimRow) -> tuple[bool, float]:
        is_loop = one.row is not None and one.row.kernel.endswith("loop")
        gpu_s = one.gpu.value if one.gpu else math.inf
        return is_loop == case.loop, -gpu_s

    return [max(alike, key=rank) for alike in group_by(with_rows, lambda one: one.claim).values()]


def _is_claimed(pair: Pair, case: ArticleTraining, claim: Claim) -> bool:
    """Whether a pair is the claim's training: the article's model, type, batch and samples, with no switch but where a
    bare loop keeps its data."""
    setup = pair.setup
    batch = claim.samples if case.loop else case.batch
    if (setup.model, setup.batch, setup.samples, setup.dtype) != (case.model, batch, claim.samples, case.dtype):
        return False
    if not setup.switches:
        return True
    return case.loop and setup.kernel.endswith("loop") and setup.switches == (_RESIDENT,)


def _compared(case: ArticleTraining, claim: Claim, pair: Pair) -> ClaimRow:
    by = BY_STEP if pair.setup.kernel.endswith("loop") else BY_EPOCH
    cpu = break_even.seconds_by(pair.cpu(by).cost, by, pair.one_epoch)
    gpu = break_even.seconds_by(pair.gpu.cost, by, pair.one_epoch)
    return ClaimRow(case=case, claim=claim, row=pair.gpu.row, cpu=cpu, gpu=gpu)


class Measured(msgspec.Struct, frozen=True):
    """Seconds of a step on both sides, measured at `batch`, and the parts of the GPU's: a step with almost no work, the batch's
    bytes over the link, and the rest."""

    reported: Reported
    batch: int
    cpu: Estimate
    gpu: Estimate
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
    """A reported training by the pair of its model at the nearest batch that ranks first; None without both devices."""
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
    return abs(math.log(pair.setup.batch / batch))


def _parts(pair: Pair, measurements: Measurements, step: float) -> dict[str, float]:
    """The GPU's step: the constant of a Keras step, the bytes by the copies' law beyond a few bytes' copy, the rest."""
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
        parts[COPYING] = max(0.0, law.seconds(nbytes).value - law.seconds(_SMALLEST_COPY).value)
    parts[WORKING] = max(0.0, step - sum(parts.values()))
    return parts


def step_constant(constants: tuple[overheads.Constant, ...], device: str) -> overheads.Constant | None:
    """Seconds of a Keras step with almost no work on a GPU: compiled by XLA if that was measured."""
    return overheads.find(constants, "keras-step", device, jit="on") or overheads.find(constants, "keras-step", device)
