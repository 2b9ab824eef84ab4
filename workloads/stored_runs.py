"""The runs that a hint names. Standard library only."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from workloads import REPORTS, ROOT, SCHEMA
from workloads.terminal import near

STORED_RUNS = "reports/nvidia-h200/suite", "reports/nvidia-h200/ladder"  # of one machine
LOCAL = REPORTS / "local"  # MACHINE/TIME/*.jsonl, and the saved baselines
SAVED = LOCAL / "saved"
_SCHEMA = re.compile(rb'"schema":(\d+)')
_TIMED = re.compile(rb'"seconds":\[\d')  # in a line of a result file


def run_named(name: str) -> str:
    """The folder that stands for OLD, NEW or another name of a run in the usage of a command."""
    if name in ("OLD", "NEW"):
        new, old = _two_runs()
        return old if name == "OLD" else new
    return any_run()


def run_to_type(name: str) -> str:
    """What can be typed for RUN, OLD, NEW or another name of a run in the usage of a command."""
    return near(run_named(name))


def has_result_file(word: str) -> bool:
    """Whether a word is a result file, or a folder of this place or of a stored machine with one."""
    if not word:
        return False
    for path in (Path(word), REPORTS / word):
        if path.is_dir() and next(path.rglob("*.jsonl"), None):
            return True
    return word.endswith(".jsonl") and os.path.isfile(word)


def called(name: str) -> list[str]:
    """The folders of runs with this name on any machine, such as `suite`, those that come with the project; and the newest run of
    this machine with rows of the workload of this name."""
    folders = []
    if name and "/" not in name:
        folders += [str(file.parent) for file in itertools.islice(local_files(name), 1)]
        stored = [folder for folder in REPORTS.glob("*/*") if folder.name == name and folder.is_dir()]
        with_gpu_first = sorted(stored, key=lambda folder: (str(folder.relative_to(ROOT)) not in STORED_RUNS, folder))
        folders += [str(folder) for folder in with_gpu_first]
    return folders


def is_stored(run: str) -> bool:
    """Whether a run comes with the project, and is of another machine than this."""
    path = (Path(run) if os.path.exists(run) else REPORTS / run).resolve()
    return path.is_relative_to(REPORTS.resolve()) and not path.is_relative_to(LOCAL.resolve())


def any_run() -> str:
    """The folder of this machine's newest run, else of one that comes with the project."""
    newest = next(local_files(), None)
    return str(newest.parent) if newest else stored_run()


def _two_runs() -> tuple[str, str]:
    """Two runs of one machine, the newer one first: this machine's two newest of one workload, else two that come with the
    project."""
    newer: dict[tuple[Path, str], Path] = {}  # (machine, workload) -> file
    for file in local_files():
        key = file.parent.parent, file.name
        if key in newer:
            return str(newer[key].parent), str(file.parent)
        newer[key] = file
    return stored_run(1), stored_run(0)


def local_folder() -> str:
    """The folder of this machine's runs, as the help of a flag has it: that of the checkout whose packages these are, else one in
    the user's data."""
    return "%%".join(near(LOCAL).split("%"))


def local_files(workload: str = "*") -> Iterator[Path]:
    """This machine's result files that this version reads and that have a timed row, newest first; of one workload if named."""
    files = [file for file in LOCAL.glob(f"*/*/{workload}.jsonl") if file.parent.parent != SAVED]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        content = file.read_bytes()
        schemas = {int(number) for number in _SCHEMA.findall(content)}
        if schemas == {SCHEMA} and _TIMED.search(content):
            yield file


def stored_run(position: int = 0) -> str:
    """The folder of a run that comes with the project; the second is of the same machine as the first."""
    return str(ROOT / STORED_RUNS[position])
