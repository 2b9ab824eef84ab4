"""Times what several GPUs of one host do with each other: copies between them, sums over all, the same work on all at once."""

import dataclasses
import itertools
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from workloads import options, shared_flags
from workloads.command_line.parsing import CommandParser
from workloads.printing import Lines, number, scaled, timed
from workloads.session import MeasuringPlan, hidden
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from analysis.analysis import Analysis
    from workloads.harness.sweep import Outcome, Workers
    from workloads.records import Machine, Measurement, Row, Run

QUESTION = "How fast do several GPUs of one host work together?"
EXAMPLE = "python -m workloads.peers --fast"
EXAMPLES = (EXAMPLE, "python -m workloads.peers --only copies")
LONG = """Copies from every GPU to every other (both ways and at once), all-reduces over all of them by NCCL and, for small ones,
by a kernel of ours, and the same work on each GPU alone and on all at once. Takes two GPUs or more."""
SIZES = "4KiB:256MiB:x4"
COPIED = ("4B", "256MiB")
VARIANTS = {
    "copies": ("direct", "staged"),
    "all-reduce": ("nccl", "nccl_graph", "one_shot", "one_shot_graph", "one_shot_early_graph"),
}
PARTS = {"copies": "peer", "all-reduce": "collective", "at-once": "at-once"}  # -> the operation of its rows

