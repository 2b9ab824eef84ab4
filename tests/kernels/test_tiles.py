"""The register tiles of products and convolutions as LLVM makes them: whole vectors that stay in registers, on every CPU."""

import platform
import re

import pytest
import tile_code

from kernels.conv import _pixel_tiles as pixel_tiles
from kernels.matmul import numba_simd as vectors
from kernels.simd import vectors as simd

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


PRODUCTS = [("float32", 64), ("float64", 64), ("float32", 32), ("uint32", 64)]


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
def test_tiles_stay_in_the_registers_of_other_cpus_too(cpu, vector, registers):
    """LLVM orders a loop by its model of the CPU; what fits for one may spill for another."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no AVX2 on this CPU")
    found = tile_code.made_for(cpu)
    assert len(found) == len(vectors.tile_shapes(vector)) + conv_tiles(vector)
    for name, lines in found.items():
        stays_in_registers(name, lines, vector, registers)
