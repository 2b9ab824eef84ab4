"""Flags that only the process that timed a row can raise, after its clocks are done; `analysis.checks` explains them."""

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kernels import registry
from kernels.problems import Conv, Matmul
from kernels.reference import operands
from workloads import ROOT
from workloads.harness.bound_rows import Arrays
from workloads.machine import cpu, facts
from workloads.records import Row

# Errors in shares of the root of the summed squared products. float32 sums of k products reach 2^-24 sqrt(k), below 1e-5 for any
# k that fits a memory; TF32's operands of 11 bits give 3e-4 whatever k is, bfloat16's 2e-3.
_MOST_ERROR = {"float32": 2.0**-14, "float64": 2.0**-40}
_MOST_ELEMENTS = 1 << 24  # of a result that is brought to the host for this
_LOOKED_AT = (4, 64)  # rows and columns of it, or positions and channels
_UNFINISHED_S = 20e-6  # less is what a wait for an idle device takes
_LOOKS = 3
_BY_BLAS = ("matmul/numpy/operator", "matmul/numpy/blas", "conv/numpy/im2col")  # what calls NumPy's
_EVERY = 4096  # values of an input that are looked at


def raised(kernel: registry.Kernel, row: Row, prepared, inputs: Arrays, *, call_s: float) -> tuple[str, ...]:
    """The flags of a row that took `call_s` seconds a call, from checks on the call and the inputs that were timed."""
    is_up = {
        "no-wait": prepared.stream is not None
        and unfinished(prepared, _wait_for_all()) > max(_UNFINISHED_S, 0.1 * call_s),
        "constant-inputs": any(constant(x) for x in inputs),
        "few-threads": not row.on_gpu and 0 < taken(kernel.backend) < (row.threads or 0),
        "lesser-kernels": kernel.name in _BY_BLAS and facts.lesser_blas(facts.blas()),
        "blas-variables": (kernel.name in _BY_BLAS or kernel.backend == "mkl") and bool(facts.blas_variables()),
        "oversubscribed": not row.on_gpu and (row.threads or 0) > facts.usable_threads(),
        "slow-governor": not row.on_gpu and slow_governor(),
        "foreign-kernels": foreign(registry.FOLDER),
    }
    if prepared.bound is None and row.problem.products and row.mode == "resident":
        value = prepared.call()
        is_up["ran-on-cpu"] = row.on_gpu and "cpu" in str(getattr(value, "device", "")).lower()
        is_up["low-precision"] = rough(row.problem, inputs, lambda: prepared.result(value))
    return tuple(flag for flag, up in is_up.items() if up)


def _wait_for_all() -> Callable[[], None]:
    import cupy

    return cupy.cuda.runtime.deviceSynchronize


def unfinished(prepared, wait_for_all: Callable[[], None], now: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that the device still worked after a call was waited for as the clocks wait; the least of a few."""
    least = math.inf
    for _ in range(_LOOKS):
        if prepared.before:
            prepared.before()
        prepared.call()
        begin = now()
        wait_for_all()
        least = min(least, now() - begin)
    return least


def constant(x: np.ndarray) -> bool:
    """Whether an array of several values holds one value alone, by a look at some thousands of them."""
    flat = x.reshape(-1)[:: max(1, x.size // _EVERY)]
    return flat.size > 2 and bool((flat == flat[0]).all())


def taken(backend: str) -> int:
    """Threads that the backend's library uses now; 0 where it does not tell."""
    if backend == "numba":
        import numba

        return int(numba.get_num_threads())
    return int(facts.blas().get("blas_threads", 0)) if backend == "numpy" else 0


@functools.cache
def slow_governor() -> bool:
    return bool(cpu.governors()[1])


def foreign(folder: Path) -> bool:
    """Whether the kernels come from another checkout or package than this process's workloads."""
    return folder.resolve().parent != ROOT


def rough(problem, inputs: Arrays, result: Callable[[], np.ndarray]) -> bool:
    """Whether a product or convolution of N(0,1) values has far fewer correct bits than its arithmetic. Answers are checked on
    whole numbers, which do not show that. Of a large result only some values are checked, with an epilogue none."""
    most = _MOST_ERROR.get(problem.math)
    size = math.prod(getattr(problem, "out_shape", ()))
    if most is None or size > _MOST_ELEMENTS or getattr(problem, "epilogue", None):
        return False
    if not _can_be_sampled(problem):
        return False
    left, right, pick = _sampled(problem, inputs)
    exact = left @ right
    scale = np.sqrt((left * left) @ (right * right))
    scale = np.where(scale > 0, scale, 1.0)
    computed = pick(np.asarray(result())).astype(np.float64)
    return bool(np.median(np.abs(computed - exact) / scale) > most)


#: Two matrices in float64 whose product is part of the result, and what picks that part out of the result.
Sampled = tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]


def _can_be_sampled(problem) -> bool:
    """Whether a problem is a product or a plain fprop."""
    if isinstance(problem, Conv):
        return problem.direction == "fprop" and problem.groups == 1
    return isinstance(problem, Matmul)


def _sampled(problem: Matmul | Conv, inputs: Arrays) -> Sampled:
    """Some values of the result, each a product of a row and a column."""
    return _conv(problem, inputs) if isinstance(problem, Conv) else _matmul(problem, inputs)


def _matmul(problem: Matmul, inputs: Arrays) -> Sampled:
    """Some rows of A, some columns of B in float64, and what picks their products out of C; of many the first product's."""
    a, b = operands(problem, inputs)
    first = 0 if problem.count > 1 else ...
    rows = _spread(problem.m, _LOOKED_AT[0])
    columns = _spread(problem.n, _LOOKED_AT[1])
    left = a[first][rows].astype(np.float64)
    right = b[first][:, columns].astype(np.float64)
    return left, right, lambda c: c[first][np.ix_(rows, columns)]


def _spread(size: int, most: int) -> np.ndarray:
    """At most so many of the indices below a size, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, size - 1, most).astype(int))


def _conv(problem: Conv, inputs: Arrays) -> Sampled:
    """Some patches of the images of a plain fprop and some filters in float64, and what picks their products."""
    x, w = inputs
    if problem.layout == "NCHW":
        x, w = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    filters = w.reshape(-1, problem.c_out)[:, : _LOOKED_AT[1]].astype(np.float64)
    outputs = np.random.default_rng(3).integers(0, (problem.n, problem.p, problem.q), (4 * _LOOKED_AT[0], 3))
    picks = list(map(tuple, outputs.tolist()))

    def patch(image: int, p: int, q: int) -> np.ndarray:
        padded = np.pad(x[image], (*problem.pads, (0, 0)))
        top = p * problem.stride
        left = q * problem.stride
        return padded[top : top + problem.r, left : left + problem.s].ravel()

    def pick(out: np.ndarray) -> np.ndarray:
        out = out.transpose(0, 2, 3, 1) if problem.layout == "NCHW" else out
        return np.stack([out[at][: _LOOKED_AT[1]] for at in picks])

    return np.array([patch(*at) for at in picks], np.float64), filters, pick
