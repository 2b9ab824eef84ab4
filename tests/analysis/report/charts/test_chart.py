"""Charts: which point lies where, which trace is whose, what its table says."""

import math
from types import SimpleNamespace

import pytest
from fake_measurements import row, square
from msgspec.structs import astuple

from analysis import labels
from analysis.blocks import markdown
from analysis.crossover import network_steps
from analysis.report import layers
from analysis.report import rows as page_rows
from analysis.report.charts import break_even, chart, ladder, movement, overlay, roofline
from analysis.report.charts import layers as layer_charts
from analysis.report.charts.chart import Axis, Trace, View
from analysis.report.sections import layers as layer_section
from analysis.roofline import memory_levels
from analysis.roofline.roofs import QUEUED, WAITED, Roof
from analysis.stats import Estimate, exact
from analysis.table import Table
from analysis.training.break_even import Pair, Trained, setup_of
from analysis.training.costs import TrainingCost
from kernels.problems import Conv, Matmul, Stream, Training
from workloads.records import Samples


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (None, "never"),
        (Estimate(float("inf"), 3.0, float("inf")), "can't tell (3.00 at the earliest)"),
        (Estimate(float("inf"), 0.0, float("inf")), "can't tell"),
        (Estimate(5.0, 3.0, float("inf")), "5.00 (3.00 or more)"),
        (Estimate(5.0, 3.0, 9.0), "5.00 (3.00..9.00)"),
        (Estimate(0.0, 0.0, 1.0), "0: ahead from the first"),
    ],
)
def test_epochs_to_the_break_even_in_a_chart(epochs, words):
    assert break_even._words(epochs) == words


def test_only_a_wide_interval_is_a_band():
    places = [
        chart.Mark(at=150.0, low=100.0, high=200.0, words="wide"),
        chart.Mark(at=None, low=10.0, high=20.0, words="somewhere"),
        chart.Mark(at=50.0, low=50.0, high=50.5, words="narrow"),
    ]
    made = chart.marked(places)
    assert made["bands"] == [(100.0, 200.0, "wide"), (10.0, 20.0, "somewhere")]
    assert made["lines"] == [(150.0, ""), (50.0, "narrow")]


def test_a_line_has_the_ends_of_its_intervals():
    made = chart.line("x", [(2, Estimate(5.0, 4.0, 7.0)), (3, Estimate(8.0, 6.0, 9.0))], "blue")
    assert (made.x, made.y, made.low, made.high) == ([2.0, 3.0], [5.0, 8.0], [4.0, 6.0], [7.0, 9.0])


def test_each_side_has_its_own_look():
    cpu, gpu = chart.sides([(1, exact(0.2))], [(1, exact(0.1)), (4, exact(0.3))], "batch {}".format)
    assert (cpu.name, cpu.y, cpu.color, cpu.hollow) == ("CPU", [0.2], "blue", True)
    assert (gpu.name, gpu.y, gpu.color, gpu.hollow) == ("GPU", [0.1, 0.3], "vermillion", False)
    assert gpu.says == ["GPU, batch 1: 100 ms", "GPU, batch 4: 300 ms"]


def test_stacked_bars_keep_their_order():
    made = chart.stacked({"copies": [1.0, 3.0], chart.REST: [0.5, 0.25]}, ["CPU", "GPU"], "{} {} {}".format)
    assert [(t.name, t.x, t.y, t.says) for t in made] == [
        ("copies", [1.0, 3.0], ["CPU", "GPU"], ["copies 0 1.0", "copies 1 3.0"]),
        (chart.REST, [0.5, 0.25], ["CPU", "GPU"], [f"{chart.REST} 0 0.5", f"{chart.REST} 1 0.25"]),
    ]
    assert (made[0].color == "gray", made[1].color) == (False, "gray")


def point(n: float, sign: int):
    return SimpleNamespace(n=n, sign=sign)


