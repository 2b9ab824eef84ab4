"""One training explained on both devices: its cost on each, where the winner changes, memory, money, and what would help."""

import functools
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.crossover.answer import Answer
from analysis.explain import crossovers, doubts, sides, used_rows
from analysis.explain.doubts import Assumption
from analysis.explain.request import GPU, Request, settings_of
from analysis.explain.sides import Side, TurningPoint
from analysis.explain.sources import Sources, TrainingPredictor
from analysis.finding import Warning
from analysis.predict import what_if
from analysis.predict.borrowed_gpu import host_factor
from analysis.predict.memory import Memory, memory
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Lacking, all_of
from analysis.predict.what_if import WhatIf
from analysis.stats import Estimate, faster, likely
from analysis.training.break_even import BY_WHOLE_TRAINING, Trained
from analysis.training.costs import TrainingCost
from analysis.training.price import Cost, cost
from kernels.networks.layers import unknown as unknown_layers
from workloads.records import Measurement

_SURE_SHARE = 0.01  # of the whole training, that a change is sure to save if it is advised


class NotMeasured(Lacking):
    """A step that is not traced was not measured either; `what` says why it is not traced."""


class PredictedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The predictions of one training."""

    #: Device (cpu, gpu:0) -> the prediction for it; without those that the rows do not tell.
    predictions: dict[str, Prediction]
    #: Device in words (the CPU, the GPU) -> the error that says which rows its prediction lacks.
    lacking: dict[str, Lacking]


class Explanation(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """Everything that is known of a training. Each result is computed when it is first read, and only then."""

    #: The training.
    request: Request
    #: The rows that tell its seconds.
    sources: Sources

    # ---- predictions

    @functools.cached_property
    def _predictor(self) -> TrainingPredictor:
        return TrainingPredictor(request=self.request, sources=self.sources)

    @functools.cached_property
    def _predicted(self) -> "PredictedDevices":
        """The predictions for both devices; none of a step that is not traced."""
        predictions: dict[str, Prediction] = {}
        lacking: dict[str, Lacking] = {}
        devices = {"cpu": "the CPU"} if self.sources.gpu is None else {"cpu": "the CPU", GPU: "the GPU"}
        if self.request.untraced:
            devices = {}
        for device, name in devices.items():
            try:
                predictions[device] = self._predictor.predict(self.request.training, settings_of(self.request, device))
            except Lacking as error:
                lacking[name] = error
        return PredictedDevices(predictions=predictions, lacking=lacking)

    @property
    def lacking(self) -> dict[str, Lacking]:
        """Device in words (the CPU, the GPU) -> the error that says which rows a prediction for it lacks."""
        return self._predicted.lacking

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the predictions lack, in words, with the commands that measure it."""
        return tuple(f"{name}: {error}" for name, error in self.lacking.items())

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """The predictions, the CPU's first."""
        return tuple(self._predicted.predictions.values())

    @property
    def cpu(self) -> Prediction | None:
        """The prediction for the CPU; None without rows of it."""
        return self._predicted.predictions.get("cpu")

    @property
    def gpu(self) -> Prediction | None:
        """The prediction for the GPU; None without rows of it."""
        return self._predicted.predictions.get(GPU)

    @property
    def main(self) -> Prediction | None:
        """The prediction that changes are set against: the GPU's where there is one."""
        return self.gpu or self.cpu

    @property
    def withheld(self) -> bool:
        """Whether predicted seconds would be guesses: most of the arithmetic is in layers of unknown kinds."""
        return self.request.is_mostly_unknown

    @property
    def partial(self) -> tuple[str, ...]:
        """What the predictions leave out or only estimate, in words; first the layers of unknown kinds."""
        texts = []
        if self.request.unknown_share:
            texts.append(self.request.unknown_share.words)
        if self.request.model.traced is not None:
            texts += self.request.model.traced.doubts
        for prediction in self.predictions:
            texts += prediction.gaps
        return tuple(dict.fromkeys(texts))

    @property
    def borrowed(self) -> str:
        """The machine of a stored GPU; "" where the GPU is the one of the rows."""
        return self.sources.borrowed.key if self.sources.borrowed else ""

    @functools.cached_property
    def host_factor(self) -> Estimate | None:
        """The factor by which the host terms of a stored GPU are scaled; None if it is not known."""
        stored = self.sources.borrowed
        return host_factor(self.sources.cpu, stored) if stored else None

    # ---- who finishes first

    @functools.cached_property
    def _measured_rows(self) -> dict[str, Trained]:
        """Device (cpu, gpu:0) -> the row that measured this very training there."""
        return sides.measured_rows(self.request, self.sources)

    @property
    def measured(self) -> dict[str, TrainingCost]:
        """Device -> the cost by a row of this training."""
        return {device: row.cost for device, row in self._measured_rows.items()}

    @functools.cached_property
    def sides(self) -> tuple[Side, ...]:
        """The training on each device whose memory holds it, with its measured or else predicted cost; the CPU first."""
        too_small = {one.device for one in self.memory if one.too_big}
        every = sides.sides(self.request, self._predicted.predictions, self._measured_rows)
        return tuple(side for side in every if side.device not in too_small)

    @property
    def data_alone_s(self) -> float | None:
        """Seconds that a batch of the user's data takes without training; None where that was not measured."""
        return sides.data_alone_s(self._measured_rows)

    @property
    def both(self) -> tuple[Side, Side] | tuple[()]:
        """(CPU side, GPU side); empty unless the cost is known on both."""
        return (self.sides[0], self.sides[1]) if len(self.sides) == 2 else ()

    @property
    def winner(self) -> str:
        """cpu or gpu: the device that surely finishes first. neither: the intervals overlap, or rows were measured beside
        other work.
        """
        if not self.both or self.disturbances:
            return "neither"
        cpu, gpu = self.both
        return faster(cpu.whole, gpu.whole)

    @property
    def likely_winner(self) -> str | None:
        """cpu or gpu: the device that finishes first or, where predicted intervals overlap, probably does. neither: it cannot
        be told; None: a side has no seconds.
        """
        if not self.both:
            return None
        cpu, gpu = self.both
        return likely(cpu.whole, gpu.whole, predicted="predicted" in (cpu.cost.source, gpu.cost.source))

    @functools.cached_property
    def crossovers(self) -> tuple[Answer, ...]:
        """Where the winner changes along each size: measured where rows of several sizes were, else predicted unless
        predictions are withheld. () without a prediction for both devices.
        """
        if not (self.cpu and self.gpu):
            return ()
        swept = crossovers.swept(self.request, self._measured_rows, self.sources.cpu.measurements)
        if self.withheld:
            return tuple(swept.values())
        return crossovers.crossovers(self.request, self._predictor, swept)

    @property
    def swept_turning_points(self) -> dict[str, float]:
        """`samples` -> the number of them from which one device finishes first, where rows of fewer and of more were measured;
        empty without such rows.
        """
        counts = {}
        for answer in self.crossovers:
            if answer.form.mode != BY_WHOLE_TRAINING or not answer.crossings:
                continue
            last = answer.crossings[-1]
            if not last.wide and last.to == sides.turning_point(*self.both).device:
                counts[answer.family.varies] = last.at.value
        return counts

    @functools.cached_property
    def turning_point(self) -> TurningPoint:
        """The device that wins with more samples or epochs, and the counts from which it does: measured, else worked out from the
        costs on both devices.
        """
        by_costs = sides.turning_point(*self.both)
        swept = self.swept_turning_points
        return replace(
            by_costs, counts=swept | by_costs.counts | swept
        )  # a measured count comes first, and replaces the other

    # ---- what it takes, and what would help

    @functools.cached_property
    def memory(self) -> tuple[Memory, ...]:
        """The memory that the training needs at its peak on each device."""
        memories = []
        for device in self._predicted.predictions:
            rows = self.sources.profile(device)
            need = memory(
                self.request.model,
                self.request.training,
                device,
                measurements=rows.measurements,
                machine=rows.machine,
                residence=self.request.switches.get("residence", ""),
            )
            memories.append(need)
        return tuple(memories)

    @functools.cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The money and the energy of the whole training on each side."""
        costs_of_sides = []
        for side in self.sides:
            rows = self.sources.profile(side.device).measurements
            costs_of_sides.append(
                cost(self.request.training, side.whole, side.device, prices=self.request.prices, measurements=rows)
            )
        return tuple(costs_of_sides)

    @functools.cached_property
    def what_ifs(self) -> tuple[WhatIf, ...]:
        """Every change that may help, with the seconds of the whole training that it is predicted to save; these are cut to the
        seconds that the training takes.
        """
        if self.withheld or self.main is None:
            return ()
        device = self.main.settings.device
        whole = self.main.job_s
        for side in self.sides:
            if side.device == device:
                whole = side.whole
        changes = []
        for change in what_if.what_ifs(self.main, self._predictor.predict):
            saved = change.job_saved.at_most(whole) if change.job_saved else None
            changes.append(replace(change, job_saved=saved))
        return tuple(changes)

    def surely_saves(self, change: WhatIf) -> bool:
        """Whether the least that a change saves is more than _SURE_SHARE of the whole training on the device that changes are
        for: the last side, which is the GPU's where there is one.
        """
        return bool(self.sides) and change.surely_s > _SURE_SHARE * self.sides[-1].whole.value

    @property
    def actions(self) -> list[WhatIf]:
        """The changes to advise: those that are sure to save, the surest first; of several larger batches only the best."""
        sure = sorted(filter(self.surely_saves, self.what_ifs), key=lambda one: -one.surely_s)
        other_batches = [one for one in sure if one.change.learns][1:]
        return [one for one in sure if one not in other_batches]

    @property
    def larger(self) -> WhatIf | None:
        """The larger batch that saves most of the whole training."""
        batches = [one for one in self.what_ifs if one.change.learns and one.job_saved]
        return batches[0] if batches else None

    # ---- what it rests on

    @functools.cached_property
    def assumed(self) -> tuple[Assumption, ...]:
        """The numbers of the training that no flag and no data gave, with the counts at which the winner changes."""
        turning_point = self.turning_point if self.both else None
        training = self.request.training
        return tuple(doubts.assumption(name, getattr(training, name), turning_point) for name in self.request.assumed)

    @functools.cached_property
    def warnings(self) -> tuple[Warning, ...]:
        """Reasons to believe the answer less: rows measured beside other work, layers that are only estimated, parts without a
        row, and an optimizer and a loss that were chosen for a model that came without.
        """
        warnings = []
        for side in self.sides:
            warnings += doubts.disturbances(side.device, self._used_rows(side))
        unknown = self.request.unknown_share
        if unknown and any(side.cost.source == "predicted" for side in self.sides):
            layers = tuple(layer.name for layer in unknown_layers(self.request.model))
            warnings.append(Warning(kind="estimated-layers", share=unknown.arithmetic, names=layers))
        rough = self._roughest()
        if rough:
            warnings.append(rough)
        for side in self.sides:
            if side.unknown:
                warnings.append(Warning(kind="no-row", device=side.device, names=side.unknown))
        model = self.request.model
        if model.compiled_for_user:
            warnings.append(Warning(kind="not-compiled", names=(model.optimizer, model.loss)))
        return tuple(warnings)

    def _roughest(self) -> Warning | None:
        """A warning on work that was priced by rows of other kinds of work, where its share is large (Prediction.rough): of two
        predicted sides the one with the larger share. None where it is small.
        """
        by_device = {"cpu": self.cpu, GPU: self.gpu}
        roughest: Warning | None = None
        for side in self.sides:
            prediction = by_device[side.device]
            if side.cost.source != "predicted" or prediction is None or prediction.rough is None:
                continue
            rough = prediction.rough
            if roughest is None or rough.share > (roughest.share or 0.0):
                roughest = Warning(kind="rough-work", device=side.device, share=rough.share, names=rough.kinds)
        return roughest

    @property
    def disturbances(self) -> tuple[Warning, ...]:
        """The warnings of rows that were measured beside other work or throttled."""
        return tuple(warning for warning in self.warnings if warning.disturbs)

    def _used_rows(self, side: Side) -> list[Measurement]:
        """The rows that a side's seconds come from: the row of this training where it was measured, else those that its
        prediction reads. A borrowed GPU's are scaled to this machine's CPU, so its launch rows count too.
        """
        if side.cost.source == "measured":
            return [self._measured_rows[side.device].row]
        settings = settings_of(self.request, side.device)
        profile = self.sources.profile(side.device)
        rows = used_rows.predicting(self.request.training, settings, self.request.model, profile)
        if self.borrowed and settings.on_gpu:
            rows += used_rows.launches(self.sources.cpu, "cpu")
        return rows

    @property
    def disturbed_devices(self) -> set[str]:
        """The devices whose rows were disturbed: they are to be measured again."""
        return {warning.device for warning in self.disturbances}

    def record(self) -> dict[str, Any]:
        """The explanation as the field `explanation` of --format json. Predictions that would be guesses are left out."""
        return {
            "asked": self.request.without_operations,
            "cpu": None if self.withheld else self.cpu,
            "gpu": None if self.withheld else self.gpu,
            "measured": self.measured,
            "crossovers": self.crossovers,
            "memory": self.memory,
            "costs": self.costs,
            "what_ifs": self.what_ifs,
            "lacks": self.lacks,
            "borrowed": self.borrowed,
            "host_factor": self.host_factor,
            "sides": self.sides,
            "assumed": self.assumed,
            "warnings": self.warnings,
        }


def explain(request: Request, sources: Sources) -> Explanation:
    """The explanation of a training. Rows that one device lacks are no error: the explanation says which, with the commands that
    measure them.

    Raises: NotMeasured for a step that is neither traced nor measured; Lacking where the rows tell neither device's seconds;
        ValueError for an unknown model.
    """
    explanation = Explanation(request=request, sources=sources)
    if request.untraced and not explanation.sides:
        raise NotMeasured(request.untraced, ())
    if not explanation.predictions and not explanation.sides:
        raise all_of(explanation.lacking.values())
    return explanation
