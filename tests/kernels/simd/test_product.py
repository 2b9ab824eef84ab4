"""Products of panels: exact in any shape, within their bounds."""

import ctypes
import mmap
import sys
import threading
import time

import numba
import numpy as np
import pytest
import tile_code
from whole_numbers import whole

from kernels.problems.arrays import empty
from kernels.simd import product as vectors


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
