"""What the flags of commands take, and the errors of commands: the one place from which other modules have them. Standard library
only."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from workloads.corrections import PLACE
from workloads.corrections.likeness import closest
from workloads.corrections.quantities import BYTES, COUNTS, MOST_SIZES, SECONDS, number, positive, sizes
from workloads.corrections.rules import regression
from workloads.corrections.runs import stored_run
from workloads.hints import SCRIPT, python, typed
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
_FEW = 8  # up to so many known words are listed even if one is similar
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


def unknown(
    what: str, word: str, known: Iterable[str], where: str = "", more: str = "", *, likeness: float = 0.65
) -> Usage:
    """The error for a word that is not known: those that are (`more`: others that may be written), and the most similar one,
    else the first."""
    names = list(known)
    similar = closest(word, names, likeness)
    listed = f"; known: {', '.join(names)}{more}" if not similar or len(names) <= _FEW else ""
    kind = what if similar in names else ""
    message = f"unknown {what} {word!r}{where}{listed}"
    if similar and not kind:  # several, which an alias means
        message += f"; {word} is {' and '.join(similar.split(','))} here"
    error = Usage(message, wrong=word, right=similar, similar=kind)
    error.fallback = names[0] if names else ""
    error.leaves_out = not similar
    return error


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
