"""Lines of products and convolutions on a terminal: who wins, what a column is called, which layers a problem has."""

from types import SimpleNamespace

import pytest
from fake_measurements import row

from kernels.problems import Conv, Matmul, Peak
from workloads.tables import problem_tables

WIDE = Matmul(8, 16, 32)


def product(kernel: str, seconds: float, math: str = "float32", **fields):
    dtype = {"tf32": "float32"}.get(math, math)
    return row(f"matmul/{kernel}", Matmul(8, 16, 32, dtype, math), seconds, **fields)


@pytest.mark.parametrize(
    ("rows", "winner"),
    [
        ([product("numpy/blas", 2e-3, threads=1), product("numpy/blas", 1e-3, threads=4)], "numpy/blas x4"),
        ([product("numpy/blas", 2e-3, threads=1), product("tensorflow/eager", 1e-3)], "numpy/blas x1"),
        ([product("tensorflow/eager", 1e-3)], "tensorflow/eager"),
        ([product("numpy/blas", 2e-3, threads=1), product("cupy/cublas", 1e-3)], "GPU"),
        ([product("numpy/blas", 2e-3, threads=1), product("cupy/cublas", 3e-3)], "CPU"),
        ([product("cupy/cublas", 3e-3)], "cupy/cublas"),
        ([product("cupy/cublas", None, status="skipped")], "-"),
        (
            [
                product("numpy/blas", 2e-3, threads=1),
                product("cupy/cublas", 1e-3),
                product("cupy/cublas", 3e-3, mode="roundtrip"),
                product("cupy/cublas", 1.5e-3, mode="roundtrip-pinned"),
            ],
            "GPU resident +pinned",
        ),
    ],
)
def test_who_wins_a_line(rows, winner):
    table = problem_tables.Matmuls()
    table._all = rows
    assert table.winner(rows) == winner


@pytest.mark.parametrize(("math", "winner"), [("tf32", "GPU"), ("float16", "GPU"), ("float64", "cupy/cublas")])
def test_a_low_precision_gpu_meets_float32(math, winner):
    """At the same shape and caches alone."""
    gpu = product("cupy/cublas", 1e-3, math)
    cold = product("numpy/blas", 1e-9, threads=1, cache="cold")
    other = row("matmul/numpy/blas", Matmul(16, 8, 32), 1e-9, threads=1)
    table = problem_tables.Matmuls()
    table._all = [product("numpy/blas", 2e-3, threads=1), cold, other, gpu]
    assert table.winner([gpu]) == winner


def test_a_winning_gpu_convolution_names_its_kernel():
    problem = Conv(2, 9, 7, 3, 5, 3, 2, stride=2, pad=1, direction="wgrad")
    rows = [
        row("conv/numpy/im2col", problem, 2e-3, threads=1),
        row("conv/cudnn/plan", problem, 1e-3, device="gpu:0"),
        row("conv/cupy/im2col", problem, 1.5e-3),
    ]
    table = problem_tables.Convs()
    table._all = rows
    assert table.winner(rows) == "GPU (cudnn/plan)"
    assert {name: text for name, (text, _) in table.head(problem).items()} == {
        "NxHxWxC:KxRxS": "2x9x7x3:5x3x2/2",
        "pad": "1",
        "way": "wgrad",
    }
    named = problem_tables.Convs(names=lambda p: "conv2")
    assert named.head(Conv(2, 9, 7, 4, 6, 3, 2, groups=2))["layer"][0] == "conv2"
    assert named.head(Conv(2, 9, 7, 4, 6, 3, 2, groups=2))["NxHxWxC:KxRxS"][0] == "2x9x7x4:6x3x2 g2"


def test_a_line_begins_with_size_or_shape():
    square, planned = Matmul(8, 8, 8), [Matmul(4, 4, 4)]
    assert problem_tables.Matmuls(planned=planned).head(square) == {"n": ("8", 5)}
    assert problem_tables.Matmuls(planned=planned).head(WIDE) == {"shape": ("8x16x32", 14)}
    assert problem_tables.Matmuls(planned=[WIDE]).head(square) == {"shape": ("8", 14)}
    assert problem_tables.Matmuls(names=lambda p: "dense1").head(WIDE) == {
        "layer": ("dense1", 20),
        "MxNxK": ("8x16x32", 14),
    }


@pytest.mark.parametrize(
    ("problem", "cache", "kind"),
    [
        (WIDE, "warm", "float32"),
        (Matmul(8, 16, 32, "float32", "tf32", layout="tn"), "cold", "tf32 tn cold"),
        (Matmul(8, 16, 32, batch=5), "warm", "float32 x5"),
        (Matmul(8, 16, 32, "bfloat16", epilogue="bias-relu"), "warm", "bfloat16 bias-relu"),
        (Conv(1, 8, 8, 3, 5, 3, 3, layout="NCHW"), "warm", "float32 NCHW"),
        (Conv(1, 8, 8, 3, 5, 3, 3), "warm", "float32"),
    ],
)
def test_unusual_settings_stand_beside_the_arithmetic(problem, cache, kind):
    assert problem_tables._kind(problem, cache) == kind


@pytest.mark.parametrize(
    ("m", "column"),
    [
        (product("numpy/blas", 1.0), "numpy"),
        (product("numba/packed", 1.0), "numba packed"),
        (product("cupy/cublas", 1.0), "GPU"),
        (product("cupy/cublas", 1.0, mode="roundtrip-pageable"), "+pageable"),
        (product("tensorflow/eager", 1.0, device="gpu:0"), "tensorflow eager GPU"),
    ],
)
def test_the_column_of_a_row(m, column):
    assert problem_tables._column(m) == column


def test_a_shared_problem_has_its_first_layers_name():
    works = [
        SimpleNamespace(problem=Matmul(32, 16, 8), name="a fprop", product="a"),
        SimpleNamespace(problem=Matmul(64, 16, 8), name="b fprop", product="b"),
        SimpleNamespace(problem=Matmul(32, 8, 16), name="c fprop", product="c"),
    ]
    named, directed = problem_tables.layer_names(works), problem_tables.layer_names(works, directions=True)
    problems = Matmul(5, 16, 8), Matmul(5, 8, 16), Matmul(5, 7, 16)
    assert [named(p) for p in problems] == ["a +1", "c", "-"]
    assert [directed(p) for p in problems] == ["a fprop +1", "c fprop", "-"]


def test_only_measured_peaks_give_a_share():
    """50 of 100 GFLOP/s. Without a peak row the best product is the roof, which still grows."""
    flops = product("numpy/blas", 1.0).problem.flops
    rows = [product("numpy/blas", flops / 50e9, threads=1), product("numba/packed", flops / 20e9, threads=1)]
    peak = row("peak/numba/fma", Peak("float32", 10**9), 1e-2, threads=1)
    for seen, share in (([peak, *rows], "50"), (rows, "-")):
        table = problem_tables.Matmuls()
        table._all, table._columns = seen, ["CPU % of roof", "CPU GFLOP/s", "numba packed ms", "numpy ms"]
        cells = table._cells(rows)
        assert cells[:2] == [share, "50.0"] and float(cells[2]) == pytest.approx(2.5 * float(cells[3]), rel=0.02)
