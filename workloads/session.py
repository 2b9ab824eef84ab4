"""The skeleton of a measuring command: its plan, from its flags to its exit code, with the output on the way and at the end."""

import abc
import contextlib
import dataclasses
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from analysis import units
from workloads import options, printing, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser
from workloads.keywords import words_of
from workloads.shared_flags import CommandLine, Measuring, add_measuring_flags

if TYPE_CHECKING:
    from typing import Self

    import pandas

    from analysis.analysis import Analysis
    from analysis.crossover.answer import Answer
    from workloads.harness import sweep
    from workloads.records import Machine, Measurement, Row, Run


_MOST_REASONS = 2  # why rows were skipped, printed at the end of a sweep; --verbose prints all
_MOST_FAILED = 5  # failed rows that are printed one by one


def print_no_row(m: "Measurement") -> None:
    """In place of a table's `add`, for a command that measures without printing its rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuringPlan(abc.ABC):
    """What a measuring command is to do: its flags, read once, become its rows, and the measured rows its answer.

    A command has a `command_line`, `add_flags`, `from_flags` and `rows`; it overrides the other methods where it differs.
    """

    command_line: ClassVar[CommandLine]
    #: The flags that every measuring command takes.
    measuring: Measuring

    @staticmethod
    @abc.abstractmethod
    def add_flags(parser: CommandParser) -> None:
        """Adds the command's own flags to its parser."""

    @classmethod
    def parser(cls) -> CommandParser:
        """The parser of the command's own flags and of those that every measuring command shares."""
        command_parser = cls.command_line.parser()
        cls.add_flags(command_parser)
        add_measuring_flags(command_parser)
        return command_parser

    @classmethod
    @abc.abstractmethod
    def from_flags(cls, flags: Namespace) -> "Self":
        """The plan that these flags ask for; nothing else reads them.

        Raises: Usage, Missing.
        """

    @classmethod
    def parse(cls, argv: Sequence[str] | None = None) -> "Self":
        """The plan of a command line.

        Raises: Usage, Missing.
        """
        return cls.from_flags(cls.parser().parse_args(argv))

    @abc.abstractmethod
    def rows(self, machine: "Machine") -> "list[Row]":
        """The rows to measure on a machine, in the order of its table.

        Raises: Usage; Missing for a device or library that is not there.
        """

    def rows_by_file(self, machine: "Machine") -> "dict[str, list[Row]]":
        """Name of a result file -> the rows that it will have, as far as they are known before any is measured."""
        return {self.command_line.name: self.rows(machine)}

    def refine(self, machine: "Machine", done: "list[Measurement]") -> "list[Row]":
        """The rows still needed once these are measured."""
        return []

    def table(self, machine: "Machine") -> printing.Printer:
        """Prints rows as they finish."""
        return printing.Lines(markdown=self.measuring.format == "md")

    def answer(self, outcome: "sweep.Outcome", analysis: "Analysis") -> None:
        """Prints the result of a sweep in words, from the analysis of its rows. Here nothing: the table may say it all."""
        return

    def operation(self) -> str:
        """The operation, such as matmul, whose rows csv and json list; roofs that are measured with them are not listed."""
        return self.command_line.name

    def require_room(self, rows: "list[Row]", machine: "Machine") -> None:
        """Raises Missing where memory is too small for every one of the rows."""
        from workloads.harness import plan

        plan.require_room_for_any(self.command_line.name, rows, machine, self.command_line.examples[0])

    def require_models(self, rows: "list[Row]") -> None:
        """Builds the user's own models, so that one that cannot be built ends the command before it measures. Here none."""
        return

    def dry_run(self, rows: "list[Row]", machine: "Machine") -> None:
        """Prints the rows, and how long they take."""
        from workloads.harness import plan

        plan.dry_run(rows, self.measuring)

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        print_row: "Callable[[Measurement], None]" = print_no_row,
        processes: "sweep.Workers | None" = None,
    ) -> "sweep.Outcome":
        """Measures the rows into files that begin with this Run, and hands each row to `print_row` once it is complete.

        processes: worker processes to measure in, which stay for the next command; None for new ones that end with this sweep.

        Raises: Missing for a library or data that is not there.
        """
        return self.sweep(run, rows, print_row, processes)

    def sweep(
        self,
        run: "Run",
        rows: "list[Row]",
        print_row: "Callable[[Measurement], None]" = print_no_row,
        processes: "sweep.Workers | None" = None,
    ) -> "sweep.Outcome":
        """Times the rows in rounds, and after the first round also the rows that `refine` asks for. Parameters as `measure`.

        A terminal gets a provisional table after the first round, as the rows are complete only after the last one.

        Raises: Missing when real data was asked for and cannot be had.
        """
        from workloads.harness import sweep

        on_terminal = self.measuring.format == "table" and sys.stderr.isatty() and not self.measuring.quiet
        prints_provisional = on_terminal and print_row is not print_no_row

        def rows_to_add(done: "list[Measurement]") -> "list[Row]":
            """Called by the sweep at the end of a round, with the rows that have been timed so far."""
            nonlocal prints_provisional
            timed_once = [m for m in done if m.visits == 1]
            if prints_provisional and timed_once:
                _print_provisional(self.table(run.machine), timed_once)
            prints_provisional = False
            return self.refine(run.machine, done)

        outcome = sweep.sweep(
            rows,
            self.measuring,
            self.command_line.name,
            run,
            shown=print_row,
            refine=rows_to_add,
            processes=processes,
        )
        without_data = [m for m in outcome.measurements if m.cause == "no-data"]
        if without_data:
            raise options.Missing(without_data[0].reason, wrong="--data", right="--data synthetic")
        return outcome

    @classmethod
    def main(cls, argv: list[str] | None = None) -> int:
        """The command: parses, measures, prints and returns the exit code."""
        return running.run_command(
            cls.parser(),
            argv,
            make_plan=cls.from_flags,
            carry_out=carry_out,
            check=check,
        )

    @classmethod
    def run(cls, **keywords: Any) -> "pandas.DataFrame":
        """Measures from Python: a row of the DataFrame for each measured row, with the share that it reaches of its roof.

        keywords: the flags of the command, such as run(sizes=[256, 512], backends=["numpy"], fast=True).

        Raises: TypeError for a keyword that is no flag; KeyboardInterrupt when a signal ended the sweep, whose rows are in
        its file.
        """
        command_flags = keywords.keys() & {"save", "against", "fail_on"}
        if command_flags:
            name = min(command_flags)
            raise TypeError(f"{name!r} is a flag of the command; save with output=DIR and use analysis.compare")
        words = words_of(cls.parser(), **{"quiet": True, **keywords})
        plan = cls.parse(words)
        header = begin(plan)
        rows = plan.rows(header.machine)
        outcome = ready(plan, header, rows).measure(header, rows)
        return frame(outcome, plan.operation())

    def with_measuring(self, **changes: Any) -> "Self":
        """The same plan, some fields of `measuring` changed."""
        return dataclasses.replace(self, measuring=dataclasses.replace(self.measuring, **changes))


