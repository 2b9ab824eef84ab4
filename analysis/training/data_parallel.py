"""Training on several GPUs: the speedup over one, measured and predicted; whether the losses agree; each GPU's memory."""

# Prediction: a step on n GPUs takes as long as one GPU's step with its part of the batch, under the same strategy, plus the
# all-reduce of the gradients; at least as long as feeding n GPUs. A step that takes no longer with the total batch waits for
# the host. Its all-reduce is hidden, and it grows with the GPUs as the step of a model of one unit does: that is host work
# alone, which hands each argument to each GPU.

import math
import re
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis import numbers, stats
from analysis.stats import NOTHING, Estimate
from analysis.training import costs
from kernels import networks
from workloads import records
from workloads.records import Measurement
from workloads.records.switches import Experiment

# Relative difference allowed of the losses of the first steps: TF32 rounds products to 11 bits, and the order of sums differs.
# Two H200s differ by 8e-5 there, replicas that do not share their gradients by 1e-2 and more. Rounding differences grow from
# step to step, so later steps are not compared.
FIRST, SAME_LOSS = 5, 1e-3
WAITS = 1.1  # a step that takes at most so much more with the total batch waits for the host
_STRATEGY = ("strategy", "replicas")
_IDLE = re.compile(r"mlp-\d+-1x1-10")


class Case(msgspec.Struct, frozen=True):
    """A training on several GPUs (`several`) and otherwise equal rows of one GPU; None where there is no such row. one: the
    same total batch. part: the batch of each of the several. base: the same under the strategy. host_one, host_several: a model
    of one unit with the total batch, whose step is host work alone."""

    several: "Measurement"
    one: "Measurement | None"
    part: "Measurement | None"
    base: "Measurement | None"
    host_one: "Measurement | None"
    host_several: "Measurement | None"
    sums: "tuple[Measurement, ...]" = ()  # stored all-reduces over as many GPUs

    @property
    def count(self) -> int:
        return self.several.experiment.replicas

    @property
    def gain(self) -> Estimate | None:
        """The speedup of a step over one GPU with the same total batch; None if the interval of either step reaches 0."""
        if self.one is None or min(step(m).low for m in (self.one, self.several)) <= 0:
            return None
        return step(self.one) / step(self.several)

    @property
    def by_epoch(self) -> Estimate | None:
        """The speedup of a warm epoch of as many steps, its own cost included."""
        sides = [m and m.on("host-latency") for m in (self.one, self.several)]
        return stats.median_of(sides[0]) / stats.median_of(sides[1]) if all(sides) else None

    @property
    def scaled(self) -> Estimate | None:
        """The throughput in samples a second over that of one GPU with the batch that each of the several has."""
        part = self.part or self.base
        return step(part) / step(self.several) * self.count if part else None

    @property
    def waits(self) -> bool:
        """Whether the host limits a step of one GPU: it takes no longer with the total batch than with a part of it."""
        part = self.part or self.base
        return bool(self.one and part and step(self.one).value <= WAITS * step(part).value)

    @property
    def predicted_step(self) -> Estimate | None:
        """Predicted seconds of a step on the several GPUs. None without rows of a part of the batch, of the all-reduce, or of
        the model of one unit on several GPUs (where the host limits a step: on one too)."""
        base, added = self.base or self.part, all_reduce(self)
        if base is None or added is None or self.host_several is None:
            return None
        own, feeding = step(base), step(self.host_several)
        if self.waits:
            if self.host_one is None:
                return None
            own, added = own * max(1.0, feeding.value / step(self.host_one).value), NOTHING
        return (own + added).at_least(feeding)

    @property
    def predicted_gain(self) -> Estimate | None:
        """The predicted speedup over one GPU with the same batch in all."""
        made = self.predicted_step
        return step(self.one) / made if self.one and self.gain and made else None

    @property
    def off(self) -> float | None:
        """Relative error of the predicted speedup: 0.1 is 10 % too high."""
        gain, told = self.gain, self.predicted_gain
        return told.value / gain.value - 1 if gain and told else None


