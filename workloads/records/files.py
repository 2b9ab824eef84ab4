"""Result files: one JSON object a line, append-only; a Run first, then a Measurement for each row.

A resumed sweep adds another Run line before its own rows; visits of a row are joined, and of whole rows the last counts.
"""

import contextlib
import fcntl
import functools
import glob
import gzip
import hashlib
import operator
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from workloads import ROOT, options, terminal
from workloads.corrections import closest, similar_path
from workloads.options import Usage
from workloads.records import baselines
from workloads.records.rows import SAMPLES, SCHEMA, Line, Machine, Measurement, Run, finite, sound
from workloads.records.visits import together

SOURCES = ("kernels", "workloads", "analysis")  # the folders of the project's sources
OTHERS_WORK = frozenset(("steal", "other-load", "other-tenant"))  # flags of other programs' work
_FIRST_LINES = 4  # of a file, of which one tells whether it holds results
_LONGEST_LINE = 1 << 24  # bytes
_decoder = msgspec.json.Decoder(Line)


class NoRun(Usage, FileNotFoundError):
    """A run has no result file. The error names the most similar path or saved name, else the nearest folder with one."""

    def __init__(self, run: str, saved: Sequence[str]):
        similar = ""
        if not os.path.exists(run or "."):
            similar = similar_path(run) or closest(run, saved) or similar_path(f"reports/{run}")
        names = f"; saved names: {', '.join(saved)}" if saved and not similar else ""
        what = f"no result file in {run or repr(run)}{names}"
        if os.path.isfile(run):
            what = f"{run} is no result file"
        super().__init__(what, wrong=run, right=similar or _nearest(run), similar="path" if similar else "")


def _nearest(run: str) -> str:
    """The folder with a result file and the most similar name: beside `run`, of this machine, or a stored one."""
    beside, local = os.path.dirname(run), "reports/local/*/*"
    for folders in (f"{beside}/*", local, "reports/*/*") if beside else (local,):
        near = {os.path.dirname(file) for file in glob.glob(f"{folders}/*.jsonl") if is_result_file(Path(file))}
        if near:
            return closest(run, near, 0)
    return options.near(options.stored_run())


