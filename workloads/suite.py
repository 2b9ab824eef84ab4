"""Runs every workload on this machine into one folder, writes the report, and ends with the answer in words."""

import dataclasses
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workloads import help_screen, options, shared_flags, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser
from workloads.shared_flags import CommandLine
from workloads.suite_parts import suite_steps
from workloads.suite_parts.suite_steps import SuitePlan, SuiteStep

if TYPE_CHECKING:
    from workloads.harness.sweep import Workers
    from workloads.records import Machine, Row, Run
    from workloads.session import MeasuringPlan

QUESTION = "Where does a GPU begin to win on this machine?"
EXAMPLES = "python -m workloads.suite --quick", "python -m workloads.suite"
NEXT = "python -m analysis.explain --model file.py:function --measure"
LONG = """Roofs, memory levels, launches, copies, matrix products, their crossover and one Keras row in one folder, with a report.
--quick leaves all out but products, one Keras row and what its step is made of, and takes a few minutes. --device all
measures every GPU alone, then what several do with each other and what they take from each other at once."""
# The flags that every part takes from the suite, unless it has its own of them.
SHARED = (
    *("device", "threads", "require_gpu", "min_time", "max_noise", "max_time"),
    *("fast", "rigorous", "seed", "quiet", "verbose", "format"),
)
CROSSINGS = 2  # sentences on products that stand before a training's answer
ANSWERED = ("stream", "launch")  # workloads whose answer is printed under their table, as the page has it nowhere

COMMAND = CommandLine(
    name="suite",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    brief_flags=("--quick", "--only"),
)


def parser() -> CommandParser:
    """The command line of python -m workloads.suite."""
    command_parser = COMMAND.parser()
    command_parser.add_argument(
        "--quick",
        action="store_true",
        help=help_screen.help_text(
            "a few minutes: products up to 1,024, one training and what its step is made of",
            rest="; `crossover run` has it",
        ),
    )
    command_parser.add_argument(
        "--only",
        metavar="WORKLOAD",
        nargs="+",
        action="extend",
        help=help_screen.help_text(
            "only these: peak stream launch transfer matmul conv training", rest="; peers (several GPUs, --device all)"
        ),
    )
    fleet = command_parser.add_argument_group("a fleet")
    fleet.add_argument(
        "--ray",
        metavar="WHERE",
        help="every node and GPU of a Ray cluster, into one folder: auto (the one that runs, else a "
        "local one) or HOST:PORT",
    )
    fleet.add_argument(
        "--ray-timeout",
        metavar="S",
        type=options.positive,
        default="900",
        help="give a node up that says nothing for so long (900)",
    )
    shared_flags.add_measuring_flags(command_parser)
    return command_parser


def parse(argv: Sequence[str] | None = None) -> SuitePlan:
    """The plan of a command line; None for the words of this process.

    Raises: Usage.
    """
    return from_flags(parser().parse_args(argv))


def from_flags(flags: Namespace) -> SuitePlan:
    """The plan of the typed flags.

    Raises: Usage for flags of which each part has its own, and for csv or json of more than one part.
    """
    options.refuse(flags, ("backends", "variants"), "every part of the suite has its own kernels")
    only = options.words(flags.only)
    if flags.format in ("csv", "json") and len(only) != 1 and not flags.ray:
        message = f"--format {flags.format} takes one table; name one workload with --only, or read the run's files"
        error = options.Usage(message, wrong="--only", right=f"--only {only[0] if only else 'matmul'}")
        error.is_example = True
        raise error
    return SuitePlan(
        measuring=shared_flags.measuring(flags),
        quick=flags.quick,
        only=tuple(only),
        ray=flags.ray or "",
        ray_timeout_s=flags.ray_timeout,
        shared={name: getattr(flags, name) for name in SHARED},
    )


