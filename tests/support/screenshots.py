"""Pictures of a page and of an answer: `make screenshots [RUN=reports/nvidia-h200/suite] [ARGS="--every -o DIR"]`."""

import argparse
import io
import os
import pathlib
import sys
import tempfile

import on_terminal
from browser import address, chromium, executable, ready
from PIL import Image
from rich.console import Console
from rich.text import Text

from analysis import report

SIZES = {"wide": (1280, 1560), "narrow": (375, 1200)}
ANSWER = "-m analysis.explain --model cifar10-cnn reports/nvidia-h200"
COLUMNS = 80
# rich's own format loads its fonts from the network.
SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_CLEARED = "\r\x1b[K"  # written before the line of progress and after it


def picture_of_answer(path: pathlib.Path) -> None:
    """Writes ANSWER's terminal of 80 columns, colors included, as an SVG."""
    os.environ["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    text = on_terminal.run(ANSWER.split()[1:], COLUMNS).text.rpartition(_CLEARED)[2]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text.replace("\r\n", "\n").rstrip()))
    path.write_text(console.export_svg(title=f"python {ANSWER}", unique_id="answer", code_format=SVG))


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
    picture_of_answer(out / "answer.svg")
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
