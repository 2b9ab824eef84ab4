"""Types by name, and arrays of them: their placement in memory and their values."""

import itertools
from collections.abc import Callable, Collection

import ml_dtypes
import msgspec
import numpy as np


class Dtype(msgspec.Struct, frozen=True, kw_only=True):
    """A type of items."""

    #: Bytes of an item.
    nbytes: int
    #: Its cudaDataType_t (library_types.h of the CUDA toolkit).
    cuda: int
    #: The arithmetic that its items may be multiplied in, the default first: names of ARITHMETIC.
    maths: tuple[str, ...]
    #: Its name in cuDNN, where convolutions in it are measured; else "".
    cudnn: str = ""
    #: Whether sums over GPUs are measured in it.
    summed: bool = False
    #: Its class where NumPy does not know the name.
    numpy: type | None = None


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True):
    """An arithmetic of products."""

    #: Its cublasComputeType_t (cublas_api.h of the CUDA toolkit).
    cublas: int
    #: Its name in PTX.
    ptx: str
    #: Whether there is a loop of vector FMAs in it.
    fma: bool = False
    #: Whether GPUs do it on tensor cores as well as elsewhere.
    tensor: bool = True
    #: What a CPU that hardly has it computes in; "" if every CPU has it.
    on_cpu: str = ""
    #: (dtype, arithmetic) that may stand for it where it was not measured, the nearest first.
    instead: tuple[tuple[str, str], ...] = ()


DTYPES = {
    "float64": Dtype(nbytes=8, cuda=1, maths=("float64",), cudnn="DOUBLE"),
    "float32": Dtype(nbytes=4, cuda=0, maths=("float32", "tf32"), cudnn="FLOAT", summed=True),
    "float16": Dtype(nbytes=2, cuda=2, maths=("float16",), cudnn="HALF", summed=True),
    "bfloat16": Dtype(nbytes=2, cuda=14, maths=("bfloat16",), cudnn="BFLOAT16", summed=True, numpy=ml_dtypes.bfloat16),
    "float8_e4m3": Dtype(nbytes=1, cuda=28, maths=("float8_e4m3",), numpy=ml_dtypes.float8_e4m3fn),
}
_FLOAT32 = ("float32", "float32")
_TF32 = ("float32", "tf32")
_FLOAT16 = ("float16", "float16")
_BFLOAT16 = ("bfloat16", "bfloat16")
ARITHMETIC = {
    "float64": Arithmetic(cublas=70, ptx="f64", fma=True),
    "float32": Arithmetic(cublas=68, ptx="f32", fma=True, tensor=False),
    "tf32": Arithmetic(cublas=77, ptx="tf32", on_cpu="float32", instead=(_FLOAT32,)),
    "float16": Arithmetic(cublas=68, ptx="f16", on_cpu="float32", instead=(_BFLOAT16, _TF32, _FLOAT32)),
    "bfloat16": Arithmetic(cublas=68, ptx="bf16", on_cpu="float32", instead=(_FLOAT16, _TF32, _FLOAT32)),
    "float8_e4m3": Arithmetic(cublas=68, ptx="e4m3", tensor=False),
}
HALVES = tuple(sorted(name for name, dtype in DTYPES.items() if dtype.nbytes == 2))
ITEM_BYTES = {name: dtype.nbytes for name, dtype in DTYPES.items()}
MATHS = {name: dtype.maths for name, dtype in DTYPES.items()}
WHOLE_NUMBERS = (-2, -1, 1, 2)
#: Random values are drawn once up to this many and then repeated: enough to look random to any cache and multiplier,
#: and an odd length, so that rows of a matrix do not repeat each other.
_MOST_DRAWN = (1 << 22) + 3
_PAGE = 4096  # bytes
Make = Callable[[tuple[int, ...], str, int, bool], np.ndarray]  # as random_array, which is the usual one


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a name in ITEM_BYTES (bfloat16 and float8 come from ml_dtypes)."""
    if name in DTYPES and DTYPES[name].numpy is not None:
        return np.dtype(DTYPES[name].numpy)
    return np.dtype(name)


class UnknownName(ValueError):
    """A word that is none of those that are known of its kind."""

    def __init__(self, kind: str, word: str, known: Collection[str]):
        self.kind = kind
        self.word = word
        self.known = list(known)
        super().__init__(f"unknown {kind} {word!r}; known: {', '.join(known)}")


def precision(name: str) -> tuple[str, str]:
    """(dtype of the data, arithmetic) of a precision as users name it: `tf32` is float32 data multiplied in TF32.

    Raises: ValueError for an unknown name.
    """
    for dtype, maths in MATHS.items():
        if name in maths:
            return dtype, name
    raise UnknownName("dtype", name, list(itertools.chain.from_iterable(MATHS.values())))


def empty(shape: tuple[int, ...], dtype: np.dtype, place: int = 0) -> np.ndarray:
    """An uninitialized array that begins on a cache line, `place` eighths into a page of memory.

    Where malloc happens to put an array moves times by 10 % and more from process to process: vectors that straddle lines,
    and loads that wait for stores at the same offset in another page. So every array has its fixed place.
    """
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 2 * _PAGE, np.uint8)
    start = -raw.ctypes.data % _PAGE + place % 8 * (_PAGE // 8)
    return raw[start : start + size].view(dtype).reshape(shape)


def random_array(shape: tuple[int, ...], dtype: str, seed: int, whole_numbers: bool) -> np.ndarray:
    """An array of N(0,1) values, or with `whole_numbers` of -2, -1, 1, 2, whose float32 sums are exact in any order. Of a
    large array a few MiB are drawn and repeated.

    Never zeros: they draw less power and run up to 15 % faster than data does.
    """
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    drawn = min(size, _MOST_DRAWN)
    if whole_numbers:
        values = rng.choice(np.array(WHOLE_NUMBERS, dtype=np.float32), drawn)
    else:
        values = rng.standard_normal(drawn, dtype=np.float64 if dtype == "float64" else np.float32)
    array = empty(shape, numpy_dtype(dtype), seed)
    flat = array.reshape(-1)
    for start in range(0, size, drawn):
        flat[start : start + drawn] = values[: size - start]
    return array


def random_bytes(count: int, seed: int) -> np.ndarray:
    """Random bytes, drawn once up to a few MiB and repeated; they begin on a page."""
    drawn = np.random.default_rng(seed).integers(0, 256, min(count, _MOST_DRAWN), np.uint8)
    array = empty((count,), np.dtype(np.uint8))
    for start in range(0, count, drawn.size):
        array[start : start + drawn.size] = drawn[: count - start]
    return array
