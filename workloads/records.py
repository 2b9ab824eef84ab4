"""Records of what was measured, and the result files that keep them: one JSON object a line, append-only.

Line 1 of a file is a Run; every other line is a Measurement (a resumed sweep adds another Run line first). SI base
units, the unit in every name, full precision; absent is not zero and a non-finite number is never stored.
"""

import fcntl
import hashlib
import math
import os
import pathlib
import re
import sys
from collections.abc import Iterable

import msgspec

import kernels.networks  # noqa: F401  without it a problem of a whole model does not know its cost
from kernels.problems import Problem
from workloads import baselines
from workloads.options import Usage

SCHEMA = 1
# The note of a training that says which samples it learned from: the version of made-up ones (workloads.data.VERSION), or of
# rows from before there was one what `decode` says. Losses of two rows are compared where it is the same.
SAMPLES = "samples"
# The series of a training: seconds of short fits by their epochs and steps, and of the first fit's epochs. A row of several
# processes has each one's, the process's number behind the name.
FITS = re.compile(r"fit_s (\d+)x(\d+)")
EPOCHS = "epoch_s"
OF_PROCESS = " process "
EPOCHS_OF = "epochs of "  # how the reason begins why a row stopped whose samples are its epochs
STATUSES = ("ok", "skipped", "failed", "wrong")
# Seconds of a call, numbers of any unit, counts: nothing that was measured comes near.
_LONGEST_S, _LARGEST, _MOST = 1e9, 1e30, 1 << 60


class Settings(msgspec.Struct, frozen=True):
    """How a kernel is run. `mode`: resident, roundtrip, roundtrip-pageable, roundtrip-pinned. `reuse`: uses a copy."""

    device: str = "cpu"
    threads: int | None = None
    mode: str = "resident"
    reuse: int = 1
    cache: str = "warm"
    process: str = "warm"
    switches: dict[str, str] = {}


class Samples(msgspec.Struct, frozen=True):
    """Seconds per call on one clock; each sample is the mean of `calls` calls. The clocks: host-latency (each call is
    waited for), host-throughput (calls are queued, one wait), host-issue (the host's part alone), device (CUDA events).

    `block[i]` is the block that sample i was taken in; blocks are what is resampled for intervals.
    """

    clock: str
    seconds: tuple[float, ...]
    calls: int
    block: tuple[int, ...]
    stop_reason: str


class Row(msgspec.Struct, frozen=True):
    """One thing to measure. Its key names the row in every file."""

    kernel: str
    problem: Problem
    settings: Settings

    @property
    def key(self) -> str:
        return msgspec.json.encode(self, order="sorted").decode()

    @property
    def backend(self) -> str:
        return self.kernel.split("/")[1]

    @property
    def variant(self) -> str:
        return self.kernel.rpartition("/")[2]

    @property
    def label(self) -> str:
        """Backend and variant: `numpy/blas`."""
        return self.kernel.partition("/")[2]

    def result(self, status: str, reason: str = "", **fields) -> "Measurement":
        """What came of it."""
        return Measurement(self.kernel, self.problem, self.settings, status, reason, **fields)


class Measurement(Row, frozen=True, tag="measurement"):
    """What came of one row: its samples, or the reason there are none.

    phases_s: seconds of what happens once (first_call, import, ...). values: further numbers, the unit in the name.
    check: how the answer was checked. flags: what makes the number doubtful. notes: what the kernel chose (its plan).
    """

    status: str
    reason: str = ""
    samples: tuple[Samples, ...] = ()
    phases_s: dict[str, float] = {}
    values: dict[str, float] = {}
    series: dict[str, tuple[float, ...]] = {}
    flags: tuple[str, ...] = ()
    check: str = ""
    max_error: float | None = None
    at: str = ""
    notes: dict[str, str] = {}

    @property
    def row(self) -> Row:
        return Row(self.kernel, self.problem, self.settings)

    @property
    def key(self) -> str:
        return self.row.key

    def on(self, clock: str) -> Samples | None:
        """The samples of that clock, if they were taken."""
        return next((s for s in self.samples if s.clock == clock), None)


class Gpu(msgspec.Struct, frozen=True):
    """Facts of a GPU: clocks in Hz, bytes, watts."""

    name: str
    uuid: str
    compute_capability: str
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    max_clock_hz: float
    memory_clock_hz: float
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


