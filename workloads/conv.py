"""Times the convolutions of a network, or of any shape, on the CPU and the GPU, each way that training needs them."""

import dataclasses
import itertools
import re
import shlex
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from workloads import help_screen, options, printing, shared_flags, terminal
from workloads.command_line.parsing import CommandParser
from workloads.session import MeasuringPlan, print_ladder, rows_around_crossovers
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from analysis.analysis import Analysis
    from kernels.networks import Work
    from kernels.problems import Conv
    from workloads.harness.plan import CallForms
    from workloads.harness.sweep import Outcome
    from workloads.records import Machine, Measurement, Row

QUESTION = "From which size on is a GPU faster at convolutions?"
EXAMPLES = (
    "python -m workloads.conv --model cifar10-cnn --batch 32 --direction all",
    "python -m workloads.conv --vary size --sizes 8:128:x2",
)
LONG = """Convolutions forward (fprop) and backward (dgrad, wgrad) on the CPU (NumPy's BLAS, our tiles in Numba) and the GPU
(cuBLAS, cuDNN), and as TensorFlow runs them (--backends tensorflow): resident on the device and with each kind of
copy, under measured roofs. Over a range of batches, channels or image sizes it ends with the crossover in words."""
VARY = ("batch", "channels", "size")
_SIZES = {"batch": "1:1024:x4", "channels": "4:256:x2", "size": "8:128:x2"}
_BASE = "32x32x32x64:64x3x3"
_MODEL = "cifar10-cnn"  # whose convolutions are timed where nothing else is named

