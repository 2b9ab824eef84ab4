"""The cost of a training on each device, measured or else predicted, and the counts from which the winner changes."""

from collections.abc import Mapping
from math import inf

import msgspec
from msgspec.structs import replace

from analysis import labels
from analysis.explain.request import GPU, Request, settings_of
from analysis.explain.sources import Sources
from analysis.predict.prediction import Prediction
from analysis.predict.step_parts import HOST, total_of
from analysis.stats import Estimate
from analysis.training import break_even, costs
from analysis.training.break_even import Trained
from analysis.training.costs import TrainingCost, whole_training
from analysis.training.measured_training import measured_training, ran_all_samples, tells_whole
from kernels import networks
from kernels.problems import Training
from workloads.records import Measurements


class Side(msgspec.Struct, frozen=True):
    """A training on a device and its cost, with validation in the epochs."""

    #: cpu or gpu:0.
    device: str
    training: Training
    cost: TrainingCost
    #: Parts that no row measured.
    unknown: tuple[str, ...] = ()
    #: Whether a row ran as many samples and epochs; else its time is put together from parts.
    ran: bool = False

    @property
    def name(self) -> str:
        return labels.device(self.device)

    @property
    def whole(self) -> Estimate:
        """Seconds of the whole training in a process of its own."""
        return whole_training(self.cost, self.training.epochs, self.training.steps)

    @property
    def parts(self) -> dict[str, Estimate]:
        """Part -> seconds of the whole training; they add up."""
        return costs.parts(self.cost, self.training.epochs, self.training.steps)

    @property
    def largest(self) -> str:
        """The part that takes most of the whole training."""
        parts = self.parts
        return max(parts, key=lambda name: parts[name].value)


def sides(request: Request, predictions: Mapping[str, Prediction], measured: Mapping[str, Trained]) -> tuple[Side, ...]:
    """The training on each device, the CPU first: measured here, else predicted. A prediction of mostly unknown layers is
    ignored."""
    alone = data_alone_s(measured)
    every = (_side(request, device, predictions.get(device), measured.get(device)) for device in ("cpu", GPU))
    return tuple(_waiting_for_data(side, alone) for side in every if side)


def data_alone_s(measured: Mapping[str, Trained]) -> float | None:
    """Seconds that a batch of the user's data takes without training; None where no row of the training has them."""
    seconds = [row.row.values["input_step_s"] for row in measured.values() if "input_step_s" in row.row.values]
    return min(seconds, default=None)


def _waiting_for_data(side: Side, alone_s: float | None) -> Side:
    """A side whose predicted step takes no less than a batch of the user's data, which come from this machine's CPU."""
    if alone_s is None or side.cost.source == "measured":
        return side
    return replace(side, cost=replace(side.cost, step=side.cost.step.at_least(alone_s)))


def _side(request: Request, device: str, prediction: Prediction | None, measured: Trained | None) -> Side | None:
    """The training on a device; None without its cost."""
    training = request.training
    unknown: tuple[str, ...] = ()
    ran = False
    if measured and tells_whole(measured):
        cost = measured.cost
        ran = ran_all_samples(measured, training) and measured.row.problem.epochs == training.epochs
    elif prediction and not request.is_mostly_unknown:
        cost = prediction.cost
        unknown = prediction.unmeasured
    else:
        return None
    if request.validation:
        ran = False
        if prediction:
            cost = _with_validation(cost, validating(request, prediction))
    return Side(device=device, training=training, cost=cost, unknown=unknown, ran=ran)


def _with_validation(cost: TrainingCost, seconds: Estimate) -> TrainingCost:
    """The cost with so many seconds more in each epoch."""
    whole_epoch = cost.whole_epoch + seconds if cost.whole_epoch else cost.whole_epoch
    return replace(cost, epoch=cost.epoch + seconds, whole_epoch=whole_epoch)


def validating(request: Request, prediction: Prediction) -> Estimate:
    """Seconds that evaluating the validation samples adds to each epoch: forward passes, by their share of a step's FLOPs, each
    at least half the host's seconds of a step."""
    network = request.model
    share = networks.inference_flops(network) / max(1, networks.training_flops(network))
    steps = -(-request.validation // request.training.batch)
    step = prediction.step_s
    host = total_of(prediction.parts, HOST)
    forward = Estimate(max(host.value / 2, step.value * share), step.low * share, step.high)
    return forward * steps


def measured_rows(request: Request, sources: Sources) -> dict[str, Trained]:
    """Device -> the best-ranked row of this very training; never a stored GPU's. It stands beside the prediction and never
    enters it."""
    rows_by_device = {}
    devices = ("cpu", GPU) if sources.gpu is sources.cpu else ("cpu",)
    for device in devices:
        rows = break_even.trained(_rows_of_unchanged_files(request, sources.profile(device).measurements))
        row = measured_training(rows, request.training, settings_of(request, device))
        if row:
            rows_by_device[device] = row
    return rows_by_device


def _rows_of_unchanged_files(request: Request, rows: Measurements) -> Measurements:
    """The rows without those of a user's training whose files have changed since."""
    step = request.model.traced
    if step is None or not step.source:
        return rows
    return [row for row in rows if row.notes.get("source", step.source) == step.source]


def turning_point(cpu: Side, gpu: Side) -> tuple[str, dict[str, float]]:
    """(the device that finishes first if there are enough epochs, {samples, epochs: the count from which it does}). Left out
    are unknown counts, those of at most 1, and samples if all of them are one batch."""
    training = cpu.training
    slower, quicker = cpu.cost, gpu.cost
    device = "gpu"
    after = costs.break_even(slower, quicker, training.steps)
    if after is None or after.value == inf:
        device = "cpu"
        slower, quicker = quicker, slower
    counts = {}
    if training.batch < training.samples:
        steps = costs.break_even(slower, quicker, epochs=training.epochs)
        if steps and 1 < steps.value * training.batch < inf:
            counts["samples"] = steps.value * training.batch
    epochs = costs.break_even(slower, quicker, training.steps)
    if epochs and 1 < epochs.value < inf:
        counts["epochs"] = epochs.value
    return device, counts
