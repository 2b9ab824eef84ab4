"""Matmul through cuBLASLt: every algorithm that its heuristic offers is timed once, and the fastest is kept."""

import functools

import cupy
import numpy as np
import nvmath  # noqa: F401  the library whose bindings follow: its absence is told apart from a broken CUDA
from nvmath.bindings import cublasLt as library

from kernels.cuda import autotuner
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, DTYPES
from kernels.registry import into, kernel

_TRANSPOSE = 1
_OFFERED = 16
WORKSPACE_BYTES = 64 << 20
_ROUNDS, _CALLS = 3, 5


@functools.cache
def _handle() -> int:
    return library.create()


@functools.cache
def _workspace() -> cupy.ndarray:
    return cupy.empty(WORKSPACE_BYTES, np.uint8)


def _set(setter, owner: int, attribute, value, dtype) -> None:
    held = np.array([value], dtype)
    setter(owner, attribute, held.ctypes.data, held.itemsize)


def _offered(problem: Matmul, descriptor: int, layouts: tuple[int, ...]) -> list:
    """The heuristic's algorithms within the workspace, its favorite first.

    Raises: ValueError when it has none.
    """
    preference = library.matmul_preference_create()
    most = library.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
    _set(library.matmul_preference_set_attribute, preference, most, WORKSPACE_BYTES, np.uint64)
    results, count = library.MatmulHeuristicResult(_OFFERED), np.zeros(1, np.int32)
    try:
        library.matmul_algo_get_heuristic(
            _handle(), descriptor, *layouts, preference, _OFFERED, results.ptr, count.ctypes.data
        )
    except library.cuBLASLtError as error:
        raise ValueError(f"cuBLASLt has no algorithm for this: {error}") from error
    finally:
        library.matmul_preference_destroy(preference)
    if not count[0]:
        raise ValueError("cuBLASLt has no algorithm for this")
    return [results[i] for i in range(int(count[0]))]


def _fastest(calls: list, stream) -> int:
    """The index of the call with the least device time, each timed in rounds of a few."""
    least = [float("inf")] * len(calls)
    for _ in range(_ROUNDS):
        for i, call in enumerate(calls):
            call()
            least[i] = min(least[i], autotuner.milliseconds(call, _CALLS, stream))
    return least.index(min(least))


_chosen: dict[Matmul, int] = {}


@kernel(fused=True)
def best(problem: Matmul, a, b, *bias):
    """The fastest of the algorithms that cuBLASLt's heuristic offers, timed here; sums are float32 or wider. Bias and ReLU are
    its own epilogue."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.dtype == "float8_e4m3" and (problem.layout != "nt" or problem.out != "bfloat16"):
        raise ValueError("float8 products are of layout nt, with a bfloat16 result")
    if problem.dtype != "float8_e4m3" and problem.out != problem.dtype:
        raise ValueError("this variant gives C in the operands' dtype")
    scalar = np.float64 if problem.dtype == "float64" else np.float32
    one, zero = np.ones(1, scalar), np.zeros(1, scalar)
    out_type = np.uint16 if problem.out == "bfloat16" else a.dtype
    c = cupy.empty((m, n), out_type)
    # cuBLAS counts columns first: row-major C = A B is its C^T = B^T A^T, so B comes first and nothing is copied.
    data, result = DTYPES[problem.dtype].cuda, DTYPES[problem.out].cuda
    descriptor = library.matmul_desc_create(ARITHMETIC[problem.math].cublas, DTYPES[np.dtype(scalar).name].cuda)
    attributes, tell = library.MatmulDescAttribute, library.matmul_desc_set_attribute
    if problem.layout != "nn":
        which = attributes.TRANSA if problem.layout == "nt" else attributes.TRANSB
        _set(tell, descriptor, which, _TRANSPOSE, np.int32)
    if bias:  # one for each row of C^T
        _set(tell, descriptor, attributes.EPILOGUE, library.Epilogue.RELU_BIAS, np.uint32)
        _set(tell, descriptor, attributes.BIAS_POINTER, bias[0].data.ptr, np.uint64)
    b_layout = library.matrix_layout_create(data, *((k, n, k) if problem.layout == "nt" else (n, k, n)))
    a_layout = library.matrix_layout_create(data, *((m, k, m) if problem.layout == "tn" else (k, m, k)))
    c_layout = library.matrix_layout_create(result, n, m, n)
    stream, workspace = cupy.cuda.get_current_stream(), _workspace()

    def call_of(found):
        algorithm = found["algo"]
        call = functools.partial(
            library.matmul,
            *(_handle(), descriptor, one.ctypes.data, b.data.ptr, b_layout, a.data.ptr, a_layout, zero.ctypes.data),
            *(c.data.ptr, c_layout, c.data.ptr, c_layout, algorithm.ctypes.data),
            *(workspace.data.ptr, WORKSPACE_BYTES, stream.ptr),
        )
        return call, algorithm

    offered = [call_of(found) for found in _offered(problem, descriptor, (b_layout, a_layout, c_layout, c_layout))]
    if problem not in _chosen:
        _chosen[problem] = _fastest([call for call, _ in offered], stream)
    call, algorithm = offered[min(_chosen[problem], len(offered) - 1)]

    # the call holds raw addresses, so their owners are held here
    return into(c, call, keep=(one, zero, a, b, bias, workspace, algorithm))