def test_bands_of_a_picture_touch_at_the_crossings():
    """The CPU up to 10, unsure to 20, the GPU from there; at 100 it can't be told: half way, 63.2, without a crossing."""
    crossing = SimpleNamespace(below=8, above=40, wide=False, at=Estimate(14.0, 10.0, 20.0))
    points = [point(8, -1), point(40, 1), point(100, 0)]
    answer = SimpleNamespace(points=points, crossings=[crossing])
    low, unsure, gpu, last = map(astuple, chart.winner_bands(answer))
    assert (low, unsure) == ((8.0, 10.0, -1), (10.0, 20.0, 0))
    half = pytest.approx(4000**0.5)
    assert (gpu, last) == ((20.0, half, 1), (half, 100, 0))
    assert chart.interval_of(SimpleNamespace(below=8, above=40, wide=True, at=crossing.at)) == (8, 40)
    assert chart.winner_bands(SimpleNamespace(points=[], crossings=[])) == []


def roof(kind: str, name: str, rate: float, device: str = "cpu", **fields) -> Roof:
    return Roof(device=device, kind=kind, name=name, rate=exact(rate), source="a row", **fields)


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


def test_names_beside_lines_are_moved_apart():
    assert overlay._spread([0.1, 0.1, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.05, 0.15, 0.5])
    assert overlay._spread([0.98, 0.99], 0.1, 0.0, 1.0) == pytest.approx([0.9, 1.0])
    assert overlay._spread([0.0, 0.01], 0.1, 0.0, 1.0) == pytest.approx([0.0, 0.1])


def test_a_line_without_a_name_moves_no_name():
    """Two lines end at 10 of 1 to 100, half way up: one has a name, and it stays there; a third has its name on the left."""
    named, bare = (
        Trace(name="a", x=[1.0], y=[10.0], color="blue", label="a"),
        Trace(name="b", x=[1.0], y=[10.0], color="blue"),
    )
    left = Trace(name="c", x=[1.0], y=[10.0], color="blue", label="c", label_left=True)
    assert [t.label_at for t in overlay.named([named, bare, left], 0.0, math.log(100))] == [0.5, 0.0, 0.5]


def test_a_name_has_one_color_in_all_runs():
    def run(color: str) -> list[chart.Chart]:
        view = View(
            label="v",
            x=Axis(title="x", unit="1"),
            y=Axis(title="y", unit="1"),
            traces=[Trace(name="CPU", x=[1.0], y=[2.0], color=color)],
        )
        return [chart.Chart(name="rates", title="Rates", views=[view], numbers=Table("n", [("8",)]))]

    (made,) = overlay.several([("A", run("blue")), ("B", run("red"))])
    assert [(t.name, t.color) for t in made.views[0].traces] == [("A CPU", "blue"), ("B CPU", "blue")]
    assert (made.numbers.heads, made.numbers.rows) == (["run", "n"], [["A", "8"], ["B", "8"]])
    (alone,) = overlay.several([("", run("red"))])
    assert alone.views == run("red")[0].views


def test_two_runs_in_one_view_have_one_axis():
    def view(letter: str, color: str, ends: tuple[float, float]) -> View:
        trace = Trace(name=f"{letter} CPU", x=[1.0], y=[2.0], color=color)
        axis = Axis(title="x", unit="1", limits=ends, lines=(letter,))
        return View(
            label="v",
            x=axis,
            y=Axis(title="y", unit="1"),
            traces=[trace],
            says=f"{letter} says",
            lines=[(1.0, letter)],
            bands=[(1.0, 2.0, letter)],
        )

    made = overlay.over(view("A", "blue", (2.0, 5.0)), view("B", "red", (1.0, 4.0)))
    assert (made.x.limits, made.x.lines, made.y.limits) == ((1.0, 5.0), ("A", "B"), None)
    assert [t.name for t in made.traces] == ["A CPU", "B CPU"]
    assert (made.says, made.lines, made.bands) == (
        "A says B says",
        [(1.0, "A"), (1.0, "B")],
        [(1.0, 2.0, "A"), (1.0, 2.0, "B")],
    )