def _print_provisional(table: printing.Printer, done: "list[Measurement]") -> None:
    """Prints on stderr the table as it stands after the first round."""
    with contextlib.redirect_stdout(sys.stderr):
        print("provisional, after the first round of visits:")
        for m in done:
            table.add(m)
        table.finish()


def check(plan: MeasuringPlan) -> None:
    """Does all that a measuring command does before it measures, and prints nothing.

    Raises: Stop where the rows cannot be planned, or cannot be saved or compared as the flags say.
    """
    from workloads.harness.plan import require_plan_format
    from workloads.machine import facts

    if plan.measuring.dry_run:
        require_plan_format(plan.measuring.format)
    check_files(plan.measuring)
    machine = facts.describe()
    rows = plan.rows(machine)
    if not plan.measuring.dry_run and not plan.measuring.resume:
        plan.require_room(rows, machine)


def carry_out(plan: MeasuringPlan) -> int:
    """Measures the rows of a plan, prints them as they finish and then the answer; of --dry-run prints the plan alone.
    Returns the exit code of the command."""
    from workloads.machine import facts

    measuring = plan.measuring
    check_files(measuring)
    machine = facts.describe()
    rows = plan.rows(machine)
    if measuring.dry_run:
        plan.dry_run(rows, machine)
        return options.OK
    if not measuring.resume:
        plan.require_room(rows, machine)
        plan.require_models(rows)
    run = begin(plan)
    plan = ready(plan, run, rows)
    outcome = print_measured(plan, run, rows)
    analysis = analyzed(outcome)
    if measuring.format == "table":
        plan.answer(outcome, analysis)
    code = sum_up(outcome, analysis, quiet=measuring.quiet, verbose=measuring.verbose)
    code = save_and_compare(measuring, outcome.files, code)
    require_measured(outcome, plan.command_line.name, plan.command_line.examples[0])
    return code


