"""Reads the lines of regular files only: a pipe or a device would never end, and neither would a line without a limit."""

import codecs
import contextlib
import errno
import gzip
import math
import os
import shlex
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from workloads.options import Usage

# A compressed file is read up to so many bytes, and beyond while they are at most so many times its own. Stored ones have 41.
_UNPACKED_BYTES = 1 << 24
_MOST_COMPRESSION = 200
LONGEST_SOURCE_BYTES = 1 << 24  # of a Python file
LONGEST_LINE_BYTES = 1 << 24  # the longest line of a stored result file has 31 kB

_NOT_REGULAR = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unreadable(Usage):
    """A file that cannot be read as lines; the message names it and says why."""


def exists(path: str | os.PathLike) -> bool:
    """Whether anything is at this path; a link counts even if its target is gone.

    Raises: Unreadable where a folder on the way may not be entered, and for a name that is too long.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a path with a zero byte is a ValueError
        return False
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {reason(path, error)}") from error
    return True


def require_regular(path: str | os.PathLike) -> None:
    """Raises Unreadable if the path, its links followed, does not lead to a regular file; a pipe or a device would never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {reason(path, error)}") from error
    other_kind = _other_kind(mode)
    if other_kind:
        raise Unreadable(f"cannot read {path}: {other_kind}")


def require_readable(path: str | os.PathLike) -> None:
    """Raises Unreadable if the path is no regular file, or if this user may not read it."""
    require_regular(path)
    if not os.access(path, os.R_OK):
        message = f"cannot read {path}: {os.strerror(errno.EACCES)}"
        raise Unreadable(message, first=shlex.join(["chmod", "u+r", os.fspath(path)]))


def require_source(path: str | os.PathLike) -> None:
    """Raises Unreadable if the path is no regular file that this user may read, or longer than any Python source is."""
    require_readable(path)
    if os.path.getsize(path) > LONGEST_SOURCE_BYTES:
        raise Unreadable(
            f"cannot read {path}: it is longer than {LONGEST_SOURCE_BYTES >> 20} MiB, as no Python source is"
        )


def _other_kind(mode: int) -> str:
    """What a path is, if it is no regular file, in words: `it is a folder, not a file`; "" for a regular file.

    mode: st_mode of os.stat.
    """
    for is_kind, kind in _NOT_REGULAR:
        if is_kind(mode):
            return f"it is {kind}, not a file"
    return ""


def unwritable(path: str | os.PathLike) -> str:
    """Why no file can be written at this path, in words, by the permissions of the file or of its folder; "" where one can."""
    file = Path(path)
    try:
        mode = os.stat(file).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(file.parent):
            return f"{file.parent} is no folder"
        may_write = os.access(file.parent, os.W_OK | os.X_OK)
    except OSError as error:
        return reason(file, error)
    else:
        other_kind = _other_kind(mode)
        if other_kind:
            return other_kind
        may_write = os.access(file, os.W_OK)
    return "" if may_write else _why_not_writable(file)


def unwritable_folder(path: str | os.PathLike) -> str:
    """Why no files can be written into this folder, in words; "" where they can.

    The folder need not exist: then it is the nearest one above it that must be writable.
    """
    folder = Path(path)
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return f"{folder} is no folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else _why_not_writable(folder)


def _why_not_writable(path: Path) -> str:
    """The system's words for why nothing can be written at this path: a read-only file system, or missing permission."""
    existing = path if path.exists() else path.parent
    is_read_only = os.statvfs(existing).f_flag & os.ST_RDONLY
    return os.strerror(errno.EROFS if is_read_only else errno.EACCES)


def lines(path: str | os.PathLike) -> list[bytes]:
    """The lines of a regular file, each with its newline; the last one may have none. The file may be compressed (.gz).

    Raises: Unreadable for any other kind of file, for one that may not be read, and for a line above LONGEST_LINE_BYTES.
    """
    return list(one_by_one(path))


def one_by_one(path: str | os.PathLike) -> Iterator[bytes]:
    """Yields the lines of a regular file, which may be compressed (.gz), and reads no further than the caller takes them.

    Raises: as `lines`, and Unreadable for a compressed file that unpacks to far more than its size.
    """
    require_regular(path)
    most_unpacked_bytes = math.inf
    if _is_compressed(path):
        most_unpacked_bytes = max(_UNPACKED_BYTES, _MOST_COMPRESSION * os.path.getsize(path))
    number = 0
    read_bytes = 0
    try:
        with _opened(path) as file:
            while line := file.readline(LONGEST_LINE_BYTES + 1):
                number += 1
                read_bytes += len(line)
                if read_bytes > most_unpacked_bytes:
                    raise Unreadable(f"cannot read {path}: it unpacks to more than {_MOST_COMPRESSION} times its size")
                if len(line) > LONGEST_LINE_BYTES:
                    raise Unreadable(f"cannot read {path}: line {number} is longer than {LONGEST_LINE_BYTES >> 20} MiB")
                yield line
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {reason(path, error)}") from error
    except (EOFError, zlib.error) as error:
        raise Unreadable(f"cannot read {path}: {error}") from error


def _is_compressed(path: str | os.PathLike) -> bool:
    return Path(path).suffix == ".gz"


def without_byte_order_mark(line: bytes) -> bytes:
    """The line without the byte order mark that some editors put at the beginning of a UTF-8 file."""
    mark = codecs.BOM_UTF8
    return line[len(mark) :] if line[: len(mark)] == mark else line


def reason(path: str | os.PathLike, error: OSError) -> str:
    """Why the system refused a file, in words, for the error that it raised for this path."""
    if error.errno == errno.ENOENT and Path(path).is_symlink():
        return "it is a link to what is not there"
    return error.strerror or str(error)


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[BinaryIO | gzip.GzipFile]:
    """A file opened for reading, unpacked if its name ends in .gz; closed when the `with` block ends."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not _is_compressed(path):
            yield file
            return
        with gzip.open(file) as unpacked:
            yield unpacked


def _open_without_waiting(path: str, flags: int) -> int:
    """The descriptor of an opened file, as the `opener` of `open` gives it. Reading a file of /proc that would wait for its
    next line then fails instead."""
    return os.open(path, flags | os.O_NONBLOCK)
