"""The command lines of measuring commands: the flags that all of them share, and the record that these are read into. Standard
library only."""

import argparse
import dataclasses
import os
import re
from argparse import Namespace
from collections.abc import Sequence

from workloads import help_screen, options, stored_runs
from workloads.command_line.parsing import CommandParser


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long a row is timed: in several visits, between which the other rows are timed."""

    #: Seconds of a visit on each clock, or one call where that is longer.
    visit_s: float = 0.075
    #: Visits of each row.
    rounds: int = 5
    #: Rows whose interval's half-width is above this share of the median get more visits.
    max_noise: float = 0.01
    #: Seconds after which what is timed in one go, such as a training, is not begun again.
    max_time: float = 2.0
    #: A training whose steps take more seconds is timed in epochs of a few steps; None: in the row's own epochs.
    slow_step_s: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measuring:
    """The flags that every measuring command takes: where to measure, how, and what is done with the rows."""

    #: The command as it was typed, for the record and for the line that resumes it.
    command: str
    #: Devices by name: cpu, gpu, gpu:1, all; () for the CPU and the first GPU.
    devices: tuple[str, ...] = ()
    #: Libraries by name; () for all that are here.
    backends: tuple[str, ...] = ()
    #: Kernels by name; () for all but the teaching rungs.
    variants: tuple[str, ...] = ()
    #: Numbers of CPU threads, rising; () for 1, 2, 4, ... all, or what a framework takes by itself.
    threads: tuple[int, ...] = ()
    #: Whether a machine without a GPU is an error.
    require_gpu: bool = False
    #: How long a row is timed.
    limits: Limits = Limits()
    #: Whether a quick look is enough, with fewer rows too.
    fast: bool = False
    #: Whether each visit has a process of its own.
    rigorous: bool = False
    #: Seed of the data and of the order.
    seed: int = 1
    #: Whether to wait first until other programs use little of the CPUs.
    wait_quiet: bool = False
    #: Whether the plan is printed and nothing is measured.
    dry_run: bool = False
    #: Seconds after which no visit begins; None for no limit.
    stop_after_s: float | None = None
    #: Whether a run that is there is finished: the newest of this plan, or the one in `output`.
    resume: bool = False
    #: What stdout gets, one of options.FORMATS.
    format: str = "table"
    #: Folder of the result file; "" for a new one in reports/local.
    output: str = ""
    #: Name of the baseline that the rows are kept as; None for none.
    save: str | None = None
    #: Baseline or run to compare with; None for none.
    against: str | None = None
    #: The share by which a row must be slower to count as a regression; None where none counts.
    fail_on: float | None = None
    #: Whether stderr gets no progress.
    quiet: bool = False
    #: Whether stderr gets a line for each row.
    verbose: bool = False

    @property
    def workload(self) -> str:
        """The last part of the command's module, such as matmul, which is also the name of its result file."""
        _, _, module, *_ = self.command.split()
        return module.rpartition(".")[2]


_MOST_THREADS = ("max", "maximum", "all", "full")  # words for as many threads as there are CPUs
FINE = Limits()
FAST = Limits(visit_s=0.025, rounds=3, max_noise=0.05, max_time=0.25, slow_step_s=0.1)
RIGOROUS_ROUNDS = 10
#: The flags of every measuring command that -h shows.
_SHARED_BRIEF_FLAGS = ("--device", "--fast", "--dry-run", "--format", "--output")


def add_measuring_flags(parser: CommandParser) -> None:
    """Adds the flags that every workload shares."""
    _add_device_flags(parser)
    _add_timing_flags(parser)
    _add_output_flags(parser)


def _add_device_flags(parser: CommandParser) -> None:
    """Adds the flags of what is measured: libraries, devices, kernels and threads."""
    where = parser.add_argument_group("what to run, and where")
    where.add_argument(
        "--backends", metavar="NAME", nargs="+", action="extend", help="which libraries (default: all that are here)"
    )
    where.add_argument(
        "--device",
        metavar="DEV",
        nargs="+",
        action="extend",
        help=help_screen.help_text("cpu, gpu, gpu:1, all", rest=" (default: CPU and first GPU)"),
    )
    where.add_argument(
        "--variants", metavar="NAME", nargs="+", action="extend", help="only these kernels, teaching rungs among them"
    )
    where.add_argument(
        "--threads",
        metavar="N",
        nargs="+",
        action="extend",
        help="CPU threads (default: 1, 2, 4, ... all; what a framework takes by itself)",
    )
    where.add_argument("--require-gpu", action="store_true", help="exit 3 when there is no GPU")


def _add_timing_flags(parser: CommandParser) -> None:
    """Adds the flags of how long and how often a row is timed."""
    how = parser.add_argument_group("how to measure")
    how.add_argument(
        "--min-time",
        metavar="S",
        type=options.positive,
        help=f"seconds of each of a row's {FINE.rounds} visits ({FINE.visit_s})",
    )
    how.add_argument(
        "--max-noise",
        metavar="F",
        type=_noise,
        help=f"more visits of a row until its interval is within this share of its time ({FINE.max_noise})",
    )
    how.add_argument(
        "--max-time",
        metavar="S",
        type=options.positive,
        help=f"but none once its calls have taken so many seconds ({FINE.max_time}); a training takes longer",
    )
    one_pace = how.add_mutually_exclusive_group()
    one_pace.add_argument(
        "--fast",
        action="store_true",
        help=help_screen.help_text(f"a quick look: {FAST.rounds} visits, 5 %% noise", rest="; 1 and all threads"),
    )
    one_pace.add_argument(
        "--rigorous",
        action="store_true",
        help=f"{RIGOROUS_ROUNDS} visits, each in a process of its own (a training: five); slower; "
        "another hour may still differ",
    )
    how.add_argument("--seed", metavar="N", type=_seed, default="1", help="seed of the data and of the order (1)")


