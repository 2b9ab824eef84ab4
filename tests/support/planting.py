"""Kernels that a test adds to the project while it runs."""

import contextlib
import sys
import unittest.mock
from collections.abc import Iterator

from kernels import registry


@contextlib.contextmanager
def kernels(name: str, source: str) -> Iterator[None]:
    """The source as kernels/matmul/numpy_<name>_planted.py, its kernels registered as rungs; all undone afterwards."""
    module = f"kernels.matmul.numpy_{name}_planted"
    path = registry.FOLDER / f"matmul/numpy_{name}_planted.py"
    path.write_text(source)
    there = registry.rungs()

    def rungs() -> frozenset[str]:
        return there | {name for name, kernel in registry._registered.items() if kernel.bind.__module__ == module}

    try:
        registry.load("matmul", "numpy")
        with unittest.mock.patch.object(registry, "rungs", rungs):
            yield
    finally:
        path.unlink()
        for kernel in [n for n, k in registry._registered.items() if k.bind.__module__ == module]:
            del registry._registered[kernel]
        sys.modules.pop(module, None)
