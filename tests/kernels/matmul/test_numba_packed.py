"""Our matmul in Numba: panels in their order, any shape, stride, vector and number of threads."""

import numba
import numpy as np
import pytest
import tile_code

from kernels import reference, registry
from kernels.matmul import numba_amx as tiles
from kernels.problems import Matmul
from kernels.simd import emit as simd


@pytest.mark.parametrize(("variant", "batch"), [("simd", 1), ("simd", 5), ("packed", 1)])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_layout_is_exact(variant, batch, layout, dtype):
    for shape in ((70, 33, 150), (129, 65, 1)):
        problem = Matmul(*shape, dtype, layout=layout, batch=batch)
        inputs = problem.inputs(3, True)
        answer = registry.find(f"matmul/numba/{variant}").bind(problem, *inputs)()
        assert reference.check(problem, inputs, answer).passed


BFLOAT16 = pytest.mark.parametrize("variant", ["amx", "dots"])


@BFLOAT16
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("out", ["float32", "bfloat16"])
def test_bfloat16_is_exact_in_both_outputs(variant, layout, out, threads):
    tile_code.need_instructions(variant)
    # (300, 330, 2100): blocks of C down, and with two threads across, two passes over the steps, all with remainders
    small, large = [(1, 1, 1), (33, 70, 31), (64, 96, 64)], [(127, 1, 31), (300, 330, 2100)]
    for count, shapes in ((1, [*small, large[1]]), (2, large)):
        threads(count)
        for shape in shapes:
            problem = Matmul(*shape, "bfloat16", out=out, layout=layout)
            inputs = problem.inputs(3, True)
            run = registry.find(f"matmul/numba/{variant}").bind(problem, *inputs)
            run().fill(7)
            assert reference.check(problem, inputs, run()).passed, shape


@BFLOAT16
def test_halves_are_rounded_to_even(variant):
    tile_code.need_instructions(variant)
    # 256 + 1 lies between 256 and 258, 258 + 1 between 258 and 260: bfloat16 has 8 bits, and both go to the even one
    a = np.array([[256, 1], [258, 1]], tiles.numpy_dtype("bfloat16"))
    run = registry.find(f"matmul/numba/{variant}").bind(Matmul(2, 1, 2, "bfloat16"), a, np.ones((2, 1), a.dtype))
    assert run().astype(float).ravel().tolist() == [256, 260]


def test_numba_cpu_features_choose_the_vectors(monkeypatch):
    simd.vector_bytes.cache_clear()
    try:
        monkeypatch.setattr(numba.config, "CPU_FEATURES", "+avx2,+fma,+avx,-avx512f")
        assert simd.vector_bytes() == 32 and "avx512f" not in simd.features()
    finally:
        simd.vector_bytes.cache_clear()
