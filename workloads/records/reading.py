"""Reads result files. The rows of several files are joined: of rows with one key the newest counts."""

import functools
import operator
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from workloads import options, terminal
from workloads.records import damaged_lines, regular_files
from workloads.records.result_lines import decode
from workloads.records.rows import Machine, Measurement, Run
from workloads.records.run_files import NoRows, files_of
from workloads.records.schemas import OtherSchema, Refused, require_schema

OTHERS_WORK = frozenset(("steal", "other-load", "other-tenant"))  # flags of rows that other programs disturbed


class ResultFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result file, decoded."""

    path: Path
    #: Its runs, in the order of their lines.
    runs: list[Run]
    #: Its rows: one Measurement each, from all its visits or from its last line.
    measurements: list[Measurement]
    #: Number of lines that cannot be read.
    bad_lines: int
    #: Whether the last line has no end and cannot be read, as after a kill or a full disk.
    cut: bool


class Loaded(msgspec.Struct, frozen=True):
    """Everything read from one or more result files."""

    #: The runs, oldest first.
    runs: tuple[Run, ...]
    #: The newest measurement of each row.
    measurements: tuple[Measurement, ...]
    #: Number of lines that cannot be read.
    bad_lines: int
    #: Paths of the files.
    files: tuple[str, ...]
    #: Measurements of rows that newer ones replace.
    replaced: tuple[Measurement, ...] = ()
    #: The files with lines that cannot be read.
    damaged: tuple[ResultFile, ...] = ()

    @property
    def every(self) -> tuple[Measurement, ...]:
        """All rows, replaced ones too, since roofs count the best rate ever reached."""
        return (*self.replaced, *self.measurements)

    @property
    def last(self) -> Run | None:
        """The newest run; None of a file without any."""
        return self.runs[-1] if self.runs else None

    @property
    def machine(self) -> Machine | None:
        """The machine of the newest run."""
        return self.last.machine if self.last else None


def read(*runs: str | os.PathLike) -> Loaded:
    """Reads result files, run folders or machine folders. Of rows with one key the newest counts; a row disturbed by other
    programs never replaces an undisturbed one.

    Raises: FileNotFoundError when a run has no result file; NoRows when one has no row.
    """
    files: list[ResultFile] = []
    for run in runs:
        files += _files_with_rows(run)
    return joined(files)


def read_files(paths: Iterable[str | os.PathLike]) -> Loaded:
    """Reads result files as `read` does; files without a row are no error."""
    return joined([result_file(path) for path in paths])


def by_machine(*runs: str | os.PathLike) -> dict[str, Loaded]:
    """Key of a machine -> its rows, as `read` gives them; rows of two machines are never joined. "": files that name no
    machine.

    Raises: as `read`.
    """
    groups: dict[str, list[ResultFile]] = {}
    for run in runs:
        for file in _files_with_rows(run):
            key = file.runs[0].machine.key if file.runs else ""
            groups.setdefault(key, []).append(file)
    return {key: joined(group) for key, group in groups.items()}


def result_file(path: str | os.PathLike) -> ResultFile:
    """Reads one result file.

    Raises: Unreadable for a path that is no regular file; OtherSchema for a file of another schema; Refused for a file with
    runs of several machines, which a Writer never makes.
    """
    lines = regular_files.lines(path)
    require_schema(path, lines)
    decoded = decode(lines)
    machines = list(dict.fromkeys(run.machine.key for run in decoded.runs))
    if len(machines) > 1:
        raise Refused(
            f"{path} holds runs of several machines ({', '.join(machines)}); their rows cannot be told apart",
            wrong=str(path),
            right=options.near(options.stored_run()),
        )
    return ResultFile(
        path=Path(path),
        runs=decoded.runs,
        measurements=decoded.measurements,
        bad_lines=decoded.bad_lines,
        cut=damaged_lines.is_cut(lines),
    )


def _files_with_rows(run: str | os.PathLike) -> list[ResultFile]:
    """The decoded result files of a run, which is named as `files_of` takes it: by a file, a folder or a saved name. Files of
    another schema (version of the format) are left out with a warning on stderr, as long as one file can be read.

    Raises: FileNotFoundError when it has no result file; NoRows when its files have no row; OtherSchema where every file is of
    another schema.
    """
    files: list[ResultFile] = []
    refused: list[OtherSchema] = []
    for path in files_of(run):
        try:
            files.append(result_file(path))
        except OtherSchema as error:
            refused.append(error)
    if refused and not files:
        raise refused[0]
    for refusal in refused:
        _warn_of_other_schema(str(refusal))
    if not any(file.measurements for file in files):
        raise NoRows(run, bad_lines=sum(file.bad_lines for file in files))
    return files


@functools.cache  # once a file: a command may read it several times
def _warn_of_other_schema(fault: str) -> None:
    """Says on stderr that the rows of a file are left out. fault: the file's path and its schema, in words."""
    terminal.note(terminal.Line(f"{fault}; its rows are left out", label="warning: "))


def joined(files: Iterable[ResultFile]) -> Loaded:
    """The rows of several files, of rows with one key the newest as `read` chooses it. Warns on stderr of lines that cannot be
    read."""
    files = list(files)
    damaged = [file for file in files if file.bad_lines]
    for file in damaged:
        damaged_lines.warn(file.path, file.bad_lines, is_cut=file.cut, rows=len(file.measurements))
    oldest_first = sorted(files, key=lambda file: file.runs[0].started_at if file.runs else "")
    newest: list[Measurement] = []
    replaced: list[Measurement] = []
    for same_key in _ranked_by_key(oldest_first).values():
        newest.append(same_key[-1])
        replaced += same_key[:-1]
    runs: list[Run] = []
    for file in oldest_first:
        runs += file.runs
    return Loaded(
        runs=tuple(runs),
        measurements=tuple(newest),
        bad_lines=sum(file.bad_lines for file in damaged),
        files=tuple(str(file.path) for file in files),
        replaced=tuple(replaced),
        damaged=tuple(damaged),
    )


def _ranked_by_key(oldest_first: Iterable[ResultFile]) -> dict[str, list[Measurement]]:
    """Key of a row -> its measurements in all files, the one that counts last: disturbed ones come before undisturbed ones,
    and among equals older ones before newer ones."""
    ranked: dict[str, list[tuple[tuple[bool, str], Measurement]]] = {}
    for file in oldest_first:
        last_start = file.runs[-1].started_at if file.runs else ""
        for measurement in file.measurements:
            is_undisturbed = not OTHERS_WORK.intersection(measurement.flags)
            rank = is_undisturbed, measurement.at or last_start
            ranked.setdefault(measurement.key, []).append((rank, measurement))
    by_key: dict[str, list[Measurement]] = {}
    for key, same_key in ranked.items():
        same_key.sort(key=operator.itemgetter(0))
        by_key[key] = [measurement for _, measurement in same_key]
    return by_key
