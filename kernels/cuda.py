"""Loads CUDA C: a `.cu` file beside this one, compiled by NVRTC for the GPU at hand and kept for the process.

The first line of a `.cu` names the architectures that it must compile for; the tests do so without a GPU.
"""

import functools
import pathlib

FOLDER = pathlib.Path(__file__).parent


@functools.cache
def load(file: str, kernel: str, **macros: str | int):
    """The kernel of that name in kernels/<file>.cu as a cupy.RawKernel, compiled with `macros` defined."""
    import cupy

    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in macros.items()))
    return cupy.RawKernel((FOLDER / f"{file}.cu").read_text(encoding="utf-8"), kernel, options=options)
