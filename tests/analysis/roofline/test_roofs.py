"""Roofs, fractions and impossible rates, with numbers worked out by hand."""

import fake_measurements as fake
import msgspec
import pytest
import stored_runs
from fake_measurements import row, square

from analysis.roofline import bounds, data_sheets
from analysis.roofline import roofs as making
from analysis.stats import Estimate, exact
from kernels.problems import Launch, Matmul, Peak, Stream, Training, Transfer
from workloads import records
from workloads.records import Samples, Settings

GFLOP = 10**9
TRIAD = Stream("triad", 240_000_000)  # 10^7 doubles in each array: exactly 240 MB


def peak(rate: float, threads: int | None = 1, math: str = "float32", backend: str = "numba"):
    clocks = {"host-latency": GFLOP / rate} if backend == "numba" else {"device": GFLOP / rate, "host-latency": 1.0}
    return row(f"peak/{backend}/fma", Peak(math, GFLOP), clocks, threads=threads if backend == "numba" else None)


def triad(rate: float, threads: int | None = 1, backend: str = "numba", problem: Stream = TRIAD):
    return row(f"stream/{backend}/loop", problem, problem.bytes_moved / rate, threads=threads)


def find(roofs, kind: str, name: str, device: str = "cpu", threads: int | None = None):
    return bounds.measured_roof(roofs, device, kind, name, threads)


def test_compute_roofs_are_each_thread_counts_peak():
    roofs = making.roofs_of([peak(50e9), peak(60e9), peak(110e9, 2), peak(30e9, 1, "float64")])
    assert find(roofs, "compute", "float32", threads=1).rate.value == pytest.approx(60e9)
    assert find(roofs, "compute", "float32", threads=2).rate.value == pytest.approx(110e9)
    assert find(roofs, "compute", "float32").rate.value == pytest.approx(110e9)
    assert find(roofs, "compute", "float64").rate.value == pytest.approx(30e9)
    assert find(roofs, "compute", "float32", threads=1).source == "peak/numba/fma, float32, 1 thread"
    taken = Samples("host-latency", (0.02, 0.03, 0.01, 0.04, 0.05, 0.05), 1, (3, 3), "2 visits")
    (roof,) = making.roofs_of([msgspec.structs.replace(peak(60e9), samples=(taken,))])
    # the best visit, from the middle to the best
    assert roof.rate == Estimate(GFLOP / 0.02, GFLOP / 0.035, GFLOP / 0.01)
    roofs = making.roofs_of([peak(60e9), peak(400e9, 16)])
    scaled = find(roofs, "compute", "float32", threads=4)
    assert (scaled.rate.value, scaled.note) == (pytest.approx(240e9), "that of 1 thread, scaled")
    assert find(roofs, "compute", "float32", threads=12).rate.value == pytest.approx(400e9)
    amx = row("peak/numba/amx", Peak("bfloat16", GFLOP), GFLOP / 3e12, threads=1)
    (roof,) = making.roofs_of([row("peak/numba/avx512bf16", Peak("bfloat16", GFLOP), GFLOP / 4e11, threads=1), amx])
    assert (roof.name, roof.source) == ("bfloat16", "peak/numba/amx, bfloat16, 1 thread")


def test_a_loaded_rerun_lowers_no_roof(tmp_path):
    """The newer row of a key stands in every table, and a ceiling stays where it was seen before."""
    for i, rate in enumerate((60e9, 25e9)):
        run = msgspec.structs.replace(fake.run(fake.CPU_MACHINE), started_at=f"2026-01-0{i + 1}T00:00:00Z")
        fake.write(tmp_path / str(i) / "peak.jsonl", run, [peak(rate)])
    loaded = records.read(tmp_path)
    assert [GFLOP / m.samples[0].seconds[0] for m in loaded.measurements] == pytest.approx([25e9])
    assert len(loaded.replaced) == 1
    (roof,) = [r for r in making.roofs_of(loaded.every) if r.kind == "compute"]
    assert roof.rate.value == pytest.approx(60e9)


