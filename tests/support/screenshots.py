"""Pictures of a page: `make screenshots [RUN=reports/nvidia-h200/suite] [ARGS="--every -o DIR"]`."""

import argparse
import io
import pathlib
import sys
import tempfile

from browser import address, chromium, executable, ready
from PIL import Image

from analysis import report

SIZES = {"wide": (1280, 1560), "narrow": (375, 1200)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="a result file, a run folder or a machine folder")
    parser.add_argument("-o", dest="out", default="docs", help="the pictures' folder")
    parser.add_argument("--whole", action="store_true", help="the whole page, not what is seen first")
    parser.add_argument(
        "--every", action="store_true", help="narrow and dark ones too, beside README's, wide and light"
    )
    arguments = parser.parse_args()
    if executable() is None:
        print("error: no Chromium; try: apt-get install chromium", file=sys.stderr)
        return 3
    sizes, themes = (SIZES, ("light", "dark")) if arguments.every else ({"wide": SIZES["wide"]}, ("light",))
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page_file = report.to_open(report.render(arguments.run, folder))
        for name, (width, height) in sizes.items():
            for theme in themes:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
                page.goto(address(page_file))
                ready(page)
                page.wait_for_timeout(500)
                path = out / f"report-{name}-{theme}.png"
                taken = Image.open(io.BytesIO(page.screenshot(full_page=arguments.whole)))
                taken.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
                print(path)
                page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
