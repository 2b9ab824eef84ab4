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
    """Turns a ValueError that is raised in its block into a Usage. tip: a command that works, for the error to propose."""
    try:
        yield
    except ValueError as error:
        from kernels.problems.arrays import UnknownName

        if isinstance(error, UnknownName):
            raise unknown(error.kind, error.word, error.known) from error
        raise Usage(str(error), tip=tip) from error


def words(values: Sequence[str] | None) -> list[str]:
    """The words of a flag that takes several, which may have commas between them: ["a,b", "c"] is a, b and c.

    values: as argparse has them; None, where the flag was not typed, is no words.

    Raises: Usage for commas or blanks alone.
    """
    if not values:
        return []
    separate = [word for word in ",".join(values).split(",") if word]
    if not separate:
        raise Usage(f"{' '.join(values)!r} names nothing; leave the flag out or name something")
    return separate


def folder(text: str) -> str:
    """The word of a flag that names a folder, as it was typed; argparse calls it. The folder need not exist.

    Raises: Usage for a file, and for a name that ends like a file's, such as .csv.
    """
    path = Path(text)
    if os.path.isfile(text):  # False below a folder that may not be entered, where pathlib raises
        raise Usage(f"{text!r} is a file; it names a folder", wrong=text, right=PLACE)
    if path.suffix.lower() in _FILE_ENDINGS and not os.path.isdir(text):
        message = f"{text!r} looks like a file; it names a folder"
        raise Usage(message, wrong=text, right=str(path.with_suffix("")))
    return text


def refuse(flags: object, names: Iterable[str], why: str) -> None:
    """Raises Usage for flags that were typed and do not go together with the rest of the command.

    flags: the parsed flags, or a plan with their names. names: of the flags that are refused, as attributes, such as
    host_memory. why: the beginning of the message.
    """
    typed_names = [name for name in names if getattr(flags, name, None) not in (None, ())]
    refused = " ".join("--" + "-".join(name.split("_")) for name in typed_names)
    if refused:
        raise Usage(f"{why}; leave {refused} out", wrong=refused)