def test_copies_are_judged_by_the_link():
    small = Stream("triad", 24_000)
    rows = [triad(10e9), triad(12e9, 2), triad(90e9, 1, problem=small)]
    roofs = making.roofs_of(rows)
    assert find(roofs, "memory", "DRAM").rate.value == pytest.approx(12e9)
    assert find(roofs, "memory", "DRAM", threads=1).rate.value == pytest.approx(10e9)
    machine = fake.CPU_MACHINE  # its last cache holds 32 MiB
    assert find(making.roofs_of(rows, machine), "memory", "DRAM").floor_bytes == 4 * 32 * 2**20 - 1
    rows = fake.transfer_rows(0.0)
    roofs, pageable = making.roofs_of(rows), ("transfer/cupy/array", Transfer("h2d", 4**15, "pageable"))
    pageable = next(m for m in rows if (m.kernel, m.problem) == pageable)
    assert bounds.judge(pageable, roofs).fraction.value == pytest.approx(11 / 55, rel=1e-2)
    both = row("transfer/cupy/both", Transfer("both", 55_000_000, "pinned"), 2e-3, device="gpu:0")  # 1.0577 ms by d2h
    assert bounds.judge(both, roofs).fraction.value == pytest.approx(55e6 / 52e9 / 2e-3, rel=1e-2)
    beside = row("transfer/cupy/overlap_compute", Transfer("h2d", 2**30, "pinned", "fma", 32), 1e-3, device="gpu:0")
    managed = row("transfer/cupy/managed", Transfer("h2d", 2**30, "managed"), 1e-3, device="gpu:0")
    assert {bounds.judge(m, roofs).note for m in (beside, managed)} == {"no roof measured"}


def test_a_device_copy_reads_and_writes_its_memory():
    """1 GiB read and 1 GiB written at 4 GiB a second take 0.5 s: a quarter of 2 s. Without such a roof nothing is known."""
    roofs = [making.Roof(device="gpu:0", kind="memory", name="HBM", rate=exact(2.0**32), source="a row")]
    copy = row("transfer/cupy/device", Transfer("d2d", 2**30), 2.0, device="gpu:0")
    assert bounds.judge(copy, roofs).fraction.value == pytest.approx(0.25)
    assert bounds.judge(copy, ()).note == "no roof measured"


@pytest.mark.parametrize(
    ("footprint", "threads", "rate"),
    [(10, 1, 9.0), (100, 1, 9.0), (101, 1, 5.0), (700, 1, 5.0), (1001, 1, None), (5001, 1, 1.0), (50, 4, 20.0)],
)
def test_a_working_set_has_its_smallest_level(footprint, threads, rate):
    """Up to 100 bytes in the first cache, 81 to 700 in the second, more than 5,000 in memory."""

    def roof(kind: str, name: str, rate: float, **fields):
        return making.Roof(device="cpu", kind=kind, name=name, rate=exact(rate), source="a row", **fields)

    roofs = [
        roof("cache", "L2", 5.0, threads=1, floor_bytes=80, holds_bytes=700),
        roof("cache", "L1", 9.0, threads=1, holds_bytes=100),
        roof("cache", "L1", 20.0, threads=4, holds_bytes=400),
        roof("memory", "DRAM", 1.0, threads=1, floor_bytes=5000),
        roof("cache", "L1", 99.0, threads=1, holds_bytes=100, measured=False),
    ]
    level = bounds.level_roof(roofs, "cpu", footprint, threads)
    assert (level and level.rate.value) == rate
    assert bounds.level_roof(roofs, "gpu:0", footprint, threads) is None


def test_fractions_ridge_point_and_memory_bound_problems():
    roofs = making.roofs_of([peak(100e9), triad(10e9)])
    assert bounds.ridge(find(roofs, "compute", "float32"), find(roofs, "memory", "DRAM")) == pytest.approx(10.0)
    half = row("matmul/numpy/blas", square(1000), 2e9 / 50e9, threads=1)
    assert bounds.judge(half, roofs).fraction.value == pytest.approx(0.5)
    assert bounds.judge(triad(5e9), roofs).fraction.value == pytest.approx(0.5)
    assert bounds.judge(row("training/keras/fit", Training("m", 1, 1), 1.0, device="cpu"), roofs).fraction is None
    thin = Matmul(10000, 10000, 1)  # 2e8 FLOP, 4.0008e8 bytes: half a FLOP for each byte
    bound = bounds.attainable(roofs, thin, Settings("cpu", threads=1))
    assert bound.roof.kind == "memory" and bound.seconds.value == pytest.approx(0.040008)
    small = row("matmul/numpy/blas", square(8), 1024 / 60e9, threads=1)  # 768 bytes at 45 GB/s, 60 % of the peak
    judged = bounds.judge(small, roofs)
    assert (judged.flag, judged.note) == ("", bounds.NO_CACHE_ROOF) and judged.fraction.value == pytest.approx(0.6)
    assert judged.share == "60.0 % *" and bounds.mark_note([judged]).startswith("* its working set fits a cache")
    cached = bounds.judge(triad(90e9, problem=Stream("triad", 24_000)), roofs)
    assert (cached.fraction, cached.flag, cached.note) == (None, "", bounds.NO_CACHE_ROOF)
    assert cached.share == "-" and bounds.mark_note([cached]) == ""
    roofs = making.roofs_of([peak(100e9)])
    wide = row("matmul/numpy/blas", square(1000), 2e9 / 108e9, threads=1, spread=0.2)
    assert bounds.judge(wide, roofs).fraction.value > 1.02 and bounds.judge(wide, roofs).flag == ""


