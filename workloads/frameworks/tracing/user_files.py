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
    """Notes the files that this process opens inside its `with` block. A hook of the interpreter stays until the process ends."""

    def __init__(self) -> None:
        self._noting = False
        self._paths: set[str] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple) -> None:
        if self._noting and event == "open" and isinstance(arguments[0], str):
            self._paths.add(arguments[0])

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        self._noting = True
        try:
            yield
        finally:
            self._noting = False

    def hashes(self) -> dict[str, str]:
        """File -> SHA-256, of the user's files that were opened or imported as modules."""
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        paths = self._paths | {path for path in modules if isinstance(path, str)}
        files = {Path(path).resolve() for path in paths}
        return {str(file): sha256(file) for file in sorted(files) if is_users(file)}


def sha256(file: Path) -> str:
    """The hash of a file's content; "" of one that is not there."""
    with contextlib.suppress(OSError), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
    return ""


def is_users(file: Path) -> bool:
    """Whether it is a regular file that belongs neither to us, to Python and its packages, nor to the system. Compiled modules
    stand for their sources."""
    if file.suffix == ".pyc" or not file.is_file():
        return False
    return not any(file.is_relative_to(folder) for folder in (*_OURS, *_INSTALLED, *_SYSTEM))


def hash_of_modules(*words: str) -> str:
    """One hash of the user's modules that this process has imported, and of words; a file that a word names counts by its
    content."""
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
    """The hash of the sources that trace and describe a step."""
    digest = hashlib.sha256()
    for folder in _OURS[:2]:
        for file in sorted([*folder.glob("networks/*.py"), *folder.glob("frameworks/**/*.py")]):
            digest.update(file.read_bytes())
    return digest.hexdigest()
