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
    return importlib.util.find_spec("matplotlib") is not None


def folder_of(run: "str | os.PathLike") -> pathlib.Path:
    """The folder that a RUN is or lies in; of a stored machine's name that machine's folder."""
    path = pathlib.Path(run)
    if not path.exists():
        path = run_files.machine_folder(os.fspath(run)) or path
    return path if path.is_dir() else path.parent


def place(runs: "Iterable[str | os.PathLike]", out: "str | os.PathLike | None" = None) -> pathlib.Path:
    """The folder for a page: `out`, else the runs' own folder. Runs of several folders get a new one,
    reports/local/beside/A-beside-B, so that no folder holds a page on other runs."""
    if out:
        return pathlib.Path(out)
    folders = [folder_of(run) for run in runs]
    first, *others = list(dict.fromkeys(folder.resolve() for folder in folders))
    if not others:
        return folders[0]
    names = ["-".join(folder.parts[-2:]) for folder in (first, *others)]
    return LOCAL / "beside" / "-beside-".join(names if len(names) == 2 else [names[0], f"{len(others)}-more"])


def write(every: list[Material], folder: pathlib.Path, with_html: bool = True) -> pathlib.Path:
    """Writes report.md, its pictures and report.html into the folder; the path of report.md."""
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
    """The lines of a machine folder's README: the machine, the answer, the pictures, and a table of runs."""
    lines = head.header(every, with_commands=False)
    lines += head.answers_section(every)
    if has_matplotlib():
        for section in body.SECTIONS:
            lines += pictures.images(section.charts, every)
    table_rows = []
    for folder, result_files in group_by(files_of(run), study_folder).items():
        loaded = read_files(result_files)
        dates = sorted({r.started_at[:10] for r in loaded.runs})
        counts = Counter(m.status for m in loaded.measurements).most_common()
        rows = ", ".join(f"{n} {status}" for status, n in counts)
        names = dict.fromkeys(file.stem for file in result_files)
        table_rows.append((folder.name, ", ".join(names), ", ".join(dates), rows))
    how = f"`python -m analysis.report {pathlib.Path(run).as_posix()}/RUN --open` makes the page of one."
    table = Table("run | files | measured on | rows", table_rows, left=4)
    return [*lines, "## Runs", "", how, "", *table.md()[:-1]]


def markdown(every: list[Material], drawn: bool) -> str:
    """The page: the answer first, everything else after; of several runs each section run by run. No control characters of a
    file's names are in it."""
    lines = head.header(every)
    lines += head.answers_section(every)
    if not drawn:
        lines += [f"No pictures were drawn: matplotlib is not installed (`{INSTALL}`).", ""]
    if differs := differences.section(every):
        lines += [f"## {differences.HEADING}", "", *blocks.markdown(differs)]
    for section in (*body.SECTIONS, body.METHOD):
        lines += _section(section, every, drawn)
    lines += ["## All numbers", "", *blocks.markdown(all_numbers.section(every))]
    lines += head.commands_section(every)
    return terminal.printable("\n".join(lines).rstrip() + "\n")


def _section(section: body.Section, every: list[Material], drawn: bool) -> list[str]:
    """A section with its pictures and their numbers; of several runs each one's part is a section with its name."""
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
