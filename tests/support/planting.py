"""Kernels that a test adds to the project while it runs."""

import sys

import pytest

from kernels import registry


def kernels(name: str, source: str):
    """A module's fixture: the source as kernels/matmul/numpy_<name>_planted.py, what it calls @kernel registered as rungs of one
    thread; all undone afterwards."""

    @pytest.fixture(scope="module")
    def planted():
        module = f"kernels.matmul.numpy_{name}_planted"
        path = registry.FOLDER / f"matmul/numpy_{name}_planted.py"
        text = source.replace("@kernel\n", "@kernel(rung=True, parallel=False)\n")
        path.write_text(f"from kernels.registry import kernel\n{text}")
        try:
            registry.load("matmul", "numpy")
            yield
        finally:
            path.unlink()
            for kernel in [n for n, k in registry._registered.items() if k.bind.__module__ == module]:
                del registry._registered[kernel]
            sys.modules.pop(module, None)

    return planted
