"""Compares two runs row by row: faster, slower, same or can't tell; exit code 4 on a regression."""

import argparse
import os
import pathlib
import shlex
import sys
from typing import TYPE_CHECKING

from analysis import metrics
from workloads import REPORTS, help_screen, options, stored_runs, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

if TYPE_CHECKING:
    from analysis.compare.comparison import RunComparison
    from analysis.compare.plan import ComparePlan
    from workloads.records import Loaded

QUESTION = "What became faster or slower between two runs?"
EXAMPLE = "python -m analysis.compare reports/local/MACHINE/OLD reports/local/MACHINE/NEW --fail-on 'slower>5%'"
LONG = """OLD and NEW are result files, run folders, machine folders or names given with --save. A difference is claimed only
when its whole 95 % interval lies beyond 2 %; the interval holds what the visits of both runs show and what two equal runs differ
by (measured once: python -m workloads.doctor --noise; two --rigorous runs show it themselves in device times). Rows are the same
when it lies within 5 %. Exit code 4 when --fail-on finds a regression; 5 with --strict when there is none, but some row
is too noisy to have shown one."""
_MOST = 40  # lines on a terminal; -v shows all


def parser() -> CommandParser:
    """The command line of python -m analysis.compare."""
    command_line = CommandParser(
        module="analysis.compare",
        description=LONG,
        examples=(EXAMPLE, "python -m analysis.compare reports/local/MACHINE/OLD NAME"),
        question=QUESTION,
        brief_flags=("--fail-on", "--strict", "--any-machine", "--verbose"),
    )
    command_line.add_argument("old", metavar="OLD", help="the earlier run")
    command_line.add_argument("new", metavar="NEW", help="the later run")
    clocks = ("device", "host-latency", "host-throughput", "host-issue")
    about = f"which time of a row counts: {', '.join(clocks)} (device where a row has it)"
    command_line.add_argument("--clock", choices=clocks, metavar="CLOCK", help=about)
    command_line.add_argument(
        "--fail-on",
        metavar="RULE",
        type=options.regression,
        help="exit 4 when a row is called slower by more than this, or fails now: 'slower>5%%', 5%% (the same), slower",
    )
    command_line.add_argument(
        "--strict",
        action="store_true",
        help="exit 5 when a row is too noisy to show a slowdown that --fail-on asks for",
    )
    command_line.add_argument(
        "--any-machine", action="store_true", help="compare runs of two different machines all the same"
    )
    command_line.add_argument("--format", choices=options.FORMATS, default="table", help="what stdout gets (table)")
    command_line.add_argument("-v", "--verbose", action="store_true", help="the rows that are the same too")
    columns = "columns of csv and json, their units, and which is better"
    command_line.add_argument_group(columns, help_screen.verbatim(metrics.columns_help(metrics.COMPARED)))
    return command_line


def read_timed(run: str) -> "Loaded":
    """The rows of a run, at least one of which has a time, so that it can be compared.

    Raises: Usage where it does not exist, is of several machines, or has no time.
    """
    loaded = read(run)
    if not any(m.ok and m.samples for m in loaded.measurements):
        raise options.Usage(f"no row in {run} has a time", None)
    return loaded


def read(run: str) -> "Loaded":
    """The rows of a run: a result file, a run folder, a machine folder or a saved name.

    Raises: Usage where it does not exist, or is of several machines.
    """
    from analysis.compare import comparison
    from workloads import records

    loaded = records.read(run)
    keys = comparison.machine_keys(loaded.runs)
    if len(keys) > 1:
        raise options.Usage(f"{run} holds runs of several machines ({', '.join(keys)}); name one of them")
    return loaded


def compare(
    old: "Loaded",
    new: "Loaded",
    on_any_machine: str,
    *,
    any_machine: bool = False,
    clock: str = "",
    is_typed: bool = True,
) -> "RunComparison":
    """Compares two runs row by row.

    Args:
        on_any_machine: the command that compares them even if they are of two machines, for the error.
        any_machine: whether they may be of two machines.
        clock: see comparison.comparison.
        is_typed: whether the user typed `analysis.compare`: else the error shows `on_any_machine` as another command.

    Raises: Usage for runs of two machines, unless `any_machine`.
    """
    from analysis.compare import comparison

    before, after = comparison.machine_keys(old.runs), comparison.machine_keys(new.runs)
    if before != after and not any_machine:
        why = "that compares the machines, not the code; add --any-machine if it is what you want"
        if not before or not after:
            why = "add --any-machine to compare them all the same"
        message = f"OLD {_measured_on(before)}, NEW {_measured_on(after)}: {why}"
        if not is_typed:
            raise options.Usage(message, instead=on_any_machine)
        raise options.Usage(message, on_any_machine, right="--any-machine")
    return comparison.comparison(old, new, clock)


