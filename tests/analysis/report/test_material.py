"""Several runs or machines on one page: which stand apart, charts over each other, the differences in words, both in Markdown
and pictures; the commands that make a run from nothing."""

import math
import re

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import row, square
from result_files import folders, slowed

from analysis import report
from analysis.analysis import Analysis
from analysis.report import material
from analysis.report.charts import crossover, overlay, svg
from analysis.report.charts.chart import Axis, Chart, Trace, View
from analysis.report.material import Material
from analysis.report.sections import differences, head
from analysis.table import Table
from analysis.text import machines

SIZES = (64, 128, 256, 512, 1024)


def kept(loaded, *ops: str):
    """The rows of these operations alone."""
    return msgspec.structs.replace(loaded, measurements=tuple(m for m in loaded.measurements if m.problem.op in ops))


def with_layers():
    run = fake.gpu_run(sizes=SIZES)
    rows = fake.layer_rows("mnist-cnn", (1, 8), 0.01, ("float32",), ("dense",))
    return msgspec.structs.replace(run, measurements=tuple({m.key: m for m in (*run.measurements, *rows)}.values()))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """(the run folders of a GPU machine, which has layers too, and of a CPU, the page's Markdown)."""
    place = tmp_path_factory.mktemp("two")
    made = folders(place, with_layers(), fake.cpu_run(sizes=SIZES))
    return made, report.render(made, place / "out", with_html=False)


def test_repeated_machines_and_runs_stay_apart(tmp_path):
    whole = fake.gpu_run(sizes=SIZES)
    matmuls, trainings = kept(whole, "matmul", "peak", "stream"), kept(whole, "training", "peak")
    slower = slowed(kept(whole, "matmul"), 1.1)
    first, second, training, cpu = folders(tmp_path, matmuls, slower, trainings, fake.cpu_run(sizes=(64,)))
    expected = [("A", "nvidia-h200"), ("B", "intel-avx512-2c")]
    assert [(m.letter, m.name) for m in material.shown([first, cpu])] == expected
    again_ = material.shown([first, second])
    assert [m.label for m in again_] == [f"A: {tmp_path.name}/run0", f"B: {tmp_path.name}/run1"]
    assert [len(m.rows) for m in again_] == [len(material.shown([p])[0].rows) for p in (first, second)]
    (one,) = material.shown([first, training])  # they have only roofs in common: one run in two folders
    assert one.label == "" and {m.problem.op for m in one.rows} == {"matmul", "peak", "stream", "training"}


def chart(name: str, color: str, marker: str, x: tuple[float, float], **view) -> Chart:
    traces = [Trace(name=name, x=list(x), y=[1.0, 10.0], color=color, marker=marker, dash="solid", says=["a", "b"])]
    one = View(
        label="float32",
        x=Axis(title="n", unit="count", limits=x),
        y=Axis(title="rate", unit="flops", limits=(1.0, 10.0)),
        traces=traces,
        says="It is.",
        **view,
    )
    return Chart(
        name="rates", title="Rates", views=[one], numbers=Table(f"kernel | {name}", [("k", "1")]), picture="rates.svg"
    )


def test_merged_charts_keep_each_runs_marks():
    (made,) = overlay.several(
        [
            ("A", [chart("GPU x", "blue", "square", (1.0, 2.0), lines=[(1.5, "here")])]),
            ("B", [chart("GPU x", "green", "square", (2.0, 8.0))]),
            ("C", [chart("CPU y", "green", "circle", (2.0, 4.0))]),
        ]
    )
    (view,) = made.views
    assert [t.name for t in view.traces] == ["A GPU x", "B GPU x", "C CPU y"]
    assert [t.color for t in view.traces] == ["blue", "blue", "green"]  # the same thing has the same color
    assert len({(t.marker, t.dash) for t in view.traces}) == 3
    assert view.x.limits == (1.0, 8.0) and view.lines == [(1.5, "A: here")]
    assert view.says == "A: It is. B: It is. C: It is." and view.traces[1].says == ["B, a", "B, b"]
    assert made.numbers.heads == ["run", "kernel", "GPU x", "CPU y"]
    assert made.numbers.rows == [["A", "k", "1", "-"], ["B", "k", "1", "-"], ["C", "k", "-", "1"]]
    alone = chart("GPU x", "blue", "square", (1.0, 2.0))
    assert overlay.several([("", [alone])]) == [alone]
    bars = [[chart("work", "blue", "", (1.0, 2.0), bars=True)] for _ in range(2)]
    (made,) = overlay.several([("A", bars[0]), ("B", bars[1])])
    assert [v.label for v in made.views] == ["A: float32", "B: float32"] and made.chooses == "View"
    assert [t.name for v in made.views for t in v.traces] == ["work", "work"]


