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
_SMALL_BYTES = 1 << 20  # of the arrays on which a kernel is asked whether it has an operation
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
    """The operations on arrays in memory, such as copy and triad, to time."""

    command_line = COMMAND
    #: Each operation on arrays of a size and type, by size, operation and type.
    problems: "tuple[Stream, ...]"

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the flags that this command alone takes."""
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
        """The plan of the typed flags.

        Raises: Usage for an unknown operation, dtype or size.
        """
        from kernels.problems import Stream

        problems = []
        with options.usage_errors():
            for size in options.sizes(flags.sizes, options.BYTES):
                for operation in options.words(flags.operations):
                    for dtype in options.words(flags.dtypes):
                        problems.append(Stream(operation=operation, nbytes=size, dtype=dtype))
        return cls(measuring=shared_flags.measuring(flags), problems=tuple(problems))

    def rows(self, machine: "Machine") -> "list[Row]":
        """Problem by problem every kernel that has its operation in its type.

        Raises: Usage where no kernel has any of them.
        """
        from kernels.problems import Stream
        from workloads.harness import plan
        from workloads.records import Row

        on = plan.devices(self.measuring.devices, machine, require_gpu=self.measuring.require_gpu)
        kernels = plan.kernels("stream", self.measuring, on, on_request=("tensorflow",))
        #: (kernel, operation, dtype) -> why the kernel refuses them, "" where it does not. A kernel is called to find out, on
        #: arrays that are small, as the size makes no difference.
        refusals: dict[tuple[str, str, str], str] = {}
        for problem in self.problems:
            small_problem = Stream(operation=problem.operation, nbytes=_SMALL_BYTES, dtype=problem.dtype)
            for kernel in kernels:
                refusals[kernel.name, problem.operation, problem.dtype] = plan.refusal(kernel, small_problem)
        rows: list[Row] = []
        for problem in self.problems:
            for kernel in kernels:
                if refusals[kernel.name, problem.operation, problem.dtype]:
                    continue
                for settings in plan.settings(kernel, on, self.measuring):
                    rows.append(Row(kernel=kernel.name, problem=problem, settings=settings))
        if not rows:
            operations = dict.fromkeys(problem.operation for problem in self.problems)
            tip = f"python -m workloads.stream --operations {' '.join(operations)} --backends tensorflow"
            reasons = dict.fromkeys(reason for reason in refusals.values() if reason)
            raise options.Usage("; ".join(reasons) or "no kernel is left", tip=tip)
        return rows

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints the bytes per second on the memory bus of the CPU's rows that are larger than the caches, with
        write-allocate: a cache reads each line of an output before it is written. STREAM, and the table, count only the bytes
        that a program asks for."""
        from analysis import stats
        from analysis.roofline.roofs import last_cache_bytes

        cache_bytes = last_cache_bytes(analysis.machine, "cpu")
        loops = [m for m in analysis.rows if m.kernel == "stream/numba/loop" and stats.seconds_of(m)]
        beyond_caches = [m for m in loops if m.problem.footprint_bytes > cache_bytes]
        largest = stats.best_by(
            beyond_caches,
            key=lambda m: (m.problem.operation, m.problem.dtype, m.threads),
            cost=lambda m: -m.problem.nbytes,
        )
        for (operation, dtype, threads), m in largest.items():
            problem = m.problem
            seconds = stats.call_s(m)
            arrays = problem.WEIGHTS[operation]  # read and written, in arrays
            if not arrays.written:
                continue
            counted_bytes_per_s = problem.bytes_moved / seconds
            on_bus = (arrays.read + 2 * arrays.written) / (arrays.read + arrays.written)  # bytes for each counted one
            what = f"{operation} of {dtype}, {units.size(problem.nbytes)}, {units.count(threads, 'thread')}"
            print(
                f"with write-allocate: {what}: {units.bytes_rate(counted_bytes_per_s * on_bus)} on the bus, when each line "
                f"of the output is read before it is written; STREAM counts {units.bytes_rate(counted_bytes_per_s)}"
            )


parser = StreamPlan.parser
parse = StreamPlan.parse
main = StreamPlan.main
run = StreamPlan.run

if __name__ == "__main__":
    sys.exit(main())
