"""Times copies between host and device, and on the device: what a call costs, and what its bytes do."""

import dataclasses
import itertools
import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from analysis import units
from analysis.table import shown
from workloads import help_screen, options, shared_flags, terminal
from workloads.command_line.parsing import CommandParser
from workloads.printing import Lines, number, scaled, timed
from workloads.session import MeasuringPlan
from workloads.shared_flags import CommandLine

if TYPE_CHECKING:
    from analysis.analysis import Analysis
    from kernels.problems import Transfer
    from kernels.registry import Kernel
    from workloads.harness.sweep import Outcome
    from workloads.records import Machine, Measurement, Row

QUESTION = "What does it cost to copy data to a GPU and back?"
EXAMPLE = "python -m workloads.transfer --sizes 4KiB:256MiB:x4 --fast"
EXAMPLES = (EXAMPLE, "python -m workloads.transfer --study small-dataset")
LONG = """Copies between host and device, and on the device: latency, bandwidth, what enqueueing one costs, and how well copies
hide behind kernels."""
SIZES = "4B:1GiB:x4"
# Managed memory is measured only when named: the driver moves it at any time, and needs it twice meanwhile.
HOST_MEMORIES = ("pageable", "pinned", "write-combined", "registered")
# The ways of the study, as people copy batches, and the host memories that each takes.
STUDY = {"array": ("pageable", "pinned"), **dict.fromkeys(("asarray", "staged", "constant", "dataset"), ("pageable",))}
_STUDY_HAS = ("sizes", "directions", "host_memory", "overlap")  # flags that a study has its own of
_FLOAT32_BYTES = 4
PIPELINES = "feeding"  # the study of how batches get into Keras's training step

