"""The HTML page in a real Chromium: nothing is asked of the network, every control does what it says, hostile names show as text,
and axe finds nothing, on a phone neither."""

import csv
import io
import json
import re

import browser as chromium_of
import fake_measurements as fake
import fake_trainings
import msgspec
import pytest
from browser import LINES, TRACES, ask
from result_files import write

from analysis import report
from analysis.crossover import reuse
from analysis.report import calculator, material
from analysis.report import page as page_module

SIZES = chromium_of.SIZES
HOSTILE = "</script><img src=x onerror='window.pwned=1'><script>window.pwned=1</script>\"'"
FIRST = "id => document.querySelector(`#chart-${id} .plot`).data.find(t => t.hoverinfo !== 'skip').y"
USES = "charts.data.crossover.runs[0].precisions[0].forms.flatMap(f => f.uses.map(u => u.k))"
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
SUBMITTED = """new Promise(done => {
  const form = document.getElementById('c-form');
  form.addEventListener('submit', event => { done(event.defaultPrevented); event.preventDefault(); }, { once: true });
  form.requestSubmit();
  setTimeout(() => done('no submit event'), 2000);
})"""


def test_every_chart_is_drawn_within_the_window(page):
    """That the page asks for nothing and complains of nothing is held when it is closed."""
    drawn = page.locator("figure[data-chart]").count()
    assert drawn >= 6
    assert page.locator("figure.drawn[data-chart] .main-svg").count() >= drawn
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_chart_is_labeled_and_has_its_numbers(page):
    for figure in page.locator("figure[data-chart], figure[data-special]").all():
        plot = figure.locator(".plot").first
        assert plot.get_attribute("role") == "img" and len(plot.get_attribute("aria-label")) > 20
        assert re.search(r"\d", figure.locator("figcaption").first.inner_text())
        table = figure.locator("details.data table").first
        assert table.locator("thead th[scope=col]").count() >= 4 and table.locator("tbody tr").count() >= 2


def test_the_slider_moves_the_crossover(page, made):
    copied = next(
        pair for pair in reuse.pairs(made[1].analysis.crossovers, "float32") if pair[1].form.mode == "roundtrip"
    )
    page.evaluate("document.getElementById('chart-crossover').scrollIntoView()")
    slider = page.locator("#x-uses")
    slider.focus()
    seen = []
    for uses in reuse.USES[1:8]:
        slider.press("ArrowRight")
        assert page.locator("#x-uses-says").inner_text() == str(uses)
        answer = reuse.amortized(*copied, uses)
        at = answer.crossings[0].at.value
        seen.append(at)
        assert f"each copy used {uses} times" in page.locator("#x-verdict").inner_text()
        assert page.evaluate(LINES) == [pytest.approx(at, rel=1e-5)]
    assert seen == sorted(seen, reverse=True) and seen[-1] < seen[0] / 1.2


def test_the_size_slider_says_where_the_time_goes(page):
    for key, last in (("Home", SIZES[0]), ("End", SIZES[-1])):
        page.locator("#x-size").press(key)
        assert page.locator("#x-size-says").inner_text() == str(last)
        assert f"n = {last}," in page.locator("#x-parts-says").inner_text()
    assert page.locator("#x-parts .bars .point").count() >= 3


def test_precision_and_metric_redraw_the_chart(page):
    y = "document.querySelector('#chart-crossover .plot').data.find(t => t.name === 'CPU, best').y[0]"
    time_s = page.evaluate(y)
    page.select_option("#x-metric", "rate")
    assert page.evaluate(y) == pytest.approx(2 * SIZES[0] ** 3 / time_s, rel=1e-9)
    page.select_option("#x-metric", "speedup")
    assert page.evaluate(y) == pytest.approx(1.0)
    page.select_option("#x-metric", "time")
    page.select_option("#x-precision", label="float64")
    assert page.locator("#x-verdict").inner_text().startswith("float64")
    page.select_option("#x-precision", label="float32")


def answered(page) -> dict[str, float]:
    """The seconds that the calculator shows, by the first words of their rows."""
    return {
        tr.locator("td").first.inner_text(): float(tr.get_attribute("data-seconds"))
        for tr in page.locator("#c-table tbody tr").all()
    }


def table(seconds: tuple[float, ...], *axes: tuple[float, ...], known: tuple[int, ...] = ()) -> calculator.SecondsTable:
    n_axes = tuple(calculator.SizeAxis(name="n", values=values) for values in axes)
    return calculator.SecondsTable(axes=n_axes, seconds=seconds, known=known)


RISING = table((1.0, 100.0, 200.0), (10.0, 100.0, 1000.0))
CORNER = table((1.0, 4.0, 4.0, 16.0), (1.0, 4.0), (1.0, 4.0), known=(1, 1, 1, 0))