def test_a_range_shown_by_one_run_is_dropped():
    whole, part = Axis(title="x", unit="1"), Axis(title="x", unit="1", limits=(2.0, 5.0))
    for first, second in ((whole, part), (part, whole)):
        made = overlay.over(
            View(label="v", x=first, y=first, traces=[]), View(label="v", x=second, y=second, traces=[])
        )
        assert (made.x.limits, made.y.limits) == (None, None)


def test_a_roof_reaches_its_name():
    """A slope of 2 a unit down to 4, a level line on to 50."""
    slope = Trace(name="a", x=[10.0, 100.0], y=[20.0, 200.0], color="blue", label="a", label_left=True)
    level = Trace(name="b", x=[10.0, 20.0], y=[7.0, 7.0], color="blue", label="b", label_left=False)
    assert overlay._reaching(slope, (0.5, 50.0), 4.0).x[0] == pytest.approx(2.0)
    assert overlay._reaching(slope, (0.5, 50.0), 4.0).y[0] == pytest.approx(4.0)
    assert overlay._reaching(slope, (5.0, 50.0), 4.0).y[0] == pytest.approx(10.0)
    longer = overlay._reaching(level, (0.5, 50.0), 4.0)
    assert (longer.x, longer.y) == ([10.0, 50.0], [7.0, 7.0])


def test_a_further_run_has_markers_and_a_letter():
    trace = Trace(name="CPU", x=[1.0], y=[2.0], color="blue", marker="circle", dash="dot", label="peak", says=["1 s"])
    view = View(label="v", x=Axis(title="x", unit="1"), y=Axis(title="y", unit="1"), traces=[trace])
    first, second, third = (overlay._styled(trace, i, letter, view) for i, letter in enumerate("ABC"))
    assert (first.name, first.marker, first.dash, first.label, first.says) == (
        "A CPU",
        "circle",
        "dot",
        "A peak",
        ["A, 1 s"],
    )
    assert [(t.marker, t.dash) for t in (second, third)] == [("x", "longdash"), ("pentagon", "longdashdot")]


def law(direction: str, memory: str, kernel: str):
    return SimpleNamespace(direction=direction, host_memory=memory, kernel=f"transfer/{kernel}")


def key(device: str, threads: int | None, operation: str) -> memory_levels.Key:
    return memory_levels.Key(device=device, threads=threads, operation=operation)


def test_copies_that_behave_alike_are_drawn_once():
    laws = [
        law("h2d", "pinned", "cupy/memcpy_async"),
        law("h2d", "pinned", "cupy/array"),
        law("h2d", "registered", "cupy/memcpy_async"),
        law("d2h", "registered", "cupy/memcpy_async"),
        law("h2d", "pageable", "cupy/asarray"),
        law("h2d", "pageable", "cupy/array"),
        law("h2d", "pageable", "tensorflow/constant"),
    ]
    assert movement._drawn_laws(laws) == [laws[i] for i in (0, 3, 4, 5, 6)]
    assert movement._where("gpu:0", [key("gpu:0", None, "triad"), key("cpu", 1, "triad")]) == "GPU"
    both = [key("gpu:0", None, "triad"), key("gpu:1", None, "triad")]
    assert [movement._where(device, both) for device in ("gpu:1", "cpu")] == ["GPU 1", "CPU"]


def test_memory_is_drawn_by_its_most_measured_operation():
    """Of each device the fewest and the most threads; a curve of less than four sizes is none."""

    def rows(operation: str, count: int, threads: int) -> list:
        sizes = [2**20 * 2**i for i in range(count)]
        return [row("stream/numba/loop", Stream(operation, n), n / 1e10, threads=threads) for n in sizes]

    one = [*rows("copy", 5, 1), *rows("triad", 5, 1), *rows("read", 5, 1)]
    two = rows("triad", 6, 2)
    four = [*rows("triad", 4, 4), *rows("read", 5, 4), *rows("copy", 5, 4)]
    eight = rows("triad", 3, 8)
    assert list(movement._shown_curves([*one, *two, *four, *eight])) == [key("cpu", 1, "triad"), key("cpu", 4, "copy")]


