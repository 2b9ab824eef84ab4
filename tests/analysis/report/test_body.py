"""A page of two runs in a real Chromium: every chart and control with both, the second's own answer, axe on a phone."""

import json

import fake_measurements as fake
import pytest
from browser import LINES, TRACES, ask
from result_files import folders, slowed

from analysis import report
from analysis.report import calculator, material
from analysis.report.charts import crossover

SIZES = (64, 128, 256, 512, 1024)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the page's path, its runs): a machine, the same one three times as slow on its CPU and GPU alike, and a CPU alone."""
    place = tmp_path_factory.mktemp("several")
    whole = fake.whole_run(sizes=SIZES)
    paths = folders(place, whole, slowed(whole, 3.0), fake.cpu_run(sizes=SIZES))
    return report.to_open(report.render(paths, place / "out")), material.shown(paths)


def names(page, chart: str) -> list[str]:
    """The lines of a chart."""
    return page.evaluate(TRACES, chart)


def test_every_chart_has_every_runs_lines(page, made):
    assert [m.letter for m in made[1]] == ["A", "B", "C"]
    charts = dict.fromkeys(("crossover", "roofline", "rates"), "ABC") | dict.fromkeys(("memory", "transfers"), "AB")
    for chart, letters in charts.items():
        assert {name[0] for name in names(page, chart)} == set(letters), chart
        assert all(name[1] == " " for name in names(page, chart))
        table = page.locator(f"#chart-{chart} details.data table").first
        assert table.locator("th").first.text_content() == "run"
        cells = table.evaluate("t => [...new Set([...t.tBodies[0].rows].map(r => r.cells[0].textContent))]")
        assert cells == list(letters), chart
    roofs = [n for n in names(page, "roofline") if "matmul" not in n]
    assert {"A CPU float32", "B CPU float32", "C CPU float32", "B GPU HBM bandwidth"} <= set(roofs)
    still = page.locator("#chart-roofline img.still")
    assert still.get_attribute("src").startswith("data:image/svg+xml;base64,")
    assert page.locator("#answer h3").all_inner_texts() == [m.label for m in made[1]]
    assert page.locator("h2.run").all_inner_texts() == [m.label for m in made[1]]


def test_the_crossover_switches_to_the_chosen_run(page, made):
    select, verdict = page.locator("#x-run"), page.locator("#x-verdict")
    assert select.locator("option").all_inner_texts() == [m.label for m in made[1]]
    page.select_option("#x-precision", label="float64")
    for i in (1, 0):
        select.select_option(str(i))
        answer = next(a for a in crossover.shown(made[1][i].analysis.crossovers) if a.precision == "float64")
        assert page.evaluate("document.getElementById('x-precision').selectedOptions[0].text") == "float64"
        assert verdict.inner_text().startswith(f"{'AB'[i]}: {crossover.verdict(answer)}")
        assert page.evaluate(LINES) == [pytest.approx(c.at.value, rel=1e-5) for c in answer.crossings]
        assert {n[:5] for n in names(page, "crossover")} == {"A CPU", "A GPU", "B CPU", "B GPU", "C CPU"}
    y = "n => document.querySelector('#chart-crossover .plot').data.find(t => t.name === n).y"
    slow, fast = (page.evaluate(y, f"{letter} CPU, best") for letter in "BA")
    assert slow == pytest.approx([3 * v for v in fast], rel=1e-5)
    page.select_option("#x-metric", "speedup")  # each beside its own CPU: three times as slow is as much faster
    one, other = (page.evaluate(y, f"{letter} GPU, resident, one call") for letter in "AB")
    assert one == pytest.approx(other, rel=1e-4)
    page.select_option("#x-metric", "time")
    page.select_option("#x-precision", label="float32")


def test_a_run_without_gpu_has_no_bands(page):
    page.select_option("#x-run", "2")
    assert page.locator("#x-verdict").inner_text().startswith("C: no GPU was measured. A: ")
    assert page.locator("#x-form").is_disabled() and page.locator("#x-uses").is_disabled()
    assert not page.locator("#chart-crossover .parts").is_visible()
    assert page.evaluate("document.querySelector('#chart-crossover .plot').layout.shapes.length") == 0
    assert {n[:5] for n in names(page, "crossover")} == {"A CPU", "A GPU", "B CPU", "B GPU", "C CPU"}
    page.select_option("#x-run", "0")
    assert page.locator("#chart-crossover .parts").is_visible() and page.locator("#x-form").is_enabled()


def test_ones_own_size_on_any_of_the_machines(page, made):
    select = page.locator("#c-run")
    assert select.locator("option").all_inner_texts() == [m.label for m in made[1]]
    page.fill("#c-n", "300")
    found = [calculator.tools(m.rows, m.analysis.crossovers, m.analysis.profile)[0] for m in made[1]]
    shown = "[...document.querySelectorAll('#c-table tbody tr')].map(r => [r.cells[0].textContent, Number(r.dataset.seconds)])"
    for i, letter in ((1, "B"), (2, "C"), (0, "A")):
        select.select_option(str(i))
        assert page.input_value("#c-n") == "300"  # the size stays
        rows = dict(page.evaluate(shown))
        for j, tool in enumerate(found):
            for side, seconds in ask(page, "call", tool, [300], "", 1).items():
                name = side.upper() if i == j else f"{'ABC'[j]}: {side.upper()}"
                assert rows.pop(name) == pytest.approx(seconds), (letter, name)
        assert rows == {}
        ends = "no GPU was measured on this machine." if letter == "C" else "."
        assert page.locator("#c-answer").inner_text().endswith(ends)
        assert ("The CPU is predicted to need" in page.locator("#c-answer").inner_text()) == (letter == "C")


def test_all_numbers_can_be_filtered_by_run(page, made):
    assert page.locator("#n-table th").first.inner_text() == "run"
    for i, m in enumerate(made[1]):
        page.select_option("#n-run", str(i))
        said = page.locator("#n-says").inner_text()
        assert f" of {len(m.rows)} (" in said
        shown = page.evaluate("[...document.querySelectorAll('#n-table tbody tr')].map(r => r.cells[0].textContent)")
        assert set(shown) == {m.letter}
    page.fill("#n-filter", "cublas float64")
    page.select_option("#n-run", "2")
    assert page.locator("#n-says").inner_text() == "No row has all these words."
    page.fill("#n-filter", "")
    page.select_option("#n-run", "")
    assert f" of {sum(len(m.rows) for m in made[1])}." in page.locator("#n-says").inner_text()
    lines = [json.loads(line) for line in page.evaluate("rows.jsonl()").splitlines()]
    assert {line["run"] for line in lines} == {"A", "B", "C"}
    assert page.evaluate("rows.csv()").splitlines()[0].startswith("run,kernel,")
    page.fill("#d-filter", "numpy/blas 512 float64")
    assert {text[0] for text in page.locator("#d-row option").all_inner_texts()} == {"A", "B", "C"}
