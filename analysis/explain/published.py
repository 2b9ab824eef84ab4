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
from workloads.records.published_cases import CASES, Case, Claim, Reported

NEAR = 4.0  # a row of so many times the batch may still stand for a complaint
STARTING, COPYING, WORKING = "dispatch", "copied bytes", "kernels"
_RESIDENT = ("residence", "resident")
_LEAST = 4


class Comparison(msgspec.Struct, frozen=True):
    """One claim beside our row on the GPU and both sides' seconds of an epoch, of a bare loop of a step; None without rows."""

    case: Case
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


def comparisons(measurements: Measurements, cases: Iterable[Case] = CASES) -> list[Comparison]:
    """Every claim with each way of training that it may be compared with; those without rows once."""
    pairs = break_even.pairs(measurements)
    found = []
    for case in cases:
        for claim in case.claims:
            own = [_compared(case, claim, pair) for pair in pairs if _is(pair, case, claim)]
            found += own or [Comparison(case, claim)]
    return found


def picked(measurements: Measurements, case: Case) -> list[Comparison]:
    """One comparison for each of a case's claims that has rows: a bare loop if the article trained by one, and of these the
    fastest GPU."""
    groups = group_by((c for c in comparisons(measurements, (case,)) if c.gpu), lambda c: c.claim)
    return [
        max(own, key=lambda c: (c.row.kernel.endswith("loop") == case.loop, -c.gpu.value)) for own in groups.values()
    ]


def _is(pair: Pair, case: Case, claim: Claim) -> bool:
    """Whether a pair is the claim's training: the article's model, type, batch and samples, with no switch but where a
    bare loop keeps its data."""
    s = pair.setup
    batch = claim.samples if case.loop else case.batch
    if (s.model, s.batch, s.samples, s.dtype) != (case.model, batch, claim.samples, case.dtype):
        return False
    return not s.switches or (case.loop and s.kernel.endswith("loop") and s.switches == (_RESIDENT,))


def _compared(case: Case, claim: Claim, pair: Pair) -> Comparison:
    by = BY_STEP if pair.setup.kernel.endswith("loop") else BY_EPOCH
    cpu, gpu = (break_even.seconds_by(side.cost, by, pair.steps) for side in (pair.cpu(by), pair.gpu))
    return Comparison(case, claim, pair.gpu.row, cpu, gpu)


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
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def comes_back(self) -> bool:
        """Whether the reported winner is the winner here too."""
        return self.faster == self.reported.faster


def measured(reported: Reported, measurements: Measurements) -> Measured | None:
    """A reported training by the pair of its model at the nearest batch that ranks first; None without both devices."""
    wanted = reported.training
    own = [m for m in measurements if m.problem.model == wanted.model or m.fits]
    made = [p for p in break_even.pairs(own) if (p.setup.kernel, p.setup.model) == (costs.FIT, wanted.model)]
    near = [p for p in made if not p.setup.switches and _distance(p, wanted.batch) <= math.log(NEAR)]
    if not near:
        return None
    pair = min(near, key=lambda p: (_distance(p, wanted.batch), p.gpu.rank(wanted)))
    step = pair.gpu.cost.step
    parts = _parts(pair, measurements, step.value)
    return Measured(reported, pair.setup.batch, pair.cpu(BY_STEP).cost.step, step, parts)


def _distance(pair: Pair, batch: int) -> float:
    return abs(math.log(pair.setup.batch / batch))


def _parts(pair: Pair, measurements: Measurements, step: float) -> dict[str, float]:
    """The GPU's step: the constant of a Keras step, the bytes by the copies' law beyond a few bytes' copy, the rest."""
    s = pair.setup
    constant = step_constant(overheads.constants(measurements), pair.gpu.device)
    parts = {STARTING: min(step, constant.seconds.value)} if constant else {}
    network, law = networks.known(s.model), links.law(measurements, pair.gpu.device)
    if network and law:
        dtype = "float32" if s.dtype == "float64" else s.dtype
        nbytes = min(s.batch, s.samples) * networks.sample_bytes(network, dtype)
        parts[COPYING] = max(0.0, law.seconds(nbytes).value - law.seconds(_LEAST).value)
    return parts | {WORKING: max(0.0, step - sum(parts.values()))}


def step_constant(constants: tuple[overheads.Constant, ...], device: str) -> overheads.Constant | None:
    """Seconds of a Keras step with almost no work on a GPU: compiled by XLA if that was measured."""
    return overheads.find(constants, "keras-step", device, jit="on") or overheads.find(constants, "keras-step", device)
