"""Writes the pages and pictures of reports. A new file takes the place of the old one, and never that of a foreign file."""

import contextlib
import os
import pathlib

from workloads import options
from workloads.records import command_lines, regular_files

PICTURE_CREATOR = "Crossover, https://matplotlib.org/"
# By suffix: text that every file of ours contains.
_MARKS = {
    ".html": (b'<p class="kind">Crossover</p>',),
    ".md": (b"# What was measured: ", b"# Where the GPU starts to win: "),
    ".svg": (f"<dc:title>{PICTURE_CREATOR}</dc:title>".encode(),),
}


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file of a report. It is written under another name first, so that an interrupted command leaves the old file.

    Raises: Usage where a file of that name was not written by a report, or is a link; OSError with the name of the file.
    """
    require_ours(path)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(content)
        new.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def _has_mark(path: pathlib.Path) -> bool:
    """Whether a file was written by a report: some line of it has the mark that files of this suffix get.

    Raises: Unreadable for a line that is too long.
    """
    for line in regular_files.one_by_one(path):
        marks = [mark for mark in _MARKS[path.suffix] if mark in line]
        if marks:
            return True
    return False


def require_ours(path: pathlib.Path) -> None:
    """Raises Usage where a path is a file that no report wrote, a link or something else; not where it does not exist or is
    empty.
    """
    if not os.path.lexists(path):
        return
    foreign = path.is_symlink()
    if not foreign:
        regular_files.require_regular(path)
        foreign = path.stat().st_size > 0 and not _has_mark(path)
    if foreign:
        raise options.Usage(
            f"{path} was not written by Crossover; move it away, or choose another folder with -o",
            wrong="--output",
            right=f"-o {command_lines.unused(options.PLACE)}",
        )
