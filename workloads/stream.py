"""Times STREAM's element-wise passes: how fast the memory is, on the CPU and the GPU."""

import argparse
import sys

from workloads import options

EXAMPLE = "python -m workloads.stream --sizes 256MiB --operations triad"


def parser() -> options.Parser:
    """The command line of python -m workloads.stream."""
    made = options.parser("workloads.stream", "Memory bandwidth by STREAM's copy, scale, add and triad on NumPy, Numba and CuPy.",
                          EXAMPLE)  # fmt: skip
    made.add_argument(
        "--sizes", nargs="+", default=["256MiB"], metavar="BYTES", help="bytes of all arrays together (256MiB)"
    )
    made.add_argument(
        "--operations", nargs="+", default=["triad"], metavar="OP", help="copy scale add triad (default triad)"
    )
    made.add_argument(
        "--dtypes", nargs="+", default=["float64"], metavar="TYPE", help="float32 float64 (default float64)"
    )
    options.add_measuring(made)
    return made


def rows(args: argparse.Namespace, here) -> list:
    """The rows of the sweep, by size.

    Raises: Usage for an unknown operation, dtype or size.
    """
    from kernels.problems import Stream
    from workloads import plan
    from workloads.results import Row

    try:
        problems = [Stream(operation, size, dtype) for size in options.sizes(args.sizes)
                    for operation in options.words(args.operations) for dtype in options.words(args.dtypes)]  # fmt: skip
    except ValueError as error:
        raise options.Usage(str(error)) from error
    on = plan.devices(args, here)
    kernels = plan.kernels("stream", args, on)
    return [Row(k.name, p, s) for p in problems for k in kernels for s in plan.settings(k, on, args)]


def measure(args: argparse.Namespace, command: str, shown=lambda m: None, run=None):
    """Runs the sweep that the arguments ask for; the sweep.Outcome."""
    from workloads import sweep

    run = run or sweep.header(args, command)
    return sweep.sweep(rows(args, run.machine), args, "stream", command, shown, run=run)


def run(**keywords):
    """The rows as a pandas DataFrame; keywords are the flags: run(sizes=["64MiB"], operations=["copy"], fast=True)."""
    from workloads import show

    args = options.namespace(parser(), **{"quiet": True, **keywords})
    return show.frame(measure(args, f"workloads.stream.run(**{keywords!r})"), "stream")


def session(args: argparse.Namespace, command: str, run=None) -> int:
    """The command's body, also as one part of a suite (`run` is then the suite's Run line); the exit code."""
    from workloads import show, tables

    return show.session(args, run, command, "stream", rows, measure, tables.Lines)


def main(argv: list[str] | None = None) -> int:
    command = options.command_line("workloads.stream", argv)
    return options.command(parser(), argv, lambda args: session(args, command))


if __name__ == "__main__":
    sys.exit(main())
