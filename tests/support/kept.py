"""What compilers made of a text, kept under it: the same text, options and compiler need not be compiled again."""

import hashlib
import os
import pathlib
from collections.abc import Callable

FOLDER = pathlib.Path(os.environ["NUMBA_CACHE_DIR"]) / "compiled"  # tests/conftest.py sets it where nobody did


def kept(suffix: str, of: tuple[str, ...], make: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """The file that `make` writes to the path that it is given; `of`: everything that decides what is in it."""
    path = FOLDER / (hashlib.sha256("\0".join(of).encode()).hexdigest() + suffix)
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f"{os.getpid()}-{path.name}")
        make(own)
        own.replace(path)
    return path


def numba_sources(folder: pathlib.Path) -> bytes:
    """All that Numba compiles into an operation's functions."""
    own = (path for path in folder.glob("*.py") if path.name.startswith(("numba", "_")))
    return b"".join(path.read_bytes() for path in sorted((*own, *folder.parent.glob("simd/*.py"))))


def numba_folder(file: str) -> str:
    """Where Numba keeps a file's functions: one folder for all checkouts that have the same sources of them. Numba asks for the
    file's own text alone, and would keep what was made of other vectors."""
    folder = pathlib.Path(file).parent
    return f"{folder.name}_{hashlib.sha256(numba_sources(folder)).hexdigest()}"
