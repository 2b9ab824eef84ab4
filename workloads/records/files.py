"""Result files: one JSON object a line, append-only; a Run first, then a Measurement for each row.

A resumed sweep adds another Run line before its own rows; visits of a row are joined, and of whole rows the last counts.
"""

import contextlib
import fcntl
import fnmatch
import functools
import glob
import hashlib
import operator
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from workloads import REPORTS, ROOT, options, terminal
from workloads.corrections import runs
from workloads.corrections.likeness import closest, similar_path
from workloads.options import Usage
from workloads.records import baselines, command_lines, regular_files
from workloads.records.rows import LAST_READER, SCHEMA, Line, Machine, Measurement, Run, finite, shortened, sound
from workloads.records.visits import together

MEASURE = "python -m workloads.matmul --sizes 64:1024:x2"
SOURCES = ("kernels", "workloads", "analysis")  # the folders of the project's sources
DATE = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"  # folders of the runs of a study: reports/MACHINE/STUDY/DATE
OTHERS_WORK = frozenset(("steal", "other-load", "other-tenant"))  # flags of other programs' work
_LONGEST_REASON = 2000  # characters that are read of a row's reason
_SHOWN_OF_SCHEMA = 40  # characters of one that is no number
_decoder = msgspec.json.Decoder(Line)
_BEGINNINGS = (b'{"type":"run",', b'{"type":"measurement",')  # of the lines that a Writer writes


class NoRun(Usage, FileNotFoundError):
    """A run has no result file. The error names the most similar path or saved name, else the nearest folder with one."""

    def __init__(self, run: str, saved: Sequence[str]):
        similar = ""
        if not os.path.exists(run or "."):
            similar = similar_path(run) or closest(run, saved) or similar_path(f"reports/{run}")
        called = [] if similar or os.path.exists(run) else runs.called(run)
        if len(called) == 1:
            similar = options.near(called[0])
        example = similar or (options.near(called[0]) if called else _nearest(run))
        names = f"; saved names: {', '.join(saved)}" if saved and not similar else ""
        what = f"no result file in {run or repr(run)}{names}"
        if os.path.isfile(run):
            what = f"{run} is no result file"
            self.leaves_out = True
        elif len(called) > 1:
            what = f"{run!r} is a run of several machines: {', '.join(map(options.near, called))}"
        super().__init__(what, wrong=run, right=example, similar="path" if similar else "")
        self.is_example = not similar
        self.names_run = True


def _nearest(run: str) -> str:
    """A folder with a result file: that of a file, one next to `run` with a similar name, this machine's newest run, or a stored
    one."""
    folder, name = os.path.split(run.rstrip("/"))
    if os.path.isfile(run) and _with_results(folder):
        return folder
    neighbors: dict[str, str] = {}
    if folder:
        neighbors = {os.path.basename(path): path for path in _with_results(f"{folder}/*")}
    similar = closest(name, neighbors)
    return neighbors[similar] if similar else options.near(runs.any_run())


def _with_results(folders: str) -> set[str]:
    """The folders of a pattern that have a result file, in themselves or in a folder of a date."""
    named: set[str] = set()
    for file in (*glob.glob(f"{folders}/*.jsonl"), *glob.glob(f"{folders}/{DATE}/*.jsonl")):
        with contextlib.suppress(regular_files.Unreadable):
            if is_result_file(Path(file)):
                named.add(os.fspath(study_folder(Path(file))))
    return named


def study_folder(file: Path) -> Path:
    """The folder of a result file; above a folder of a date that of the study."""
    folder = file.parent
    return folder.parent if fnmatch.fnmatch(folder.name, DATE) else folder


def is_result_file(path: Path) -> bool:
    """Whether a line of a file is a run or a row.

    Raises: Unreadable for what is no regular file.
    """
    return any(_decoded(text) is not None for text in regular_files.one_by_one(path))


class Refused(Usage):
    """An output that must not be touched; the message says what to type instead."""


class OtherSchema(Refused):
    """A result file of another schema than this program reads."""


