"""The command line of the report, and what that of the roofline shares with it: everything heavy is imported after parsing."""

import argparse
import pathlib
import webbrowser

from workloads import options, terminal

QUESTION = "What did a run measure, on one page?"
BLOCKS = "answer", "page", "trainings", "findings"  # what --readme can write between markers


def parser(command: str, does: str, makes: str, question: str) -> options.Parser:
    examples = (
        f"python -m {command} reports/local/MACHINE/RUN",
        f"python -m {command} reports/nvidia-h200/suite -o DIR",
    )
    made = options.parser(command, does, *examples, question=question, needs="output")
    made.add_argument("runs", nargs="+", metavar="RUN", help="a result file, a run folder or a machine folder")
    made.add_argument(
        "-o",
        "--output",
        dest="out",
        metavar="DIR",
        help=f"folder of {makes} (default: RUN's folder; of several folders one of its own in reports/local/beside)",
    )
    return made


def main(argv: list[str] | None = None) -> int:
    """Writes the pages and their pictures; prints the answer and the page's path. Returns the exit status."""
    made = parser(
        "analysis.report",
        "Writes the report of runs: an HTML page to open, and the same as Markdown and SVG. "
        "Other machines, and runs that measured the same again, are set beside the first.",
        "report.html, report.md and the pictures",
        QUESTION,
    )
    made.add_argument("--open", action="store_true", help="open the page in a browser")
    readme = "also put the answer, or a short page, between FILE's markers that name RUN"
    made.add_argument("--readme", metavar="FILE", help=readme)
    return options.command(made, argv, lambda arguments: guarded("analysis.report", _report, arguments), _check)


def check(arguments: argparse.Namespace) -> None:
    """Raises options.Usage for a RUN without results."""
    from workloads import records

    for run in arguments.runs:
        records.files_of(run)


def _check(arguments: argparse.Namespace) -> None:
    """Raises options.Usage for a RUN without results, and for a page of --readme without lines to write between."""
    from analysis import table

    check(arguments)
    if arguments.readme:
        readme = pathlib.Path(arguments.readme)
        try:
            table.require_block(readme, BLOCKS, arguments.runs[0], _readme_command(arguments))
        except ValueError as error:
            raise options.Usage(str(error), wrong="--readme") from error


def _readme_command(arguments: argparse.Namespace) -> str:
    return f"analysis.report {arguments.runs[0]} --readme {arguments.readme}"


def guarded(command: str, job, arguments: argparse.Namespace) -> int:
    """Runs the job; what is wrong with the runs or the folder becomes a Usage."""
    from analysis.report import page

    try:
        return job(arguments)
    except (BrokenPipeError, options.Stop):
        raise
    except ValueError as error:
        raise options.Usage(str(error), f"python -m {command} {page.folder_of(arguments.runs[0])}") from error
    except OSError as error:
        if error.filename is None:  # what stdout goes to
            raise
        raise options.Usage(
            f"cannot write {error.filename}: {error.strerror}", wrong="--output", right=f"-o {options.PLACE}"
        ) from error


def _report(arguments: argparse.Namespace) -> int:
    from analysis import report, table
    from analysis.report import html, material, page

    _check(arguments)
    shown = material.shown(arguments.runs)
    for of in shown:
        print(*([of.label] if of.label else []), *of.said, sep="\n", flush=True)
    with terminal.doing("writing the page and its pictures"):
        path = page.write(shown, page.place(arguments.runs, arguments.out))
    opened = report.to_open(path) if html.has_libraries() else path
    print(opened)
    if arguments.readme:
        readme = pathlib.Path(arguments.readme)
        blocks = {"answer": [f"- {table.text(sentence)}" for sentence in shown[0].said]}
        blocks |= {"page": page.short(shown, arguments.runs[0]), "trainings": shown[0].table_of_trainings}
        if "<!-- findings: " in readme.read_text(encoding="utf-8"):
            blocks["findings"] = shown[0].findings
        table.put_blocks(readme, blocks, arguments.runs[0], _readme_command(arguments))
    if arguments.open:
        webbrowser.open(opened.resolve().as_uri())
    require_matplotlib("the report has no pictures")
    if not html.has_libraries():
        raise options.Missing(
            "there is no report.html: jinja2, markdown-it-py or plotly is not installed", html.INSTALL
        )
    return options.OK


def require_matplotlib(without: str) -> None:
    from analysis.report import page

    if not page.has_matplotlib():
        raise options.Missing(f"{without}: matplotlib is not installed", page.INSTALL)