def test_roofs_reach_the_edge_their_names_stand_at():
    def roof(letter: str, rate: float, x: tuple[float, float]) -> tuple[str, list[Chart]]:
        slope = Trace(name="DRAM", x=list(x), y=[rate * v for v in x], color="blue", label="DRAM", label_left=True)
        level = Trace(name="peak", x=list(x), y=[rate, rate], color="blue", label="peak")
        axes = Axis(title="intensity", unit="1", limits=x), Axis(title="rate", unit="FLOP/s", limits=(0.1, 100.0))
        return letter, [
            Chart(
                name="roofline",
                title="",
                views=[View(label="", x=axes[0], y=axes[1], traces=[slope, level])],
                numbers=Table(""),
            )
        ]

    (made,) = overlay.several([roof("A", 1.0, (1.0, 10.0)), roof("B", 1.01, (0.5, 40.0))])
    traces = {t.name: t for t in made.views[0].traces}
    slope, level = traces["A DRAM"], traces["A peak"]
    assert (slope.x[0], slope.y[0]) == (0.5, pytest.approx(0.5)) and slope.x[-1] == 10.0
    assert (level.x[0], level.x[-1]) == (1.0, 40.0)
    heights = sorted(t.label_at for t in traces.values() if t.label_left)
    assert heights[1] - heights[0] >= 0.0339  # though the roofs are 1 % apart
    assert slope.label == "A DRAM"


def test_the_fastest_of_both_in_words():
    def rows(cpu: float, gpu: float, threads: int, sizes=(64, 128)) -> list:
        made = [row("matmul/numpy/blas", square(n), cpu * n, threads=threads, spread=0.01) for n in sizes]
        return made + [row("matmul/cupy/cublas", square(n), gpu, spread=0.01) for n in sizes]

    old, new = rows(1e-6, 4e-5, 16), rows(2e-6, 1e-5, 2, (64, 128, 256))
    cpu, gpu = machines.best(old, new, ("old", "new"))
    times = r"25\d µs in new, 12\d µs in old; slower \((\S+)x \[\S+ \S+\]\)"
    found = re.match(f"float32, n = 128, fastest on the CPU: {times}.$", cpu)
    assert found and float(found[1]) == pytest.approx(2.0, rel=0.25)
    assert re.search(r"on the GPU: .*; faster \(0\.2[45]\d?x ", gpu)
    same = machines.best(old, rows(1.001e-6, 4e-5, 16), ("old", "new"))
    assert "; same" in same[0] or "; can't tell" in same[0]
    assert machines.best(old, [], ("old", "new")) == []


def test_both_runs_are_in_the_markdown(two):
    text = two[1].read_text()
    assert text.startswith("# Where the GPU starts to win: nvidia-h200 beside intel-avx512-2c\n")
    answer = text[text.index("## The answer") : text.index(f"## {differences.HEADING}")]
    assert "### A: nvidia-h200" in answer and "### B: intel-avx512-2c" in answer
    assert "No GPU was measured on this machine, Intel Xeon, 2 cores" in answer
    words = text[text.index(f"## {differences.HEADING}") : text.index("## Where the GPU wins")]
    for piece in ("fastest on the CPU: ", "- intel-avx512-2c beside nvidia-h200: ", "  - cores: 16 -"):
        assert piece in words
    roofline = text[text.index("## How far from") : text.index("## Kernels")]
    first, second = (roofline.index(f"## How far from the hardware's limit, {letter}: ") for letter in "AB")
    assert roofline.index("](roofline.svg)") < first < second
    for name in re.findall(r"\]\(([\w-]+\.svg)\)", text):
        assert (two[1].parent / name).is_file(), name
    assert "](products.svg)" in text
    numbers = text[text.index("## All numbers") :]
    assert "| run | kernel |" in numbers
    for letter, loaded in (("A", with_layers()), ("B", fake.cpu_run(sizes=SIZES))):
        tried = [m for m in {m.key: m for m in loaded.measurements}.values() if m.status != "skipped"]
        assert numbers.count(f"\n| {letter} | ") == len(tried)


