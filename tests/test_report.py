"""The Markdown page and its pictures: order, content, the same bytes for the same input, hostile text, errors."""

import itertools
import re
import xml.etree.ElementTree

import fake_measurements as fake
import msgspec
import pytest
from fake_measurements import laws, row, square
from test_crossover import cpu_law, gpu_law, only
from test_results_load import write

from analysis import report
from analysis.crossover import crossovers
from analysis.report import cells, choose, command, page, pictures, sections, style
from analysis.roofline import roofs
from workloads import options

SECTIONS = ("## The answer", "## Where the GPU wins", "## How far from the hardware's limit", "## Kernels",
            "## Training with Keras", "## How it was measured", "## All numbers")  # fmt: skip


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write(folder, fake.gpu_run(sizes=(64, 128, 256, 512, 1024)))
    return report.render([folder])


def test_the_page_lies_in_the_runs_folder_in_the_order_that_answers_first(rendered):
    text = rendered.read_text()
    assert rendered.name == "report.md"
    places = [text.index(section) for section in SECTIONS]
    assert places == sorted(places)
    head = text[: text.index("## The answer")]
    for piece in ("nvidia-h200", "Intel Xeon Platinum 8480+, 16 cores, NVIDIA H200", "2025-01-02", "abc1234",
                  "**clean**", "`python -m workloads.suite --quick`"):  # fmt: skip
        assert piece in head
    answer = text[text.index("## The answer") : text.index("## Where the GPU wins")]
    assert 1 <= answer.count("\n- ") <= 5


def test_every_table_is_whole_and_every_row_is_in_all_numbers(rendered):
    text = rendered.read_text()
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    numbers = text[text.index("## All numbers") :]
    every = fake.gpu_run(sizes=(64, 128, 256, 512, 1024)).measurements
    assert numbers.count("\n| ") == 2 + sum(m.status != "skipped" for m in every)
    skipped = re.findall(r"^- \S+: (\d+) rows? skipped \(", numbers, re.MULTILINE)
    assert sum(map(int, skipped)) == sum(m.status == "skipped" for m in every)


def test_pictures_are_linked_well_formed_with_text_as_text(rendered):
    text = rendered.read_text()
    for name in ("crossover.svg", "roofline.svg", "rates.svg"):
        assert f"]({name})" in text
        tree = xml.etree.ElementTree.parse(rendered.parent / name)
        words = " ".join(node.text or "" for node in tree.iter("{http://www.w3.org/2000/svg}text"))
        assert "square matmul" in words
    roofline = (rendered.parent / "roofline.svg").read_text()
    for words in ("CPU DRAM 48.", "GPU float32 60.0 TFLOP/s", "sheet tf32 495 TFLOP/s", "n = 1024"):
        assert words in roofline
    crossover = (rendered.parent / "crossover.svg").read_text()
    for words in ("CPU wins", "GPU wins", "GPU, copies, pinned", "data already on the GPU, one call at a time"):
        assert words in crossover


def test_the_same_input_gives_the_same_bytes_and_no_folder_of_this_machine(rendered, tmp_path):
    again = report.render(rendered.parent, tmp_path / "other")
    for path in (*sorted(rendered.parent.glob("*.svg")), rendered):
        assert path.read_bytes() == (again.parent / path.name).read_bytes()
        assert str(tmp_path.parent) not in path.read_text()


def test_without_a_gpu_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    write(tmp_path, fake.cpu_run(sizes=(64, 128)))
    text = report.render(tmp_path).read_text()
    assert "No GPU was measured on this machine (Intel Xeon, 2 cores)" in text
    assert "1 row failed: matmul/numba/parallel, n = 2048, 2 threads (the worker died)." in text
    assert "failed: the worker died" in text[text.index("## All numbers") :]


def test_a_page_of_anything_less_is_still_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    for rows in ([], fake.training_rows(), [row("matmul/cupy/cublas", square(64), 1e-5)]):
        write(tmp_path, msgspec.structs.replace(fake.gpu_run(sizes=(64,)), measurements=tuple(rows)))
        assert report.render(tmp_path).read_text().startswith("# Where the GPU starts to win")


def test_pictures_of_next_to_nothing_are_still_pictures():
    for rows in ([], [row("matmul/cupy/cublas", square(64), 1e-5)], fake.training_rows()):
        assert pictures.roofline(rows, roofs(rows)).axes
        assert pictures.crossover(crossovers(rows), rows).axes
        assert pictures.rates(rows).axes


