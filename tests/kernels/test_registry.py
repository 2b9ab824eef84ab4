"""Every kernel that registers itself, found by file name: right on awkward shapes, dtypes and layouts, or skipped with a
reason; a new kernel needs no edit here. MKL's by ctypes, held against a stand-in, and against MKL itself where it is
installed."""

import ast
import ctypes
import importlib
import importlib.metadata
import itertools
import pathlib
import re
import sys
import types

import house
import numba
import numpy as np
import pytest
from awkward_shapes import AWKWARD_CONVS
from llvmlite import binding

from kernels import reference, registry
from kernels.problems import Conv, Launch, Matmul, Peak, Stream, Transfer
from kernels.problems.arrays import HALVES, MATHS, precision
from kernels.simd import amx, emit
from workloads.harness import one_row
from workloads.records import Row, Settings

AWKWARD = [(1, 1, 1), (17, 33, 65), (127, 1, 31), (1, 64, 3), (70, 300, 1)]
LENGTHS, TWO_MATHS = (4, 4099, 1 << 20), ("float32", "tf32")
PROBLEMS = {
    "matmul": [
        *(Matmul(*shape, dtype, math) for shape in AWKWARD for dtype, maths in MATHS.items() for math in maths),
        *(Matmul(17, 33, 65, "float64", layout=layout) for layout in ("nt", "tn")),
        Matmul(270, 260, 280),  # large enough for Freivalds' test
        Matmul(100, 200, 1000, "bfloat16", "bfloat16"),  # one tile and a k long enough to be split
        *(Matmul(*shape, layout=layout, batch=3) for shape in AWKWARD for layout in ("nn", "nt", "tn")),
        *(Matmul(*s, d, epilogue="bias-relu") for s in (*AWKWARD, (260, 270, 280)) for d in ("float32", *HALVES)),
    ],
    "conv": [
        *(
            Conv(*shape, stride, pad, 1, layout, way, dtype)
            for shape in AWKWARD_CONVS
            for stride, pad in ((1, "same"), (3, 4))
            for layout in Conv.LAYOUTS
            for way in Conv.DIRECTIONS
            for dtype in ("float32", "float64", "bfloat16")
        ),
        *(Conv(2, 9, 7, 6, 9, 3, 2, 2, "valid", 3, layout, way) for layout in Conv.LAYOUTS for way in Conv.DIRECTIONS),
        # large enough for the projected check
        *(Conv(5, 40, 40, 32, 24, 3, 3, 1, "same", direction=w, math=m) for w in Conv.DIRECTIONS for m in TWO_MATHS),
    ],
    "stream": [
        Stream(op, n * (24 if op not in Stream.IMAGE_OPERATIONS else 1 << 16), dtype)
        for op in ("copy", "scale", "add", "triad", "read", "maxpool")
        for n in (1, 7, 1000)
        for dtype in ("float32", "float64")
    ],
    "peak": [
        *(Peak(math, 1 << n) for math, n in (("float32", 16), ("bfloat16", 16), ("bfloat16", 30), ("float32", 33))),
        *(Peak("float64", flops) for flops in ((1 << 16) + 3, 1 << 33)),
        *(Peak(math, 1 << 36) for math in ("float16", "bfloat16", "tf32", "float8_e4m3")),
    ],
    "launch": [
        *(Launch(call, count) for call in ("empty", "elementwise") for count in (1, 5)),
        *map(Launch, ("matmul", "copy")),
    ],
    "transfer": [
        *(Transfer(w, n, memory) for w in ("h2d", "d2h", "both") for memory in Transfer.HOST_MEMORIES for n in LENGTHS),
        *(Transfer("d2d", n) for n in LENGTHS),
        *(Transfer("h2d", 1 << 24, "pinned", c, 8, streams) for c in Transfer.COMPUTES for streams in (1, 3)),
    ],
}


def gpu() -> bool:
    try:
        import cupy
    except ImportError:
        return False
    return cupy.is_available()


