"""Times the convolutions of a network, or of any shape, on the CPU and the GPU, each way that training needs them."""

import itertools
import re
import sys
from argparse import Namespace
from typing import Any

from workloads import options
from workloads.session import Workload, refined, say

QUESTION = "From which size on is a GPU faster at convolutions?"
EXAMPLES = (
    "python -m workloads.conv --model cifar10-cnn --batch 32 --direction all",
    "python -m workloads.conv --vary size --sizes 8:128:x2",
)
LONG = """Convolutions forward (fprop) and backward (dgrad, wgrad) on the CPU (NumPy's BLAS, our tiles in Numba) and the GPU
(cuBLAS, cuDNN), and as TensorFlow runs them (--backends tensorflow): resident on the device and with each kind of
copy, under measured roofs. Over a range of batches, channels or image sizes it ends with the crossover in words."""
SHAPES = "python -m workloads.conv --shapes 32x32x32x3:64x3x3 --pad same"
VARY = ("batch", "channels", "size")
_SIZES = {"batch": "1:1024:x4", "channels": "4:256:x2", "size": "8:128:x2"}
_BASE = "32x32x32x64:64x3x3"
FLAGS = f"""
--model NAME               the convolutions of this network's training step, each distinct one once (cifar10-cnn, unless
                           there are --shapes or --vary)
--batch N ...              images a call: 32 | 1:2048:x4 (32, or as the shape says)
--direction WAY ... =fprop  fprop dgrad wgrad all (fprop)
--shapes NxHxWxC:KxRxS ...  N images of H x W pixels in C channels, K filters of R x S, such as 32x32x32x3:64x3x3
--stride N                 of --shapes (1)
--pad PAD                  of --shapes: same, valid or the zeros on every side (same)
--groups N                 of --shapes (1)
--vary {{batch,channels,size}}  batch, channels (as many in as out) or size (square images) of each shape ({_BASE})
--sizes N ...              what --vary goes through ({", ".join(f"{k} {v}" for k, v in _SIZES.items())})
--layout {{NHWC,NCHW}} =NHWC  how images lie in memory (NHWC)
--dtypes TYPE ... =float32  float64 float32 tf32 float16 bfloat16 (default float32)
--modes MODE ...           copy modes on a GPU (default: {" ".join(options.MODES)})
--cache STATE ... =warm    warm cold: before each call (warm)
--no-refine                only the sizes named, none added around a crossover
--ladder                   the teaching rungs too, from seven plain loops upward"""


def axis(args: Namespace) -> str:
    """The size along which a crossover is sought: that of --vary, else the batch if there are several; "" for neither."""
    return args.vary or ("batch" if args.batch and len(options.sizes(args.batch)) > 1 else "")


def works(args: Namespace) -> list:
    """The convolutions of the model's step, in every batch and precision asked for; [] where shapes are asked for.

    Raises: Usage.
    """
    from msgspec.structs import replace

    from workloads.frameworks import grid

    if args.model is None and (args.shapes or args.vary):
        return []
    if args.model is None and args.sizes:
        raise options.Usage(f"--sizes needs --vary: {', '.join(VARY)}", right="--vary size")
    others = "shapes", "stride", "pad", "groups", "vary", "sizes"
    options.refuse(args, others, "a model has its own shapes, and --batch its batches")
    args.model = args.model or "cifar10-cnn"
    found: list[Any] = grid.layers(args, "conv")
    return [replace(w, problem=replace(w.problem, layout=args.layout)) for w in found]


def problems(args: Namespace) -> list:
    """The convolutions asked for, each once: by batch, layer and direction, or by shape and size; then by precision.

    Raises: Usage for what is no convolution.
    """
    return list(dict.fromkeys([w.problem for w in works(args)] or _of_shapes(args)))


