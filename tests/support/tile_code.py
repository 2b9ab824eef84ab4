"""What LLVM makes of the register tiles of `matmul/numba/simd` and `conv/numba/blocked`: for this CPU, or for another.

As a script: those of float32 for $NUMBA_CPU_NAME, as JSON; nothing of them is run.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import numba
import numpy as np
import pytest
from kept import kept, numba_sources
from llvmlite import binding as llvm

from kernels.conv import _pixel_tiles as pixel_tiles
from kernels.problems.arrays import empty
from kernels.simd import amx
from kernels.simd import emit as simd
from kernels.simd import product_tiles as vectors
from workloads import ROOT

_AVX2 = (
    "+64bit,+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,"
    "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe"
)
_AVX512 = f"{_AVX2},+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl"
OTHERS = {"haswell": _AVX2, "sapphirerapids": _AVX512, "znver5": _AVX512}  # as LLVM calls them: what they have


_HERE = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def need(vector: int) -> None:
    """Skips a test of vectors of so many bytes where the CPU has none."""
    if vector > simd.vector_bytes():
        pytest.skip("no AVX-512 on this CPU" if vector == 64 else "no AVX2 on this CPU")


def need_instructions(variant: str) -> None:
    """Skips a test of a kernel of AMX's tiles (`amx`, `tiles`) or of AVX-512's dot products where the CPU has none."""
    if variant in ("amx", "tiles") and not (simd.features() >= {"amx-bf16", "amx-tile"} and amx.tiles_allowed()):
        pytest.skip("no AMX")
    if variant.startswith("dot") and not simd.features() >= {"avx512bf16", "avx512f"}:
        pytest.skip("no AVX512_BF16 on this CPU")


def _functions(compiled, arguments: tuple) -> dict[str, list[str]]:
    """Name -> lines of the tiles in a function of these arguments."""
    compiled.compile(tuple(map(numba.typeof, arguments)))
    found = re.split(r"^((?:matmul|conv)_tile_\w+):", compiled.inspect_asm(compiled.signatures[0]), flags=re.MULTILINE)
    return {name: code.split(".Lfunc_end")[0].splitlines() for name, code in zip(found[1::2], found[2::2], strict=True)}


def matmul_tiles(dtype: str, vector: int) -> dict[str, list[str]]:
    """Name -> lines of assembly, of the tiles of products with vectors of `vector` bytes."""
    return _kept(("matmul", dtype, str(vector), *_HERE), lambda: _matmul_tiles(dtype, vector))


def conv_tiles(vector: int) -> dict[str, list[str]]:
    """The same of convolutions."""
    return _kept(("conv", str(vector), *_HERE), lambda: _conv_tiles(vector))


def _kept(of: tuple[str, ...], make) -> dict[str, list[str]]:
    """What `make` gives, kept under these words, the sources of tiles and Numba's version."""
    sources = numba_sources(ROOT / "kernels/conv").decode()
    of = (sources, pathlib.Path(__file__).read_text(encoding="utf-8"), numba.__version__, *of)
    return json.loads(kept(".json", of, lambda path: path.write_text(json.dumps(make()))).read_text())


def _matmul_tiles(dtype: str, vector: int) -> dict[str, list[str]]:
    @numba.njit
    # no constants to work in
    def fresh(lanes, a, a_row, a_step, b, b_step, c, length, depth, whole, height, columns, added):
        vectors.tile(lanes, a, a_row, a_step, b, b_step, c, length, depth, whole, height, columns, added)

    item = np.dtype(dtype)
    return _functions(fresh, ((item.type(0),) * (vector // item.itemsize), *[0] * 12))


def _conv_tiles(vector: int) -> dict[str, list[str]]:
    @numba.njit
    def fresh(lanes, rows, high, a, at, runs, length, step, b, c, height, columns, added):  # no constants to work in
        pixel_tiles.scattered_tile(
            lanes, rows, a, 0, at, 0, at, 0, at, 0, runs, length, b, 0, c, 0, at, 0, height, columns, added
        )
        pixel_tiles.adjacent_tile(
            lanes, high, a, 0, at, 0, runs, length, step, b, 0, c, 0, at, 0, height, columns, added
        )

    values, lanes, rows = empty((1,), np.dtype(np.float32)), (0,) * (vector // 4), (0,) * pixel_tiles.tile_rows(vector)
    return _functions(fresh, (lanes, rows, 1, values, np.zeros(1, np.int64), 1, 1, 1, values, values, 1, 1, 0))


def made_for(cpu: str) -> dict[str, list[str]]:
    """The tiles of float32 as LLVM makes them for one of OTHERS, in a process of its own: Numba compiles for one CPU."""
    own = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": OTHERS[cpu]}

    at = {"PYTHONPATH": str(ROOT)}

    def make() -> dict[str, list[str]]:
        made = subprocess.run([sys.executable, __file__], env=os.environ | own | at, stdout=subprocess.PIPE, check=True)
        return json.loads(made.stdout)

    return _kept(("other", *own.values()), make)


if __name__ == "__main__":
    json.dump(_matmul_tiles("float32", simd.vector_bytes()) | _conv_tiles(simd.vector_bytes()), sys.stdout)
