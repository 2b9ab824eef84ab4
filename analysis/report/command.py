"""The command line of the report, and its parts that the command line of the roofline shares: all heavy modules are imported
after parsing."""

import argparse
import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workloads import help_screen, options, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

if TYPE_CHECKING:
    from analysis.report.material import Material
    from analysis.report.plan import ReportPlan

QUESTION = "What did a run measure, on one page?"


def parser(command: str, *, does: str, makes: str, question: str) -> CommandParser:
    """The command line of a command that writes files about runs: RUN... and -o DIR.

    Args:
        command: the module, such as analysis.report.
        does: what it does, for the top of its help.
        makes: the files that it writes, in words.
        question: what it answers, for the list of commands.
    """
    examples = (
        f"python -m {command} reports/local/MACHINE/RUN",
        f"python -m {command} reports/nvidia-h200/suite -o DIR",
    )
    command_parser = CommandParser(
        module=command,
        description=does,
        examples=examples,
        question=question,
        brief_flags=("--output",),
    )
    runs_help = "a result file, a run folder or a machine folder"
    command_parser.add_argument("runs", nargs="+", metavar="RUN", help=runs_help)
    where = " (default: RUN's folder; of several folders one of its own in reports/local/beside)"
    command_parser.add_argument(
        "-o",
        "--output",
        dest="out",
        metavar="DIR",
        type=options.folder,
        help=help_screen.help_text(f"folder of {makes}", rest=where),
    )
    return command_parser


def main(argv: list[str] | None = None) -> int:
    """Writes the pages and their pictures; prints the answer and the page's path. Returns the exit status."""
    report_parser = parser(
        "analysis.report",
        does="Writes the report of runs: an HTML page to open, and the same as Markdown and SVG. "
        "Other machines, and runs that measured the same again, are set beside the first.",
        makes="report.html, report.md and the pictures",
        question=QUESTION,
    )
    report_parser.add_argument("--open", action="store_true", help="open the page in a browser")
    readme = "also put the answer, or a short page, between FILE's markers that name RUN"
    report_parser.add_argument("--readme", metavar="FILE", help=readme)
    return running.run_command(report_parser, argv, make_plan=_plan, carry_out=_run)


def _plan(flags: argparse.Namespace) -> "ReportPlan":
    from analysis.report.plan import ReportPlan

    return ReportPlan.from_flags(flags)


def _run(plan: "ReportPlan") -> int:
    with refusals("analysis.report", plan.runs):
        return _report(plan)


@contextlib.contextmanager
def refusals(command: str, runs: Sequence[str]) -> Iterator[None]:
    """A context in which errors about the runs or the folder of a command become Usage errors, with a command that would work.

    command: the module that was called, such as analysis.report. runs: its runs, of which the first is proposed alone.
    """
    from analysis.report import page

    try:
        yield
    except (BrokenPipeError, options.Stop):
        raise
    except ValueError as error:
        tip = f"python -m {command} {page.folder_of(runs[0])}" if len(runs) > 1 else None
        raise options.Usage(str(error), tip) from error
    except OSError as error:
        if error.filename is None:  # it is stdout that cannot be written
            raise
        raise options.Usage(
            f"cannot write {error.filename}: {error.strerror}", wrong="--output", right=f"-o {options.PLACE}"
        ) from error


def _report(plan: "ReportPlan") -> int:
    """Writes the page and what else the plan asks for, and prints the answer and the page's path. Returns the exit code.

    Raises: Missing where libraries for the pictures or the HTML page are not installed, after everything else is done.
    """
    from analysis import report
    from analysis.report import html, material, page

    runs = material.shown(plan.runs)
    for run in runs:
        terminal.show([run.label, *run.answer] if run.label else run.answer)
    with terminal.doing("writing the page and its pictures"):
        markdown = page.write(runs, page.place(plan.runs, plan.out))
    to_open = report.to_open(markdown) if html.has_libraries() else markdown
    print(to_open)
    if plan.readme:
        _write_blocks(plan, plan.readme, runs)
    if plan.opens:
        import webbrowser

        webbrowser.open(to_open.resolve().as_uri())
    require_matplotlib("the report has no pictures")
    if not html.has_libraries():
        raise options.Missing(
            "there is no report.html: jinja2, markdown-it-py or plotly is not installed", html.INSTALL
        )
    return options.OK


def _write_blocks(plan: "ReportPlan", readme: pathlib.Path, runs: "list[Material]") -> None:
    """Writes the parts of a README page anew that stand between its markers: see plan.BLOCKS. The markers name the first run."""
    from analysis import table
    from analysis.report import page

    first = runs[0]
    blocks = {
        "answer": [f"- {table.text(sentence)}" for sentence in first.answer],
        "page": page.short(runs, plan.runs[0]),
        "trainings": first.table_of_trainings,
    }
    if "<!-- findings: " in table.page_text(readme):
        blocks["findings"] = first.findings
    table.put_blocks(readme, blocks, plan.runs[0], plan.readme_command)


def require_matplotlib(without: str) -> None:
    from analysis.report import page

    if not page.has_matplotlib():
        raise options.Missing(f"{without}: matplotlib is not installed", page.INSTALL)