def kernels() -> list:
    found = []
    for op in PROBLEMS:
        for backend in registry.backends(op):
            if "cpu" in registry.BACKENDS[backend].devices and backend not in (*registry.FRAMEWORKS, "mkl"):
                # MKL is nothing that `make test` installs: below
                found += registry.load(op, backend)
    return found


def lacking(reasons: list[str]) -> str:
    """The instructions for want of which a kernel refused a problem, if this CPU or its system does lack them; else ""."""
    there = binding.get_host_cpu_features()
    for name in re.findall(r"\bno ((?:amx|avx)[\w-]*)", " ".join(reasons)):
        if not there.get(name):
            return "AMX" if name.startswith("amx") else name.upper()
    refused = any("does not let a process use AMX's tiles" in reason for reason in reasons)
    return "AMX" if refused and not amx.tiles_allowed() else ""


def right_twice(run, problem, inputs, allocates: bool = False) -> None:
    for _ in range(2):  # the second call may not lean on the first one's result
        output = np.asarray(run())
        assert reference.check(problem, inputs, output).passed, problem
        if not allocates and output.size:
            output.fill(7)


#: Numba compiles each of them for more than 5 s on a slow core.
SLOW_TO_COMPILE = {
    "conv/numba/direct",
    "matmul/numba/dots",
    "matmul/numba/packed",
    "matmul/numba/simd",
    "stream/numba/loop",
}


def marked(kernel):
    """The kernel as a case: slow where it is slow to compile."""
    return pytest.param(kernel, marks=pytest.mark.slow) if kernel.name in SLOW_TO_COMPILE else kernel


@pytest.mark.parametrize("kernel", map(marked, kernels()), ids=lambda k: k.name)
def test_right_or_refused_with_a_reason(kernel):
    done, reasons = 0, []
    assert 20 < len(kernel.idea) < 240, "two lines tell its idea"
    for problem in PROBLEMS[kernel.op]:
        inputs = problem.inputs(3, True)
        try:
            run = kernel.bind(problem, *inputs)
        except ValueError as refusal:
            reasons.append(str(refusal))
            continue
        right_twice(run, problem, inputs, kernel.allocates)
        done += 1
    assert all(len(reason) > 10 for reason in reasons)
    if done == 0 and (missing := lacking(reasons)):
        pytest.skip(f"no {missing} on this CPU")
    assert done >= 2, f"{kernel.name} can do next to nothing"


HALF, TF32 = {"dtype": "bfloat16"}, {"math": "tf32"}
OTHERS = [
    ("matmul", "simd packed", "multiply float32 and float64, not", (HALF, TF32, {"out": "float64"})),
    ("matmul", "amx dots", "multiply bfloat16, not float32", ({},)),
    ("conv", "direct blocked", "convolve float32 .*in NHWC, not", (HALF, TF32, {"layout": "NCHW"})),
]


@pytest.mark.parametrize(("op", "variants", "words", "others"), OTHERS)
def test_other_arithmetic_and_layouts_are_refused(op, variants, words, others):
    for variant, other in itertools.product(variants.split(), others):
        problem = Matmul(4, 4, 4, **other) if op == "matmul" else Conv(1, 4, 4, 2, 2, 1, 1, **other)
        with pytest.raises(ValueError, match=words):
            registry.find(f"{op}/numba/{variant}").bind(problem, *problem.inputs(1))


def test_only_missing_hardware_excuses_an_idle_kernel(monkeypatch):
    have = {"amx-bf16": True, "avx512bf16": False}
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: have)
    monkeypatch.setattr(amx, "tiles_allowed", lambda: True)
    kept = "the kernel of this system does not let a process use AMX's tiles"
    assert lacking(["not in float32 nn", "this CPU, or its system, has no amx-tile and no amx-bf16"]) == "AMX"
    assert lacking(["this CPU, or its system, has no avx512bf16"]) == "AVX512BF16"
    assert lacking(["this CPU, or its system, has no amx-bf16", "no float64", kept]) == ""
    monkeypatch.setattr(amx, "tiles_allowed", lambda: False)
    assert lacking(["this CPU, or its system, has no amx-bf16", kept]) == "AMX"