@functools.cache
def source_hash(folder: Path | None = None) -> str:
    """A hash over the project's Python and CUDA sources as a process first saw them: which code made a file, also without git."""
    folder = folder or ROOT
    digest = hashlib.sha256()
    sources: list[Path] = []
    for top in SOURCES:
        sources += [path for path in (folder / top).rglob("*.*") if path.suffix in (".py", ".cu", ".cuh")]
    for path in sorted(sources):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class _Header(msgspec.Struct, frozen=True, tag="run"):
    """What every version of the line of a run has."""

    #: A whole number in the files of this program; anything in those of others.
    schema: object


_header_decoder = msgspec.json.Decoder(_Header)


class RowLines(msgspec.Struct, frozen=True, kw_only=True):
    """The newest lines of one row in a result file: its visits, or one whole measurement."""

    #: The run that made them; None where the file has no readable line of a run.
    run: Run | None
    #: Visits in the order of their rounds, or one line without a round.
    lines: list[Measurement]


class Writer(contextlib.AbstractContextManager):
    """Appends lines to one result file, a row at a time, under a lock.

    Raises: Refused when the file exists and is not resumed, is locked, is of another machine or none of ours, cannot be
    written, or is no longer there when a line was written and at the end.
    """

    def __init__(self, path: Path, run: Run, resume: bool = False):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            exists = os.path.lexists(path)
            if exists:
                regular_files.require_regular(path)
            # Unbuffered: a write refused by a full disk would be tried again, and fail again, when the file is closed.
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            no_folder = os.path.lexists(path.parent) and not path.parent.is_dir()
            reason = f"{path.parent} is no folder" if no_folder else error.strerror
            raise Refused(
                f"cannot write {path}: {reason}; choose a folder you may write with -o",
                wrong="-o --resume",
                right=f"-o {command_lines.unused(options.PLACE)}",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise _refused(path, "is being written by another run") from error
        self.rows_before: dict[str, RowLines] = {}
        if exists:
            try:
                self._take_up(run, resume)
            except Usage:
                self.close()
                raise
        self._size = os.fstat(self._file.fileno()).st_size  # bytes that the file has at least
        self.append(run)

    def _take_up(self, run: Run, resume: bool) -> None:
        """Reads what is there and ends its last line."""
        lines = regular_files.lines(self.path)
        runs, self.rows_before, _ = by_row(lines)
        require_ours(self.path, lines, runs, self.rows_before)
        require_same_machine(self.path, runs, run)
        other_sources = bool(self.rows_before and runs and runs[-1].sources != run.sources)
        has_visits = any(row.lines[-1].visit for row in self.rows_before.values())
        if not resume and other_sources and has_visits:
            raise _refused(self.path, "exists, with visits of other sources")
        if not resume:
            message = f"{self.path} exists; add --resume to finish it, or choose another folder with -o"
            raise Refused(message, f"{run.command} --resume")
        if other_sources:
            sources = (
                f"{self.path}: the last run in it was of sources {runs[-1].sources}, this one is of {run.sources}; "
            )
            if has_visits:
                raise Refused(sources + "visits of two programs are not one row", command_lines.anew(run.command))
            terminal.note(f"{sources}its rows stay as they are")
        end_last_line(self.path, lines)

    @property
    def done(self) -> list[Measurement]:
        """The rows that were there before."""
        return [together(row.lines) for row in self.rows_before.values()]

    def append(self, line: Line) -> None:
        line = shortened(finite(line)) if isinstance(line, Measurement) else line
        try:
            left = memoryview(msgspec.json.encode(line) + b"\n")
            self._size += len(left)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}; what was measured before is in it") from error
        self._require_whole()

    def _require_whole(self) -> None:
        """Raises Refused where the path no longer leads to the file that is written, or to all of it."""
        written = os.fstat(self._file.fileno())
        try:
            same = os.path.samestat(os.stat(self.path), written)
        except OSError:
            same = False
        if not same:
            raise Refused(f"{self.path} was removed or replaced while this run wrote it; its rows are lost")
        if written.st_size < self._size:
            raise Refused(f"{self.path} was cut while this run wrote it; rows of it are lost")

    def close(self) -> None:
        self._file.close()

    def __exit__(self, error_type: type[BaseException] | None, *_) -> None:
        try:
            if error_type is None:
                self._require_whole()
        finally:
            self.close()


