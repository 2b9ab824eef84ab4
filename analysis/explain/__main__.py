"""`python -m analysis.explain`: everything heavy is imported after parsing."""

import argparse
import re
import sys
from typing import TYPE_CHECKING

from workloads import help_screen, options, stored_runs
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser, typed_command_line

if TYPE_CHECKING:
    from analysis.explain.plan import ExplainPlan

QUESTION = "Is a GPU worth it for my model, and why?"
EXAMPLES = (
    "python -m analysis.explain --case S4 nvidia-h200",
    "python -m analysis.explain train.py -- --lr 0.1",
    "python -m analysis.explain --model file.py:function --batch 32 --measure",
)
LONG = """Says of a training on the CPU and the GPU who finishes first, why, from where that changes, and what would help. The
training is your own script's, run up to its first fit (train.py; its arguments follow --), your own model's (--model), an
article's (--case S0 S1a S1b S2 S3a S3b S3c S3d S3e S4) or a real complaint's (--case keras-249 and others; an unknown one lists
them). It reads the rows of RUN and times nothing, but for --measure and --verify."""
FORMATS = ("table", "md", "json")
INPUTS = ("numpy", "tf.data", "generator", "prefetch")
DESCRIBING_S = 60
_VERIFIED = 3  # changes


def price(text: str) -> float:
    """The price of an hour as it may be typed: `3.5`, `3,50`, `$3`, `2 EUR/h`. The currency is left out.

    Raises: Usage for what is no price, and for `3,500`, which may be 3500 or 3.5.
    """
    match = re.fullmatch(
        r"[$€£]?\s*(\d{1,9}(?:[.,]\d{1,6})?)\s*(?:[$€£]|usd|eur|gbp)?\s*(?:/?\s*h(?:our)?)?", text.lower()
    )
    if not match:
        error = options.Usage(f"{text!r} is no price of an hour; write it like 3.50", wrong=text, right="3.50")
        error.is_example = True
        raise error
    if re.search(r",\d{3}$", match[1]):
        whole = match[1].replace(",", "")
        raise options.Usage(f"{text!r} may be {whole} or {match[1].replace(',', '.')}", wrong=match[1], right=whole)
    return float(match[1].replace(",", "."))


def count_or_share(text: str) -> int | float:
    """A whole number; or a float below 1 where a share was typed in its place, such as `0.2` or `20%`, so that an error can say
    the number.

    Raises: Usage for anything else.
    """
    match = re.fullmatch(r"0?(\.\d{1,9})|(\d{1,2}(?:\.\d{1,6})?) ?%", text)
    share = float(match[1] or 0) or float(match[2] or 0) / 100 if match else 0.0
    return share or options.number(text)


def parser() -> CommandParser:
    """The command line of python -m analysis.explain."""
    command_parser = CommandParser(
        module="analysis.explain",
        description=LONG,
        examples=EXAMPLES,
        question=QUESTION,
        brief_flags=("--model", "--case", "--batch", "--samples", "--epochs", "--gpu-profile", "--measure", "--all"),
        passes_on=True,
    )
    command_parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help=help_screen.help_text(
            "your training script (train.py, train.ipynb), run up to its first fit",
            rest="; a result file, a run folder or a machine folder "
            f"(default: this machine's runs, in {stored_runs.local_folder()})",
        ),
    )
    _add_training_flags(command_parser)
    _add_device_flags(command_parser)
    _add_output_flags(command_parser)
    return command_parser


