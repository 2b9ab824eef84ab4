"""Convolutions as products of columns in CuPy, over a fake one."""

import importlib
import sys
import types

import numpy as np
import pytest
from awkward_shapes import problems

from kernels import reference, registry
from kernels.conv import numpy as conv_numpy
from kernels.problems import Conv


@pytest.fixture
def on_gpu(monkeypatch):
    """kernels.conv.cupy with NumPy for CuPy and a product that leaves its result in place, as cuBLAS does."""
    fake = types.ModuleType("cupy")
    for name in ("ndarray", "empty", "zeros", "copyto", "add", "lib"):
        setattr(fake, name, getattr(np, name))
    fake.free = 1 << 30
    fake.cuda = types.SimpleNamespace(Device=lambda: types.SimpleNamespace(mem_info=(fake.free, 1 << 31)))

    def cublas(problem, a, b):
        assert [x.shape for x in (a, b)] == [x.shape for x in problem.inputs(1)]
        assert a.flags.c_contiguous and b.flags.c_contiguous
        return lambda: np.matmul(*reference.operands(problem, (a, b)))

    matmul = types.ModuleType("kernels.cuda.cublas")
    matmul.product = cublas
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "kernels.cuda.cublas", matmul)
    monkeypatch.delitem(sys.modules, "kernels.conv.cupy", raising=False)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    yield types.SimpleNamespace(im2col=importlib.import_module("kernels.conv.cupy").im2col, cupy=fake)
    sys.modules.pop("kernels.conv.cupy", None)
    vars(importlib.import_module("kernels.conv")).pop("cupy", None)


def test_gpu_im2col_is_right_every_call(on_gpu):
    done = 0
    for p in problems():
        if p.groups == 1 and p.layout == "NHWC":
            inputs = p.inputs(3, True)
            run = on_gpu.im2col(p, *inputs)
            for _ in range(2):
                assert reference.check(p, inputs, run()).passed, p
            done += 1
    assert done > 100


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"layout": "NCHW"}, "not for NCHW in 1"),
        ({"groups": 2}, "not for NHWC in 2"),
        ({"direction": "dgrad", "dtype": "bfloat16"}, "rounded at every tap"),
        ({"dtype": "float8_e4m3"}, "not for float8_e4m3"),
        ({"n": 1 << 20}, "its columns need 1.27 GiB of GPU memory; at most half of the free 1 are taken"),
        *(({"math": "tf32"}, "NumPy.* float32 and float64, not tf32"), ({"dtype": "bfloat16"}, "NumPy.* not bfloat16")),
    ],
)
def test_what_im2col_refuses_on_gpu_and_numpy(on_gpu, fields, words):
    p = Conv(**{"n": 2, "h": 5, "w": 5, "c_in": 4, "c_out": 6, "r": 3, "s": 3, **fields})
    with pytest.raises(ValueError, match=words):
        (conv_numpy if "NumPy" in words else on_gpu).im2col(p, None, None)