def carry_out(suite: SuitePlan) -> int:
    """Measures, writes the page, prints the answer and returns the exit code."""
    from workloads import records, session
    from workloads.harness import sweep

    if suite.ray:
        return _on_cluster(suite)
    measuring = suite.measuring
    session.check_files(measuring)
    run = sweep.header(measuring.command, measuring.seed)
    steps = suite_steps.planned_steps(suite, run.machine, suite.every_gpu)
    if measuring.dry_run:
        return _dry_run(steps, run.machine)
    if measuring.resume and not measuring.output:
        folder = _newest_run(steps, run)
    else:
        folder = sweep.place(measuring.output, steps[0].name, run).parent
    if not measuring.quiet:
        _print_machine(run.machine)
    if suite.brief:
        step_lines = StepLines(steps, run.machine, quiet=measuring.quiet)
        codes = suite_steps.measure_steps(steps, measuring, run, folder=folder, measured_by=step_lines.measure)
        step_lines.end()
    else:
        codes = suite_steps.measure_steps(steps, measuring, run, folder=folder, measured_by=_print_measured)
    if codes[-1] in options.SIGNALED.values():
        return codes[-1]
    files = sorted(folder.glob("*.jsonl"))
    if not records.read_files(files).measurements:  # stopped before the first row
        return session.worst(codes)
    _report(suite, folder)
    return session.save_and_compare(measuring, sorted(folder.glob("*.jsonl")), session.worst(codes))


def _on_cluster(suite: SuitePlan) -> int:
    """Measures the suite on every node of a Ray cluster. Returns the exit code.

    Raises: Usage for an unknown workload, and where there is no run to resume; Missing where there is no Ray or no cluster.
    """
    from workloads.fleet import nodes

    # An unknown workload is refused here, not by each node. The nodes may have GPUs.
    suite_steps.chosen_parts(suite, ["gpu"], several=suite.every_gpu)
    measuring = suite.measuring
    if measuring.resume and not measuring.output:

        def has_same_rows(words: list[str]) -> bool:
            """Whether the suite's command with these words measures the same rows; called with those of stored runs."""
            return parse(words).selection == suite.selection

        folder = nodes.newest_run(measuring.command, has_same_rows)
        measuring = dataclasses.replace(measuring, output=str(folder))
    return nodes.run(measuring, suite.ray, suite.ray_timeout_s)


def _print_machine(here: "Machine") -> None:
    """Prints on stderr the machine that is measured: its CPU and its GPUs, or why none is used."""
    from workloads.machine import facts

    if here.gpus:
        gpus = f"{len(here.gpus)} x {here.gpus[0].name}"
    else:
        gpus = f"no GPU ({facts.gpu_problem()}): the CPU is measured"
    terminal.note(f"{here.cpu}, {here.cores} cores; {gpus}")


def _newest_run(steps: list[SuiteStep], run: "Run") -> Path:
    """The folder of this machine's newest suite that planned the rows of these steps.

    Raises: Usage when there is none.
    """
    from workloads.harness import resuming, sweep

    def planned_by(words: list[str]) -> "list[Row]":
        """The rows that a stored command of the suite planned; called with its words."""
        suite = parse(words)
        planned_steps = suite_steps.planned_steps(suite, run.machine, suite.every_gpu)
        return suite_steps.planned_rows(planned_steps, run.machine)

    return resuming.newest_run(
        sweep.LOCAL / run.machine.key,
        run.command,
        suite_steps.planned_rows(steps, run.machine),
        module="workloads.suite",
        rows_of=planned_by,
    )


class StepLines:
    """Measures steps without their tables: a line on stderr before each says what it is, and about how long the rest takes."""

    def __init__(self, steps: list[SuiteStep], here: "Machine", quiet: bool):
        """Prints how many steps there are and about how long they take. quiet: whether no line is printed."""
        self._words = [step.words for step in steps]
        self._planned_s = [suite_steps.longest_seconds(step.plan, here) for step in steps]
        self._quiet = quiet
        #: When the first step began, by time.monotonic.
        self._begin = 0.0
        #: Number of steps that have begun.
        self._step = 0
        if not self._quiet:
            terminal.note(f"measure  {len(steps)} steps, about {_duration(sum(self._planned_s))}")

    def measure(self, name: str, plan: "MeasuringPlan", run: "Run", processes: "Workers | None") -> int:
        """Measures the next step, and prints its line before and its errors after. Returns the exit code.

        name: the workload. run: the first line of its result file. processes: workers to measure in; None for new ones.
        """
        from workloads import session

        if self._step == 0:
            self._begin = time.monotonic()
        if not self._quiet:
            self._announce()
        self._step += 1
        # In a log, which gets a line of progress now and then, a fast step is over before its first one.
        no_progress = plan.measuring.fast and not terminal.redraws(sys.stderr)
        plan = plan.with_measuring(quiet=self._quiet or no_progress)
        outcome = plan.measure(run, plan.rows(run.machine), processes=processes)
        return session.sum_up(outcome, session.analyzed(outcome), quiet=True)

    def _announce(self) -> None:
        """Prints the next step's line, with the planned time of what is left times the factor by which the steps so far took
        longer than planned."""
        planned_before_s, left_s = sum(self._planned_s[: self._step]), sum(self._planned_s[self._step :])
        if planned_before_s:
            left_s *= (time.monotonic() - self._begin) / planned_before_s
        step = f"{self._step + 1}/{len(self._words)}  {self._words[self._step]}"
        terminal.note(f"         {step:<45} about {_duration(left_s)} left")

    def end(self) -> None:
        """Prints how long all steps took, on a line of its own: the last step's progress bar may not have ended its line."""
        if not self._quiet:
            terminal.note(f"         done in {_duration(time.monotonic() - self._begin)}")


