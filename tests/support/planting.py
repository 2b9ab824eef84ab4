"""Kernels that a test adds to the project while it runs."""

import contextlib
import sys
from collections.abc import Iterator

from kernels import registry


@contextlib.contextmanager
def kernels(name: str, source: str) -> Iterator[None]:
    """The source as kernels/matmul/numpy_<name>_planted.py, its kernels registered as rungs; all undone afterwards."""
    module = f"kernels.matmul.numpy_{name}_planted"
    path = registry.FOLDER / f"matmul/numpy_{name}_planted.py"
    path.write_text(source.replace("@kernel(", "@kernel(rung=True, "))
    try:
        registry.load("matmul", "numpy")
        yield
    finally:
        path.unlink()
        for kernel in [n for n, k in registry._registered.items() if k.bind.__module__ == module]:
            del registry._registered[kernel]
        sys.modules.pop(module, None)
