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
from workloads.harness.kept import Arrays
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


def raised(kernel: registry.Kernel, row: Row, prepared, inputs: Arrays, call_s: float) -> tuple[str, ...]:
    """The flags of a row that took `call_s` seconds a call, from checks on the call and the inputs that were timed."""
    seen = {
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
        seen["ran-on-cpu"] = row.on_gpu and "cpu" in str(getattr(value, "device", "")).lower()
        seen["low-precision"] = rough(row.problem, inputs, lambda: prepared.result(value))
    return tuple(flag for flag, up in seen.items() if up)


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
    sampled = _matmul if isinstance(problem, Matmul) else _conv if isinstance(problem, Conv) else None
    size = math.prod(getattr(problem, "out_shape", ()))
    if most is None or sampled is None or size > _MOST_ELEMENTS or getattr(problem, "epilogue", None):
        return False
    found = sampled(problem, inputs)
    if found is None:
        return False
    left, right, pick = found
    exact, scale = left @ right, np.sqrt((left * left) @ (right * right))
    scale = np.where(scale > 0, scale, 1.0)
    return bool(np.median(np.abs(pick(np.asarray(result())).astype(np.float64) - exact) / scale) > most)


Sampled = tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]


def _matmul(problem: Matmul, inputs: Arrays) -> Sampled:
    """Some rows of A, some columns of B in float64, and what picks their products out of C; of many the first product's."""
    a, b = operands(problem, inputs)
    first = 0 if problem.count > 1 else ...
    a, b = a[first], b[first]
    rows, columns = (
        np.unique(np.linspace(0, size - 1, most).astype(int))
        for size, most in zip((problem.m, problem.n), _LOOKED_AT, strict=True)
    )
    return a[rows].astype(np.float64), b[:, columns].astype(np.float64), lambda c: c[first][np.ix_(rows, columns)]


def _conv(problem: Conv, inputs: Arrays) -> Sampled | None:
    """Some patches of the images and some filters in float64; None for what is no plain fprop."""
    if problem.direction != "fprop" or problem.groups != 1:
        return None
    x, w = inputs
    if problem.layout == "NCHW":
        x, w = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    filters = w.reshape(-1, problem.c_out)[:, : _LOOKED_AT[1]].astype(np.float64)
    outputs = np.random.default_rng(3).integers(0, (problem.n, problem.p, problem.q), (4 * _LOOKED_AT[0], 3))
    picks = list(map(tuple, outputs.tolist()))

    def patch(image: int, p: int, q: int) -> np.ndarray:
        padded, y, z = np.pad(x[image], (*problem.pads, (0, 0))), p * problem.stride, q * problem.stride
        return padded[y : y + problem.r, z : z + problem.s].ravel()

    def pick(out: np.ndarray) -> np.ndarray:
        out = out.transpose(0, 2, 3, 1) if problem.layout == "NCHW" else out
        return np.stack([out[at][: _LOOKED_AT[1]] for at in picks])

    return np.array([patch(*at) for at in picks], np.float64), filters, pick
