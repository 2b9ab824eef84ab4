"""Times each layer of a Keras model by itself, or one layer by name: its forward pass and both gradients."""

import dataclasses
import itertools
import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from workloads import help_screen, options, shared_flags
from workloads.command_line.parsing import CommandParser
from workloads.session import MeasuringPlan, print_no_row, unfinished
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from analysis.analysis import Analysis
    from kernels.problems import LayerCall
    from workloads.frameworks.layer_graphs.description import (
        DescribedLayer,
        DescribedLayers,
        DirectionWork,
        LayerRequest,
    )
    from workloads.harness.sweep import Outcome, Workers
    from workloads.layer.table import LayerTable
    from workloads.records import Machine, Measurement, Row, Run

QUESTION = "What does each layer of a model cost, forward and backward?"
EXAMPLES = (
    "python -m workloads.layer --layer Dense --input 784 --units 500 --fast",
    "python -m workloads.layer --model cifar10-cnn --batch 32",
    "python -m workloads.layer --layer Conv2D --input 32,32,3 --filters 32 --kernel 3",
)
LONG = """Times the layers of a Keras model one by one, or one layer by its class: the forward pass (fprop), the gradient of
the weights (wgrad), that of the input (dgrad) and both at once (backward), each a graph of its own that takes what the forward
pass saved; op by op and compiled by XLA, on the CPU and the GPU. A call's time is the slope between two numbers of calls, one
after the other, in one compiled function. Where a model's step moves more data than the CPU's caches hold, calls op by op take
turns with copies, so that they find weights and saved arrays outside the caches, as the step does. Each is put under its roof;
with several batches it says from which one the GPU wins, and of a model what its layers' sum and the rest of its training step
come to."""
BATCH = 32
JIT = ("off", "on")
_MODEL = "cifar10-cnn"
#: Flags of a layer alone, and the arguments of its class that they are.
_ARGUMENTS = {"filters": "filters", "units": "units", "kernel": "kernel_size"}

