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
        """Raises: Usage for an unknown dtype."""
        from workloads.harness import plan
        from workloads.records import Settings

        maths = options.words(flags.dtypes)
        with options.usage_errors():
            for math in maths:
                plan.peak_problem(math, Settings(threads=1))
        return cls(measuring=shared_flags.measuring(flags), maths=tuple(maths))

    def rows(self, machine: "Machine") -> "list[Row]":
        """Every kernel of each kind of arithmetic. One that is named and that no kernel has is refused in its rows, with the
        reason."""
        from kernels.problems.arrays import MATHS
        from workloads.harness import plan
        from workloads.records import Row, Settings

        on = plan.devices(self.measuring.devices, machine, self.measuring.require_gpu)
        kernels = plan.kernels("peak", self.measuring, on)
        every = itertools.chain.from_iterable(MATHS.values())
        rows = []
        for math in self.maths or every:
            small = plan.peak_problem(math, Settings(threads=1))
            able = [kernel for kernel in kernels if not plan.refusal(kernel, small)]
            if not able and self.maths:
                able = kernels
            for kernel in able:
                for how in plan.settings(kernel, on, self.measuring):
                    rows.append(Row(kernel.name, plan.peak_problem(math, how), how))
        return rows


parser = PeakPlan.parser
parse = PeakPlan.parse
main = PeakPlan.main
run = PeakPlan.run

if __name__ == "__main__":
    sys.exit(main())
