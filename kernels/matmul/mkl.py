"""Matmul through Intel's MKL, called by ctypes: the package `mkl` brings the library and no Python module."""

import ctypes
import functools
import importlib.metadata

import numpy as np

from kernels.problems import Matmul
from kernels.problems.arrays import empty
from kernels.registry import TimedCall, kernel, timed_call

#: CBLAS_LAYOUT, from cblas.h.
_ROW_MAJOR = 101
#: CBLAS_TRANSPOSE, from cblas.h.
_NO_TRANSPOSE = 111
_TRANSPOSE = 112
#: Arithmetic -> MKL's function, and the type of the factors by which it multiplies A B and C.
_GEMMS = {"float32": ("cblas_sgemm", ctypes.c_float), "float64": ("cblas_dgemm", ctypes.c_double)}


@functools.cache
def library() -> ctypes.CDLL:
    """libmkl_rt of the installed package. It picks its kernels for this CPU, and the OpenMP that is loaded already.

    Raises: ImportError named mkl when it is not there or does not load.
    """
    try:
        files = importlib.metadata.files("mkl") or ()
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError("the package mkl is not installed", name="mkl") from error
    path = next((f.locate() for f in files if f.name.startswith(("libmkl_rt", "mkl_rt"))), None)
    if path is None:
        raise ImportError("the package mkl has no libmkl_rt", name="mkl")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"libmkl_rt does not load: {error}", name="mkl") from error


library()  # now, so that a missing package is told as one


@kernel
def gemm(problem: Matmul, a: np.ndarray, b: np.ndarray) -> TimedCall:
    """cblas_sgemm or cblas_dgemm of MKL into a result that is already there; layouts are its own flags, nothing is copied.

    a: m x k, b: k x n, as problem.layout stores them.
    """
    if problem.math not in _GEMMS or problem.out != problem.dtype:
        raise ValueError(f"MKL's gemm is called here for float32 and float64, not {problem.math}")
    name, scalar = _GEMMS[problem.math]
    call = getattr(library(), name)
    options = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
    sizes = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
    matrix = (ctypes.c_void_p, ctypes.c_int)  # its address, and the items from row to row
    call.argtypes = (*options, *sizes, scalar, *matrix, *matrix, scalar, *matrix)
    call.restype = None
    c = empty((problem.m, problem.n), a.dtype, place=5)
    arguments = (
        _ROW_MAJOR,
        _TRANSPOSE if problem.layout == "tn" else _NO_TRANSPOSE,
        _TRANSPOSE if problem.layout == "nt" else _NO_TRANSPOSE,
        problem.m,
        problem.n,
        problem.k,
        1.0,
        a.ctypes.data,
        a.shape[1],
        b.ctypes.data,
        b.shape[1],
        0.0,
        c.ctypes.data,
        c.shape[1],
    )
    return timed_call(call, *arguments, result=c, keep=(a, b))