class Machine(msgspec.Struct, frozen=True):
    """Facts of a machine. `key` names its folder; only another key is another machine. Never a hostname."""

    key: str
    cpu: str
    vendor: str
    simd: str
    cores: int
    threads_a_core: int
    memory_bytes: int
    caches_bytes: dict[str, int] = {}
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    os: str = ""
    virtual: bool = False

    @property
    def uuids(self) -> dict[str, str]:
        """GPU, such as gpu:0 -> what CUDA_VISIBLE_DEVICES calls it."""
        return {f"gpu:{i}": gpu.uuid for i, gpu in enumerate(self.gpus) if gpu.uuid}


class Run(msgspec.Struct, frozen=True, tag="run"):
    """What a result file came from: the machine, the software, the command and the sources."""

    schema: int
    machine: Machine
    software: dict[str, str]
    command: str
    seed: int
    commit: str
    sources: str
    started_at: str


Line = Run | Measurement
_decoder = msgspec.json.Decoder(Line)


def tells(name: str) -> bool:
    """Whether a series tells costs: the seconds of short fits, or of the epochs of the first one."""
    return bool(FITS.fullmatch(name)) or name == EPOCHS


def of_process(name: str, process: int) -> str:
    """The name of a process's series in a row of several."""
    return f"{name}{OF_PROCESS}{process}"


def by_epochs(m: Measurement) -> bool:
    """Whether the row's own epochs are its samples."""
    own = m.on("host-latency")
    return own is not None and own.stop_reason.startswith(EPOCHS_OF)


def finite(m: Measurement) -> Measurement:
    """The measurement as it may be stored: JSON has no NaN, so a row with one has failed, and says where it was."""
    groups = {"phases_s": m.phases_s.items(), "values": m.values.items(), "max_error": [("", m.max_error or 0.0)]}
    numbers: list[tuple[str, tuple[float, ...]]] = [
        (f"{group} {name}", (number,)) for group, pairs in groups.items() for name, number in pairs
    ]
    numbers += [(f"series {name}", series) for name, series in m.series.items()] + [
        (s.clock, s.seconds) for s in m.samples
    ]
    bad = next((where for where, several in numbers if not all(map(math.isfinite, several))), None)
    if bad is None:
        return m
    why = f"{bad.strip()} is not a finite number" + (f"; {m.reason}" if m.reason else "")
    return m.result("failed", why, flags=m.flags, at=m.at)


def sound(line) -> bool:
    """Whether a line, a Run or a Measurement, says something that can have been measured; what decodes and does not came from
    elsewhere."""
    if not hasattr(line, "kernel"):
        return bool(line.machine.key)
    kernel, samples = line.kernel.split("/"), line.samples
    counts = [
        line.settings.reuse,
        line.settings.threads or 1,
        *(x for x in msgspec.structs.astuple(line.problem) if type(x) is int),
    ]
    return (
        len(kernel) == 3
        and all(kernel)
        and line.status in STATUSES
        and min(counts[:2]) >= 1
        and max(counts) < _MOST
        and len({s.clock for s in samples}) == len(samples)
        and all(
            len(s.seconds) == len(s.block) > 0 and s.calls > 0 and min(s.seconds) > 0 and max(s.seconds) < _LONGEST_S
            for s in samples
        )
        and all(abs(x) < _LARGEST for x in (*line.phases_s.values(), *line.values.values()))
    )


class Refused(Usage):
    """An output that must not be touched; the message says what to type instead."""