def _add_training_flags(command_parser: CommandParser) -> None:
    """Adds the flags that choose the training, and those that change it."""
    what = command_parser.add_argument_group("what to explain")
    what.add_argument(
        "-m", dest="module", metavar="NAME", help="a training script as `python -m` runs it: package.train"
    )
    what.add_argument("--case", metavar="ID", help="S0, keras-249 and others, or all")
    what.add_argument("--model", metavar="NAME", help="a name, file.py:function or file.keras")
    what.add_argument(
        "--fit",
        metavar="PLACE",
        help="the line of another fit of your script than its first; 3.2: line 2 of a notebook's third code cell",
    )
    what.add_argument(
        "--data",
        metavar="NAME",
        help="file.py:function that gives your model's (x, y), tf.data.Dataset, PyDataset or generator (made up)",
    )
    what.add_argument(
        "--length",
        metavar="N",
        type=options.number,
        help="the length of your model's open sizes, such as words in a text",
    )
    what.add_argument("--batch", metavar="N", type=options.number, help="samples a step (32)")
    what.add_argument(
        "--samples",
        metavar="N",
        type=options.number,
        help=help_screen.help_text("samples an epoch", rest=" (the script's or the model's own; such as 50000)"),
    )
    what.add_argument(
        "--epochs",
        metavar="N",
        type=options.number,
        help=help_screen.help_text("epochs", rest=" (the script's or the model's own; such as 10)"),
    )
    what.add_argument(
        "--validation",
        metavar="COUNT",
        type=count_or_share,
        help="samples evaluated after each epoch, such as 10000 (the script's, or none)",
    )
    what.add_argument("--input", choices=INPUTS, help="how the samples reach the fit (numpy)")
    what.add_argument("--dtype", choices=("float32", "float64", "uint8"), help="of the samples (float32)")
    what.add_argument("--jit", choices=("auto", "on", "off"), help="XLA, by compile()'s jit_compile (auto)")
    what.add_argument("--steps-per-execution", metavar="N", type=options.number, help="as given to compile() (1)")
    what.add_argument("--tf32", choices=("on", "off"), help="TF32 on a GPU (on)")
    what.add_argument(
        "--precision", choices=("float32", "mixed_bfloat16", "mixed_float16"), help="Keras's dtype policy (float32)"
    )


def _add_device_flags(command_parser: CommandParser) -> None:
    """Adds the flags of the machines that are compared, their prices, and the time that describing the training may take."""
    machines = command_parser.add_argument_group("with what")
    machines.add_argument("--gpu-profile", metavar="RUN", help="take the GPU from the rows of another machine")
    machines.add_argument(
        "--price-gpu", metavar="MONEY", type=price, help="an hour of the machine with the GPU: 3.50, $3 or 3,50"
    )
    machines.add_argument("--price-cpu", metavar="MONEY", type=price, help="an hour of the machine without it")
    machines.add_argument(
        "--time-limit",
        metavar="S",
        type=options.positive,
        default=str(DESCRIBING_S),
        help=f"seconds that building your model, or your script up to fit, may take ({DESCRIBING_S})",
    )


def _add_output_flags(command_parser: CommandParser) -> None:
    """Adds the flags of what is done and printed beyond the answer."""
    more = command_parser.add_argument_group("more than an answer")
    more.add_argument(
        "--all", action="store_true", help="everything behind the answer: parts, crossovers, memory, cost, all changes"
    )
    more.add_argument("--measure", action="store_true", help="first measure here what the answer lacks")
    more.add_argument(
        "--budget",
        metavar="S",
        type=options.positive,
        default="90",
        help="seconds that its clocks may run, after compilation; up to threefold while it gets somewhere (90)",
    )
    more.add_argument(
        "--wait-quiet",
        action="store_true",
        help="before measuring, wait until other programs use little of the CPUs, at most 10 minutes",
    )
    more.add_argument("--format", choices=FORMATS, default="table", help="what stdout gets (table)")
    more.add_argument(
        "--how", metavar="N", type=options.number, help="the code of the answer's change N, such as 1, before and after"
    )
    more.add_argument(
        "--verify",
        metavar="N",
        nargs="?",
        type=options.number,
        const=_VERIFIED,
        help=f"measure the N best changes here, beside what was predicted ({_VERIFIED})",
    )


#: What more to do with an answer.
_MORE_TO_DO = ("--all", "--measure", "--budget", "--wait-quiet", "--verify", "--how")


def main(argv: list[str] | None = None) -> int:
    return running.run_command(parser(), argv, make_plan=lambda flags: _plan(flags, argv), carry_out=_run)


def _plan(flags: argparse.Namespace, argv: list[str] | None) -> "ExplainPlan":
    from analysis.explain.plan import ExplainPlan

    return ExplainPlan.from_flags(flags, _typed_command(argv))


def _run(plan: "ExplainPlan") -> int:
    from analysis.explain.command import run

    return run(plan)


def _typed_command(argv: list[str] | None) -> str:
    """The command as it was typed, without a script's own words and the flags that say what more to do with its answer."""
    grammar = parser().grammar()
    typed_words, _ = grammar.split(sys.argv[1:] if argv is None else argv)
    words = grammar.without(typed_words, _MORE_TO_DO)
    return options.typed(typed_command_line("analysis.explain", words))


if __name__ == "__main__":
    raise SystemExit(main())
