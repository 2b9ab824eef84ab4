"""Several runs or machines on one page: which stand apart, charts over each other, the differences in words, both in Markdown
and pictures; the commands that make a run from nothing."""

import re

import fake_measurements as fake
import msgspec
import pytest
from result_files import folders, slowed

from analysis import report
from analysis.analysis import Analysis
from analysis.report import material
from analysis.report.charts import crossover, overlay
from analysis.report.material import Material
from analysis.report.sections import differences, head

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
