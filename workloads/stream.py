"""Times STREAM's element-wise passes and those of a training step: how fast the memory is, on the CPU and the GPU."""

import dataclasses
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from analysis import units
from workloads import options, shared_flags
from workloads.command_line.parsing import CommandParser
from workloads.session import MeasuringPlan
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from analysis.analysis import Analysis
    from kernels.problems import Stream
    from workloads.harness.sweep import Outcome
    from workloads.records import Machine, Row

QUESTION = "How fast is the memory of the CPU and of the GPU?"
EXAMPLES = (
    "python -m workloads.stream --sizes 256MiB --operations triad",
    "python -m workloads.stream --sizes 8KiB:1GiB:x4 --fast",
)
# kernels.problems.Stream's, which is too heavy to import for --help; a test holds them together.
OPERATIONS = "copy scale add triad read relu relu_grad dropout maxpool maxpool_grad batchnorm batchnorm_grad sgd adam"
LONG = """Memory bandwidth by STREAM's copy, scale, add and triad on NumPy, Numba and CuPy, and by the passes of a training
step on TensorFlow (--backends tensorflow)."""

COMMAND = CommandLine(
    name="stream",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--sizes", "--operations"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamPlan(MeasuringPlan):
    """The passes over memory to time."""

    command_line = COMMAND
    #: The passes, by size, operation and type.
    problems: "tuple[Stream, ...]"

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        parser.add_argument(
            "--sizes",
            metavar="BYTES",
            nargs="+",
            action="extend",
            default=["256MiB"],
            help="bytes of all arrays together, like 64KiB, which 64KB and 64k are too (256MiB)",
        )
        parser.add_argument(
            "--operations",
            metavar="OP",
            nargs="+",
            action="extend",
            default=["triad"],
            help=f"{OPERATIONS} (default triad)",
        )
        parser.add_argument(
            "--dtypes",
            metavar="TYPE",
            nargs="+",
            action="extend",
            default=["float64"],
            help="float32 float64 (default float64)",
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "StreamPlan":
        """Raises: Usage for an unknown operation, dtype or size."""
        from kernels.problems import Stream

        problems = []
        with options.usage_errors():
            for size in options.sizes(flags.sizes, options.BYTES):
                for operation in options.words(flags.operations):
                    for dtype in options.words(flags.dtypes):
                        problems.append(Stream(operation, size, dtype))
        return cls(measuring=shared_flags.measuring(flags), problems=tuple(problems))

    def rows(self, machine: "Machine") -> "list[Row]":
        """Every kernel that has the pass, size by size.

        Raises: Usage where none of the kernels has any of the passes.
        """
        from kernels.problems import Stream
        from workloads.harness import plan
        from workloads.records import Row

        on = plan.devices(self.measuring.devices, machine, self.measuring.require_gpu)
        kernels = plan.kernels("stream", self.measuring, on, on_request=("tensorflow",))
        refused: dict[tuple[str, str, str], str] = {}
        for problem in self.problems:
            small = Stream(problem.operation, 1 << 20, problem.dtype)
            for kernel in kernels:
                refused[kernel.name, problem.operation, problem.dtype] = plan.refusal(kernel, small)
        rows = []
        for problem in self.problems:
            for kernel in kernels:
                if not refused[kernel.name, problem.operation, problem.dtype]:
                    rows += [Row(kernel.name, problem, how) for how in plan.settings(kernel, on, self.measuring)]
        if not rows:
            operations = dict.fromkeys(problem.operation for problem in self.problems)
            tip = f"python -m workloads.stream --operations {' '.join(operations)} --backends tensorflow"
            reasons = dict.fromkeys(filter(None, refused.values()))
            raise options.Usage("; ".join(reasons) or "no kernel is left", tip)
        return rows

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints the bytes/s on the memory bus with write-allocate: a cache reads each line before it is written. STREAM counts
        only the bytes that a program asks for."""
        from analysis import stats
        from analysis.roofline.roofs import last_cache_bytes

        cache_bytes = last_cache_bytes(analysis.machine, "cpu")
        loops = [m for m in analysis.rows if m.kernel == "stream/numba/loop" and stats.seconds_of(m)]
        beyond_caches = [m for m in loops if m.problem.footprint_bytes > cache_bytes]
        largest = stats.best_by(
            beyond_caches, lambda m: (m.problem.operation, m.problem.dtype, m.threads), lambda m: -m.problem.nbytes
        )
        for (operation, dtype, threads), m in largest.items():
            problem = m.problem
            seconds = stats.call_s(m)
            read, written = problem.WEIGHTS[operation][:2]
            if written:
                counted = problem.bytes_moved / seconds
                what = f"{operation} of {dtype}, {units.size(problem.nbytes)}, {units.count(threads, 'thread')}"
                bus = units.bytes_rate(counted * (read + 2 * written) / (read + written))
                print(
                    f"with write-allocate: {what}: {bus} on the bus, when each line of the output is read before it is "
                    f"written; STREAM counts {units.bytes_rate(counted)}"
                )


parser = StreamPlan.parser
parse = StreamPlan.parse
main = StreamPlan.main
run = StreamPlan.run

if __name__ == "__main__":
    sys.exit(main())
