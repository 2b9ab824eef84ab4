"""`python -m analysis.predict`: everything heavy is imported after parsing."""

import argparse
from typing import TYPE_CHECKING

from workloads import help_screen, options

if TYPE_CHECKING:
    from analysis.predict.plan import Plan

QUESTION = "How long will a training take, and how sure is that?"
EXAMPLE = "python -m analysis.predict --model cifar10-cnn --batch 32 256 --profile nvidia-h200"
LONG = """Predicts what a training takes on the CPU and the GPU from a profile: a machine's microbenchmark rows. Never fitted
on the model that is predicted. --save keeps predictions before they are measured, --check sets them beside what was measured
then."""


def parser() -> options.Parser:
    command = options.parser(
        "analysis.predict",
        LONG,
        EXAMPLE,
        "python -m analysis.predict --check reports/nvidia-h200/predictions-2026-11-21.ndjson reports/nvidia-h200",
        question=QUESTION,
        needs="model batch profile save check",
    )
    options.add(
        command,
        """
--profile RUN ...  result files, run folders or a machine's folder""",
    )
    about = "predictions of FILE beside the trainings of RUN"
    command.add_argument("--check", nargs="+", metavar=("FILE", "RUN"), help=about)
    what = command.add_argument_group("what is trained")
    options.add(
        what,
        """
--model NAME ...    networks by name
--batch N ... =32   samples a step: 32 | 1:2048:x4 (32)
--samples N ...     samples an epoch (the network's own)
--epochs N          epochs (the network's own)
--dtype {float32,float64,uint8} =float32  of the inputs (float32)
--device DEV ...    cpu, gpu:0 (those of the profile)""",
        N=int,
    )
    about = "jit_compile=on, steps_per_execution=16, tf32=off, precision=mixed_bfloat16 ..."
    what.add_argument("--switch", nargs="+", metavar="NAME=TEXT", default=[], help=about)
    saved = help_screen.help_text(
        "append the predictions to FILE, a JSON line each", " (predicted.ndjson; .jsonl is for rows)"
    )
    command.add_argument("--save", metavar="FILE", help=saved)
    return command


def _plan(flags: argparse.Namespace) -> "Plan":
    from analysis.predict.plan import plan_of

    return plan_of(flags)


def _run(plan: "Plan") -> int:
    from analysis.predict.command import run

    return run(plan)


main = options.entry(parser, _plan, _run)


if __name__ == "__main__":
    raise SystemExit(main())
