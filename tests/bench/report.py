"""What the page costs: 10,000 measurements written and opened, and how large the quick suite's file is."""

import pathlib
import statistics
import sys
import tempfile
import time

import fake_measurements as fake
import msgspec
from browser import address, chromium, executable
from must_reach import REPORTS, at_most, table
from result_files import write

from analysis import report
from workloads.records import Measurement

ROWS, TURNS, FOLD = 10_000, 3, 4
SIZES = tuple(range(64, 64 + 16 * 400, 16))
QUICK = REPORTS / "intel-avx512-2c" / "suite"  # what `make run` left on a machine of two cores
PAINT = "performance.getEntriesByType('paint').find(e => e.name === 'first-contentful-paint')?.startTime"


def many(folder: pathlib.Path) -> int:
    """Writes a run of ROWS rows into the folder; returns how many there are."""
    run = fake.gpu_run(sizes=SIZES)
    rows = tuple(map(sampled, {m.key: m for m in run.measurements}.values()))[:ROWS]
    folder.mkdir()
    write(folder, msgspec.structs.replace(run, measurements=rows))
    return len(rows)


def sampled(m: Measurement) -> Measurement:
    """The row with as many samples as a real one has: about 170 of its clocks together."""

    def folded(s):
        seconds = s.seconds * FOLD
        return msgspec.structs.replace(s, seconds=seconds, block_sizes=s.block_sizes * FOLD)

    return msgspec.structs.replace(m, samples=tuple(map(folded, m.samples)))


def painted(page_file: pathlib.Path) -> float:
    """Seconds until Chromium first paints the page, from disk, in a fresh browser."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address(page_file))
        page.wait_for_function(f"{PAINT} !== undefined")
        return page.evaluate(PAINT) / 1e3


def main() -> int:
    if executable() is None:
        print("error: no Chromium; try: apt-get install chromium", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as place:
        folder, html = pathlib.Path(place, "run"), []
        count = many(folder)
        for turn in range(TURNS):
            begin = time.perf_counter()
            page_file = report.to_open(report.render([folder], pathlib.Path(place, str(turn))))
            html.append(time.perf_counter() - begin)
        paints = [painted(page_file) for _ in range(TURNS)]
        size = page_file.stat().st_size
        quick = report.to_open(report.render([QUICK], pathlib.Path(place, "quick"))).stat().st_size
    if count != ROWS:
        raise SystemExit(f"{count} rows, not {ROWS}")
    written, paint = statistics.median(html), statistics.median(paints)
    figures = [
        at_most(f"{ROWS:,} measurements: HTML, Markdown and pictures written", 10, written, "s"),
        at_most(f"{ROWS:,} measurements ({size / 2**20:.1f} MiB): first paint", 3, paint, "s"),
        at_most(f"the page of the quick suite ({QUICK.parent.name})", 6, quick / 1e6, "MB"),
    ]
    return table("report", "The page", figures, [f"Medians of {TURNS} turns; a paint is of a browser just started."])


if __name__ == "__main__":
    sys.exit(main())