def begin(plan: MeasuringPlan) -> "Run":
    """The record of a run that begins now, the first line of its result files: command, machine, software, seed."""
    from workloads.harness import sweep

    return sweep.header(plan.measuring.command, plan.measuring.seed)


def ready(plan: MeasuringPlan, run: "Run", rows: "list[Row]") -> MeasuringPlan:
    """The plan to begin now. With --resume its output is the folder of the run to resume; --wait-quiet waits for a quiet machine.

    Raises: Usage when there is no run to resume.
    """
    from workloads.machine import load

    measuring = plan.measuring
    if measuring.resume and not measuring.output:
        plan = plan.with_measuring(output=str(newest_run(plan, run, rows)))
    if measuring.wait_quiet:
        load.wait_until_quiet()
    return plan


def newest_run(plan: MeasuringPlan, run: "Run", rows: "list[Row]") -> Path:
    """The folder of this machine's newest run that planned these rows.

    Raises: Usage when there is none.
    """
    from workloads.harness import resuming, sweep

    def planned_by(words: list[str]) -> "list[Row]":
        """The rows that a stored command of this module planned; called with its words."""
        return plan.parse([*words, "--quiet"]).rows(run.machine)

    return resuming.newest_run(
        sweep.LOCAL / run.machine.key,
        run.command,
        rows,
        module=f"workloads.{plan.command_line.name}",
        rows_of=planned_by,
    )


def print_measured(
    plan: MeasuringPlan, run: "Run", rows: "list[Row]", processes: "sweep.Workers | None" = None
) -> "sweep.Outcome":
    """Measures the rows of a plan and prints each when it is complete, as a table, csv or json. processes: see `measure`."""
    table: printing.Printer
    if plan.measuring.format in ("table", "md"):
        table = plan.table(run.machine)
    else:
        table = printing.Rows(plan.measuring.format, plan.operation(), run.machine)
    outcome = plan.measure(run, rows, print_row=table.add, processes=processes)
    table.finish()
    return outcome


def rows_around_crossovers(
    done: "list[Measurement]", answers: "Sequence[Answer]", op: str, problem_order: "Callable[[Any], tuple]"
) -> "list[Row]":
    """The rows that narrow down each crossover, the size from which the GPU wins: at a size between the last CPU win and the
    first GPU win the best kernel of either side, and the GPU's without copies, which says why. Rows that were measured are
    left out.

    done: the rows measured so far. answers: the crossovers found in them. op: the operation, such as matmul. problem_order: the
    sort key of a problem among the new rows, which are then sorted by arithmetic, cache state and device.
    """
    from analysis.crossover import refinement
    from workloads.records import distinct

    added: list[Row] = []
    families = [answer.family for answer in answers]
    for answer in sorted(answers, key=lambda answer: families.index(answer.family)):
        # A size nearby that another form of call was measured at is reused: it is among these.
        sizes = {answer.family.size(m.problem) for m in done if m.problem.op == op}
        for size in refinement.refine(answer, sizes):
            added += _rows_at(size, answer)

    def order(row: "Row") -> tuple:
        """The sort key of a row: float32 and warm caches first among rows of the same size."""
        problem = row.problem
        is_cold = row.settings.cache != "warm"
        return *problem_order(problem), problem.math != "float32", problem.math, is_cold, row.device

    return distinct(sorted(added, key=order), done)


def _rows_at(size: int, answer: "Answer") -> "list[Row]":
    """The rows at a size of both sides' kernels that won at the two measured sizes nearest to it."""
    from workloads.records import Row, Settings

    rows: list[Row] = []
    nearest = sorted(answer.points, key=lambda point: abs(point.n / size - 1))[:2]
    sides = []
    for point in nearest:
        sides += [point.cpu, point.gpu]
    for side in sides:
        try:
            problem = answer.family.at(size, side.math)
        except ValueError:  # channels that the groups do not divide, images smaller than the filter
            continue
        modes = ["resident"]
        if side.device != "cpu" and answer.form.mode != "resident":
            modes = [answer.form.mode, "resident"]
        for mode in modes:
            settings = Settings(device=side.device, threads=side.threads, mode=mode, cache=answer.form.cache)
            rows.append(Row(kernel=side.kernel, problem=problem, settings=settings))
    return rows


