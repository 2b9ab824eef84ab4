"""The skeleton of a measuring command: a Workload, from its parser to its exit code, with the output on the way and at the
end."""

import contextlib
import dataclasses
import re
import shlex
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import units
from analysis.compare import command as compare
from workloads import options, printing, shared_flags, terminal
from workloads.machine import load

if TYPE_CHECKING:
    from workloads.harness import sweep
    from workloads.records import Machine, Measurement, Row, Run


def hidden(m: "Measurement") -> None:
    """Shows no row: for what is measured without a table."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """A command that measures rows: python -m workloads.<name>, its function run(), and its part in a suite.

    question, about, examples, needs, flags: its command line, as options.parser takes them. rows(args, machine): the plan.
    table(args, machine): prints rows as they finish. answer(args, outcome): prints the result in words; in a suite only with
    `answers_in_suite`. refine(args, machine, rows so far): the rows still needed. own: measures in its own way, as `sweep` would.
    dry_run(rows, args, machine): prints the plan. of_models: whether rows have models, of which the first example is one command.
    op(args): the operation of its rows, where that is not its name.
    """

    name: str
    question: str
    about: str
    examples: tuple[str, ...]
    needs: str
    flags: str
    rows: Callable
    table: Callable = printing.Lines
    answer: Callable = lambda args, outcome: None
    refine: Callable = lambda args, here, done: []
    own: Callable | None = None
    dry_run: Callable | None = None
    answers_in_suite: bool = False
    of_models: bool = False
    op: Callable = lambda args: ""

    @property
    def entry_points(self) -> tuple[Callable[..., int], Callable[[], options.Parser], Callable]:
        """main, parser and run, which its module gives by these names."""
        return self.main, self.parser, self.run

    def parser(self) -> options.Parser:
        how: dict[str, Any] = {"question": self.question, "needs": self.needs, "flags": self.flags}
        made = options.parser(f"workloads.{self.name}", self.about, *self.examples, **how)
        shared_flags.add_measuring(made)
        return made

    def sweep(self, args: Namespace, run: "Run", shown: "Callable[[Measurement], None]" = hidden, rows=None):
        """Runs the rows, by default all, and those that `refine` asks for; the sweep.Outcome.

        Raises: Missing when real data was asked for and cannot be had.
        """
        from workloads.harness import sweep

        tells = shown is not hidden and args.format == "table" and sys.stderr.isatty() and not args.quiet

        def more(done: "list[Measurement]") -> "list[Row]":
            nonlocal tells
            if tells and (first := [m for m in done if m.visits == 1]):
                self._provisional(args, run.machine, first)
            tells = False
            return [] if getattr(args, "no_refine", False) else self.refine(args, run.machine, done)

        outcome = sweep.sweep(rows or self.rows(args, run.machine), args, self.name, run, shown, more)
        if lost := [m.reason for m in outcome.measurements if m.reason.startswith("no data: ")]:
            tip = re.sub("(--data[ =])real", r"\1synthetic", run.command)
            raise options.Missing(lost[0].removeprefix("no data: "), tip)
        return outcome

    def _provisional(self, args: Namespace, here: "Machine", done: "list[Measurement]") -> None:
        """Prints on stderr the table as it stands after the first round."""
        with contextlib.redirect_stdout(sys.stderr):
            print("provisional, after the first round of visits:")
            table = self.table(args, here)
            for m in done:
                table.shown(m)
            table.finish()

    def measure(self, args: Namespace, run: "Run", shown: "Callable[[Measurement], None]" = hidden):
        """Measures what the arguments ask for into files that begin with this Run, first waiting for a quiet machine if they ask
        for that; the sweep.Outcome."""
        if args.resume and not args.output:
            folder = self.newest_run(args, run)
            args = Namespace(**{**vars(args), "output": str(folder)})
        if args.wait_quiet:
            load.wait_until_quiet()
        return (self.own or self.sweep)(args, run, shown)

    def newest_run(self, args: Namespace, run: "Run") -> Path:
        """The folder of this machine's newest run that planned the rows of the arguments.

        Raises: Usage when there is none.
        """
        from workloads.harness import resuming, sweep

        def planned_by(command: str) -> "Iterable[Row]":
            words = resuming.arguments(command, f"workloads.{self.name}")
            return [] if words is None else self.rows(self.parser().parse_args([*words, "--quiet"]), run.machine)

        rows = self.rows(args, run.machine)
        return resuming.newest_run(sweep.LOCAL / run.machine.key, run.command, rows, planned_by)

    def run(self, **keywords):
        """The rows as a pandas DataFrame, under the roofs measured with them; keywords are the flags, such as
        run(sizes=[256, 512], backends=["numpy"], fast=True).

        Raises: KeyboardInterrupt when a signal ended the sweep; the rows are in its file.
        """
        from workloads.harness import sweep

        args = options.namespace(self.parser(), **{"quiet": True, **keywords})
        run = sweep.header(args, f"workloads.{self.name}.run(**{keywords!r})")
        return frame(self.measure(args, run), self.op(args) or self.name)

    def session(self, args: Namespace, run=None, alone: bool = False) -> int:
        """Runs the command, `alone` or as one part of a suite, and returns the exit code. It prints the plan for --dry-run,
        else rows as they finish and then the answer. run: the suite's Run line; without it one of this command is made."""
        from workloads.harness import plan, sweep
        from workloads.machine import facts

        check_flags(args)
        if args.dry_run:
            here = facts.describe()
            rows = list(self.rows(args, here))
            if self.of_models:
                from workloads.frameworks import forecast

                for row in rows:
                    forecast.values(row.problem.model)  # as one that cannot be built makes no plan
            self.dry_run(rows, args, here) if self.dry_run else plan.dry_run(rows, args)
            return options.OK
        if alone and not self.of_models and not args.resume:
            here = facts.describe()
            plan.require_room_for_any(self.name, self.rows(args, here), here, self.examples[0])
        run = run or sweep.header(args, args.command)
        if args.format in ("table", "md"):
            out = self.table(args, run.machine)
        else:
            out = printing.Rows(args.format, self.op(args) or self.name, run.machine)
        outcome = self.measure(args, run, out.shown)
        out.finish()
        if args.format == "table" and (alone or self.answers_in_suite):
            self.answer(args, outcome)
        code = save_and_compare(args, outcome.files, sum_up(outcome, args))
        if alone:
            require_measured(outcome, self.name, self.examples[0])
        return code

    def main(self, argv: list[str] | None = None) -> int:
        return options.command(self.parser(), argv, lambda args: self.session(args, alone=True), self.check)

    def check(self, args: Namespace) -> None:
        """Plans what the arguments ask for.

        Raises: Stop where there is no plan, or where rows cannot be saved or compared as asked.
        """
        from workloads.harness import plan
        from workloads.machine import facts

        here = facts.describe()
        if args.dry_run:
            plan.require_plan_format(args)
        check_flags(args)
        self.rows(args, here)