@pytest.mark.parametrize(
    ("of", "at", "seconds", "extrapolated"),
    [
        (RISING, [100], 100.0, False),
        (RISING, [1000**0.5], 10.0, False),
        (RISING, [1000], 200.0, False),
        (RISING, [10_000], 400.0, True),
        (CORNER, [2, 2], 4.0, True),
        (CORNER, [2, 1], 2.0, False),
    ],
)
def test_a_look_up_is_straight_in_the_logarithms(page, of, at, seconds, extrapolated):
    found = page.evaluate("([table, at]) => calculator.lookUp(table, at)", [msgspec.to_builtins(of), at])
    assert found == {"seconds": pytest.approx(seconds), "extrapolated": extrapolated}


def test_calls_share_copies_and_trainings_their_start(page):
    ends = (1.0, 2.0)
    step, start, epoch = (
        {"cpu": table(cpu, ends), "gpu": table(gpu, ends)}
        for cpu, gpu in (((1.0, 1.0), (2.0, 2.0)), ((10.0, 10.0), (20.0, 20.0)), ((3.0, 3.0), (1.0, 1.0)))
    )
    copies = {"roundtrip": table((6.0, 6.0), ends)}
    tool = calculator.Tool(name="t", kind="training", sides=step, copies=copies, once=start, epoch=epoch)
    assert ask(page, "call", tool, [1.5], "roundtrip", 3)["gpu"] == pytest.approx(4.0)  # 2 + 6 / 3
    assert ask(page, "job", tool, 1.5, 4) == {"cpu": pytest.approx(22.0), "gpu": pytest.approx(24.0)}
    square = table((1.0, 100.0), (1.0, 10.0))
    sides = {"gpu": table((1.0,), (1.0,), (1.0,), (1.0,))}
    products = calculator.Tool(name="p", kind="call", sides=sides, copies={"roundtrip": square})
    copied = ask(page, "call", products, [5, 5, 2], "roundtrip", 1)["gpu"]
    assert copied == pytest.approx(1.0 + 15.0)  # 25 + 10 + 10 elements: those of n = sqrt(15), which costs n squared


def test_the_calculators_controls_ask_it(page, made):
    tools = calculator.tools(made[1].rows, made[1].analysis.crossovers, made[1].analysis.profile)
    assert [t.name for t in tools] == page.locator("#c-tool option").all_inner_texts()
    chosen = {t.kind + str(len(t.sides["cpu"].axes)): i for i, t in reversed(list(enumerate(tools)))}
    assert set(chosen) == {"call1", "call3", "training1"}
    for i in chosen.values():
        tool = tools[i]
        at = [round((axis.values[0] * axis.values[-1]) ** 0.5 * 1.1) for axis in tool.sides["cpu"].axes]
        way, uses = next(iter(tool.copies), ""), 7
        page.select_option("#c-tool", str(i))
        for axis, value in zip(tool.sides["cpu"].axes, at, strict=True):
            page.fill(f"#c-{axis.name}", str(value))
        if way:
            page.select_option("#c-way", way)
            page.fill("#c-uses", str(uses))
            assert f"shared by {uses} use" in page.locator("#c-constants").inner_text()
        is_training = tool.kind == "training"
        assert [page.locator(f"#c-{part}").is_visible() for part in ("copying", "job")] == [
            not is_training,
            is_training,
        ]
        step = ", a step" if is_training else ""
        expected = {f"{side.upper()}{step}": s for side, s in ask(page, "call", tool, at, way, uses).items()}
        judged = expected
        if is_training:
            page.fill("#c-epochs", "4")
            whole = ask(page, "job", tool, at[0], 4)
            judged = {f"{side.upper()}, whole training of 4 epochs": s for side, s in whole.items()}
        assert answered(page) == pytest.approx(expected | judged)
        winner = min(judged, key=judged.__getitem__)
        assert page.locator("#c-answer").inner_text().startswith(f"The {winner[:3]} is predicted")


def test_all_numbers_are_filtered_and_sorted(page, made):
    page.evaluate("document.getElementById('numbers').scrollIntoView()")
    rows = page.locator("#n-table tbody tr")
    page.fill("#n-filter", "cublas float64 resident")
    cublas = [m for m in made[1].rows if m.kernel == "matmul/cupy/cublas" and m.settings.mode == "resident"]
    assert rows.count() == sum(m.problem.math == "float64" for m in cublas)
    page.fill("#n-filter", "numpy/blas float32")
    head = page.locator("#n-table th", has_text="time").first
    for order in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        cells = page.evaluate("[...document.querySelectorAll('#n-table tbody tr')].map(r => r.cells[6].textContent)")
        told = [cell.split() for cell in cells if cell != "-"]
        shown = [float(number) * SECONDS[unit] for number, unit in told]
        assert {unit for _, unit in told} >= {"µs", "ms"} and shown == sorted(shown, reverse=order == "descending")
    page.fill("#n-filter", "no such words")
    assert page.locator("#n-says").inner_text() == "No row has all these words."
    page.fill("#n-filter", "")


