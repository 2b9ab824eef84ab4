"""Loads CUDA C: a `.cu` file beside this one, compiled by NVRTC for the GPU at hand and kept for the process.

The first line of a `.cu` names the architectures that it must compile for; the tests do so without a GPU.
"""

import functools
import pathlib

FOLDER = pathlib.Path(__file__).parent
STREAM_THREADS = 256


@functools.cache
def load(file: str, kernel: str, _arch: str = "", **macros: str | int):
    """The kernel of that name in kernels/<file>.cu as a cupy.RawKernel, compiled with `macros` defined, for the GPU at
    hand or for `_arch` (sm_90a has instructions that sm_90 leaves out)."""
    import cupy

    arch = (f"-arch={_arch}",) if _arch else ()
    options = ("-std=c++17", *arch, *(f"-D{name}={value}" for name, value in macros.items()))
    return cupy.RawKernel((FOLDER / f"{file}.cu").read_text(encoding="utf-8"), kernel, options=options)


def stream(real: str, formula: str, arrays: int, nbytes: int):
    """(the element-wise kernel of stream_cupy.cu, its blocks) for arrays of `nbytes` each, of which it reads one or two.

    One load a thread where one array is read and two an array where two are: most on an H200 (copy 4.27 TB/s against 4.13
    with two, triad 4.39 against 4.37 with one).
    """
    macros = {"FORMULA": formula.replace(" ", ""), "HAS_B": arrays - 1, "FLIGHT": arrays}
    compiled = load("stream_cupy", "stream", REAL=real, **macros)
    return compiled, -(-nbytes // (STREAM_THREADS * arrays * 16))
