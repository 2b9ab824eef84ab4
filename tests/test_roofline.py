"""Roofs, fractions and impossible rates, with numbers worked out by hand."""

import subprocess
import sys

import fake_measurements as fake
import pytest
from fake_measurements import row, square

from analysis import roofline, sheets
from analysis.estimate import Estimate
from kernels.problems import Peak, Stream, Training

GFLOP = 10**9
TRIAD = Stream("triad", 240_000_000)  # 10^7 doubles in each array: exactly 240 MB


def peak(rate: float, threads: int | None = 1, math: str = "float32", backend: str = "numba"):
    clocks = {"host-latency": GFLOP / rate} if backend == "numba" else {"device": GFLOP / rate, "host-latency": 1.0}
    return row(f"peak/{backend}/fma", Peak(math, GFLOP), clocks, threads=threads if backend == "numba" else None)


def triad(rate: float, threads: int | None = 1, backend: str = "numba", problem: Stream = TRIAD):
    return row(f"stream/{backend}/loop", problem, problem.bytes_moved / rate, threads=threads)


def find(roofs, kind: str, name: str, device: str = "cpu", threads: int | None = None):
    return roofline.pick(roofs, device, kind, name, threads)


def test_compute_roofs_are_the_best_peak_of_each_thread_count():
    roofs = roofline.roofs([peak(50e9), peak(60e9), peak(110e9, 2), peak(30e9, 1, "float64")])
    assert find(roofs, "compute", "float32", threads=1).rate.value == pytest.approx(60e9)
    assert find(roofs, "compute", "float32", threads=2).rate.value == pytest.approx(110e9)
    assert find(roofs, "compute", "float32").rate.value == pytest.approx(110e9)
    assert find(roofs, "compute", "float64").rate.value == pytest.approx(30e9)
    assert find(roofs, "compute", "float32", threads=1).source == "peak/numba/fma, float32, 1 thread"


def test_a_thread_count_without_a_peak_gets_the_lowest_that_it_cannot_exceed():
    roofs = roofline.roofs([peak(60e9), peak(400e9, 16)])
    scaled = find(roofs, "compute", "float32", threads=4)
    assert (scaled.rate.value, scaled.note) == (pytest.approx(240e9), "that of 1 thread, scaled")
    assert find(roofs, "compute", "float32", threads=12).rate.value == pytest.approx(400e9)


def test_the_memory_roof_is_the_best_stream_beyond_the_caches():
    small = Stream("triad", 24_000)
    rows = [triad(10e9), triad(12e9, 2), triad(90e9, 1, problem=small)]
    roofs = roofline.roofs(rows)
    assert find(roofs, "memory", "DRAM").rate.value == pytest.approx(12e9)
    assert find(roofs, "memory", "DRAM", threads=1).rate.value == pytest.approx(10e9)
    machine = fake.CPU_MACHINE  # its last cache holds 32 MiB
    assert find(roofline.roofs(rows, machine), "memory", "DRAM").floor_bytes == 4 * 32 * 2**20 - 1


def test_fractions_and_the_ridge_point():
    rows = [peak(100e9), triad(10e9)]
    roofs = roofline.roofs(rows)
    assert roofline.ridge(find(roofs, "compute", "float32"), find(roofs, "memory", "DRAM")) == pytest.approx(10.0)
    half = row("matmul/numpy/blas", square(1000), 2e9 / 50e9, threads=1)
    assert roofline.roof_fraction(half, roofs) == pytest.approx(0.5)
    assert roofline.roof_fraction(triad(5e9), roofs) == pytest.approx(0.5)


def test_a_memory_bound_problem_is_judged_by_memory_once_no_cache_holds_it():
    from kernels.problems import Matmul

    thin = Matmul(10000, 10000, 1)  # 2e8 FLOP, 4.0008e8 bytes: half a FLOP for each byte
    roofs = roofline.roofs([peak(100e9), triad(10e9)])
    bound = roofline.attainable(roofs, thin, "cpu", 1)
    assert bound.roof.kind == "memory"
    assert bound.seconds.value == pytest.approx(0.040008)


def test_a_small_problem_faster_than_memory_is_no_error_but_has_no_cache_roof():
    roofs = roofline.roofs([peak(100e9), triad(10e9)])
    small = row("matmul/numpy/blas", square(8), 1024 / 60e9, threads=1)  # 768 bytes at 45 GB/s, 60 % of the peak
    judged = roofline.judge(small, roofs)
    assert (judged.flag, judged.note) == ("", roofline.NO_CACHE_ROOF)
    assert judged.fraction.value == pytest.approx(0.6)
    cached = roofline.judge(triad(90e9, problem=Stream("triad", 24_000)), roofs)
    assert (cached.fraction, cached.flag, cached.note) == (None, "", roofline.NO_CACHE_ROOF)


@pytest.mark.parametrize(("rate", "flag"), [(99e9, ""), (101.9e9, ""), (102.1e9, "above-roof"), (300e9, "above-roof")])
def test_above_the_roof_by_more_than_2_percent_is_an_error(rate, flag):
    roofs = roofline.roofs([peak(100e9)])
    m = row("matmul/numpy/blas", square(1000), 2e9 / rate, threads=1)
    assert roofline.judge(m, roofs).flag == flag
    assert roofline.is_above(m, roofs) == bool(flag)