def test_rates_above_a_data_sheet_are_errors():
    sheet = {r.name: r.rate.value for r in making.sheet_roofs(fake.GPU_MACHINE)}
    assert len(sheet) == 8 and (sheet["float16"], sheet["float64 vector"], sheet["HBM"]) == (989.4e12, 34e12, 4.8e12)
    memory = {name: one.bytes_per_s for name, one in data_sheets.SHEETS.items()}
    assert memory == {"NVIDIA H200": 4.8e12, "NVIDIA H100 80GB HBM3": 3.35e12, "NVIDIA A100-SXM4-80GB": 2.039e12}
    a100 = data_sheets.SHEETS["NVIDIA A100-SXM4-80GB"].flops_per_s
    assert (a100["float16"], a100["tf32"], a100["float32"], a100["float64"]) == (312e12, 156e12, 19.5e12, 19.5e12)
    assert not making.sheet_roofs(fake.CPU_MACHINE) and not making.sheet_roofs(None)
    matmul = row("matmul/cupy/cublas", square(1000, "float16"), {"device": 2e9 / 1500e12, "host-latency": 1.0})
    roofs = making.roofs_of([matmul], fake.GPU_MACHINE)
    assert bounds.judge(matmul, roofs).fraction.value == pytest.approx(1.0)
    assert bounds.quick_judge(matmul, roofs).flag == bounds.judge(matmul, roofs).flag == "above-roof"


@pytest.mark.parametrize("status", ["failed", "wrong", "skipped"])
def test_failed_rows_have_no_roof_and_no_fraction(status):
    bad = row("peak/numba/fma", Peak("float32", GFLOP), 1e-3, threads=1, status=status, reason="x")
    assert making.roofs_of([bad]) == () and bounds.judge(bad, making.roofs_of([peak(1e9)])).fraction is None


LEVELS = fake.stairs((48 * 2**10, 400e9), (2 * 2**20, 150e9), (105 * 2**20, 36e9), last=12e9)


def levels(machine=fake.GPU_MACHINE, sizes=fake.STREAM_SIZES, **fields):
    rows = fake.stream_curve("stream/numba/loop", LEVELS, sizes, **fields)
    return rows, making.roofs_of([*rows, peak(1e12)], machine)


def test_every_plateau_is_a_roof():
    _, roofs = levels()
    kept = {r.name: r for r in roofs if r.kind in ("memory", "cache") and r.measured}
    assert {name: (r.kind, r.rate.value) for name, r in kept.items()} == {
        **{name: ("cache", pytest.approx(rate)) for name, rate in (("L1", 400e9), ("L2", 150e9), ("L3", 36e9))},
        "DRAM": ("memory", pytest.approx(12e9)),
    }
    for name, floor, holds in (("DRAM", 0.95 * 256 * 2**20, 0), ("L1", 0, 0.95 * 128 * 2**10)):
        assert (kept[name].floor_bytes, kept[name].holds_bytes) == pytest.approx((floor, holds), rel=1e-2)
    held = {"L1": (1, 20_000, 70_000), "L2": (500_000, 3 << 20), "L3": (50 << 20,), "DRAM": (1 << 30, 8 << 30)}
    for name, footprints in held.items():
        assert {bounds.level_roof(roofs, "cpu", footprint, 1).name for footprint in footprints} == {name}


def test_cached_passes_make_no_memory_roof():
    """The last cache has 32 MiB, the largest pass 4 MiB; two sizes show no level."""
    rows = [row("stream/numba/loop", Stream("triad", n), n / 1e11, threads=2) for n in (2**20, 2**22)]
    assert making.roofs_of(rows, fake.CPU_MACHINE) == ()


