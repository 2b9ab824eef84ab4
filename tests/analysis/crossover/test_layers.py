"""What rows of layers say together: ratios worked out by hand, names of layers, sums over a step, and their part of the page."""

import fake_measurements as fake
import msgspec
import pytest
from fake_layers import conv
from fake_measurements import row

from analysis.crossover import families, layers
from kernels.problems import Conv, Matmul, Peak
from workloads import printing
from workloads.tables import problem_tables


def cold(m):
    return msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, cache="cold"))


def test_a_framework_and_cold_caches_beside_the_library():
    rows = [
        row("conv/numpy/im2col", conv(), 2e-3, threads=1),
        row("conv/numpy/im2col", conv(), 1e-3, threads=2),
        row("conv/tensorflow/function", conv(), 3e-3),
        row("conv/tensorflow/held", conv(), 5e-4),
        row("conv/cudnn/plan", conv(), {"host-latency": 5e-5, "device": 1e-6}, device="gpu:0"),
        row("conv/tensorflow/function", conv(), 2e-4, device="gpu:0"),
        row("conv/tensorflow/function", conv(64), 9.0),
        cold(row("conv/tensorflow/function", conv(), 9.0)),
    ]
    found = layers.against_library(rows, "conv")
    assert sorted((m.settings.device, m.variant, ratio) for m, _, ratio in found) == [
        ("cpu", "function", pytest.approx(3)),
        ("cpu", "held", pytest.approx(0.5)),
        ("gpu:0", "function", pytest.approx(4)),
    ]
    assert layers.spread([3.0, 1.0, 8.0]) == layers.Spread(3.0, 1.0, 8.0, 3)
    assert layers.spread([3.0, 1.0, 8.0]).words() == "3.00 (1.00 to 8.00)"
    assert layers.spread([2.0]).words() == "2.00" and layers.spread([]) is None
    rows = [
        row("conv/numpy/im2col", conv(), 1e-3, threads=2),
        row("conv/numpy/im2col", conv(), 2e-3, threads=1),
        cold(row("conv/numpy/im2col", conv(), 9e-3, threads=2)),
        cold(row("conv/numpy/im2col", conv(), 3e-3, threads=1)),
        cold(row("conv/numpy/im2col", conv(64), 1e-3, threads=1)),
    ]
    ((m, base, ratio),) = layers.cold_and_warm(rows, "conv")
    assert (m.settings.threads, base.settings.threads, ratio) == (1, 2, pytest.approx(3))


def test_less_precision_is_compared_within_a_backend():
    """8 and 16 channels: multiples of 8; 3 of them: of neither. tf32 is 4 and 1.5 times as fast."""
    rows = []
    for fields, gain in (({}, 4), ({"c_in": 3}, 1.5)):
        for math, factor in (("float32", 1), ("tf32", gain)):
            p = conv(math=math, **fields)
            rows.append(row("conv/cudnn/plan", p, {"device": 1e-3 / factor, "host-latency": 1.0}, device="gpu:0"))
            rows.append(row("conv/cudnn/plan", msgspec.structs.replace(p, n=8), {"device": 1e-9}, device="gpu:0"))
    found = layers.arithmetic(rows, "conv")
    assert [(a.math, a.alignment, a.rate.problems, a.speedup and a.speedup.median) for a in found] == [
        ("float32", 8, 1, None),
        ("float32", 1, 1, None),
        ("tf32", 8, 1, pytest.approx(4)),
        ("tf32", 1, 1, pytest.approx(1.5)),
    ]
    assert found[0].rate.median == pytest.approx(conv().flops / 1e-3)  # the smaller batch is left out
    # float32 was not measured there
    larger = row("conv/cudnn/plan", conv(256, math="tf32"), {"device": 1e-9}, device="gpu:0")
    assert layers.arithmetic([*rows, larger], "conv") == found


def test_roof_columns_need_a_roof(capsys, monkeypatch):
    for rows, there in (([], False), ([row("peak/numba/fma", Peak("float32", 10**9), 1e-2, threads=1)], True)):
        table = problem_tables.Convs(fake.CPU_MACHINE)
        for m in (*rows, row("conv/numpy/im2col", conv(), 1e-3, threads=1)):
            table.add(m)
        table.finish()
        assert ("CPU % of roof" in capsys.readouterr().out) is there
    table, peak = printing.Lines(), Peak("float32", 10**9)
    for fields in ({}, {"status": "failed", "reason": "it died"}):
        table.add(row("peak/numba/fma", peak, 1e-2 if not fields else None, threads=2, **fields))
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[-2:] == ["100", "GFLOP/s"] and second.split()[-3:] == ["failed", "it", "died"]
    monkeypatch.setenv("COLUMNS", "80")
    table = problem_tables.Matmuls(fake.CPU_MACHINE)
    table.add(row("peak/numba/fma", peak, 1e-2, threads=1))
    for kernel, seconds in (("numpy/operator", 1e-5), ("numba/parallel", 1e-4), ("numba/simd", 2e-5)):
        table.add(row(f"matmul/{kernel}", Matmul(64, 64, 64), seconds, threads=1))
    table.finish()
    assert capsys.readouterr().out.endswith("  numpy/operator x1\n")


