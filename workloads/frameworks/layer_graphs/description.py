"""DescribedLayer: a layer and the work of its directions, as a worker answers; and the parent's side, which asks for it."""

import contextlib
import functools

import msgspec

from kernels.problems import LayerCall
from workloads import options
from workloads.frameworks import grid
from workloads.harness import worker
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row, Settings

KERNEL = "layer/keras/chain"
#: Notes of an answer: the layers; of a refusal what to change, the flag that is wrong, and what to type for it.
LAYERS = "layers"
CHANGE = "change"
WRONG = "wrong"
RIGHT = "right"


class DirectionWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a layer in one direction."""

    direction: str
    flops: int
    #: Bytes that go in and come out, each array once.
    bytes_moved: int
    #: FLOPs of its matrix products and convolutions.
    product_flops: int


class DescribedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer, or another part of a training step."""

    #: Its path in the model, or its class.
    path: str
    #: Its class.
    kind: str
    #: Shapes of a sample's inputs.
    input: str
    #: How many of the model's layers are equal to it.
    count: int
    #: The directions that it has.
    directions: tuple[DirectionWork, ...]
    #: Why it lacks others; "" where nothing failed.
    failure: str = ""


class DescribedLayers(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of a model's training step with its other parts, or one layer."""

    layers: tuple[DescribedLayer, ...]
    #: Numbers in a sample's inputs; 0 of a layer alone.
    sample_values: int = 0

    @property
    def step_bytes(self) -> int:
        """Bytes that the forward passes of all layers, the loss and the optimizer's update read and write together."""
        total = 0
        for layer in self.layers:
            for work in layer.directions:
                if work.direction == "fprop":
                    total += layer.count * work.bytes_moved
        return total


class LayerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be described."""

    batch: int
    #: A model, all of whose layers are wanted; "" for one layer alone.
    model: str = ""
    #: The class of that layer.
    layer: str = ""
    #: Its arguments as JSON.
    arguments: str = ""
    #: The shapes of a sample's inputs in words.
    input: str = ""


@functools.cache
def described(requests: tuple[LayerRequest, ...], time_limit_s: float = 120) -> list[DescribedLayers]:
    """The layers of each request with their work, from one child process that traces them.

    time_limit_s: for each request.
    Raises: Usage for a layer or model that cannot be had; Missing without TensorFlow, and when time is up.
    """
    grid.require_keras()
    rows = [_row(request) for request in requests]
    answers = []
    with contextlib.closing(worker.Worker(worker.environment(rows[0], {}))) as tracer:
        for request, row in zip(requests, rows, strict=True):
            measurement = tracer.ask(worker.Order("layers", row, Limits()), time_limit_s)
            if not measurement.ok:
                raise _error_of_failure(measurement, request)
            answers.append(msgspec.json.decode(measurement.notes[LAYERS], type=DescribedLayers))
    return answers


def _row(request: LayerRequest) -> Row:
    """The row that asks a worker to describe a layer, or all layers of a model. What a layer costs is not known yet."""
    problem = LayerCall(
        layer=request.layer,
        kind="",
        direction="fprop",
        batch=request.batch,
        input=request.input,
        arguments=request.arguments,
        model=request.model,
    )
    return Row(KERNEL, problem, Settings())


def _error_of_failure(measurement: Measurement, request: LayerRequest) -> options.Stop:
    """The error that tells the user why a layer or model was not described, and what to type or change.

    measurement: the child's answer, which is not ok.
    """
    reason = measurement.reason
    if measurement.cause in ("time-limit", "not-installed"):
        return options.Missing(f"{request.model or request.layer} cannot be traced: {reason}")
    if request.model:
        change = measurement.notes.get(CHANGE) or f"mend {request.model.partition(':')[0]}"
        return options.Usage(reason, first=change)
    if WRONG not in measurement.notes:
        file = request.layer.partition(":")[0]
        return options.Usage(reason, first=f"mend {file}" if ":" in request.layer else "", tip=None)
    return options.Usage(reason, wrong=measurement.notes[WRONG] or None, right=measurement.notes[RIGHT])
