"""`python -m analysis.predict`: everything heavy is imported after parsing."""

import argparse
from typing import TYPE_CHECKING

from workloads import help_screen
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

if TYPE_CHECKING:
    from analysis.predict.plan import Plan

QUESTION = "How long will a training take, and how sure is that?"
EXAMPLE = "python -m analysis.predict --model cifar10-cnn --batch 32 256 --profile nvidia-h200"
CHECK_EXAMPLE = (
    "python -m analysis.predict --check reports/nvidia-h200/predictions-2026-11-21.ndjson reports/nvidia-h200"
)
LONG = """Predicts what a training takes on the CPU and the GPU from a profile: a machine's microbenchmark rows. Never fitted
on the model that is predicted. --save keeps predictions before they are measured, --check sets them beside what was measured
then."""


def parser() -> CommandParser:
    """The command line of python -m analysis.predict."""
    command_parser = CommandParser(
        module="analysis.predict",
        description=LONG,
        examples=(EXAMPLE, CHECK_EXAMPLE),
        question=QUESTION,
        brief_flags=("--model", "--batch", "--profile", "--save", "--check"),
    )
    command_parser.add_argument(
        "--profile", metavar="RUN", nargs="+", action="extend", help="result files, run folders or a machine's folder"
    )
    about = "predictions of FILE beside the trainings of RUN"
    command_parser.add_argument("--check", nargs="+", metavar=("FILE", "RUN"), help=about)
    what = command_parser.add_argument_group("what is trained")
    what.add_argument("--model", metavar="NAME", nargs="+", action="extend", help="networks by name")
    what.add_argument(
        "--batch", metavar="N", nargs="+", action="extend", default=["32"], help="samples a step: 32 | 1:2048:x4 (32)"
    )
    what.add_argument("--samples", metavar="N", nargs="+", action="extend", help="samples an epoch (the network's own)")
    what.add_argument("--epochs", metavar="N", type=int, help="epochs (the network's own)")
    what.add_argument(
        "--dtype", choices=("float32", "float64", "uint8"), default="float32", help="of the inputs (float32)"
    )
    what.add_argument("--device", metavar="DEV", nargs="+", action="extend", help="cpu, gpu:0 (those of the profile)")
    about = "jit_compile=on, steps_per_execution=16, tf32=off, precision=mixed_bfloat16 ..."
    what.add_argument("--switch", nargs="+", metavar="NAME=TEXT", default=[], help=about)
    command_parser.add_argument(
        "--save",
        metavar="FILE",
        help=help_screen.help_text(
            "append the predictions to FILE, a JSON line each", rest=" (predicted.ndjson; .jsonl is for rows)"
        ),
    )
    return command_parser


def _plan(flags: argparse.Namespace) -> "Plan":
    from analysis.predict.plan import plan_of

    return plan_of(flags)


def _run(plan: "Plan") -> int:
    from analysis.predict.command import run

    return run(plan)


main = running.main_function(parser, make_plan=_plan, carry_out=_run)


if __name__ == "__main__":
    raise SystemExit(main())