@pytest.mark.parametrize(
    "name",
    [
        f"{op}/{b}"
        for op in PROBLEMS
        for b in registry.backends(op)
        if "gpu" in registry.BACKENDS[b].devices and b not in registry.FRAMEWORKS
    ],
)
def test_gpu_kernels_are_right(name):
    if not gpu():
        pytest.skip("no GPU")
    from workloads.harness import copy_modes
    from workloads.records import Settings

    op, backend = name.split("/")
    for kernel in registry.load(op, backend):
        done = 0
        for problem in PROBLEMS[op]:
            inputs = problem.inputs(3, True)
            modes = ("resident", "roundtrip", "roundtrip-pageable", "roundtrip-pinned")
            for mode in modes[:1] if op in ("transfer", "launch") else modes:
                try:
                    prepared = copy_modes.prepare(kernel, problem, Settings(device="gpu:0", mode=mode), inputs)
                except ValueError:
                    continue
                value = prepared.run()
                prepared.synchronize()
                done += 1
                told = kernel.name, problem, mode, getattr(prepared.run, "notes", {})
                assert reference.check(problem, inputs, prepared.result(value)).passed, told
        assert done >= {"launch": 1, "transfer": 3}.get(op, 4), f"{kernel.name} can do next to nothing"


def test_a_file_without_a_backend_is_refused(tmp_path, monkeypatch):
    for op in house.operations():
        assert set(registry.backends(op)) <= set(registry.BACKENDS)
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    (tmp_path / "conv").mkdir()
    for name in ("__init__", "_helper", "numpy_mine"):
        (tmp_path / f"conv/{name}.py").write_text("")
    assert registry.backends("conv") == ["numpy"]
    (tmp_path / "conv/helper.py").write_text("")
    with pytest.raises(ValueError, match=r"conv/helper\.py names no backend"):
        registry.backends("conv")


def test_tables_of_kernels_name_what_there_is_once():
    """Without importing what not everybody has. A kernel tells its idea by its docstring's first paragraph."""
    told = {}
    for op in house.operations():
        for path in (registry.FOLDER / op).glob("[!_]*.py"):
            backend, tree = path.stem.split("_")[0], ast.parse(path.read_text())
            for made in (n for n in tree.body if isinstance(n, ast.FunctionDef)):
                words = [ast.unparse(d) for d in made.decorator_list if ast.unparse(d).startswith("kernel")]
                if words:
                    name = f"{op}/{backend}/{made.name}"
                    told[name] = (ast.get_docstring(made) or "").partition("\n\n")[0]
    assert all(20 < len(" ".join(idea.split())) < 240 for idea in told.values())
    for op in ("matmul", "conv"):
        ladder = registry.ladder(op)
        assert set(ladder) <= set(told) and len(set(ladder)) == len(ladder) > 5
    assert sorted((*registry.LIBRARIES, *registry.WRITTEN_HERE, *registry.FRAMEWORKS)) == sorted(registry.BACKENDS)
    assert all(b.title and b.version and b.install for b in registry.BACKENDS.values())

    def blas(problem, a, b):
        """Another kernel
        under a taken name.

        a: m x k.
        """

    taken = registry.Kernel(op="matmul", backend="numpy", variant="blas", bind=blas, devices=("cpu",))
    assert taken.idea == "Another kernel under a taken name."
    blas.__module__ = "kernels.matmul.numpy"
    with pytest.raises(ValueError, match="two kernels are called matmul/numpy/blas"):
        registry.kernel(blas)


def test_only_a_missing_library_counts_as_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    for name, text, error in (
        ("gone", "import cupy_that_is_not_there", registry.NotInstalled),
        ("cupy", "import numpy_that_is_not_there", ModuleNotFoundError),
    ):
        monkeypatch.setitem(registry.BACKENDS, name, registry.Backend(("gpu",), "cupy_that_is_not_there", "cupy"))
        (tmp_path / "matmul").mkdir(exist_ok=True)
        (tmp_path / f"matmul/{name}.py").write_text(text)

        def load(module, text=text):
            exec(compile(text, module, "exec"), {})

        monkeypatch.setattr(registry.importlib, "import_module", load)
        with pytest.raises(error):
            registry.load("matmul", name)


