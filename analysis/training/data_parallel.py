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
from analysis.stats import Estimate
from analysis.training import costs
from kernels import networks
from workloads import records
from workloads.records import Measurement
from workloads.records.switches import Experiment

# Relative difference allowed of the losses of the first steps: TF32 rounds products to 11 bits, and the order of sums differs.
# Two H200s differ by 8e-5 there, replicas that do not share their gradients by 1e-2 and more. Rounding differences grow from
# step to step, so later steps are not compared.
FIRST, SAME_LOSS = 5, 1e-3
#: A step that takes at most so much more with the total batch waits for the host.
WAITS = 1.1
_FLOAT32_BYTES = 4
# Options that spread a training over GPUs.
_STRATEGY = ("strategy", "replicas")
# Models of one unit.
_IDLE = re.compile(r"mlp-\d+-1x1-10")


class DataParallelCase(msgspec.Struct, frozen=True, kw_only=True):
    """A training on several GPUs and otherwise equal rows of one GPU; None where there is no such row."""

    #: On several GPUs.
    several: Measurement
    #: On one GPU with the same total batch.
    one: Measurement | None
    #: On one GPU with the batch that each of the several has.
    part: Measurement | None
    #: The same under the strategy.
    base: Measurement | None
    #: A model of one unit with the total batch under the strategy on one GPU: its step is host work alone.
    host_one: Measurement | None
    #: The same on several GPUs.
    host_several: Measurement | None
    #: Stored all-reduces over as many GPUs.
    sums: tuple[Measurement, ...] = ()

    @property
    def count(self) -> int:
        """The number of GPUs."""
        return self.several.experiment.replicas

    @property
    def gain(self) -> Estimate | None:
        """The speedup of a step over one GPU with the same total batch; None if the interval of either step reaches 0."""
        if self.one is None:
            return None
        one_s = step(self.one)
        several_s = step(self.several)
        if min(one_s.low, several_s.low) <= 0:
            return None
        return one_s / several_s

    @property
    def by_epoch(self) -> Estimate | None:
        """The speedup of a warm epoch of as many steps, its own cost included."""
        one = self.one.on("host-latency") if self.one else None
        several = self.several.on("host-latency")
        if not one or not several:
            return None
        return stats.median_of(one) / stats.median_of(several)

    @property
    def scaled(self) -> Estimate | None:
        """The throughput in samples a second over that of one GPU with the batch that each of the several has."""
        part = self.part or self.base
        if part is None:
            return None
        return step(part) / step(self.several) * self.count

    @property
    def waits(self) -> bool:
        """Whether the host limits a step of one GPU: it takes no longer with the total batch than with a part of it."""
        part = self.part or self.base
        if self.one is None or part is None:
            return False
        return step(self.one).value <= WAITS * step(part).value

    @property
    def predicted_step(self) -> Estimate | None:
        """Predicted seconds of a step on the several GPUs; None if a row that it takes is missing.

        If the GPU limits the step: a step of one GPU with its part of the batch, plus the all-reduce of the gradients. If the
        host limits it: a step of one GPU, grown as the step of a model of one unit grows with the number of GPUs, as that is host
        work alone; the all-reduce is hidden. In both cases at least the step of the model of one unit on so many GPUs.
        """
        base = self.base or self.part
        summing_s = all_reduce(self)
        if base is None or summing_s is None or self.host_several is None:
            return None
        base_s = step(base)
        host_s = step(self.host_several)
        if not self.waits:
            return (base_s + summing_s).at_least(host_s)
        if self.host_one is None:
            return None
        growth = max(1.0, host_s.value / step(self.host_one).value)
        return (base_s * growth).at_least(host_s)

    @property
    def predicted_gain(self) -> Estimate | None:
        """The predicted speedup over one GPU with the same batch in all."""
        predicted_s = self.predicted_step
        if self.one is None or self.gain is None or predicted_s is None:
            return None
        return step(self.one) / predicted_s

    @property
    def off(self) -> float | None:
        """Relative error of the predicted speedup: 0.1 if it is 10 % too high. None if one of the two is not known."""
        measured = self.gain
        predicted = self.predicted_gain
        if measured is None or predicted is None:
            return None
        return predicted.value / measured.value - 1


def cases(measurements: Iterable[Measurement]) -> list[DataParallelCase]:
    """Every timed training by Keras on several GPUs, with the rows of one GPU that it is compared with. Models of one unit, which
    measure the host alone, are no cases."""
    rows = [row for row in measurements if row.ok]
    fits = [row for row in rows if row.kernel == costs.FIT and row.process == "warm" and row.on("host-latency")]
    all_reduces = [row for row in rows if _is_all_reduce(row)]
    every = []
    for row in fits:
        is_idle = _IDLE.fullmatch(row.problem.model) is not None
        if row.experiment.replicas > 1 and not is_idle:
            every.append(_case(row, [one for one in fits if _is_like(one, row)], all_reduces))
    return every


def _is_all_reduce(row: Measurement) -> bool:
    """Whether a row is a timed all-reduce of gradients by NCCL."""
    is_of_gradients = row.problem.op == "collective" and row.problem.dtype == "float32"
    return is_of_gradients and bool(row.samples) and "nccl" in row.kernel


