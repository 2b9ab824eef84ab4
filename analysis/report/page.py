"""Puts the report together and writes it: the Markdown page with its pictures, and the HTML page beside it."""

import importlib.util
import os
import pathlib
from collections import Counter
from collections.abc import Iterable

from analysis import blocks
from analysis.report import body, html, pictures, replacing
from analysis.report.material import Material
from analysis.report.sections import all_numbers, differences, head
from analysis.stats import group_by
from analysis.table import Table, text
from workloads import REPORTS, terminal
from workloads.records import files_of, read_files, run_files, study_folder

INSTALL = "python -m pip install matplotlib"
LOCAL = REPORTS / "local"


def has_matplotlib() -> bool:
    """Whether matplotlib is installed, which draws the pictures."""
    return importlib.util.find_spec("matplotlib") is not None


def folder_of(run: "str | os.PathLike") -> pathlib.Path:
    """The folder of a run, which is named by the folder, by a result file in it, or by the name of a stored machine."""
    path = pathlib.Path(run)
    if not path.exists():
        path = run_files.machine_folder(os.fspath(run)) or path
    return path if path.is_dir() else path.parent


def place(runs: "Iterable[str | os.PathLike]", out: "str | os.PathLike | None" = None) -> pathlib.Path:
    """The folder for a page: `out`, else the folder of the runs. Runs of several folders have a page in a folder of its own,
    reports/local/beside/A-beside-B, so that no run's folder holds a page on other runs.
    """
    if out:
        return pathlib.Path(out)
    folders = [folder_of(run) for run in runs]
    first, *others = list(dict.fromkeys(folder.resolve() for folder in folders))
    if not others:
        return folders[0]
    names = ["-".join(folder.parts[-2:]) for folder in (first, *others)]
    return LOCAL / "beside" / "-beside-".join(names if len(names) == 2 else [names[0], f"{len(others)}-more"])


def write(every: list[Material], folder: pathlib.Path, with_html: bool = True) -> pathlib.Path:
    """Writes report.md, its pictures and report.html into a folder. Returns the path of report.md. Without matplotlib there are
    no pictures; without the libraries of analysis.report.html no report.html.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = has_matplotlib()
    if drawn:
        pictures.draw(every, folder)
    path = folder / "report.md"
    replacing.write(path, markdown(every, drawn).encode())
    if with_html and html.has_libraries():
        html.write(every, folder / html.NAME, folder if drawn else None)
    return path


def short(every: list[Material], run: "str | os.PathLike") -> list[str]:
    """The lines for a machine folder's README.md: the machine, the answer, the pictures, and a table of its runs. run: the
    folder, as the commands in these lines name it.
    """
    lines = head.header(every, with_commands=False)
    lines += head.answers_section(every)
    if has_matplotlib():
        for section in body.SECTIONS:
            lines += pictures.images(section.charts, every)
    how = f"`python -m analysis.report {pathlib.Path(run).as_posix()}/RUN --open` makes the page of one."
    table_lines = _table_of_runs(run).md()
    without_last_blank = table_lines[:-1]
    return [*lines, "## Runs", "", how, "", *without_last_blank]


def _table_of_runs(machine_folder: "str | os.PathLike") -> Table:
    """A line for each run in a machine's folder: its files, the days on which it was measured, and how many rows have each
    status.
    """
    rows = []
    for folder, result_files in group_by(files_of(machine_folder), study_folder).items():
        loaded = read_files(result_files)
        dates = sorted({r.started_at[:10] for r in loaded.runs})
        counts = Counter(m.status for m in loaded.measurements).most_common()
        statuses = ", ".join(f"{n} {status}" for status, n in counts)
        names = dict.fromkeys(file.stem for file in result_files)
        rows.append((folder.name, ", ".join(names), ", ".join(dates), statuses))
    return Table("run | files | measured on | rows", rows, left=4)


def markdown(every: list[Material], drawn: bool) -> str:
    """The text of report.md: the answer first, then each section, run by run. Control characters that names of files may have are
    left out. drawn: whether there are pictures to link to.
    """
    lines = head.header(every)
    lines += head.answers_section(every)
    if not drawn:
        lines += [f"No pictures were drawn: matplotlib is not installed (`{INSTALL}`).", ""]
    differs = differences.section(every)
    if differs:
        lines += [f"## {differences.HEADING}", "", *blocks.markdown(differs)]
    for section in (*body.SECTIONS, body.METHOD):
        lines += _section(section, every, drawn)
    lines += ["## All numbers", "", *blocks.markdown(all_numbers.section(every))]
    lines += head.commands_section(every)
    return terminal.printable("\n".join(lines).rstrip() + "\n")


def _section(section: body.Section, every: list[Material], drawn: bool) -> list[str]:
    """The lines of a section with its pictures and their tables; [] where no run has anything for it. Of several runs each has a
    section of its own with its label. drawn: whether there are pictures.
    """
    parts = {}
    for run in every:
        lines = blocks.markdown(body.blocks(section, run))
        if lines:
            parts[run.label] = lines
    images = pictures.images(section.charts, every) if drawn else []
    tables = pictures.numbers(section.charts, every)
    if not (parts or tables):
        return []
    only_run = parts.pop("", [])
    lines = [f"## {section.title}", "", *images, *only_run, *tables]
    for label, part in parts.items():
        lines += [f"## {section.title}, {text(label)}", "", *part]
    return lines
