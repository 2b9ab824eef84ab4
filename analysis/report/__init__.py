"""The report people open: the answer first, everything else after. `python -m analysis.report RUN... [-o DIR]`."""

import os
import pathlib
from collections.abc import Iterable

Path = str | os.PathLike


def render(runs: Path | Iterable[Path], out: Path | None = None, with_html: bool = True) -> pathlib.Path:
    """Writes report.md, its pictures and report.html into `out` (default: the run's own folder; of runs in several
    folders one in reports/local/beside) and gives report.md's path.

    Without matplotlib the pages are written without pictures and say so; without plotly and jinja2 there is no report.html.
    Several machines, and runs of one that measured the same rows, stand beside each other on the page.
    Raises: FileNotFoundError when a run has no result file; OSError.
    """
    from analysis.report import material, page

    paths = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    return page.write(material.shown(paths), page.place(paths, out), with_html)


def to_open(path: pathlib.Path) -> pathlib.Path:
    """The page to open beside a report.md that was written: report.html, or report.md itself where there is none."""
    html = path.with_suffix(".html")
    return html if html.is_file() else path
