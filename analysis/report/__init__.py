"""The report people open: the answer first, everything else after. `python -m analysis.report RUN... [-o DIR]`."""

import os
import pathlib
from collections.abc import Iterable

Path = str | os.PathLike


def render(runs: Path | Iterable[Path], out: Path | None = None) -> pathlib.Path:
    """Writes report.md and its pictures into `out` (default: the first run's own folder) and gives report.md's path.

    Without matplotlib the page is written without pictures and says so.
    Raises: FileNotFoundError when a run has no result file; ValueError for runs of different machines; OSError.
    """
    from analysis.report.page import write

    return write([runs] if isinstance(runs, str | os.PathLike) else list(runs), out)