COMMAND = CommandLine(
    name="layer",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--model", "--layer", "--input", "--batch"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerPlan(MeasuringPlan):
    """The layers to time."""

    command_line = COMMAND
    #: What is described, batch by batch.
    requests: "tuple[LayerRequest, ...]"
    #: Of a model, the path of the one layer that is timed; "" for all of them and the whole step.
    only: str
    #: The directions that are timed.
    directions: tuple[str, ...]
    #: How they are compiled: off, on.
    jit: tuple[str, ...]

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        parser.add_argument(
            "--model",
            metavar="NAME",
            help=help_screen.help_text(
                "the layers of a model's training step, each distinct one once",
                rest=f": a name, file.py:function or file.keras ({_MODEL}, unless there is a --layer)",
            ),
        )
        parser.add_argument(
            "--layer",
            metavar="NAME",
            help=help_screen.help_text(
                "one layer by its class", rest=": Conv2D or file.py:Class; with --model the layer of that name in it"
            ),
        )
        parser.add_argument(
            "--input",
            metavar="SHAPE",
            nargs="+",
            action="extend",
            help=help_screen.help_text(
                "of a layer alone, a sample's shape: 32,32,3", rest=" or 200:int32; several inputs one after the other"
            ),
        )
        parser.add_argument("--filters", metavar="N", type=options.number, help="of a layer alone: its filters")
        parser.add_argument("--units", metavar="N", type=options.number, help="its units")
        parser.add_argument("--kernel", metavar="SIZE", help="the sides of its window: 3, or 3x5")
        parser.add_argument(
            "--set",
            metavar="ARGUMENT",
            nargs="+",
            action="extend",
            help="any other argument of its class: padding=same strides=2",
        )
        parser.add_argument(
            "--batch", metavar="N", nargs="+", action="extend", help=f"samples a call: 32 | 1:256:x4 ({BATCH})"
        )
        parser.add_argument(
            "--direction", metavar="WAY", nargs="+", action="extend", help="fprop wgrad dgrad all (all)"
        )
        parser.add_argument(
            "--first-layer",
            action="store_true",
            help="of a layer alone: no gradient of its input, which nothing before it needs",
        )
        parser.add_argument(
            "--jit", metavar="WORD", nargs="+", action="extend", help="off (op by op) on (compiled by XLA) (both)"
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "LayerPlan":
        """The plan of a command line.

        Raises: Usage for flags that do not go together, and for words that are no shape or argument.
        """
        from workloads.frameworks import grid
        from workloads.harness import plan

        plan.known("backend", flags.backends, ("keras",), " for layer")
        plan.known("variant", flags.variants, ("chain",), " for layer")
        alone = flags.layer is not None and flags.model is None
        model = "" if alone else grid.known_model(flags.model or _MODEL)
        return cls(
            measuring=shared_flags.measuring(flags),
            requests=tuple(_requests(flags, model, plan.counts(flags.batch, BATCH))),
            only="" if alone else flags.layer or "",
            directions=_directions(flags),
            jit=tuple(plan.known("jit", flags.jit, JIT) or JIT),
        )

    @property
    def model(self) -> str:
        """The model whose layers are timed; "" of a layer alone."""
        return self.requests[0].model

    def rows(self, machine: "Machine") -> "list[Row]":
        """The rows to measure: the ceilings of each device (memory and arithmetic), then layer by layer each direction on each
        device with and without XLA. A whole model also has its training step, for the sum of its layers to be compared with.

        Raises: Usage for a layer that does not build or trace; Missing for a device that is not here.
        """
        from workloads.frameworks.layer_graphs import description
        from workloads.harness import plan
        from workloads.layer import step_rows

        devices = plan.devices(self.measuring.devices, machine, self.measuring.require_gpu)
        described = description.described(self.requests)
        layers: list[Row] = []
        for request, batch_layers in zip(self.requests, described, strict=True):
            layers += self._layer_rows(request, batch_layers, devices=devices, machine=machine)
        maths = dict.fromkeys(row.problem.math for row in layers)
        roofs = plan.roof_rows(maths, devices, machine, threads=self.measuring.threads, fast=self.measuring.fast)
        if not self.model or self.only:
            return [*roofs, *layers]
        values = described[0].sample_values
        return [*roofs, *layers, *step_rows.rows(self.model, values, layers, devices=devices, measuring=self.measuring)]

    def _layer_rows(
        self, request: "LayerRequest", described: "DescribedLayers", *, devices: list[str], machine: "Machine"
    ) -> "list[Row]":
        """The rows of a request's layers, which a child process has described.

        Devices take turns, so that a run that ends early has both sides of its rows.
        """
        from workloads.records import Row, Settings

        step_bytes = described.step_bytes if request.model else 0
        rows: list[Row] = []
        for layer, work in self._chosen(request, described.layers):
            for device, jit in itertools.product(devices, self.jit):
                counts = self.measuring.threads if device == "cpu" else ()
                for threads in counts or (None,):
                    settings = Settings(device, threads=threads, switches={"jit_compile": jit})
                    problem = _problem(request, layer, work, math=_math(device, work, machine), step_bytes=step_bytes)
                    rows.append(Row("layer/keras/chain", problem, settings))
        if not rows:
            raise self._no_direction(request)
        return rows

    def _chosen(
        self, request: "LayerRequest", layers: "tuple[DescribedLayer, ...]"
    ) -> "list[tuple[DescribedLayer, DirectionWork]]":
        """The layers to time, each with one direction that the plan names and the layer has: pairs, layer by layer.

        Raises: Usage for a layer that the model does not have, and for a single layer that cannot be traced by itself.
        """
        paths = [layer.path for layer in layers]
        if self.only and self.only not in paths:
            error = options.unknown("layer", self.only, paths)
            error.is_example = self.only[:1].isupper()  # a class, of which a model may have several layers
            raise error
        chosen = []
        for layer in layers:
            if self.only and layer.path != self.only:
                continue
            if layer.failure and (self.only or not request.model):
                raise options.Usage(f"{layer.path} cannot be traced by itself: {layer.failure}", tip=None)
            chosen += [(layer, work) for work in layer.directions if work.direction in self.directions]
        return chosen

    def _no_direction(self, request: "LayerRequest") -> options.Usage:
        """The error for a request none of whose layers has one of the directions."""
        name = self.only or request.layer or request.model
        lacks = "no weights" if "wgrad" in self.directions else "no input that needs a gradient"
        message = f"{name} has {lacks}, so it has no {' or '.join(self.directions)}"
        return options.Usage(message, wrong="--direction", right="--direction fprop")

    def require_room(self, rows: "list[Row]", machine: "Machine") -> None:
        """Does nothing: each worker raises itself where a layer does not fit into memory."""

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        print_row: "Callable[[Measurement], None]" = print_no_row,
        processes: "Workers | None" = None,
    ) -> "Outcome":
        """As every measuring command's.

        Raises: Missing without TensorFlow.
        """
        from workloads.frameworks import grid

        grid.require_keras()
        return self.sweep(run, rows, print_row, processes)

    def table(self, machine: "Machine") -> "LayerTable":
        from workloads.layer.table import LayerTable

        return LayerTable(machine, self.measuring.format == "md")

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints from which batch the GPU is faster for each layer, and how the sum of a model's layers compares with its
        step."""
        from analysis.text import layer_sums

        lines = unfinished(outcome) + layer_sums.lines(analysis.rows, analysis.machine)
        if lines:
            print("", *lines, sep="\n")


def _problem(
    request: "LayerRequest", layer: "DescribedLayer", work: "DirectionWork", *, math: str, step_bytes: int
) -> "LayerCall":
    """The problem of a layer's row: its layer in one direction. math: its arithmetic. step_bytes: bytes that a step of the whole
    model moves on its forward pass; 0 for a layer by itself."""
    from kernels.problems import LayerCall

    return LayerCall(
        layer=layer.path,
        kind=layer.kind,
        direction=work.direction,
        batch=request.batch,
        input=layer.input,
        arguments=request.arguments,
        model=request.model,
        count=layer.count,
        flops=work.flops,
        bytes_moved=work.bytes_moved,
        step_bytes=step_bytes,
        math=math,
    )


def _math(device: str, work: "DirectionWork", machine: "Machine") -> str:
    """The arithmetic of a layer's products on a device by Keras's default: tf32 on a GPU that has it, else float32. A layer
    without products has none in tf32."""
    uses_tf32 = device != "cpu" and work.product_flops > 0 and not machine.lacks("tf32")
    return "tf32" if uses_tf32 else "float32"


def _directions(flags: Namespace) -> tuple[str, ...]:
    """The directions to time, by the flags --direction and --first-layer: of fprop, wgrad, dgrad and backward.

    Raises: Usage for an unknown direction, and where --first-layer leaves none.
    """
    from kernels.problems import LayerCall
    from workloads.harness import plan

    words = plan.known("direction", flags.direction or ["all"], (*plan.DIRECTIONS, "all"))
    directions = list(LayerCall.DIRECTIONS if "all" in words else words)
    if flags.first_layer:
        directions = [direction for direction in directions if direction not in ("dgrad", "backward")]
        if not directions:
            why = "--first-layer leaves the input's gradient out, which is all that is asked for"
            raise options.Usage(why, wrong="--first-layer")
    return tuple(directions)


def _requests(flags: Namespace, model: str, batches: list[int]) -> "list[LayerRequest]":
    """What a child process has to describe, one request for each batch: all layers of a model, or the layer that the flags name.

    model: "" for a layer by itself.
    Raises: Usage for flags that do not go together, and for words that are no shape or argument.
    """
    from workloads.frameworks.layer_graphs import inputs
    from workloads.frameworks.layer_graphs.description import LayerRequest
    from workloads.records import model_files

    names = ("input", *_ARGUMENTS, "set")
    if model:
        options.refuse(flags, names, "a model's layers have their own shapes and arguments")
        if flags.first_layer:
            raise options.Usage(
                "--first-layer is for a layer alone: a model's first layer is known", wrong="--first-layer"
            )
        return [LayerRequest(batch=batch, model=model) for batch in batches]
    if not flags.input:
        error = options.Usage(f"{flags.layer} alone takes the shape of its input", right="--input 32,32,3")
        error.is_example = True
        raise error
    file = flags.layer.partition(":")[0]
    if file.endswith(".py"):
        model_files.require_source(file)
    shapes = " ".join(inputs.parsed(word).words for word in flags.input)
    arguments = _arguments(flags)
    text = json.dumps(arguments, sort_keys=True) if arguments else ""
    return [LayerRequest(batch=batch, layer=flags.layer, arguments=text, input=shapes) for batch in batches]


def _arguments(flags: Namespace) -> dict[str, Any]:
    """The arguments of a layer's constructor by their names, from flags of their own and from the words NAME=VALUE behind --set.

    Raises: Usage for a word that is not of that form.
    """
    arguments: dict[str, Any] = {}
    for flag, name in _ARGUMENTS.items():
        value = getattr(flags, flag)
        if value is not None:
            arguments[name] = value
    if flags.kernel is not None:
        sides = [options.number(side) for side in flags.kernel.lower().split("x")]
        arguments["kernel_size"] = sides[0] if len(sides) == 1 else sides
    for word in flags.set or ():
        name, equals, value = word.partition("=")
        if not (name.isidentifier() and equals):
            raise options.Usage(f"{word!r} is no argument; one is written NAME=VALUE", wrong=word, right="name=layer")
        arguments[name] = _value(value)
    return arguments


def _value(text: str) -> Any:
    """The value that a text stands for: True, False or None of Python, else JSON; any other text is the value itself."""
    constants = {"True": True, "False": False, "None": None}
    if text in constants:
        return constants[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


parser = LayerPlan.parser
parse = LayerPlan.parse
main = LayerPlan.main
run = LayerPlan.run

if __name__ == "__main__":
    sys.exit(main())
