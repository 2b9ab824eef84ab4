"""The right answers, and a check that can fail: equality where the arithmetic is exact, so that NaN fails by itself."""

import functools

import ml_dtypes  # noqa: F401  NumPy learns bfloat16 from it
import msgspec
import numpy as np

from kernels import passes
from kernels.arrays import numpy_dtype
from kernels.problems import AllReduce, Conv, Launch, Matmul, Peak, PeerCopy, Problem, Stream, Transfer

# Up to this many products the whole answer is worked out in integers, without any BLAS.
_FULL_PRODUCTS = 1 << 24
_EDGE = 16


class Check(msgspec.Struct, frozen=True):
    """How an output was checked (`exact`: equality; `bound`: a largest error), whether it passed, and the largest error seen."""

    how: str
    passed: bool
    max_error: float | None = None


def check(problem: Problem, inputs: tuple[np.ndarray, ...], output: np.ndarray, bound: float | None = None) -> Check:
    """Compares a kernel's output on whole-number inputs with the answer; shapes and dtypes must match too.

    `bound`: the largest error allowed of a convolution whose algorithm rounds (Winograd, FFT); without it all is exact.
    """
    output = np.asarray(output)
    if isinstance(problem, Matmul):
        return _check_matmul(problem, inputs, output)
    if isinstance(problem, Conv):
        from kernels import reference_conv  # which is made of the checks here

        return reference_conv.check(problem, inputs, output, bound or 0.0)
    if isinstance(problem, Stream):
        return check_stream(problem, inputs, output)
    if isinstance(problem, Transfer):
        return equal(np.concatenate(inputs * (2 if problem.direction == "both" else 1)), output)
    if isinstance(problem, Launch):
        return equal(launch_answer(problem, inputs), output)
    if isinstance(problem, Peak):
        return _check_peak(problem, output)
    if isinstance(problem, PeerCopy):
        return equal(np.concatenate(inputs), output)
    if isinstance(problem, AllReduce):  # every GPU has the whole sum: of so few whole numbers it is exact in any type
        total = inputs[0].astype(np.float32).sum(axis=0).astype(inputs[0].dtype)
        return equal(np.broadcast_to(total, inputs[0].shape), output)
    raise TypeError(f"no reference for {type(problem).__name__}")


def _check_peak(problem: Peak, output: np.ndarray) -> Check:
    """With x <- 1 * x + 1 from 0 every value counts its own multiply-adds: their sum must be the FLOPs claimed, and at
    most a trip of the loop more (5 % is allowed)."""
    counts = output.astype(np.float64).ravel()
    flops = 2 * float(counts.sum())
    passed = counts.size > 0 and bool(np.all(counts == counts[0])) and problem.flops <= flops <= 1.05 * problem.flops
    return Check("exact", passed, abs(flops - problem.flops) / problem.flops if np.isfinite(flops) else float("inf"))


def equal(expected: np.ndarray, output: np.ndarray) -> Check:
    """Whether shape, type and every value are the expected ones, and the largest error."""
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return Check("exact", False, float("inf"))
    passed = bool(np.array_equal(output, expected))
    with np.errstate(all="ignore"):
        error = 0.0 if passed else float(np.max(np.abs(output.astype(np.float64) - expected.astype(np.float64))))
    return Check("exact", passed, error)


def launch_answer(problem: Launch, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """x + count for `elementwise`, the product for `matmul`, the value for `copy`; nothing for `empty`; the optimizer's
    steps for `step` and `epoch`."""
    match problem.call:
        case "elementwise":
            return inputs[0] + np.float32(problem.count)
        case "matmul":
            return (inputs[0].astype(np.int64) @ inputs[1].astype(np.int64)).astype(np.float32)
        case "copy" | "predict":  # the model that predicts has weight 1 and shift 0
            return inputs[0]
        case "step" | "epoch" | "train_on_batch":
            return np.array([problem.count], np.int64)
        case _:
            return np.empty(0)


def check_stream(problem: Stream, inputs: tuple[np.ndarray, ...], output: np.ndarray) -> Check:
    """Equality where every element is rounded once; a bound where means and roots are in it; a rule where chance is."""
    if problem.operation == "dropout":
        return Check("each value dropped or scaled", passes.dropped(inputs[0], output))
    if problem.operation == "maxpool_grad":
        return Check("each window's gradient on its largest", passes.pooled_back(problem, inputs[0], inputs[1], output))
    answer, bound = stream_answer(problem, inputs), passes.BOUNDS.get(problem.operation)
    if bound is None:
        return equal(answer, output)
    if output.shape != answer.shape or output.dtype != inputs[0].dtype or not np.isfinite(output).all():
        return Check("bound", False, float("inf"))
    error = float(np.max(np.abs(output.astype(np.float64) - answer)))
    return Check("bound", error <= bound, error)


def stream_answer(problem: Stream, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """The output array of one element-wise pass (a one-element sum for `read`); the scalar is 3."""
    x = inputs[0]
    if problem.operation in passes.ANSWERS:
        return passes.ANSWERS[problem.operation](problem, *inputs)
    match problem.operation:
        case "copy":
            return x.copy()
        case "scale":
            return x * x.dtype.type(3)
        case "add":
            return x + inputs[1]
        case "triad":
            return x + x.dtype.type(3) * inputs[1]
        case _:
            return np.array([x.astype(np.float64).sum()]).astype(x.dtype)


def operands(problem: Matmul, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A (m x k) and B (k x n) as views of the stored inputs."""
    a, b = inputs
    return (a.T if problem.layout == "tn" else a), (b.T if problem.layout == "nt" else b)


def _check_matmul(problem: Matmul, inputs: tuple[np.ndarray, ...], output: np.ndarray) -> Check:
    """Whole answer in integers while small; above that Freivalds' test and the edge tiles, or, when the output was
    rounded to 16 bits, the whole float64 product (itself tested by Freivalds) rounded once."""
    a, b = operands(problem, inputs)
    out = numpy_dtype(problem.out)
    if output.shape != (problem.m, problem.n) or output.dtype != out:
        return Check("exact", False, float("inf"))
    if problem.m * problem.n * problem.k <= _FULL_PRODUCTS:
        return equal(np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.float32).astype(out), output)
    if out.itemsize == 2:
        answer = _product(
            problem.m, problem.n, problem.k, a.astype(np.float32).tobytes(), b.astype(np.float32).tobytes()
        )
        return equal(answer.astype(out), output)
    if not np.isfinite(output).all() or not _freivalds(a, b, output):
        return Check("exact", False, float("inf"))
    rows = np.unique(np.r_[0 : min(_EDGE, problem.m), max(0, problem.m - _EDGE) : problem.m])
    columns = np.unique(np.r_[0 : min(_EDGE, problem.n), max(0, problem.n - _EDGE) : problem.n])
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
