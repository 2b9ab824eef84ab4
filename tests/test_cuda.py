"""Every .cu compiles for the architectures on its first line, with NVRTC and without a GPU or a driver."""

import re

import pytest

from kernels import cuda

FILES = sorted(cuda.FOLDER.glob("*.cu"))


def architectures(path) -> list[str]:
    return re.findall(r"sm_\w+", path.read_text().splitlines()[0])


def compiled(text: str, arch: str):
    core = pytest.importorskip("cuda.core", reason="cuda-core is not installed (extra dev)")
    options = core.ProgramOptions(arch=arch, std="c++17")
    return core.Program(text, "c++", options).compile("cubin")


def test_there_are_sources_and_each_names_an_architecture():
    assert len(FILES) >= 3 and all(architectures(path) for path in FILES)


@pytest.mark.parametrize(
    ("path", "arch"), [(p, a) for p in FILES for a in architectures(p)], ids=lambda v: getattr(v, "stem", v)
)
def test_compiles(path, arch):
    assert len(compiled(path.read_text(), arch).code) > 1000


def test_a_broken_source_is_refused():
    with pytest.raises(Exception, match=r"(?i)compil|error"):
        compiled('extern "C" __global__ void f() { nonsense }', "sm_90")