COMMAND = CommandLine(
    name="peers",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--only", "--sizes"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeersPlan(MeasuringPlan):
    """What the GPUs of a host are to do with each other."""

    command_line = COMMAND
    #: Parts by name: copies, all-reduce, at-once.
    parts: tuple[str, ...]
    #: Kernels by name.
    variants: tuple[str, ...]
    #: Bytes of a copy between two GPUs, rising.
    copied: tuple[int, ...]
    #: Bytes of each GPU's array in an all-reduce, rising.
    summed: tuple[int, ...]
    #: Types of the values in an all-reduce.
    dtypes: tuple[str, ...]

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        parser.add_argument("--only", metavar="PART", nargs="+", action="extend", help=f"only these: {' '.join(PARTS)}")
        parser.add_argument(
            "--sizes",
            metavar="BYTES",
            nargs="+",
            action="extend",
            help=f"bytes of each GPU's array in an all-reduce, like 64KiB, which 64KB and 64k are too ({SIZES})",
        )
        parser.add_argument(
            "--copied",
            metavar="BYTES",
            nargs="+",
            action="extend",
            help=f"bytes of a copy between GPUs ({' '.join(COPIED)})",
        )
        parser.add_argument(
            "--dtypes",
            metavar="TYPE",
            nargs="+",
            action="extend",
            help="float32 float16 bfloat16 (default: float32 and bfloat16)",
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "PeersPlan":
        """Raises: Usage for an unknown part or kernel, and for words that are no sizes."""
        from workloads.harness import plan

        parts = plan.known("part", flags.only, list(PARTS)) or list(PARTS)
        known: list[str] = []
        for part, variants in VARIANTS.items():
            if part in parts:
                known += variants
        return cls(
            measuring=shared_flags.measuring(flags),
            parts=tuple(parts),
            variants=tuple(plan.known("variant", flags.variants, known) or known),
            copied=tuple(options.sizes(flags.copied or COPIED, options.BYTES)),
            summed=tuple(options.sizes(flags.sizes or [SIZES], options.BYTES)),
            dtypes=tuple(options.words(flags.dtypes) or ("float32", "bfloat16")),
        )

    def gpus(self, machine: "Machine") -> list[int]:
        """The numbers of the GPUs that work with each other: those of --device, else all.

        Raises: Usage; Missing where they are fewer than two.
        """
        from workloads.harness import plan
        from workloads.machine import facts

        takes = "every row of peers takes two GPUs or more"
        if not machine.gpus:
            here = f"no GPU here ({facts.gpu_problem()}), and {takes}; suite measures the CPU"
            error = options.Missing(here, "python -m workloads.suite --quick")
            error.is_example = True
            raise error
        named = self.measuring.devices
        devices = plan.devices(named or ("all",), machine, self.measuring.require_gpu)
        numbers = sorted(int(device[4:]) for device in devices if device != "cpu")
        if len(numbers) < 2:
            few = f"there is one, {machine.gpus[0].name}"
            if named and len(machine.gpus) > 1:
                few = f"--device names {len(numbers)}"
            raise options.Missing(f"{takes}: {few}", "python -m workloads.suite --quick")
        return numbers

    def rows(self, machine: "Machine") -> "list[Row]":
        """Copies pair by pair, then sums over all GPUs by type, form and kernel; not what all GPUs do at once, which has a file
        of its own.

        Raises: Usage; Missing without two GPUs.
        """
        gpus = self.gpus(machine)
        rows: list[Row] = []
        if "copies" in self.parts:
            rows += self._copies(gpus)
        if "all-reduce" in self.parts:
            rows += self._sums(gpus)
        return rows

    def rows_by_file(self, machine: "Machine") -> "dict[str, list[Row]]":
        from workloads.harness import concurrent

        by_file = super().rows_by_file(machine)
        if "at-once" in self.parts:
            by_file["at-once"] = concurrent.every_gpu_rows(self.gpus(machine))
        return by_file

    def _copies(self, gpus: list[int]) -> "list[Row]":
        """The rows of copies from every GPU to every other; the largest both ways at once too."""
        from kernels.problems import PeerCopy
        from workloads.records import Row, Settings

        pairs = [pair for pair in itertools.product(gpus, gpus) if pair[0] != pair[1]]
        copies = []
        for nbytes in self.copied:
            copies += [PeerCopy(source, target, nbytes) for source, target in pairs]
        copies += [PeerCopy(source, target, self.copied[-1], 2) for source, target in pairs if source < target]
        rows = []
        for variant in VARIANTS["copies"]:
            if variant not in self.variants:
                continue
            for copy in copies:
                if variant == "direct" or copy.ways == 1:
                    rows.append(Row(f"peer/cupy/{variant}", copy, Settings(f"gpu:{copy.source}")))
        return rows

    def _sums(self, gpus: list[int]) -> "list[Row]":
        """The rows of all-reduces. One-shot kernels have sizes up to ONE_SHOT_BYTES; only plain NCCL has every form."""
        from kernels.problems import ONE_SHOT_BYTES, AllReduce
        from workloads.records import Row, Settings

        every = ",".join(map(str, gpus))
        kernels = [variant for variant in VARIANTS["all-reduce"] if variant in self.variants]
        rows = []
        with options.usage_errors(EXAMPLE):
            for dtype, variant in itertools.product(self.dtypes, kernels):
                forms = AllReduce.FORMS if variant == "nccl" else AllReduce.FORMS[:1]
                for form, nbytes in itertools.product(forms, self.summed):
                    problem = AllReduce(nbytes, every, dtype, form)
                    if variant == "nccl" or nbytes <= ONE_SHOT_BYTES:
                        rows.append(Row(f"collective/cupy/{variant}", problem, Settings(f"gpu:{gpus[0]}")))
        return rows

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        shown: "Callable[[Measurement], None]" = hidden,
        processes: "Workers | None" = None,
    ) -> "Outcome":
        """Measures copies and sums into one file, then every GPU alone and all at once into another beside it."""
        from workloads.harness import concurrent, sweep

        plan = self
        if not self.measuring.output:
            folder = sweep.place("", self.command_line.name, run).parent
            plan = self.with_measuring(output=str(folder))
        gpus = plan.gpus(run.machine)
        if plan.parts == ("at-once",):
            return concurrent.every_gpu(gpus, plan.measuring, run, shown)
        outcome = plan.sweep(run, rows, shown, processes)
        if "at-once" not in plan.parts or outcome.stopped:
            return outcome
        return concurrent.every_gpu(gpus, plan.measuring, run, shown).after(outcome)

    def dry_run(self, rows: "list[Row]", machine: "Machine") -> None:
        by_file = self.rows_by_file(machine)
        super().dry_run(list(itertools.chain(*by_file.values())), machine)

    def operation(self) -> str:
        """The operation of the one part that is measured.

        Raises: Usage for more than one: a table for machines has rows of one.
        """
        if len(self.parts) != 1:
            format_ = self.measuring.format if self.measuring.format in ("csv", "json") else "json"
            tip = f"{EXAMPLES[1]} --format {format_}"
            raise options.Usage("a table for machines has one part; name it with --only", tip)
        return PARTS[self.parts[0]]

    def table(self, machine: "Machine") -> "PeersTable":
        return PeersTable(self.measuring.format == "md")

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints what several GPUs do with each other, in words."""
        from analysis.text import several_gpus

        print("", *several_gpus.lines(analysis.rows), sep="\n")


class PeersTable(Lines):
    """A line a row: µs of a call that is waited for and, for copies and sums, of a queued one. GB/s is the rate of queued
    calls; for a sum it is the bus bandwidth."""

    HEAD = "kernel 26< | what 40< | µs waited 9 | ±% 4 | µs queued 9 | GB/s 7 | notes 5<"
    LEAST = "±% | µs waited"

    def wanted(self, m) -> bool:
        return True

    def cells(self, m) -> list[str]:
        from analysis import labels
        from analysis.roofline.peers import bandwidth
        from analysis.stats import median_of

        p = m.problem
        what = labels.problem(p) + (f" on {m.device}" if p.op == "at-once" else "")
        head = [m.kernel, what]
        if not m.ok:
            return [*head, m.status, "", "", "", m.reason]
        waited, queued = median_of(m.samples[0]), m.on("host-throughput")
        return [
            *head,
            *timed(waited, 1e6),
            scaled(queued and median_of(queued), 1e6),
            number(bandwidth(m).value / 1e9 if p.rated == "bytes_moved" else None),
            " ".join(m.flags),
        ]


parser = PeersPlan.parser
parse = PeersPlan.parse
main = PeersPlan.main
run = PeersPlan.run

if __name__ == "__main__":
    sys.exit(main())