def test_above_the_roof_within_the_interval_is_no_error():
    roofs = roofline.roofs([peak(100e9)])
    wide = row("matmul/numpy/blas", square(1000), 2e9 / 104e9, threads=1, spread=0.2)
    assert roofline.judge(wide, roofs).fraction.value > 1.02
    assert roofline.judge(wide, roofs).flag == ""


def test_gpu_rows_are_judged_on_the_device_clock_where_there_is_one():
    roofs = roofline.roofs([peak(60e12, backend="cupy")])
    clocks = {"host-latency": 4e-3, "device": 2e9 / 30e12}
    assert roofline.roof_fraction(row("matmul/cupy/cublas", square(1000), clocks), roofs) == pytest.approx(0.5)
    host = row("matmul/cupy/operator", square(1000), 2e9 / 6e12)
    assert roofline.roof_fraction(host, roofs) == pytest.approx(0.1)


def test_tensor_arithmetic_has_the_best_matmul_as_its_roof_and_says_so():
    n = square(1000, "float16")
    rows = [row("matmul/cupy/cublas", n, {"device": 2e9 / rate, "host-latency": 1.0}) for rate in (500e12, 700e12)]
    roofs = roofline.roofs(rows)
    assert find(roofs, "compute", "float16", "gpu:0").rate.value == pytest.approx(700e12)
    assert find(roofs, "compute", "float16", "gpu:0").note == roofline.BEST_MATMUL
    assert not roofline.roofs([row("matmul/numpy/blas", n, 1e-3)])


def test_float64_tensor_cores_beyond_the_fma_peak_are_a_roof_of_their_own_and_no_error():
    matmul = row("matmul/cupy/cublas", square(1000, "float64"), {"device": 2e9 / 62e12, "host-latency": 1.0})
    roofs = roofline.roofs([peak(33e12, math="float64", backend="cupy"), matmul], fake.GPU_MACHINE)
    assert find(roofs, "compute", "float64", "gpu:0").rate.value == pytest.approx(62e12)
    assert find(roofs, "compute", "float64 vector", "gpu:0").rate.value == pytest.approx(33e12)
    assert roofline.judge(matmul, roofs).flag == ""


def test_faster_than_the_data_sheet_is_an_error_even_for_the_best_matmul_seen():
    matmul = row("matmul/cupy/cublas", square(1000, "float16"), {"device": 2e9 / 1500e12, "host-latency": 1.0})
    roofs = roofline.roofs([matmul], fake.GPU_MACHINE)
    assert roofline.judge(matmul, roofs).fraction.value == pytest.approx(1.0)
    assert roofline.judge(matmul, roofs).flag == "above-roof"
    assert roofline.is_above(matmul, roofs)


def test_data_sheets_are_dense_and_only_for_the_exact_product():
    sheet = {r.name: r.rate.value for r in roofline.sheet_roofs(fake.GPU_MACHINE)}
    assert sheet == {"float64 vector": 34e12, "float64": 67e12, "float32": 67e12, "tf32": 494.7e12, "float16": 989.4e12,
                     "bfloat16": 989.4e12, "HBM": 4.8e12}  # fmt: skip
    assert "NVIDIA H200 NVL" not in sheets.SHEETS
    assert not roofline.sheet_roofs(fake.CPU_MACHINE)
    assert not roofline.sheet_roofs(None)


@pytest.mark.parametrize("status", ["failed", "wrong", "skipped"])
def test_rows_that_are_not_ok_make_no_roof_and_have_no_fraction(status):
    bad = row("peak/numba/fma", Peak("float32", GFLOP), 1e-3, threads=1, status=status, reason="x")
    assert roofline.roofs([bad]) == ()
    assert roofline.judge(bad, roofline.roofs([peak(1e9)])).fraction is None


def test_other_problems_and_devices_without_a_roof_are_tolerated():
    roofs = roofline.roofs([peak(100e9)])
    assert roofline.roof_fraction(row("training/keras/fit", Training("m", 1, 1), 1.0, device="cpu"), roofs) is None
    assert roofline.judge(row("matmul/cupy/cublas", square(64), 1e-5), roofs).note == "no roof measured"
    assert roofline.roof_fraction(row("matmul/numpy/blas", square(64, "float16"), 1e-3), roofs) is None


def test_copying_rows_are_no_roof():
    assert roofline.roofs([row("matmul/cupy/cublas", square(64, "float16"), {"device": 1e-9}, mode="roundtrip")]) == ()


def test_an_estimate_carries_over_from_times_to_the_fraction():
    roofs = roofline.roofs([peak(100e9)])
    judged = roofline.judge(row("matmul/numpy/blas", square(1000), 0.04, threads=1, spread=0.05), roofs)
    assert isinstance(judged.fraction, Estimate)
    assert judged.fraction.low < judged.fraction.value < judged.fraction.high


@pytest.mark.parametrize("module", ["analysis.roofline", "analysis.report"])
def test_help_imports_nothing_heavy(module):
    heavy = ["numpy", "pandas", "scipy", "numba", "cupy", "tensorflow", "keras", "matplotlib", "plotly"]
    code = (f"import runpy, sys; sys.argv = ['x', '--help']\ntry: runpy.run_module('{module}', run_name='__main__')\n"
            f"except SystemExit: print(*[m for m in {heavy} if m in sys.modules], file=sys.stderr)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    assert "RUN" in done.stdout
