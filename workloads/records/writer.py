"""Appends runs and measurements to a result file, a line at a time; a file that a run resumes is checked before."""

import contextlib
import fcntl
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from workloads import options, terminal
from workloads.options import Usage
from workloads.records import command_lines, damaged_lines, regular_files
from workloads.records.result_lines import DecodedLines, RowLines, decode
from workloads.records.rows import Measurement, Run, finite, shortened
from workloads.records.schemas import Refused, other_schema
from workloads.records.visits import together


class Writer(contextlib.AbstractContextManager):
    """Appends lines to one result file while it holds the file's lock.

    Raises: Refused when the file exists and is not resumed; when another process writes it; when it is of another machine or
    no result file; when it cannot be written; when it was removed, replaced or cut meanwhile, which is looked at after each
    line and at the end.
    """

    def __init__(self, path: Path, run: Run, resume: bool = False):
        """Opens the file, which is made if it is not there, and appends the line of the run.

        resume: whether the file may exist; then its rows are in `rows_before`.
        """
        self.path = path
        #: Key of a row -> its lines that were in the file before.
        self.rows_before: dict[str, RowLines] = {}
        exists = os.path.lexists(path)
        self._file = _opened(path)
        _lock(self._file, path)
        if exists:
            try:
                self._check_and_read(run, resume)
            except Usage:
                self.close()
                raise
        self._least_bytes = os.fstat(self._file.fileno()).st_size  # a shorter file was cut by somebody else
        self.append(run)

    def _check_and_read(self, run: Run, resume: bool) -> None:
        """Reads the rows of an existing file into `rows_before` and ends its last line with a newline.

        Raises: Refused where this run must not append to it.
        """
        lines = regular_files.lines(self.path)
        before = decode(lines)
        self.rows_before = before.rows
        require_result_file(self.path, lines, before)
        require_same_machine(self.path, before.runs, run)
        other_sources = bool(before.rows and before.runs and before.runs[-1].sources != run.sources)
        has_visits = any(row.lines[-1].visit for row in before.rows.values())
        if not resume and other_sources and has_visits:
            raise _refused(self.path, "exists, with visits of other sources")
        if not resume:
            message = f"{self.path} exists; add --resume to finish it, or choose another folder with -o"
            raise Refused(message, f"{run.command} --resume")
        if other_sources:
            old_sources = before.runs[-1].sources
            change = f"{self.path}: the last run in it was of sources {old_sources}, this one is of {run.sources}; "
            if has_visits:
                message = f"{change}visits of two programs are not one row"
                raise Refused(message, command_lines.with_new_folder(run.command))
            terminal.note(f"{change}its rows stay as they are")
        damaged_lines.end_last_line(self.path, lines)

    @property
    def done(self) -> list[Measurement]:
        """The rows that were in the file before, the visits of each joined."""
        return [together(row.lines) for row in self.rows_before.values()]

    def append(self, line: Run | Measurement) -> None:
        """Writes a line and waits until it is on the disk.

        Raises: Refused when it cannot be written, or the file was removed, replaced or cut meanwhile.
        """
        if isinstance(line, Measurement):
            line = shortened(finite(line))
        try:
            left = memoryview(msgspec.json.encode(line) + b"\n")
            self._least_bytes += len(left)
            while left:
                written_bytes = self._file.write(left)
                left = left[written_bytes:]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}; what was measured before is in it") from error
        self._require_whole()

    def _require_whole(self) -> None:
        """Raises Refused if the path leads to another file by now, or if the file is shorter than what was written to it."""
        open_file = os.fstat(self._file.fileno())
        try:
            is_same_file = os.path.samestat(os.stat(self.path), open_file)
        except OSError:
            is_same_file = False
        if not is_same_file:
            raise Refused(f"{self.path} was removed or replaced while this run wrote it; its rows are lost")
        if open_file.st_size < self._least_bytes:
            raise Refused(f"{self.path} was cut while this run wrote it; rows of it are lost")

    def close(self) -> None:
        """Closes the file, which also releases its lock."""
        self._file.close()

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            if error_type is None:
                self._require_whole()
        finally:
            self.close()


def _opened(path: Path) -> BinaryIO:
    """The file at a path, opened for reading and appending; the file and its folder are made if they are not there.

    Raises: Refused where that is not possible; Unreadable for a pipe, a device or a folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            regular_files.require_regular(path)
        # Unbuffered: a write refused by a full disk would be tried again, and fail again, when the file is closed.
        return open(path, "a+b", buffering=0)
    except OSError as error:
        is_no_folder = os.path.lexists(path.parent) and not path.parent.is_dir()
        reason = f"{path.parent} is no folder" if is_no_folder else error.strerror
        raise Refused(
            f"cannot write {path}: {reason}; choose a folder you may write with -o",
            wrong="-o --resume",
            right=f"-o {command_lines.unused(options.PLACE)}",
        ) from error


def _lock(file: BinaryIO, path: Path) -> None:
    """Locks the open file at this path until it is closed. Raises: Refused when another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise _refused(path, "is being written by another run") from error


def _refused(path: Path, fault: str) -> Refused:
    """The error for a result file that a run cannot append to; in the corrected command a new folder stands in place of its.

    fault: what is wrong with the file, in words that follow its name.
    """
    folder = shlex.quote(command_lines.new_folder(str(path.parent)))
    message = f"{path} {fault}; choose another folder with -o"
    return Refused(message, wrong="-o --resume", right=f"-o {folder}")


def require_result_file(path: Path, lines: Sequence[bytes], decoded: DecodedLines) -> None:
    """Raises Refused if a file is of another schema than this program reads, or has lines of which none is a run or a row.

    lines: the content of the file. decoded: the same, decoded.
    """
    schema_fault = other_schema(lines)
    if schema_fault:
        raise _refused(path, schema_fault)
    if lines and not decoded.runs and not decoded.rows:
        raise _refused(path, "is no result file: none of its lines is a run or a measurement")


def require_same_machine(path: Path, runs_before: Iterable[Run], run: Run) -> None:
    """Raises Refused if a run in the result file at `path` was on another machine than the new `run`."""
    for old in runs_before:
        if old.machine.key != run.machine.key:
            raise _refused(path, f"was measured on {old.machine.key}, this is {run.machine.key}")
