"""Times Keras trainings on the CPU and the GPU, and sets each step beside the sum of its measured parts."""

import argparse
import sys

from workloads import options

EXAMPLE = "python -m workloads.training --model cifar10-cnn --batch 32 --steps 300"
LONG = """Trains a Keras model on the CPU (the GPU hidden) and on the GPU, in a process for each: milliseconds a step
over warm fits, what the first fit and the start-up cost, and the step's budget from the matrix products measured
beside it."""
STEPS = 300


def parser() -> options.Parser:
    """The command line of python -m workloads.training."""
    made = options.parser("workloads.training", LONG, EXAMPLE)
    made.add_argument("--model", default="cifar10-cnn", metavar="NAME", help="the model to train (cifar10-cnn)")
    made.add_argument("--batch", nargs="+", default=["32"], metavar="N", help="samples a step (32)")
    size = made.add_mutually_exclusive_group()
    size.add_argument("--samples", nargs="+", metavar="N", help="samples an epoch (default: as --steps says)")
    size.add_argument("--steps", type=options.number, metavar="N", help=f"steps an epoch ({STEPS})")
    made.add_argument("--epochs", type=options.number, default=1, metavar="N", help="epochs a fit (1)")
    made.add_argument("--data", choices=("synthetic", "real"), default="synthetic",
                      help="made-up samples of the same shape, or the real ones, downloaded (synthetic)")  # fmt: skip
    options.add_measuring(made)
    return made


def problems(args: argparse.Namespace) -> list:
    """The trainings asked for, by batch and then samples.

    Raises: Usage for an unknown model and for words that are no sizes.
    """
    from kernels import networks
    from kernels.problems import Training

    try:
        networks.find(args.model)
    except ValueError as error:
        raise options.Usage(str(error)) from error
    found = []
    for batch in _sizes(args.batch):
        samples = _sizes(args.samples) if args.samples else [batch * (args.steps or STEPS)]
        found += [Training(args.model, batch, count, args.epochs) for count in samples]
    return found


def _sizes(given) -> list[int]:
    """Sizes from words, or from a number where a function call gave one."""
    return options.sizes([str(v) for v in (given if isinstance(given, (list, tuple)) else [given])])


def rows(args: argparse.Namespace, here) -> list:
    """The trainings on every device; the products for their budget are known when they have run.

    Raises: Usage for a backend or variant that trains nothing; Missing for a device that is not here.
    """
    from workloads import plan
    from workloads.results import Row, Settings

    for flag, known in (("backends", "keras"), ("variants", "fit")):
        if unknown := set(options.words(getattr(args, flag)) or []) - {known}:
            raise options.Usage(f"unknown {flag[:-1]} {min(unknown)!r} for training; known: {known}")
    switches = {"data": args.data}
    threads = options.sizes(args.threads) if args.threads else [None]
    found = []
    for problem in problems(args):
        for device in plan.devices(args, here):
            for count in threads if device == "cpu" else [None]:
                found.append(Row("training/keras/fit", problem, Settings(device, count, switches=switches)))
    return found


def products(here, done: list) -> list:
    """The library products that the steps measured so far are made of and that have no row yet."""
    from analysis import budget
    from workloads.results import Row, Settings

    found = {}
    for m in done:
        if m.problem.op == "training" and m.status == "ok":
            cpu = m.settings.device == "cpu"
            settings = Settings(m.settings.device, (m.settings.threads or here.cores) if cpu else None)
            for problem in budget.gemms(m):
                row = Row("matmul/numpy/blas" if cpu else "matmul/cupy/cublas", problem, settings)
                found[row.key] = row
    return [row for key, row in found.items() if key not in {m.key for m in done}]


def measure(args: argparse.Namespace, command: str, shown=lambda m: None, run=None):
    """Runs the trainings and then their products; the sweep.Outcome.

    Raises: Missing without TensorFlow, or when real data was asked for and cannot be had.
    """
    from workloads import sweep

    require_keras()
    run = run or sweep.header(args, command)
    outcome = sweep.sweep(rows(args, run.machine), args, "training", command, shown,
                          lambda done: products(run.machine, done), run)  # fmt: skip
    lost = [m for m in outcome.measurements if m.reason.startswith("no data:")]
    if lost:
        raise options.Missing(lost[0].reason.removeprefix("no data: "), _synthetic(command))
    return outcome


def require_keras() -> None:
    """Raises Missing, with what installs it, unless Keras and TensorFlow are here; imports neither."""
    import importlib.util

    from kernels.registry import NotInstalled

    if any(importlib.util.find_spec(name) is None for name in ("keras", "tensorflow")):
        said, _, tip = str(NotInstalled("keras")).partition("; install it with: ")
        raise options.Missing(said, tip)


def _synthetic(command: str) -> str:
    return command.replace("--data real", "--data synthetic").replace("--data=real", "--data=synthetic")


def run(**keywords):
    """The rows as a pandas DataFrame; keywords are the flags: run(batch=32, steps=100, device=["cpu"])."""
    from workloads import show

    args = options.namespace(parser(), **{"quiet": True, **keywords})
    return show.frame(measure(args, f"workloads.training.run(**{keywords!r})"), "training")


class Table:
    """A line a training: milliseconds a step, and seconds of what happens once."""

    HEAD = (("model", 12), ("batch", 6), ("steps", 6), ("device", 16), ("ms/step", 8), ("+-%", 5), ("first fit s", 11),
            ("import s", 8), ("start-up s", 10), ("loss", 14), ("notes", 5))  # fmt: skip

    def __init__(self, machine=None):
        self._headed = False

    def shown(self, m) -> None:
        """Prints a training's line; the products of its budget are in the budget."""
        if m.problem.op != "training":
            return
        from workloads.tables import line

        widths = [width for _, width in self.HEAD]
        if not self._headed:
            print(line(list(self.HEAD)))
        self._headed = True
        print(line(list(zip(self.cells(m), widths, strict=True))), flush=True)

    def cells(self, m) -> list[str]:
        from analysis.estimate import of
        from workloads.show import number

        where = m.settings.device + (f" x{m.settings.threads}" if m.settings.threads else "")
        start = [m.problem.model, str(m.problem.batch), str(m.problem.steps), where]
        once = [number(m.phases_s.get(name)) for name in ("first_call", "import", "device_start")]
        losses = m.series.get("loss", ())
        loss = f"{number(losses[0])} to {number(losses[-1])}" if losses else "-"
        if m.status != "ok":
            return [*start, m.status, "-", *once, loss, m.reason]
        step = of(m.on("host-latency"))
        jit = "jit compiled" if m.values.get("jit_compile") else "op by op"
        return [*start, number(step.value * 1e3), number(100 * step.noise, 2), *once, loss, " ".join((jit, *m.flags))]

    def finish(self) -> None:
        """Nothing is held back."""


def session(args: argparse.Namespace, command: str, run=None, alone: bool = False) -> int:
    """The command's body, also as one part of a suite (`run` is then the suite's Run line); the exit code."""
    from workloads import show

    return show.session(args, run, command, "training", rows, measure, Table, _said if alone else lambda outcome: None)


def _said(outcome) -> None:
    from analysis import budget

    print()
    print("\n".join(budget.lines(outcome.measurements)))


def main(argv: list[str] | None = None) -> int:
    command = options.command_line("workloads.training", argv)
    return options.command(parser(), argv, lambda args: session(args, command, alone=True))


if __name__ == "__main__":
    sys.exit(main())
