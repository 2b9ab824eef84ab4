"""Named baselines: copies of result files that `--save NAME` keeps and that `--against NAME`, or NAME for a RUN, finds."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from workloads import REPORTS, ROOT
from workloads.options import Usage

FOLDER = REPORTS / "local" / "saved"
PROFILES = ROOT / "analysis" / "predict" / "profiles"  # stored machines: a RUN of such a name is theirs


def folder(name: str) -> Path:
    """The folder of a baseline of that name, whether it exists or not.

    Raises: Usage for a name that is not plain.
    """
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        plain = re.sub(r"\W+", "-", name).strip("-") or "before"
        raise Usage(f"{name!r} is no name for a baseline: letters, digits, dots and dashes only", "", name, plain)
    return FOLDER / name


def find(name: str) -> Path | None:
    """The folder of a saved baseline; None when there is none of that name."""
    return FOLDER / name if name in names() else None


def names() -> list[str]:
    return sorted(p.name for p in FOLDER.glob("*") if p.is_dir())


def require_free(name: str) -> None:
    """Raises Usage when a baseline of that name exists, which is never overwritten, and when a stored machine has that name.
    Called before measuring."""
    if (PROFILES / f"{name}.jsonl.gz").exists():
        raise Usage(f"{name!r} names a stored machine; choose another name", "", name, f"{name}-here")
    if folder(name).exists():
        raise Usage(f"the baseline {name!r} exists; choose another name, or remove it first", f"rm -r {folder(name)}")


def save(name: str, files: Iterable[Path], apart: bool = False) -> Path:
    """Copies result files under that name and gives their folder; `apart`: each in a folder named as its own, as a fleet's are.

    Raises: Usage when the name is taken or the folder cannot be written.
    """
    require_free(name)
    try:
        folder(name).mkdir(parents=True)
    except OSError as error:
        raise Usage(f"cannot save the baseline {name!r} in {FOLDER}: {error.strerror}") from error
    try:
        for file in files:
            kept = folder(name) / file.parent.name if apart else folder(name)
            kept.mkdir(exist_ok=True)
            shutil.copy(file, kept)
    except OSError as error:
        shutil.rmtree(folder(name), ignore_errors=True)  # our own, just made: half a baseline is none
        raise Usage(f"cannot save the baseline {name!r} in {FOLDER}: {error.strerror}") from error
    return folder(name)
