"""Times multiply-adds in registers: the arithmetic ceilings of the CPU and the GPU."""

import dataclasses
import itertools
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from workloads import help_screen, options, shared_flags
from workloads.command_line.parsing import CommandParser
from workloads.session import MeasuringPlan
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from workloads.records import Machine, Row

QUESTION = "How fast can the CPU and the GPU compute at most?"
LONG = "Arithmetic ceilings: multiply-adds in registers (FMA, dots, tiles), no memory traffic."
EXAMPLES = ("python -m workloads.peak --dtypes float32", "python -m workloads.peak --fast")

COMMAND = CommandLine(name="peak", question=QUESTION, about=LONG, examples=EXAMPLES, brief_flags=("--dtypes",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeakPlan(MeasuringPlan):
    """The arithmetic whose ceilings to time."""

    command_line = COMMAND
    #: Kinds of arithmetic by name; () for all that a kernel has.
    maths: tuple[str, ...]

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the flags that this command alone takes. Of a help in two parts, -h shows the first and --help both."""
        parser.add_argument(
            "--dtypes",
            metavar="TYPE",
            nargs="+",
            action="extend",
            help=help_screen.help_text(
                "float32 float64 tf32 float16 bfloat16 float8_e4m3",
                rest=" (default: all that this machine has a kernel for)",
            ),
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "PeakPlan":
        """The plan of the typed flags.

        Raises: Usage for an unknown dtype.
        """
        from workloads.harness import plan
        from workloads.records import Settings

        maths = options.words(flags.dtypes)
        with options.usage_errors():
            for math in maths:
                plan.peak_problem(math, Settings(threads=1))  # raises ValueError for arithmetic that is not known
        return cls(measuring=shared_flags.measuring(flags), maths=tuple(maths))

    def rows(self, machine: "Machine") -> "list[Row]":
        """Each kind of arithmetic by every kernel that has it. Arithmetic that was typed and that no kernel has gets the rows
        of all kernels: each is then skipped, with the kernel's reason."""
        from kernels.problems.arrays import MATHS
        from workloads.harness import plan
        from workloads.records import Row, Settings

        on = plan.devices(self.measuring.devices, machine, require_gpu=self.measuring.require_gpu)
        kernels = plan.kernels("peak", self.measuring, on)
        known_maths = itertools.chain.from_iterable(MATHS.values())
        rows = []
        for math in self.maths or known_maths:
            small_problem = plan.peak_problem(math, Settings(threads=1))
            kernels_with_it = [kernel for kernel in kernels if not plan.refusal(kernel, small_problem)]
            if not kernels_with_it and self.maths:
                kernels_with_it = kernels
            for kernel in kernels_with_it:
                for settings in plan.settings(kernel, on, self.measuring):
                    problem = plan.peak_problem(math, settings)
                    rows.append(Row(kernel=kernel.name, problem=problem, settings=settings))
        return rows


parser = PeakPlan.parser
parse = PeakPlan.parse
main = PeakPlan.main
run = PeakPlan.run

if __name__ == "__main__":
    sys.exit(main())