def test_a_rows_distribution_is_limited_rising_quantiles():
    """Five visits: their range. Of five samples three: the least, the third, the largest."""
    taken = Samples("device", (5e-3, 1e-3, 3e-3, 2e-3, 4e-3), 7, (1,) * 5, "5 visits")
    clock = page_rows._clock(taken, " in 9 s", 3)
    assert clock == {
        "median_s": 3e-3,
        "low_s": 1e-3,
        "high_s": 5e-3,
        "samples": 5,
        "calls": 7,
        "stopped": "5 visits in 9 s",
        "quantiles_s": [1e-3, 3e-3, 5e-3],
    }


@pytest.mark.parametrize(
    ("problem", "label", "shape"),
    [
        (Matmul(8, 16, 32), "Nx16x32", "Nx16x32"),
        (Matmul(16, 32, 8, layout="tn"), "16x32xN tn", "16x32xN tn"),
        (Conv(4, 9, 7, 3, 5, 3, 2, pad="same"), "9x7x3:5x3x2 fprop", "9x7x3:5x3x2"),
        (
            Conv(4, 9, 7, 3, 5, 3, 2, stride=2, pad="same", direction="wgrad"),
            "9x7x3:5x3x2 (stride 2) wgrad",
            "9x7x3:5x3x2 (stride 2)",
        ),
    ],
)
def test_a_layers_name_omits_the_batch(problem, label, shape):
    one = layers.Layers(op=problem.op)
    named = layers.Layers(op=problem.op, names={problem: "conv2"})
    assert (one.label(problem), one.shape(problem)) == (label, shape)
    direction = {"nn": "fprop", "tn": "wgrad"}.get(getattr(problem, "layout", ""), problem.direction)
    assert named.label(problem) == f"conv2 {direction}"


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


def cells_of(lines: list[str], start: str) -> list[list[str]]:
    """The cells of the lines of a Markdown table that begin so."""
    rows = []
    for line in lines:
        if line.startswith(start):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_each_side_is_a_column_of_steps():
    total = network_steps.Total(
        batch=8,
        math="float32",
        works=2,
        directions=("fprop", "wgrad"),
        flops=3_000_000_000,
        seconds={"CPU": 2e-3, "tensorflow CPU": 4e-3},
    )
    none = network_steps.Total(batch=16, math="float32", works=2, directions=("fprop",), flops=1, seconds={})
    of = layers.Layers(op="conv", totals=(("lenet", total), ("lenet", none)))
    lines = markdown(layer_section._totals_table(of))
    cells = cells_of(lines, "|")
    assert cells[0] == ["network", "precision", "batch", "directions", "convolutions", "GFLOP", "CPU", "tensorflow CPU"]
    assert cells[2:] == [["lenet", "float32", "8", "fprop wgrad", "2", "3.00", "2.00 ms", "4.00 ms"]]
    assert lines[0].startswith("All of them in one step")
    assert layer_section._totals_table(layers.Layers(op="conv", totals=(("lenet", none),))) == []


def test_a_training_is_won_by_fewer_seconds():
    """By the epoch the GPU is quicker, by the whole training it starts too late."""
    seconds = {
        "epoch": (exact(3.0), exact(1.0)),
        "job": (exact(5.0), exact(9.0)),
        "near": (Estimate(1.0, 0.5, 2.0), exact(1.0)),
    }
    pair = SimpleNamespace(seconds=lambda by, varies: seconds[by] if varies == "samples" else None)
    assert [break_even._wins(pair, by) for by in seconds] == ["yes", "no", "can't tell"]


