"""The roofline chart: which roof and which point lies where."""

import fake_measurements as fake
import pytest
from fake_layers import conv, law
from fake_measurements import row, square
from fake_roofs import roof
from legible import legible

from analysis import noise
from analysis.report import layers as layers_of_page
from analysis.report.charts import layers as layer_charts
from analysis.report.charts import roofline, svg
from analysis.roofline.roofs import QUEUED, WAITED, roofs_of
from kernels.problems import Matmul


def test_layer_pictures_keep_their_labels_apart():
    loaded = fake.layers_run(batches=(1, 8, 128), maths=("float32", "tf32"))
    ceilings = roofs_of(loaded.measurements, fake.GPU_MACHINE)
    drawn = roofline.chart(list(loaded.measurements), ceilings)
    for op in layers_of_page.HEADINGS:
        drawn += layer_charts.charts(layers_of_page.select(loaded, op, ceilings))
    assert len(drawn) == 1 + 2 * len(layers_of_page.HEADINGS)
    for chart in drawn:
        legible(svg.figure(chart.views[0], chart.title))


def test_layers_lie_at_their_bands_and_points(monkeypatch):
    monkeypatch.setattr(
        noise, "between_runs", lambda *row: noise.Between(share=0.0, source=noise.THIS_MACHINE)
    )  # runs do not differ
    rows = [m for n in (4, 16, 128) for m in law(n)]
    loaded = fake.Loaded((fake.run(fake.GPU_MACHINE),), tuple(rows), 0, ("conv.jsonl",))
    _, chart = layer_charts.charts(layers_of_page.select(loaded, "conv", ()))
    traces = {t.name: t.x for t in chart.views[0].traces}
    forms = {row[chart.numbers.heads.index("a call")]: row for row in chart.numbers.rows}
    column = chart.numbers.heads.index("answer")
    assert "batch 20" in forms["resident on the GPU"][column]
    assert any("batch 80" in row[column] for form, row in forms.items() if form.startswith("copied"))
    low, turn, high = 4, pytest.approx(20), 128
    assert traces["CPU wins"][:2] == [low, turn] and traces["GPU wins"][:2] == [turn, high]
    rows = [m for n in (4, 100) for m in law(n)] + [row("conv/tensorflow/jit", conv(100), 1e-9, device="gpu:0")]
    points = roofline.layer_points(rows)
    assert {(m.problem.n, m.kernel) for m in points} == {(100, "conv/numpy/im2col"), (100, "conv/cudnn/plan")}
    (axes,) = svg.figure(roofline.chart(rows, roofs_of(rows))[0].views[0], "").axes
    drawn = [(float(x), float(y)) for line in axes.lines if line.get_marker() == "^" for x, y in line.get_xydata()]
    p = conv(100)
    assert [x for x, _ in drawn] == pytest.approx([p.flops / p.bytes_moved] * 2, rel=1e-5)
    assert sorted(y for _, y in drawn) == pytest.approx([p.flops / 1e-4, p.flops / 4e-6], rel=1e-5)
    sizes = {device: size for device, _, size in (row.name for row in roofline.layer_rows(points, ()))}
    assert sizes == dict.fromkeys(("cpu", "gpu:0"), "batch 100")


def test_the_best_matmul_is_named_as_a_ceiling():  # 0.1 and 3,355 GFLOP/s
    rows = [row("matmul/cupy/cublas", square(n, "tf32"), {"device": 1e-5, "host-latency": 1e-4}) for n in (8, 256)]
    (view,) = roofline.chart(rows, roofs_of(rows))[0].views
    assert [t.label for t in view.traces if t.label] == ["GPU tf32, best seen 3.36 TFLOP/s"]
    ticks = [t.get_text() for t in svg.figure(view, "").axes[0].get_yticklabels()]
    assert {"0.1 GFLOP/s", "1 TFLOP/s"} <= {*ticks}


