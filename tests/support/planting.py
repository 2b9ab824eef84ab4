"""Kernels that a test adds to the project while it runs."""

import sys

import pytest

import kernels.matmul
from kernels import registry


def kernels_from(name: str, source: str):
    """A module's fixture: the source as matmul/numpy_<name>_planted.py in a temporary folder, what it calls @kernel registered
    as rungs of one thread, here and in workers; all undone afterwards."""

    @pytest.fixture(scope="module")
    def planted(tmp_path_factory):
        module = f"kernels.matmul.numpy_{name}_planted"
        root = tmp_path_factory.mktemp("planted")
        folder = root / "matmul"
        folder.mkdir()
        text = source.replace("@kernel\n", "@kernel(rung=True, parallel=False)\n")
        (folder / f"numpy_{name}_planted.py").write_text(f"from kernels.registry import kernel\n{text}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(registry.PLANTED, str(root))
            patch.setattr(kernels.matmul, "__path__", list(kernels.matmul.__path__))
            registry.load("matmul", "numpy")
            yield
        for kernel in [n for n, k in registry._registered.items() if k.bind.__module__ == module]:
            del registry._registered[kernel]
        sys.modules.pop(module, None)

    return planted