def analyzed(outcome: "sweep.Outcome") -> "Analysis":
    """What is known from a sweep's rows: roofs, crossovers, doubts. The command's answer and its warnings share it."""
    from analysis.analysis import Analysis

    return Analysis.from_rows(outcome.measurements, outcome.run.machine)


def print_ladder(analysis: "Analysis", op: str) -> None:
    """Prints of an operation's teaching kernels, each a step faster than the one before, by how much each step is faster.

    op: the operation, such as matmul.
    """
    from analysis.crossover import ladder

    terminal.show(ladder.lines(analysis.ladders[op]))


def check_files(measuring: Measuring) -> None:
    """Checks --resume, --save and --against before anything is measured.

    Raises: Usage where the folder to resume has no run, the name to save is taken, or the run to compare with is not there.
    """
    from workloads.records import baselines
    from workloads.records.run_files import NoRun

    if measuring.resume and measuring.output:
        _require_run_of(measuring.workload, Path(measuring.output))
    if measuring.fail_on is not None and measuring.against is None:
        raise baselines.not_named(measuring.workload, saves=measuring.save is not None)
    if measuring.save is not None:
        baselines.require_free(measuring.save)
    if measuring.against is not None:
        from analysis.compare import command

        try:
            command.read_timed(measuring.against)
        except NoRun as error:
            raise baselines.unknown(
                measuring.against,
                similar=error.right if error.similar else "",
                workload=measuring.workload,
                saves=measuring.save is not None,
            ) from error


def _require_run_of(workload: str, folder: Path) -> None:
    """Raises Usage where a folder has no result file of a command to resume.

    workload: the command's name, such as matmul. The suite resumes a folder with the file of any command.
    """
    files = sorted(folder.glob("*.jsonl"))
    if files and (workload == "suite" or any(file.stem == workload for file in files)):
        return
    others = f": it has {', '.join(file.name for file in files)}" if files else ""
    raise options.Usage(f"no run of {workload} in {options.near(folder)} to resume{others}", wrong="--resume")


def save(name: str | None, files: list[Path], *, quiet: bool, by_folder: bool = False) -> None:
    """Saves the result files as the baseline of this name; None and "" save nothing.

    quiet: whether stderr does not say so. by_folder: whether files of different folders stay in folders of their own.
    """
    from workloads.records import baselines

    if not name:
        return
    folder = baselines.save(name, files, by_folder)
    if not quiet:
        terminal.note(f"saved as the baseline {name!r}: {options.near(folder)}")


def save_and_compare(measuring: Measuring, files: list[Path], code: int) -> int:
    """Saves the result files as a baseline and compares them with another, as --save and --against say.

    code: the exit code of measuring them. Returns it, or that of the comparison where measuring went well.
    """
    if code not in (options.OK, options.FAILED):  # stopped, or nothing was measured
        return code
    save(measuring.save, files, quiet=measuring.quiet)
    if measuring.against:
        from analysis.compare import command

        regressed = command.against(measuring.against, files, share=measuring.fail_on, format_=measuring.format)
        return code or regressed
    return code


def frame(outcome: "sweep.Outcome", op: str) -> "pandas.DataFrame":
    """The sweep's rows of one operation, such as matmul, with the share that each reaches of the roof measured with them.

    Raises: KeyboardInterrupt when a signal ended the sweep; the rows are in its file.
    """
    if outcome.stopped in options.SIGNALED:
        raise KeyboardInterrupt(f"stopped; what was measured is in {outcome.path}")
    return printing.framed(outcome.measurements, outcome.run.machine, op)


def resume_command(command: str, folder: Path) -> str:
    """The command that finishes what a command began, without its limit of time. folder: where its result file is."""
    from workloads.records import command_lines

    begun = command_lines.without(command, command_lines.STOPPING)
    where = "" if command_lines.has_output(begun) else f" -o {shlex.quote(options.near(folder))}"
    return f"{begun}{where} --resume"