def test_a_warm_row_has_its_levels_roof():
    _, roofs = levels()
    copy = Stream("copy", 16 * 2**10)
    warm = bounds.attainable(roofs, copy, Settings("cpu", threads=1))
    assert (warm.roof.name, warm.seconds.value) == ("L1", pytest.approx(copy.bytes_moved / 400e9))
    cold = bounds.attainable(roofs, copy, Settings("cpu", threads=1, cache="cold"))
    assert (cold.roof.name, cold.seconds.value) == ("DRAM", pytest.approx(copy.bytes_moved / 12e9))
    thin = Matmul(1000, 1000, 1)  # 2 MFLOP, 4.008 MB: half a FLOP a byte, in L3
    bound = bounds.attainable(roofs, thin, Settings("cpu", threads=1))
    assert (bound.roof.name, bound.note) == ("L2", "")  # 4.0 MB lie below L3's first size, where a part is still in L2
    assert bound.seconds.value == pytest.approx(thin.bytes_moved / 150e9)
    _, roofs = levels(sizes=[n for n in fake.STREAM_SIZES if n >= 8 << 20])
    assert {r.name for r in roofs if r.kind in ("cache", "memory") and r.measured} == {"L3", "DRAM"}
    assert bounds.level_roof(roofs, "cpu", 20_000, 1) is None


@pytest.mark.parametrize(("rate", "flag"), [(405e9, ""), (420e9, "above-roof")])
def test_a_row_2_percent_above_its_level_fails(rate, flag):
    _, roofs = levels()
    copy = Stream("copy", 16 * 2**10)
    m = row("stream/numpy/ufunc", copy, copy.bytes_moved / rate, threads=1)
    assert bounds.quick_judge(m, roofs).flag == bounds.judge(m, roofs).flag == flag


def test_the_best_matmul_replaces_a_missing_tensor_peak():
    def matmul(math, rate):
        return row("matmul/cupy/cublas", square(1000, math), {"device": 2e9 / rate, "host-latency": 1.0})

    rows = [
        *fake.tensor_peaks(),
        peak(33e12, math="float64", backend="cupy"),
        matmul("float16", 700e12),
        matmul("bfloat16", 710e12),
        matmul("float64", 60e12),
        matmul("tf32", 500e12),
    ]
    roofs = making.roofs_of(rows)
    compute = {r.name: (r.rate.value, r.note, r.source) for r in roofs if r.kind == "compute"}
    assert compute["float16"] == (pytest.approx(900e12), "", "peak/cupy/wgmma, float16")
    assert compute["float64"] == (pytest.approx(65e12), "", "peak/cupy/tensor, float64")
    assert compute["float64 vector"][0] == pytest.approx(33e12)
    assert compute["bfloat16"][1] == bounds.BEST_MATMUL and len(compute) == 5
    assert bounds.judge(rows[-1], roofs).flag == "above-roof"  # 500 against tensor cores' 450 TFLOP/s: it cannot be
    without = making.roofs_of([m for m in rows if m.variant not in ("tensor", "wgmma")])
    of_float64 = [find(without, "compute", name, "gpu:0").rate.value for name in ("float64", "float64 vector")]
    assert of_float64 == pytest.approx([60e12, 33e12])


@pytest.mark.parametrize(
    ("slowest", "roofs"), [(67.5e12, {"float64": 80e12, "float64 vector": 66e12}), (67e12, {"float64": 66e12})]
)
def test_tensor_cores_need_2_percent_for_a_roof(slowest, roofs):
    """Two of three blocks ran at `slowest`, one at 80 TFLOP/s; the vector's 66 and 2 % are 67.32."""
    tensor = row("peak/cupy/tensor", Peak("float64", GFLOP), None)
    seconds = (GFLOP / slowest, GFLOP / slowest, GFLOP / 80e12)
    tensor = msgspec.structs.replace(tensor, samples=(Samples("device", seconds, 1, (1, 1, 1), "3 visits"),))
    made = making.roofs_of([tensor, peak(66e12, math="float64", backend="cupy")])
    assert {r.name: r.rate.value for r in made} == pytest.approx(roofs)


def test_the_link_bounds_copying_rows_both_directions():
    roofs = making.roofs_of([*fake.transfer_rows(0.0), peak(60e12, backend="cupy")])
    links = {r.name: r.rate.value for r in roofs if r.kind == "link"}
    assert links == {"h2d": pytest.approx(55e9, rel=1e-3), "d2h": pytest.approx(52e9, rel=1e-3)}
    p = square(1000)  # 8 MB in, 4 MB out, 2 GFLOP
    assert (p.operand_bytes, p.result_bytes) == (8_000_000, 4_000_000)
    triad_ = Stream("triad", 240_000_000)
    assert (triad_.operand_bytes, triad_.result_bytes) == (160_000_000, 80_000_000)
    both = 8e6 / 55e9 + 4e6 / 52e9
    bound = bounds.attainable(roofs, p, Settings("gpu:0", mode="roundtrip-pinned"))
    assert (bound.roof.kind, bound.roof.name, bound.seconds.value) == ("link", "h2d", pytest.approx(both, rel=1e-3))
    assert bounds.attainable(roofs, p, Settings("gpu:0")).roof.kind == "compute"
    for factor, flag in ((1.0, ""), (0.9, "above-roof")):
        assert bounds.judge(row("matmul/cupy/cublas", p, factor * both, mode="roundtrip-pinned"), roofs).flag == flag


