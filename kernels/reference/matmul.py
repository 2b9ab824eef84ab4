"""The right product of two matrices, without computing all of a large one."""

import functools

import ml_dtypes  # noqa: F401  NumPy learns bfloat16 from it
import msgspec
import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import numpy_dtype
from kernels.reference.exact import WRONG, Check, equal

# Up to this many products the whole answer is worked out in integers, without any BLAS.
_FULL_PRODUCTS = 1 << 24
_EDGE = 16


def operands(problem: Matmul, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A (m x k) and B (k x n), or all of them, as views of the stored inputs."""
    a, b = inputs[:2]
    return (a.swapaxes(-1, -2) if problem.layout == "tn" else a), (b.swapaxes(-1, -2) if problem.layout == "nt" else b)


def check(problem: Matmul, inputs: tuple[np.ndarray, ...], output: np.ndarray) -> Check:
    """Whole answer in integers while small; above that Freivalds' test and the edge tiles, or, when the output was
    rounded to 16 bits or has an epilogue, the whole product (itself tested by Freivalds) rounded once. Of many each by itself."""
    out = numpy_dtype(problem.out)
    if output.shape != problem.out_shape or output.dtype != out:
        return WRONG
    if problem.count > 1:
        one = msgspec.structs.replace(problem, batch=1)
        checks = (check(one, tuple(of), c) for *of, c in zip(*inputs, output, strict=True))
        return next((found for found in checks if not found.passed), Check("exact", True, 0.0))
    a, b = operands(problem, inputs)
    whole = None
    if problem.m * problem.n * problem.k <= _FULL_PRODUCTS:
        whole = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.float32)
    elif out.itemsize <= 2 or problem.epilogue:
        whole = _product(
            problem.m, problem.n, problem.k, a.astype(np.float32).tobytes(), b.astype(np.float32).tobytes()
        )
    if whole is not None:
        answers = [whole.astype(out)]
        if problem.epilogue:  # rounded once, or twice where a second kernel adds the bias
            sums = (x.astype(np.float32) + inputs[2].astype(np.float32) for x in (whole, *answers))
            answers = [np.maximum(x, 0).astype(out) for x in sums]
        found = [equal(answer, output) for answer in answers]
        return next((one for one in found if one.passed), found[0])
    if not np.isfinite(output).all() or not _freivalds(a, b, output):
        return WRONG
    rows, columns = (np.unique(np.r_[0 : min(_EDGE, n), max(0, n - _EDGE) : n]) for n in (problem.m, problem.n))
    edge = np.matmul(a[rows].astype(np.int64), b[:, columns].astype(np.int64)).astype(out)
    return equal(edge, output[np.ix_(rows, columns)])


@functools.lru_cache(maxsize=2)
def _product(m: int, n: int, k: int, a: bytes, b: bytes) -> np.ndarray:
    """A B of whole numbers in float32, exact while sums stay under 2^24; the same for every 16-bit type, so kept."""
    left, right = np.frombuffer(a, np.float32).reshape(m, k), np.frombuffer(b, np.float32).reshape(k, n)
    product = left @ right
    if not _freivalds(left, right, product):
        raise ArithmeticError("the reference product failed its own test: this machine's BLAS gives wrong answers")
    return product


def _freivalds(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounds: int = 2) -> bool:
    """A (B x) = C x for random whole-number x, all sums below 2^53 and so exact in float64, by rows in chunks."""
    rng = np.random.default_rng(20)
    for _ in range(rounds):
        x = rng.integers(-64, 65, c.shape[1:]).astype(np.float64)
        if not np.array_equal(_times(a, _times(b, x)), _times(c, x)):
            return False
    return True


def _times(matrix: np.ndarray, x: np.ndarray, rows: int = 1024) -> np.ndarray:
    return np.concatenate([matrix[i : i + rows].astype(np.float64) @ x for i in range(0, matrix.shape[0], rows)])
