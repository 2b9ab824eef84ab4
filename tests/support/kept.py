"""What compilers made of a text, kept beside Numba's cache: the same text, options and compiler need not be compiled again."""

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
