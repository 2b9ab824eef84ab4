"""Times matrix products on the CPU and the GPU and says from which size the GPU wins, in which form, and why."""

import argparse
import sys

from workloads import options

EXAMPLE = "python -m workloads.matmul --sizes 64:4096:x2"
LONG = """C = A B on the CPU (NumPy's BLAS, Numba) and the GPU (cuBLAS through CuPy): resident on the device and with each
kind of copy, under measured roofs. Ends with the crossover in words."""


def parser() -> options.Parser:
    """The command line of python -m workloads.matmul."""
    made = options.parser("workloads.matmul", LONG, EXAMPLE)
    made.add_argument("--sizes", nargs="+", metavar="N",
                      help="square sizes: 256 512 | 64:8192:x2 | 512:4096:+512 | 2^6:2^13 (default 64:2048:x2)")  # fmt: skip
    made.add_argument("--shapes", nargs="+", metavar="MxNxK", help="products of other shapes, such as 4096x1024x512")
    made.add_argument("--dtypes", nargs="+", default=["float32"], metavar="TYPE",
                      help="float64 float32 tf32 float16 bfloat16 (default float32)")  # fmt: skip
    made.add_argument(
        "--layout", choices=("nn", "nt", "tn"), default="nn", help="which operand is stored transposed (nn)"
    )
    made.add_argument(
        "--modes", nargs="+", metavar="MODE", help=f"copy modes on a GPU (default: {' '.join(options.MODES)})"
    )
    made.add_argument("--ladder", action="store_true", help="the teaching rungs too, from three plain loops upward")
    options.add_measuring(made)
    return made


def problems(args: argparse.Namespace) -> list:
    """The products asked for, by size and then precision.

    Raises: Usage for a word that is no size, shape or dtype.
    """
    from kernels.problems import Matmul, precision

    shapes = [(n, n, n) for n in options.sizes(args.sizes or ([] if args.shapes else ["64:2048:x2"]))] if (
        args.sizes or not args.shapes) else []  # fmt: skip
    for text in options.words(args.shapes) or []:
        found = options.shape(text)
        if len(found) != 3:
            raise options.Usage(f"{text!r} is not a shape MxNxK", "python -m workloads.matmul --shapes 4096x1024x512")
        shapes.append(found)
    try:
        kinds = [precision(word) for word in options.words(args.dtypes)]
    except ValueError as error:
        raise options.Usage(str(error)) from error
    return [Matmul(m, n, k, dtype, math, layout=args.layout) for m, n, k in shapes for dtype, math in kinds]


def rows(args: argparse.Namespace, here) -> list:
    """The rows of the sweep on this machine: the roofs first, then size by size every kernel in every setting.

    Raises: Usage, Missing.
    """
    from workloads import plan
    from workloads.results import Row

    wanted = problems(args)
    on = plan.devices(args, here)
    modes = options.words(args.modes)
    for mode in modes or []:
        if mode not in options.MODES:
            raise options.Usage(f"unknown mode {mode!r}; known: {', '.join(options.MODES)}")
    kernels = plan.kernels("matmul", args, on, args.ladder)
    used = [d for d in on if any(d.partition(":")[0] in k.devices for k in kernels)]
    found = plan.roof_rows({p.math: None for p in wanted}, used, here, plan.thread_counts(args))
    for problem in wanted:
        for kernel in kernels:
            found += [
                Row(kernel.name, problem, s) for s in plan.settings(kernel, on, args, modes or list(options.MODES))
            ]
    return found


def refine(done: list) -> list:
    """The rows still needed to pin down each crossover of the square sizes: those that won on either side of it.

    At an added size only these run: both sides' best kernels of the bracket, and the resident GPU call that says why.
    """
    from analysis import crossover
    from kernels.problems import Matmul, precision
    from workloads.results import Row, Settings

    tried = {m.key for m in done}
    shapes = {m.problem.n for m in done if isinstance(m.problem, Matmul)}
    found: dict[str, Row] = {}
    for answer in crossover.crossovers(done, [crossover.LATENCY, *crossover.COPIES]):
        for n in crossover.refine(answer, shapes):
            near = sorted(answer.points, key=lambda p: abs(p.n / n - 1))[:2]
            for side in (s for point in near for s in (point.cpu, point.gpu)):
                modes = ["resident"] if side.device == "cpu" else dict.fromkeys([answer.form.mode, "resident"])
                for mode in modes:
                    settings = Settings(device=side.device, threads=side.threads, mode=mode)
                    row = Row(side.kernel, Matmul(n, n, n, *precision(side.math)), settings)
                    found[row.key] = row
    fresh = [row for key, row in found.items() if key not in tried]
    return sorted(
        fresh, key=lambda row: (row.problem.n, row.problem.math != "float32", row.problem.math, row.settings.device)
    )


def measure(args: argparse.Namespace, command: str, shown=lambda m: None, run=None):
    """Runs the sweep that the arguments ask for; the sweep.Outcome."""
    from workloads import sweep

    run = run or sweep.header(args, command)
    return sweep.sweep(rows(args, run.machine), args, "matmul", command, shown, refine, run)


def run(**keywords):
    """The rows as a pandas DataFrame; keywords are the flags: run(sizes=[256, 512], backends=["numpy"], fast=True)."""
    from workloads import show

    args = options.namespace(parser(), **{"quiet": True, **keywords})
    return show.frame(measure(args, f"workloads.matmul.run(**{keywords!r})"), "matmul")


def session(args: argparse.Namespace, command: str, run=None, alone: bool = False) -> int:
    """The command's body, also as one part of a suite (`run` is then the suite's Run line); the exit code."""
    from workloads import show, tables

    return show.session(
        args, run, command, "matmul", rows, measure, tables.Matmuls, _said if alone else lambda outcome: None
    )


def _said(outcome) -> None:
    from analysis import sentences

    print()
    for line in sentences.answer(outcome.measurements, outcome.run.machine):
        print(line)


def main(argv: list[str] | None = None) -> int:
    command = options.command_line("workloads.matmul", argv)
    return options.command(parser(), argv, lambda args: session(args, command, alone=True))


if __name__ == "__main__":
    sys.exit(main())
