"""Chromium for tests and pictures: the distribution's own, driven by Playwright, with no way to the network."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

import msgspec

from analysis.report import calculator

SIZES = (64, 128, 256, 512, 1024)  # of the page of everything
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"]
LINES = "document.querySelector('#chart-crossover .plot').layout.shapes.filter(s => s.type === 'line').map(s => s.x0)"
TRACES = "id => document.querySelector(`#chart-${id} .plot`).data.filter(t => t.hoverinfo !== 'skip').map(t => t.name)"


def executable() -> str | None:
    """The installed Chromium; None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def everything(folder: pathlib.Path):
    """(a page with everything that one shows, and every control, written into the folder; its material): squares, layers,
    memory, copies, launches, trainings on both devices, more rows than a page of them holds."""
    import fake_measurements as fake
    import fake_trainings
    from result_files import write

    from analysis import report
    from analysis.analysis import Analysis
    from analysis.report.material import Material

    run = fake.layers_run(batches=(1, 8, 128), maths=("float32",), kinds=("dense",))
    rows = (
        *fake.whole_run(sizes=SIZES).measurements,
        *run.measurements,
        *fake_trainings.batches(),
        *fake_trainings.small_data(),
    )
    whole = msgspec.structs.replace(run, measurements=tuple({m.key: m for m in rows}.values()))
    write(folder, whole)
    return report.to_open(report.render([folder])), Material(Analysis.from_loaded(whole))


@contextlib.contextmanager
def chromium() -> Iterator:
    """A running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        yield browser
        browser.close()


def address(page: pathlib.Path) -> str:
    """The address of a file on disk."""
    return page.resolve().as_uri()


def ready(page) -> None:
    """Waits until the charts' JavaScript is there and draws them all, also those far below the window."""
    page.wait_for_function("document.documentElement.classList.contains('ready')", timeout=60_000)
    page.evaluate("charts.all()")


@contextlib.contextmanager
def opened(browser, page: pathlib.Path, width: int = 1280, **how) -> Iterator:
    """The page with all its charts drawn; on leaving, it must have asked for nothing and complained of nothing."""
    seen = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light", **how)
    asked, complaints = [], []
    seen.on("request", lambda request: asked.append(request.url))
    seen.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    seen.on("pageerror", lambda error: complaints.append(str(error)))
    seen.goto(address(page))
    ready(seen)
    yield seen
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [address(page)]
    assert complaints == []
    seen.close()


def violations(page, contrast: bool = True, **only) -> list[tuple[str, list]]:
    """What axe-core finds, all details open; a plot is one image with a label, and of long tables two lines are enough.
    contrast: of colors too, which takes longest and is the same at every width."""
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("document.querySelectorAll('main tbody').forEach(b => { while (b.rows.length > 2) b.deleteRow(2); })")
    page.evaluate("document.querySelectorAll('main details').forEach(d => { d.open = true; })")
    options = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": contrast}}} | only
    found = Axe().run(page, {"exclude": [".plot"]}, options).response
    assert len(found["passes"]) >= (1 if only else 15)  # it looked
    return [(v["id"], [n["target"] for n in v["nodes"][:3]]) for v in found["violations"]]


def ask(page, function: str, tool: calculator.Tool, *more) -> dict[str, float]:
    """The seconds of each side that the page's calculator works out."""
    words = f"([tool, ...more]) => calculator.{function}(tool, ...more)"
    return {side: one["seconds"] for side, one in page.evaluate(words, [msgspec.to_builtins(tool), *more]).items()}
