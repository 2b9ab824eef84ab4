"""The Markdown page and its pictures: order, content, the same bytes for the same input, hostile text, errors."""

import re

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import row, square
from legible import boxes
from markdown_it import MarkdownIt
from msgspec.structs import replace
from result_files import write

from analysis import labels, report, table
from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.report import command, material, page, pictures, stored_gpu
from analysis.report.charts import crossover, roofline, svg
from analysis.report.sections import all_numbers, head
from analysis.roofline import __main__ as roofline_command
from analysis.roofline.roofs import roofs_of
from kernels.problems import Launch
from workloads import options, records

_TITLES = "The answer|Where the GPU wins|How far from the hardware's limit|Kernels|Training with Keras"
SECTIONS = tuple(f"## {title}" for title in f"{_TITLES}|How it was measured|All numbers".split("|"))
# Where their rows are there.
MOVEMENT = ("## Memory: how fast", "## Copies between host and GPU", "## Launches and framework constants")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write(folder, fake.whole_run(sizes=(64, 128, 256, 512, 1024)))
    return report.render([folder], with_html=False)


def test_the_page_shows_every_row_in_its_tables(rendered):
    text = rendered.read_text()
    assert rendered.name == "report.md"
    places = [text.index(section) for section in SECTIONS]
    assert places == sorted(places)
    head = text[: text.index("## The answer")]
    told = "nvidia-h200; Intel Xeon Platinum 8480+, 16 cores, NVIDIA H200; 2025-01-02; abc1234; **clean**"
    for piece in (*told.split("; "), "`python -m workloads.suite --quick`"):
        assert piece in head
    answer = text[text.index("## The answer") : text.index("## Where the GPU wins")]
    assert 1 <= answer.count("\n- ") <= 5
    assert all(heading in text for heading in MOVEMENT)
    pictures = {"crossover", "roofline", "rates", "memory", "transfers"}
    assert set(re.findall(r"\]\(([\w-]+)\.svg\)", text)) >= pictures
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    numbers = text[text.index("## All numbers") :]
    every = {m.key: m for m in fake.whole_run(sizes=(64, 128, 256, 512, 1024)).measurements}.values()
    assert numbers.count("\n| ") == 2 + sum(m.status != "skipped" for m in every)
    skipped = re.findall(r"^- \S+: (\d+) rows? skipped \(", numbers, re.MULTILINE)
    assert sum(map(int, skipped)) == sum(m.status == "skipped" for m in every)


def test_the_same_input_gives_the_same_bytes(rendered, tmp_path):
    again = report.render(rendered.parent, tmp_path / "other", with_html=False)
    for path in (*sorted(rendered.parent.glob("*.svg")), rendered):
        assert path.read_bytes() == (again.parent / path.name).read_bytes()
        assert str(tmp_path.parent) not in path.read_text()


def test_pages_of_few_rows_have_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    monkeypatch.setattr(stored_gpu, "STORED", fake.GPU_MACHINE.key)
    write(tmp_path, fake.cpu_run(sizes=(64, 128)))
    text = report.render(tmp_path, with_html=False).read_text()
    assert "No GPU was measured on this machine, Intel Xeon, 2 cores" in text
    assert "with the GPU of" not in text  # its rows tell too little to predict a training
    assert "1 row failed: matmul/numba/parallel, n = 2,048, 2 threads (the worker died)." in text
    assert "failed: the worker died" in text[text.index("## All numbers") :]
    assert not [heading for heading in MOVEMENT if heading in text]
    for rows in (fake.training_rows(), [row("matmul/cupy/cublas", square(64), 1e-5)]):
        write(tmp_path, replace(fake.gpu_run(sizes=(64,)), measurements=tuple(rows)))
        text = report.render(tmp_path, with_html=False).read_text()
        assert text.startswith("# Where the GPU" if len({m.on_gpu for m in rows}) > 1 else "# What was measured: ")
    for rows in ([], [row("matmul/cupy/cublas", square(64), 1e-5)], fake.training_rows()):
        of = material.Material(Analysis.from_rows(rows))
        views = [v for name in pictures.CHARTS for c in pictures.CHARTS[name](of) for v in c.views if not v.bars]
        assert bool(views) == (len(rows) == 1) and crossover.chart(of) == []
        assert all(svg.figure(view, "").axes for view in views)