def test_the_distribution_of_a_row_is_drawn(page):
    page.evaluate("document.getElementById('distributions').scrollIntoView()")
    page.fill("#d-filter", "numpy/blas 512 float32")
    assert page.locator("#d-row option").count() > 0
    said = page.locator("#d-says").inner_text()
    assert "host-latency: median " in said and "check: exact" in said
    assert page.locator("#d-plot .scatter").count() >= 1
    assert 2 <= page.evaluate("document.querySelectorAll('#d-table tbody tr').length") <= 50


def test_every_view_is_drawn_when_chosen(page):
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


def test_the_form_greys_what_lies_beyond(page, made):
    tools = calculator.tools(made[1].rows, made[1].analysis.crossovers, made[1].analysis.profile)
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


def test_the_slider_of_uses_chooses_a_copied_call(page):
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
    assert len(records) == len(made[1].rows) and len(lines) - len(records) == len(made[1].analysis.loaded.runs)
    table = list(csv.DictReader(io.StringIO(saved["csv"])))
    assert [row["kernel"] for row in table] == [r["kernel"] for r in records]
    timed = next(i for i, r in enumerate(records) if "host-latency" in r.get("clocks", {}))
    assert float(table[timed]["clocks.host-latency.median_s"]) == records[timed]["clocks"]["host-latency"]["median_s"]


def test_hostile_names_show_as_text(chromium, tmp_path):
    long = "<script>window.pwned=1</script>" + HOSTILE + "x" * 10_000
    host = msgspec.structs.replace(fake.GPU_MACHINE, key=f"host-{HOSTILE}", os=HOSTILE, cpu=long)
    software = {HOSTILE: HOSTILE}
    run = msgspec.structs.replace(fake.run(host, f"python -m workloads.training --model {HOSTILE}"), software=software)
    other = msgspec.structs.replace(run, machine=msgspec.structs.replace(fake.CPU_MACHINE, key=f"{HOSTILE}-2c"))
    rows = [
        fake_trainings.trained(HOSTILE, batch, 8 * batch, (0.0, 0.0, step), device=device, once=(5.0, 0.0, 0.0))
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
        out = page_module.write(made, tmp_path / name)
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


def test_the_theme_button_recolors_page_and_charts(page):
    ink = "document.querySelector('#chart-crossover .plot').layout.font.color"
    light = page.evaluate(ink)
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark" and page.evaluate(ink) != light
    page.click("#theme")
    assert page.evaluate(ink) == light


def test_the_page_works_narrow_and_without_javascript(chromium, made):
    """With JavaScript a narrow page is that of axe's phone."""
    context = chromium.new_context(viewport={"width": 375, "height": 800}, java_script_enabled=False)
    narrow = context.new_page()
    narrow.goto(chromium_of.address(made[0]))
    assert narrow.locator("#answer li").count() >= 3
    assert not narrow.locator(".tools").is_visible() and narrow.locator("img.still").count() >= 4
    assert narrow.locator("#chart-crossover img.still").is_visible()
    assert narrow.locator("#numbers table tbody tr").count() == sum(m.status != "skipped" for m in made[1].rows)
    context.close()


def test_paper_gets_every_chart_in_light_colors(page):
    page.evaluate("document.documentElement.dataset.theme = 'dark'; charts.again()")
    ink = "document.querySelector('#chart-crossover .plot').layout.font.color"
    dark = page.evaluate(ink)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light" and page.evaluate(ink) != dark
    assert page.locator("figure[data-chart]:not(.drawn)").count() == 0
    assert page.locator("main details[open]").count() > 10
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ink) == dark


@pytest.mark.slow
def test_axe_finds_no_violation_in_either_theme(page):
    colors = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    for theme, options in (("light", {}), ("dark", colors)):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'; charts.again()")
        assert chromium_of.violations(page, **options) == []


@pytest.mark.slow
def test_axe_finds_no_violation_on_a_phone(chromium, made):
    with chromium_of.opened(chromium, made[0], 375) as seen:
        assert seen.locator("#answer li").count() >= 3
        assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
        seen.evaluate("document.getElementById('contents').open = true")
        assert chromium_of.violations(seen, contrast=False) == []