def _of_shapes(args: Namespace) -> list:
    from analysis.crossover import families
    from kernels.problems import Conv
    from workloads.harness import plan

    bases = [plan.shape(t, "NxHxWxC:KxRxS" + "xC" * (t.count("x") == 6)) for t in plan.shapes(args.shapes) or [_BASE]]
    varies, sizes = _varied(args)
    common = {"stride": args.stride or 1, "pad": _pad(args.pad), "groups": args.groups or 1, "layout": args.layout}
    directions, precisions = plan.directions(args), plan.precisions(args)
    found = []
    for numbers, size in itertools.product(bases, sizes):
        fields: dict[str, Any] = dict(zip(("n", "h", "w", "c_in", "c_out", "r", "s", "c"), numbers, strict=False))
        filter_channels = fields.pop("c", None)
        if varies:
            fields |= dict.fromkeys(families.CONV_FIELDS[varies], size)
        if filter_channels not in (None, fields["c_in"] / common["groups"]):
            raise options.Usage(
                f"filters of {filter_channels} channels do not go with images of {fields['c_in']} channels"
                f"{f' in {args.groups} groups' if args.groups else ''}",
                SHAPES,
            )
        try:
            found += [Conv(**fields, **common, direction=d, dtype=t, math=m) for d in directions for t, m in precisions]
        except ValueError as error:
            raise options.Usage(f"at {varies} {size}: {error}" if varies else str(error), SHAPES) from error
    return found


def _varied(args: Namespace) -> tuple[str, list]:
    """(what is varied, its sizes); ("", [None]) for shapes as they are."""
    if args.sizes and not args.vary:
        raise options.Usage(f"--sizes needs --vary: {', '.join(VARY)}", right="--vary size")
    if args.vary:
        options.refuse(args, ["batch"], "--vary says what to go through")
        return args.vary, options.sizes(args.sizes or [_SIZES[args.vary]])
    return ("batch", options.sizes(args.batch)) if args.batch else ("", [None])


def _pad(text: str | None) -> str | int:
    text = "same" if text is None else str(text)
    if text not in ("same", "valid") and not re.fullmatch(r"\d{1,6}", text):
        raise options.Usage(f"{text!r} is no padding; it is same, valid or the zeros on every side", SHAPES)
    return int(text) if text.isdigit() else text


def rows(args: Namespace, here) -> list:
    """The rows of the sweep on this machine: the roofs first, then problem by problem every kernel in every setting.

    Raises: Usage, Missing.
    """
    from workloads.harness import plan

    # on a CPU the library is oneDNN, which TensorFlow brings
    return plan.under_roofs("conv", problems(args), args, here, "eager" if args.ladder and not args.backends else "")


def refine(args: Namespace, here, done: list) -> list:
    """The rows still needed to pin down each crossover in batch, channels or image size; none where nothing varies."""
    if not (varies := axis(args)):
        return []
    from analysis.crossover import crossover

    forms = (crossover.LATENCY, *crossover.COPIES)
    return refined(done, crossover.layer_crossovers(done, "conv", {varies: 2}, forms, here), "conv", _size)


def _size(p) -> tuple:
    return p.n, p.h, p.c_in, p.c_out, p.direction


def table(args: Namespace, here):
    """Prints a line a convolution, its layers' names first where a model's are asked for."""
    from workloads import tables
    from workloads.harness import plan

    found = works(args)
    named, cold = tables.layer_names(found) if found else None, "cold" in plan.caches(args)
    return tables.Convs(here, named, problems(args), cold, args.format == "md")


def answer(args: Namespace, outcome) -> None:
    """Prints the total time of all layers, and the crossover, in words."""
    from analysis.crossover import crossover
    from analysis.text import answers, crossings

    varies, works_, said = axis(args), works(args), []
    if works_:
        said += answers.together(works_, outcome.measurements, f"convolutions of {args.model}")
    if varies:
        found = crossover.layer_crossovers(outcome.measurements, "conv", {varies: 2}, machine=outcome.run.machine)
        said += answers.lines(found, outcome.measurements, outcome.run.machine)
        said += crossings.noise_sentences(found, outcome.run.machine)
    say(said, args, outcome, "conv")


COMMAND = "conv", QUESTION, LONG, EXAMPLES, "model batch vary", FLAGS
WORKLOAD = Workload(*COMMAND, rows, table, answer, refine)
main, parser, run = WORKLOAD.entry_points

if __name__ == "__main__":
    sys.exit(main())