def _case(row: Measurement, alike: list[Measurement], all_reduces: list[Measurement]) -> DataParallelCase:
    """A training on several GPUs with its rows of one GPU. alike: trainings of any model with the same device, types and options,
    on any number of GPUs."""
    count = row.experiment.replicas
    strategy = row.experiment.strategy
    batch = row.problem.batch
    idle = [one for one in alike if _IDLE.fullmatch(one.problem.model) and _sample_size(one) == _sample_size(row)]
    same_model = [one for one in alike if one.problem.model == row.problem.model]
    return DataParallelCase(
        several=row,
        one=_most_samples(same_model, batch, Experiment()),
        part=_most_samples(same_model, batch // count, Experiment()),
        base=_most_samples(same_model, batch // count, Experiment(strategy=strategy)),
        host_one=_most_samples(idle, batch, Experiment(strategy=strategy, replicas=1)),
        host_several=_most_samples(idle, batch, Experiment(strategy=strategy, replicas=count)),
        sums=tuple(one for one in all_reduces if len(one.problem.members) == count),
    )


def _is_like(row: Measurement, other: Measurement) -> bool:
    """Whether two trainings have the same device, threads, types and options, apart from those that spread them over GPUs."""
    same_place = row.device == other.device and row.threads == other.threads
    same_types = row.problem.dtype == other.problem.dtype
    return same_place and same_types and _other_options(row) == _other_options(other)


def _other_options(row: Measurement) -> dict[str, str]:
    """The options of a training without those that spread it over GPUs."""
    return {name: text for name, text in row.settings.switches.items() if name not in _STRATEGY}


def _sample_size(row: Measurement) -> int:
    """How many numbers a sample has, by the model's known input shape; 1 for an unknown model."""
    network = networks.known(row.problem.model)
    return math.prod(network.input) if network else 1


def _most_samples(rows: list[Measurement], batch: int, experiment: Experiment) -> Measurement | None:
    """The row of that batch and distribution over GPUs (`experiment`) with most samples; None without one."""
    fitting = [row for row in rows if row.problem.batch == batch and row.experiment == experiment]
    return max(fitting, key=lambda row: row.problem.samples, default=None)


def step(row: Measurement) -> Estimate:
    """Seconds of a training step. If the timed epochs do not separate a step from the rest of an epoch, an epoch's seconds over
    its steps."""
    cost = costs.measured(row)
    if cost is not None and cost.step.value > 0:
        return cost.step
    return stats.median_of(row.on("host-latency"))


def all_reduce(case: DataParallelCase) -> Estimate | None:
    """Seconds of summing the gradients over all GPUs: measured with the training, else interpolated by their bytes between stored
    all-reduces over as many GPUs; None if these are all smaller or all larger."""
    measured_s = case.several.series.get("all_reduce_s")
    if measured_s:
        return stats.median(measured_s)
    gradient_bytes = _FLOAT32_BYTES * case.several.values.get("parameters", 0.0)
    points = []
    for row in case.sums:
        seconds = stats.quick_median(row.on("device") or row.samples[0])
        points.append((row.problem.nbytes, seconds))
    points.sort()
    if not gradient_bytes or not points or not points[0][0] <= gradient_bytes <= points[-1][0]:
        return None
    nbytes, all_reduce_s = zip(*points, strict=True)
    return stats.exact(float(np.interp(gradient_bytes, nbytes, all_reduce_s)))


def bus_bytes_per_s(case: DataParallelCase) -> float | None:
    """The bus bandwidth of the all-reduce of the gradients over n GPUs, 2 (n - 1) / n of their bytes a second, which does not
    depend on n; None without its time.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    seconds = all_reduce(case)
    nbytes = case.several.values.get("all_reduce_bytes")
    if seconds is None or not nbytes or seconds.value <= 0:
        return None
    return 2 * (case.count - 1) / case.count * nbytes / seconds.value


def loss_difference(case: DataParallelCase, steps: int | None = FIRST) -> float | None:
    """The largest relative difference between the losses on several GPUs and on one, over the first `steps` steps (None: all that
    were stored). None without both losses, or if they trained on other samples."""
    if case.one is None or case.one.notes.get(records.SAMPLES) != case.several.notes.get(records.SAMPLES):
        return None
    losses = case.several.series.get("step_loss", ())[:steps]
    losses_of_one = case.one.series.get("step_loss", ())[:steps]
    differences = [abs(a - b) / abs(b) for a, b in zip(losses, losses_of_one, strict=False) if b]
    return max(differences, default=None)


def other_losses(row: Measurement, rows: Iterable[Measurement]) -> str:
    """A sentence on the difference if a training on several GPUs has other losses than on one; "" if they agree or cannot be
    compared. rows: where the training on one GPU is looked up."""
    if row.experiment.replicas < 2 or not row.ok:
        return ""
    others = [other for other in rows if other.key != row.key]
    for case in cases([*others, row]):
        if case.several.key == row.key:
            difference = loss_difference(case)
            break
    else:
        return ""
    if difference is None or difference <= SAME_LOSS:
        return ""
    share = numbers.share(difference)
    return f"a loss of its first {FIRST} steps differs by {share} from the one of one GPU with the same batches"


def memory(row: Measurement) -> tuple[float, float] | None:
    """(bytes of the weights, the optimizer's state and the GPU's part of the batch; bytes of activations and gradients) that a
    step takes on each GPU; None if the framework did not report them."""
    state = row.values.get("step_state_bytes")
    temporary = row.values.get("step_temporary_bytes")
    if state is None or temporary is None:
        return None
    return (state, temporary)
