"""What the flags of commands take, and the errors of commands: the one place from which other modules have them. Standard library
only."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from workloads.command_line.invocation import SCRIPT, python, typed
from workloads.command_line.quantities import BYTES, COUNTS, MOST_SIZES, SECONDS, number, positive, regression, sizes
from workloads.corrections.grammar import PLACE
from workloads.corrections.refusals import unknown
from workloads.stops import (
    FAILED,
    INTERRUPTED,
    MISSING,
    OK,
    REGRESSION,
    SIGNALED,
    TERMINATED,
    UNSEEN,
    USAGE,
    Missing,
    Stop,
    Terminated,
    Usage,
)
from workloads.stored_runs import stored_run
from workloads.terminal import near

__all__ = [
    "BYTES",
    "COUNTS",
    "FAILED",
    "FORMATS",
    "INTERRUPTED",
    "MISSING",
    "MODES",
    "MOST_SIZES",
    "OK",
    "PLACE",
    "REGRESSION",
    "SCRIPT",
    "SECONDS",
    "SIGNALED",
    "TERMINATED",
    "UNSEEN",
    "USAGE",
    "Missing",
    "Stop",
    "Terminated",
    "Usage",
    "folder",
    "near",
    "number",
    "positive",
    "python",
    "refuse",
    "regression",
    "sizes",
    "stored_run",
    "typed",
    "unknown",
    "usage_errors",
    "words",
]

MODES = ("resident", "roundtrip", "roundtrip-pageable", "roundtrip-pinned")
FORMATS = ("table", "md", "csv", "json")
# What the names of files end in that people type where a folder is written.
_FILE_ENDINGS = (
    *(".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".xml", ".xlsx", ".parquet"),
    *(".md", ".txt", ".log", ".html", ".htm", ".pdf", ".svg", ".png", ".jpg"),
)


@contextlib.contextmanager
def usage_errors(tip: str = "") -> Iterator[None]:
    """Turns a ValueError of its block into a Usage; `tip` is a command that works."""
    try:
        yield
    except ValueError as error:
        from kernels.problems.arrays import UnknownName

        if isinstance(error, UnknownName):
            raise unknown(error.kind, error.word, error.known) from error
        raise Usage(str(error), tip) from error


def words(values: Sequence[str] | None) -> list[str]:
    """The words of a flag that takes several, separated by blanks or commas; none when the flag was not given.

    Raises: Usage where it was given without a word.
    """
    if not values:
        return []
    named = [word for word in ",".join(values).split(",") if word]
    if not named:
        raise Usage(f"{' '.join(values)!r} names nothing; leave the flag out or name something")
    return named


def folder(text: str) -> str:
    """The folder that a flag names, which may not be there yet.

    Raises: Usage for a file, and for a name that ends like a file's.
    """
    path = Path(text)
    if os.path.isfile(text):  # False below a folder that may not be entered, where pathlib raises
        raise Usage(f"{text!r} is a file; it names a folder", wrong=text, right=PLACE)
    if path.suffix.lower() in _FILE_ENDINGS and not os.path.isdir(text):
        message = f"{text!r} looks like a file; it names a folder"
        raise Usage(message, wrong=text, right=str(path.with_suffix("")))
    return text


def refuse(flags: object, names: Iterable[str], why: str) -> None:
    """Raises Usage, which says why, for those of these flags that have a value; the command works without them."""
    typed_names = [name for name in names if getattr(flags, name, None) not in (None, ())]
    refused = " ".join("--" + "-".join(name.split("_")) for name in typed_names)
    if refused:
        raise Usage(f"{why}; leave {refused} out", wrong=refused)