COMMAND = CommandLine(
    name="transfer",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--sizes", "--directions", "--study"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferPlan(MeasuringPlan):
    """The copies to time, or the ways to get a batch into Keras's training step."""

    command_line = COMMAND
    #: small-dataset, feeding or "".
    study: str
    #: The copies by way and size, those with a kernel beside them last; () in the feeding study.
    problems: "tuple[Transfer, ...]"
    #: Types of the values in the feeding study; () in others.
    dtypes: tuple[str, ...]

    @staticmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the flags that this command alone takes. Of a help in two parts, -h shows the first and --help both."""
        parser.add_argument(
            "--sizes",
            metavar="BYTES",
            nargs="+",
            action="extend",
            help=f"bytes of a copy, each way, like 64KiB, which 64KB and 64k are too ({SIZES})",
        )
        parser.add_argument(
            "--directions", metavar="WAY", nargs="+", action="extend", help="h2d d2h d2d both (all four)"
        )
        parser.add_argument(
            "--host-memory",
            metavar="KIND",
            nargs="+",
            action="extend",
            help=f"{' '.join(HOST_MEMORIES)} (these four), managed (only when named; 1 GiB at most)",
        )
        parser.add_argument(
            "--overlap",
            metavar="BYTES",
            nargs="?",
            const="256MiB",
            help="also a copy beside a kernel of its length, alone and overlapped (256MiB)",
        )
        parser.add_argument(
            "--chunks",
            metavar="N",
            nargs="+",
            action="extend",
            default=["32"],
            help="pieces of an overlapped copy (32)",
        )
        parser.add_argument(
            "--streams",
            metavar="N",
            nargs="+",
            action="extend",
            default=["1", "2", "4"],
            help="streams they share (1 2 4)",
        )
        parser.add_argument(
            "--study",
            choices=("small-dataset", "feeding"),
            help=help_screen.help_text(
                "instead of --sizes: the copies of the articles' data sets and batches, by CuPy and by TensorFlow",
                rest="; or what it takes to get a batch into Keras's training step, by every way, on CPU and GPU",
            ),
        )
        parser.add_argument(
            "--dtypes",
            metavar="TYPE",
            nargs="+",
            action="extend",
            help="of what is fed by --study feeding: float32, uint8, float64 (all three)",
        )

    @classmethod
    def from_flags(cls, flags: Namespace) -> "TransferPlan":
        """The plan of the typed flags.

        Raises: Usage for a word that is no size, direction, host memory or type, for what cannot be copied, and for flags of
        rows that a study brings itself.
        """
        if flags.study == PIPELINES:
            options.refuse(flags, (*_STUDY_HAS, "threads"), "--study brings its own rows")
            problems, dtypes = [], _sample_types(flags)
        else:
            options.refuse(flags, ("dtypes",), "copies are of bytes; only --study feeding has types")
            problems, dtypes = _copies(flags), []
        return cls(
            measuring=shared_flags.measuring(flags),
            study=flags.study or "",
            problems=tuple(problems),
            dtypes=tuple(dtypes),
        )

    def rows(self, machine: "Machine") -> "list[Row]":
        """Kernel by kernel and direction by direction the copies of all sizes, from which a latency and a bandwidth are fitted.

        Raises: Usage for --device without a GPU; Missing on a machine without one, which every copy needs.
        """
        if self.study == PIPELINES:
            return self._pipeline_rows(machine)
        from workloads.harness import plan
        from workloads.machine import facts
        from workloads.records import Row

        measuring = self.measuring
        devices = plan.devices(measuring.devices, machine, require_gpu=measuring.require_gpu)
        gpus = [device for device in devices if device != "cpu"]
        why = "every row of transfer copies to or from a GPU"
        if not machine.gpus:
            message = f"no GPU here ({facts.gpu_problem()}), and {why}; stream times the memory of the CPU"
            error = options.Missing(message)
            error.command = "workloads.stream"
            error.is_example = True
            raise error
        if not gpus:
            raise options.Usage(f"{why}; --device names none", tip=f"{EXAMPLE} --device gpu")
        kernels = plan.kernels("transfer", measuring, gpus, on_request=() if self.study else ("tensorflow",))
        if self.study and not measuring.variants:
            kernels = [kernel for kernel in kernels if kernel.variant in STUDY]
        rows: list[Row] = []
        for kernel in kernels:
            for problem in self.problems:
                if self._takes(kernel, problem):
                    for settings in plan.settings(kernel, gpus, measuring):
                        rows.append(Row(kernel=kernel.name, problem=problem, settings=settings))
        return rows

    def _takes(self, kernel: "Kernel", problem: "Transfer") -> bool:
        """Whether a kernel has rows of such a copy: with this kind of host memory, and with or without a kernel that computes
        during the copy."""
        if self.study:
            return problem.host_memory in STUDY.get(kernel.variant, ("pageable",))
        takes = getattr(kernel.bind, "takes", None)
        return takes(problem) if takes else not problem.compute

    def _pipeline_rows(self, machine: "Machine") -> "list[Row]":
        """The rows of --study feeding, of what it takes to get a batch into Keras's training step: by each kind of input
        pipeline on each device; then CuPy's copies of as many bytes to the GPUs.

        Raises: Usage for an unknown device, backend or way; Missing without TensorFlow, and for a device that is not here.
        """
        from kernels.problems import InputPipeline
        from workloads.harness import plan

        measuring = self.measuring
        on = plan.devices(measuring.devices, machine, require_gpu=measuring.require_gpu)
        backends = plan.known("backend", measuring.backends, ("keras", "cupy"), " for feeding") or ["keras", "cupy"]
        pipelines = plan.known("way", measuring.variants, InputPipeline.WAYS) or list(InputPipeline.WAYS)
        rows = []
        if "keras" in backends:
            rows += _keras_rows(on, self.dtypes, pipelines)
        if "cupy" in backends and not measuring.variants:
            rows += _cupy_rows([device for device in on if device != "cpu"])
        if not rows:
            raise options.Missing(
                "CuPy's copies are to a GPU, and none was asked for or is here",
                tip=f"python -m workloads.transfer --study {self.study} --backends keras",
            )
        return rows

    def operation(self) -> str:
        """The operation, feeding or transfer, whose rows csv and json list."""
        return PIPELINES if self.study == PIPELINES else "transfer"

    def table(self, machine: "Machine") -> Lines:
        """Prints a line for each copy, or for each row of the feeding study."""
        markdown = self.measuring.format == "md"
        return PipelineTable(markdown=markdown) if self.study == PIPELINES else TransferTable(markdown=markdown)

    def answer(self, outcome: "Outcome", analysis: "Analysis") -> None:
        """Prints the latency and bandwidth that were fitted to the copies, or the answers of a study."""
        from analysis.crossover import transfer_study
        from analysis.roofline import links
        from analysis.text import input_pipeline

        if self.study == PIPELINES:
            lines = input_pipeline.lines(analysis.rows)
        elif self.study:
            lines = transfer_study.lines(analysis.rows)
        else:
            lines = links.lines(analysis.rows)
        terminal.show(["", *shown(lines)])


def _copies(flags: Namespace) -> "list[Transfer]":
    """The copies by direction, host memory and size; last those of --overlap, during which a kernel computes.

    Raises: Usage for a word that is no size, direction or host memory, and for what cannot be copied.
    """
    from kernels.problems import Transfer

    if flags.study:
        from analysis.crossover import transfer_study

        options.refuse(flags, _STUDY_HAS, "--study brings its own rows")
        copies = []
        for memory in ("pageable", "pinned"):
            copies += [
                Transfer(direction="h2d", nbytes=nbytes, host_memory=memory) for nbytes in transfer_study.sizes()
            ]
        return copies
    directions = options.words(flags.directions) or list(Transfer.DIRECTIONS)
    memories = options.words(flags.host_memory) or list(HOST_MEMORIES)
    sizes = options.sizes(flags.sizes or [SIZES], options.BYTES)
    copies = []
    with options.usage_errors():
        for direction in directions:
            for memory in [""] if direction == "d2d" else memories:
                copies += [Transfer(direction=direction, nbytes=n, host_memory=memory) for n in sizes]
        if flags.overlap:
            nbytes = options.number(flags.overlap, options.BYTES)
            counts = itertools.product(Transfer.COMPUTES, options.sizes(flags.chunks), options.sizes(flags.streams))
            for compute, chunks, streams in counts:
                copies.append(
                    Transfer(
                        direction="h2d",
                        nbytes=nbytes,
                        host_memory="pinned",
                        compute=compute,
                        chunks=chunks,
                        streams=streams,
                    )
                )
    return copies


def _sample_types(flags: Namespace) -> list[str]:
    """The types of the values in the feeding study, such as uint8: those of --dtypes, else all.

    Raises: Usage for an unknown one.
    """
    from analysis.training import pipeline_costs
    from workloads.harness import plan

    return plan.known("type", flags.dtypes, pipeline_costs.DTYPES) or list(pipeline_costs.DTYPES)


def _keras_rows(on: list[str], dtypes: Iterable[str], pipelines: list[str]) -> "list[Row]":
    """The rows of Keras's fit of a model that does next to nothing, so that its input pipeline is all that takes time: for each
    device and type all sizes of a batch by each kind of pipeline.

    on: devices, such as gpu:0. pipelines: kinds by name, such as tf.data.

    Raises: Missing without Keras.
    """
    from analysis.training import pipeline_costs
    from kernels.problems import InputPipeline
    from workloads.frameworks import grid
    from workloads.records import Row, Settings

    grid.require_keras()
    rows = []
    for device in on:
        for dtype in dtypes:
            # Sizes on which the fitted law is tested lie between those that it is fitted to: what changes on the machine during
            # the run then changes both.
            test_sizes = pipeline_costs.TEST_SIZES if dtype == pipeline_costs.DTYPES[0] else ()
            for batch, width in sorted((*pipeline_costs.SIZES, *test_sizes)):
                problem = InputPipeline(batch=batch, width=width, steps=pipeline_costs.steps(batch, width), dtype=dtype)
                for pipeline in pipelines:
                    if pipeline_costs.is_worth_measuring(device, pipeline, dtype):
                        rows.append(Row(kernel=f"feeding/keras/{pipeline}", problem=problem, settings=Settings(device)))
    return rows


def _cupy_rows(gpus: list[str]) -> "list[Row]":
    """The rows of CuPy's copies to each GPU of as many bytes as the float32 batches of the feeding study have."""
    from analysis.training import pipeline_costs
    from kernels.problems import Transfer
    from workloads.records import Row, Settings

    sizes = sorted(
        {_FLOAT32_BYTES * batch * width for batch, width in (*pipeline_costs.SIZES, *pipeline_costs.TEST_SIZES)}
    )
    rows = []
    for device, memory, nbytes in itertools.product(gpus, STUDY["array"], sizes):
        rows.append(
            Row(
                kernel="transfer/cupy/array",
                problem=Transfer(direction="h2d", nbytes=nbytes, host_memory=memory),
                settings=Settings(device),
            )
        )
    return rows


class TransferTable(Lines):
    """Prints a line for each copy: µs of a call that is waited for, µs to enqueue it, and the rate on the device's clock, if
    there is one. The rate of a copy in both directions counts the bytes of both, of one on the device the bytes read and written.
    A kernel's reason to skip copies is printed once."""

    HEAD = "way 4< | host memory 14< | size 9 | kernel 20< | µs waited 9 | ±% 4 | enqueue µs 10 | GB/s 6 | notes 5<"
    LEAST = "±% | enqueue µs | notes"

    def __init__(self, markdown: bool = False):
        super().__init__(markdown)
        self._reasons: set[tuple[str, str]] = set()  # (kernel, reason) that were printed

    def wanted(self, m: "Measurement") -> bool:
        """Whether a row has a line: not where it was skipped and its kernel's reason has been printed."""
        is_new = m.status != "skipped" or (m.kernel, m.reason) not in self._reasons
        self._reasons.add((m.kernel, m.reason))
        return is_new

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a row's line, in the order of HEAD."""
        from analysis import stats

        p = m.problem
        start = [p.direction, p.host_memory or "-", units.size(p.nbytes), m.label]
        if not m.ok:
            return [*start, m.status, "", "", "", m.reason]
        waited = stats.median_of(m.on("host-latency"))
        enqueue_samples = m.on("host-issue")
        enqueued = stats.median_of(enqueue_samples) if enqueue_samples else None
        seconds = stats.seconds_of(m)
        rate = "-"
        if seconds and m.variant != "overlap_compute":  # which moves nothing
            rate = number(p.bytes_moved / seconds.value / 1e9)  # GB/s
        notes = list(m.flags)
        if p.compute:
            overlap = f"{p.compute}, {units.count(p.chunks, 'chunk')}, {units.count(p.streams, 'stream')}"
            notes.insert(0, overlap)
        return [*start, *timed(waited, 1e6), scaled(enqueued, 1e6), rate, " ".join(notes)]


class PipelineTable(Lines):
    """Prints a line for each row: milliseconds of a training step with next to no arithmetic, by its kind of input pipeline and
    the size of its batch."""

    HEAD = "way 14< | where 6< | type 7< | batch 5 | values 6 | bytes 9 | ms a step 9 | ±% 4 | notes 5<"
    LEAST = "±% | values"
    ABOUT: ClassVar = {
        "ms a step": "of Keras's fit around a model that does next to nothing; CuPy's copies are of as many bytes"
    }

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a row's line, in the order of HEAD."""
        from analysis import stats
        from analysis.training import pipeline_costs

        p = m.problem
        if p.op == "transfer":
            start = [f"CuPy, {p.host_memory}", m.device, "-", "-", "-"]
            seconds = stats.seconds_of(m)
        else:
            start = [m.variant, m.device, p.dtype, str(p.batch), str(p.width)]
            seconds = pipeline_costs.step_seconds(m) if m.ok else None
        start.append(units.size(p.nbytes))
        if seconds is None:
            return [*start, m.status, "", m.reason]
        return [*start, *timed(seconds, 1e3), " ".join(m.flags)]


parser = TransferPlan.parser
parse = TransferPlan.parse
main = TransferPlan.main
run = TransferPlan.run

if __name__ == "__main__":
    sys.exit(main())