def _refused(path: Path, why: str) -> Refused:
    """The error for a result file that a run cannot go on with, whose folder a new one replaces in the command."""
    folder = shlex.quote(command_lines.new_folder(str(path.parent)))
    message = f"{path} {why}; choose another folder with -o"
    return Refused(message, wrong="-o --resume", right=f"-o {folder}")


def require_ours(path: Path, lines: list[bytes], runs: list[Run], rows: dict[str, RowLines]) -> None:
    """Raises Refused for a file without one line of ours, and for one of another schema."""
    why = other_schema(lines)
    if why:
        raise _refused(path, why)
    if lines and not runs and not rows:
        raise _refused(path, "is no result file: none of its lines is a run or a measurement")


def require_same_machine(path: Path, runs: Iterable[Run], now: Run) -> None:
    """Raises Refused, with another folder, for a file that has a run of another machine than this one's."""
    for old in runs:
        if old.machine.key != now.machine.key:
            raise _refused(path, f"was measured on {old.machine.key}, this is {now.machine.key}")


def require_schema(path: str | os.PathLike, lines: Iterable[bytes]) -> None:
    """Raises OtherSchema for a file with a run of another schema than this program reads, also one that cannot be decoded."""
    why = other_schema(lines)
    if why:
        raise OtherSchema(f"{path} {why}")


def other_schema(lines: Iterable[bytes]) -> str:
    """`has schema 1, older than ...` for lines with a run of another schema than this program reads; "" for others."""
    for line in lines:
        try:
            schema = _header_decoder.decode(regular_files.without_mark(line)).schema
        except (ValueError, RecursionError):  # no line of a run
            continue
        if type(schema) is not int:
            shown = terminal.shorten(msgspec.json.encode(schema).decode(), _SHOWN_OF_SCHEMA)
            return f"has schema {shown}, not the {SCHEMA} that this program reads"
        if schema != SCHEMA:
            age = "newer" if schema > SCHEMA else "older"
            reader = f"; Crossover {LAST_READER[schema]} is the last that reads it" if schema in LAST_READER else ""
            return f"has schema {schema}, {age} than the {SCHEMA} that this program reads{reader}"
    return ""


def end_last_line(path: Path, lines: list[bytes]) -> None:
    """Ends the last line of a result file, so that the next one can be appended. One of ours that a killed run began is cut
    off; any other gets its newline."""
    if not lines or lines[-1].endswith(b"\n"):
        return
    last = lines[-1]
    if any(last[: len(begin)] == begin for begin in _BEGINNINGS) and not _decoded(last):
        os.truncate(path, sum(map(len, lines)) - len(last))
        return
    with open(path, "ab") as file:
        file.write(b"\n")


def _decoded(text: bytes) -> Line | None:
    """The Run or Measurement of a line; None of a line that is neither, or that nobody can have measured."""
    try:
        line = _decoder.decode(regular_files.without_mark(text))
    except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
        return None
    if not sound(line):
        return None
    if isinstance(line, Measurement) and len(line.reason) > _LONGEST_REASON:
        return msgspec.structs.replace(line, reason=terminal.shorten(line.reason, _LONGEST_REASON))
    return line


def by_row(lines: Iterable[bytes]) -> tuple[list[Run], dict[str, RowLines], int]:
    """(runs, row key -> its newest lines, bad lines counted) of a result file.

    A visit continues those before it whose number is lower; any other begins the row anew, as a whole line does.
    """
    runs: list[Run] = []
    rows: dict[str, RowLines] = {}
    bad = 0
    for text in lines:
        line = _decoded(text)
        if line is None:
            bad += bool(text.strip())
            continue
        if isinstance(line, Run):
            runs.append(line)
            continue
        key = line.key
        before = rows.get(key)
        if before and 0 < before.lines[-1].visit < line.visit:
            before.lines.append(line)
            continue
        rows.pop(key, None)
        rows[key] = RowLines(run=runs[-1] if runs else None, lines=[line])
    return runs, rows, bad


