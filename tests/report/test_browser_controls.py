"""The page's controls in a real Chromium, one by one: views, one's own size, pages of rows, downloads; hostile names of models
and hosts; axe on a phone."""

import csv
import io
import json

import browser as chromium_of
import fake_measurements as fake
import msgspec
import pytest
import test_jobs
from test_browser import ask
from test_results_load import write

from analysis import report
from analysis.report import calculator, material
from analysis.report import page as page_module

SIZES = chromium_of.SIZES
HOSTILE = "</script><img src=x onerror='window.pwned=1'><script>window.pwned=1</script>\"'"
TRACES = "id => document.querySelector(`#chart-${id} .plot`).data.filter(t => t.hoverinfo !== 'skip').map(t => t.name)"
FIRST = "id => document.querySelector(`#chart-${id} .plot`).data.find(t => t.hoverinfo !== 'skip').y"
USES = "charts.data.crossover.runs[0].precisions[0].forms.flatMap(f => f.uses.map(u => u.k))"
SUBMITTED = """new Promise(done => {
  const form = document.getElementById('c-form');
  form.addEventListener('submit', event => { done(event.defaultPrevented); event.preventDefault(); }, { once: true });
  form.requestSubmit();
  setTimeout(() => done('no submit event'), 2000);
})"""


def test_every_view_of_every_chart_is_drawn_when_it_is_chosen(page):
    charts = page.evaluate("Object.fromEntries(Object.entries(charts.data.charts).map(([n, c]) => [n, c.views]))")
    several = {name: views for name, views in charts.items() if len(views) > 1}
    assert {"roofline", "rates", "along", "budget", "small-dataset", "break-even"} <= set(several)
    for name, views in several.items():
        select = page.locator(f"#view-{name}")
        assert select.locator("option").all_inner_texts() == [v["label"] for v in views]
        for i in [*range(1, len(views)), 0]:
            select.select_option(str(i))
            drawn = [text.replace("<br>", " ") for text in page.evaluate(TRACES, name)]
            assert drawn == [t["name"] for t in views[i]["traces"]]
            values = page.evaluate(FIRST, name)
            assert len(values) == len(views[i]["traces"][0]["y"])
            if views[i].get("says"):
                assert page.locator(f"#chart-{name} figcaption").inner_text() == views[i]["says"]
                assert page.locator(f"#chart-{name} .plot").get_attribute("aria-label") == views[i]["says"]


def test_the_form_greys_what_lies_beyond_and_takes_nothing_for_one(page, made):
    tools = calculator.tools(made[1].rows, made[1].answers, made[1].profile)
    page.select_option("#c-tool", "0")
    page.select_option("#c-way", "")
    beyond = 10 * SIZES[-1]
    page.fill("#c-n", str(beyond))
    found = ask(page, "call", tools[0], [beyond], "", 1)
    said = page.locator("#c-answer").inner_text()
    assert said.endswith(" (extrapolated: beyond what was measured).")
    assert page.evaluate("getComputedStyle(document.getElementById('c-answer')).fontStyle") == "italic"
    ratio = found["cpu"] / found["gpu"]
    assert said.startswith(f"The GPU is predicted to be {page.evaluate('v => units.digits(v)', ratio)}x faster")
    page.fill("#c-n", str(SIZES[1]))
    assert "extrapolated" not in page.locator("#c-form").inner_text()
    assert page.evaluate("getComputedStyle(document.getElementById('c-answer')).fontStyle") == "normal"
    least = ask(page, "call", tools[0], [1], "", 1)["cpu"]
    for nothing in ("", "-5", "0"):
        page.fill("#c-n", nothing)
        shown = page.evaluate("Number(document.querySelector('#c-table tbody tr').dataset.seconds)")
        assert shown == pytest.approx(least, rel=1e-6)
    page.fill("#c-n", str(SIZES[1]))  # a form with a size below 1 is not sent at all
    assert page.evaluate(SUBMITTED) is True  # it is sent nowhere


def test_uses_of_a_copy_in_the_form_move_its_answer(page, made):
    tools = calculator.tools(made[1].rows, made[1].answers, made[1].profile)
    page.select_option("#c-tool", "0")
    page.fill("#c-n", "256")
    way = next(iter(tools[0].copies))
    page.select_option("#c-way", way)
    for uses in (1, 10, 1000):
        page.fill("#c-uses", str(uses))
        shown = page.evaluate("Number(document.querySelector('#c-table tr[data-side=gpu]').dataset.seconds)")
        assert shown == pytest.approx(ask(page, "call", tools[0], [256], way, uses)["gpu"], rel=1e-6)
        assert f"shared by {uses} use" in page.locator("#c-constants").inner_text()
    training = next(i for i, t in enumerate(tools) if t.kind == "training")
    page.select_option("#c-tool", str(training))
    assert not page.locator("#c-copying").is_visible() and page.locator("#c-job").is_visible()
    jobs = []
    for epochs in (1, 100):
        page.fill("#c-epochs", str(epochs))
        jobs.append(page.evaluate("Number([...document.querySelectorAll('#c-table tbody tr')].pop().dataset.seconds)"))
        at = float(page.input_value("#c-batch"))
        assert jobs[-1] == pytest.approx(ask(page, "job", tools[training], at, epochs)["gpu"], rel=1e-6)
    assert jobs[1] > jobs[0]


