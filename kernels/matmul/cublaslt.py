"""Matmul through cuBLASLt: every algorithm that its heuristic offers is timed once, and the fastest is kept."""

import functools
from collections.abc import Callable, Sequence

import cupy
import numpy as np
import nvmath  # noqa: F401  the library whose bindings follow: its absence is told apart from a broken CUDA
from nvmath.bindings import cublasLt as library

from kernels.cuda import autotuner
from kernels.problems import Matmul
from kernels.problems.arrays import ARITHMETIC, DTYPES
from kernels.registry import TimedCall, kernel, timed_call

#: cublasOperation_t: the operand is transposed. From cublas_api.h.
_TRANSPOSE = 1
#: Algorithms that the heuristic is asked for.
_MOST_ALGORITHMS = 16
#: Bytes of device memory that an algorithm may use.
WORKSPACE_BYTES = 64 << 20
#: Rounds in which the algorithms are timed.
_ROUNDS = 3
#: Calls of an algorithm that a round times together.
_CALLS = 5

#: Problem -> the place of its fastest algorithm in the heuristic's list.
_chosen: dict[Matmul, int] = {}


@functools.cache
def _handle() -> int:
    return library.create()


@functools.cache
def _workspace() -> cupy.ndarray:
    return cupy.empty(WORKSPACE_BYTES, np.uint8)


def _set(setter: Callable, owner: int, attribute: int, *, value: int, dtype: str) -> None:
    """Sets an attribute of a descriptor or a preference of cuBLASLt, which reads the value from memory.

    setter: cuBLASLt's function for that kind of owner. owner: its handle. dtype: NumPy's type of the value.
    """
    memory = np.array([value], dtype)
    setter(owner, attribute, memory.ctypes.data, memory.itemsize)


def _scalar(problem: Matmul) -> str:
    """The type of the sums, and of the factors by which cuBLASLt multiplies A B and C."""
    return "float64" if problem.dtype == "float64" else "float32"


def _descriptor(problem: Matmul, bias: Sequence[cupy.ndarray]) -> int:
    """cuBLASLt's description of C^T = B^T A^T: its arithmetic, which operand is transposed, and the epilogue.

    bias: empty, or one array: a number for each column of C.
    """
    descriptor = library.matmul_desc_create(ARITHMETIC[problem.math].cublas, DTYPES[_scalar(problem)].cuda)
    set_attribute = functools.partial(_set, library.matmul_desc_set_attribute, descriptor)
    attributes = library.MatmulDescAttribute
    if problem.layout == "nt":
        set_attribute(attributes.TRANSA, value=_TRANSPOSE, dtype="int32")
    if problem.layout == "tn":
        set_attribute(attributes.TRANSB, value=_TRANSPOSE, dtype="int32")
    if bias:  # one for each row of C^T
        set_attribute(attributes.EPILOGUE, value=library.Epilogue.RELU_BIAS, dtype="uint32")
        set_attribute(attributes.BIAS_POINTER, value=bias[0].data.ptr, dtype="uint64")
    return descriptor


def _matrix(dtype: str, array: cupy.ndarray) -> int:
    """cuBLASLt's description of a row-major matrix of the type `dtype`, a name of DTYPES. cuBLASLt counts columns first, so
    it is described as the transpose."""
    rows, columns = array.shape
    return library.matrix_layout_create(DTYPES[dtype].cuda, columns, rows, columns)


def _algorithms(descriptor: int, layouts: tuple[int, ...]) -> list[np.ndarray]:
    """The heuristic's algorithms within the workspace, its favorite first.

    descriptor: as _descriptor makes it. layouts: descriptions of the first and the second factor, of C that is read and of C
    that is written.
    Raises: ValueError when it has none.
    """
    preference = library.matmul_preference_create()
    most_bytes = library.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
    setter = library.matmul_preference_set_attribute
    _set(setter, preference, most_bytes, value=WORKSPACE_BYTES, dtype="uint64")
    results = library.MatmulHeuristicResult(_MOST_ALGORITHMS)
    count = np.zeros(1, np.int32)
    wanted = (preference, _MOST_ALGORITHMS)
    try:
        library.matmul_algo_get_heuristic(_handle(), descriptor, *layouts, *wanted, results.ptr, count.ctypes.data)
    except library.cuBLASLtError as error:
        raise ValueError(f"cuBLASLt has no algorithm for this: {error}") from error
    finally:
        library.matmul_preference_destroy(preference)
    if not count[0]:
        raise ValueError("cuBLASLt has no algorithm for this")
    return [results[i]["algo"] for i in range(int(count[0]))]


def _fastest(calls: list[Callable], stream: cupy.cuda.Stream) -> int:
    """The index of the call with the least device time, each timed in several rounds."""
    least = [float("inf")] * len(calls)
    for _ in range(_ROUNDS):
        for i, call in enumerate(calls):
            call()
            least[i] = min(least[i], autotuner.milliseconds(call, _CALLS, stream))
    return least.index(min(least))


def _refuse(problem: Matmul) -> None:
    """Raises: ValueError for types and layouts that this variant does not multiply."""
    if problem.dtype == "float8_e4m3" and (problem.layout != "nt" or problem.out != "bfloat16"):
        raise ValueError("float8 products are of layout nt, with a bfloat16 result")
    if problem.dtype != "float8_e4m3" and problem.out != problem.dtype:
        raise ValueError("this variant gives C in the operands' dtype")


@kernel(fused=True)
def best(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray, *bias: cupy.ndarray) -> TimedCall:
    """The fastest of the algorithms that cuBLASLt's heuristic offers, timed here; sums are float32 or wider. Bias and ReLU
    are
    its own epilogue.

    a: m x k, b: k x n (as problem.layout stores them), bias: n numbers or none; all on the GPU.
    """
    _refuse(problem)
    one = np.ones(1, _scalar(problem))
    zero = np.zeros(1, _scalar(problem))
    c = cupy.empty((problem.m, problem.n), np.uint16 if problem.out == "bfloat16" else a.dtype)
    # cuBLAS counts columns first: row-major C = A B is its C^T = B^T A^T, so B comes first and nothing is copied.
    descriptor = _descriptor(problem, bias)
    b_layout = _matrix(problem.dtype, b)
    a_layout = _matrix(problem.dtype, a)
    c_layout = _matrix(problem.out, c)
    factors = (one.ctypes.data, b.data.ptr, b_layout, a.data.ptr, a_layout)
    sums = (zero.ctypes.data, c.data.ptr, c_layout, c.data.ptr, c_layout)
    stream = cupy.cuda.get_current_stream()
    workspace = _workspace()
    room = (workspace.data.ptr, WORKSPACE_BYTES, stream.ptr)

    def call_by(algorithm: np.ndarray) -> Callable[[], None]:
        arguments = (*factors, *sums, algorithm.ctypes.data, *room)
        return functools.partial(library.matmul, _handle(), descriptor, *arguments)

    algorithms = _algorithms(descriptor, (b_layout, a_layout, c_layout, c_layout))
    calls = [call_by(algorithm) for algorithm in algorithms]
    if problem not in _chosen:
        _chosen[problem] = _fastest(calls, stream)
    choice = min(_chosen[problem], len(calls) - 1)
    # The call has raw addresses alone: this keeps their arrays alive.
    return timed_call(calls[choice], result=c, keep=(one, zero, a, b, bias, workspace, algorithms[choice]))
