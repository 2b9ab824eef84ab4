"""What the HTML page is made of, without a browser: its parts, its tables' texts, its data, its size, several machines in one."""

import json
import re

import fake_measurements as fake
import fake_trainings
import msgspec
import pytest
from result_files import write

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.crossover import reuse
from analysis.crossover.forms import LATENCY
from analysis.predict import budget
from analysis.report import calculator, command, html, html_page, page, rows
from analysis.report.charts import break_even as break_even_chart
from analysis.report.charts import crossover, training
from analysis.report.material import Material
from analysis.report.sections import step_budgets
from analysis.text import questions
from analysis.training import costs

SIZES = (64, 128, 256, 512, 1024)


@pytest.fixture(scope="module")
def of():
    loaded = fake.whole_run(sizes=SIZES)
    more = (*fake_trainings.batches(), *fake_trainings.small_data())
    return Material(Analysis.from_loaded(msgspec.structs.replace(loaded, measurements=(*loaded.measurements, *more))))


@pytest.fixture(scope="module")
def text(of, tmp_path_factory):
    return html.write([of], tmp_path_factory.mktemp("html") / "report.html", None).read_text()


def embedded(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_sections_are_ordered_and_the_page_is_small(text):
    found = re.findall(r'<section id="([\w-]+)"', text)
    shown = "answer crossover roofline kernels memory transfers launches training small-data"
    wanted = [*shown.split(), "calculator", "distributions", "numbers", "method", "questions"]
    assert [name for name in found if name in wanted] == wanted
    assert re.findall(r'<li><a href="#([\w-]+)">', text) == found
    head = text[: text.index('<section id="answer"')]
    told = "nvidia-h200; 16 cores, NVIDIA H200; 2025-01-02; abc1234; python -m workloads.suite --quick"
    for piece in (*told.split("; "), 'class="badge clean"'):
        assert piece in head
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text and len(text) < 6e6


def test_the_data_hold_every_row_with_50_quantiles(text, of):
    found = embedded(text)["rows"]
    assert len(found["cells"]) == len(found["records"]) == len(of.rows)
    assert all(len(cells) == len(found["heads"]) for cells in found["cells"])
    for record in found["records"]:
        assert sum(len(c["quantiles_s"]) for c in record.get("clocks", {}).values()) <= rows.QUANTILES
    clock = next(iter(next(r for r in found["records"] if r.get("clocks"))["clocks"].values()))
    assert clock["quantiles_s"] == sorted(clock["quantiles_s"])
    assert clock["quantiles_s"][0] <= clock["median_s"] <= clock["quantiles_s"][-1]


def test_data_in_the_page_end_no_script():
    hostile = {"</script><!--": ["<b>&\u2028'\""]}
    made = html_page.as_json(hostile)
    assert not set("<>&\u2028") & set(made) and json.loads(made) == hostile


def test_the_exported_crossover_has_every_use(of):
    first = crossover.data([of])["runs"][0]["precisions"][0]
    assert first["precision"] == "float32"
    copied = next(f for f in first["forms"] if f["form"] == "copied, asarray and asnumpy")
    assert [u["k"] for u in copied["uses"]] == list(reuse.USES)
    for n, _, *parts in copied["parts"]:
        gpu = copied["uses"][0]["s"][copied["uses"][0]["n"].index(n)]
        assert sum(p or 0 for p in parts) == pytest.approx(gpu, rel=1e-4)
    resident = next(f for f in first["forms"] if f["form"] == "resident, one call")
    assert [u["k"] for u in resident["uses"]] == [1]


def test_the_calculators_tables_hold_the_measured_times(of):
    tools = {t.name: t for t in calculator.tools(of.rows, of.analysis.crossovers, of.analysis.profile)}
    square = tools["float32, n x n x n"]
    answer = next(a for a in of.analysis.crossovers if a.form == LATENCY and a.precision == "float32")
    assert square.sides["cpu"].axes[0].values == tuple(float(p.n) for p in answer.points)
    assert square.sides["cpu"].seconds == tuple(p.cpu.seconds.value for p in answer.points)
    assert square.sides["gpu"].seconds == tuple(p.gpu.seconds.value for p in answer.points)
    assert tools["float32, M x N x K"].copies == square.copies


def test_trainings_have_parts_lines_and_charts(of):
    made = {b.training.key: b for b in of.analysis.budgets}
    for pair in of.analysis.pairs:
        for side in (pair.gpu, *pair.cpus):
            found = budget.job_parts(side.cost, 3, pair.steps, made.get(side.row.key))
            assert sum(found.values()) == pytest.approx(costs.whole_training(side.cost, 3, pair.steps).value, rel=1e-9)
            assert tuple(found) == budget.JOB_PARTS
    lines = markdown(step_budgets.section(of.analysis.budgets, of.rows))
    text = "\n".join(lines)
    assert len(training.numbers(of.analysis.budgets).rows) == len(of.analysis.budgets)
    assert "100 % is not explained" not in text
    assert sum("not all parts of a step are known" in line for line in lines) == 1
    assert "`python -m workloads." in text
    along = training.along(of.analysis.training_crossovers)[0]
    assert any("batch" in v.label for v in along.views)
    for view in along.views:
        assert {t.name for t in view.traces} == {"CPU", "GPU"} and view.says.endswith(".")
    small = break_even_chart.small(of.analysis.small_datasets, of.analysis.budgets)[0]
    bars = next(v for v in small.views if v.bars)
    for where in {w for t in bars.traces for w in t.y}:
        assert sum(x for t in bars.traces for x, w in zip(t.x, t.y, strict=True) if w == where) > 0
    pairs = of.analysis.pairs
    assert len(break_even_chart.break_even(pairs)[0].numbers.rows) == sum(not p.setup.switches for p in pairs)


def test_questions_are_answered_with_this_machines_numbers(of):
    found = questions.answered(of.analysis)
    asked = {one.question: one.answer for one in found}
    assert len(asked) >= 10 and all(re.search(r"\d", said) for said in asked.values())
    assert not [said for said in asked.values() if len(said.split()) >= 40]
    assert asked["What does pinned memory buy?"].startswith("Large copies are ")
    assert questions.answered(Analysis.from_rows([])) == []


def test_a_nearly_empty_page_is_a_page(tmp_path):
    one = fake.row("matmul/cupy/cublas", fake.square(64), 1e-5)
    for i, measurements in enumerate(([], fake.training_rows(), [one])):
        loaded = msgspec.structs.replace(fake.gpu_run(sizes=(64,)), measurements=tuple(measurements))
        assert (
            '<section id="answer"'
            in html.write([Material(Analysis.from_loaded(loaded))], tmp_path / f"{i}.html", None).read_text()
        )
    nameless = msgspec.structs.replace(fake.gpu_run(sizes=(64,)), runs=())
    assert (
        "The result file has no line"
        in html.write([Material(Analysis.from_loaded(nameless))], tmp_path / "n.html", None).read_text()
    )


def test_without_plotly_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    write(tmp_path, fake.cpu_run(sizes=(64,)))
    monkeypatch.setattr(html, "has_libraries", lambda: False)
    assert command.main([str(tmp_path)]) == 3
    assert "there is no report.html: jinja2, markdown-it-py or plotly is not installed" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_no_control_character_reaches_a_page(tmp_path):
    """Escape, bell, C1 and a mark that reverses the direction of writing, in the CPU's name and the command."""
    loaded = fake.gpu_run(sizes=(64,))
    (first,) = loaded.runs
    machine = msgspec.structs.replace(first.machine, cpu="Fast\x1b[31m\x07\x85\u202eCPU")
    changed = msgspec.structs.replace(first, machine=machine, command="python -m workloads.matmul \x1b[1m--fast")
    material = Material(Analysis.from_loaded(msgspec.structs.replace(loaded, runs=(changed,))))
    pages = page.markdown([material], False), html.write([material], tmp_path / "p.html", None).read_text()
    for text in pages:
        assert not set(text) & set("\x1b\x07\x85\u202e") and "Fast" in text
