"""Matmul on vectors: of float32 and float64, and of bfloat16 with float32 sums on AVX-512's dot products of pairs."""

from collections.abc import Callable

import numba
import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import empty, numpy_dtype
from kernels.reference import operands
from kernels.registry import TimedCall, kernel, timed_call
from kernels.simd.amx import require
from kernels.simd.product import product


@kernel(batched=True)
def simd(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """A tile of C stays in registers while a panel of A meets panels of B in the second-level cache, or B's
    rows where they lie if A has few; the transpose of C where that is cheaper; threads take the next piece.

    a: m x k, b: k x n (as problem.layout stores them); a batch has a leading dimension.
    """
    if problem.math not in ("float32", "float64") or problem.out != problem.dtype:
        raise ValueError(f"the Numba vectors multiply float32 and float64, not {problem.math} to {problem.out}")
    c = empty(problem.out_shape, a.dtype, place=5)
    return timed_call(product(*operands(problem, (a, b)), c), result=c)


@numba.njit(cache=True, parallel=True)
def _pair_rows(pairs: np.ndarray, source: np.ndarray) -> None:
    """Rows 2i and 2i + 1 of 16-bit values side by side in the words of row i of `pairs`; behind the last row come zeros.
    Compiled by Numba."""
    for i in numba.prange(pairs.shape[0]):
        if 2 * i + 1 < source.shape[0]:
            for j in range(source.shape[1]):
                pairs[i, j] = source[2 * i, j] | np.uint32(source[2 * i + 1, j]) << np.uint32(16)
        else:
            for j in range(source.shape[1]):
                pairs[i, j] = source[2 * i, j]


@numba.njit(cache=True, parallel=True)
def _round(target, sums):
    """float32 words as bfloat16, rounded to even. Compiled by Numba."""
    for i in numba.prange(target.shape[0]):
        for j in range(target.shape[1]):
            word = sums[i, j]
            target[i, j] = (word + np.uint32(0x7FFF) + (word >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)


def _paired(x: np.ndarray) -> tuple[np.ndarray, list[Callable]]:
    """(32-bit words of two steps each, calls that fill them anew from x) of 16-bit values x, k steps x columns.

    The words are a view, without a call, where a column's steps lie side by side and are even in number.
    """
    k, columns = x.shape
    steps_lie_side_by_side = x.strides[0] == 2
    if steps_lie_side_by_side and x.strides[1] == 2 * k and k % 2 == 0:
        return x.T.view(np.uint32).T, []
    pairs = -(-k // 2)
    word = np.dtype(np.uint32)
    if steps_lie_side_by_side:
        by_column = empty((columns, pairs), word, place=2)
        by_column[:] = 0
        halves = by_column.view(np.uint16)[:, :k]
        return by_column.T, [lambda: np.copyto(halves, x.T)]
    by_pair = empty((pairs, columns), word, place=2)
    return by_pair, [lambda: _pair_rows(by_pair, x)]


@kernel(rung=True)
def dots(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """Steps in k are laid out in pairs, so that vdpbf16ps adds two products to each of 16 sums; all else is as in `simd`.

    a: m x k, b: k x n (as problem.layout stores them), bfloat16; C is bfloat16 or float32.
    """
    require(problem, "avx512f", "avx512bf16")
    if problem.out not in ("bfloat16", "float32"):
        raise ValueError(f"the sums are float32 and are stored so or rounded to bfloat16, not to {problem.out}")
    left, right = operands(problem, (a, b))
    left_words, left_fill = _paired(left.view(np.uint16).T)
    right_words, right_fill = _paired(right.view(np.uint16))
    sums = empty((problem.m, problem.n), np.dtype(np.float32), place=5)
    calls = [*left_fill, *right_fill, product(left_words.T, right_words, sums)]
    c = sums
    if problem.out == "bfloat16":
        c = empty(sums.shape, numpy_dtype("bfloat16"), place=3)
        target = c.view(np.uint16)
        words = sums.view(np.uint32)
        calls.append(lambda: _round(target, words))

    def run(keep=(a, b)):
        for call in calls:
            call()
        return c

    return run
