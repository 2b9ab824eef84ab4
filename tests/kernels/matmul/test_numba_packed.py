"""Our matmul in Numba: panels in their order, any shape, stride, vector and number of threads."""

import ctypes
import mmap
import sys
import threading
import time

import numba
import numpy as np
import pytest
import tile_code

from kernels import reference, registry
from kernels.matmul import numba_amx as tiles
from kernels.problems import Matmul
from kernels.problems.arrays import empty
from kernels.simd import emit as simd
from kernels.simd import packing
from kernels.simd import product as vectors
from kernels.simd.vector_product import vector_product

RNG = np.random.default_rng(7)


def whole(shape, dtype="float32") -> np.ndarray:
    return RNG.choice([-2, -1, 1, 2], shape).astype(dtype)


@pytest.mark.parametrize("across", [1, 40])  # side by side in memory across the panel, or along it
@pytest.mark.parametrize("valid", [8, 5])
def test_a_panel_has_the_steps_in_their_order(across, valid):
    source = whole((40, 40))
    target = np.full(8 * 39 + 16, 7, np.float32)
    along = 41 - across
    packing.pack((0,) * 16, (0,) * 8, target, 0, 8, packing.origin(source), across, along, 0, valid, 1, 39, 39)
    expected = (source if across == 40 else source.T)[:valid, 1:]
    np.testing.assert_array_equal(target[: 8 * 39].reshape(39, 8)[:, :valid].T, expected)


def test_panels_lie_apart_on_one_huge_page():
    left, right = packing.room(np.dtype(np.float32), (3, 1000), (5,))
    starts = [x.__array_interface__["data"][0] for x in (left, right)]
    # 12,000 bytes take three pages of 4096, and the next begins a KiB into its own
    assert starts[0] % (1 << 21) == 0 and starts[1] - starts[0] == 3 * 4096 + 1024
    assert (left.shape, right.shape, left.dtype) == ((3, 1000), (5,), np.float32)


@pytest.mark.parametrize(("dtype", "vector"), [("float32", 0), ("float64", 0), ("float32", 32)])
@pytest.mark.parametrize("count", [1, 2])
def test_odd_shapes_and_strides_are_exact(dtype, vector, count, threads):
    threads(count)
    large = (9, 700, 70), (300, 50, 1100), (9, 1100, 600)  # several phases in k; of those, several blocks of columns
    for m, n, k in [(1, 1, 1), (127, 1, 31), (1, 64, 3), (49, 49, 1), (8, 48, 16), (200, 3, 40), *large]:
        for a, b in [
            (whole((m, k), dtype), whole((k, n), dtype)),
            (whole((k, m), dtype).T, whole((n, k), dtype).T),
            (whole((2 * m, 3 * k), dtype)[::-2, ::3], whole((k, 2 * n), dtype)[::-1, ::2]),
        ]:
            c = empty((m, n), a.dtype)
            c.fill(7)
            call = vectors.product(a, b, c, vector)
            for _ in range(2):
                call()
                np.testing.assert_array_equal(c, a @ b)
                c.fill(7)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("size", [33, 70])
def test_threads_share_a_thin_product(size, count):
    """Shares are multiples of 16: of 33 results or sums two threads have 32 and 1. Of B's rows as they lie, and transposed."""
    for m, n, k in ((1, size, 50), (1, 50, size), (size, 1, 50), (50, 1, size)):
        for a, b in (
            (whole((m, k)), whole((k, n))),
            (whole((m, k)), whole((n, k)).T),
            (whole((k, m)).T, whole((k, n))),
        ):
            c = np.full((m, n), 7, a.dtype)
            vector_product(a, b, c, count)()
            np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("vector", [64, 32])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_every_residue_of_every_block_is_exact(layout, vector, monkeypatch):
    tile_code.need(vector)
    monkeypatch.setattr(vectors, "second_level_bytes", lambda: 1 << 16)  # so some B are packed whose rows are whole
    rows, lanes = vectors.tile_rows(vector), vector // 4
    depth = vectors._DEPTH_BYTES // 4
    sizes = [(m, n, (3 * m + n) % (lanes + 2) + 1) for m in range(1, 2 * rows + 2) for n in range(1, 4 * lanes + 2)]
    sizes += [(vectors._FEW_ROWS + 1, lanes + r, 2 * depth + r) for r in range(lanes)]
    for m, n, k in sizes:
        a, b = whole((k, m) if layout == "tn" else (m, k)), whole((n, k) if layout == "nt" else (k, n))
        a, b, c = a.T if layout == "tn" else a, b.T if layout == "nt" else b, np.full((m, n), 7, np.float32)
        vectors.product(a, b, c, vector)()
        assert (c == a @ b).all(), (m, n, k)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to forbid a page")
@pytest.mark.parametrize(("m", "n", "k"), [(8, 10, 40), (1, 33, 9), (5, 47, 3), (3, 3, 1)])
def test_nothing_is_read_behind_an_operand(m, n, k):
    room = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    values = np.frombuffer(room, np.float32)
    forbidden = values.__array_interface__["data"][0] + 2 * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(forbidden), mmap.PAGESIZE, 0) == 0
    end = 2 * mmap.PAGESIZE // 4
    b, c = values[end - k * n : end].reshape(k, n), empty((m, n), np.dtype(np.float32))
    b[:] = whole((k, n))
    for a, right in ((whole((m, k)), b), (whole((m, n)), b.T)):
        c = empty((m, right.shape[1]), a.dtype)
        vectors.product(a, right, c)()
        np.testing.assert_array_equal(c, a @ right)
    c = empty((n, m), b.dtype)
    vectors.product(b.T, x := whole((k, m)), c)()
    np.testing.assert_array_equal(c, b.T @ x)


def test_a_tile_writes_only_its_results(threads):
    c = np.full(9 * 60, 7, np.float32)
    a, b = whole((9, 5)), whole((5, 50))
    whole_c = c[:450].reshape(9, 50)
    vectors.product(a, b, whole_c)()
    np.testing.assert_array_equal(whole_c, a @ b)
    assert (c[450:] == 7).all()
    threads(2)
    a, b, c = whole((3, 1200)), whole((1200, 2)), empty((3, 2), np.dtype(np.float32))
    for _ in range(200):
        vectors.product(a, b, c)()
    np.testing.assert_array_equal(c, a @ b)


@numba.njit(nogil=True)
def share(*arguments):
    vectors._work(*arguments)


def test_nobody_adds_to_c_in_another_phase(monkeypatch):
    """One thread's share of two phases, as another has taken the first piece of C and takes its time."""
    k = 2 * vectors._DEPTH_BYTES // 4
    a, b, c = np.ones((128, k), np.float32), np.ones((96, k), np.float32).T, np.zeros((128, 96), np.float32)
    monkeypatch.setattr(vectors, "direct", lambda function, *arguments: lambda: arguments)
    *arguments, spare, _ = vectors.product(a, b, c)()
    (plan,), counters = arguments[2], np.zeros(10, np.int64)
    height, pieces = plan["piece_rows"], -(-128 // plan["piece_rows"]) * -(-96 // plan["piece_columns"])
    counters[3] = 1  # the other's, of two threads
    own = threading.Thread(target=share, args=(*arguments, spare[0], counters, 0, 2), daemon=True)
    own.start()
    until = time.monotonic() + 60
    while not (counters[2] == pieces - 1 and counters[6]) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)  # the next phase is packed, and would be begun
    assert pieces > 1 and (counters[2], counters[8]) == (pieces - 1, 0)
    counters[2] += 1
    own.join(60)
    assert counters[7] == pieces and (c[height:] == k).all()


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
