"""Every .cu compiles for the architectures on its first line, with NVRTC and without a GPU or a driver."""

import concurrent.futures
import itertools
import re
import sys
import threading
import types

import pytest
import slow_cases
from kept import kept, numba_folder
from nvrtc import architectures, compilers, own_text, spilled

from kernels.cuda import conv_tiles, loader, matmul_tiles

FOLDER = loader.FOLDER
FILES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.cu"))
SHARED = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.cuh"))


def compiled(text: str, arch: str):
    core = pytest.importorskip("cuda.core", reason="cuda-core is not installed (extra dev)")
    return core.Program(text, "c++", core.ProgramOptions(arch=arch, std="c++17")).compile("cubin")


def test_what_spills_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "FOLDER", tmp_path)
    held = "float x[200]; for (int i = 0; i < 200; i++) x[i] = a[i * n]; for (int i = 0; i < 200; i++) a[i * n] = x[199 - i];"
    kernel = f'// sm_90\nextern "C" __global__ void __launch_bounds__(1024) f(float* a, int n) {{ {held} }}\n'
    (tmp_path / "a.cu").write_text(kernel + kernel.replace(" f(", " g(").replace("200", "2").replace("199", "1"))
    assert spilled("a", {}) >= 4 * (200 - 64)  # what 64 registers cannot hold; g's none do not hide it


def test_compiled_code_is_stored_by_all_its_inputs(tmp_path, monkeypatch):
    monkeypatch.setattr("kept.FOLDER", tmp_path)
    made = []

    def make(path):
        made.append(path)
        path.write_text(str(len(made)))

    seen = [kept(".log", of, make).read_text() for of in (("a", "b"), ("ab",), ("a", "c"), ("a", "b"))]
    assert seen == ["1", "2", "3", "1"] and len(list(tmp_path.iterdir())) == len(made) == 3
    assert kept(".so", ("a", "b"), make).read_text() == "4"
    names = []
    for at in ("", "conv/numba.py", "conv/_tiles.py", "simd/emit.py", "conv/cuda.py"):  # the last is none of Numba's
        (file := tmp_path / "kernels" / (at or "conv/numba_a.py")).parent.mkdir(parents=True, exist_ok=True)
        file.write_text("another")
        names.append(numba_folder(str(tmp_path / "kernels/conv/numba_a.py")))
    assert len(set(names)) == 4 and names[3] == names[4] and names[0].startswith("conv_")


def test_threads_compile_a_program_once(monkeypatch):
    meet, made = threading.Barrier(2, timeout=10), []

    def compiles(text) -> None:
        if text not in made:  # CuPy keeps what it has compiled, and knows nothing of what it compiles
            meet.wait()
            made.append(text)

    kernel = lambda text, name, options: types.SimpleNamespace(compile=lambda: compiles(text))  # noqa: E731
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(RawKernel=kernel))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: loader.compile_kernel.__wrapped__("cuda/hold", "hold", N=n), (1, 2, 1, 2)))
    assert len(made) == 2


def test_sources_name_an_architecture_and_share_functions():
    """What they include counts with what that includes in its turn."""
    assert len(FILES) >= 3 and all(architectures(file) for file in FILES)
    users = {file: [] for file in SHARED}
    for file in FILES:
        for name in re.findall(r'^#line 1 "([\w/]+\.cuh)"$', loader.source(file), re.MULTILINE):
            users[name].append(file)
    assert {name: found for name, found in users.items() if len(found) < 2} == {}
    assert all(own_text(file).startswith("// Shared text: ") for file in SHARED)
    # what two need has a place of its own; overloads and functions of one name that do something else may stand in both
    bodies = {}
    for file in (*SHARED, *(f"{file}.cu" for file in FILES)):
        for body in re.findall(r"^__device__ [^\n]*\}$|^__device__ .*?^\}$", own_text(file), re.DOTALL | re.MULTILINE):
            bodies.setdefault(" ".join(body.split()), []).append(file)
    assert len(bodies) > 50 and {body: found for body, found in bodies.items() if len(set(found)) > 1} == {}
    with pytest.raises(Exception, match=r"(?i)compil|error"):
        compiled('extern "C" __global__ void f() { nonsense }', "sm_90")


def test_an_error_names_its_file_and_line(tmp_path, monkeypatch):
    """Of a file that is included twice, and stands once; what is included is read again."""
    monkeypatch.setattr(loader, "FOLDER", tmp_path)
    (include := tmp_path / "cuda/include").mkdir(parents=True)
    wrong = 'extern "C" __global__ void f() { nonsense; }\n'
    (tmp_path / "a.cu").write_text(f'// sm_90\n#include "b.cuh"\n#include "c.cuh"\n{wrong}')
    (include / "b.cuh").write_text("int b;\nint c;\n")
    (include / "c.cuh").write_text('#include "b.cuh"\nint d;\n')
    assert loader.source("a").count("int b;") == 1
    with pytest.raises(Exception, match=r"a\.cu\(4\)"):
        compiled(loader.source("a"), "sm_90")
    for file, text in (("b", f"int b;\n{wrong}"), ("c", f'#include "b.cuh"\n{wrong}')):
        (include / f"{file}.cuh").write_text(text)
        with pytest.raises(Exception, match=rf"{file}\.cuh\(2\)"):
            compiled(loader.source("a"), "sm_90")
        (include / f"{file}.cuh").write_text("int b;\n")
    (include / "b.cuh").unlink()
    with pytest.raises(FileNotFoundError):
        loader.source("a")


def newest(file: str) -> list[str]:
    """The newest architecture, which no first line names; of a file with instructions of one alone none."""
    return [] if any(arch.endswith("a") for arch in architectures(file)) else ["sm_120"]


COMPILED = [(file, arch) for file in FILES for arch in (*architectures(file), *newest(file))]


@pytest.mark.parametrize(("file", "arch"), slow_cases.every(4, COMPILED))
def test_compiles(file, arch):
    text = loader.source(file)
    cubin = kept(".cubin", (text, arch, *compilers()), lambda path: path.write_bytes(compiled(text, arch).code))
    assert cubin.stat().st_size > 1000


@pytest.mark.parametrize("kib", [64, 96, 99, 163, 227])
def test_tiles_fit_gpus_with_less_shared_memory(kib):
    """Of capabilities 7.5, 7.0, 8.6 (as 8.9 and 12.0), 8.0, and 9.0 (as 10.0), by the CUDA C++ Programming Guide; those on tensor
    cores are for 8.0 on."""
    sizes = [[of.shared_bytes for of in matmul_tiles.warps("nn", single)] for single in (True, False)]
    sizes += [[of.shared_bytes(wgrad) for of in conv_tiles.WARPS] for wgrad in (0, 1)]
    if kib > 96:
        for layout, size in itertools.product(("nn", "nt", "tn"), (2, 4)):
            sizes.append([of.shared_bytes(layout, size) for of in matmul_tiles.TENSORS])
        sizes += [[of.shared_bytes(wgrad) for of in conv_tiles.TENSORS] for wgrad in (0, 1)]
    assert min(sum(size <= kib << 10 for size in found) for found in sizes) >= 3