COMMAND = CommandLine(
    name="conv",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--model", "--batch", "--vary"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvPlan(MeasuringPlan):
    """The convolutions to time."""

    command_line = COMMAND
    #: The network whose convolutions are timed; "" of convolutions by shape.
    model: str
    #: The convolutions of its layers, by batch, layer, direction and precision; () of convolutions by shape.
    layers: "tuple[Work, ...]"
    #: The convolutions, each once: those of the layers, else by shape, size, direction and precision.
    problems: "tuple[Conv, ...]"
    #: The size along which a crossover is sought: batch, channels or size; "" for none.
    varies: str
    #: Copy modes, states of the caches, and teaching rungs.
    forms: "CallForms"
    #: Whether sizes are added around a crossover.
    refines: bool

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the flags that this command alone takes. Of a help in two parts, -h shows the first and --help both."""
        parser.add_argument(
            "--model",
            metavar="NAME",
            help=help_screen.help_text(
                "the convolutions of this network's training step, each distinct one once",
                rest=" (cifar10-cnn, unless there are --shapes or --vary)",
            ),
        )
        parser.add_argument(
            "--batch",
            metavar="N",
            nargs="+",
            action="extend",
            help=help_screen.help_text("images a call: 32 | 1:2048:x4", rest=" (32, or as the shape says)"),
        )
        parser.add_argument(
            "--direction",
            metavar="WAY",
            nargs="+",
            action="extend",
            default=["fprop"],
            help="fprop dgrad wgrad all (fprop)",
        )
        _add_shape_flags(parser)
        parser.add_argument(
            "--dtypes",
            metavar="TYPE",
            nargs="+",
            action="extend",
            default=["float32"],
            help="float64 float32 tf32 float16 bfloat16 (default float32)",
        )
        parser.add_argument(
            "--modes",
            metavar="MODE",
            nargs="+",
            action="extend",
            help=f"copy modes on a GPU (default: {' '.join(options.MODES)})",
        )
        parser.add_argument(
            "--cache",
            metavar="STATE",
            nargs="+",
            action="extend",
            default=["warm"],
            help="warm cold: before each call (warm)",
        )
        parser.add_argument(
            "--no-refine", action="store_true", help="only the sizes named, none added around a crossover"
        )
        parser.add_argument(
            "--ladder", action="store_true", help="the teaching rungs too, from seven plain loops upward"
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "ConvPlan":
        """The plan of the typed flags.

        Raises: Usage for what is no convolution, and for an unknown mode or model.
        """
        from workloads.harness import plan

        several_batches = bool(flags.batch) and len(options.sizes(flags.batch)) > 1
        by_shape = flags.model is None and (flags.shapes or flags.vary)
        layers = [] if by_shape else _layers(flags)
        problems: list[Any] = [layer.problem for layer in layers] if layers else _by_shape(flags)
        # The teaching kernels are shown beside the CPU's library for convolutions: oneDNN, which TensorFlow brings.
        tensorflow = "eager" if flags.ladder and not flags.backends else ""
        return cls(
            measuring=shared_flags.measuring(flags),
            model="" if by_shape else flags.model or _MODEL,
            layers=tuple(layers),
            problems=tuple(dict.fromkeys(problems)),
            varies=flags.vary or ("batch" if several_batches else ""),
            forms=plan.call_forms(flags.modes, flags.cache, ladder=flags.ladder, tensorflow=tensorflow),
            refines=not flags.no_refine,
        )

    def rows(self, machine: "Machine") -> "list[Row]":
        """The roofs first, then problem by problem every kernel in every form."""
        from workloads.harness import plan

        return plan.under_roofs("conv", self.problems, forms=self.forms, measuring=self.measuring, here=machine)

    def refine(self, machine: "Machine", done: "list[Measurement]") -> "list[Row]":
        """The rows to add so that the batch, channels or image size from which the GPU wins is known more closely; none where
        nothing varies. done: the rows that have been timed so far."""
        from analysis.crossover import crossover
        from analysis.crossover.forms import COPIES, LATENCY

        if not self.refines or not self.varies:
            return []
        forms = (LATENCY, *COPIES)  # resident calls, and with each kind of copy
        answers = crossover.layer_crossovers(done, "conv", least={self.varies: 2}, forms=forms, machine=machine)
        return rows_around_crossovers(done, answers, op="conv", problem_order=_size_order)

    def table(self, machine: "Machine") -> printing.Printer:
        """A line a convolution, its layers' names first where a model's are timed."""
        from workloads.tables import problem_tables

        return problem_tables.Convs(
            machine,
            names=problem_tables.layer_names(self.layers) if self.layers else None,
            planned=self.problems,
            cold="cold" in self.forms.caches,
            markdown=self.measuring.format == "md",
        )

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints the total time of all layers, and the crossover, in words."""
        from analysis.crossover import crossover
        from analysis.text import answers, crossings

        done, machine = analysis.rows, analysis.machine
        lines = []
        if self.layers:
            lines += answers.together(self.layers, done, f"convolutions of {self.model}")
        if self.varies:
            crossovers = crossover.layer_crossovers(done, "conv", {self.varies: 2}, machine=machine)
            lines += answers.lines(crossovers, done, machine)
            lines += crossings.noise_sentences(crossovers, machine)
        if self.forms.ladder:
            print_ladder(analysis, "conv")
        if lines:
            terminal.show(["", *lines])


def _add_shape_flags(parser: CommandParser) -> None:
    """Adds the flags of convolutions that are not a network's: their shapes, and what of a shape varies."""
    parser.add_argument(
        "--shapes",
        metavar="NxHxWxC:KxRxS",
        nargs="+",
        action="extend",
        help="N images of H x W pixels in C channels, K filters of R x S, such as 32x32x32x3:64x3x3 "
        "(in this order with --layout NCHW too)",
    )
    parser.add_argument("--stride", metavar="N", type=options.number, help="of --shapes (1)")
    parser.add_argument("--pad", metavar="PAD", help="of --shapes: same, valid or the zeros on every side (same)")
    parser.add_argument("--groups", metavar="N", type=options.number, help="of --shapes (1)")
    parser.add_argument(
        "--vary",
        choices=("batch", "channels", "size"),
        help=f"batch, channels (as many in as out) or size (square images) of each shape ({_BASE})",
    )
    parser.add_argument(
        "--sizes",
        metavar="N",
        nargs="+",
        action="extend",
        help=f"what --vary goes through ({', '.join(f'{k} {v}' for k, v in _SIZES.items())})",
    )
    parser.add_argument("--layout", choices=("NHWC", "NCHW"), default="NHWC", help="how images lie in memory (NHWC)")


def _layers(flags: Namespace) -> "list[Work]":
    """The convolutions of the model's training step, in every batch and precision.

    Raises: Usage for an unknown model or direction, and for flags that a model's layers do not take.
    """
    from msgspec.structs import replace

    from workloads.frameworks import grid
    from workloads.harness import plan

    if flags.model is None and flags.sizes:
        raise options.Usage(f"--sizes needs --vary: {', '.join(VARY)}", right="--vary size")
    others = "shapes", "stride", "pad", "groups", "vary", "sizes"
    why = "a model has its own shapes, and --batch its batches"
    options.refuse(flags, others, why if flags.model else f"it is for --shapes; without, {_MODEL}'s layers are timed")
    layers: list[Any] = grid.layers(
        flags.model or _MODEL,
        "conv",
        directions=plan.directions(flags.direction),
        batches=plan.counts(flags.batch, grid.BATCH),
        precisions=plan.precisions(flags.dtypes),
    )
    return [replace(layer, problem=replace(layer.problem, layout=flags.layout)) for layer in layers]


def _by_shape(flags: Namespace) -> "list[Conv]":
    """The convolutions of --shapes, each at every size that --vary goes through, in every direction and precision.

    Raises: Usage for what is no convolution.
    """
    from analysis.crossover import families
    from kernels.problems import Conv
    from workloads.harness import plan

    shapes = plan.shapes(flags.shapes) or [_BASE]
    varies, sizes = _varied(flags)
    groups = flags.groups or 1
    common = {"stride": flags.stride or 1, "pad": _pad(flags.pad), "groups": groups, "layout": flags.layout}
    directions, precisions = plan.directions(flags.direction), plan.precisions(flags.dtypes)
    convolutions = []
    for text, size in itertools.product(shapes, sizes):
        fields: dict[str, Any] = _shape_fields(text)
        filter_channels = fields.pop("filter_channels", None)
        _refuse_images_of_few_rows(text, fields)
        if varies:
            fields |= dict.fromkeys(families.CONV_FIELDS[varies], size)
        if filter_channels not in (None, fields["c_in"] / groups):
            _refuse_channels_first(text, groups)
            in_groups = f" in {flags.groups} groups" if flags.groups else ""
            raise options.Usage(
                f"filters of {filter_channels} channels do not go with images of {fields['c_in']} channels{in_groups}"
            )
        try:
            for direction, (dtype, math) in itertools.product(directions, precisions):
                convolutions.append(Conv(**fields, **common, direction=direction, dtype=dtype, math=math))
        except ValueError as error:
            raise options.Usage(f"at {varies} {size}: {error}" if varies else str(error)) from error
    return convolutions


def _shape_fields(text: str) -> dict[str, int]:
    """The sizes in a shape NxHxWxC:KxRxS or NxHxWxC:KxRxSxC, by the names of a Conv's fields; `filter_channels` is the last C."""
    from workloads.harness import plan

    names = ["n", "h", "w", "c_in", "c_out", "r", "s"]
    pattern = "NxHxWxC:KxRxS"
    if text.count("x") == 6:  # the filters have their channels too
        names.append("filter_channels")
        pattern += "xC"
    return dict(zip(names, plan.shape(text, pattern), strict=True))


def _refuse_channels_first(text: str, groups: int) -> None:
    """Raises Usage for a shape in PyTorch's order, NxCxHxW:KxCxRxS; the error has it in ours, NxHxWxC:KxRxS."""
    n, c, h, w, k, filter_channels, r, s = re.split("[x:]", text.lower())
    if int(c) == groups * int(filter_channels):
        message = f"{text} has the order NxCxHxW:KxCxRxS; here it is NxHxWxC:KxRxS, whatever the layout"
        raise options.Usage(message, wrong=text, right=f"{n}x{h}x{w}x{c}:{k}x{r}x{s}")


def _refuse_images_of_few_rows(text: str, fields: dict[str, int]) -> None:
    """Raises Usage for square images in PyTorch's order, NxCxHxW; the error has them in ours, NxHxWxC. They are recognized by
    having, read in our order, fewer rows than their filters and as many columns as channels.

    text: the shape as it was typed. fields: its sizes read in our order, by the names of a Conv's fields.
    """
    channels = fields["h"]
    size = fields["w"]
    if channels < fields["r"] and size == fields["c_in"]:
        message = f"{text} has the order NxCxHxW; here it is NxHxWxC:KxRxS, whatever the layout"
        images = f"{fields['n']}x{size}x{size}x{channels}"
        filters = f"{fields['c_out']}x{fields['r']}x{fields['s']}"
        raise options.Usage(message, wrong=text, right=f"{images}:{filters}")


def _varied(flags: Namespace) -> tuple[str, list[int] | list[None]]:
    """What is varied (batch, channels or size) and its sizes; "" and [None] where the shapes are taken as they are."""
    if flags.sizes and not flags.vary:
        raise options.Usage(f"--sizes needs --vary: {', '.join(VARY)}", right="--vary size")
    if flags.vary:
        _refuse_batches(flags)
        return flags.vary, options.sizes(flags.sizes or [_SIZES[flags.vary]])
    return ("batch", options.sizes(flags.batch)) if flags.batch else ("", [None])


def _refuse_batches(flags: Namespace) -> None:
    """Raises Usage for --batch where --vary is typed too: the sizes that --vary goes through are typed as --sizes."""
    if not flags.batch:
        return
    if flags.vary == "batch" and not flags.sizes:
        right = shlex.join(["--sizes", *flags.batch])
        raise options.Usage("--sizes has what --vary goes through, also for the batch", wrong="--batch", right=right)
    options.refuse(flags, ["batch"], "--vary says what to go through")


def _pad(text: str | None) -> str | int:
    """The padding of --pad: "same", "valid", or the number of zeros on every side. None, where it is not typed, is "same".

    Raises: Usage for anything else.
    """
    text = "same" if text is None else str(text)
    if text not in ("same", "valid") and not re.fullmatch(r"\d{1,6}", text):
        if text.isdecimal():
            raise options.Usage(f"{text!r} is too large for a padding")
        raise options.Usage(f"{text!r} is no padding; it is same, valid or the zeros on every side")
    return int(text) if text.isdigit() else text


def _size_order(problem: "Conv") -> tuple:
    """A sort key: images, rows of an image, channels in and out, direction."""
    return problem.n, problem.h, problem.c_in, problem.c_out, problem.direction


parser = ConvPlan.parser
parse = ConvPlan.parse
main = ConvPlan.main
run = ConvPlan.run

if __name__ == "__main__":
    sys.exit(main())
