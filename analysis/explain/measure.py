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
_SAMPLES, _STEPS = 2048, 64  # enough samples and steps to measure the real step by its later epochs
# Seconds that clocks run for a part, rounded from one look at two cores; of a training whose steps are not slow.
_TIMING_S = {"training": 12, "launch": 6, "conv": 20, "matmul": 5, "stream": 10, "transfer": 10}
_SLOW_STEPS = 17  # steps that a training of slow steps runs in all
_STARTING_S = 10  # importing TensorFlow and building a model, where that was not timed just now
_LAYERS_A_START = 80  # layers whose graph takes as long to compile as TensorFlow takes to import
_STEP_FLOPS = 10e9  # a second on two cores, where no prediction says better
_PASSES = "read add relu relu_grad dropout maxpool maxpool_grad sgd adam"


class MeasurablePart(msgspec.Struct, frozen=True, kw_only=True):
    """Something to measure by a command of its own."""

    #: In words.
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
        """What an explanation has, `without` the devices that are to be measured again."""
        sides = {side.device: side for side in explanation.sides if side.device not in without}
        predicted = [one.settings.device for one in explanation.predictions]
        return cls(sides=sides, predicted=tuple(device for device in predicted if device not in without))


def parts(
    known: KnownCosts, request: Request, sources: Sources, devices: list[str], *, everything: bool = False
) -> list[MeasurablePart]:
    """The parts to measure on this machine's devices, the most needed first: the model's real step, then the dispatch of a
    step. The model's operations follow where an answer rests on them: on a GPU its changes do; on the CPU only `everything`
    does, as the winner rests on the step."""
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
    """The words of `python -m ...` that measure a change's step, of as few samples as tell it."""
    training = change.training
    least = max(_STEPS * training.batch, _SAMPLES) + training.samples % training.batch
    return *what_if.command(change, epochs=1, samples=min(training.samples, least)), "--fast"


def step(request: Request, device: str, side: Side | None = None) -> MeasurablePart:
    """The model's real step on a device, of few samples. side: its cost there, if it is predicted."""
    change = what_if.Change(words="", training=request.training, settings=settings_of(request, device))
    return MeasurablePart(
        name=f"its own step on the {labels.device(device)}",
        command=command(change),
        process=f"training on {device}" if device != "cpu" else device,
        seconds=_step_seconds(request, side),
    )


def _step_seconds(request: Request, side: Side | None) -> float:
    """Seconds of compiling and timing the step on a device: by its prediction, else by the model's layers and FLOPs."""
    compilation = starting(request) * _layers(request) / _LAYERS_A_START
    step_s = request.training.batch * networks.training_flops(request.model) / _STEP_FLOPS
    if side:
        step_s = side.cost.step.value
        compilation = side.cost.compile.value if side.cost.compile else compilation
    return compilation + max(_TIMING_S["training"], _SLOW_STEPS * step_s)


def _layers(request: Request) -> int:
    """Layers of the model; of a traced step those that its operations come from."""
    step = request.model.traced
    return len(request.model.layers) if step is None else len({operation.layer for operation in step.operations})


def _kinds(request: Request) -> set[str]:
    """Kinds of the model's layers; of a traced step those that its products and convolutions are of."""
    step = request.model.traced
    if step is None:
        return {layer.kind for layer in request.model.layers}
    kinds = {operation.kind for operation in step.operations}
    return kinds | ({"dense"} if "matmul" in kinds else set())


def starting(request: Request) -> float:
    """Seconds of importing TensorFlow and building the model, as they were timed just now."""
    return request.starting_s or _STARTING_S


def dispatch(device: str) -> MeasurablePart:
    """The dispatch of a step on a device."""
    calls = "workloads.launch --backends tensorflow --variants function fit --calls elementwise step epoch"
    return _part("launch", f"dispatch on the {labels.device(device)}", (*calls.split(), *_on(device)), device)


def operations(request: Request, device: str, machine: Machine | None) -> dict[str, MeasurablePart]:
    """conv, matmul, transfer, stream -> the part that measures these operations of its step; of a user's own model those of one
    that has a name. On a GPU of this machine in the arithmetic that it has."""
    training = request.training
    named = not settings.is_user_model(training.model)
    kinds = _kinds(request)
    where = labels.device(device)
    math = "float32" if machine and machine.lacks("tf32") else "tf32"
    variants = {"conv": ("--variants", "function", "held"), "matmul": ("--variants", "function")}
    parts = {}
    for op, kind, instead, name in (
        ("conv", "conv", "cifar10-cnn", "its convolutions"),
        ("matmul", "dense", "fashion-mlp", "its dense layers"),
    ):
        if kind not in kinds:
            continue
        model = ("--model", training.model if named else instead)
        sizes = ("--batch", str(training.batch), "--direction", "all")
        kernels = variants[op] if device == "cpu" else ()
        words = (f"workloads.{op}", *model, *sizes, *measuring(op, device, math), *kernels, "--fast")
        parts[op] = _part(op, f"{name} on the {where}", words, device)
    if device != "cpu":
        copies = ("workloads.transfer", "--sizes", "4B:64MiB:x16", "--directions", "h2d", *_on(device))
        parts["transfer"] = _part("transfer", "copies to the GPU", copies, device)
    on_cpu = ("--operations", *_PASSES.split(), "--dtypes", "float32", "--variants", "function")
    passes = on_cpu if device == "cpu" else ()
    stream = ("workloads.stream", *passes, "--sizes", "64KiB:64MiB:x32", *measuring("stream", device, math), "--fast")
    parts["stream"] = _part("stream", f"passes over memory on the {where}", stream, device)
    return parts


def _on(device: str) -> tuple[str, ...]:
    return ("--device", "cpu" if device == "cpu" else "gpu", "--fast")


def _part(workload: str, name: str, words: tuple[str, ...], device: str) -> MeasurablePart:
    return MeasurablePart(name=name, command=words, process=device, seconds=_TIMING_S[workload])


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
    """Measures each part into a folder of its own, NAME-1 and so on, until the budget is spent. Returns the parts that were not
    measured, with the reasons. The first part is begun in any case."""
    failures = []
    with child or Child() as process:
        for number, part in enumerate(parts, 1):
            if number > 1 and part.seconds > budget.left:
                needed = budget.spent + part.seconds
                failures.append(Failure(part=part.name, reason="the time was spent", budget_s=budget.enough(needed)))
                continue
            head = f"{number}/{len(parts)} {part.name}"
            place = folder.with_name(f"{folder.name}-{number}")
            limit = () if part.command[0] == "workloads.training" else ("--stop-after", f"{budget.left:.0f}")
            words = (*part.command, *limit, "-q", "-o", str(place))
            failure = process.measure(part.name, words, budget, functools.partial(_show, say, head))
            if failure:
                failures.append(failure)
    return failures


def _show(say: Callable[[str, float], None], head: str, doing: str, taken_s: float) -> None:
    """Says what is being done, with the number and the name of the part in front."""
    say(f"{head}: {doing}", taken_s)