def test_hostile_names_show_as_text(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    machine = msgspec.structs.replace(fake.CPU_MACHINE, cpu='<script>alert("x")</script> | a\n# b')
    torn = row("matmul/numpy/blas", square(9), None, status="failed", reason="a | b\n<i>")
    write(tmp_path, msgspec.structs.replace(fake.cpu_run(), runs=(fake.run(machine),), measurements=(torn,)))
    text = report.render(tmp_path).read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "\n# b" not in text
    assert "| failed: a \\| b &lt;i&gt; |" in text


def test_without_matplotlib_the_page_is_written_and_the_command_ends_with_3(tmp_path, monkeypatch, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    monkeypatch.setattr(page, "has_matplotlib", lambda: False)
    assert command.main([str(tmp_path)]) == 3
    text = (tmp_path / "report.md").read_text()
    assert "No pictures were drawn: matplotlib is not installed (`python -m pip install matplotlib`)." in text
    assert ".svg" not in text
    error = capsys.readouterr().err
    assert error.startswith(f"error: report.md has no pictures: matplotlib is not installed\n  try: {options.python()} -m pip")
    assert command.roofline([str(tmp_path)]) == 3


def test_the_commands_print_the_answer_the_roofs_and_their_paths(tmp_path, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    assert command.main([str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "report.md")
    assert command.roofline([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "peak/numba/fma, float32, 2 threads" in out
    assert out.splitlines()[-1] == str(tmp_path / "roofline.svg")


@pytest.mark.parametrize("entry", [command.main, command.roofline])
def test_bad_input_is_one_error_line_and_exit_2(entry, tmp_path, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    other = tmp_path / "other"
    other.mkdir()
    write(other, fake.gpu_run(sizes=(64,)))
    (tmp_path / "file").write_text("")
    for words, message in (([str(tmp_path / "nowhere")], "no result file"),
                           ([str(tmp_path / "0.jsonl"), str(other)], "machines (intel-avx512-2c, nvidia-h200)"),
                           ([str(other), "-o", str(tmp_path / "file" / "x")], "cannot write")):  # fmt: skip
        assert entry(words) == 2
        error = capsys.readouterr().err.splitlines()
        assert len(error) == 2
        assert message in error[0]
        assert error[1].startswith(f"  try: {options.python()} -m ")


def test_the_badge_is_noisy_when_more_than_a_tenth_of_the_rows_are():
    quiet = [row("matmul/numpy/blas", square(n), 1.0) for n in range(1, 10)]
    flagged = row("matmul/numpy/blas", square(10), 1.0, flags=("steal",))
    wide = row("matmul/numpy/blas", square(11), 1.0, spread=0.3)
    assert sections.badge([*quiet, flagged]).startswith("**clean**: 1 of 10 timed rows")
    assert sections.badge([*quiet, flagged, wide]).startswith("**noisy**: 2 of 11 timed rows")


def test_the_why_table_prints_parts_that_add_up():
    from test_crossover import resident_and_copies

    rows = resident_and_copies()
    text = "\n".join(sections.crossover_section(rows, crossovers(rows), pictures=False))
    assert "| 64 | 50.0 us | numpy/blas, 1 thread | 100 us | 5.00 us | 19.0 us | 76.0 us | 0 s |" in text


def test_commands_lose_the_folders_of_the_machine():
    assert cells.portable("python -m workloads.matmul -o /a/b/c --sizes 64 --data=/x/y") == (
        "python -m workloads.matmul -o c --sizes 64 --data=y")  # fmt: skip
    assert cells.portable("python -m analysis.report reports/a/b") == "python -m analysis.report reports/a/b"


def test_bands_touch_each_other_and_turn_at_the_crossing():
    answer = only(laws(cpu_law, gpu_law, [64, 128, 256], spread=0.02))
    at = answer.crossings[0].at
    assert choose.spans(answer) == [(64, at.low, -1), (at.low, at.high, 0), (at.high, 256, 1)]
    flat = only(laws(lambda n: {64: 0.5, 128: 1.0, 256: 2.0}[n], lambda n: 1.0, [64, 128, 256]))
    middles = [(64 * 128) ** 0.5, (128 * 256) ** 0.5]
    assert choose.spans(flat) == [(64, middles[0], -1), (middles[0], middles[1], 0), (middles[1], 256, 1)]


def test_labels_are_moved_apart_and_stay_in_order():
    heights = [0.1, 0.11, 0.12, 0.5, 0.9, 0.91]
    moved = style.spread(heights, 0.04)
    assert moved == sorted(moved)
    assert min(b - a for a, b in itertools.pairwise(moved)) >= 0.04 - 1e-9
    assert moved[3] == 0.5
    assert sum(moved[:3]) == pytest.approx(sum(heights[:3]))


def test_the_answer_goes_between_the_readme_s_markers_and_nothing_else_moves(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("head\n<!-- answer: how -->\nold\n<!-- /answer -->\ntail\n")
    command.put_answer(readme, ["One.", "Two."])
    assert readme.read_text() == "head\n<!-- answer: how -->\n- One.\n- Two.\n<!-- /answer -->\ntail\n"
    readme.write_text("no markers\n")
    with pytest.raises(ValueError, match="has no <!-- answer -->"):
        command.put_answer(readme, ["One."])