def test_the_shortest_call_is_the_floor():
    roofs = making.roofs_of([*fake.launch_rows(0.0), peak(60e12, backend="cupy")])
    floors = {r.name: 1 / r.rate.value for r in roofs if r.kind == "launch"}
    assert floors == {making.WAITED: pytest.approx(7e-6), making.QUEUED: pytest.approx(1e-7)}
    waited = row("matmul/cupy/operator", square(64), 14e-6)
    assert bounds.judge(waited, roofs).fraction.value == pytest.approx(0.5)
    assert bounds.judge(waited, roofs).roof.name == making.WAITED
    queued = row("matmul/cupy/cublas", square(64), {"host-latency": 14e-6, "device": 4e-7})
    assert bounds.judge(queued, roofs).fraction.value == pytest.approx(0.25)
    assert bounds.judge(queued, roofs).doubt == ""
    no_kernel = bounds.judge(row("matmul/cupy/operator", square(64), 3e-6), roofs)
    assert (no_kernel.flag, no_kernel.doubt) == ("", bounds.NO_KERNEL)
    assert no_kernel.fraction.value == pytest.approx(7 / 3)
    impossible = row("matmul/cupy/operator", square(1000), 1e-6)  # 2000 TFLOP/s, whatever the call costs
    assert bounds.quick_judge(impossible, roofs).flag == bounds.judge(impossible, roofs).flag == "above-roof"
    assert making.roofs_of([row("launch/numba/njit", Launch("empty"), 1e-7)]) == ()
    flat = [row("launch/cupy/rawkernel", Launch("empty", n), {"device": 5e-6}) for n in (1, 64)]
    assert [r.rate.value for r in making.roofs_of(flat)] == pytest.approx(
        [2e5]
    )  # not the endless one of a slope of 0 s


def test_a_copy_both_directions_has_the_slower_roof():
    """100 MB at 50 GB/s [10, 60] and at 40 GB/s [39, 41]: 2.5 ms."""
    roofs = [
        making.Roof(device="gpu:0", kind="link", name="h2d", rate=Estimate(50e9, 10e9, 60e9), source="a row"),
        making.Roof(device="gpu:0", kind="link", name="d2h", rate=Estimate(40e9, 39e9, 41e9), source="a row"),
    ]
    bound = bounds.attainable(roofs, Transfer("both", 100_000_000, "pinned"), Settings("gpu:0"))
    assert (bound.roof.name, bound.seconds.value) == ("d2h", pytest.approx(2.5e-3))
    one_way = bounds.attainable(roofs, Transfer("h2d", 100_000_000, "pinned"), Settings("gpu:0"))
    assert (one_way.roof.name, one_way.seconds.value) == ("h2d", pytest.approx(2e-3))


@pytest.mark.parametrize(
    ("run", "device", "kind", "name", "threads", "rate"),
    [
        ("gpu", "cpu", "compute", "float32", 1, (1.768e11, 1.757e11, 1.784e11)),
        ("gpu", "cpu", "compute", "float64", 16, (7.055e11, 6.920e11, 7.055e11)),
        ("gpu", "cpu", "memory", "DRAM", 8, (1.177e11, 1.026e11, 1.178e11)),
        ("gpu", "gpu:0", "compute", "bfloat16", None, (6.457e14, 6.433e14, 6.461e14)),
        ("gpu", "gpu:0", "compute", "tf32", None, (3.261e14, 3.247e14, 3.262e14)),
        ("gpu", "gpu:0", "link", "d2h", None, (5.535e10, 5.531e10, 5.538e10)),
        ("gpu", "gpu:0", "memory", "HBM", None, (4.342e12, 4.341e12, 4.343e12)),
        ("cpu", "cpu", "compute", "float32", 2, (2.794e11, 2.778e11, 2.807e11)),
        ("cpu", "cpu", "memory", "DRAM", 2, (2.294e10, 2.271e10, 2.299e10)),
    ],
)
def test_roofs_of_stored_runs_are_known(run, device, kind, name, threads, rate):
    measured = [roof for roof in stored_runs.analysis(run).roofs if roof.measured]
    assert stored_runs.numbers(find(measured, kind, name, device, threads).rate) == stored_runs.near(*rate)