def test_the_slider_of_uses_goes_to_its_ends_and_chooses_a_copied_call(page):
    page.select_option("#x-form", "0")
    slider = page.locator("#x-uses")
    slider.press("End")
    most = max(page.evaluate(USES))
    assert page.locator("#x-uses-says").inner_text() == str(most)
    assert slider.get_attribute("aria-valuetext") == f"{most} uses of each copy"
    assert "copied in and out" in page.evaluate("document.getElementById('x-form').selectedOptions[0].textContent")
    slider.press("Home")
    assert page.locator("#x-uses-says").inner_text() == "1"
    assert slider.get_attribute("aria-valuetext") == "1 use of each copy"


def test_pages_of_rows_go_on_and_back(page, made):
    said, before, after = (page.locator(f"#{name}") for name in ("n-says", "n-before", "n-after"))
    every, first = len(made[1].rows), page.locator("#n-table tbody tr").first
    begin = first.inner_text()
    assert said.inner_text() == f"Rows 1 to 100 of {every}."
    assert before.is_disabled() and after.is_enabled()
    after.click()
    assert said.inner_text().startswith("Rows 101 to 200 of ") and first.inner_text() != begin
    before.click()
    assert said.inner_text().startswith("Rows 1 to 100 of ") and first.inner_text() == begin
    assert before.is_disabled()
    for _ in range(every // 100):
        after.click()
    assert said.inner_text() == f"Rows {every // 100 * 100 + 1} to {every} of {every}." and after.is_disabled()
    page.fill("#n-filter", "matmul")  # a filter begins at its first page
    assert said.inner_text().startswith("Rows 1 to ")
    page.fill("#n-filter", "")


def test_the_download_buttons_save_what_the_page_holds(page, made):
    saved = {}
    for name in ("jsonl", "csv"):
        with page.expect_download() as download:
            page.click(f"#{name}")
        assert download.value.suggested_filename == f"crossover.{name}"
        saved[name] = open(download.value.path(), encoding="utf-8", newline="").read()  # noqa: SIM115
        assert saved[name] == page.evaluate(f"rows.{name}()")
    lines = [json.loads(line) for line in saved["jsonl"].splitlines()]
    records = [line for line in lines if "kernel" in line]
    assert len(records) == len(made[1].rows) and len(lines) - len(records) == len(made[1].loaded.runs)
    table = list(csv.DictReader(io.StringIO(saved["csv"])))
    assert [row["kernel"] for row in table] == [r["kernel"] for r in records]
    timed = next(i for i, r in enumerate(records) if "host-latency" in r.get("clocks", {}))
    assert float(table[timed]["clocks.host-latency.median_s"]) == records[timed]["clocks"]["host-latency"]["median_s"]


def test_hostile_names_of_models_and_hosts_show_as_text(chromium, tmp_path):
    long = "<script>window.pwned=1</script>" + HOSTILE + "x" * 10_000
    host = msgspec.structs.replace(fake.GPU_MACHINE, key=f"host-{HOSTILE}", os=HOSTILE, cpu=long)
    software = {HOSTILE: HOSTILE}
    run = msgspec.structs.replace(fake.run(host, f"python -m workloads.training --model {HOSTILE}"), software=software)
    other = msgspec.structs.replace(run, machine=msgspec.structs.replace(fake.CPU_MACHINE, key=f"{HOSTILE}-2c"))
    rows = [
        test_jobs.trained(HOSTILE, batch, 8 * batch, (0.0, 0.0, step), device=device, once=(5.0, 0.0, 0.0))
        for batch in (50, 100, 400, 800)
        for device, step in (("cpu", 2e-3 + 1e-5 * batch), ("gpu:0", 4e-3))
    ]
    rows += fake.laws(lambda n: n**3 / 1e11, lambda n: 2e-5, (64, 128, 256))
    rows += [
        fake.row("matmul/numpy/blas", fake.square(9), None, status="failed", reason=long),
        fake.row("matmul/numpy/blas", fake.square(7), None, status="failed", reason="=1+1"),
        fake.row("matmul/numpy/blas", fake.square(8), 1e-3, flags=(long,), notes={"plan": long}),
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a", msgspec.structs.replace(fake.gpu_run(sizes=(64,)), runs=(run,), measurements=tuple(rows)))
    write(tmp_path / "b", msgspec.structs.replace(fake.cpu_run(sizes=(64, 128, 256)), runs=(other,)))
    for name, folders in (("one", ["a"]), ("two", ["a", "b"])):
        made = material.shown([tmp_path / folder for folder in folders])
        out = page_module.write(made, tmp_path / name, with_pictures=name == "two")
        with chromium_of.opened(chromium, report.to_open(out)) as seen:
            seen.wait_for_timeout(200)
            assert seen.evaluate("window.pwned") is None and seen.locator("img[src='x']").count() == 0
            assert HOSTILE in seen.locator("h1").inner_text()
            assert long in seen.evaluate("document.body.textContent")
            assert HOSTILE in seen.evaluate("document.getElementById('view-along').textContent")
            seen.fill("#n-filter", "training/keras")
            assert HOSTILE in seen.locator("#n-table tbody").inner_text()
            assert HOSTILE in seen.evaluate("rows.jsonl()").replace('\\"', '"')
            assert ",'=1+1," in seen.evaluate("rows.csv()")
            assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert "<img" not in out.read_text().replace("&lt;img", "")


def test_axe_finds_no_violation_on_a_phone(chromium, made):
    with chromium_of.opened(chromium, made[0], 375) as seen:
        assert seen.locator("#answer li").count() >= 3
        assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
        seen.evaluate("document.getElementById('contents').open = true")
        assert chromium_of.violations(seen, contrast=False) == []
