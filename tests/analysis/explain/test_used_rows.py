"""Which rows a prediction's answer uses."""

import pytest
from fake_measurements import row

from analysis.explain import used_rows
from analysis.predict import profile
from analysis.predict.profile import Profile
from kernels.problems import Conv, Launch, Matmul, Stream

WIDE, NEAR, FAR = Matmul(8, 16, 32), Matmul(8, 16, 64), Matmul(512, 512, 512)
PASS = Stream("relu", 2**20, "float32")
ROWS = {
    "framework": row("matmul/tensorflow/function", WIDE, 1e-3),
    "cold": row("matmul/tensorflow/function", WIDE, 1e-3, cache="cold"),
    "library": row("matmul/numpy/blas", WIDE, 1e-3),
    "near": row("matmul/tensorflow/function", NEAR, 1e-3),
    "far": row("matmul/tensorflow/function", FAR, 1e-3),
    "convolution": row("conv/tensorflow/function", Conv(1, 8, 8, 3, 5, 3, 3), 1e-3),
    "transposed": row("matmul/tensorflow/function", Matmul(8, 16, 32, layout="nt"), 1e-3),
    "GPU library": row("matmul/cupy/cublas", WIDE, {"device": 1e-5}),
    "GPU framework": row("matmul/tensorflow/function", WIDE, 1e-3, device="gpu:0"),
    "GPU own pass": row("stream/cupy/elementwise", PASS, {"device": 1e-5}),
    "own pass": row("stream/numba/loop", PASS, 1e-4),
}
NAMES = {id(m): name for name, m in ROWS.items()}


@pytest.mark.parametrize(
    ("problem", "device", "names"),
    [
        (WIDE, "cpu", ["framework"]),
        (WIDE, "gpu:0", ["GPU library"]),
        (Matmul(8, 16, 128), "cpu", ["near", "framework", "far"]),
        (Matmul(600, 500, 512), "cpu", ["far", "near", "framework"]),
        (Matmul(8, 16, 33, layout="nt"), "cpu", ["transposed"]),
        (PASS, "gpu:0", ["GPU own pass"]),
        (PASS, "cpu", []),
        (Conv(2, 8, 8, 3, 5, 3, 3), "cpu", ["convolution"]),
        (Conv(2, 8, 8, 3, 5, 3, 3, direction="dgrad"), "cpu", []),
    ],
)
def test_a_problem_uses_its_rows_or_the_nearest(problem, device, names):
    told = used_rows._telling(problem, Profile(ROWS.values()), device)
    assert [NAMES[id(m)] for m in told] == names


def test_launches_are_frameworks_and_on_gpus_kernels():
    kernels = ("launch/tensorflow/function", "launch/keras/once", "launch/cupy/rawkernel", "launch/numpy/call")
    empty = Launch("empty", 1)
    rows = [row("launch/tensorflow/jit", empty, None, device="cpu", status="failed")]
    for kernel in kernels:
        rows.append(row(kernel, empty, 1e-6, device="cpu"))
        rows.append(row(kernel, empty, 1e-6, device="gpu:0"))
    on_cpu = used_rows.launches(Profile(rows), "cpu")
    on_gpu = used_rows.launches(Profile(rows), "gpu:0")
    assert [m.backend for m in on_cpu] == ["tensorflow", "keras"]
    assert [m.backend for m in on_gpu] == ["tensorflow", "keras", "cupy"]


@pytest.mark.parametrize(
    ("device", "execution", "op", "sources"),
    [
        ("gpu:0", profile.COMPILED, "conv", (profile.LIBRARIES,)),
        ("cpu", profile.OP_BY_OP, "matmul", ("function", profile.LIBRARIES, "jit")),
        ("cpu", profile.COMPILED, "matmul", ("jit", profile.LIBRARIES, "function")),
        ("cpu", profile.OP_BY_OP, "conv", (profile.CONSTANT_FILTERS, "function", "jit", profile.LIBRARIES)),
        ("cpu", profile.COMPILED, "conv", ("jit", "function", profile.LIBRARIES)),
        ("cpu", profile.OP_BY_OP, "stream", ("function", "jit", profile.LIBRARIES)),
    ],
)
def test_the_sources_of_rows_in_order_of_preference(device, execution, op, sources):
    assert profile.row_sources(device, execution, op) == sources