def decode(lines: Iterable[bytes]) -> tuple[list[Run], list[Measurement], int]:
    """(runs, measurements, bad lines counted) of a result file's lines: the visits of a row joined, of whole rows the last."""
    runs, rows, bad = by_row(lines)
    return runs, [together(row.lines) for row in rows.values()], bad


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
    damaged: "tuple[ResultFile, ...]" = ()

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


class NoRows(Usage):
    """A RUN has result files, but not one row."""

    def __init__(self, run: str | os.PathLike, bad_lines: int = 0, foreign: Sequence[Path] = ()):
        """bad_lines: of its files. foreign: its files, where none has a line of ours."""
        unread = ""
        if foreign:
            files = foreign[0].name if len(foreign) == 1 else f"each of its {len(foreign)} files"
            unread = f": {files} has no line that Crossover wrote"
        elif bad_lines:
            unread = f": {bad_lines} {'line' if bad_lines == 1 else 'lines'} of its files cannot be read"
        super().__init__(f"no rows in {run}{unread}", MEASURE, wrong=str(run), right=_nearest(str(run)))


class ResultFile(msgspec.Struct, frozen=True, kw_only=True):
    """One result file, decoded."""

    path: Path
    #: Its runs, in the order of their lines.
    runs: list[Run]
    #: Its rows: visits joined, of whole rows the last.
    measurements: list[Measurement]
    #: Number of lines that cannot be read.
    bad_lines: int
    #: Whether the last line has no end and cannot be read, as after a kill or a full disk.
    cut: bool


def result_file(path: str | os.PathLike) -> ResultFile:
    """Raises: Unreadable for what is no regular file; Refused for a file of another schema, and for one with runs of several
    machines, which no Writer makes."""
    lines = regular_files.lines(path)
    require_schema(path, lines)
    runs, measurements, bad_lines = decode(lines)
    keys = list(dict.fromkeys(run.machine.key for run in runs))
    if len(keys) > 1:
        raise Refused(
            f"{path} holds runs of several machines ({', '.join(keys)}); their rows cannot be told apart",
            wrong=str(path),
            right=options.near(options.stored_run()),
        )
    cut = bool(lines) and not lines[-1].endswith(b"\n") and _decoded(lines[-1]) is None
    return ResultFile(path=Path(path), runs=runs, measurements=measurements, bad_lines=bad_lines, cut=cut)


def files_of(run: str | os.PathLike) -> list[Path]:
    """The result files that RUN names: a file, the folder of a run, of a study or of a machine, a saved name, or the name of a
    machine whose runs come with the project.

    Raises: FileNotFoundError when there is none; NoRows when not one holds a line of ours; Unreadable where
    a folder or a file may not be looked at.
    """
    path = Path(run)
    if not os.fspath(run):  # of a variable that is not set; pathlib takes it for the current folder
        raise NoRun("", baselines.names())
    try:
        if not regular_files.exists(path):
            path = baselines.find(str(run)) or machine_folder(str(run)) or path
        if not regular_files.exists(path):
            raise NoRun(str(run), baselines.names())
        if not path.is_dir():
            return [_require_results(path)]
        named: list[Path] = []
        for folder in (path, *sorted(p for p in path.iterdir() if p.is_dir())):
            named += _jsonl_files(folder)
            if folder != path:
                for dated in sorted(folder.glob(DATE)):
                    named += _jsonl_files(dated)
        files = list(filter(is_result_file, named))
    except Usage:  # NoRun is an OSError too
        raise
    except OSError as error:
        shown = error.filename or path
        raise regular_files.Unreadable(f"cannot read {shown}: {regular_files.reason(shown, error)}") from error
    if not named:
        raise NoRun(str(run), baselines.names())
    if not files:
        raise NoRows(run, foreign=named)
    return files


