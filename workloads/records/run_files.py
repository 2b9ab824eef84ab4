"""The result files that a RUN names: a file, a folder, a saved baseline or a stored machine; the errors where it names none."""

import contextlib
import fnmatch
import glob
import os
from collections.abc import Sequence
from pathlib import Path

from workloads import REPORTS, options, stored_runs
from workloads.corrections.nearest import nearest, nearest_path
from workloads.options import Usage
from workloads.records import baselines, regular_files
from workloads.records.result_lines import decoded_line

EXAMPLE_COMMAND = "python -m workloads.matmul --sizes 64:1024:x2"  # what to type where there are no rows yet
DATE = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"  # folders of the runs of a study: reports/MACHINE/STUDY/DATE


class NoRun(Usage, FileNotFoundError):
    """A run has no result file. The error names the most similar path or saved name, else the nearest folder with one."""

    def __init__(self, run: str, saved: Sequence[str]):
        """run: what was typed. saved: the names of saved baselines, of which one may have been meant."""
        exists = os.path.exists(run)
        similar = ""
        if run and not exists:
            similar = nearest_path(run) or nearest(run, saved) or nearest_path(f"reports/{run}")
        same_name: list[str] = []
        if not similar and not exists:
            same_name = [options.near(folder) for folder in stored_runs.called(run)]
        if len(same_name) == 1:
            similar = same_name[0]
        if similar:
            right = similar
        elif same_name:
            right = same_name[0]
        else:
            right = _nearest_folder(run)
        if os.path.isfile(run):
            message = f"{run} is no result file"
        elif len(same_name) > 1:
            message = f"{run!r} is a run of several machines: {', '.join(same_name)}"
        else:
            message = f"no result file in {run or repr(run)}"
            if saved and not similar:
                message += f"; saved names: {', '.join(saved)}"
        super().__init__(message, wrong=run, right=right, similar="path" if similar else "")
        self.is_example = not similar


class NoRows(Usage):
    """A run has result files, but not one row."""

    def __init__(self, run: str | os.PathLike, bad_lines: int = 0, foreign: Sequence[Path] = ()):
        """run: what was typed. bad_lines: number of lines of its files that cannot be read. foreign: its files, where no line
        of any was written by this program."""
        unread = ""
        if foreign:
            files = foreign[0].name if len(foreign) == 1 else f"each of its {len(foreign)} files"
            unread = f": {files} has no line that Crossover wrote"
        elif bad_lines:
            unread = f": {bad_lines} {'line' if bad_lines == 1 else 'lines'} of its files cannot be read"
        super().__init__(f"no rows in {run}{unread}", EXAMPLE_COMMAND, wrong=str(run), right=_nearest_folder(str(run)))


def files_of(run: str | os.PathLike) -> list[Path]:
    """The result files that RUN names: a file, the folder of a run, of a study or of a machine, a saved name, or the name of a
    machine whose runs come with the project.

    Raises: FileNotFoundError when there is none; NoRows when none has a run or a row in any line; Unreadable where a folder or
    a file may not be looked at.
    """
    if not os.fspath(run):  # of a variable that is not set; pathlib takes it for the current folder
        raise NoRun("", baselines.names())
    path = Path(run)
    try:
        if not regular_files.exists(path):
            path = baselines.find(str(run)) or machine_folder(str(run)) or path
        if not regular_files.exists(path):
            raise NoRun(str(run), baselines.names())
        if not path.is_dir():
            if not is_result_file(path):
                raise NoRun(str(path), ())
            return [path]
        named = _jsonl_files_within(path)
        files = [file for file in named if is_result_file(file)]
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


def _jsonl_files_within(folder: Path) -> list[Path]:
    """The .jsonl files of a folder, of its subfolders, and of the folders in these that have a date for a name."""
    files = _jsonl_files(folder)
    for subfolder in sorted(path for path in folder.iterdir() if path.is_dir()):
        files += _jsonl_files(subfolder)
        for dated in sorted(subfolder.glob(DATE)):
            files += _jsonl_files(dated)
    return files


def _jsonl_files(folder: Path) -> list[Path]:
    """The .jsonl files directly in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(".jsonl"))


def machine_folder(name: str) -> Path | None:
    """The folder under reports/ of a machine's stored runs, by the machine's name such as `nvidia-h200`; None for any other
    word."""
    folder = REPORTS / name
    is_path = os.path.basename(name) != name
    if is_path or name == stored_runs.LOCAL.name or not folder.is_dir():
        return None
    return Path(options.near(folder))


def study_folder(file: Path) -> Path:
    """The folder of a study with this result file: the file's own folder, or the one above it where that is named by a date."""
    folder = file.parent
    return folder.parent if fnmatch.fnmatch(folder.name, DATE) else folder


def is_result_file(path: Path) -> bool:
    """Whether a line of a file is a run or a row.

    Raises: Unreadable for a path that is no regular file.
    """
    return any(decoded_line(text) is not None for text in regular_files.one_by_one(path))


def _nearest_folder(run: str) -> str:
    """A folder with a result file, to propose in place of `run`: the one that `run` lies in if it is a file; one next to it
    with a similar name; this machine's newest run; else a run that comes with the project."""
    folder, name = os.path.split(run.rstrip("/"))
    if os.path.isfile(run) and _folders_with_results(folder):
        return folder
    neighbors: dict[str, str] = {}  # name -> path
    if folder:
        neighbors = {os.path.basename(path): path for path in _folders_with_results(f"{folder}/*")}
    similar = nearest(name, neighbors)
    return neighbors[similar] if similar else options.near(stored_runs.any_run())


def _folders_with_results(pattern: str) -> set[str]:
    """The folders matching a glob pattern that have a result file, directly or in a subfolder that is named by a date."""
    folders: set[str] = set()
    for file in (*glob.glob(f"{pattern}/*.jsonl"), *glob.glob(f"{pattern}/{DATE}/*.jsonl")):
        with contextlib.suppress(regular_files.Unreadable):
            if is_result_file(Path(file)):
                folders.add(os.fspath(study_folder(Path(file))))
    return folders
