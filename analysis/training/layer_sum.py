"""The layers of a model beside its training step: their sum, the parts of a step around them, and what neither explains."""

from collections.abc import Iterable

import msgspec

from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import Family
from analysis.crossover.fastest_row import fastest
from analysis.crossover.forms import LATENCY
from analysis.crossover.sign_changes import classify
from analysis.roofline import overheads
from analysis.stats import Estimate, group_by, median_of, total
from analysis.training import costs
from kernels.problems import LayerCall
from workloads.records import Machine, Measurement, Measurements

#: The largest share of a step that its parts may miss, or come to beyond it, and explain it still.
EXPLAINED_WITHIN = 0.1


class LayerSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """A layer in a training step."""

    #: Its path in the model.
    layer: str
    #: Its class.
    kind: str
    #: How many layers are equal to it.
    count: int
    #: Seconds of one, forward.
    forward: Estimate
    #: Seconds of one, backward: of both gradients, or of the one that it has. None without a gradient.
    backward: Estimate | None

    @property
    def seconds(self) -> Estimate:
        """Seconds of all equal ones."""
        return total([self.forward, self.backward]) * self.count


class LayerSum(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of a model and the rest of its training step, each measured by itself."""

    #: The training whose step it is.
    training: Measurement
    #: Seconds of its step.
    step: Estimate
    #: Whether XLA compiled the step; the layers are those compiled in the same way, where they have such rows.
    is_compiled: bool
    layers: tuple[LayerSeconds, ...]
    #: Seconds of parts around the layers by name: loss and metrics, optimizer, dispatch, input pipeline. None if not measured.
    parts: dict[str, Estimate | None]
    #: Layers without seconds.
    missing: tuple[str, ...] = ()
    #: Layers whose only rows are compiled in another way.
    otherwise: tuple[str, ...] = ()

    @property
    def layer_seconds(self) -> Estimate:
        """Seconds of all layers."""
        return total(layer.seconds for layer in self.layers)

    @property
    def explained(self) -> Estimate:
        """Seconds of all layers and parts."""
        return total([self.layer_seconds, *self.parts.values()])

    @property
    def remainder(self) -> Estimate:
        """Seconds of the step that no part explains. Below 0 where layers run at the same time or are fused."""
        return self.step - self.explained

    @property
    def explains_step(self) -> bool:
        """Whether the parts come to the step, but for EXPLAINED_WITHIN of it."""
        return abs(self.remainder.value) <= EXPLAINED_WITHIN * self.step.value


def sums(measurements: Measurements) -> list[LayerSum]:
    """For each measured training whose model's layers were also measured alone, at the same batch, device and number of threads:
    the layers' seconds, their sum and what is left of the step."""
    layers = [m for m in measurements if m.problem.op == "layer" and m.problem.model]
    by_step = group_by(layers, lambda m: (m.problem.model, m.problem.batch, m.device, m.threads))
    layer_sums = []
    for training in measurements:
        if training.problem.op != "training":
            continue
        place = training.problem.model, training.problem.batch, training.device, training.threads
        cost = costs.measured(training, measurements)
        if place in by_step and cost is not None:
            layer_sums.append(_sum(training, cost.step, by_step[place], measurements))
    return layer_sums


def _sum(training: Measurement, step: Estimate, rows: list[Measurement], every: Measurements) -> LayerSum:
    """The sum of a training's layers. step: its seconds. rows: of the layers. every: where the parts around the layers are looked
    up."""
    is_compiled = bool(training.values.get("jit_compile"))
    jit = "on" if is_compiled else "off"
    layers: list[LayerSeconds] = []
    parts: dict[str, Estimate | None] = {"loss and metrics": None, "optimizer": None}
    missing: list[str] = []
    otherwise: list[str] = []
    for name, layer_rows in group_by(rows, lambda m: m.problem.layer).items():
        seconds = _layer([m for m in layer_rows if m.keras.jit_compile == jit])
        if seconds is None:
            seconds = _layer(layer_rows)
            if seconds is not None:
                otherwise.append(name)
        if seconds is None:
            missing.append(name)
        elif name == LayerCall.LOSS:
            parts["loss and metrics"] = seconds.seconds
        elif name == LayerCall.OPTIMIZER:
            parts["optimizer"] = seconds.seconds
        else:
            layers.append(seconds)
    return LayerSum(
        training=training,
        step=step,
        is_compiled=is_compiled,
        layers=tuple(layers),
        parts=parts | _around(training, every),
        missing=tuple(missing),
        otherwise=tuple(otherwise),
    )


def _layer(rows: Iterable[Measurement]) -> LayerSeconds | None:
    """A layer's seconds forward and backward, each by the fastest of its rows; None if the forward pass has no time, or a
    gradient was tried and has none."""
    by_direction: dict[str, Estimate | None] = {}
    problem = None
    for m in rows:
        problem = m.problem
        seconds = median_of(m.samples[0]) if m.ok else None
        before = by_direction.get(problem.direction)
        if before is None or (seconds is not None and seconds.value < before.value):
            by_direction[problem.direction] = seconds
    forward = by_direction.get("fprop")
    if problem is None or forward is None:
        return None
    gradients = [direction for direction in ("backward", "wgrad", "dgrad") if direction in by_direction]
    backward = by_direction[gradients[0]] if gradients else None
    if gradients and backward is None:
        return None
    return LayerSeconds(
        layer=problem.layer,
        kind=problem.kind,
        count=problem.count,
        forward=forward,
        backward=backward,
    )


def _around(training: Measurement, every: Measurements) -> dict[str, Estimate | None]:
    """Part -> seconds of a training step around its layers: "dispatch" (Python and Keras starting a step; None if not measured)
    and, if it was measured, "input pipeline". Both are from steps of models with almost no work."""
    constants = overheads.constants([m for m in every if m.threads == training.threads])
    dispatch = overheads.find(constants, "keras-step", training.device)
    parts = {"dispatch": dispatch.seconds if dispatch else None}
    pipeline_step = _pipeline_step(training, every)
    if dispatch and pipeline_step:
        parts["input pipeline"] = (pipeline_step - dispatch.seconds).at_least(0.0)
    return parts


def _pipeline_step(training: Measurement, every: Measurements) -> Estimate | None:
    """Seconds of a step that does nothing but take a batch of the training's size, with the same device and threads; None without
    such a row."""
    for m in every:
        same_place = (m.device, m.threads) == (training.device, training.threads)
        if m.problem.op == "feeding" and m.ok and same_place and m.problem.batch == training.problem.batch:
            return median_of(m.samples[0])
    return None


class LayerCrossover(msgspec.Struct, frozen=True, kw_only=True):
    """From which batch on a GPU is faster at a layer in a direction."""

    #: The model; "" of a layer alone.
    model: str
    layer: str
    direction: str
    answer: Answer


def crossovers(measurements: Measurements, machine: Machine | None = None) -> list[LayerCrossover]:
    """From which batch a GPU is faster at each layer, forward and backward, for layers that were measured on both devices at two
    batches or more. A device's time is its fastest row, op by op or compiled."""
    rows = [m for m in measurements if m.problem.op == "layer"]
    groups = group_by(rows, lambda m: (m.problem.model, m.problem.layer, m.problem.arguments, m.problem.input))
    answers = []
    for (model, layer, _, _), group in groups.items():
        for direction, directed in group_by(group, lambda m: m.problem.direction).items():
            points = _points(directed, machine)
            if len(points) > 1:
                family = Family("layer", "batch", ("batch",), (("layer", layer), ("direction", direction)))
                answer = classify("float32", LATENCY, points, family=family)
                answers.append(LayerCrossover(model=model, layer=layer, direction=direction, answer=answer))
    return answers


def _points(rows: list[Measurement], machine: Machine | None) -> list[CrossoverPoint]:
    """The fastest times of CPU and GPU at each batch that has both, smallest first. rows: of one layer in one direction."""
    points = []
    by_batch = group_by(rows, lambda m: m.problem.batch)
    for batch in sorted(by_batch):
        cpu = fastest([m for m in by_batch[batch] if not m.on_gpu], "host-latency", machine)
        gpu = fastest([m for m in by_batch[batch] if m.on_gpu], "host-latency", machine)
        if cpu and gpu:
            points.append(CrossoverPoint(n=batch, cpu=cpu, gpu=gpu))
    return points
