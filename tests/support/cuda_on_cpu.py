"""Runs a .cu on the CPU: a host compiler builds it over cuda_on_cpu.h, which has its instructions as plain C++."""

import ctypes
import functools
import importlib
import inspect
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import types

import numpy as np
from kept import kept

from kernels import registry
from kernels.cuda import loader

COMPILER = shutil.which("g++") or shutil.which("clang++")
HEADER = pathlib.Path(__file__).with_name("cuda_on_cpu.h").read_text(encoding="utf-8")
SLACK = 1 << 16  # bytes on either side of an array, which no kernel may write
# What stands for an asm statement that has this in it: of its operands {0}, {1} ..
_INSTEAD = {
    "cp.async.cg.shared": "copy_later({0}, {1}, 16, {2});",
    "cp.async.ca.shared": "copy_later({0}, {1}, {2}, {3});",
    "cp.async.commit_group": "commit();",
    "cp.async.wait_group": "wait_group({0});",
    "ldmatrix.sync.aligned.m8n8.x4.trans": "load_matrices(to, at, true);",
    "ldmatrix.sync.aligned.m8n8.x4.shared": "load_matrices(to, at, false);",
    "(MMA": "multiply_pieces<sizeof(Item)>(d, a, b0, b1);",
    "cvt.rna.tf32": "{0} = to_tf32({1});",
    "cvt.f32.": "{0} = wide({1}, TYPE);",
    "cvt.rn.": "{0} = narrow({1}, TYPE) << 16 | narrow({2}, TYPE);",
    "st.relaxed.sys": "write_pair({0}, {1}, {2});",
    "ld.relaxed.sys": "read_pair({2}, {0}, {1});",
    "globaltimer": "{0} = nanoseconds();",
    "griddepcontrol.": ";",
}
_ASM = re.compile(r"asm(?: volatile)?\((?:[^;\"]|\"(?:[^\"\\]|\\.)*\")*\);")


def _plain(statement: re.Match) -> str:
    text = statement[0]
    (instead,) = [new for old, new in _INSTEAD.items() if old in text]
    return instead.format(*re.findall(r'"[=+]?[rnlfh]"\(((?:[^()]|\([^()]*\))*)\)', text))


def translated(file: str, macros: dict) -> str:
    """kernels/<file>.cu as C++: its asm as calls, shared memory as that of the block at work."""
    text = _ASM.sub(_plain, loader.source(file))
    text = re.sub(r"extern __shared__ __align__\(16\) (\w+) (\w+)\[\];", r"\1* const \2 = (\1*)shared_memory;", text)
    text = text.replace("__shared__ ", "static ")
    defines = "".join(f"#define {name} {value}\n" for name, value in {"__CUDA_ARCH__": 900, **macros}.items())
    return f"{defines}{text}"


class Pointer(int):
    """An address as CuPy's arrays tell it."""

    ptr = property(int)


class Array(np.ndarray):
    """A NumPy array that tells its address as CuPy's do."""

    @property
    def data(self):
        return Pointer(self.ctypes.data)


def empty(shape, dtype) -> Array:
    """All bits set, NaNs of floating types: what nobody writes is wrong."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.full(nbytes + 2 * SLACK + 256, 0xFF, np.uint8)
    begin = SLACK + -room.ctypes.data % 256
    return room[begin : begin + nbytes].view(dtype).reshape(shape).view(Array)


def filled(values: np.ndarray, further: int = 0) -> Array:
    array = empty(values.size + further, values.dtype)[further:].reshape(values.shape)
    array[...] = values
    return array


def cupy(multiprocessors: int) -> types.ModuleType:
    """A module of what our bindings want of CuPy, over NumPy: an H200 with so few multiprocessors."""
    made = types.ModuleType("cupy")
    made.ndarray, made.empty, made.ascontiguousarray = np.ndarray, empty, filled
    made.zeros = lambda shape, dtype: filled(np.zeros(shape, dtype))
    attributes = {"MaxSharedMemoryPerBlockOptin": 227 << 10, "MultiProcessorCount": multiprocessors}
    device = types.SimpleNamespace(id=0, compute_capability="90", attributes=attributes)
    made.cuda = types.ModuleType("cupy.cuda")
    made.cuda.Device, made.cuda.get_current_stream = lambda: device, lambda: types.SimpleNamespace(ptr=0)
    made.cuda.runtime = types.SimpleNamespace(
        getDeviceProperties=lambda _: {"name": b"H200"},
        memsetAsync=lambda to, value, count, _: ctypes.memset(int(to), value, count),
    )
    return made


def bindings(monkeypatch, multiprocessors: int):
    """Imports kernels.conv.cuda.., or another operation's, by the end of its name, over that CuPy until the test is over."""
    monkeypatch.setitem(sys.modules, "cupy", cupy(multiprocessors))
    monkeypatch.setitem(sys.modules, "cupy.cuda", sys.modules["cupy"].cuda)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(loader, "overlapping", lambda of, *x, **_: lambda: of((x[0],), (x[1],), x[2]))
    rungs = itertools.product(("conv", "matmul"), ("cuda", "cuda_tensor", "cuda_wgmma"))
    others = (
        ("conv", "_implicit_gemm"),
        ("matmul", "cuda_wgmma_rungs"),
        ("matmul", "cuda_thin"),
        ("cuda", "rows"),
    )
    for operation, of in (*rungs, *others):
        name = f"kernels.{operation}.{of}"
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    return lambda of="", operation="conv": importlib.import_module(f"kernels.{operation}.cuda{of}")