def sum_up(outcome: "sweep.Outcome", analysis: "Analysis", *, quiet: bool = False, verbose: bool = False) -> int:
    """Prints on stderr at the end of a sweep: failed and skipped rows, doubts, how it stopped, the file. Returns the exit code.

    verbose: whether every reason why rows were skipped, and every doubt, is printed.
    """
    from analysis import checks

    file = options.near(outcome.path)
    _print_failed(outcome.measurements)
    skipped = _skipped(outcome.measurements)
    for rows in skipped if verbose else skipped[:_MOST_REASONS]:
        if outcome.exit_code == options.MISSING or not quiet:
            count = units.count(len(rows), "row")
            terminal.note(terminal.Line(f"{count}: {rows[0].reason}", label="skipped: "))
    if not quiet:
        for line in checks.lines(analysis.doubts, file, verbose):
            terminal.note(terminal.paint(line, "warning", sys.stderr))
    if outcome.stopped:
        _print_how_to_finish(outcome)
    if not quiet:
        terminal.note(terminal.Line(file, label="results: "))
    return outcome.exit_code


def _print_failed(measurements: "Sequence[Measurement]") -> None:
    """Prints on stderr why rows failed, or that their results were wrong; of many the first."""
    from workloads.harness.plan import name

    bad = [m for m in measurements if m.status in ("failed", "wrong")]
    for m in bad[:_MOST_FAILED]:
        terminal.note(terminal.Line(f"{name(m.row)} {m.status}: {m.reason}", label="error: "))
    if len(bad) > _MOST_FAILED:
        terminal.note(f"... and {len(bad) - _MOST_FAILED} more failed or wrong rows in the file")


def _print_how_to_finish(outcome: "sweep.Outcome") -> None:
    """Prints on stderr what stopped a sweep, how many rows it left, and the command that finishes it."""
    command = options.typed(resume_command(outcome.run.command, outcome.path.parent))
    stopped_by = "Ctrl-C" if outcome.stopped == "SIGINT" else outcome.stopped
    left = units.count(outcome.left, "row")
    terminal.note(f"stopped by {stopped_by} with {left} unfinished; finish with:")
    terminal.note(terminal.Line(label="  ", command=command))


def _skipped(measurements: "Sequence[Measurement]") -> "list[list[Measurement]]":
    """The skipped rows in groups with the same reason, the largest group first. Rows that need too much memory are one group,
    though each of their reasons names another number of bytes."""
    groups: dict[str, list[Measurement]] = {}
    for m in measurements:
        if m.status == "skipped":
            reason = m.cause if m.cause == "does-not-fit" else m.reason
            groups.setdefault(reason, []).append(m)
    return sorted(groups.values(), key=len, reverse=True)


def worst(codes: list[int]) -> int:
    """The exit code of a command from those of its parts: FAILED if any failed, else USAGE, else OK if any part was measured;
    MISSING if none was."""
    for code in (options.FAILED, options.USAGE, options.OK):
        if code in codes:
            return code
    return options.MISSING


def require_measured(outcome: "sweep.Outcome", workload: str, example: str) -> None:
    """Raises Missing, with a command that works, where not a row could be measured.

    workload: the command's name, such as matmul. example: a command line of it that works on every machine.
    """
    skipped = [m for m in outcome.measurements if m.status == "skipped"]
    if outcome.exit_code == options.MISSING and skipped:
        tip = _instead(skipped[0], outcome.run.command, workload, example)
        raise options.Missing(f"nothing could be measured: {skipped[0].reason}", tip=tip)


def unfinished(outcome: "sweep.Outcome") -> list[str]:
    """The lines above the answer of a stopped run, which say how many of the planned rows it has; [] for a complete run."""
    if not outcome.left:
        return []
    done = len(outcome.measurements)
    planned = done + outcome.left - outcome.begun  # rows with fewer visits than planned are in both numbers
    partly = f" ({outcome.begun} with fewer visits than planned)" if outcome.begun else ""
    return [f"{done} of {planned} rows are here{partly}, and what follows is said of these."]


def _instead(m: "Measurement", command: str, workload: str, example: str) -> str:
    """A command that works here in place of one that could measure nothing.

    m: the first of its rows, all of which were skipped. command: as it was typed. workload, example: see require_measured.
    """
    if m.cause == "no-gpu":
        return f"{command} --device cpu"
    if m.cause == "not-installed":
        return m.notes["install"]
    if m.cause == "does-not-fit" and m.problem.op in ("training", "inference"):
        sizes = "--samples 1000" if m.problem.op == "training" else "--batch 1"
        return f"python -m workloads.{workload} --model {m.problem.model} {sizes}"
    return example