def test_the_fma_peak_is_vector_code_without_spills():
    out = np.zeros((1, emit.CHAINS * emit.lanes(np.dtype("float32"))), np.float32)

    @numba.njit
    def fresh(out, factor, addend, trips):
        emit.fma_chains(out, factor, addend, trips)

    fresh(out[0], np.float32(1), np.float32(1), 2)
    assert (out == 2 * emit.UNROLL).all()
    lines = next(iter(fresh.inspect_asm().values())).splitlines()
    fused = [i for i, line in enumerate(lines) if "vfmadd" in line or "fmla" in line]
    assert len(fused) >= emit.CHAINS * emit.UNROLL
    register = {64: "zmm", 32: "ymm", 16: "xmm"}[emit.vector_bytes()]
    assert all(register in lines[i] or "fmla" in lines[i] for i in fused)
    loop = lines[fused[0] : fused[emit.CHAINS * emit.UNROLL - 1]]
    assert not [line for line in loop if "rsp" in line], "a register spills inside the loop"


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 24), ("float64", 53)])
def test_a_peak_beyond_its_counters_range_is_refused(dtype, bits):
    most = 2 * numba.get_num_threads() * emit.CHAINS * emit.lanes(np.dtype(dtype)) << bits
    problem = Peak(dtype, most)
    registry.find("peak/numba/fma").bind(problem, *problem.inputs(1, True))
    with pytest.raises(ValueError, match="counts exactly"):
        registry.find("peak/numba/fma").bind(Peak(dtype, most + 1), *problem.inputs(1, True))


MODULE = "kernels.matmul.mkl"


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


INSTALLED = ["MKL"] if any(found.name == "mkl" for found in importlib.metadata.distributions()) else []


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


@pytest.fixture(params=["stand-in", *INSTALLED])
def kernel(request, fresh):
    made = fresh(package("mkl.txt", "libmkl_rt.so.3"), stand_in) if request.param == "stand-in" else fresh()
    assert [k.name for k in made] == ["matmul/mkl/gemm"]
    return made[0]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_right_and_refuses_other_arithmetic(kernel, dtype, layout):
    for shape in (*AWKWARD, (270, 260, 280)):
        problem = Matmul(*shape, dtype, layout=layout)
        inputs = problem.inputs(3, True)
        right_twice(kernel.bind(problem, *inputs), problem, inputs)
    for math in ("tf32", *HALVES):
        with pytest.raises(ValueError, match=f"float32 and float64, not {math}"):
            kernel.bind(Matmul(4, 4, 4, *precision(math), layout=layout), None, None)


def raises(error: Exception):
    def call(_):
        raise error

    return call


@pytest.mark.parametrize(
    ("files", "load", "words"),
    [
        (raises(importlib.metadata.PackageNotFoundError()), None, "the package mkl is not installed"),
        (package("mkl.txt"), None, "has no libmkl_rt"),
        (package("libmkl_rt.so.3"), raises(OSError("wrong ELF class")), "does not load: wrong ELF class"),
    ],
)
def test_missing_packages_name_their_install_command(fresh, files, load, words):
    install = r"mkl is not installed; install it with: .* -m pip install mkl"
    with pytest.raises(registry.NotInstalled, match=install) as found:
        fresh(files, load)
    assert words in str(found.value.__cause__)


def test_threads_are_set_in_a_kernels_libraries(monkeypatch):
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
    monkeypatch.setattr(one_row, "checked", lambda *_: one_row.Known(reference.OutputCheck("exact", False), 0.0))
    one_row._controller.cache_clear()
    row = Row("matmul/mkl/gemm", Matmul(2, 2, 2), Settings(threads=2))
    one_row.measure(row, one_row.Limits(), 1)
    one_row.visit(row, one_row.Limits(), 1)
    one_row._controller.cache_clear()
    assert seen == ["loads", "looks", "sets 2", "loads", "sets 2"]
