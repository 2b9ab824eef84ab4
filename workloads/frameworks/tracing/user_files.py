"""Which of a user's files a model depends on: what was imported and opened while it was built."""

import contextlib
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from workloads import ROOT
from workloads.records.settings import FOLDER

#: The note of a row that holds the hash of the user's files that it was measured with.
SOURCE = "source"
_OURS = [ROOT / name for name in ("kernels", "workloads", "analysis")]
_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_SYSTEM = [Path(name) for name in ("/proc", "/sys", "/dev", "/etc", "/usr")]


class OpenedFiles:
    """The files that this process opens inside the `with` block of `noting`.

    Python tells of them by an audit hook, which cannot be removed: it stays until the process ends and does nothing outside the
    block.
    """

    def __init__(self) -> None:
        self._noting = False
        self._paths: set[str] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple) -> None:
        """Python calls this for each audited event; the first argument of the event `open` is the path."""
        if self._noting and event == "open" and isinstance(arguments[0], str):
            self._paths.add(arguments[0])

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """A `with` block: files opened inside it are noted."""
        self._noting = True
        try:
            yield
        finally:
            self._noting = False

    def hashes(self) -> dict[str, str]:
        """Path -> SHA-256 of its content, for each file of the user's that was noted, or that this process imported as a
        module."""
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        paths = self._paths | {path for path in modules if isinstance(path, str)}
        files = {Path(path).resolve() for path in paths}
        return {str(file): sha256(file) for file in sorted(files) if is_users(file)}


def sha256(file: Path) -> str:
    """The hash of a file's content, in hexadecimal; "" of a file that cannot be read."""
    with contextlib.suppress(OSError), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
    return ""


def is_users(file: Path) -> bool:
    """Whether a file is the user's: a regular one that belongs neither to this project, nor to Python and its packages, nor to
    the system. A compiled module (.pyc) is none: its source counts in its place."""
    if file.suffix == ".pyc" or not file.is_file():
        return False
    return not any(file.is_relative_to(folder) for folder in (*_OURS, *_INSTALLED, *_SYSTEM))


def hash_of_modules(*words: str) -> str:
    """One hash, in 16 hexadecimal digits, of these words and of the content of the user's files that they depend on.

    The files are the user's modules that this process has imported, and those that a word names (`file.py` or
    `file.py:function`).
    """
    digest = hashlib.sha256()
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {Path(path).resolve() for path in modules if isinstance(path, str)}
    for word in words:
        digest.update(word.encode() + b"\0")
        files.add(Path(os.environ.get(FOLDER) or os.getcwd(), word.partition(":")[0]).resolve())
    for file in sorted(files):
        if is_users(file):
            digest.update(sha256(file).encode())
    return digest.hexdigest()[:16]


def hash_of_sources() -> str:
    """The hash of the sources of this project that trace and describe a step: a cached trace of other sources is not used."""
    digest = hashlib.sha256()
    for folder in (ROOT / "kernels", ROOT / "workloads"):
        for file in sorted([*folder.glob("networks/*.py"), *folder.glob("frameworks/**/*.py")]):
            digest.update(file.read_bytes())
    return digest.hexdigest()