def refined(done: list, answers: list, op: str, size: Callable) -> "list[Row]":
    """The rows still needed to narrow down each crossover: the kernels that won on either side of it. They are sorted by the
    problem's `size`, then by arithmetic, caches and device.

    At an added size only these run: both sides' best kernels, and the resident GPU call that says why. A size that another
    form measured nearby is reused.
    """
    from analysis.crossover import crossover
    from workloads.records import Row, Settings, distinct

    added: list[Row] = []
    families = [a.family for a in answers]
    for answer in sorted(answers, key=lambda a: families.index(a.family)):
        sizes = {answer.family.size(m.problem) for m in done if m.problem.op == op}
        for n in crossover.refine(answer, sizes):
            near = sorted(answer.points, key=lambda p: abs(p.n / n - 1))[:2]
            for side in (s for point in near for s in (point.cpu, point.gpu)):
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


def say(said: list[str], args: Namespace, outcome: "sweep.Outcome", op: str = "matmul") -> None:
    """Prints the ladder of an operation where it was asked for, then these lines."""
    if args.ladder:
        from analysis.crossover import ladder

        print("\n".join(ladder.lines(ladder.ladders(outcome.measurements, outcome.run.machine, op))))
    if said:
        print("\n" + "\n".join(said))


def check_flags(args: Namespace) -> None:
    """Checks --resume, --save and --against before anything is measured.

    Raises: Missing where the folder to resume has no run; Usage where the name to save exists, and where the run to compare with
    does not.
    """
    from workloads.records import baselines

    if args.resume and args.output and not any(Path(args.output).glob("*.jsonl")):
        raise options.Missing(f"no run in {args.output} to resume", wrong="--resume")
    if args.fail_on is not None and args.against is None:
        raise options.Usage("--fail-on needs --against, which says what to compare with", wrong="--fail-on")
    if args.save is not None:
        baselines.require_free(args.save)
    if args.against is not None:
        try:
            compare.read(args.against)
        except FileNotFoundError as error:
            similar = getattr(error, "similar", "")
            right = f"--against {getattr(error, 'right', '')}" if similar else ""
            raise options.Usage(str(error), wrong="--against", right=right) from error