def test_roofs_begin_and_end_where_they_cross():
    """100 GFLOP/s: 10 GB/s of memory reach it at 10 FLOP per byte, 20 GB/s of a cache at 5, 50 at 2."""
    roofs = [
        roof("compute", "float32", 100e9, threads=2),
        roof("memory", "DRAM", 10e9, threads=2),
        roof("cache", "L3", 20e9, threads=2),
        roof("cache", "L1", 50e9, threads=1),  # of fewer threads than the memory: no slope
    ]
    made = {t.name: t for t in roofline._roofs(roofs, 0.1, 1000.0, 1e9)}
    assert list(made) == ["CPU L3 bandwidth", "CPU DRAM bandwidth", "CPU float32"]
    ends = {name: (t.x[0], t.y[0], t.x[-1], t.y[-1]) for name, t in made.items()}
    assert ends["CPU L3 bandwidth"] == pytest.approx((0.1, 2e9, 5.0, 100e9))
    assert ends["CPU DRAM bandwidth"] == pytest.approx((0.1, 1e9, 10.0, 100e9))
    assert ends["CPU float32"] == pytest.approx((2.0, 100e9, 1000.0, 100e9))
    assert [(t.color, t.dash, t.label_left) for t in made.values()][:2] == [
        ("blue", "dash", True),
        ("blue", "solid", True),
    ]
    assert made["CPU float32"].says[0] == "CPU float32: 100 GFLOP/s, ridge at 10.0 FLOP per byte"
    assert (made["CPU float32"].label, made["CPU float32"].label_left) == ("CPU float32 100 GFLOP/s", False)


def test_links_data_sheets_and_empty_calls_are_roofs():
    """An empty call of 10 µs leaves a product of n = 60 (intensity 10) 2 x 60^3 FLOP in 10 µs, 43.2 GFLOP/s."""
    gpu = {"device": "gpu:0"}
    roofs = [
        *(roof("compute", name, 1e15, **gpu, measured=False) for name in ("float16", "bfloat16")),
        roof("link", "h2d", 50e9, **gpu),
        roof("link", "d2h", 40e9, **gpu),
        roof("memory", "HBM", 4e12, **gpu),
        roof("launch", WAITED, 1e5, **gpu),
        roof("launch", QUEUED, 1e6, **gpu),
    ]
    made = {t.name: t for t in roofline._roofs(roofs, 0.1, 1000.0, 1e9)}
    assert {"sheet float16, bfloat16", "GPU HBM bandwidth", "link d2h"} <= set(made) and "link h2d" not in made
    assert (made["link d2h"].color, made["link d2h"].dash) == ("sky", "dashdot")
    waited, queued = made[f"empty {WAITED}, 10.0 µs"], made[f"empty {QUEUED}, 1.00 µs"]
    assert (waited.dash, queued.dash, waited.label) == ("dash", "dot", "")
    assert roofline._launch_at(roofs[5], 43.2e9) == pytest.approx(10.0)
    assert waited.y[0] == pytest.approx(2 * (6 * waited.x[0]) ** 3 * 1e5, rel=1e-3)


def test_rates_are_the_fastest_threads():
    """Two sizes on the CPU, the larger with one thread and with four; one on the GPU."""
    rows = [
        row("matmul/numpy/blas", square(64), 2e-3, threads=1),
        row("matmul/numpy/blas", square(64), 1e-3, threads=4),
        row("matmul/numpy/blas", square(32), 0.5e-3, threads=1),
        row("matmul/cupy/cublas", square(64), {"device": 1e-4, "host-latency": 2e-4}),
        row("matmul/numpy/blas", Matmul(8, 16, 32), 1e-9, threads=1),  # no square
    ]
    (made,) = roofline.rates(rows, ())
    (view,) = made.views
    assert [(t.name, t.x, t.hollow) for t in view.traces] == [
        ("CPU numpy/blas", [32, 64], True),
        ("GPU cupy/cublas", [64], False),
    ]
    assert [t.y for t in view.traces] == [[2 * 32**3 / 0.5e-3, 2 * 64**3 / 1e-3], [2 * 64**3 / 1e-4]]
    assert [[*one[:5]] for one in made.numbers.rows] == [
        ["float32", "numpy/blas", "CPU", 32, "1"],
        ["float32", "numpy/blas", "CPU", 64, "4"],
        ["float32", "cupy/cublas", "GPU", 64, "-"],
    ]
    assert "on the CPU (numpy/blas at n = 64)" in view.says and "on the GPU (cupy/cublas at n = 64)" in view.says