def cases(measurements: "Iterable[Measurement]") -> list[Case]:
    """A case for every timed training on several GPUs, except those of the model of one unit."""
    every = [m for m in measurements if m.ok]
    trained = [m for m in every if m.kernel == costs.FIT and m.on("host-latency") and m.process == "warm"]
    stored = (m for m in every if m.problem.op == "collective" and m.problem.dtype == "float32" and m.samples)
    nccl, found = [m for m in stored if "nccl" in m.kernel], []
    for m in trained:
        count = m.experiment.replicas
        if count < 2 or _IDLE.fullmatch(m.problem.model):
            continue
        part, strategy = m.problem.batch // count, m.experiment.strategy
        idle = [o for o in trained if _IDLE.fullmatch(o.problem.model) and _alike(o, m) and _sample(o) == _sample(m)]
        own = [o for o in trained if o.problem.model == m.problem.model and _alike(o, m)]
        alone = (_like(own, m.problem.batch), _like(own, part), _like(own, part, strategy))
        host_one, host_several = (_like(idle, m.problem.batch, strategy, n) for n in (1, count))
        sums = tuple(o for o in nccl if len(o.problem.members) == count)
        found.append(Case(m, *alone, host_one, host_several, sums))
    return found


def _alike(a: "Measurement", b: "Measurement") -> bool:
    """Whether two rows were trained in the same way, but for the number of GPUs."""
    ways = [{name: text for name, text in m.settings.switches.items() if name not in _STRATEGY} for m in (a, b)]
    return ways[0] == ways[1] and (a.problem.dtype, a.device, a.threads) == (b.problem.dtype, b.device, b.threads)


def _sample(m: "Measurement") -> int:
    """Numbers in a sample, by the model's name."""
    found = networks.known(m.problem.model)
    return math.prod(found.input) if found else 1


def _like(rows: "list[Measurement]", batch: int, *spread) -> "Measurement | None":
    """The row of that batch, spread by a strategy over so many GPUs, with the most samples."""
    wanted = Experiment(*spread)
    fitting = [m for m in rows if m.problem.batch == batch and m.experiment == wanted]
    return max(fitting, key=lambda m: m.problem.samples, default=None)


def step(m: "Measurement") -> Estimate:
    """Seconds of a step by the fitted costs; without them, an epoch's seconds, with its own cost, over its steps."""
    cost = costs.measured(m)
    return cost.step if cost and cost.step.value > 0 else stats.median_of(m.on("host-latency"))


def all_reduce(case: Case) -> Estimate | None:
    """Seconds of the all-reduce of the gradients: measured with the training, else interpolated between stored all-reduces of
    more and of fewer bytes; None without both."""
    if taken := case.several.series.get("all_reduce_s"):
        return stats.median(taken)
    wanted = 4 * case.several.values.get("parameters", 0.0)
    points = sorted((m.problem.nbytes, stats.middle(m.on("device") or m.samples[0])) for m in case.sums)
    if not (wanted and points and points[0][0] <= wanted <= points[-1][0]):
        return None
    nbytes, seconds = zip(*points, strict=True)
    return stats.exact(float(np.interp(wanted, nbytes, seconds)))


def bus_bytes_per_s(case: Case) -> float | None:
    """The bus bandwidth of the all-reduce of the gradients, 2 (n - 1) / n of their bytes a second.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    taken, moved = all_reduce(case), case.several.values.get("all_reduce_bytes")
    return 2 * (case.count - 1) / case.count * moved / taken.value if taken and moved and taken.value > 0 else None


def loss_difference(case: Case, steps: int | None = FIRST) -> float | None:
    """The largest relative difference to one GPU's loss over the first `steps` steps (None: all that were kept); None without
    both losses, or if the samples differ."""
    if case.one is None or case.one.notes.get(records.SAMPLES) != case.several.notes.get(records.SAMPLES):
        return None
    own, other = (m.series.get("step_loss", ())[:steps] for m in (case.several, case.one))
    return max((abs(a - b) / abs(b) for a, b in zip(own, other, strict=False) if b), default=None)


def other_losses(m: "Measurement", rows: "Iterable[Measurement]") -> str:
    """The difference in words if a row's losses are not those of one GPU; "" if they agree or cannot be compared."""
    if m.experiment.replicas < 2 or not m.ok:
        return ""
    found = next((c for c in cases([*(o for o in rows if o.key != m.key), m]) if c.several.key == m.key), None)
    apart = loss_difference(found) if found else None
    if apart is None or apart <= SAME_LOSS:
        return ""
    return f"a loss of its first {FIRST} steps differs by {numbers.share(apart)} from the one of one GPU with the same batches"


def memory(m: "Measurement") -> tuple[float, float] | None:
    """(weights, optimizer state and a GPU's part of the batch; activations and gradients) in bytes for a step on each GPU. None
    if the program does not report them."""
    held, more = (m.values.get(name) for name in ("step_state_bytes", "step_temporary_bytes"))
    return None if held is None or more is None else (held, more)
