"""The cost of a training on each device, measured or else predicted, and the counts from which the winner changes."""

import math
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


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A training on one device and its cost there."""

    #: cpu or gpu:0.
    device: str
    #: The training; the same on both sides.
    training: Training
    #: Seconds of its start, build, compilation, epochs and steps; an epoch has its validation.
    cost: TrainingCost
    #: Parts of the cost that no row measured, in words.
    unknown: tuple[str, ...] = ()
    #: Whether a row trained as many samples and epochs; else the whole time is put together from parts.
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


class TurningPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the winner of a training changes with more samples or epochs."""

    #: cpu or gpu: the device that finishes first if there are enough of them.
    device: str
    #: samples, epochs -> the count from which it does, where that is known and more than 1.
    counts: dict[str, float]


def sides(request: Request, predictions: Mapping[str, Prediction], measured: Mapping[str, Trained]) -> tuple[Side, ...]:
    """The training on each device that has a cost, the CPU first: measured here, else predicted. Both mappings are by device
    (cpu, gpu:0). A prediction of a model of mostly unknown layers is ignored.
    """
    alone_s = data_alone_s(measured)
    known = []
    for device in ("cpu", GPU):
        side = _side(request, device, predictions.get(device), measured.get(device))
        if side is not None:
            known.append(_waiting_for_data(side, alone_s))
    return tuple(known)


def data_alone_s(measured: Mapping[str, Trained]) -> float | None:
    """Seconds of reading a batch of the user's data without training on it; None where no measured row has them."""
    seconds = [row.row.values["input_step_s"] for row in measured.values() if "input_step_s" in row.row.values]
    return min(seconds, default=None)


def _waiting_for_data(side: Side, alone_s: float | None) -> Side:
    """The side with its predicted step raised to the seconds of reading a batch of the user's data, as a step waits for its
    batch. alone_s: these seconds, None where they are unknown. A measured step has waited already.
    """
    if alone_s is None or side.cost.source == "measured":
        return side
    return replace(side, cost=replace(side.cost, step=side.cost.step.at_least(alone_s)))


def _side(request: Request, device: str, prediction: Prediction | None, measured: Trained | None) -> Side | None:
    """The training on a device, by its measured row if that tells the whole training, else by its prediction; None without both.
    Validation was not measured, so it is added as predicted.
    """
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
    """Seconds that evaluating the validation samples adds to each epoch.

    A forward pass takes as much of a step's seconds as it has of its FLOPs, but at least half of the host's seconds of a step.
    The interval reaches up to a whole step.
    """
    network = request.model
    share = networks.inference_flops(network) / max(1, networks.training_flops(network))
    batches = math.ceil(request.validation / request.training.batch)
    step = prediction.step_s
    host = total_of(prediction.parts, HOST)
    forward = Estimate(max(host.value / 2, step.value * share), step.low * share, step.high)
    return forward * batches


def measured_rows(request: Request, sources: Sources) -> dict[str, Trained]:
    """Device (cpu, gpu:0) -> the best-ranked row that measured this very training there; a borrowed GPU's rows do not count.
    Predictions never read these rows.
    """
    rows_by_device = {}
    devices = ("cpu", GPU) if sources.gpu is sources.cpu else ("cpu",)
    for device in devices:
        rows = break_even.trained(_rows_of_unchanged_files(request, sources.profile(device).measurements))
        row = measured_training(rows, request.training, settings_of(request, device))
        if row:
            rows_by_device[device] = row
    return rows_by_device


def _rows_of_unchanged_files(request: Request, rows: Measurements) -> Measurements:
    """The rows without those of a user's own model that were measured before its source files changed. A row notes a hash of them
    (`source`), as does the traced step.
    """
    step = request.model.traced
    if step is None or not step.source:
        return rows
    return [row for row in rows if row.notes.get("source", step.source) == step.source]


def turning_point(cpu: Side, gpu: Side) -> TurningPoint:
    """Where the winner changes, from the costs on both devices: the device with the faster epoch wins once its epochs have made
    up for its later start. No count of samples is given if all samples are one batch, as the step would be another.
    """
    training = cpu.training
    slower, quicker = cpu.cost, gpu.cost
    device = "gpu"
    epochs = costs.break_even(slower, quicker, steps=training.steps)
    if epochs is None or epochs.value == inf:
        device = "cpu"
        slower, quicker = quicker, slower
        epochs = costs.break_even(slower, quicker, steps=training.steps)
    counts = {}
    if training.batch < training.samples:
        steps = costs.break_even(slower, quicker, epochs=training.epochs)
        if steps and 1 < steps.value * training.batch < inf:
            counts["samples"] = steps.value * training.batch
    if epochs and 1 < epochs.value < inf:
        counts["epochs"] = epochs.value
    return TurningPoint(device=device, counts=counts)