def test_batched_tensorflow_calls_stand_for_no_side():
    p = Conv(2, 8, 8, 4, 4, 3, 3)
    rows = [row(f"conv/{backend}/held", p, 1e-3) for backend in ("numba", "tensorflow")]
    sides = [families.comparable(rows, "conv", framework) for framework in ("", "tensorflow")]
    assert [[m.kernel for m in side] for side in sides] == [["conv/numba/held"], []]
    assert set(layers.best_by_side(rows, "conv")[p]) == {"numba"}


def product(kernel: str, m: int, seconds: float, math: str = "float32", **fields):
    problem = Matmul(m, 24, 40, {"float32": "float32", "bfloat16": "bfloat16"}[math], math)
    return row(f"matmul/{kernel}", problem, seconds, **fields)


def test_frameworks_and_cold_caches_are_compared_by_size():
    """At 8 rows 6 ms of the framework against 2 ms of the better library, at 16 rows 5 against 2.5; cold 9 against 3."""
    rows = [
        product("numpy/blas", 8, 3e-3, threads=1),
        product("numpy/blas", 8, 2e-3, threads=4),
        product("numba/packed", 8, 4e-3, threads=1),
        product("tensorflow/function", 8, 6e-3),
        product("numpy/blas", 16, 2.5e-3, threads=1),
        product("tensorflow/function", 16, 5e-3),
        product("tensorflow/function", 32, 1.0),  # no library
        product("numba/packed", 16, 3e-3, threads=1),
        product("numba/packed", 16, 9e-3, threads=1, cache="cold"),
        product("numpy/blas", 16, 9e-3, threads=1, status="failed", cache="cold"),
    ]
    beside = layers.against_library(rows, "matmul")
    assert [(m.problem.m, base.kernel, ratio) for m, base, ratio in beside] == [
        (8, "matmul/numpy/blas", pytest.approx(3.0)),
        (16, "matmul/numpy/blas", pytest.approx(2.0)),
    ]
    (cold,) = layers.cold_and_warm(rows, "matmul")
    assert (cold[0].settings.cache, cold[1].settings.cache, cold[2]) == ("cold", "warm", pytest.approx(3.0))
    by_size = layers.by_size([*beside, (beside[0][0], beside[0][1], 5.0)])
    assert {key[3:5]: (s.median, s.least, s.most, s.problems) for key, s in by_size.items()} == {
        ("matmul/tensorflow/function", 8): pytest.approx((4.0, 3.0, 5.0, 2)),
        ("matmul/tensorflow/function", 16): pytest.approx((2.0, 2.0, 2.0, 1)),
    }


def test_less_precision_is_compared_at_the_largest_batch():
    """Of 8, 16 and 32 rows in float32 and 8 and 16 in bfloat16 it is 16: 4 ms against 1 ms."""
    rows = [product("numba/amx", m, 0.25e-3 * m) for m in (8, 16, 32)]
    rows += [product("numba/amx", m, m / 16 * 1e-3, "bfloat16") for m in (8, 16)]
    plain, less = layers.arithmetic(rows, "matmul")
    assert (plain.math, less.math, plain.alignment) == ("float32", "bfloat16", 8)
    flops = 2 * 16 * 24 * 40
    assert (plain.rate.median, less.rate.median) == pytest.approx((flops / 4e-3, flops / 1e-3))
    assert (plain.speedup, less.speedup.median, less.rate.problems) == (None, pytest.approx(4.0), 1)
    assert layers.largest(rows, "matmul") == [rows[2], rows[4]]
    assert layers.largest(rows[::-1], "matmul") == [rows[4], rows[2]]


def test_a_spread_is_the_median_with_its_ends():
    assert layers.spread([4.0, 1.0, 2.0, 9.0]) == layers.Spread(3.0, 1.0, 9.0, 4)
    assert layers.spread([4.0, 1.0, 2.0]).words() == "2.00 (1.00 to 4.00)" and layers.spread([2.0]).words() == "2.00"
    assert (
        layers.spread([]) is None and layers.aligned(8) == "multiples of 8" and layers.aligned(1).startswith("not all")
    )
