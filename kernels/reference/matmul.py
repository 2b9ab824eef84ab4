"""The right product of two matrices, without computing all of a large one."""

import functools

import ml_dtypes  # noqa: F401  NumPy learns bfloat16 from it
import msgspec
import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import numpy_dtype
from kernels.reference.exact import WRONG, OutputCheck, equal

#: Up to this many products the whole answer is worked out in integers, without any BLAS.
_FULL_PRODUCTS = 1 << 24
_EDGE = 16  # rows and columns at each side of a large result that are worked out in integers


def operands(problem: Matmul, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A (m x k) and B (k x n), or a batch of each, as views of the stored inputs."""
    a, b = inputs[:2]
    return (a.swapaxes(-1, -2) if problem.layout == "tn" else a), (b.swapaxes(-1, -2) if problem.layout == "nt" else b)


def check(problem: Matmul, inputs: tuple[np.ndarray, ...], output: np.ndarray) -> OutputCheck:
    """Whether a kernel's output is the product. Whole answer in integers while small; above that Freivalds' test and the edge
    tiles, or, when the output was rounded to 16 bits or has an epilogue, the whole product (itself tested by Freivalds)
    rounded once. A batch is checked product by product.

    inputs: A and B as problem.layout stores them, whole numbers, and with an epilogue the bias of each column.
    """
    out = numpy_dtype(problem.out)
    if output.shape != problem.out_shape or output.dtype != out:
        return WRONG
    if problem.count > 1:
        return _check_batch(problem, inputs, output)
    a, b = operands(problem, inputs)
    if problem.m * problem.n * problem.k <= _FULL_PRODUCTS:
        whole = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.float32)
        return _check_whole(problem, whole, inputs, output)
    if out.itemsize <= 2 or problem.epilogue:
        left = a.astype(np.float32).tobytes()
        right = b.astype(np.float32).tobytes()
        whole = _product(left, right, m=problem.m, n=problem.n, k=problem.k)
        return _check_whole(problem, whole, inputs, output)
    if not np.isfinite(output).all() or not _freivalds(a, b, output):
        return WRONG
    rows = _edges(problem.m)
    columns = _edges(problem.n)
    edge = np.matmul(a[rows].astype(np.int64), b[:, columns].astype(np.int64)).astype(out)
    return equal(edge, output[np.ix_(rows, columns)])


def _check_batch(problem: Matmul, inputs: tuple[np.ndarray, ...], output: np.ndarray) -> OutputCheck:
    """The check of the first product of a batch that is wrong; a passed check if none is."""
    single = msgspec.structs.replace(problem, batch=1)
    for *arrays, c in zip(*inputs, output, strict=True):
        result = check(single, tuple(arrays), c)
        if not result.passed:
            return result
    return OutputCheck("exact", True, 0.0)


def _check_whole(
    problem: Matmul, product: np.ndarray, inputs: tuple[np.ndarray, ...], output: np.ndarray
) -> OutputCheck:
    """A check of the output against the whole product in float32. With an epilogue it may be rounded once, or twice where a
    second kernel adds the bias."""
    out = numpy_dtype(problem.out)
    rounded = product.astype(out)
    if not problem.epilogue:
        return equal(rounded, output)
    bias = inputs[2].astype(np.float32)
    once = equal(np.maximum(product + bias, 0).astype(out), output)
    twice = equal(np.maximum(rounded.astype(np.float32) + bias, 0).astype(out), output)
    return twice if twice.passed and not once.passed else once


def _edges(size: int) -> np.ndarray:
    """The first and the last _EDGE of `size` indices."""
    return np.unique(np.r_[0 : min(_EDGE, size), max(0, size - _EDGE) : size])


@functools.lru_cache(maxsize=2)
def _product(a: bytes, b: bytes, *, m: int, n: int, k: int) -> np.ndarray:
    """A B of whole numbers in float32, exact while sums stay under 2^24; the same for every 16-bit type, so it is cached. a,
    b: the bytes of float32 matrices m x k and k x n."""
    left = np.frombuffer(a, np.float32).reshape(m, k)
    right = np.frombuffer(b, np.float32).reshape(k, n)
    product = left @ right
    if not _freivalds(left, right, product):
        raise ArithmeticError("the reference product failed its own test: this machine's BLAS gives wrong answers")
    return product


def _freivalds(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounds: int = 2) -> bool:
    """Whether C = A B, by Freivalds' test: A (B x) = C x for random whole-number x, all sums below 2^53 and so exact in
    float64."""
    rng = np.random.default_rng(20)
    for _ in range(rounds):
        x = rng.integers(-64, 65, c.shape[1:]).astype(np.float64)
        if not np.array_equal(_times(a, _times(b, x)), _times(c, x)):
            return False
    return True


def _times(matrix: np.ndarray, x: np.ndarray, rows: int = 1024) -> np.ndarray:
    return np.concatenate([matrix[i : i + rows].astype(np.float64) @ x for i in range(0, matrix.shape[0], rows)])
