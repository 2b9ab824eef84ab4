"""Times what several GPUs of one host do with each other: copies between them, sums over all, the same work on all at once."""

import dataclasses
import itertools
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from workloads import options, shared_flags
from workloads.command_line.parsing import CommandParser
from workloads.printing import Lines, number, scaled, timed
from workloads.session import MeasuringPlan, print_no_row
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
        """Adds the flags that this command alone takes."""
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
        """The plan of the typed flags.

        Raises: Usage for an unknown part or kernel, and for words that are no sizes.
        """
        from workloads.harness import plan

        parts = plan.known("part", flags.only, list(PARTS)) or list(PARTS)
        known_variants: list[str] = []
        for part, variants in VARIANTS.items():
            if part in parts:
                known_variants += variants
        return cls(
            measuring=shared_flags.measuring(flags),
            parts=tuple(parts),
            variants=tuple(plan.known("variant", flags.variants, known_variants) or known_variants),
            copied=tuple(options.sizes(flags.copied or COPIED, options.BYTES)),
            summed=tuple(options.sizes(flags.sizes or [SIZES], options.BYTES)),
            dtypes=tuple(options.words(flags.dtypes) or ("float32", "bfloat16")),
        )

    def gpus(self, machine: "Machine") -> list[int]:
        """The numbers of the GPUs that work with each other: those of --device, else all.

        Raises: Usage for an unknown device; Missing where they are fewer than two.
        """
        from workloads.harness import plan
        from workloads.machine import facts

        takes = "every row of peers takes two GPUs or more"
        if not machine.gpus:
            message = f"no GPU here ({facts.gpu_problem()}), and {takes}; suite measures the CPU"
            error = options.Missing(message, tip="python -m workloads.suite --quick")
            error.is_example = True
            raise error
        named = self.measuring.devices
        devices = plan.devices(named or ("all",), machine, require_gpu=self.measuring.require_gpu)
        numbers = sorted(int(device.removeprefix("gpu:")) for device in devices if device != "cpu")
        if len(numbers) < 2:
            reason = f"there is one, {machine.gpus[0].name}"
            if named and len(machine.gpus) > 1:
                reason = f"--device names {len(numbers)}"
            raise options.Missing(f"{takes}: {reason}", tip="python -m workloads.suite --quick")
        return numbers

    def rows(self, machine: "Machine") -> "list[Row]":
        """The copies between each two GPUs, then the all-reduces over all GPUs. What all GPUs do at once is not among them, as
        it has a result file of its own.

        Raises: Usage for an unknown device; Missing without two GPUs.
        """
        gpus = self.gpus(machine)
        rows: list[Row] = []
        if "copies" in self.parts:
            rows += self._copies(gpus)
        if "all-reduce" in self.parts:
            rows += self._sums(gpus)
        return rows

    def rows_by_file(self, machine: "Machine") -> "dict[str, list[Row]]":
        """Name of a result file -> its rows: `peers`, and `at-once` of what all GPUs do at once."""
        from workloads.harness import concurrent

        by_file = super().rows_by_file(machine)
        if "at-once" in self.parts:
            by_file["at-once"] = concurrent.every_gpu_rows(self.gpus(machine))
        return by_file

    def _copies(self, gpus: list[int]) -> "list[Row]":
        """The rows of copies from each GPU to each other one, and of the largest copy in both directions at the same time.

        gpus: their numbers.
        """
        from kernels.problems import PeerCopy
        from workloads.records import Row, Settings

        pairs = list(itertools.permutations(gpus, 2))
        copies = []
        for nbytes in self.copied:
            copies += [PeerCopy(source=source, target=target, nbytes=nbytes) for source, target in pairs]
        copies += [
            PeerCopy(source=source, target=target, nbytes=self.copied[-1], ways=2)
            for source, target in pairs
            if source < target
        ]
        # Only a direct copy runs in both directions at once.
        rows = []
        for variant in VARIANTS["copies"]:
            if variant not in self.variants:
                continue
            for copy in copies:
                if variant == "direct" or copy.ways == 1:
                    rows.append(
                        Row(kernel=f"peer/cupy/{variant}", problem=copy, settings=Settings(f"gpu:{copy.source}"))
                    )
        return rows

    def _sums(self, gpus: list[int]) -> "list[Row]":
        """The rows of all-reduces, sums of an array over all GPUs. One-shot kernels take arrays up to ONE_SHOT_BYTES; only plain
        NCCL is timed in every form, in place and out of place.

        gpus: their numbers.

        Raises: Usage for a type that has no all-reduce.
        """
        from kernels.problems import ONE_SHOT_BYTES, AllReduce
        from workloads.records import Row, Settings

        all_gpus = ",".join(map(str, gpus))
        kernels = [variant for variant in VARIANTS["all-reduce"] if variant in self.variants]
        rows = []
        with options.usage_errors(EXAMPLE):
            for dtype, variant in itertools.product(self.dtypes, kernels):
                forms = AllReduce.FORMS if variant == "nccl" else AllReduce.FORMS[:1]
                for form, nbytes in itertools.product(forms, self.summed):
                    problem = AllReduce(nbytes=nbytes, gpus=all_gpus, dtype=dtype, form=form)
                    if variant == "nccl" or nbytes <= ONE_SHOT_BYTES:
                        rows.append(
                            Row(
                                kernel=f"collective/cupy/{variant}",
                                problem=problem,
                                settings=Settings(f"gpu:{gpus[0]}"),
                            )
                        )
        return rows

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        print_row: "Callable[[Measurement], None]" = print_no_row,
        processes: "Workers | None" = None,
    ) -> "Outcome":
        """Measures copies and all-reduces into one file, then each GPU alone and all at once into another in the same folder."""
        from workloads.harness import concurrent, sweep

        plan = self
        if not self.measuring.output:
            folder = sweep.place("", self.command_line.name, run).parent
            plan = self.with_measuring(output=str(folder))
        gpus = plan.gpus(run.machine)
        if plan.parts == ("at-once",):
            return concurrent.every_gpu(gpus, plan.measuring, run, print_row)
        outcome = plan.sweep(run, rows, print_row, processes)
        if "at-once" not in plan.parts or outcome.stopped:
            return outcome
        return concurrent.every_gpu(gpus, plan.measuring, run, print_row).after(outcome)

    def dry_run(self, rows: "list[Row]", machine: "Machine") -> None:
        """Prints the rows of all result files, and how long they take."""
        by_file = self.rows_by_file(machine)
        super().dry_run(list(itertools.chain(*by_file.values())), machine)

    def operation(self) -> str:
        """The operation of the one part that is measured, whose rows csv and json list.

        Raises: Usage for more than one part, as csv and json have the rows of one operation.
        """
        if len(self.parts) != 1:
            format_ = self.measuring.format if self.measuring.format in ("csv", "json") else "json"
            tip = f"{EXAMPLES[1]} --format {format_}"
            raise options.Usage("a table for machines has one part; name it with --only", tip=tip)
        return PARTS[self.parts[0]]

    def table(self, machine: "Machine") -> "PeersTable":
        return PeersTable(markdown=self.measuring.format == "md")

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints how fast GPUs copy to each other and add up arrays, and how much they slow each other down."""
        from analysis.text import several_gpus

        print("", *several_gpus.lines(analysis.rows), sep="\n")


class PeersTable(Lines):
    """Prints a line for each row: µs of a call that is waited for and, of copies and all-reduces, of one of many queued calls.
    GB/s is the rate of queued calls; of an all-reduce it is NCCL's bus bandwidth."""

    HEAD = "kernel 26< | what 40< | µs waited 9 | ±% 4 | µs queued 9 | GB/s 7 | notes 5<"
    LEAST = "±% | µs waited"

    def wanted(self, m: "Measurement") -> bool:
        """Every row has a line, a skipped one too."""
        return True

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a row's line, in the order of HEAD."""
        from analysis import labels
        from analysis.roofline.peers import bandwidth
        from analysis.stats import median_of

        p = m.problem
        what = labels.problem(p) + (f" on {m.device}" if p.op == "at-once" else "")
        head = [m.kernel, what]
        if not m.ok:
            return [*head, m.status, "", "", "", m.reason]
        waited = median_of(m.samples[0])
        queued_samples = m.on("host-throughput")
        queued = median_of(queued_samples) if queued_samples else None
        return [
            *head,
            *timed(waited, 1e6),
            scaled(queued, 1e6),
            number(bandwidth(m).value / 1e9 if p.rated == "bytes_moved" else None),
            " ".join(m.flags),
        ]


parser = PeersPlan.parser
parse = PeersPlan.parse
main = PeersPlan.main
run = PeersPlan.run

if __name__ == "__main__":
    sys.exit(main())
