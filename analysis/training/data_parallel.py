"""Training on several GPUs beside one: the speedup, measured and predicted, whether the losses agree, and what each GPU holds."""

# Predicted: a step on n GPUs takes what one GPU takes for its part of the batch, under the same strategy, and adding up the
# gradients; at least what feeding n GPUs takes. A step that takes no longer with all of the batch waits for the host: then the
# sum is hidden behind it, and the step grows with the GPUs as that of a model of one unit does, whose step is the host's work
# alone: each argument of a step is handed to each GPU.

import math
import re
from collections.abc import Iterable

import msgspec

from analysis import stats
from analysis.stats import NOTHING, Estimate
from analysis.training import costs
from kernels import networks
from workloads import records
from workloads.records import Measurement
from workloads.records.switches import Experiment

FIT = "training/keras/fit"
# The losses of the first steps are the same up to this share: TF32 rounds products to 11 bits, and parts of a batch are added up
# in another order. Two H200s differ by 8e-5 there, replicas that do not share their gradients by 1e-2 and more; what is left
# grows from step to step by itself.
FIRST, SAME_LOSS = 5, 1e-3
WAITS = 1.1  # a step whose slowdown with all of the batch is at most this waits for the host
_STRATEGY = ("strategy", "replicas")
_IDLE = re.compile(r"mlp-\d+-1x1-10")


class Case(msgspec.Struct, frozen=True):
    """A training on several GPUs (`several`) and the rows of one GPU, otherwise alike, that it is set beside: `one` with the same
    batch in all; `part` with the batch that each of the several has, and `base` the same under the strategy; `host_one` and
    `host_several`, the steps of a model of one unit with the whole batch. None where there is no such row."""

    several: "Measurement"
    one: "Measurement | None"
    part: "Measurement | None"
    base: "Measurement | None"
    host_one: "Measurement | None"
    host_several: "Measurement | None"
    sums: "tuple[Measurement, ...]" = ()  # stored all-reduces over as many GPUs

    @property
    def count(self) -> int:
        """How many GPUs."""
        return self.several.experiment.replicas

    @property
    def gain(self) -> Estimate | None:
        """The speedup over one GPU with the same batch in all, by the step; None where either step may be as short as its
        noise."""
        if self.one is None or min(step(m).low for m in (self.one, self.several)) <= 0:
            return None
        return step(self.one) / step(self.several)

    @property
    def by_epoch(self) -> Estimate | None:
        """The speedup by a warm epoch of as many steps, with the epoch's own cost."""
        sides = [m and m.on("host-latency") for m in (self.one, self.several)]
        return stats.of(sides[0]) / stats.of(sides[1]) if all(sides) else None

    @property
    def scaled(self) -> Estimate | None:
        """How many times as many samples a second as one GPU with the batch that each of the several has."""
        part = self.part or self.base
        return step(part) / step(self.several) * self.count if part else None

    @property
    def waits(self) -> bool:
        """Whether a step of one GPU takes no longer with all of the batch than with a part: it waits for the host."""
        part = self.part or self.base
        return bool(self.one and part and step(self.one).value <= WAITS * step(part).value)

    @property
    def predicted_step(self) -> Estimate | None:
        """Seconds of a step on the several GPUs, predicted without it; None without a row of a part of the batch, of what feeding
        as many GPUs takes (where a step waits for the host: one too), or an all-reduce of its gradients."""
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
        """How far the predicted gain is off the measured one: 0.1 is 10 % more."""
        gain, told = self.gain, self.predicted_gain
        return told.value / gain.value - 1 if gain and told else None


def cases(measurements: "Iterable[Measurement]") -> list[Case]:
    """A case for every training on several GPUs that has a time, but for those of the model of one unit."""
    every = [m for m in measurements if m.ok]
    trained = [m for m in every if m.kernel == FIT and m.on("host-latency") and m.process == "warm"]
    found = []
    for m in trained:
        count = m.experiment.replicas
        if count < 2 or _IDLE.fullmatch(m.problem.model):
            continue
        part, strategy = m.problem.batch // count, m.experiment.strategy
        idle = [
            o
            for o in trained
            if _IDLE.fullmatch(o.problem.model)
            and _alike(o, m)
            and o.problem.batch == m.problem.batch
            and _sample(o) == _sample(m)
        ]
        own = [o for o in trained if o.problem.model == m.problem.model and _alike(o, m)]
        alone = (_like(own, m.problem.batch), _like(own, part), _like(own, part, strategy))
        host_one, host_several = (_like(idle, m.problem.batch, strategy, n) for n in (1, count))
        sums = tuple(
            o
            for o in every
            if o.problem.op == "collective" and "nccl" in o.kernel and o.problem.dtype == "float32" and o.samples
            if len(o.problem.members) == count
        )
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
    """Seconds of a step: what its law tells, else a step's share of its fits, what they cost besides included."""
    cost = costs.measured(m)
    return cost.step if cost and cost.step.value > 0 else stats.of(m.on("host-latency"))


def all_reduce(case: Case) -> Estimate | None:
    """Seconds that adding up the gradients takes: as measured beside the training, else between the stored all-reduces of the
    sizes below and above; None where neither is known."""
    if taken := case.several.series.get("all_reduce_s"):
        return stats.median(taken)
    wanted = 4 * case.several.values.get("parameters", 0.0)
    points = sorted((m.problem.nbytes, stats.middle(m.on("device") or m.samples[0])) for m in case.sums)
    below, above = [p for p in points if p[0] <= wanted], [p for p in points if p[0] >= wanted]
    if not (wanted and below and above):
        return None
    (low, early), (high, late) = below[-1], above[0]
    seconds = early + (late - early) * ((wanted - low) / (high - low) if high > low else 0.0)
    return stats.exact(seconds)


def bus_bytes_per_s(case: Case) -> float | None:
    """The bus bandwidth of the all-reduce of the gradients, 2 (n - 1) / n of their bytes a second.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    taken, moved = all_reduce(case), case.several.values.get("all_reduce_bytes")
    return 2 * (case.count - 1) / case.count * moved / taken.value if taken and moved and taken.value > 0 else None


def loss_difference(case: Case, steps: int | None = FIRST) -> float | None:
    """The largest difference of a loss of the first steps (None: of all that were kept) to one GPU's, as a share of it; None
    where they were not both taken, or not on the same samples."""
    if case.one is None or case.one.notes.get(records.SAMPLES) != case.several.notes.get(records.SAMPLES):
        return None
    own, other = (m.series.get("step_loss", ())[:steps] for m in (case.several, case.one))
    return max((abs(a - b) / abs(b) for a, b in zip(own, other, strict=False) if b), default=None)


def other_losses(m: "Measurement", rows: "Iterable[Measurement]") -> str:
    """What is wrong with a row whose losses are not those of one GPU; "" where nothing is."""
    if m.experiment.replicas < 2 or not m.ok:
        return ""
    found = next((c for c in cases([*(o for o in rows if o.key != m.key), m]) if c.several.key == m.key), None)
    apart = loss_difference(found) if found else None
    if apart is None or apart <= SAME_LOSS:
        return ""
    return f"a loss of its first {FIRST} steps differs by {100 * apart:.2g} % from the one of one GPU with the same batches"


def memory(m: "Measurement") -> tuple[float, float] | None:
    """(bytes of weights, optimizer and a GPU's part of a batch; bytes of activations and gradients) that a step needs on each
    GPU; None where the program does not tell."""
    held, more = (m.values.get(name) for name in ("step_state_bytes", "step_temporary_bytes"))
    return None if held is None or more is None else (held, more)
