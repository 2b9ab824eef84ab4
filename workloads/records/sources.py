"""A hash of the project's sources, which tells a result file's runs which code measured them, also without git."""

import functools
import hashlib
from pathlib import Path

from workloads import ROOT

SOURCES = ("kernels", "workloads", "analysis")  # the folders of the project's sources
_SUFFIXES = (".py", ".cu", ".cuh")
_HASH_DIGITS = 16


@functools.cache  # a file that is edited while a process runs does not change what the process has loaded
def source_hash(folder: Path | None = None) -> str:
    """Sixteen hexadecimal digits of a SHA-256 over the names and contents of the Python and CUDA sources in a checkout.

    folder: the checkout; None for the one that this process runs from.
    """
    folder = folder or ROOT
    sources: list[Path] = []
    for package in SOURCES:
        sources += [path for path in (folder / package).rglob("*.*") if path.suffix in _SUFFIXES]
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:_HASH_DIGITS]
