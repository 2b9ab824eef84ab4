"""Flags of doubtful rows that only the process which timed a row can raise, after it was timed; `analysis.checks` explains
them."""

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kernels import registry
from kernels.problems import Conv, Matmul, Problem
from kernels.reference import operands
from workloads import ROOT
from workloads.harness.bound_rows import Arrays
from workloads.harness.copy_modes import Prepared
from workloads.machine import cpu, facts
from workloads.records import Row

# Errors in shares of the root of the summed squared products. float32 sums of k products reach 2^-24 sqrt(k), below 1e-5 for any
# k that fits a memory; TF32's operands of 11 bits give 3e-4 whatever k is, bfloat16's 2e-3.
_MOST_ERROR = {"float32": 2.0**-14, "float64": 2.0**-40}
_MOST_ELEMENTS = 1 << 24  # of a result that is brought to the host for this
_SAMPLED_ROWS = 4  # of the result that are compared; of a convolution four times as many positions
_SAMPLED_COLUMNS = 64  # of the result that are compared; of a convolution channels
_UNFINISHED_S = 20e-6  # less is what a wait for an idle device takes
_LOOKS = 3
_BY_BLAS = ("matmul/numpy/operator", "matmul/numpy/blas", "conv/numpy/im2col")  # what calls NumPy's
_LOOKED_AT = 4096  # values of an input


def raised(kernel: registry.Kernel, row: Row, prepared: Prepared, inputs: Arrays, *, call_s: float) -> tuple[str, ...]:
    """The flags of a row that was just timed, from checks on this process, on the call and on its inputs.

    prepared: the call that was timed. inputs: its data on the host. call_s: seconds that the call took.
    """
    is_up = {
        "no-wait": prepared.stream is not None
        and unfinished(prepared, _wait_for_all()) > max(_UNFINISHED_S, 0.1 * call_s),
        "constant-inputs": any(constant(x) for x in inputs),
        "few-threads": not row.on_gpu and 0 < library_threads(kernel.backend) < (row.threads or 0),
        "lesser-kernels": kernel.name in _BY_BLAS and facts.lesser_blas(facts.blas()),
        "blas-variables": (kernel.name in _BY_BLAS or kernel.backend == "mkl") and bool(facts.blas_variables()),
        "oversubscribed": not row.on_gpu and (row.threads or 0) > facts.usable_threads(),
        "slow-governor": not row.on_gpu and slow_governor(),
        "foreign-kernels": foreign(registry.FOLDER),
    }
    is_exact = prepared.bound is None  # on whole numbers; other kernels may differ by a bound
    is_product = row.problem.products  # or a convolution: sums of products
    if is_exact and is_product and row.mode == "resident":
        value = prepared.call()  # an array of the library that computes
        is_up["ran-on-cpu"] = row.on_gpu and "cpu" in str(getattr(value, "device", "")).lower()
        is_up["low-precision"] = rough(row.problem, inputs, lambda: prepared.result(value))
    return tuple(flag for flag, up in is_up.items() if up)


def _wait_for_all() -> Callable[[], None]:
    """The function that waits for all work on the current GPU."""
    import cupy

    return cupy.cuda.runtime.deviceSynchronize


