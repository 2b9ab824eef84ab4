"""Times calls that do almost nothing: what a launch, a library call, a Keras step and a process's start cost."""

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from analysis import units
from kernels import registry
from workloads import help_screen, options, shared_flags
from workloads.command_line.parsing import CommandParser
from workloads.printing import Lines, scaled, timed
from workloads.session import MeasuringPlan
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from analysis.analysis import Analysis
    from workloads.harness.sweep import Outcome
    from workloads.records import Machine, Measurement, Row

QUESTION = "What does a call cost before it does any work?"
EXAMPLES = ("python -m workloads.launch --backends numpy numba", "python -m workloads.launch --calls step epoch --fast")
LONG = """NumPy, Numba, CuPy and TensorFlow calls, GPU launches and graph nodes, a step and an epoch of a Keras model with almost
no work; and what happens once in a process: imports, the device's start, first compilations. The costs of one call, node, step
or epoch are worked out from rows of several counts."""
# call -> how many in a row. Several counts separate the cost of one from the cost of the call around them.
COUNTS = {
    "empty": (1, 64),
    "elementwise": (1, 16, 64),
    "matmul": (1,),
    "copy": (1,),
    "step": (1, 64, 256),
    "epoch": (1, 4, 16),
    "predict": (1, 64),
    "train_on_batch": (1,),
}
FAST_COUNTS = {**COUNTS, "elementwise": (1, 64), "step": (1, 64), "epoch": (1, 8)}
# backend -> what happens once in a process, with its switches. `import tensorflow` brings Keras with it.
ONCE = {
    "numba": (("import", {}), ("compile", {})),
    "cupy": (("import", {}), ("device_start", {}), ("compile", {})),
    "tensorflow": (
        ("import", {}),
        ("device_start", {}),
        ("compile", {"jit_compile": "on"}),
        ("compile", {"jit_compile": "off"}),
    ),
    "keras": (("compile", {"jit_compile": "auto"}),),
}
# Left out with --fast unless named: Keras with another jit_compile than its own choice, nine slow rows each.
NOT_FAST = ("fit_jit", "fit_op_by_op")