@functools.cache
def load(folder: pathlib.Path, file: str, kernel: str, **macros):
    """The kernel as what cuda.load gives: called with (grid, block, arguments, shared_mem)."""
    text = translated(file, macros)
    parameters = re.search(rf"\b{kernel}\(([^;{{]*)\) \{{", text[text.index('extern "C"') :])[1]
    kinds = [" ".join(kind.split()[:-1]) for kind in parameters.replace("__restrict__", "").split(",")]
    passed = ", ".join(f"void* a{i}" for i in range(len(kinds)))
    used = ", ".join(f"({kind})a{i}" if "*" in kind else f"*({kind}*)a{i}" for i, kind in enumerate(kinds))
    text += f'\nextern "C" void go(unsigned x, unsigned y, unsigned threads, {passed}) {{\n'
    text += f"    launch({{x, y}}, threads, [=] {{ {kernel}({used}); }});\n}}\n"
    library = folder / f"{file.replace('/', '_')}_{kernel}_{abs(hash(tuple(macros.items())))}.so"
    header, of = _header()

    def make(path: pathlib.Path) -> None:
        source = library.with_suffix(".cpp")
        source.write_text(text, encoding="utf-8")
        _compile("-shared", "-include", str(header), "-o", str(path), str(source))

    shutil.copy(kept(".so", (text, *of), make), library)
    return Launched(ctypes.CDLL(str(library)), kinds)


def _compile(*words: str) -> str:
    # longjmp to another stack is what _FORTIFY_SOURCE, which some systems set, takes for a fault
    command = [COMPILER, "-O1", "-w", "-std=c++17", "-fPIC", "-U_FORTIFY_SOURCE", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@functools.cache
def _header() -> tuple[pathlib.Path, tuple[str, ...]]:
    """cuda_on_cpu.h with what the compiler has made of it beside it, and what decides that: each kernel's file need not parse
    the standard library's headers again."""
    of = (HEADER, _compile("--version"), inspect.getsource(_compile))
    header = kept(".h", of, lambda path: path.write_text(HEADER, encoding="utf-8"))
    kept(".h.gch", of, lambda path: _compile("-x", "c++-header", "-o", str(path), str(header)))
    return header, of


class Launched:
    """A kernel that can be called; what it is given must be what it takes."""

    def __init__(self, library: ctypes.CDLL, kinds: list[str]):
        self.library, self.kinds, self.max_dynamic_shared_size_bytes = library, kinds, 48 << 10

    def __call__(self, grid, block, arguments, shared_mem: int = 0):
        assert shared_mem <= self.max_dynamic_shared_size_bytes <= 227 << 10 and len(arguments) == len(self.kinds)
        given = []
        for kind, value in zip(self.kinds, arguments, strict=True):
            assert isinstance(value, np.int32) == (kind.split()[-1] == "int"), (kind, value)
            array = np.atleast_1d(value)
            assert array.flags.c_contiguous and ("*" in kind or array.size == 1), (kind, value)
            given.append(array)
        across, down = (*block, 1)[:2]
        ctypes.c_uint.in_dll(self.library, "block_rows").value = down
        spans = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in given]
        (ctypes.c_void_p * 32).in_dll(self.library, "arrays")[: 2 * len(spans)] = sum(spans, ())
        self.library.go(*(*grid, 1)[:2], across * down, *(ctypes.c_void_p(start) for start, _ in spans))
        assert not ctypes.c_int.in_dll(self.library, "strayed").value, "a kernel read beside an array"
        for start, end in (span for array, span in zip(given, spans, strict=True) if isinstance(array, Array)):
            beside = {ctypes.string_at(start - SLACK, SLACK), ctypes.string_at(end, SLACK)}
            assert beside == {b"\xff" * SLACK}, "a kernel wrote beside an array"


class Encoder:
    """Stands for libcuda: keeps what tensor maps it was asked to encode."""

    def __init__(self, answer: int = 0):
        self.answer, self.asked = answer, None

    def _encode(self, made, dtype, rank, address, *given):
        assert made.value % 64 == 0
        lists = (list(x) if isinstance(x, ctypes.Array) else x for x in given[:-4])
        self.asked = (dtype, rank, address.value, *lists, given[-4:])
        ctypes.memset(made.value, 0x5A, 128)
        return self.answer

    cuTensorMapEncodeTiled = cuTensorMapEncodeIm2col = _encode