def unfinished(
    prepared: Prepared, wait_for_all: Callable[[], None], now: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds that the GPU still worked after a call that was waited for as when it is timed; the shortest of a few calls.

    wait_for_all: waits until the GPU has nothing left to do. now: a clock in seconds.
    """
    shortest_s = math.inf
    for _ in range(_LOOKS):
        if prepared.before:
            prepared.before()
        prepared.call()
        begin = now()
        wait_for_all()
        shortest_s = min(shortest_s, now() - begin)
    return shortest_s


def constant(x: np.ndarray) -> bool:
    """Whether all values of an array are equal, by a look at some thousands of them; False for arrays of one or two."""
    step = max(1, x.size // _LOOKED_AT)
    some = x.reshape(-1)[::step]
    return some.size > 2 and bool((some == some[0]).all())


def library_threads(backend: str) -> int:
    """Number of threads that the library of a backend (numba, numpy) uses now; 0 where it is not known."""
    if backend == "numba":
        import numba

        return int(numba.get_num_threads())
    return int(facts.blas().get("blas_threads", 0)) if backend == "numpy" else 0


@functools.cache
def slow_governor() -> bool:
    """Whether a CPU's frequency governor lets the clock lag behind the work."""
    return bool(cpu.governors().slow)


def foreign(folder: Path) -> bool:
    """Whether the folder of the kernels belongs to another checkout or package than this process's code."""
    return folder.resolve().parent != ROOT


def rough(problem: Problem, inputs: Arrays, result: Callable[[], np.ndarray]) -> bool:
    """Whether a product or convolution of N(0,1) values has far fewer correct bits than its arithmetic should give.

    The check of answers does not show that, as it takes whole numbers, which a lower precision has exactly. Some values of the
    result are computed again in float64. False for what is not compared: results above _MOST_ELEMENTS, other operations,
    gradients, and those with an epilogue.

    inputs: on the host. result: gives the computed result as an array on the host.
    """
    most_error = _MOST_ERROR.get(problem.math)
    elements = math.prod(getattr(problem, "out_shape", ()))
    if most_error is None or elements > _MOST_ELEMENTS or getattr(problem, "epilogue", None):
        return False
    if isinstance(problem, Matmul):
        sample: _MatmulSample | _ConvSample = _MatmulSample(problem, inputs)
    elif isinstance(problem, Conv) and problem.direction == "fprop" and problem.groups == 1:
        sample = _ConvSample(problem, inputs)
    else:
        return False
    exact = sample.left @ sample.right
    scale = np.sqrt((sample.left * sample.left) @ (sample.right * sample.right))
    scale = np.where(scale > 0, scale, 1.0)
    computed = sample.part_of(np.asarray(result())).astype(np.float64)
    return bool(np.median(np.abs(computed - exact) / scale) > most_error)


class _MatmulSample:
    """Some rows and columns of a product A B = C: `left @ right` is the part of C that `part_of` picks. Of several products in
    one call it is of the first."""

    def __init__(self, problem: Matmul, inputs: Arrays):
        a, b = operands(problem, inputs)
        self._product = 0 if problem.count > 1 else ...  # index of the first product; ... where C is one matrix
        self._rows = _spread_indices(problem.m, _SAMPLED_ROWS)
        self._columns = _spread_indices(problem.n, _SAMPLED_COLUMNS)
        self.left = a[self._product][self._rows].astype(np.float64)
        self.right = b[self._product][:, self._columns].astype(np.float64)

    def part_of(self, c: np.ndarray) -> np.ndarray:
        """The chosen rows and columns of a result."""
        return c[self._product][np.ix_(self._rows, self._columns)]


def _spread_indices(size: int, most: int) -> np.ndarray:
    """At most `most` of the indices 0 to size - 1, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, size - 1, most).astype(int))


class _ConvSample:
    """Some output positions and channels of a convolution: `left @ right`, patches of the images by filters, is the part of the
    output that `part_of` picks."""

    def __init__(self, problem: Conv, inputs: Arrays):
        images, filters = inputs
        self._is_nchw = problem.layout == "NCHW"
        if self._is_nchw:
            images = images.transpose(0, 2, 3, 1)
            filters = filters.transpose(2, 3, 1, 0)
        dice = np.random.default_rng(3)
        #: (image, row, column) of outputs.
        self._positions = dice.integers(0, (problem.n, problem.p, problem.q), (4 * _SAMPLED_ROWS, 3)).tolist()
        patches = [_patch(problem, images[image], row, column) for image, row, column in self._positions]
        self.left = np.array(patches, np.float64)
        self.right = filters.reshape(-1, problem.c_out)[:, :_SAMPLED_COLUMNS].astype(np.float64)

    def part_of(self, output: np.ndarray) -> np.ndarray:
        """The chosen positions and channels of a result."""
        if self._is_nchw:
            output = output.transpose(0, 2, 3, 1)
        return np.stack([output[image, row, column, :_SAMPLED_COLUMNS] for image, row, column in self._positions])


def _patch(problem: Conv, image: np.ndarray, row: int, column: int) -> np.ndarray:
    """The values of an image (height, width, channels) that a filter covers for the output at this row and column, in one line;
    zeros where the filter reaches over the edge."""
    padded = np.pad(image, (*problem.pads, (0, 0)))
    top = row * problem.stride
    left = column * problem.stride
    return padded[top : top + problem.r, left : left + problem.s].ravel()