def save(args: Namespace, files: list, apart: bool = False) -> None:
    """Saves the result files as the baseline asked for, if one is; `apart` as baselines.save has it."""
    from workloads.records import baselines

    if args.save:
        kept = baselines.save(args.save, files, apart)
        if not args.quiet:
            terminal.note(f"saved as the baseline {args.save!r}: {options.near(kept)}")


def save_and_compare(args: Namespace, files: list, code: int) -> int:
    """Saves the result files as a baseline and compares them with another, as the flags say; returns the exit code."""
    if code not in (options.OK, options.FAILED):
        return code
    save(args, files)
    if args.against:
        regressed = compare.against(args.against, files, args.fail_on, args.format)
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
    begun = re.sub(r" --resume\b| --stop-after[ =]('[^']*'|\S+)", "", command)
    where = "" if re.search(" -o| --output", begun) else f" -o {shlex.quote(options.near(folder))}"
    return f"{begun}{where} --resume"


def sum_up(outcome: "sweep.Outcome", args: Namespace) -> int:
    """Prints on stderr at the end: failed and skipped rows, doubts, how it stopped, the file; returns the exit code."""
    from analysis import checks
    from workloads.harness.plan import name, note

    file = options.near(outcome.path)
    bad = [m for m in outcome.measurements if m.status in ("failed", "wrong")]
    for m in bad[:5]:
        terminal.note(f"error: {name(m.row)} {m.status}: {m.reason}")
    if len(bad) > 5:
        terminal.note(f"... and {len(bad) - 5} more failed or wrong rows in the file")
    skipped = Counter(re.sub(r", [^,]* are free$", "", m.reason) for m in outcome.measurements if m.status == "skipped")
    for reason, rows in skipped.most_common(None if args.verbose else 2):
        said = f"skipped: {units.count(rows, 'row')}: {reason}"
        terminal.note(said) if outcome.exit_code == options.MISSING else note(args, said)
    for line in checks.lines(outcome.measurements, outcome.run.machine, file, args.verbose):
        note(args, terminal.paint(options.typed(line), "warning", sys.stderr))
    if outcome.stopped:
        how = options.typed(resume_command(outcome.run.command, outcome.path.parent))
        left = f"stopped by {outcome.stopped.replace('SIGINT', 'Ctrl-C')} with {units.count(outcome.left, 'row')} unfinished"
        terminal.note(f"{left}; finish with:\n  {how}")
    if not args.quiet:
        terminal.note(f"results: {file}")
    return outcome.exit_code


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
    there, begun = len(outcome.measurements), outcome.begun
    some = f" ({begun} with fewer visits than planned)" if begun else ""
    said = f"{there} of {there + outcome.left - begun} rows are here{some}, and what follows is said of these."
    return [said] if outcome.left else []


def _instead(m: "Measurement", command: str, workload: str, example: str) -> str:
    """A command like the one whose rows were skipped, that works here."""
    if "--device cpu" in m.reason:
        return f"{command} --device cpu"
    if ": " in m.reason and "pip install" in m.reason:
        return m.reason.rpartition(": ")[2]
    if "GiB" in m.reason and m.problem.op in ("training", "inference"):
        sizes = "--samples 1000" if m.problem.op == "training" else "--batch 1"
        return f"python -m workloads.{workload} --model {m.problem.model} {sizes}"
    return example