def is_result_file(path: Path) -> bool:
    """Whether one of a file's first lines is a run or a row."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            first = [file.readline(_LONGEST_LINE) for _ in range(_FIRST_LINES)]
    except OSError:
        return False
    return any(_is_line(text) for text in first if text.strip())


def _is_line(text: bytes) -> bool:
    try:
        _decoder.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


class Refused(Usage):
    """An output that must not be touched; the message says what to type instead."""


@functools.cache
def source_hash(folder: Path | None = None) -> str:
    """A hash over the project's Python and CUDA sources as a process first saw them: which code made a file, also without git."""
    folder = folder or ROOT
    digest = hashlib.sha256()
    every = (p for top in SOURCES for p in (folder / top).rglob("*.*"))
    for path in sorted(p for p in every if p.suffix in (".py", ".cu", ".cuh")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Writer(contextlib.AbstractContextManager):
    """Appends lines to one result file, a row at a time, under a lock.

    Raises: Refused when the file exists and is not resumed, is locked, is of another machine, or cannot be written.
    """

    def __init__(self, path: Path, run: Run, resume: bool = False):
        self.path = path
        if path.exists() and not resume:
            again = f"{run.command} --resume"
            raise Refused(f"{path} exists; add --resume to finish it, or choose another folder with -o", again)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: a write refused by a full disk would be tried again, and fail again, when the file is closed.
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise Refused(
                f"cannot write {path}: {error.strerror}; choose a folder you may write with -o",
                wrong="-o",
                right=f"-o {options.PLACE}",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise Refused(f"{path} is being written by another run; choose another folder with -o") from error
        self.kept: dict[str, list[Measurement]] = {}
        if resume:
            self._take_up(run)
        self.append(run)

    def _take_up(self, run: Run) -> None:
        """Cuts the file back to its last newline and reads what is there."""
        self._file.seek(0)
        text = self._file.read()
        runs, self.kept, _ = by_row(text[: text.rfind(b"\n") + 1].splitlines())
        for old in runs:
            if old.schema > SCHEMA:
                raise Refused(f"{self.path} has schema {old.schema}, newer than this program's {SCHEMA}")
            if old.machine.key != run.machine.key:
                raise Refused(
                    f"{self.path} was measured on {old.machine.key}, this is {run.machine.key}; leave --resume out"
                )
        if self.kept and runs and runs[-1].sources != run.sources:
            said = f"{self.path}: the last run in it was of sources {runs[-1].sources}, this one is of {run.sources}; "
            if any(parts[-1].visit for parts in self.kept.values()):
                raise Refused(said + "visits of two programs are not one row", _anew(run.command))
            terminal.note(f"{said}its rows stay as they are")
        self._file.truncate(text.rfind(b"\n") + 1)

    @property
    def done(self) -> list[Measurement]:
        """The rows that were there before."""
        return [together(parts) for parts in self.kept.values()]

    def append(self, line: Line) -> None:
        line = finite(line) if isinstance(line, Measurement) else line
        try:
            left = memoryview(msgspec.json.encode(line) + b"\n")
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}; what was measured before is in it") from error

    def close(self) -> None:
        self._file.close()

    def __exit__(self, *_) -> None:
        self.close()


def by_row(lines: Iterable[bytes]) -> tuple[list[Run], dict[str, list[Measurement]], int]:
    """(runs, row key -> its newest lines, bad lines counted) of a result file: the visits of a row, or one whole row.

    A visit continues those before it whose number is lower; any other begins the row anew, as a whole line does. A row with
    losses and no note of its samples gets one: `as of sources HASH`, those of its run.
    """
    runs: list[Run] = []
    rows: dict[str, list[Measurement]] = {}
    bad = 0
    for text in lines:
        try:
            line = _decoder.decode(text)
        except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
            bad += 1
            continue
        if not sound(line):
            bad += 1
        elif isinstance(line, Run):
            runs.append(replace(line, network=line.network or _network(line.command)))
        else:
            if "loss" in line.series and SAMPLES not in line.notes and runs:
                line = replace(line, notes={**line.notes, SAMPLES: f"as of sources {runs[-1].sources}"})
            key = line.key
            before = rows.get(key)
            if before and 0 < before[-1].visit < line.visit:
                before.append(line)
            else:
                rows.pop(key, None)
                rows[key] = [line]
    return runs, rows, bad


def decode(lines: Iterable[bytes]) -> tuple[list[Run], list[Measurement], int]:
    """(runs, measurements, bad lines counted) of a result file's lines: the visits of a row joined, of whole rows the last."""
    runs, rows, bad = by_row(lines)
    return runs, [together(parts) for parts in rows.values()], bad


def _anew(command: str) -> str:
    """The command without --resume, and with a new folder (-o DIR-new)."""
    return re.sub(r"(?<= )(-o|--output)[ =](\S+)", r"\1 \2-new", command.replace(" --resume", ""))


def _network(command: str) -> str:
    """The network whose layers a command measured, for old Run lines without it; "" without one."""
    if found := re.search(r"--model[ =]([\w-]+)|\bmodel='([\w-]+)'", command):
        return found[1] or found[2]
    layers = "workloads.conv" in command and not re.search(r"--(shapes|vary)|(shapes|vary)=", command)
    return "cifar10-cnn" if layers else ""


class Loaded(msgspec.Struct, frozen=True):
    """Everything read from one or more result files, oldest run first. replaced: rows that newer ones replace."""

    runs: tuple[Run, ...]
    measurements: tuple[Measurement, ...]
    bad_lines: int
    files: tuple[str, ...]
    replaced: tuple[Measurement, ...] = ()

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


def files_of(run: str | os.PathLike) -> list[Path]:
    """The result files that RUN names: a file, a run folder, a machine folder with runs in it (oldest first), or a saved name.

    Raises: FileNotFoundError when there is none.
    """
    path = Path(run)
    if not os.fspath(run):  # of a variable that is not set; pathlib takes it for the current folder
        raise NoRun("", baselines.names())
    if not path.exists():
        path = baselines.find(str(run)) or path
    if path.is_file():
        if not is_result_file(path):
            raise NoRun(str(run), ())
        return [path]
    inner = sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
    files = [file for folder in (path, *inner) for file in sorted(folder.glob("*.jsonl")) if is_result_file(file)]
    if not files:
        raise NoRun(str(run), baselines.names())
    return files


def content(file: Path) -> bytes:
    """The text of a result file, which may be compressed (.gz).

    Raises: OSError, also for what is no gzip file.
    """
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def read(*runs: str | os.PathLike) -> Loaded:
    """Reads result files, run folders or machine folders. Of rows with one key the newest counts; a row disturbed by other
    programs never replaces an undisturbed one.

    Raises: FileNotFoundError when a run has no result file.
    """
    files = [file for run in runs for file in files_of(run)]
    parts = sorted(
        (decode(content(file).splitlines()) for file in files),
        key=lambda part: part[0][0].started_at if part[0] else "",
    )
    ranked: dict[str, list[tuple[tuple[bool, str], Measurement]]] = {}
    for own, measurements, _ in parts:
        for m in measurements:
            rank = not OTHERS_WORK.intersection(m.flags), m.at or (own[-1].started_at if own else "")
            ranked.setdefault(m.key, []).append((rank, m))
    of_row = [[m for _, m in sorted(same, key=operator.itemgetter(0))] for same in ranked.values()]
    return Loaded(
        tuple(r for part in parts for r in part[0]),
        tuple(same[-1] for same in of_row),
        sum(part[2] for part in parts),
        tuple(map(str, files)),
        tuple(m for same in of_row for m in same[:-1]),
    )


def by_machine(*runs: str | os.PathLike) -> dict[str, Loaded]:
    """Machine key -> its rows, as `read` gives them; rows of two machines are never joined."""
    files: dict[str, list[Path]] = {}
    for file in (file for run in runs for file in files_of(run)):
        found, _, _ = decode(content(file).splitlines()[:1])
        files.setdefault(found[0].machine.key if found else "", []).append(file)
    return {key: read(*group) for key, group in files.items()}
