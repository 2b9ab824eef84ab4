"""`explain --measure`: the parts that an answer lacks, their estimate in seconds, and their measurement one after the other."""

import functools
import pathlib
from collections.abc import Callable, Collection

import msgspec

from analysis import labels
from analysis.explain.explanation import Explanation
from analysis.explain.measuring import Child, Failure, TimeBudget
from analysis.explain.request import Request, settings_of
from analysis.explain.sides import Side
from analysis.explain.sources import Sources
from analysis.predict import what_if
from analysis.predict.profile import measuring
from kernels import networks
from workloads.records import Machine, settings

BUDGET_S = 90
# Enough samples and steps of an epoch to measure a model's step by its later epochs.
_SAMPLES = 2048
_STEPS = 64
# Seconds that clocks run for a part, rounded from one look at two cores; of a training whose steps are not slow.
_TIMING_S = {"training": 12, "launch": 6, "conv": 20, "matmul": 5, "stream": 10, "transfer": 10}
_SLOW_STEPS = 17  # steps that a training of slow steps runs in all
_STARTING_S = 10  # importing TensorFlow and building a model, where that was not timed just now
_LAYERS_A_START = 80  # layers whose graph takes as long to compile as TensorFlow takes to import
_STEP_FLOPS = 10e9  # a second on two cores, where no prediction says better
_PASSES = "read add relu relu_grad dropout maxpool maxpool_grad sgd adam"