def _duration(seconds: float) -> str:
    """Seconds as words: `85 s`, `2 minutes`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _print_measured(name: str, plan: "MeasuringPlan", run: "Run", processes: "Workers | None") -> int:
    """Measures a step and prints its table; of the workloads that the report says nothing of also the answer. Returns the
    exit code.

    name: the workload. run: the first line of its result file. processes: workers to measure in; None for new ones.
    """
    from workloads import session

    if plan.measuring.format == "table":
        print(f"\n{name}", flush=True)
    outcome = session.print_measured(plan, run, plan.rows(run.machine), processes)
    analysis = session.analyzed(outcome)
    if plan.measuring.format == "table" and name in ANSWERED:
        plan.answer(outcome, analysis)
    return session.sum_up(outcome, analysis, quiet=plan.measuring.quiet, verbose=plan.measuring.verbose)


def _dry_run(steps: list[SuiteStep], here: "Machine") -> int:
    """Prints the plan of each step. Returns the exit code."""
    for step in steps:
        if step.plan.measuring.format != "json":  # of which one JSON object is the whole output
            print(f"\n{step.name}")
        step.plan.dry_run(step.plan.rows(here), here)
    return options.OK


def _report(suite: SuitePlan, folder: Path) -> None:
    """Writes the report of the suite's rows into their folder, and prints its answer, what to do next and where the page is."""
    from analysis import report, units
    from analysis.analysis import Analysis
    from analysis.explain.command import answer_by_run
    from analysis.text import several_gpus, summary
    from workloads import records

    out = sys.stdout if suite.measuring.format == "table" else sys.stderr
    loaded = records.read(folder)
    rows, here = loaded.measurements, loaded.runs[-1].machine
    trained = any(m.problem.op == "training" for m in rows)
    with terminal.doing(f"reading {units.count(len(rows), 'row')} and writing the page"):
        path = report.to_open(report.render([folder], folder))
        sentences = []
        if not trained or not suite.brief:
            sentences += summary.answer(Analysis.from_loaded(loaded))
        elif here.gpus:  # without a GPU there is no size from which it wins, and the training is explained below
            others = [m for m in rows if m.problem.op != "training"]
            sentences += summary.answer(Analysis.from_rows(others, here))[:CROSSINGS]
        sentences += several_gpus.lines(rows)
    if sentences:
        terminal.show(["", *sentences], out)
    if trained:
        with terminal.doing("explaining the training"):
            explained = answer_by_run("cifar10-cnn", str(folder))
        terminal.show(["", *explained], out)
    next_line = terminal.Line(label="Next  ", command=options.typed(NEXT))
    terminal.show(["", next_line, f"Page  {options.near(path)}"], out)


def _check(suite: SuitePlan) -> None:
    """Raises: Stop where the suite would end at once, as its steps cannot be planned. Those of a cluster are planned there."""
    from workloads.machine import facts

    if not suite.ray:
        suite_steps.planned_steps(suite, facts.describe(), suite.every_gpu)


def on_node(folder: str) -> int:
    """Measures the suite into a folder on a node of a fleet, in a process of its own; see workloads.suite_parts.node.measure."""
    from workloads.suite_parts import node

    return node.measure(Path(folder), parse)


def main(argv: Sequence[str] | None = None) -> int:
    """The command: parses, measures, prints and returns the exit code."""
    return running.run_command(parser(), argv, make_plan=from_flags, carry_out=carry_out, check=_check)


if __name__ == "__main__":
    sys.exit(main())
