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

    from analysis.analysis import Analysis
    from workloads.harness import sweep
    from workloads.records import Machine, Measurement, Row, Run


def hidden(m: "Measurement") -> None:
    """Shows no row: for what is measured without a table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuringPlan(abc.ABC):
    """What a measuring command is to do: its flags, read once, become its rows, and the measured rows its answer.

    A command has a `command_line`, `add_flags`, `from_flags` and `rows`; it overrides the other methods where it differs.
    """

    command_line: ClassVar[CommandLine]
    #: What every measuring command is told.
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
        return printing.Lines(self.measuring.format == "md")

    def answer(self, outcome: "sweep.Outcome", analysis: "Analysis") -> None:
        """Prints the result of a sweep in words, from the analysis of its rows; a table may be all that there is."""
        return

    def operation(self) -> str:
        """The operation of the rows in a table for machines.

        Raises: Usage where the rows are of several.
        """
        return self.command_line.name

    def require_room(self, rows: "list[Row]", machine: "Machine") -> None:
        """Raises Missing where memory is too small for each of the rows."""
        from workloads.harness import plan

        plan.require_room_for_any(self.command_line.name, rows, machine, self.command_line.examples[0])

    def require_models(self, rows: "list[Row]") -> None:
        """Builds the user's own models, as one that cannot be built is to end the command before it measures."""
        return

    def dry_run(self, rows: "list[Row]", machine: "Machine") -> None:
        """Prints the rows, and how long they take."""
        from workloads.harness import plan

        plan.dry_run(rows, self.measuring)

    def measure(
        self,
        run: "Run",
        rows: "list[Row]",
        shown: "Callable[[Measurement], None]" = hidden,
        processes: "sweep.Workers | None" = None,
    ) -> "sweep.Outcome":
        """Measures the rows into files that begin with this Run. processes: workers that outlive it.

        Raises: Missing for a library or data that is not there.
        """
        return self.sweep(run, rows, shown, processes)

    def sweep(
        self,
        run: "Run",
        rows: "list[Row]",
        shown: "Callable[[Measurement], None]" = hidden,
        processes: "sweep.Workers | None" = None,
    ) -> "sweep.Outcome":
        """Visits the rows round after round, and those that `refine` asks for.

        Raises: Missing when real data was asked for and cannot be had.
        """
        from workloads.harness import sweep

        on_terminal = self.measuring.format == "table" and sys.stderr.isatty() and not self.measuring.quiet
        provisional = on_terminal and shown is not hidden

        def more(done: "list[Measurement]") -> "list[Row]":
            nonlocal provisional
            once = [m for m in done if m.visits == 1]
            if provisional and once:
                _print_provisional(self.table(run.machine), once)
            provisional = False
            return self.refine(run.machine, done)

        outcome = sweep.sweep(
            rows,
            self.measuring,
            self.command_line.name,
            run,
            shown=shown,
            refine=more,
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
    def run(cls, **keywords):
        """The rows as a pandas DataFrame, under the roofs measured with them; keywords are the flags, such as
        run(sizes=[256, 512], backends=["numpy"], fast=True).

        Raises: KeyboardInterrupt when a signal ended the sweep; the rows are in its file.
        """
        at_the_end = keywords.keys() & {"save", "against", "fail_on"}
        if at_the_end:
            raise TypeError(
                f"{min(at_the_end)!r} is a flag of the command; save with output=DIR and use analysis.compare"
            )
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
            table.shown(m)
        table.finish()


def check(plan: MeasuringPlan) -> None:
    """Plans the rows.

    Raises: Stop where there is no plan, or where rows cannot be saved or compared as asked.
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
    """Carries out the command and returns its exit code: prints the plan for --dry-run, else rows as they finish and then the
    answer."""
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
    """The first line of the files that a plan writes now."""
    from workloads.harness import sweep

    return sweep.header(plan.measuring.command, plan.measuring.seed)


def ready(plan: MeasuringPlan, run: "Run", rows: "list[Row]") -> MeasuringPlan:
    """The plan with the folder of the run that it resumes, once the machine is quiet if it waits for that.

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
    """The folder of this machine's newest run that planned these rows of a plan.

    Raises: Usage when there is none.
    """
    from workloads.harness import resuming, sweep

    return resuming.newest_run(
        sweep.LOCAL / run.machine.key,
        run.command,
        rows,
        module=f"workloads.{plan.command_line.name}",
        rows_of=lambda words: plan.parse([*words, "--quiet"]).rows(run.machine),
    )


def print_measured(
    plan: MeasuringPlan, run: "Run", rows: "list[Row]", processes: "sweep.Workers | None" = None
) -> "sweep.Outcome":
    """Measures the rows of a plan and prints them as they finish, in the format that it has."""
    table: printing.Printer
    if plan.measuring.format in ("table", "md"):
        table = plan.table(run.machine)
    else:
        table = printing.Rows(plan.measuring.format, plan.operation(), run.machine)
    outcome = plan.measure(run, rows, table.shown, processes)
    table.finish()
    return outcome


def refined(done: list, answers: list, op: str, size: Callable) -> "list[Row]":
    """The rows still needed to narrow down each crossover: the kernels that won on either side of it. They are sorted by the
    problem's `size`, then by arithmetic, caches and device.

    At an added size only these run: both sides' best kernels, and the resident GPU call that says why. A size that another
    form measured nearby is reused.
    """
    from analysis.crossover import refinement
    from workloads.records import Row, Settings, distinct

    added: list[Row] = []
    families = [a.family for a in answers]
    for answer in sorted(answers, key=lambda a: families.index(a.family)):
        sizes = {answer.family.size(m.problem) for m in done if m.problem.op == op}
        for n in refinement.refine(answer, sizes):
            near = sorted(answer.points, key=lambda p: abs(p.n / n - 1))[:2]
            sides = []
            for point in near:
                sides += [point.cpu, point.gpu]
            for side in sides:
                try:
                    problem = answer.family.at(n, side.math)
                except ValueError:  # channels that the groups do not divide, images smaller than the filter
                    continue
                modes = ["resident"] if side.device == "cpu" else dict.fromkeys([answer.form.mode, "resident"])
                for mode in modes:
                    chosen = Settings(device=side.device, threads=side.threads, mode=mode, cache=answer.form.cache)
                    added.append(Row(side.kernel, problem, chosen))

    def order(row: "Row") -> tuple:
        p = row.problem
        return *size(p), p.math != "float32", p.math, row.settings.cache != "warm", row.device

    return distinct(sorted(added, key=order), done)


def analyzed(outcome: "sweep.Outcome") -> "Analysis":
    """The results of a sweep's rows, which its answer and its doubts share."""
    from analysis.analysis import Analysis

    return Analysis.from_rows(outcome.measurements, outcome.run.machine)


def print_ladder(analysis: "Analysis", op: str) -> None:
    """Prints how much faster each teaching rung of an operation is than the one below it."""
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
    """Raises Usage where a folder has no run of this workload to resume; the suite's has one of any."""
    files = sorted(folder.glob("*.jsonl"))
    if any(workload in (file.stem, "suite") for file in files):
        return
    others = f": it has {', '.join(file.name for file in files)}" if files else ""
    raise options.Usage(f"no run of {workload} in {options.near(folder)} to resume{others}", wrong="--resume")


def save(name: str | None, files: list, *, quiet: bool, by_folder: bool = False) -> None:
    """Saves the result files as the baseline of this name, if there is one; `by_folder` as baselines.save has it."""
    from workloads.records import baselines

    if name:
        folder = baselines.save(name, files, by_folder)
        if not quiet:
            terminal.note(f"saved as the baseline {name!r}: {options.near(folder)}")


def save_and_compare(measuring: Measuring, files: list, code: int) -> int:
    """Saves the result files as a baseline and compares them with another, as the flags say; returns the exit code."""
    if code not in (options.OK, options.FAILED):
        return code
    save(measuring.save, files, quiet=measuring.quiet)
    if measuring.against:
        from analysis.compare import command

        regressed = command.against(measuring.against, files, measuring.fail_on, measuring.format)
        return code or regressed
    return code


def frame(outcome, op: str):
    """The sweep's rows of one operation as a DataFrame, under the roofs measured with them.

    Raises: KeyboardInterrupt when a signal ended the sweep; the rows are in its file.
    """
    if outcome.stopped in options.SIGNALED:
        raise KeyboardInterrupt(f"stopped; what was measured is in {outcome.path}")
    return printing.framed(outcome.measurements, outcome.run.machine, op)


def resume_command(command: str, folder: Path) -> str:
    """The command that finishes what this one began into that folder, however long it takes."""
    from workloads.records import command_lines

    begun = command_lines.without(command, command_lines.STOPPING)
    where = "" if command_lines.has_output(begun) else f" -o {shlex.quote(options.near(folder))}"
    return f"{begun}{where} --resume"


def sum_up(outcome: "sweep.Outcome", analysis: "Analysis", *, quiet: bool = False, verbose: bool = False) -> int:
    """Prints on stderr at the end: failed and skipped rows, doubts, how it stopped, the file; returns the exit code."""
    from analysis import checks
    from workloads.harness.plan import name

    file = options.near(outcome.path)
    bad = [m for m in outcome.measurements if m.status in ("failed", "wrong")]
    for m in bad[:5]:
        terminal.note(terminal.Line(f"{name(m.row)} {m.status}: {m.reason}", label="error: "))
    if len(bad) > 5:
        terminal.note(f"... and {len(bad) - 5} more failed or wrong rows in the file")
    skipped = _skipped(outcome.measurements)
    for rows in skipped if verbose else skipped[:2]:
        if outcome.exit_code == options.MISSING or not quiet:
            count = units.count(len(rows), "row")
            terminal.note(terminal.Line(f"{count}: {rows[0].reason}", label="skipped: "))
    if not quiet:
        for line in checks.lines(analysis.doubts, file, verbose):
            terminal.note(terminal.paint(line, "warning", sys.stderr))
    if outcome.stopped:
        how = options.typed(resume_command(outcome.run.command, outcome.path.parent))
        stopped_by = "Ctrl-C" if outcome.stopped == "SIGINT" else outcome.stopped
        left = units.count(outcome.left, "row")
        terminal.note(f"stopped by {stopped_by} with {left} unfinished; finish with:")
        terminal.note(terminal.Line(label="  ", command=how))
    if not quiet:
        terminal.note(terminal.Line(file, label="results: "))
    return outcome.exit_code


def _skipped(measurements: "Sequence[Measurement]") -> "list[list[Measurement]]":
    """The skipped rows, those with the same reason together, the most first; those that need too much memory are one group,
    whatever each of them needs."""
    groups: dict[str, list[Measurement]] = {}
    for m in measurements:
        if m.status == "skipped":
            reason = m.cause if m.cause == "does-not-fit" else m.reason
            groups.setdefault(reason, []).append(m)
    return sorted(groups.values(), key=len, reverse=True)


def worst(codes: list[int]) -> int:
    """The exit code of several parts: FAILED comes before USAGE, USAGE before OK; MISSING only if every part is missing."""
    return next((code for code in (options.FAILED, options.USAGE, options.OK) if code in codes), options.MISSING)


def require_measured(outcome, workload: str, example: str) -> None:
    """Raises Missing, with a command that works, where not a row could be measured."""
    skipped = [m for m in outcome.measurements if m.status == "skipped"]
    if outcome.exit_code == options.MISSING and skipped:
        tip = _instead(skipped[0], outcome.run.command, workload, example)
        raise options.Missing(f"nothing could be measured: {skipped[0].reason}", tip)


def unfinished(outcome) -> list[str]:
    """A sentence: how many of the planned rows a stopped run has measured; [] for a complete run."""
    if not outcome.left:
        return []
    done = len(outcome.measurements)
    planned = done + outcome.left - outcome.begun
    some = f" ({outcome.begun} with fewer visits than planned)" if outcome.begun else ""
    return [f"{done} of {planned} rows are here{some}, and what follows is said of these."]


def _instead(m: "Measurement", command: str, workload: str, example: str) -> str:
    """A command like the one whose rows were skipped, that works here."""
    if m.cause == "no-gpu":
        return f"{command} --device cpu"
    if m.cause == "not-installed":
        return m.notes["install"]
    if m.cause == "does-not-fit" and m.problem.op in ("training", "inference"):
        sizes = "--samples 1000" if m.problem.op == "training" else "--batch 1"
        return f"python -m workloads.{workload} --model {m.problem.model} {sizes}"
    return example
