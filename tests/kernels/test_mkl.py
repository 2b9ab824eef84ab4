"""MKL by ctypes: the arguments it gets, held against a stand-in and against MKL itself where it is installed; what is said
where it is not; and that its threads are set."""

import ctypes
import importlib
import importlib.metadata
import pathlib
import sys
import types

import numpy as np
import pytest

from kernels import reference, registry
from kernels.problems import Matmul
from workloads.harness import one_row
from workloads.records import Row, Settings

MODULE = "kernels.matmul.mkl"
SHAPES = [(1, 1, 1), (17, 33, 65), (127, 1, 31), (1, 64, 3), (70, 300, 1)]


def matrix(address: int, rows: int, columns: int, leading: int, kind) -> np.ndarray:
    """A row-major matrix at an address, as BLAS sees it: rows `leading` elements apart."""
    assert leading >= columns, "rows that overlap"
    whole = np.ctypeslib.as_array((kind * (leading * (rows - 1) + columns)).from_address(address))
    return np.lib.stride_tricks.as_strided(whole, (rows, columns), (leading * whole.itemsize, whole.itemsize))


def gemm(kind):
    """What cblas.h says of cblas_?gemm, for row-major matrices."""

    def call(order, a_way, b_way, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        assert order == 101 and {a_way, b_way} <= {111, 112}
        left = matrix(a, m, k, lda, kind) if a_way == 111 else matrix(a, k, m, lda, kind).T
        right = matrix(b, k, n, ldb, kind) if b_way == 111 else matrix(b, n, k, ldb, kind).T
        out = matrix(c, m, n, ldc, kind)
        out[...] = alpha * (left @ right) + (beta * out if beta else 0)

    return call


def stand_in(path):
    return types.SimpleNamespace(cblas_sgemm=gemm(ctypes.c_float), cblas_dgemm=gemm(ctypes.c_double))


def installed() -> bool:
    try:
        return bool(importlib.metadata.files("mkl"))
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.fixture
def fresh(monkeypatch):
    """fresh(files, load): what the registry finds of MKL when its package has those files and `load` loads a library."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setitem(sys.modules, MODULE, types.ModuleType(MODULE))
    del sys.modules[MODULE]

    def found(files=None, load=None):
        if files is not None:
            monkeypatch.setattr(importlib.metadata, "files", files)
        if load:
            monkeypatch.setattr(ctypes, "CDLL", load)
        return registry.load("matmul", "mkl")

    return found


def package(*names: str):
    return lambda name: [types.SimpleNamespace(name=n, locate=lambda n=n: pathlib.Path("/nowhere") / n) for n in names]


@pytest.fixture(params=["stand-in", *(["MKL"] if installed() else [])])
def kernel(request, fresh):
    made = fresh(package("mkl.txt", "libmkl_rt.so.3"), stand_in) if request.param == "stand-in" else fresh()
    assert [k.name for k in made] == ["matmul/mkl/gemm"]
    return made[0]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_right(kernel, dtype, layout):
    for shape in (*SHAPES, (270, 260, 280)):
        problem = Matmul(*shape, dtype, layout=layout)
        inputs = problem.inputs(3, True)
        run = kernel.bind(problem, *inputs)
        for _ in range(2):  # the second call may not lean on the first one's result
            output = run()
            assert reference.check(problem, inputs, output).passed, problem
            output.fill(np.nan)


@pytest.mark.parametrize("math", ["tf32", "float16", "bfloat16"])
def test_other_arithmetic_is_refused(kernel, math):
    problem = Matmul(4, 4, 4, "float32" if math == "tf32" else math, math)
    with pytest.raises(ValueError, match=f"float32 and float64, not {math}"):
        kernel.bind(problem, *problem.inputs(1))


def absent(name):
    raise importlib.metadata.PackageNotFoundError(name)


def broken(path):
    raise OSError("wrong ELF class")


@pytest.mark.parametrize(
    ("files", "load", "words"),
    [
        (absent, None, "the package mkl is not installed"),
        (package("mkl.txt"), None, "has no libmkl_rt"),
        (package("libmkl_rt.so.3"), broken, "does not load: wrong ELF class"),
    ],
)
def test_what_is_missing_is_named_with_what_installs_it(fresh, files, load, words):
    install = r"mkl is not installed; install it with: .* -m pip install mkl"
    with pytest.raises(registry.NotInstalled, match=install) as found:
        fresh(files, load)
    assert words in str(found.value.__cause__)


def test_threads_are_set_in_libraries_that_the_kernel_brings(monkeypatch):
    """A controller knows the libraries that were loaded before it was made, so the kernel is found first."""
    import threadpoolctl

    seen = []

    class Controller:
        def __init__(self):
            seen.append("looks")

        def limit(self, limits):
            seen.append(f"sets {limits}")

    def find(name):
        seen.append("loads")
        return registry.Kernel("matmul", "mkl", "gemm", np.matmul, ("cpu",))

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Controller)
    monkeypatch.setattr(one_row.registry, "find", find)
    monkeypatch.setattr(one_row, "checked", lambda *_: (reference.Check("exact", False), 0.0))
    one_row._controller.cache_clear()
    row = Row("matmul/mkl/gemm", Matmul(2, 2, 2), Settings(threads=2))
    one_row.measure(row, one_row.Limits(), 1)
    one_row.visit(row, one_row.Limits(), 1)
    one_row._controller.cache_clear()
    assert seen == ["loads", "looks", "sets 2", "loads", "sets 2"]
