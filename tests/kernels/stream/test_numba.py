"""STREAM in Numba: passes of a call, the compiler's instructions, slices."""

import re

import numba
import numpy as np
import pytest

from kernels import reference, registry
from kernels.problems import Stream
from kernels.problems.arrays import empty
from kernels.simd import emit
from kernels.stream import numba as stream_numba

LOOP, NONTEMPORAL = (registry.find(f"stream/numba/{name}") for name in ("loop", "nontemporal"))
OURS = [LOOP, NONTEMPORAL]
FAR = stream_numba._FAR_BYTES


def compiled(how: str):
    @numba.njit
    def one_pass(a, b, out, factor, stop):
        stream_numba._pass("triad", how, a, b, out, factor, 0, stop)

    return one_pass


near, far, past = map(compiled, ("near", "far", "nontemporal"))


def assembly(function) -> list[str]:
    """The function's assembly after a call on 1000 values that is checked."""
    a, b, out = (empty((1000,), np.dtype(np.float64)) for _ in range(3))
    a[:], b[:], out[:] = 1, np.arange(1000), 0
    function(a, b, out, 3.0, 999)
    np.testing.assert_array_equal(out, np.append(1 + 3.0 * np.arange(999), 0))
    return next(iter(function.inspect_asm().values())).splitlines()


@pytest.mark.parametrize(("function", "width"), [(near, emit.vector_bytes()), (far, min(FAR, emit.vector_bytes()))])
def test_the_triad_is_whole_vectors_without_spills(function, width):
    register = {64: "zmm", 32: "ymm", 16: "xmm"}[width]
    lines = assembly(function)
    vector = re.compile(rf"vfmadd\w*pd.*{register}|fmla")
    fused = [i for i, line in enumerate(lines) if vector.search(line)]
    assert len(fused) >= stream_numba._UNROLL
    loop = lines[fused[0] - stream_numba._UNROLL : fused[stream_numba._UNROLL - 1] + stream_numba._UNROLL + 1]
    assert not [line for line in loop if "rsp" in line], "a register spills inside the loop"
    assert not [line for line in lines if "vmovnt" in line]
    assert any("prefetch" in line or "prfm" in line for line in loop) is (function is far)


def test_a_call_makes_every_pass(threads):
    threads(2)
    for nontemporal in (False, True):
        x = empty((100,), np.dtype(np.float64))
        x[:] = 1
        stream_numba._compiled("scale", nontemporal)(x, x, x, 3.0, 56, 4, True)  # 56: seven lines, two slices
        np.testing.assert_array_equal(x, np.full(100, 81.0))
    width = stream_numba._SUMS * emit.lanes(np.dtype(np.float64))
    x = empty((2 * width,), np.dtype(np.float64))
    x[:] = 1
    # the sums lie on the first half: each pass adds the second half's ones to them
    stream_numba._read(x, x[:width].reshape(1, -1), np.empty(1), 2 * width, 5)
    np.testing.assert_array_equal(x, np.repeat([6.0, 1.0], width))
    threads(1)
    problems = Stream("triad", 1 << 20), Stream("copy", 3 << 25), Stream("add", 24)
    small, large, tiny = (LOOP.bind(p, *p.inputs(1)) for p in problems)
    # 43690 values of three arrays, 16 bytes less than 1 MiB
    assert (small.passes, large.passes, tiny.passes) == (64, 1, stream_numba._MOST_PASSES)


@pytest.mark.parametrize("kernel", OURS, ids=lambda k: k.variant)
@pytest.mark.parametrize("count", [1, 2])
def test_edges_of_lines_vectors_and_slices(kernel, count, threads):
    threads(count)
    for dtype in ("float32", "float64"):
        for n in (1, 7, 8, 9, 15, 17, 63, 64, 65, 129, 4099):
            for operation in ("triad", "read") if kernel is LOOP else ("triad",):
                item = 12 if operation == "triad" else 4
                problem = Stream(operation, n * item * (2 if dtype == "float64" else 1), dtype)
                assert problem.elements == n
                inputs = problem.inputs(3, True)
                assert reference.check(problem, inputs, kernel.bind(problem, *inputs)()).passed, (problem, count)


def test_large_stores_are_nontemporal_and_in_bounds():
    for how in (near, far, past):
        a, out = empty((80,), np.dtype(np.float32)), empty((80,), np.dtype(np.float32))
        a[:], out[:] = 2, 7
        how(a, a, out, np.float32(3), 37)
        np.testing.assert_array_equal(out, np.repeat(np.float32([8, 7]), [37, 43]))
    if not emit.llvm.get_host_cpu_features().get("avx"):
        pytest.skip("no AVX2 on this CPU")
    lines = assembly(past)
    stores = [line for line in lines if "vmovntp" in line]
    assert len(stores) >= stream_numba._UNROLL and all("ymm" in line for line in stores)
    assert [line for line in lines if "sfence" in line]