def _add_output_flags(parser: CommandParser) -> None:
    """Adds the flags of when the command runs and ends, and of what is printed and stored."""
    output = parser.add_argument_group("running and output")
    output.add_argument(
        "--wait-quiet",
        action="store_true",
        help="first wait until other programs use little of the CPUs, at most 10 minutes; then measure all the same",
    )
    output.add_argument(
        "--dry-run", action="store_true", help="print the plan (rows, bytes, seconds) and measure nothing"
    )
    output.add_argument(
        "--stop-after",
        metavar="S",
        type=options.positive,
        help="begin no visit that may end after so many seconds, exit 0 and print how to resume",
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="finish the newest run (or the one in -o DIR): what it lacks of this command's plan",
    )
    output.add_argument("--format", choices=options.FORMATS, default="table", help="what stdout gets (table)")
    output.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=options.folder,
        help=help_screen.help_text("folder of the result file", rest=f" ({stored_runs.local_folder()}/MACHINE/TIME)"),
    )
    output.add_argument("--save", metavar="NAME", help="keep the rows as the baseline NAME")
    output.add_argument(
        "--against", metavar="RUN", help="then say what is faster or slower than a baseline or another run"
    )
    output.add_argument(
        "--fail-on",
        metavar="RULE",
        type=options.regression,
        help="with --against: exit 4 when a row is past this: 'slower>5%%', 5%% (the same), or slower (by anything)",
    )
    output.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    output.add_argument("-v", "--verbose", action="store_true", help="a line on stderr for every row")


def measuring(flags: Namespace) -> Measuring:
    """What the typed flags say of those that every measuring command shares.

    Raises: Usage for a flag that names nothing, and for threads that are no numbers.
    """
    return Measuring(
        command=flags.command,
        devices=tuple(options.words(flags.device)),
        backends=tuple(options.words(flags.backends)),
        variants=tuple(options.words(flags.variants)),
        threads=_threads(flags.threads),
        require_gpu=flags.require_gpu,
        limits=_limits(flags),
        fast=flags.fast,
        rigorous=flags.rigorous,
        seed=flags.seed,
        wait_quiet=flags.wait_quiet,
        dry_run=flags.dry_run,
        stop_after_s=flags.stop_after,
        resume=flags.resume,
        format=flags.format,
        output=flags.output or "",
        save=flags.save,
        against=flags.against,
        fail_on=flags.fail_on,
        quiet=flags.quiet,
        verbose=flags.verbose,
    )


def _threads(typed: Sequence[str] | None) -> tuple[int, ...]:
    """The numbers of threads of --threads, rising; () where it is not typed.

    Raises: Usage for what is no number. Of `max` and the like the error has the number of CPUs of this machine.
    """
    for word in options.words(typed):
        if word.lower() in _MOST_THREADS:
            cpus = len(os.sched_getaffinity(0))
            message = f"{word!r} is no number of threads; there are {cpus} CPUs here"
            raise options.Usage(message, wrong=word, right=str(cpus))
    return tuple(options.sizes(typed)) if typed else ()


def _limits(flags: Namespace) -> Limits:
    """The limits of --fast or the usual ones, but for those that were typed by themselves."""
    limits = FAST if flags.fast else FINE
    if flags.min_time is not None:
        limits = dataclasses.replace(limits, visit_s=flags.min_time)
    if flags.max_noise is not None:
        limits = dataclasses.replace(limits, max_noise=flags.max_noise)
    if flags.max_time is not None:
        limits = dataclasses.replace(limits, max_time=flags.max_time)
    if flags.rigorous:
        limits = dataclasses.replace(limits, rounds=RIGOROUS_ROUNDS)
    return limits


def _noise(text: str) -> float:
    """The share of --max-noise: `0.05` or `5%`.

    Raises: Usage for a share above 1, which is a number of percent without its sign.
    """
    share = options.positive(text, {"": 1, "%": 0.01})
    if share > 1:
        right = f"--max-noise {min(share, 100):g}%"
        raise options.Usage(f"{text} is a share above 1", wrong="--max-noise", right=right)
    return share


def _seed(text: str) -> int:
    """The seed of --seed, a whole number from 0 to 2^31; argparse calls it.

    Raises: ArgumentTypeError for anything else.
    """
    if not re.fullmatch(r"\d{1,10}", text) or int(text) > 1 << 31:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 0 to {1 << 31}")
    return int(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandLine:
    """What -h and --help say of a measuring command besides its flags."""

    #: The command's name, which its result file has too.
    name: str
    #: The question that it answers.
    question: str
    #: What it does, in a paragraph.
    about: str
    #: Commands to copy, the first one for every machine.
    examples: tuple[str, ...]
    #: Its own flags that -h shows; --help shows all.
    brief_flags: tuple[str, ...]

    def parser(self) -> CommandParser:
        """A parser without flags. Its -h will show `brief_flags`, and of the flags that all measuring commands share those that
        people need most."""
        return CommandParser(
            module=f"workloads.{self.name}",
            description=self.about,
            examples=self.examples,
            question=self.question,
            brief_flags=(*self.brief_flags, *_SHARED_BRIEF_FLAGS),
        )