COMMAND = CommandLine(name="launch", question=QUESTION, about=LONG, examples=EXAMPLES, brief_flags=("--calls",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchPlan(MeasuringPlan):
    """The calls to time."""

    command_line = COMMAND
    #: Calls by name, those that happen once in a process among them.
    calls: tuple[str, ...]
    #: Whether the calls were named.
    calls_named: bool
    #: How many of a call follow each other in a row, one number after the other; () for those of COUNTS.
    counts: tuple[int, ...]

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the flags that this command alone takes. Of a help in two parts, -h shows the first and --help both."""
        parser.add_argument(
            "--calls",
            metavar="CALL",
            nargs="+",
            action="extend",
            help=help_screen.help_text(
                "empty elementwise matmul copy step epoch predict train_on_batch import device_start compile",
                rest=" (default: all; --fast: of TensorFlow's once-in-a-process calls only the import)",
            ),
        )
        parser.add_argument(
            "--counts",
            metavar="N",
            nargs="+",
            action="extend",
            help="so many of a call in a row (default: by call, 1 and more)",
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "LaunchPlan":
        """The plan of the typed flags.

        Raises: Usage for an unknown call, and for counts that are no numbers.
        """
        from kernels.problems import Launch
        from workloads.harness import plan

        named = plan.known("call", flags.calls, Launch.CALLS)
        return cls(
            measuring=shared_flags.measuring(flags),
            calls=tuple(named or Launch.CALLS),
            calls_named=bool(named),
            counts=tuple(options.sizes(flags.counts)) if flags.counts else (),
        )

    def rows(self, machine: "Machine") -> "list[Row]":
        """The rows of calls that are repeated, by device, kernel, call and count; then of calls that happen once in a process.

        Raises: Usage for an unknown variant; Missing for a backend or device that is named and not here.
        """
        from workloads.harness import plan

        measuring = self.measuring
        on = plan.devices(measuring.devices, machine, require_gpu=measuring.require_gpu)
        # `once` stands for the calls that happen once in a process; other variants are kernels that repeat calls.
        repeated_variants = tuple(variant for variant in measuring.variants if variant != "once")
        kernels = plan.kernels("launch", dataclasses.replace(measuring, variants=repeated_variants), on)
        if measuring.fast and not measuring.variants:
            kernels = [kernel for kernel in kernels if kernel.variant not in NOT_FAST]
        rows: list[Row] = []
        if repeated_variants or not measuring.variants:
            for device in on:
                for kernel in kernels:
                    rows += self._repeated(kernel, device)
        if "once" in measuring.variants or not measuring.variants:
            backends = list(dict.fromkeys(kernel.backend for kernel in kernels))
            for device in on:
                rows += self._once(backends, device, on)
        if not rows:
            raise self._no_such_call(kernels)
        return rows

    def _no_such_call(self, kernels: "list[registry.Kernel]") -> options.Usage:
        """The error for calls that none of the kernels has."""
        backends = " and ".join(dict.fromkeys(kernel.backend for kernel in kernels))
        message = f"no kernel of {backends} has {' or '.join(self.calls)}"
        wrong = "--backends" if self.measuring.backends else "--variants"
        return options.Usage(f"{message}; leave {wrong} out", wrong=wrong)

    def _repeated(self, kernel: registry.Kernel, device: str) -> "Iterator[Row]":
        """The rows of a kernel on a device: every call it has, every count, every number of threads."""
        from kernels.problems import Launch
        from workloads.harness import plan
        from workloads.records import Row

        calls = [call for call in self.calls if call not in Launch.ONCE]
        kernel_calls = getattr(kernel.bind, "calls", calls)  # without `calls` the kernel refuses when the row is timed
        usual_counts = FAST_COUNTS if self.measuring.fast else COUNTS
        for call in calls:
            if call not in kernel_calls:
                continue
            for count in self.counts or usual_counts[call]:
                for settings in plan.settings(kernel, [device], self.measuring):
                    yield Row(kernel=kernel.name, problem=Launch(call=call, count=count), settings=settings)

    def _once(self, backends: list[str], device: str, on: list[str]) -> "Iterator[Row]":
        """The rows of calls that happen once in a process, such as an import, on a device; each is timed in five fresh processes.

        on: all devices that are measured. An import needs none: it has a row on the first that its library can use.
        """
        from kernels.problems import Launch
        from workloads.harness import plan
        from workloads.records import Row, Settings

        for backend in [*backends, "keras"] if "tensorflow" in backends else backends:
            usable_on = [other for other in on if plan.usable(registry.BACKENDS[backend], [other])]
            if device not in usable_on:
                continue
            for call, switches in ONCE.get(backend, ()):
                is_repeated = call == "import" and device != usable_on[0]
                is_framework = backend in registry.FRAMEWORKS
                is_slow = self.measuring.fast and is_framework and call != "import" and not self.calls_named
                if call in self.calls and not is_repeated and not is_slow:
                    yield Row(
                        kernel=f"launch/{backend}/once",
                        problem=Launch(call),
                        settings=Settings(device=device, process="fresh", switches=switches),
                    )

    def table(self, machine: "Machine") -> "LaunchTable":
        return LaunchTable(markdown=self.measuring.format == "md")

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints what one more call, graph node, step or epoch costs: the slope over the numbers in a row."""
        from analysis.roofline import overheads

        constants = overheads.constants(analysis.rows)
        if constants:
            print("\nWhat one of each costs (with its 95 % interval):")
            print(*overheads.table(constants).text(), sep="\n")


class LaunchTable(Lines):
    """A line a row: µs of the whole call (`step x64`: 64 steps together), waited for, queued, only issued, and on the device's
    clock."""

    HEAD = "kernel 19< | call 15< | where 9< | µs in all 9 | ±% 4 | queued 7 | issue 7 | device 7 | notes 5<"
    LEAST = "±% | issue | where | queued | device"

    ABOUT: ClassVar = {"µs in all": "the time of a whole row; of `step x64` that is 64 steps together"}

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a row's line, in the order of HEAD."""
        from analysis.stats import median_of

        p, s = m.problem, m.settings
        call = p.call if p.once else f"{p.call} x{p.count}"
        where = units.count(s.threads, "thread") if s.device == "cpu" and s.threads else s.device
        head = [m.label, call, where]
        if not m.ok:
            return [*head, m.status, "", "", "", "", m.reason]
        clocks = {taken.clock: median_of(taken) for taken in m.samples}
        waited = clocks["host-latency"]
        others = [scaled(clocks.get(clock), 1e6) for clock in ("host-throughput", "host-issue", "device")]
        jit = s.switches.get("jit_compile")
        notes = [f"jit_compile {jit}"] if jit else []
        return [*head, *timed(waited, 1e6), *others, " ".join([*notes, *m.flags])]


parser = LaunchPlan.parser
parse = LaunchPlan.parse
main = LaunchPlan.main
run = LaunchPlan.run

if __name__ == "__main__":
    sys.exit(main())