def source_hash(folder: pathlib.Path | None = None) -> str:
    """A hash over the project's Python and CUDA sources: which code made a file, also without git."""
    folder = folder or pathlib.Path(__file__).parent.parent
    digest = hashlib.sha256()
    every = (p for top in ("kernels", "workloads", "analysis") for p in (folder / top).rglob("*.*"))
    for path in sorted(p for p in every if p.suffix in (".py", ".cu", ".cuh")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Writer:
    """Appends lines to one result file, a row at a time, under a lock.

    Raises: Refused when the file exists and is not resumed, is locked, is of another machine, or cannot be written.
    """

    def __init__(self, path: pathlib.Path, run: Run, resume: bool = False):
        self.path = path
        if path.exists() and not resume:
            again = f"{run.command} --resume"
            raise Refused(f"{path} exists; add --resume to finish it, or choose another folder with -o", again)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what a full disk refused would be tried again, and fail again, when the file is closed.
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise Refused(f"cannot write {path}: {error.strerror}; choose a folder you may write with -o") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise Refused(f"{path} is being written by another run; choose another folder with -o") from error
        self.done: list[Measurement] = []
        if resume:
            self._take_up(run)
        self.append(run)

    def _take_up(self, run: Run) -> None:
        """Cuts the file back to its last newline and reads what is there."""
        self._file.seek(0)
        text = self._file.read()
        runs, self.done, _ = decode(text[: text.rfind(b"\n") + 1].splitlines())
        for old in runs:
            if old.schema > SCHEMA:
                raise Refused(f"{self.path} has schema {old.schema}, newer than this program's {SCHEMA}")
            if old.machine.key != run.machine.key:
                raise Refused(
                    f"{self.path} was measured on {old.machine.key}, this is {run.machine.key}; leave --resume out"
                )
        self._file.truncate(text.rfind(b"\n") + 1)
        if self.done and runs and runs[-1].sources != run.sources:
            print(
                f"{self.path}: the last run in it was of sources {runs[-1].sources}, this one is of {run.sources}; its rows "
                "stay as they are",
                file=sys.stderr,
            )

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

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def decode(lines: Iterable[bytes]) -> tuple[list[Run], list[Measurement], int]:
    """(runs, measurements, bad lines counted) of a result file's lines; of one row key the last line wins.

    A row with losses and no note of its samples gets one: `as of sources HASH`, those of its run.
    """
    runs: list[Run] = []
    rows: dict[str, Measurement] = {}
    bad = 0
    for text in lines:
        try:
            line = _decoder.decode(text)
        except (msgspec.DecodeError, ValueError):
            bad += 1
            continue
        if not sound(line):
            bad += 1
        elif isinstance(line, Run):
            runs.append(line)
        else:
            if "loss" in line.series and SAMPLES not in line.notes and runs:
                line = msgspec.structs.replace(line, notes={**line.notes, SAMPLES: f"as of sources {runs[-1].sources}"})
            rows.pop(line.key, None)
            rows[line.key] = line
    return runs, list(rows.values()), bad


class Loaded(msgspec.Struct, frozen=True):
    """Everything read from one or more result files, oldest run first."""

    runs: tuple[Run, ...]
    measurements: tuple[Measurement, ...]
    bad_lines: int
    files: tuple[str, ...]


def files_of(run: str | os.PathLike) -> list[pathlib.Path]:
    """The result files that RUN names: a file, a run folder, a machine folder with runs in it (oldest first), or a saved name.

    Raises: FileNotFoundError when there is none.
    """
    path = pathlib.Path(run)
    if not path.exists():
        path = baselines.find(str(run)) or path
    if path.is_file():
        return [path]
    inner = sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
    files = [file for folder in (path, *inner) for file in sorted(folder.glob("*.jsonl"))]
    if not files:
        raise FileNotFoundError(
            f"no result file in {run}; make one with: python -m workloads.matmul --sizes 64:1024:x2 -o DIR"
        )
    return files


def read(*runs: str | os.PathLike) -> Loaded:
    """Reads result files, run folders or machine folders; of one row key the newest line wins.

    Raises: FileNotFoundError when a run has no result file.
    """
    files = [file for run in runs for file in files_of(run)]
    parts = sorted(
        (decode(file.read_bytes().splitlines()) for file in files),
        key=lambda part: part[0][0].started_at if part[0] else "",
    )
    rows: dict[str, Measurement] = {}
    for _, measurements, _ in parts:
        rows.update({m.key: m for m in measurements})
    runs_read = tuple(r for part in parts for r in part[0])
    return Loaded(runs_read, tuple(rows.values()), sum(part[2] for part in parts), tuple(map(str, files)))


def by_machine(*runs: str | os.PathLike) -> dict[str, Loaded]:
    """What `read` gives, apart for each machine key: rows of two machines are never one row."""
    files: dict[str, list[pathlib.Path]] = {}
    for file in (file for run in runs for file in files_of(run)):
        found, _, _ = decode(file.read_bytes().splitlines()[:1])
        files.setdefault(found[0].machine.key if found else "", []).append(file)
    return {key: read(*group) for key, group in files.items()}
