"""Lines of a result file that cannot be read, such as the last one after a kill or a full disk."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from workloads import terminal
from workloads.records.result_lines import decoded_line

_BEGINNINGS = (b'{"type":"run",', b'{"type":"measurement",')  # of the lines that this program writes


def is_cut(lines: Sequence[bytes]) -> bool:
    """Whether the last of a file's lines has no newline and cannot be read, as after a kill or a full disk."""
    return bool(lines) and not lines[-1].endswith(b"\n") and decoded_line(lines[-1]) is None


def end_last_line(path: Path, lines: Sequence[bytes]) -> None:
    """Makes a result file end with a newline, so that the next line can be appended.

    A last line that a killed run of this program began is cut off. Any other last line gets a newline: whatever somebody else
    wrote stays.

    lines: the content of the file.
    """
    if not lines or lines[-1].endswith(b"\n"):
        return
    last = lines[-1]
    is_begun_here = any(last[: len(beginning)] == beginning for beginning in _BEGINNINGS)
    if is_begun_here and decoded_line(last) is None:
        file_bytes = sum(len(line) for line in lines)
        os.truncate(path, file_bytes - len(last))
        return
    with open(path, "ab") as file:
        file.write(b"\n")


@functools.cache  # once a file: a command may read it several times
def warn(path: Path, bad_lines: int, *, is_cut: bool, rows: int) -> None:
    """Says on stderr how many lines of a result file cannot be read.

    is_cut: whether its last line is one of them and has no newline. rows: how many rows were read from the others.
    """
    if is_cut and bad_lines == 1:
        fault = f"the last line of {path} is cut off"
    else:
        fault = f"{bad_lines} {'line' if bad_lines == 1 else 'lines'} of {path} cannot be read"
    read_rows = f"{rows} {'row' if rows == 1 else 'rows'} read"
    terminal.note(terminal.Line(f"{fault}; {read_rows}", label="warning: "))
