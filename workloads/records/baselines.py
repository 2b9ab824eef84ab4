"""Named baselines: copies of result files that `--save NAME` keeps and that `--against NAME`, or NAME for a RUN, finds."""

import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

from workloads import ROOT, options, stored_runs, terminal
from workloads.options import Usage

FOLDER = stored_runs.SAVED
PROFILES = ROOT / "analysis" / "predict" / "profiles"  # stored machines: a RUN of such a name is theirs


def folder(name: str) -> Path:
    """The folder of the baseline (saved result files) of this name, whether it exists or not.

    Raises: Usage for a name with other characters than letters, digits, dots and dashes, or with more than 100.
    """
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        allowed = "at most 100 letters, digits, dots and dashes"
        message = f"{terminal.shorten(repr(name), 40)} is no name for a baseline: {allowed}"
        raise Usage(message, wrong=name, right=plain_name(name))
    return FOLDER / name


def plain_name(name: str) -> str:
    """The nearest name that a baseline can have: words joined by dashes, `my-run` for "my run!"."""
    return "-".join(re.findall(r"\w+", name))[:100] or "before"


def find(name: str) -> Path | None:
    """The folder of a saved baseline; None when there is none of that name."""
    return FOLDER / name if name in names() else None


def names() -> list[str]:
    """The names of the saved baselines, sorted."""
    return sorted(p.name for p in FOLDER.glob("*") if p.is_dir())


def not_named(workload: str, saves: bool) -> Usage:
    """The error for --fail-on without --against, which names the baseline to compare with.

    It is corrected to a run or baseline of this machine with rows of the workload (`matmul`, `conv`, ...). If there is none, it
    is corrected to `--save before`; saves: whether the command has --save already.
    """
    message = "--fail-on needs --against, which says what to compare with"
    comparable = _comparable(workload)
    if comparable:
        return Usage(message, right=shlex.join(["--against", comparable]))
    return Usage(f"{message}; nothing is saved here", wrong="--fail-on", right="" if saves else "--save before")


def unknown(name: str, similar: str, workload: str, saves: bool) -> Usage:
    """The error for a baseline or run of this name that does not exist.

    similar: an existing one that may have been meant, "" for none. Without it the command is corrected to a run or baseline of
    this machine with rows of the workload (`matmul`, ...); if there is none, to --save with the name, for a later comparison.
    saves: whether the command has --save already.
    """
    saved = names()
    listed = f"saved: {', '.join(saved)}" if saved else "none is saved here"
    message = f"no baseline or run {name!r}; {listed}"
    comparable = similar or _comparable(workload)
    if comparable:
        kind = "baseline" if similar else ""
        return Usage(message, wrong=name, right=comparable, similar=kind)
    message += ": --save keeps one to compare with later"
    return Usage(message, wrong="--against --fail-on", right="" if saves else f"--save {plain_name(name)}")


def _comparable(workload: str) -> str:
    """What --against can name for rows of a workload measured here: the newest saved baseline, else the folder of the newest
    run; "" if there is neither."""
    file_name = f"{workload}.jsonl"
    saved = [name for name in names() if any((FOLDER / name).rglob(file_name))]
    if saved:
        return max(saved, key=lambda name: (FOLDER / name).stat().st_mtime)
    newest_file = next(stored_runs.local_files(workload), None)
    return options.near(newest_file.parent) if newest_file else ""


def require_free(name: str) -> None:
    """Raises Usage if the name is taken: by a baseline, which is never overwritten, or by a machine whose rows come with the
    project. Called before measuring, as afterwards it would be too late."""
    baseline = folder(name)
    if (PROFILES / f"{name}.jsonl.gz").exists():
        message = f"{name!r} names a stored machine; choose another name"
        raise Usage(message, wrong="--save", right=f"--save {name}-here")
    if baseline.exists():
        message = f"the baseline {name!r} exists; choose another name, or remove it first"
        raise Usage(message, tip=f"rm -r {baseline}")


def save(name: str, files: Iterable[Path], by_folder: bool = False) -> Path:
    """Copies result files into a new baseline of this name and returns the baseline's folder.

    by_folder: whether a file is copied into a subfolder with the name of the file's own folder, as for the nodes of a fleet.
    Raises: Usage when the name is taken or the folder cannot be written.
    """
    require_free(name)
    baseline = folder(name)
    try:
        baseline.mkdir(parents=True)
    except OSError as error:
        raise Usage(f"cannot save the baseline {name!r} in {FOLDER}: {error.strerror}") from error
    try:
        for file in files:
            copy_folder = baseline / file.parent.name if by_folder else baseline
            copy_folder.mkdir(exist_ok=True)
            shutil.copy(file, copy_folder)
    except OSError as error:
        shutil.rmtree(baseline, ignore_errors=True)  # made above: half a baseline is none
        raise Usage(f"cannot save the baseline {name!r} in {FOLDER}: {error.strerror}") from error
    return baseline
