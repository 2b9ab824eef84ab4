"""Named baselines: copies of result files that `--save NAME` keeps and that `--against NAME`, or NAME for a RUN, finds."""

import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

from workloads import ROOT, options, terminal
from workloads.corrections import runs
from workloads.options import Usage

FOLDER = runs.SAVED
PROFILES = ROOT / "analysis" / "predict" / "profiles"  # stored machines: a RUN of such a name is theirs


def folder(name: str) -> Path:
    """The folder of a baseline of that name, whether it exists or not.

    Raises: Usage for a name that is not plain.
    """
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        most = "at most 100 letters, digits, dots and dashes"
        message = f"{terminal.shorten(repr(name), 40)} is no name for a baseline: {most}"
        raise Usage(message, wrong=name, right=plain_name(name))
    return FOLDER / name


def plain_name(name: str) -> str:
    """A name for a baseline like this one, without what such a name cannot have."""
    return "-".join(re.findall(r"\w+", name))[:100] or "before"


def find(name: str) -> Path | None:
    """The folder of a saved baseline; None when there is none of that name."""
    return FOLDER / name if name in names() else None


def names() -> list[str]:
    return sorted(p.name for p in FOLDER.glob("*") if p.is_dir())


def not_named(workload: str, saves: bool) -> Usage:
    """The error for --fail-on without --against; corrected to rows of the workload to compare with, else to --save, unless the
    command `saves` already."""
    message = "--fail-on needs --against, which says what to compare with"
    comparable = _comparable(workload)
    if comparable:
        return Usage(message, right=shlex.join(["--against", comparable]))
    return Usage(f"{message}; nothing is saved here", wrong="--fail-on", right="" if saves else "--save before")


def unknown(name: str, similar: str, workload: str, saves: bool) -> Usage:
    """The error for a baseline, or a run, that is not there; it is corrected to a `similar` one, else to rows of the workload to
    compare with, else the rows are saved under that name first, unless the command `saves` already."""
    saved = names()
    listed = f"saved: {', '.join(saved)}" if saved else "none is saved here"
    message = f"no baseline or run {name!r}; {listed}"
    comparable = similar or _comparable(workload)
    if comparable:
        kind = "baseline" if similar else ""
        return Usage(message, wrong=name, right=comparable, similar=kind)
    first = f"{message}: --save keeps one to compare with later"
    return Usage(first, wrong="--against --fail-on", right="" if saves else f"--save {plain_name(name)}")


def _comparable(workload: str) -> str:
    """This machine's rows of a workload: the newest saved baseline, else the newest run; "" without either."""
    file = f"{workload}.jsonl"
    saved = [name for name in names() if any((FOLDER / name).rglob(file))]
    if saved:
        return max(saved, key=lambda name: (FOLDER / name).stat().st_mtime)
    newest = next(runs.local_files(workload), None)
    return options.near(newest.parent) if newest else ""


def require_free(name: str) -> None:
    """Raises Usage when a baseline of that name exists, which is never overwritten, and when a stored machine has that name.
    Called before measuring."""
    saved = folder(name)
    if (PROFILES / f"{name}.jsonl.gz").exists():
        raise Usage(
            f"{name!r} names a stored machine; choose another name", wrong="--save", right=f"--save {name}-here"
        )
    if saved.exists():
        raise Usage(f"the baseline {name!r} exists; choose another name, or remove it first", f"rm -r {saved}")


def save(name: str, files: Iterable[Path], by_folder: bool = False) -> Path:
    """Copies result files under that name and gives their folder. by_folder: each in a folder of the name that its folder has, as
    for the nodes of a fleet.

    Raises: Usage when the name is taken or the folder cannot be written.
    """
    require_free(name)
    try:
        folder(name).mkdir(parents=True)
    except OSError as error:
        raise Usage(f"cannot save the baseline {name!r} in {FOLDER}: {error.strerror}") from error
    try:
        for file in files:
            copy_folder = folder(name) / file.parent.name if by_folder else folder(name)
            copy_folder.mkdir(exist_ok=True)
            shutil.copy(file, copy_folder)
    except OSError as error:
        shutil.rmtree(folder(name), ignore_errors=True)  # our own, just made: half a baseline is none
        raise Usage(f"cannot save the baseline {name!r} in {FOLDER}: {error.strerror}") from error
    return folder(name)