def test_hostile_names_show_as_text(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    machine = replace(fake.CPU_MACHINE, cpu='<script>alert("x")</script> | a\n# b')
    torn = row("matmul/numpy/blas", square(9), None, status="failed", reason="a | b\n<i>")
    lured = [
        row("matmul/numpy/[a](evil)", square(9), 1e-3, reason="[a](evil)", threads=1),
        row("matmul/numpy/\\](evil)", square(9), None, status="failed", reason="\\](evil)", threads=1),
        row("matmul/numpy/<b>![a][b]", square(9), None, status="skipped", reason="<b>![a][b]\n[b]: evil", threads=1),
    ]
    runs = [replace(fake.run(machine), command=f"{i}\n```\n<script>[a](evil)") for i in range(4)]
    write(tmp_path, replace(fake.cpu_run(), runs=tuple(runs), measurements=(torn, *lured)))
    text = report.render(tmp_path, with_html=False).read_text()
    shown = MarkdownIt().enable("table").render(text)
    assert "evil" in shown and "[a](evil)" in shown and shown.count("&lt;b&gt;") == 2 and "<b>" not in shown
    assert [one for one in re.findall('(?:href|src)="([^"]*)', shown) if one != "#commands"] == []
    text, _, typed = text.rpartition("## Commands")
    assert "<script>" not in text and "&lt;script&gt;" in text and typed.count("```") == 2
    assert "\n# b" not in text
    assert "| failed: a \\| b\\n&lt;i&gt; |" in text


def test_without_matplotlib_the_command_ends_with_3(tmp_path, monkeypatch, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    assert command.main([str(tmp_path)]) == 3
    text = (tmp_path / "report.md").read_text()
    assert "No pictures were drawn: matplotlib is not installed (`python -m pip install matplotlib`)." in text
    assert ".svg" not in text
    error = f"error: the report has no pictures: matplotlib is not installed\n  try: {options.python()} -m pip"
    assert capsys.readouterr().err.startswith(error)
    assert roofline_command.main([str(tmp_path)]) == 3


def test_the_roofline_has_levels_link_and_launch_floor(tmp_path, capsys):
    loaded = fake.whole_run()
    ceilings = roofs_of(loaded.measurements, fake.GPU_MACHINE)
    (chart,) = roofline.chart(list(loaded.measurements), ceilings)
    figure = svg.figure(chart.views[0], chart.title)
    words = " ".join(text for text, _ in boxes(figure))
    on_cpu = "CPU L1 5; CPU L2 20; CPU DRAM 48.; link d2h 52.; empty waited call, 7.0"
    on_gpu = "GPU L2 6; GPU HBM 42; sheet GPU HBM 4800 GB/s; GPU float16 900; GPU float64 65.0; GPU float64 vector 33.0"
    for label in (*on_cpu.split("; "), *on_gpu.split("; ")):
        assert label in words, label
    assert "CPU L3" not in words  # seen with one thread only: below the DRAM of all
    (axes,) = figure.axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    floor = next(line for line in dashed if line.get_color() == svg.COLORS["purple"])
    (x, *_), (y, *_) = floor.get_data()
    n = 6 * x  # a float32 matmul of n does n / 6 FLOP for each byte
    waited = next(r for r in ceilings if r.name == "waited call")
    queued = next(r for r in ceilings if r.name == "queued call")
    assert any(y == pytest.approx(2 * n**3 * r.rate.value, rel=1e-5) for r in (waited, queued))
    write(tmp_path, fake.whole_run(sizes=(64, 512)))
    assert roofline_command.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for words in ("L1 bandwidth", "HBM bandwidth", "link h2d", "launch: waited call", "float64 vector"):
        assert words in out


def test_the_answer_goes_between_the_readmes_markers(tmp_path):
    readme = tmp_path / "README.md"
    other = "<!-- answer: of reports/ab --readme -->\nold\n<!-- /answer -->\n"
    own = "<!-- answer: of reports/a --readme -->\n"
    readme.write_text(f"head\n{other}{own}older\n<!-- /answer -->\ntail\n")
    table.put_blocks(readme, {"answer": ["- One.", "- Two."], "page": ["no"]}, "reports/a/", "")
    assert readme.read_text() == f"head\n{other}{own}- One.\n- Two.\n<!-- /answer -->\ntail\n"
    with pytest.raises(ValueError, match=r"<!-- answer: python -m analysis\.report reports/b --readme"):
        table.put_blocks(readme, {"answer": ["- One."]}, "reports/b", "analysis.report reports/b --readme R")


def test_long_lists_of_rows_and_commands_stand_elsewhere(monkeypatch):
    of = material.Material(Analysis.from_rows(fake.laws(lambda n: 1e-3, lambda n: 1e-3, (8, 16))))
    assert sum(line.startswith("| matmul/") for line in markdown(all_numbers.section([of]))) == 4
    monkeypatch.setattr(all_numbers, "MOST", 3)
    (said,) = (line for line in markdown(all_numbers.section([of])) if "too many" in line)
    assert said.startswith("4 rows") and "python -m analysis.export --to csv RUN" in said

    def page_of(count: int) -> str:
        runs = tuple(fake.run(fake.CPU_MACHINE, f"python -m workloads.matmul --sizes {n}") for n in range(1, count + 1))
        kernel = "matmul/numpy/blas"
        return page.markdown(
            [material.Material(Analysis.from_loaded(records.Loaded(runs, (row(kernel, square(8), 1e-6),), 0, ())))],
            False,
        )

    few, many = page_of(head.INLINE), page_of(head.INLINE + 1)
    assert "Run again with `python -m workloads.matmul --sizes 1`, " in few and "## Commands" not in few
    assert "Run again with 4 commands, [listed at the end](#commands)" in many
    listed = "".join(f"python -m workloads.matmul --sizes {n}\n" for n in (1, 2, 3, 4))
    assert many.endswith(f"## Commands\n\n```\n{listed}```\n")


def test_an_empty_roofline_is_left_out(tmp_path, monkeypatch):
    write(tmp_path, msgspec.structs.replace(fake.gpu_run(), measurements=tuple(fake.transfer_rows())))
    text = report.render([tmp_path], with_html=False).read_text()
    assert not (tmp_path / "roofline.svg").exists() and "roofline.svg" not in text and "](transfers.svg)" in text
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    rows = fake.launch_rows()
    write(tmp_path, msgspec.structs.replace(fake.cpu_run(), measurements=tuple(rows)))
    text = report.render([tmp_path], with_html=False).read_text()
    assert "A time of `step x10 together` is that of all of them." in text and "| empty x64 together |" in text
    assert labels.problem(Launch("empty")) == "empty"
