"""The register tiles of products and convolutions as LLVM makes them, whole vectors that stay in registers on every CPU; and
the bfloat16 peaks."""

import platform
import re

import ml_dtypes
import numba
import numpy as np
import pytest
import tile_code

from kernels import registry
from kernels.conv import _pixel_tiles as pixel_tiles
from kernels.peak import numba_bfloat16 as peaks
from kernels.problems import Matmul, Peak
from kernels.problems.arrays import empty
from kernels.simd import amx
from kernels.simd import emit as simd
from kernels.simd import product_tiles as vectors

REGISTER = {64: "zmm", 32: "ymm"}


def conv_tiles(vector: int) -> int:
    return pixel_tiles.VECTORS * (1 + len(pixel_tiles.heights(vector)))


def stays_in_registers(name: str, lines: list[str], vector: int, registers: int) -> None:
    """Raises AssertionError for a tile that is no vector code or spills a vector; where it has but 16 registers, the masks
    of what it stores in the end may spill."""
    # a product has a step on whole vectors of B and one on part of them, a convolution an unrolled trip and single steps
    register, first = REGISTER[vector], 1 if name.startswith("matmul") else pixel_tiles._UNROLL
    fused = [i for i, line in enumerate(lines) if "vfmadd" in line or "vdpbf16ps" in line]
    count = int((size := re.search(r"_(\d+)x(\d)_", name))[1]) * int(size[2])
    assert len(fused) >= count * (first + 1) and all(register in lines[i] for i in fused), name
    if name.startswith("matmul"):
        loop = lines[fused[0] : fused[count - 1]]
        assert not [line for line in loop if "rsp" in line], f"{name}: a register spills inside the loop"
    whole = count if name.startswith("matmul") else len(fused)  # what follows in a product has masks beside its sums
    held = lines if registers == 32 else lines[: fused[whole - 1]]
    assert not [line for line in held if "rsp" in line and register in line], f"{name}: a vector spills"


PRODUCTS = [("float32", 64), ("float64", 64), ("float32", 32), ("float64", 32), ("uint32", 64), ("uint32", 32)]


@pytest.mark.parametrize(("of", "vector"), [*PRODUCTS, ("convolutions", 64), ("convolutions", 32)])
def test_a_tile_is_vector_code_without_spills(of, vector):
    tile_code.need(vector)
    whole = of == "convolutions"
    found = tile_code.conv_tiles(vector) if whole else tile_code.matmul_tiles(of, vector)
    assert len(found) == (conv_tiles(vector) if whole else len(vectors.tile_shapes(vector)))
    for name, lines in found.items():
        stays_in_registers(name, lines, vector, simd.registers(simd.vector_bytes()))


@pytest.mark.parametrize(
    ("cpu", "vector", "registers"), [("haswell", 32, 16), ("sapphirerapids", 64, 32), ("znver5", 64, 32)]
)
def test_tiles_stay_in_other_cpus_registers(cpu, vector, registers):
    """LLVM orders a loop by its model of the CPU; what fits for one may spill for another."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no AVX2 on this CPU")
    found = tile_code.made_for(cpu)
    assert len(found) == len(vectors.tile_shapes(vector)) + conv_tiles(vector)
    for name, lines in found.items():
        stays_in_registers(name, lines, vector, registers)


RNG = np.random.default_rng(5)


def words(values: np.ndarray) -> np.ndarray:
    """bfloat16 values as the 32-bit words that the instructions take, on a cache line."""
    array = empty((values.size,), np.dtype(ml_dtypes.bfloat16))
    array[:] = values.ravel()
    return array.view(np.uint32)


@numba.njit
def dots(sums, a, b, trips):
    peaks._dots(sums, a, b, trips)


@numba.njit
def tiles(sums, a, b, config, trips):
    peaks._tile_products(sums, a, b, config, trips)


def test_a_dot_adds_two_products_per_lane():
    tile_code.need_instructions("dot")
    a, b = RNG.integers(-2, 3, (2, 16, 2))
    sums = np.empty(simd.CHAINS * 16, np.float32)
    dots(sums, words(a), words(b), 3)
    expected = np.tile(3 * peaks._UNROLL * (a * b).sum(1), (simd.CHAINS, 1))
    np.testing.assert_array_equal(sums.reshape(simd.CHAINS, 16), expected)
    one = words(np.ones(32))
    dots(np.empty(simd.CHAINS * 16, np.float32), one, one, 1)
    lines = next(iter(dots.inspect_asm().values())).splitlines()
    found = [i for i, line in enumerate(lines) if "vdpbf16ps" in line]
    assert len(found) >= simd.CHAINS * peaks._UNROLL and all("zmm" in lines[i] for i in found)
    loop = lines[found[0] : found[simd.CHAINS * peaks._UNROLL - 1]]
    assert not [line for line in loop if "rsp" in line], "a register spills inside the loop"


def test_six_tiles_multiply_16_by_32_by_16():
    tile_code.need_instructions("tiles")
    a, b = RNG.integers(-2, 3, (16, 32)), RNG.integers(-2, 3, (32, 16))
    pairs = b.reshape(16, 2, 16).transpose(0, 2, 1)  # rows 2k and 2k + 1 side by side
    sums = empty((6 * 256,), np.dtype(np.float32))
    tiles(sums, words(a), words(pairs), amx.tile_shapes(), 5)
    np.testing.assert_array_equal(sums.reshape(6, 16, 16), np.tile(5 * (a @ b), (6, 1, 1)))
    one = words(np.ones(512))
    tiles(empty((6 * 256,), np.dtype(np.float32)), one, one, amx.tile_shapes(), 1)
    lines = next(iter(tiles.inspect_asm().values())).splitlines()
    assert [line.split("%tmm")[-1] for line in lines if "tdpbf16ps" in line] == ["0", "1", "2", "3", "4", "5"]
    assert sum("tilerelease" in line for line in lines) == 1


@pytest.mark.parametrize("name", ["peak/numba/tiles", "matmul/numba/amx", "peak/numba/dot"])
def test_a_chip_or_system_without_instructions_is_refused(name, monkeypatch):
    lacks = (
        {"avx512bf16": "no avx512bf16$"} if "dot" in name else {"amx-bf16": "no amx-bf16$", "": "not let a process use"}
    )
    problem = Peak("bfloat16", 1 << 30) if name.startswith("peak") else Matmul(4, 4, 4, "bfloat16")
    monkeypatch.setattr(amx.platform, "system", lambda: "Windows")
    amx.tiles_allowed.cache_clear()
    try:
        for missing, words in lacks.items():
            have = {name: name != missing for name in ("avx512f", "avx512bf16", "amx-tile", "amx-bf16")}
            monkeypatch.setattr(amx.llvm, "get_host_cpu_features", lambda have=have: have)
            with pytest.raises(ValueError, match=words):
                registry.find(name).bind(problem, *problem.inputs(1))
    finally:
        amx.tiles_allowed.cache_clear()
