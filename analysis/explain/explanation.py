"""One training explained on both devices: its cost on each, where the winner changes, memory, money, and what would help."""

import functools
from typing import Any

import msgspec
from msgspec.structs import replace

from analysis.crossover.answer import Answer
from analysis.explain import crossovers, doubts, sides, used_rows
from analysis.explain.doubts import Assumption
from analysis.explain.request import GPU, Request, settings_of
from analysis.explain.sides import Side
from analysis.explain.sources import Predict, Sources, TrainingPredictor
from analysis.finding import Warning
from analysis.predict import what_if
from analysis.predict.borrowed_gpu import host_factor
from analysis.predict.memory import Memory, memory
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Lacking, all_of
from analysis.predict.what_if import WhatIf
from analysis.stats import Estimate, faster, likely
from analysis.training.break_even import BY_JOB, Trained
from analysis.training.costs import TrainingCost
from analysis.training.price import Cost, cost
from kernels.networks.layers import unknown as unknown_layers
from workloads.records import Measurement

_SURE_SHARE = 0.01  # of the whole training, that a change is sure to save if it is advised


class NotMeasured(Lacking):
    """A step that is not traced was not measured either; `what` says why it is not traced."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """Everything that is known of a training. Each result is computed when it is first read, and only then."""

    #: The training.
    request: Request
    #: The rows that tell its seconds.
    sources: Sources

    # ---- predictions

    @functools.cached_property
    def _predict(self) -> Predict:
        return TrainingPredictor(request=self.request, sources=self.sources).predict

    @functools.cached_property
    def _predicted(self) -> tuple[dict[str, Prediction], dict[str, Lacking]]:
        """(device -> its prediction, device in words -> what its profile lacks)."""
        if self.request.untraced:
            return {}, {}
        devices = {"cpu": "the CPU"} if self.sources.gpu is None else {"cpu": "the CPU", GPU: "the GPU"}
        predictions: dict[str, Prediction] = {}
        lacking: dict[str, Lacking] = {}
        for device, name in devices.items():
            try:
                predictions[device] = self._predict(self.request.training, settings_of(self.request, device))
            except Lacking as error:
                lacking[name] = error
        return predictions, lacking

    @property
    def lacking(self) -> dict[str, Lacking]:
        """Device in words -> what a prediction for it lacks."""
        return self._predicted[1]

    @property
    def lacks(self) -> tuple[str, ...]:
        """What is missing, with the commands that measure it."""
        return tuple(f"{where}: {error}" for where, error in self.lacking.items())

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """The predictions, the CPU's first."""
        return tuple(self._predicted[0].values())

    @property
    def cpu(self) -> Prediction | None:
        """The prediction for the CPU; None without rows of it."""
        return self._predicted[0].get("cpu")

    @property
    def gpu(self) -> Prediction | None:
        """The prediction for the GPU; None without rows of it."""
        return self._predicted[0].get(GPU)

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
        """The gaps of the predictions, in words; first the layers that are only estimated."""
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
        return sides.measured_rows(self.request, self.sources)

    @property
    def measured(self) -> dict[str, TrainingCost]:
        """Device -> the cost by a row of this training."""
        return {device: row.cost for device, row in self._measured_rows.items()}

    @functools.cached_property
    def sides(self) -> tuple[Side, ...]:
        """The training on each device that it fits on, measured or predicted."""
        too_small = {one.device for one in self.memory if one.too_big}
        every = sides.sides(self.request, self._predicted[0], self._measured_rows)
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
        """cpu or gpu: the device that surely finishes first; neither if the intervals overlap or rows were disturbed."""
        if not self.both or self.disturbances:
            return "neither"
        cpu, gpu = self.both
        return faster(cpu.whole, gpu.whole)

    @property
    def likely_winner(self) -> str | None:
        """cpu, gpu, or neither where it cannot be told; None without the seconds of one side."""
        if not self.both:
            return None
        cpu, gpu = self.both
        return likely(cpu.whole, gpu.whole, predicted="predicted" in (cpu.cost.source, gpu.cost.source))

    @functools.cached_property
    def crossovers(self) -> tuple[Answer, ...]:
        """Where the winner changes along a size."""
        if not (self.cpu and self.gpu):
            return ()
        swept = crossovers.swept(self.request, self._measured_rows, self.sources.cpu.measurements)
        if self.withheld:
            return tuple(swept.values())
        return crossovers.crossovers(self.request, self._predict, swept)

    @property
    def swept_turning_points(self) -> dict[str, float]:
        """Samples -> the count from which the winner finishes first, if it was measured by a sweep."""
        counts = {}
        for answer in self.crossovers:
            if answer.form.mode != BY_JOB or not answer.crossings:
                continue
            last = answer.crossings[-1]
            if not last.wide and last.to == sides.turning_point(*self.both)[0]:
                counts[answer.family.varies] = last.at.value
        return counts

    @functools.cached_property
    def turning_point(self) -> tuple[str, dict[str, float]]:
        """(device that wins with more samples or epochs, count of each from which it wins): measured, else from costs."""
        device, by_costs = sides.turning_point(*self.both)
        swept = self.swept_turning_points
        return device, swept | by_costs | swept  # what was swept comes first, and is as measured

    # ---- what it takes, and what would help

    @functools.cached_property
    def memory(self) -> tuple[Memory, ...]:
        """The memory that the training needs at its peak on each device."""
        memories = []
        for device in self._predicted[0]:
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
        """The changes with the time that each saves, at most that of the whole training."""
        if self.withheld or self.main is None:
            return ()
        device = self.main.settings.device
        whole = self.main.job_s
        for side in self.sides:
            if side.device == device:
                whole = side.whole
        changes = []
        for change in what_if.what_ifs(self.main, self._predict):
            saved = change.job_saved.at_most(whole) if change.job_saved else None
            changes.append(replace(change, job_saved=saved))
        return tuple(changes)

    def surely_saves(self, change: WhatIf) -> bool:
        """Whether a change is sure to save a hundredth of the whole training on the device that it is for."""
        return bool(self.sides) and change.surely_s > _SURE_SHARE * self.sides[-1].whole.value

    @property
    def actions(self) -> list[WhatIf]:
        """The changes that are sure to save, the surest first; of several batches the best."""
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
        """The numbers of the training that nobody gave, with the counts at which the winner changes."""
        device, counts = self.turning_point if self.both else ("", {})
        training = self.request.training
        names = self.request.assumed
        return tuple(doubts.assumption(name, getattr(training, name), device, counts) for name in names)

    @functools.cached_property
    def warnings(self) -> tuple[Warning, ...]:
        """The reasons to believe it less: disturbed rows, estimated layers, parts without a row, and a loss chosen here."""
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
        """The predicted side with the largest share of work that no row is of; None where it is small on both."""
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
        """The rows that a side's seconds come from: the training's own row, or those of its prediction. The dispatch of a stored
        GPU is scaled by launches of this machine's CPU too."""
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
        """All of it as --format json has it; predictions that are guesses are left out."""
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
    """The explanation of a training. What a profile lacks is said, with the commands that measure it; only when neither device
    can be predicted is that an error.

    Raises: profile.Lacking, NotMeasured; ValueError for a model that is not known.
    """
    explanation = Explanation(request=request, sources=sources)
    if request.untraced and not explanation.sides:
        raise NotMeasured(request.untraced, ())
    if not explanation.predictions and not explanation.sides:
        raise all_of(explanation.lacking.values())
    return explanation
