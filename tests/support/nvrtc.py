"""CUDA sources compiled by NVRTC."""

import functools
import importlib.metadata
import io
import re

import pytest
from kept import kept

from kernels.cuda import loader


def own_text(file: str) -> str:
    return (loader.FOLDER / file).read_text(encoding="utf-8")


def architectures(file: str) -> list[str]:
    return re.findall(r"sm_\w+", own_text(f"{file}.cu").splitlines()[0])


def spilled(file: str, macros: dict) -> int:
    """Bytes that a thread of the file's hungriest kernel stores where registers run out, on the last architecture it names.

    No product may wait for the one before (ptxas says so as C75..).
    """
    core = pytest.importorskip("cuda.core", reason="cuda-core is not installed (extra dev)")
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items()) + loader.source(file)
    arch = architectures(file)[-1]

    def make(path) -> None:
        log, options = io.StringIO(), core.ProgramOptions(arch=arch, std="c++17", ptxas_options="-v")
        core.Program(text, "c++", options).compile("cubin", logs=log)
        path.write_text(log.getvalue(), encoding="utf-8")

    said = kept(".log", (text, arch, *compilers()), make).read_text(encoding="utf-8")
    assert "C75" not in said
    return max(map(int, re.findall(r"(\d+) bytes spill stores", said)))


@functools.cache
def compilers() -> tuple[str, ...]:
    """What compiles here, and its version."""
    every = (f"{d.name} {d.version}" for d in importlib.metadata.distributions() if d.name)
    return tuple(sorted(name for name in every if name.startswith(("cuda", "nvidia"))))