def test_the_ladder_with_most_rungs_is_first(monkeypatch):
    views = {
        rungs: View(
            label=str(rungs),
            x=Axis(title="x", unit="1", lines=("a",) * (9 - rungs)),
            y=Axis(title="y", unit="text", lines=("r",) * rungs),
            traces=[],
        )
        for rungs in (2, 5, 3)
    }
    monkeypatch.setattr(ladder, "_view", lambda one, problem: views[one])
    monkeypatch.setattr(ladder.ladder, "shown_problem", lambda one: None)
    monkeypatch.setattr(ladder.ladder, "title", str)
    monkeypatch.setattr(ladder.ladder, "numbers", lambda one: [])
    (made,) = ladder.ladder_chart((2, 5, 3), "matmul")
    assert [view.label for view in made.views] == ["5", "3", "2"]
    assert ladder.ladder_chart((), "matmul") == []


def test_break_evens_show_the_likeliest_seconds():
    """The CPU begins after 2 s [1, 9] with epochs of 3 s [1, 8], the GPU after 6 s with epochs of 1 s: 4 / 2 epochs."""
    cpu = TrainingCost(
        dataset_setup=exact(0.0),
        epoch=Estimate(3.0, 1.0, 8.0),
        step=exact(0.0),
        start=Estimate(2.0, 1.0, 9.0),
        steps=10,
    )
    gpu = TrainingCost(dataset_setup=exact(0.0), epoch=exact(1.0), step=exact(0.0), start=exact(6.0), steps=10)
    setup = setup_of(row("training/keras/fit", Training("lenet", 32, 320), 1e-3))
    rows_of = [
        row("training/keras/fit", Training("lenet", 32, 320), 1e-3, device=device) for device in ("cpu", "gpu:0")
    ]
    pair = Pair(setup=setup, gpu=Trained(row=rows_of[1], cost=gpu), cpus=(Trained(row=rows_of[0], cost=cpu),))
    (made,) = break_even.break_even([pair])
    assert made.numbers.rows[0][1:5] == ["2.00 s", "6.00 s", "3.00 s", "1.00 s"]
    on_cpu, on_gpu = made.views[0].traces
    assert (on_cpu.x[0], on_cpu.y[0], on_gpu.y[0]) == (1.0, 5.0, 7.0)


def test_cold_rows_stand_beside_warm_of_their_framework():
    problem = Conv(4, 9, 7, 3, 5, 3, 2)
    rows_of = [
        row("conv/numpy/im2col", problem, 1e-3, threads=1),
        row("conv/numpy/im2col", problem, 4e-3, threads=1, cache="cold"),
        row("conv/tensorflow/function", problem, 2e-3),
        row("conv/tensorflow/function", problem, 40e-3, cache="cold"),
    ]
    convolutions = layers.Layers(op="conv", rows=tuple(rows_of))
    tables = layer_section._framework_slowdowns(convolutions) + layer_section._cold_slowdowns(convolutions)
    lines = markdown(tables)
    cells = cells_of(lines, "| cpu")
    assert [(one[2], one[5]) for one in cells] == [
        ("tensorflow/function", "2.00"),
        ("numpy/im2col", "4.00"),
        ("tensorflow/function", "20.0"),
    ]


@pytest.mark.parametrize(("name", "words"), [("gpu:3", "GPU 3"), ("gpu:0", "GPU 0"), ("cpu", "CPU")])
def test_a_device_shows_its_number_if_any(name, words):
    assert labels.numbered(name) == words


def test_a_layers_roof_is_its_fastest_library_rows():
    """100 GFLOP/s on the CPU, whatever a framework reaches; a device without a roof has none."""
    problem = Conv(4, 9, 7, 3, 5, 3, 2)
    roofs = [roof("compute", "float32", 100e9)]
    of = layers.Layers(op="conv", roofs=roofs)
    library = row("conv/numpy/im2col", problem, 1e-3, threads=1)
    framework = row("conv/tensorflow/function", problem, 1e-6)
    on_gpu = row("conv/cudnn/plan", problem, 1e-4, device="gpu:0")
    assert layer_charts._roofs_over([framework, library, on_gpu], of) == {"CPU": pytest.approx(100e9, rel=1e-3)}
    assert layer_charts._roofs_over([framework, on_gpu], of) == {}
