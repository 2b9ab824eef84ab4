"""Result files as a DataFrame: the columns of DESIGN section 4, clocks, absent values, several machines."""

import fake_measurements as fake
import pandas
import pytest
from fake_measurements import row, square
from result_files import write

from analysis.roofline.roofs import roofs_of
from kernels.problems import Matmul, Peak, Stream, Training
from workloads import results

_KEY = "dtype math mode reuse device threads cache switches"
_TIMES = "median_s low_s high_s device_median_s throughput_median_s first_call_s"
_RATES = "flops bytes_moved flops_per_s bytes_per_s roof_fraction joules_per_sample noise status reason flags"
DESIGN = [name for part in (_KEY, _TIMES, _RATES) for name in part.split()]
KERNEL, MATMUL = ["op", "backend", "variant"], ["m", "n", "k", "out", "layout"]


def test_columns_keep_the_documented_order():
    rows = [
        row("matmul/numpy/blas", square(64), 1e-5),
        row("stream/numpy/ufunc", Stream("triad", 2400), 1e-6),
        row("training/keras/fit", Training("m", 32, 320), 1e-3, device="cpu"),
    ]
    assert list(results.frame(rows[:1])) == [*KERNEL, *MATMUL, *DESIGN]
    others = ["operation", "nbytes", "model", "batch", "samples", "epochs"]
    assert list(results.frame(rows)) == [*KERNEL, *MATMUL, *others, *DESIGN]
    assert list(results.frame([])) == [*KERNEL, *DESIGN]


def test_cpu_values_and_gpu_rates_by_hand():
    m = row("matmul/numpy/blas", Matmul(10, 20, 30), 2e-6, threads=2, phases_s={"first_call": 0.5}, flags=("a", "b"))
    r = results.frame([m]).iloc[0]
    assert (r.op, r.backend, r.variant) == ("matmul", "numpy", "blas")
    assert (r.m, r.n, r.k, r.threads, r.flops) == (10, 20, 30, 2, 12000)
    assert r.bytes_moved == (10 * 30 + 30 * 20 + 10 * 20) * 4
    assert (r.median_s, r.low_s, r.high_s, r.noise) == (2e-6, 2e-6, 2e-6, 0)
    assert r.flops_per_s == pytest.approx(6e9) and r.bytes_per_s == pytest.approx(4400 / 2e-6)
    assert (r.first_call_s, r["flags"], r.status) == (0.5, "a b", "ok")
    assert pandas.isna(r.device_median_s) and pandas.isna(r.roof_fraction)
    clocks = {"host-latency": 4e-5, "host-throughput": 2e-5, "device": 1e-5}
    r = results.frame([row("matmul/cupy/cublas", square(100), clocks)]).iloc[0]
    assert (r.median_s, r.throughput_median_s, r.device_median_s) == (4e-5, 2e-5, 1e-5)
    assert r.flops_per_s == pytest.approx(2e6 / 1e-5)
    only_host = results.frame([row("matmul/cupy/operator", square(100), 4e-5)]).iloc[0]
    assert only_host.flops_per_s == pytest.approx(2e6 / 4e-5)


def test_roof_fractions_use_measured_or_given_roofs():
    peak = row("peak/numba/fma", Peak("float32", 10**9), 1e-2, threads=1)
    rows = [peak, row("matmul/numpy/blas", square(1000), 0.04, threads=1)]
    assert results.frame(rows).roof_fraction.tolist() == pytest.approx([1.0, 0.5])
    assert results.frame(rows[1:], roofs_of(rows)).roof_fraction.tolist() == pytest.approx([0.5])
    fast = row("matmul/numpy/blas", square(1000), 0.005, threads=1)
    assert results.frame([*rows, fast])["flags"].tolist() == ["", "", "above-roof"]


@pytest.mark.parametrize("status", ["failed", "skipped", "wrong"])
def test_rows_without_a_time_are_absent_not_zero(status):
    table = results.frame([row("matmul/numpy/blas", square(64), None, status=status, reason='why, "so"')])
    r = table.iloc[0]
    assert (r.status, r.reason) == (status, 'why, "so"')
    absent = ["median_s", "low_s", "flops_per_s", "roof_fraction", "joules_per_sample", "noise", "first_call_s"]
    assert table[absent].isna().all(axis=None)
    assert pandas.isna(r.threads) and table.threads.dtype == "Int64" and table.median_s.dtype == "float64"
    r = results.frame([row("matmul/numpy/blas", square(64), 1e-6, status="wrong")]).iloc[0]
    assert r.median_s == 1e-6 and pandas.isna(r.flops_per_s)


def test_load_reads_files_folders_and_machines(tmp_path):
    run = tmp_path / "2025-01-01"
    run.mkdir()
    write(run, fake.cpu_run(sizes=(64,)))
    for path in (run / "0.jsonl", run, tmp_path):
        table = results.load(path)
        assert len(table) == len(fake.cpu_run(sizes=(64,)).measurements) and "machine" not in table
    assert table[(table.op == "matmul") & (table.variant == "blas")].roof_fraction.notna().all()
    for runs in ([tmp_path, tmp_path / "nowhere"], [tmp_path / "nowhere"]):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            results.load(*runs)


def test_two_machines_have_their_own_roofs(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    runs = [fake.cpu_run(sizes=(64,)), fake.gpu_run(sizes=(64,))]
    for folder, loaded in zip(folders, runs, strict=True):
        folder.mkdir()
        write(folder, loaded)
    table = results.load(*folders)
    assert table.columns[0] == "machine"
    counts = table.machine.value_counts().to_dict()
    assert counts == {"intel-avx512-2c": len(runs[0].measurements), "nvidia-h200": len(runs[1].measurements)}