def test_two_cpus_are_drawn_as_merged_charts(tmp_path):
    cpus = [Material(Analysis.from_loaded(fake.cpu_run(sizes=SIZES)), letter, letter) for letter in "AB"]
    (both,) = overlay.several((of.letter, crossover.chart(of)) for of in cpus)
    assert [t.name for t in both.views[0].traces] == ["A CPU, best, float32", "B CPU, best, float32"]
    assert (
        crossover.data(cpus[:1]) == {}
        and crossover.chart(Material(Analysis.from_loaded(fake.cpu_run(sizes=SIZES)))) == []
    )
    made = folders(tmp_path, fake.cpu_run(sizes=SIZES), fake.gpu_run(sizes=SIZES))
    path = report.render(made, tmp_path / "out", with_html=False)
    assert re.search(r"!\[A: No GPU.* B: float32, resident on the GPU.*\]\(crossover\.svg\)", path.read_text())


def test_a_still_draws_every_line_in_its_frame():
    traces = [
        Trace(name=f"line {i}", x=[1.0, 10.0, 100.0], y=[1e9 * (i + 1)] * 3, color="blue", marker="circle")
        for i in range(4)
    ]
    view = View(
        label="",
        x=Axis(title="n", unit="count"),
        y=Axis(title="rate", unit="flops"),
        traces=traces,
        lines=[(30.0, "here")],
    )
    (axes,) = svg.figure(view, "Title", "A: one").axes
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert [line.get_ydata()[0] for line in drawn] == [1e9, 2e9, 3e9, 4e9]
    low, high = axes.get_ylim()
    assert low < 1e9 and high > 4e9 and math.log10(high / low) < 2


def test_the_commands_make_a_run_from_nothing():
    def ran(at: int, command: str):
        return msgspec.structs.replace(fake.run(fake.CPU_MACHINE, command), started_at=f"2025-01-02T03:04:{at:02}Z")

    long = "python -m workloads.matmul --sizes 64 --device gpu -o reports/local/x"
    made = head.commands(
        [
            ran(3, f"{long} --resume --stop-after 25"),
            ran(1, "python -m workloads.matmul --sizes 64 --stop-after=9 --device gpu --resume -o reports/local/x"),
            ran(4, "python -m workloads.matmul --sizes 64 --device cpu --resume -o reports/local/x"),
            ran(5, "python -m workloads.conv --model m --resume -o reports/local/x"),
            ran(6, "python -m workloads.matmul --sizes 128 --resume"),
        ]
    )
    assert made == [
        long,
        "python -m workloads.matmul --sizes 64 --device cpu -o reports/local/x",
        "python -m workloads.conv --model m -o reports/local/x",
        "python -m workloads.matmul --sizes 128",
    ]


def test_a_run_repeats_one_sharing_half_its_rows():
    """Rows of roofs do not count: every command measures them."""

    def loaded(*sizes: int, peaks: int = 0) -> fake.Loaded:
        rows = [fake.row("matmul/numpy/blas", fake.square(n), 1e-3, threads=1) for n in sizes]
        rows += [fake.row("peak/numba/fma", fake.Peak("float32", 10**6 + i), 1e-3, threads=1) for i in range(peaks)]
        return fake.Loaded((), tuple(rows), 0, ())

    assert material._again(loaded(8, 16, 32), loaded(8, 16, 64, 128, 256))
    assert not material._again(loaded(8, 16), loaded(8, 64, 128))
    assert not material._again(loaded(8, peaks=3), loaded(64, peaks=3)) and not material._again(loaded(), loaded())