class MeasurablePart(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement that an answer lacks, made by one command."""

    #: In words, such as `its own step on the CPU`.
    name: str
    #: The arguments of `python -m`.
    command: tuple[str, ...]
    #: The worker process that measures it: parts of one process import TensorFlow once.
    process: str
    #: Seconds that it is expected to take, without the start of its process.
    seconds: float


class KnownCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer has of a training already."""

    #: Device -> its cost there, measured or predicted.
    sides: dict[str, Side] = {}
    #: The devices for which it is predicted.
    predicted: tuple[str, ...] = ()

    @classmethod
    def from_explanation(cls, explanation: Explanation, without: Collection[str] = ()) -> "KnownCosts":
        """The costs of an explanation. without: devices whose rows were disturbed, so that they are to be measured again."""
        sides = {side.device: side for side in explanation.sides if side.device not in without}
        predicted = [one.settings.device for one in explanation.predictions]
        return cls(sides=sides, predicted=tuple(device for device in predicted if device not in without))


def parts(
    known: KnownCosts, request: Request, sources: Sources, devices: list[str], *, everything: bool = False
) -> list[MeasurablePart]:
    """The measurements that an answer lacks on this machine's devices, the most needed first.

    First the model's own step, then the dispatch of a step. The model's single operations follow on a GPU without a prediction,
    as the changes that are advised need one. On the CPU they do only with `everything`: the winner needs no more than the step.
    """
    parts = []
    for device in devices:
        side = known.sides.get(device)
        if side is None or side.cost.source != "measured":
            parts.append(step(request, device, side))
    if request.untraced:  # nothing else tells it
        return parts
    for device in devices:
        if not sources.profile(device).constant("keras-step", device):
            parts.append(dispatch(device))
    for device in devices:
        if device not in known.predicted and (everything or device != "cpu"):
            parts += operations(request, device, sources.cpu.machine).values()
    return parts


def command(change: what_if.Change) -> tuple[str, ...]:
    """The arguments of `python -m` that measure the step of a changed training, by one short epoch. The epoch keeps the size of
    the training's last, smaller batch, which may take a compilation of its own.
    """
    training = change.training
    enough = max(_STEPS * training.batch, _SAMPLES)
    last_batch = training.samples % training.batch
    samples = min(training.samples, enough + last_batch)
    return *what_if.command(change, epochs=1, samples=samples), "--fast"


def step(request: Request, device: str, side: Side | None = None) -> MeasurablePart:
    """The measurement of the model's own step on a device. side: the predicted cost there, which tells how long measuring takes;
    None where there is none.
    """
    change = what_if.Change(words="", training=request.training, settings=settings_of(request, device))
    return MeasurablePart(
        name=f"its own step on the {labels.device(device)}",
        command=command(change),
        process=f"training on {device}" if device != "cpu" else device,
        seconds=_step_seconds(request, side),
    )


def _step_seconds(request: Request, side: Side | None) -> float:
    """Seconds that compiling and timing the step on a device will take: by its predicted cost `side`, else estimated from the
    model's layers and FLOPs.
    """
    compilation = starting(request) * _layers(request) / _LAYERS_A_START
    step_s = request.training.batch * networks.training_flops(request.model) / _STEP_FLOPS
    if side:
        step_s = side.cost.step.value
        compilation = side.cost.compile.value if side.cost.compile else compilation
    return compilation + max(_TIMING_S["training"], _SLOW_STEPS * step_s)


def _layers(request: Request) -> int:
    """The number of the model's layers. A traced model has no list of them, but its operations name theirs."""
    step = request.model.traced
    if step is None:
        return len(request.model.layers)
    return len({operation.layer for operation in step.operations})


def _kinds(request: Request) -> set[str]:
    """The kinds of the model's layers, such as dense and conv. A traced model has operations instead, whose products (matmul) are
    of dense layers.
    """
    step = request.model.traced
    if step is None:
        return {layer.kind for layer in request.model.layers}
    kinds: set[str] = {operation.kind for operation in step.operations}
    if "matmul" in kinds:
        kinds.add("dense")
    return kinds


def starting(request: Request) -> float:
    """Seconds of importing TensorFlow and building the model, as they were timed just now."""
    return request.starting_s or _STARTING_S


def dispatch(device: str) -> MeasurablePart:
    """The measurement of the dispatch of a step on a device: steps and epochs of Keras with almost no work."""
    calls = "workloads.launch --backends tensorflow --variants function fit --calls elementwise step epoch"
    command = (*calls.split(), *_device_flags(device))
    return _part("launch", name=f"dispatch on the {labels.device(device)}", command=command, device=device)


def operations(request: Request, device: str, machine: Machine | None) -> dict[str, MeasurablePart]:
    """Operation (conv, matmul, transfer, stream) -> the measurement of those that a step of the model has on a device. On a GPU
    they are measured in TF32 where this machine's GPU has it.
    """
    arithmetic = "float32" if machine and machine.lacks("tf32") else "tf32"
    kinds = _kinds(request)
    parts = {}
    if "conv" in kinds:
        parts["conv"] = _products("conv", request, device, arithmetic)
    if "dense" in kinds:
        parts["matmul"] = _products("matmul", request, device, arithmetic)
    if device != "cpu":
        parts["transfer"] = _copies(device)
    parts["stream"] = _passes(device, arithmetic)
    return parts


def _products(op: str, request: Request, device: str, arithmetic: str) -> MeasurablePart:
    """The measurement of a model's convolutions (op conv) or dense layers (op matmul) at its batch. The commands know the
    layers of named models only: a user's own model is represented by one with such layers.
    """
    training = request.training
    if op == "conv":
        name = "its convolutions"
        similar_model = "cifar10-cnn"
        variants = ["--variants", "function", "held"]
    else:
        name = "its dense layers"
        similar_model = "fashion-mlp"
        variants = ["--variants", "function"]
    model = similar_model if settings.is_user_model(training.model) else training.model
    sizes = ("--model", model, "--batch", str(training.batch), "--direction", "all")
    kernels = variants if device == "cpu" else []
    command = (f"workloads.{op}", *sizes, *measuring(op, device, arithmetic), *kernels, "--fast")
    return _part(op, name=f"{name} on the {labels.device(device)}", command=command, device=device)


def _copies(device: str) -> MeasurablePart:
    """The measurement of copies to a GPU."""
    sizes = ("workloads.transfer", "--sizes", "4B:64MiB:x16", "--directions", "h2d")
    return _part("transfer", name="copies to the GPU", command=(*sizes, *_device_flags(device)), device=device)


def _passes(device: str, arithmetic: str) -> MeasurablePart:
    """The measurement of element-wise operations, pooling and optimizers on a device, at several array sizes."""
    kernels: tuple[str, ...] = ()
    if device == "cpu":
        kernels = ("--operations", *_PASSES.split(), "--dtypes", "float32", "--variants", "function")
    sizes = ("--sizes", "64KiB:64MiB:x32")
    command = ("workloads.stream", *kernels, *sizes, *measuring("stream", device, arithmetic), "--fast")
    return _part("stream", name=f"passes over memory on the {labels.device(device)}", command=command, device=device)


def _device_flags(device: str) -> tuple[str, ...]:
    return ("--device", "cpu" if device == "cpu" else "gpu", "--fast")


def _part(workload: str, *, name: str, command: tuple[str, ...], device: str) -> MeasurablePart:
    """A measurement by one worker a device, with the usual seconds of its workload."""
    return MeasurablePart(name=name, command=command, process=device, seconds=_TIMING_S[workload])


def seconds(parts: list[MeasurablePart], request: Request) -> float:
    """Seconds that the parts are expected to take, the start of their processes included."""
    processes = {part.process for part in parts}
    return len(processes) * starting(request) + sum(part.seconds for part in parts)


def run(
    parts: list[MeasurablePart],
    folder: pathlib.Path,
    budget: TimeBudget,
    say: Callable[[str, float], None],
    child: Child | None = None,
) -> list[Failure]:
    """Measures the parts one after the other until the budget is spent; the first is begun in any case.

    Args:
        folder: the rows of part 1 go to the folder with -1 added to its name, and so on.
        say: called about once a second with what is being done and the seconds since that began.
        child: measures them; None for one that is started here and ended.

    Returns: the parts that were not measured, with the reasons.
    """
    failures = []
    with child or Child() as process:
        for number, part in enumerate(parts, 1):
            if number > 1 and part.seconds > budget.left:
                needed = budget.spent + part.seconds
                failures.append(Failure(part=part.name, reason="the time was spent", budget_s=budget.enough(needed)))
                continue
            head = f"{number}/{len(parts)} {part.name}"
            place = folder.with_name(f"{folder.name}-{number}")
            # workloads.training has no such flag
            limit = () if part.command[0] == "workloads.training" else ("--stop-after", f"{budget.left:.0f}")
            words = (*part.command, *limit, "-q", "-o", str(place))
            failure = process.measure(part.name, words, budget, functools.partial(_show, say, head))
            if failure:
                failures.append(failure)
    return failures


def _show(say: Callable[[str, float], None], head: str, doing: str, taken_s: float) -> None:
    """Says what is being done, with the number and the name of the part in front."""
    say(f"{head}: {doing}", taken_s)