def _measured_on(machines: tuple[str, ...]) -> str:
    """What an error says of a run: `was measured on nvidia-h200`. machines: the keys of the run's machines."""
    if not machines:
        return "has no line that names its machine"
    return f"was measured on {', '.join(machines)}"


def show(compared: "RunComparison", format_: str, *, verbose: bool = False, share: float | None = None) -> None:
    """Prints a comparison: how many rows changed, a table of these, which slowdown would have been seen, and notes.

    Args:
        format_: table, md, csv or json; with the last two the table goes to stdout and the sentences to stderr.
        verbose: whether the table has the rows that did not change too.
        share: of --fail-on: the slowdown of which it is said whether it would have been seen; None for the usual one.
    """
    from analysis import table
    from analysis.compare import comparison
    from analysis.text import comparisons

    out = sys.stdout if format_ in ("table", "md") else sys.stderr
    mark = "- " if format_ == "md" else ""
    terminal.show([terminal.Line(comparisons.summary(compared), label=mark)], out)
    if format_ in ("json", "csv"):
        table.records(comparison.records(compared), tuple(metrics.COMPARED), format_)
    else:
        _show_rows(compared, format_, verbose)
    sentences = comparisons.smallest_slowdowns(compared, share) + comparisons.notes(compared, verbose)
    terminal.show([terminal.Line(sentence, label=mark) for sentence in sentences], out)


def _show_rows(compared: "RunComparison", format_: str, verbose: bool) -> None:
    """Prints the table of the rows that changed, at most _MOST of them; with `verbose` of all rows. Prints nothing without
    such rows.
    """
    from analysis.compare import comparison
    from analysis.text import comparisons

    changed = comparisons.rows(compared, comparison.WORDS if verbose else comparison.CHANGED)
    if not changed.rows:
        return
    hidden = 0
    if not verbose:
        hidden = len(changed.rows) - _MOST
        changed.rows = changed.rows[:_MOST]
    lines = changed.md()[:-1] if format_ == "md" else changed.text()
    print("", *lines, sep="\n")
    if hidden > 0:
        print(f"... and {hidden} more; -v shows all")
    print()


def verdict(compared: "RunComparison", share: float | None, strict: bool = False) -> int:
    """The exit code of a comparison by the rule of --fail-on, with a line on stderr that says why.

    4: a row is slower by more than `share`, fails now, or may be in a line that cannot be read. 5, only if `strict`: a row is too
    noisy to show such a slowdown; without `strict` a warning is printed. 0: none of these, or there is no rule (share is None).
    """
    from analysis import numbers
    from analysis.units import count, percent

    if share is None:
        return options.OK
    names = [row.name for row in compared.regressions(share)]
    names += [f"{m.kernel} ({m.status})" for m in compared.broken]
    names += [f"{m.kernel} (not among the lines of NEW that can be read)" for m in compared.lost]
    if names:
        rule = f"slower by more than {percent(share)}" if share else "slower"
        regression = f"{count(len(names), 'row')} {rule} or broken, such as {names[0]}"
        terminal.note(terminal.Line(regression, label="regression: "))
        return options.REGRESSION
    noisy = compared.too_noisy(share) if share else ()
    if not noisy:
        return options.OK
    unsure = f"{len(noisy)} of {count(len(compared.rows), 'row')}, such as {noisy[0].name}"
    warning = f"{numbers.share(share)} slower would not have been seen in {unsure}"
    terminal.note(terminal.Line(warning, label="warning: "))
    return options.UNSEEN if strict else options.OK