def machine_folder(name: str) -> Path | None:
    """The folder under reports/ of a machine's stored runs, by its name such as `nvidia-h200`; None of any other word."""
    folder = REPORTS / name
    is_machine = os.path.basename(name) == name and name != runs.LOCAL.name and folder.is_dir()
    return Path(options.near(folder)) if is_machine else None


def _require_results(path: Path) -> Path:
    """The path of a result file. Raises NoRun for another file."""
    if not is_result_file(path):
        raise NoRun(str(path), ())
    return path


def _jsonl_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(".jsonl"))


def _with_rows(run: str | os.PathLike) -> list[ResultFile]:
    """The decoded files of RUN. Files of another schema in a folder are left out, which is said on stderr.

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
    for reason in refused:
        _warn_of_schema(str(reason))
    if not any(file.measurements for file in files):
        raise NoRows(run, sum(file.bad_lines for file in files))
    return files


@functools.cache  # once a file, which a command may read more often
def _warn_of_schema(why: str) -> None:
    """Says on stderr that a file of a folder is left out. why: its path and schema."""
    terminal.note(terminal.Line(f"{why}; its rows are left out", label="warning: "))


@functools.cache  # once a file, which a command may read more often
def _warn_of_bad_lines(path: Path, bad_lines: int, cut: bool, rows: int) -> None:
    """Says on stderr that lines of a result file cannot be read. cut: its last line is one of them, and has no end."""
    if cut and bad_lines == 1:
        fault = f"the last line of {path} is cut off"
    else:
        fault = f"{bad_lines} {'line' if bad_lines == 1 else 'lines'} of {path} cannot be read"
    read_rows = f"{rows} {'row' if rows == 1 else 'rows'} read"
    terminal.note(terminal.Line(f"{fault}; {read_rows}", label="warning: "))


def read(*runs: str | os.PathLike) -> Loaded:
    """Reads result files, run folders or machine folders. Of rows with one key the newest counts; a row disturbed by other
    programs never replaces an undisturbed one.

    Raises: FileNotFoundError when a run has no result file; NoRows when one has no row.
    """
    files: list[ResultFile] = []
    for run in runs:
        files += _with_rows(run)
    return joined(files)


def read_files(paths: Iterable[str | os.PathLike]) -> Loaded:
    """Reads result files as `read` does, also such as have no row."""
    return joined([result_file(path) for path in paths])


def joined(files: Iterable[ResultFile]) -> Loaded:
    """The rows of several files, as `read` gives them. Lines that cannot be read are counted on stderr."""
    files = list(files)
    damaged = [file for file in files if file.bad_lines]
    for file in damaged:
        _warn_of_bad_lines(file.path, file.bad_lines, file.cut, len(file.measurements))
    oldest_first = sorted(files, key=lambda file: file.runs[0].started_at if file.runs else "")
    ranked: dict[str, list[tuple[tuple[bool, str], Measurement]]] = {}
    for file in oldest_first:
        last_start = file.runs[-1].started_at if file.runs else ""
        for m in file.measurements:
            rank = not OTHERS_WORK.intersection(m.flags), m.at or last_start
            ranked.setdefault(m.key, []).append((rank, m))
    newest: list[Measurement] = []
    replaced: list[Measurement] = []
    for same_key in ranked.values():
        by_rank = [m for _, m in sorted(same_key, key=operator.itemgetter(0))]
        newest.append(by_rank[-1])
        replaced += by_rank[:-1]
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


def by_machine(*runs: str | os.PathLike) -> dict[str, Loaded]:
    """Machine key -> its rows, as `read` gives them; rows of two machines are never joined. "": files that name no machine.

    Raises: as `read`.
    """
    groups: dict[str, list[ResultFile]] = {}
    for run in runs:
        for file in _with_rows(run):
            key = file.runs[0].machine.key if file.runs else ""
            groups.setdefault(key, []).append(file)
    return {key: joined(group) for key, group in groups.items()}
