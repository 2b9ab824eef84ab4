"""Times fused multiply-adds in registers: the arithmetic ceilings of the CPU and the GPU."""

import argparse
import sys

from workloads import options

EXAMPLE = "python -m workloads.peak --dtypes float32"


def parser() -> options.Parser:
    """The command line of python -m workloads.peak."""
    made = options.parser(
        "workloads.peak", "Arithmetic ceilings: fused multiply-adds in registers, no memory traffic.", EXAMPLE
    )
    made.add_argument(
        "--dtypes", nargs="+", default=["float32", "float64"], metavar="TYPE", help="float32 float64 (default both)"
    )
    options.add_measuring(made)
    return made


def rows(args: argparse.Namespace, here) -> list:
    """The rows of the sweep.

    Raises: Usage for an unknown dtype.
    """
    from workloads import plan
    from workloads.results import Row

    on = plan.devices(args, here)
    kernels = plan.kernels("peak", args, on)
    try:
        return [Row(k.name, plan.peak_problem(math, s), s) for math in options.words(args.dtypes)
                for k in kernels for s in plan.settings(k, on, args)]  # fmt: skip
    except ValueError as error:
        raise options.Usage(str(error)) from error


def measure(args: argparse.Namespace, command: str, shown=lambda m: None, run=None):
    """Runs the sweep that the arguments ask for; the sweep.Outcome."""
    from workloads import sweep

    run = run or sweep.header(args, command)
    return sweep.sweep(rows(args, run.machine), args, "peak", command, shown, run=run)


def run(**keywords):
    """The rows as a pandas DataFrame; keywords are the flags: run(dtypes=["float32"], fast=True)."""
    from workloads import show

    args = options.namespace(parser(), **{"quiet": True, **keywords})
    return show.frame(measure(args, f"workloads.peak.run(**{keywords!r})"), "peak")


def session(args: argparse.Namespace, command: str, run=None) -> int:
    """The command's body, also as one part of a suite (`run` is then the suite's Run line); the exit code."""
    from workloads import show, tables

    return show.session(args, run, command, "peak", rows, measure, tables.Lines)


def main(argv: list[str] | None = None) -> int:
    command = options.command_line("workloads.peak", argv)
    return options.command(parser(), argv, lambda args: session(args, command))


if __name__ == "__main__":
    sys.exit(main())