def against(run: str, files: list[pathlib.Path], share: float | None, format_: str = "table") -> int:
    """Compares what a workload has just measured with an earlier run, for the workload's flag --against. Prints the comparison.

    Args:
        run: the earlier run.
        files: the new result files.
        share: of --fail-on: the share by which a row must be slower to be a regression; None without the flag.
        format_: table, md, csv or json. With csv and json only a summary is printed, on stderr.

    Returns: the exit code.

    Raises: Usage for runs that cannot be compared.
    """
    from analysis.text import comparisons
    from workloads import records

    on_any_machine = shlex.join(["python", "-m", "analysis.compare", run, str(files[0].parent), "--any-machine"])
    compared = compare(read_timed(run), records.read(*files), on_any_machine, is_typed=False)
    if format_ in ("table", "md"):
        print(f"\nagainst {run}:")
        show(compared, format_, share=share)
    else:
        print(f"against {run}: {comparisons.summary(compared)}", file=sys.stderr)
    return verdict(compared, share)


def _compared(plan: "ComparePlan") -> "RunComparison":
    """The comparison of the two runs of a plan.

    Raises: Usage for runs that do not exist, are of two machines, or have no row in common; where it can, it shows a command that
        compares two stored runs.
    """
    _require_runs(plan)
    old, new = read_timed(plan.old), read(plan.new)
    compared = compare(old, new, plan.on_any_machine, any_machine=plan.any_machine, clock=plan.clock)
    if not compared.rows and not compared.broken:
        stored = [options.near(options.stored_run(position)) for position in (0, 1)]
        instead = shlex.join(["python", "-m", "analysis.compare", *stored])
        raise options.Usage("the two runs have no row in common that has a time in both", instead=instead)
    return compared


def _require_runs(plan: "ComparePlan") -> None:
    """Raises NoRun where OLD or NEW does not exist, and NoRows where one has no row. These errors correct the command by a run
    with a similar name; where there is none, or it is the other of the two, by a run that can be compared with the other.
    """
    from workloads import records
    from workloads.records.run_files import NoRows, NoRun

    for names, run, partner in ((("OLD", "NEW"), plan.old, plan.new), (("NEW", "OLD"), plan.new, plan.old)):
        try:
            records.read(run)
        except (NoRun, NoRows) as error:
            if not error.similar or os.path.realpath(error.right) == os.path.realpath(partner):
                _correct_by_example(error, names, plan, partner)
            raise


def _correct_by_example(error: options.Usage, names: tuple[str, str], plan: "ComparePlan", partner: str) -> None:
    """Changes the correction of an error about OLD or NEW: a run that can be compared with the other one takes its place, else
    two stored runs take the places of both.

    Args:
        names: OLD and NEW, the wrong one first.
        partner: the run that is not wrong.
    """
    error.similar = ""
    error.is_example = True
    named = [options.near(stored_runs.run_named(name)) for name in names]
    others = [run for run in named if os.path.realpath(run) != os.path.realpath(partner)]
    example = ""
    if plan.old != plan.new:
        try:
            other_rows = read_timed(partner)
        except options.Usage:  # an error of its own, which comes next
            error.right = others[0]
            return
        candidates = [*others, *_folders_of_machine(other_rows, partner)]
        example = next((run for run in candidates if _is_comparable(run, other_rows, plan)), "")
    if example:
        error.right = example
        return
    stored = [options.near(options.stored_run(position)) for position in (0, 1)]
    error.instead = shlex.join(["python", "-m", "analysis.compare", *stored])


def _folders_of_machine(loaded: "Loaded", run: str) -> list[str]:
    """The stored folders of the machine that a run is of: the one with all of its runs, then one a study; without the run
    itself.
    """
    if loaded.machine is None:
        return []
    folder = REPORTS / loaded.machine.key
    folders = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    return [options.near(path) for path in folders if os.path.realpath(path) != os.path.realpath(run)]


def _is_comparable(run: str, other: "Loaded", plan: "ComparePlan") -> bool:
    """Whether a run can be compared with the rows of another: both have a row with a time in common, on a machine that the plan
    allows.
    """
    try:
        return bool(compare(read_timed(run), other, "", any_machine=plan.any_machine, clock=plan.clock).rows)
    except (options.Usage, OSError):
        return False


def _plan(flags: argparse.Namespace) -> "ComparePlan":
    from analysis.compare.plan import ComparePlan

    return ComparePlan.from_flags(flags)


def _run(plan: "ComparePlan") -> int:
    compared = _compared(plan)
    show(compared, plan.format, verbose=plan.verbose, share=plan.fail_on)
    return verdict(compared, plan.fail_on, plan.strict)


main = running.main_function(parser, make_plan=_plan, carry_out=_run, check=_compared)
