"""Kernels that a test adds to the project while it runs."""

import contextlib
import sys
from collections.abc import Iterator

from kernels import registry


@contextlib.contextmanager
def kernels(name: str, source: str) -> Iterator[None]:
    """The source as kernels/matmul_numpy_<name>_planted.py, registered; both undone afterwards."""
    module = f"kernels.matmul_numpy_{name}_planted"
    path = registry.FOLDER / f"{module.rpartition('.')[2]}.py"
    path.write_text(source)
    try:
        registry.load("matmul", "numpy")
        yield
    finally:
        path.unlink()
        for kernel in [n for n, k in registry._registered.items() if k.bind.__module__ == module]:
            del registry._registered[kernel]
        sys.modules.pop(module, None)
